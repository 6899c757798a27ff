"""What the parties of a run will release and what may be said of it, fixed before the first message; their ledgers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from distadmm.data.parts import Parts
from distadmm.errors import require
from distadmm.methods.sharing import private
from distadmm.methods.sharing.messages import PrivacyOptions, agreement, given_bounds
from distadmm.privacy.accounting.events import Adjacency, Event, Leakage, Unbounded
from distadmm.privacy.accounting.scopes import Hypothesis, claim
from distadmm.privacy.accounting.statements import (
    BESIDES,
    BOUNDED,
    EQUATION_10,
    Sharing,
    if_assumed,
    of_corollary,
    of_sharing,
)
from distadmm.privacy.noise.queries import Query, Releases
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.problems.losses import Loss, foreign
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
    "s1": claim("sharing-party", ["centred-regulariser", *_ANY]),
    "s2": claim("sharing-record", _RECORD),
    "s3": claim("sharing-outside", _RECORD),
}


class Account(NamedTuple):
    """What the ledger of one party is opened with."""

    queries: tuple[Query, ...]  # the whole schedule; empty: what is sent has no bound
    adjacency: Adjacency = "replace"
    epsilon: float | None = None  # the budget
    claim: Mapping[str, Any] | None = None
    scope: str = "person"


class Price(NamedTuple):
    accounts: dict[int, Account]  # of the parties hosted here that keep a ledger
    said: list[str]  # what may be said of the run, no more
    facts: dict[str, Any]  # for the summary
    agreed: private.Agreement | None = None  # moments
    unchecked: str = ""  # why nothing is bounded, whatever is drawn


def open_price(star: Star, privacy: PrivacyOptions, file: str = "") -> Price:
    """Vectors without noise, or with that of equation (10): every ledger says infinity; `file`: whose code it is."""
    scope, why = "person", "no noise was asked for"
    said: list[str] = []
    if privacy.mechanism == "paper":
        said, scope, why = of_sharing(_facts(privacy, star, None)), "feature", EQUATION_10
    facts = {"epsilon": math.inf, "delta": privacy.delta, "adjacency": privacy.adjacency, "statement": why}
    accounts = {m: Account((), scope=scope) for m in star.hosted}
    return Price(accounts, said, facts, unchecked=f"{UNCHECKED} {file}" if file else "")


def as_unchecked(price: Price, privacy: PrivacyOptions, loss: Loss) -> Price:
    """The price where the loss is not this package's own: nothing is bounded, nor scores of its models."""
    file, facts = foreign(loss), price.facts
    if not file:
        return price
    why = f"{UNCHECKED} {file}"
    said = [f"No guarantee, epsilon = infinity: no bound is proved for: {why}."]
    if privacy.assume is not None:
        given = facts["epsilon"], facts["delta"], privacy.adjacency or "replace", file
        said.append(if_assumed(*given, seeded=privacy.noise != "secure", does=BOUNDED) + ".")
    accounts = {m: each._replace(epsilon=None) for m, each in price.accounts.items()}
    later = {"privacy": {"statement": " ".join(said), "mu": None}}
    return Price(accounts, said, {**facts, "epsilon": math.inf, "statement": why, **later}, price.agreed, why)


def as_observed(price: Price, options: Any) -> Price:
    """What is computed of private rows because somebody asked for it stands beside what is claimed of the messages."""
    if not (options.privacy.guarded and options.run.observe_all):
        return price
    what = "objectives and losses, and the models trained in one place to compare with"
    accounts = {
        m: each._replace(claim={**each.claim, "observed": what}) if each.claim else each
        for m, each in price.accounts.items()
    }
    return price._replace(accounts=accounts, said=[*price.said, f"{BESIDES}: {what}."])


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
            query = algorithm.query(
                prepared.problem, prepared.row[m], prepared.parts.rows, privacy.noise, mu, rounds
            )
            accounts[m] = Account(
                (query,) * rounds, "replace", privacy.epsilon, CLAIMS[privacy.mechanism], scope
            )
    said = [*of_sharing(_facts(privacy, star, mu, rounds)), *([prepared.note] if prepared.note else [])]
    facts = _summary(privacy, said) | {"privacy": {"statement": " ".join(said), "mu": None}}
    return Price({m: accounts[m] for m in star.hosted if m in accounts}, said, facts)


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
    if loss.max_slope <= 1 and loss.max_curvature <= 0.25:
        established.append(Hypothesis("bounded-curvature", "code" if known else "declared"))
    scope = "moments-rounds" if agreed.mechanism in ("v1-t", "v1-admm") else "moments"
    slopes = private.slope_query(agreed, parts.rows, privacy.noise) if agreed.mechanism == "v2" else None
    accounts = {}
    for m in star.hosted:
        if m > 1:
            width = parts.train[m].shape[1]
            plan = private.plan(agreed, m, width, privacy.noise, slopes.sigma if slopes else 0.0)
            queries = tuple(plan.queries(privacy.noise, width))
            accounts[m] = Account(queries, adjacency, privacy.epsilon, claim(scope, established))
        elif slopes is not None:
            own: Adjacency = "label" if privacy.protect == "label" else "replace"
            one = privacy.epsilon_one or privacy.epsilon
            accounts[m] = Account((slopes,), own, one, claim("moments-slopes", established))
    said = [*of_sharing(_facts(privacy, star, agreed.mu)), *([agreed.note] if agreed.note else [])]
    later = {  # what releases of scores need to know
        "statement": " ".join(said),
        "mu": agreed.mu,
        "delta": privacy.delta,
        "noise": privacy.noise,
        "neighbours": privacy.neighbours,
        "bounds": {str(m): {"row": b.row, "nonnegative": b.nonnegative} for m, b in agreed.bounds.items()},
    }
    return Price(accounts, said, _summary(privacy, said) | {"privacy": later}, agreed)


def _facts(privacy: PrivacyOptions, star: Star, mu: float | None, rounds: int = 1) -> Sharing:
    return Sharing(
        privacy.mechanism or "v1", privacy.epsilon, privacy.delta, mu, star.parties, privacy.neighbours, rounds,
        privacy.epsilon_one, privacy.protect, privacy.noise == "simulation",
    )  # fmt: skip


def as_claimed(price: Price, privacy: PrivacyOptions, star: Star, out: Mapping[int, Releases]) -> Price:
    """With what the paper itself makes of a run of equation (10), by the claims in its ledgers."""
    from distadmm.privacy.accounting.accountant import published_epsilon

    own = [(0.0, 0, "")]
    for each in out.values():
        spent = [event for event in each.ledger.events if event.unbounded]
        broken = next((event.words for event in spent if event.words != EQUATION_10), "")
        own.append((published_epsilon(spent, "replace"), len(spent), broken))
    epsilon, rounds, _ = max(each for some in star.world.allgather(own) for each in some)
    why = max(each[2] for some in star.world.allgather(own) for each in some)
    said = [*price.said, of_corollary(epsilon, rounds, privacy.delta, why)]
    return price._replace(said=said, facts=price.facts | {"published_epsilon": epsilon})


def _summary(privacy: PrivacyOptions, said: list[str]) -> dict[str, Any]:
    """Every ledger keeps within its budget, or the release that would not is refused."""
    facts = {"delta": privacy.delta, "adjacency": privacy.adjacency}
    if privacy.epsilon is None:
        return facts | {"epsilon": math.inf, "statement": "no noise was asked for"}
    spent = max(privacy.epsilon, privacy.epsilon_one or 0.0 if privacy.mechanism == "v2" else 0.0)
    word = "certificate" if privacy.noise == "secure" else "simulation"
    return facts | {"epsilon": spent, "statement": word}


def opened(
    price: Price, privacy: PrivacyOptions, star: Star, parts: Parts, seed: int, run: Running
) -> dict[int, Releases]:
    """The ledgers and the noise of the parties hosted here; those of an earlier process are taken up again."""
    from distadmm.privacy.ledger.books import open_ledger
    from distadmm.privacy.ledger.filter import budget
    from distadmm.privacy.noise.mechanism import source_of

    if run.folder is None:
        require(not any(each.queries for each in price.accounts.values()), "a private run needs a directory")
        return {}
    folder, mode, out = run.folder / "ledger", privacy.noise, {}
    contents = _contents(price, privacy, star, parts)
    with star.world.together():
        source = source_of(mode, seed if mode == "simulation" else None)
        for m, account in price.accounts.items():
            events = [query.event(mode) for query in account.queries if query.sigma > 0]
            limit = None
            if account.epsilon and events:
                limit = budget(account.epsilon, privacy.delta, events, adjacency=account.adjacency)
            ledger = open_ledger(
                folder, m, resume=None if run.resumed else False, adjacency=account.adjacency, mode=mode,
                dataset=(parts.dataset or {}).get(m), source=source.name,
                scope=account.scope, budget=limit, claim=account.claim, run=run.name,
                rows=contents[m].names if m in contents else (),
            )  # fmt: skip
            leaks = [Leakage(*one) for one in (parts.leakage or {}).get(m, ())]
            out[m] = Releases(ledger, source, leaks, again=run.resumed)
    if star.world.allgather(bool(contents)).count(True):
        from distadmm.run.spending import enter

        ledgers = [each.ledger for each in out.values()]
        plans = [
            () if ledger.events else _planned(price.accounts[m].queries, mode, price.unchecked)
            for m, ledger in zip(out, ledgers)
        ]
        owners = parts.owners
        enter(run, privacy.account, ledgers, plans, contents.values(), privacy.delta, owners=owners)
    with star.world.together():
        for m, account in price.accounts.items():
            out[m].commit(account.queries)
            if price.unchecked and not any(event.unbounded for event in out[m].ledger.events):
                out[m].ledger.expose(price.unchecked, iteration=0)
    return out


def _contents(price: Price, privacy: PrivacyOptions, star: Star, parts: Parts) -> dict[int, Content]:
    """Which rows the parties here have, where that is to be entered in an account: not of what a seed makes
    repeatable, nor of bundled tables without noise."""
    noisy = any(each.queries for some in star.world.allgather(price.accounts) for each in some.values())
    if privacy.noise != "secure" if noisy else parts.public:
        return {}
    from distadmm.privacy.ledger.account import Account as Book

    key = Book(privacy.account).key()
    return {m: parts.content(m, key) for m in price.accounts}


def _planned(queries: Sequence[Query], mode: str, unchecked: str) -> list[Event]:
    if unchecked:
        return [Unbounded(unchecked)]
    bare = [Unbounded("sent without noise")] if any(q.sigma == 0 for q in queries) or not queries else []
    return [*(query.event(mode) for query in queries if query.sigma > 0), *bare]
