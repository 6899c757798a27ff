"""What the parties of a run will release and what may be said of it, fixed before the first message; their ledgers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from distadmm.data.parts import Parts
from distadmm.errors import require
from distadmm.methods.sharing import private
from distadmm.methods.sharing.messages import PrivacyOptions, agreement, given_bounds
from distadmm.privacy.accounting import statements
from distadmm.privacy.accounting.events import Adjacency, Event, Leakage
from distadmm.privacy.accounting.scopes import Hypothesis, claim
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.noise.mechanism import source_of
from distadmm.privacy.noise.queries import BARE, Query, Releases, committed
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.problems.losses import Logistic, Loss, foreign
from distadmm.ranks.star import Star

if TYPE_CHECKING:
    from distadmm.data.content import Content
    from distadmm.methods.sharing.setup import Prepared
    from distadmm.run.running import Running

_ANY = ["released-anchor", "fresh-noise", "data-free-schedule"]
_ROWS = ["uncentred-rows", "clean-traffic", "public-labels"]
_RECORD = ["constrained-minimiser", "strong-convexity", *_ROWS, *_ANY]
# What `vectors` enforces: half-ball projection (S1); certified solves, cut rows, no other traffic (S2, S3).
CLAIMS = {
    "s1": claim("sharing-party", ["centred-regulariser", *_ANY], beside=statements.beside_sharing("s1")),
    "s2": claim("sharing-record", _RECORD, beside=statements.beside_sharing("s2")),
    "s3": claim("sharing-outside", _RECORD, beside=statements.beside_sharing("s3")),
}


class Account(NamedTuple):
    """What the ledger of one party is opened with."""

    schedule: Committed
    adjacency: Adjacency = "replace"
    epsilon: float | None = None  # the budget
    claim: Mapping[str, Any] | None = None
    scope: str = "person"
    query: Query | None = None  # of vectors: what is released in each iteration


class Price(NamedTuple):
    accounts: dict[int, Account]  # of the parties hosted here that keep a ledger
    said: list[str]  # what may be said of the run, no more
    facts: dict[str, Any]  # for the summary
    agreed: private.Agreement | None = None  # moments
    unchecked: str = ""  # why nothing is bounded, whatever is drawn
    own: Any = None  # at the centre of V2: party 1's model and slopes


def open_price(star: Star, privacy: PrivacyOptions, file: str = "") -> Price:
    """Vectors without noise, or with that of equation (10): every ledger says infinity; `file`: whose code it is."""
    scope, why = "person", "no noise was asked for"
    said: list[str] = []
    if privacy.mechanism == "paper":
        said, scope, why = [statements.PRINTED], "feature", statements.EQUATION_10
    facts = {"epsilon": math.inf, "delta": privacy.delta, "adjacency": privacy.adjacency, "statement": why}
    unchecked = f"{UNCHECKED} {file}" if file else ""
    bare = Committed().doubted(unchecked or BARE)
    accounts = {m: Account(bare, scope=scope) for m in star.hosted}
    return Price(accounts, said, facts, unchecked=unchecked)


def spoken(price: Price, options: Any, star: Star, loss: Loss) -> Price:
    """With the sentences that `ledger show` reads off the ledgers of this run, and what was looked at besides."""
    privacy, beside = options.privacy, ""
    if privacy.guarded and options.run.observe_all:  # because somebody asked for it
        beside = "objectives and losses, and the models trained in one place to compare with"
        accounts = {
            m: each._replace(claim={**each.claim, "observed": beside}) if each.claim else each
            for m, each in price.accounts.items()
        }
        price = price._replace(accounts=accounts)
    if privacy.epsilon is None or privacy.mechanism == "paper":
        return price._replace(said=[*price.said, *([f"{statements.BESIDES}: {beside}."] if beside else [])])
    texts, worst, why, uncovered = _statements(price, privacy, star)
    if foreign(loss):
        return as_unchecked(price, privacy, foreign(loss), worst, beside)
    said = [*texts, *price.said, uncovered]
    later = {**price.facts["privacy"], "statement": " ".join(said), **({"mu": None} if why else {})}
    facts = {**price.facts, "epsilon": worst, "privacy": later, **({"statement": why} if why else {})}
    return price._replace(said=said, facts=facts)


def as_unchecked(price: Price, privacy: PrivacyOptions, file: str, worst: float, beside: str) -> Price:
    """The price where the loss is not this package's own: nothing is bounded, nor scores of its models."""
    why = f"{UNCHECKED} {file}"
    said = [f"No guarantee, epsilon = infinity: no bound is proved for: {why}."]
    if privacy.assume is not None:
        given, seeded = (worst, privacy.delta, privacy.adjacency or "replace"), privacy.noise != "secure"
        said.append(f"{statements.if_assumed(*given, file, seeded=seeded, does=statements.BOUNDED)}.")
    said += [f"{statements.BESIDES}: {beside}."] if beside else []
    accounts = {
        m: each._replace(epsilon=None, schedule=each.schedule.doubted(why))
        for m, each in price.accounts.items()
    }
    later = {"privacy": {"statement": " ".join(said), "mu": None}}
    facts = {**price.facts, "epsilon": math.inf, "statement": why, **later}
    return price._replace(accounts=accounts, said=said, facts=facts, unchecked=why)


def _statements(price: Price, privacy: PrivacyOptions, star: Star) -> tuple[list[str], float, str, str]:
    """One for all parties that claim the same, as ledgers compose; what a person pays whom all of them are about, why
    if that is infinite, and what is not covered."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.ledger import compose

    parts = star.world.allgather(price.accounts)
    every = {m: part[m] for part in parts for m in part}
    alike: dict[tuple[Any, ...], list[Account]] = {}
    for m in sorted(every):
        claimed = every[m].claim or {}
        alike.setdefault((claimed.get("scope"), every[m].adjacency), []).append(every[m])
    reading: Any = "certificate" if privacy.noise == "secure" else "simulation"
    texts, worst, why = [], max((account.epsilon or 0.0 for account in every.values()), default=0.0), ""
    of_all, uncovered = list[Event](), statements.EXACT
    for group in alike.values():
        first, held = group[0], [compose.Node(compose.spending(each.schedule.events)) for each in group]
        blocks = {block.spent for block in compose.blocks(held, compose.NODES[first.scope][0])}
        claimed, terms = first.claim or {}, (first.adjacency, privacy.delta)
        found = [statements.of_claim(reading, claimed, each, *terms, committed=True) for each in blocks]
        spent = {one: one.would_be if reading == "simulation" else one.epsilon for one in found}
        most, block = max(zip(found, blocks), key=lambda one: spent[one[0]])
        texts.append(most.text)
        uncovered = max(uncovered, most.not_covered, key=len)
        of_all += block
        worst = max(worst, spent[most])
        why = why or (most.text if math.isinf(spent[most]) else "")
    if len(alike) > 1 and math.isfinite(worst):  # each sentence is about a part of the person
        adjacency = next(iter(alike.values()))[0].adjacency
        worst = max(worst, accountant.epsilon(of_all, privacy.delta, adjacency))
    return texts, worst, why, uncovered


def vectors_price(prepared: Prepared) -> Price:
    """S1, S2 and S3: the rounds of each releasing party, within its budget."""
    from distadmm.privacy.accounting.gaussian import mu_at

    star, privacy, algorithm = prepared.star, prepared.options.privacy, prepared.algorithm
    assert privacy.mechanism is not None
    assert privacy.epsilon is not None
    mu, rounds = mu_at(privacy.epsilon, privacy.delta), privacy.rounds or 10
    scope, accounts = "person" if algorithm.by_row else "feature", {}
    for m in star.home:
        if m >= algorithm.first:  # asked of all: it refuses what has no bound
            of = prepared.problem, prepared.row[m], prepared.parts.rows
            query = algorithm.query(*of, privacy.noise, mu, rounds)
            schedule = committed([query] * rounds, privacy.noise)
            claimed = CLAIMS[privacy.mechanism]
            accounts[m] = Account(schedule, "replace", privacy.epsilon, claimed, scope, query)
    facts = _summary(privacy) | {"privacy": {"mu": None}}
    note = [prepared.note] if prepared.note else []
    return Price({m: accounts[m] for m in star.hosted if m in accounts}, note, facts)


def moments_price(star: Star, privacy: PrivacyOptions, parts: Parts, loss: Loss) -> Price:
    """V1 to V2: one reply of each party but the first, and V2's slopes."""
    agreed = agreement(privacy, star, parts, loss)
    adjacency: Adjacency = "replace" if privacy.neighbours == "replace" else "add-remove"
    known = not foreign(loss)
    established: list[Hypothesis | str] = [
        "cut-rows", "own-term", "fresh-noise", "data-free-schedule", "own-slopes",
        Hypothesis("public-bound", "flag" if given_bounds(privacy, star) else "code"),
        Hypothesis("bounded-slope", "code" if known else "declared"),
    ]  # fmt: skip
    # Logistic slopes of the two labels at one score differ by 1; another loss's by up to 2, and labels need 1.
    one_apart = privacy.protect != "label" or isinstance(loss, Logistic)
    if loss.max_slope <= 1 and loss.max_curvature <= 0.25 and one_apart:
        established.append(Hypothesis("bounded-curvature", "code" if known else "declared"))
    beside = statements.beside_sharing(agreed.mechanism)
    scope = "moments-rounds" if agreed.mechanism in ("v1-t", "v1-admm") else "moments"
    slopes = private.slope_query(agreed, parts.rows, privacy.noise) if agreed.mechanism == "v2" else None
    accounts = {}
    for m in star.hosted:
        if m > 1:
            width = parts.train[m].shape[1]
            plan = private.plan(agreed, m, width, privacy.noise, slopes.sigma if slopes else 0.0)
            schedule = committed(plan.queries(privacy.noise, width), privacy.noise)
            steepest = private.slope_clip(slopes.sigma) if slopes else 1.0
            whole = privacy.noise == "secure" and agreed.bounds[m].sums_exactly(parts.rows, steepest)
            said_of = claim(scope, established, beside=beside, **({"exact": True} if whole else {}))
            accounts[m] = Account(schedule, adjacency, privacy.epsilon, said_of)
        elif slopes is not None:
            own: Adjacency = "label" if privacy.protect == "label" else "replace"
            one = privacy.epsilon_one or privacy.epsilon
            schedule = committed([slopes], privacy.noise)
            accounts[m] = Account(schedule, own, one, claim("moments-slopes", established, beside=beside))
    said = [*([] if agreed.mu else [statements.OPEN_REPLIES]), *([agreed.note] if agreed.note else [])]
    later = {  # what releases of scores need to know
        "statement": " ".join(said),
        "mu": agreed.mu,
        "delta": privacy.delta,
        "noise": privacy.noise,
        "neighbours": privacy.neighbours,
        "bounds": {str(m): {"row": b.row, "nonnegative": b.nonnegative} for m, b in agreed.bounds.items()},
    }
    own_model = private.own_model(star, parts, loss, agreed)
    return Price(accounts, said, _summary(privacy) | {"privacy": later}, agreed, own=own_model)


def as_claimed(price: Price, privacy: PrivacyOptions, star: Star, out: Mapping[int, Releases]) -> Price:
    """With what the paper itself makes of a run of equation (10), by the claims in its ledgers."""
    from distadmm.privacy.accounting.accountant import published_epsilon

    own = [(0.0, 0, "")]
    for each in out.values():
        spent = [event for event in each.ledger.events if event.unbounded]
        broken = next((event.words for event in spent if event.words != statements.EQUATION_10), "")
        own.append((published_epsilon(spent, "replace"), len(spent), broken))
    every = [each for some in star.world.allgather(own) for each in some]
    (epsilon, rounds, _), why = max(every), max(broken for *_, broken in every)
    said = [*price.said, statements.of_corollary(epsilon, rounds, privacy.delta, why)]
    return price._replace(said=said, facts=price.facts | {"published_epsilon": epsilon})


def _summary(privacy: PrivacyOptions) -> dict[str, Any]:
    """Every ledger keeps within its budget, or the release that would not is refused."""
    facts = {"delta": privacy.delta, "adjacency": privacy.adjacency}
    if privacy.epsilon is None:
        return facts | {"epsilon": math.inf, "statement": "no noise was asked for"}
    word = "certificate" if privacy.noise == "secure" else "simulation"
    return facts | {"epsilon": privacy.epsilon, "statement": word}


def opened(
    price: Price, privacy: PrivacyOptions, star: Star, parts: Parts, seed: int, run: Running
) -> dict[int, Releases]:
    """The ledgers and the noise of the parties hosted here; those of an earlier process are taken up again."""
    from distadmm.privacy.ledger.books import open_ledger
    from distadmm.privacy.ledger.file import path_of

    if run.folder is None:
        noisy = price.agreed or any(each.schedule.events for each in price.accounts.values())
        require(not noisy, "a private run needs a directory")
        return {}
    folder, out = run.folder / "ledger", {}
    here = any(account.schedule.events for account in price.accounts.values())
    noisy = any(star.world.allgather(here))
    contents = _contents(price, privacy, star, parts, noisy)
    mode = privacy.noise if noisy else "simulation"
    with star.world.together():
        source = source_of(mode, seed if mode == "simulation" else None)
        for m, account in price.accounts.items():
            limit = None
            if account.schedule.events:
                limit = account.schedule.limit(account.epsilon, privacy.delta, account.adjacency)
            earlier = run.resumed and path_of(folder, m).exists()
            ledger = open_ledger(
                folder, m, resume=earlier, held=True, adjacency=account.adjacency,
                mode=mode if noisy or not earlier else None,  # without noise version 0.1.0 wrote either
                dataset=(parts.dataset or {}).get(m), source=source.name if noisy else "no noise",
                scope=account.scope, budget=limit, claim=account.claim, run=run.name,
                rows=contents[m].names if m in contents else (),
            )  # fmt: skip
            leaks = [Leakage(*one) for one in (parts.leakage or {}).get(m, ())]
            of_it = source if ledger.mode == mode else source_of("secure")
            out[m] = Releases(ledger, of_it, leaks, again=run.resumed)
    ledgers, entered = [each.ledger for each in out.values()], any(star.world.allgather(bool(contents)))
    if entered and run.resumed:
        from distadmm.run.spending import require_latest

        require_latest(run, privacy.account, ledgers, owners=parts.owners)
    for ledger in ledgers:  # all of them are as they were left
        ledger.go_on()
    if entered:
        from distadmm.data.content import Contents
        from distadmm.run.spending import enter

        schedules, marks = [price.accounts[m].schedule for m in out], Contents.of(contents).marks
        enter(run, privacy.account, ledgers, schedules, marks, privacy.delta, owners=parts.owners)
    with star.world.together():
        for m, account in price.accounts.items():
            out[m].commit(account.schedule)
            if price.unchecked and not any(event.unbounded for event in out[m].ledger.events):
                out[m].ledger.expose(price.unchecked, iteration=0)
    return out


def _contents(
    price: Price, privacy: PrivacyOptions, star: Star, parts: Parts, noisy: bool
) -> dict[int, Content]:
    """Which rows the parties here have, where that is to be entered in an account: not of what a seed makes
    repeatable, nor of bundled tables without noise."""
    if privacy.noise != "secure" if noisy else parts.public:
        return {}
    from distadmm.privacy.ledger.account import Account as Book

    key = Book(privacy.account).key()
    return {m: parts.content(m, key) for m in price.accounts}
