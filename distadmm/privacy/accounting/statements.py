"""The one speaker: what may be printed about privacy, of whatever programme.

Four kinds of statement, and nothing turns one into another:
    certificate   bounds the whole run, by theorems whose hypotheses were all verified
    conditional   a number that holds if something holds that was declared or left open, which it names
    claimed       somebody states a number that nothing here proves; epsilon is infinite
    unbounded     nothing is known; epsilon is infinite

What a ledger is (`reading`) decides with them: a committed schedule or a kept budget ("certificate"), what was spent
so far ("odometer"), noise that a seed repeats ("simulation").  The rule: a hypothesis that nobody has established
makes epsilon infinite, under the hypothesis' name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Event, check_adjacency
from distadmm.privacy.accounting.trust import ADJACENCY_WORDS, ANY, TOLD, Trust
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.privacy.accounting.scopes import Hypothesis

Kind = Literal["certificate", "conditional", "claimed", "unbounded"]
Reading = Literal["certificate", "odometer", "simulation"]
READINGS = {  # weakest first
    "simulation": "SIMULATION: noise from a seed guarantees nothing",
    "odometer": "spent so far; no guarantee if stopping depended on data",
    "certificate": "bounds the whole run",
}

EXACT = "Not covered: losses and diagnostics on private data, preprocessing, hyper-parameter choice, timing, aborts."
NOT_COVERED = f"{EXACT[:-1]}, floating point."
FLOATS = " Exact arithmetic."
BESIDES = "Besides, without noise and with no bound, for whoever sees the files of the run"


def rounded_up(value: float, digits: int = 4) -> str:
    """`value` in so many digits, never below it."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{max(places, 0)}f}" if -3 < places < 12 else f"{value:.{digits - 1}e}"
    if float(text) < value:
        step = 10.0**-places
        raised = (math.floor(value / step) + 1) * step
        text = f"{raised:.{max(places, 0)}f}" if -3 < places < 12 else f"{raised:.{digits - 1}e}"
    return text


def rounded_down(value: float, digits: int = 4) -> str:
    """`value`, a bound from below and not negative, in so many digits, never above it."""
    return rounded_up(-value, digits).lstrip("-")


def exactly(value: float) -> str:
    """`value` in six digits, or in all that it has: a delta that is told smaller than it is would claim more."""
    text = f"{value:g}"
    return text if float(text) == value else repr(float(value))


@struct
class Statement:
    """One printable statement; `epsilon` is infinite where it is no bound."""

    kind: Kind
    reading: Reading
    text: str
    epsilon: float
    delta: float
    adjacency: str
    published: float  # the papers' own bound (delta = 0)
    assumptions: tuple[str, ...]  # what was verified and is relied on
    unverified: tuple[str, ...]  # names of hypotheses that nobody established
    declared: tuple[str, ...] = ()  # names of those that somebody only declared
    listed: tuple[str, ...] = ()  # leakages: information, not differential privacy; never added
    would_be: float = math.inf  # of a simulation: what secret noise of the same law would have given
    not_covered: str = NOT_COVERED


def _refuse_unknown(reading: str, adjacency: str, scope: str) -> None:
    from distadmm.privacy.accounting import scopes

    check_adjacency(adjacency)
    require(reading in READINGS, f"what is read is {reading!r}; choose certificate, odometer or simulation")
    require(scope in scopes.SCOPES, f"scope is {scope!r}; choose one of {', '.join(scopes.SCOPES)}")
    changes = scopes.SCOPES[scope].adjacencies
    require(
        adjacency in changes,
        f"nothing is proved for {scope} under {adjacency}; choose one of {', '.join(changes)}",
    )


def statement(
    reading: Reading,
    events: Event | Iterable[Event],
    adjacency: Adjacency,
    delta: float,
    *,
    scope: str,
    verified: Collection[str | Hypothesis] = (),
    tolerance: float | None = None,
    dealt: bool = False,
    observed: str = "",
    against: str = "",
    beside: str = "",
    exact: bool = False,
) -> Statement:
    """What may be said of `events`, the releases of the node that spent most (`nodes.combine` finds it).

    `verified`: the hypotheses and who established them (a bare name: code); `tolerance`: tau of certified solves;
    `dealt`: one file was dealt out to the nodes; `observed`: what was computed of private rows besides; `against`: who
    may collude where not all others may; `beside`: what else has to be said of runs of this kind; `exact`: what the
    noise is added to is a sum of whole numbers.
    """
    from distadmm.privacy.accounting import accountant, scopes

    _refuse_unknown(reading, adjacency, scope)
    known = scopes.hypotheses(verified)
    listed = [events] if isinstance(events, Event) else list(events)
    if "{against}" in scopes.SCOPES[scope].sentence and not against:  # as in a ledger that does not say
        against, listed = ANY.words, [event.against(ANY) for event in listed]
    needed = dict.fromkeys((*scopes.SCOPES[scope].hypotheses, *(h for e in listed for h in e.hypotheses)))
    if reading == "certificate":
        needed["committed-schedule"] = None
    missed = tuple(name for name in needed if name not in known or known[name].by == "nobody")
    declared = tuple(name for name in needed if name in known and known[name].by == "declared")
    epsilon = accountant.adaptive_epsilon if reading == "odometer" else accountant.epsilon
    price = epsilon(listed, delta, adjacency)
    whole = scopes.SCOPES[scope].exact or (exact and all(event.exact for event in listed if not event.free))
    sentence = _if_declared(declared) + _sentence(
        scope, listed, adjacency, price, delta, tolerance, reading, against
    )
    sentence += "" if whole else FLOATS
    sentence = sentence.replace(f"reviewed.{FLOATS}", "reviewed; exact arithmetic.")
    sentence += circumstances(adjacency, dealt, observed, beside)
    reasons = [f"not verified: {scopes.HYPOTHESES[name]} ({name})" for name in missed]
    reasons += [f"no bound is proved for: {e.words}" for e in listed if e.unbounded]
    would_be, kind = math.inf, "conditional" if declared or reading == "odometer" else "certificate"
    if reading == "simulation":
        would_be = math.inf if missed else price
        law = f"With secret noise of the same law: {sentence}" if math.isfinite(would_be) else ""
        kind, price = "unbounded", math.inf
        sentence = f"SIMULATION: noise from a seed guarantees nothing; epsilon = infinity. {law}".strip()
    elif reasons or math.isinf(price):
        claims = [getattr(e, "claimed", None) for e in listed if e.unbounded]
        kind = "claimed" if claims and None not in claims and not missed else "unbounded"
        why = "; ".join(reasons) or "nothing is proved at this delta"
        price, sentence = math.inf, f"No guarantee, epsilon = infinity: {why}."
    if reading == "odometer":
        sentence = f"Spent so far; after a stop that depended on data this is no guarantee. {sentence}"
    return Statement(
        cast(Kind, kind), reading, sentence, price, delta, adjacency, accountant.published_epsilon(listed, adjacency),
        tuple(known[name].words for name in needed if name in known and known[name].verified), missed, declared,
        tuple(e.listed for e in listed if e.listed), would_be, EXACT if whole else NOT_COVERED,
    )  # fmt: skip


def _if_declared(names: Sequence[str]) -> str:
    from distadmm.privacy.accounting.scopes import HYPOTHESES

    words = "; ".join(f"{HYPOTHESES[name]} ({name})" for name in names)
    return f"If what was only declared holds: {words}: " if names else ""


def bound(epsilon: float, delta: float) -> str:
    return f"({rounded_up(epsilon)}, {exactly(delta)})-DP" if delta else f"{rounded_up(epsilon)}-DP"


def _sentence(
    scope: str, listed: list[Event], adjacency: Adjacency, price: float, delta: float, tolerance: float | None,
    reading: Reading, against: str,
) -> str:  # fmt: skip
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.accounting.scopes import SCOPES

    said = SCOPES[scope]
    releases = sum(e.releases for e in listed if not e.free)
    outputs = sorted({e.also.epsilon for e in listed if e.also})
    certified = "" if tolerance is None else f" to {tolerance:g}"
    solves = "solves exact"
    if outputs:
        noise = " to ".join(f"{x:g}" for x in dict.fromkeys((outputs[0], outputs[-1])))
        solves = f"solves certified{certified} with output noise {noise}"
    many = (
        f"the {releases} releases so far" if reading == "odometer" else f"the committed {releases} releases"
    )
    apart = {}
    if against:
        everybody = accountant.epsilon([event.against(ANY) for event in listed], delta, adjacency)
        apart = {"against": against, "any": bound(everybody, delta)}
    return said.sentence.format(
        claim=bound(price, delta), change=said.adjacencies[adjacency], releases=many, solves=solves,
        certified=certified, **apart,
    )  # fmt: skip


def circumstances(adjacency: Adjacency, dealt: bool = False, observed: str = "", beside: str = "") -> str:
    """What a sentence has to say besides its bound (arguments as for `statement`)."""
    text = " One record of a node's share of the file, as dealt out: that depends on the number of rows."
    said = text if dealt and adjacency == "add-remove" else ""
    said += f" {beside}" if beside else ""
    return said + (f" {BESIDES}: {observed}." if observed else "")


def of_claim(
    reading: Reading,
    claim: Mapping[str, Any],
    events: Iterable[Event],
    adjacency: Adjacency,
    delta: float,
    *,
    committed: bool,
) -> Statement:
    """What may be said of a ledger with this `claim` in its header (`scopes.claim`)."""
    from distadmm.privacy.accounting import scopes

    if claim["scope"] == "masked":
        from distadmm.privacy.accounting.masked_statements import of_masked

        return of_masked(reading, claim, events, adjacency, delta)
    known: list[str | Hypothesis] = list(scopes.established(claim))
    if committed:
        known.append("committed-schedule")
    elif reading == "certificate":
        reading = "odometer"  # what is certified is the budget, not this sum
    return statement(
        reading, events, adjacency, delta,
        scope=claim["scope"], verified=known, tolerance=claim.get("tolerance"),
        dealt=bool(claim.get("dealt")), observed=str(claim.get("observed", "")), against=claim.get("against", ""),
        beside=str(claim.get("beside", "")), exact=bool(claim.get("exact")),
    )  # fmt: skip


def by_trust(
    spent: Iterable[Sequence[Event]], adjacency: Adjacency, delta: float, *, committed: bool
) -> list[str]:
    """epsilon of the record that costs most, by who may collude."""
    from distadmm.privacy.accounting import accountant

    price = accountant.epsilon if committed else accountant.adaptive_epsilon
    books = {tuple(event for event in events if not event.free) for events in spent}

    def against(trust: Trust) -> float:
        seen = [[event.against(trust) for event in book] for book in books]
        return max((price(events, delta, adjacency) for events in seen), default=0.0)

    return told({name: against(Trust.parse(name)) for name in TOLD}, delta)


def told(by_trust: Mapping[str, float], delta: float) -> list[str]:
    """The same in words, from the least trust that is broken to the most."""
    words = ", ".join(f"{trust} {rounded_up(by_trust[trust])}" for trust in reversed(TOLD))
    return [f"epsilon at delta {exactly(delta)} by who may collude: {words}"]


SEEDED = "; a SIMULATION: seeded noise, no guarantee"


def loss_in_words(summary: Mapping[str, Any]) -> str:
    """The privacy loss of a run's summary, with whose bound it is and what it is worth."""
    if math.isinf(summary["epsilon"]):
        return f"unbounded: {summary['statement']}"
    text = f"epsilon {rounded_up(summary['epsilon'])} at delta {exactly(summary['delta'])} ({summary['adjacency']})"
    if math.isfinite(summary["published_epsilon"]):
        text += f"; published bound {rounded_up(summary['published_epsilon'])}"
    if summary["statement"] == "simulation":
        return text + SEEDED
    return f"{text}; {summary['statement']}"


def planned_loss(
    epsilon: float, delta: float, adjacency: str, published: float, releases: int, *, seeded: bool
) -> str:
    """What a whole schedule would cost, before anything is drawn."""
    return (
        f"epsilon {rounded_up(epsilon)} at delta {exactly(delta)} ({adjacency}; derived for this project, not "
        f"peer-reviewed); published bound: {rounded_up(published)}; {releases} releases a node"
        + SEEDED
        * seeded
    )


def held(adjacencies: Sequence[str], trust: Trust) -> str:
    """For what change and against whom a price is meant; without an adjacency for that of a sensitivity as stated."""
    changes = " | ".join(f"{ADJACENCY_WORDS[name]} ({name})" for name in adjacencies)
    return f"For {changes or 'the change that the stated sensitivity is of'}; held against {trust.words} ({trust})."


SCHEDULED = "draws, uses and seals its noise as its schedule says"
BOUNDED = "makes of each record what it states, by that record alone"


def if_assumed(
    epsilon: float, delta: float, adjacency: str, file: str, *, seeded: bool, does: str = SCHEDULED
) -> str:
    """Of code that nobody checked and somebody asks to believe; the ledger keeps saying that nothing bounds it."""
    text = f"conditional, if {file} {does}: epsilon {rounded_up(epsilon)} at delta {exactly(delta)} ({adjacency})"
    return text + (f"; {READINGS['simulation']}" if seeded else "")


def refuted(epsilon: float, delta: float, why: str) -> str:
    """Of a mechanism as its paper prints it, whose claim is refuted."""
    return f"No guarantee: epsilon is infinite. The paper claims ({epsilon:g}, {delta:g}); {why}."


#: Why the noise of the paper on ADMM sharing guarantees nothing.
EQUATION_10 = (
    "claimed by the paper, refuted: the noise lies in the column space of D, which differs between neighbours, so one "
    "message can tell them apart (delta = 1); and Lemma 1, which scales it, is false"
)


def of_corollary(epsilon: float, rounds: int, delta: float, why: str) -> str:
    """What the same paper makes of all messages of a party; `why`: what of its own assumptions fails."""
    failed = why.removeprefix(EQUATION_10).lstrip("; ")
    if math.isinf(epsilon):
        return f"Its own Corollary 1 says nothing of this run: {failed}."
    said = (
        f"Its own Corollary 1 says epsilon = {rounded_up(epsilon)} at delta = {(rounds + 1) * delta:.2g} of the "
        f"{rounds} messages of a party"
    )
    return f"{said}, and its own assumption fails: {failed}." if failed else f"{said}."


#: Of a run of ADMM sharing that has no bound.
PRINTED = f"equation (10): {EQUATION_10}.  epsilon = infinity."
OPEN_REPLIES = "no noise: the replies reveal what they reveal, and the ledgers say epsilon = infinity"


def beside_scores(mechanism: str) -> str:
    """What a sentence about scores has to say of the party whose share is exact."""
    if mechanism in ("s1", "s2", "s3"):
        return ""
    whose = (
        "of which nothing is protected" if mechanism != "v2" else "whose labels and records they may identify"
    )
    return (
        f"Party 1's share is exact: nothing bounds what scores tell of its columns of the people scored, and of its "
        f"model, {whose}; keep them with party 1."
    )


def beside_sharing(mechanism: str) -> str:
    """What a sentence about moments (v1 to v2) or noisy vectors (s1 to s3) has to say besides its bound."""
    if mechanism in ("s1", "s2", "s3"):
        labels = "The centre's first message tells every party all labels."
        return f"{labels} Scores and predictions of the parties' models, which carry no noise, have no bound."
    if mechanism == "v2":
        return "Scores of records are releases of their own, and party 1's share of them is exact."
    return (
        "Party 1 is not protected: the others receive all labels and its scores. Scores of records are releases of "
        "their own."
    )


def worth(reading: str, epsilon: float) -> str:
    """What a sum that was read off ledgers is worth, in one word and the reason."""
    if math.isinf(epsilon):
        return "unbounded: nothing bounds what was released"
    return f"{reading}: {READINGS[reading]}"


def weakest(readings: Sequence[str]) -> str:
    """What several ledgers together are worth."""
    return next(reading for reading in READINGS if reading in readings)
