"""What may be printed about privacy: five sentences, three kinds, one rule.

The rule: a hypothesis that no code has verified makes epsilon infinite, under the hypothesis' name.

The kinds are types, and nothing turns one into another:
    Certificate      bounds a whole run whose schedule was committed before its first release
    OdometerReading  what was spent so far; no guarantee after a stop that depended on data
    Simulation       noise that a seed can repeat; guarantees nothing, epsilon is infinite
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

from distadmm.errors import require
from distadmm.privacy.accounting import pricing
from distadmm.privacy.accounting.events import (
    Adjacency,
    Event,
    Leakage,
    ObjectivePerturbation,
    PostProcessing,
    Unbounded,
    check_adjacency,
)
from distadmm.privacy.accounting.rounding import rounded_up

Kind = Literal["certificate", "odometer", "simulation"]

NOT_COVERED = (
    "Not covered: losses and diagnostics on private data, preprocessing, hyper-parameter choice, timing, aborts, "
    "floating point."
)

#: Hypotheses by name, each in the words in which it is missed.
HYPOTHESES = {
    "public-weight": "the weight C/B of a record is a public constant",
    "one-signed-slope": "the slope of the loss has one sign for each record and labels are exactly -1 or +1",
    "bounded-slope": "the loss is a function of y x'f with a slope of at most 1",
    "public-rows": "each row depends on its own record and public constants only and has norm at most 1",
    "fresh-noise": "noise is fresh given the whole past and is drawn after the ledger is charged",
    "data-free-schedule": "start, scales, penalties and stopping do not depend on data",
    "own-parameters": "each rank holds its own floor, weight and scale, whatever its neighbours send",
    "free-domain": "models range over R^d, or a public convex set or regulariser stands inside the argmin",
    "curvature-floor": "rho/N + 2 eta V bounds the curvature from below at every release",
    "certified-solve": "each solve is certified to its tolerance and released with its output noise",
    "exact-solve": "each solve is exact (no output noise covers its error)",
    "committed-schedule": "the schedule was committed before the first release",
    "centred-regulariser": "the constraint is convex, the regulariser least at 0 in it, or messages are projected",
    "released-anchor": "a party's target is a function of released values only",
    "constrained-minimiser": "messages come from the constrained minimiser itself, clipped as stated",
    "strong-convexity": "the regulariser of each party is strongly convex with a public constant",
    "uncentred-rows": "rows are clipped and not centred or scaled by data",
    "clean-traffic": "no un-noised data traffic (such as power iterations) takes place",
    "public-labels": "labels and the number of samples are public",
    "clipped-examples": "the gradient of each example is clipped to a public constant",
    "public-divisor": "the divisor of the mean is public: n itself (replacing), or a fixed estimate of it (add/remove)",
    "data-free-steps": "step sizes come from released values or constants, without an exact line search",
}


class Scope(NamedTuple):
    """What a sentence is about: its words, its hypotheses, and the adjacencies it can be said for."""

    sentence: str
    hypotheses: tuple[str, ...]
    adjacencies: dict[str, str]


_SHARING = ("released-anchor", "fresh-noise", "data-free-schedule")
_RECORDS = (
    "constrained-minimiser",
    "strong-convexity",
    "uncentred-rows",
    "clean-traffic",
    "public-labels",
    *_SHARING,
)
_FEATURES = "labels and N public; local models and predictions not covered"

SCOPES = {
    "radmm": Scope(
        "All messages of all ranks together are {claim} for {change} held by one rank, against any coalition of other "
        "ranks, for {releases}, weight C/B fixed, {solves}. Derivation not peer-reviewed; exact arithmetic.",
        (
            "public-weight",
            "one-signed-slope",
            "public-rows",
            "fresh-noise",
            "data-free-schedule",
            "own-parameters",
            "free-domain",
            "curvature-floor",
            "certified-solve",
        ),
        {
            "add-remove": "adding or removing one record",
            "replace": "replacing one record",
            "label": "flipping the label of one record",
        },
    ),
    "sharing-party": Scope(
        "All messages of a party are {claim} at party level ({change}), for {releases}. Exact arithmetic.",
        ("centred-regulariser", *_SHARING),
        {"replace": "its whole table replaced"},
    ),
    "sharing-record": Scope(
        "All messages of all parties together are {claim} for {change}; " + _FEATURES + "; for {releases}. "
        "Derivation not peer-reviewed; exact arithmetic.",
        _RECORDS,
        {"replace": "replacing one sample's features"},
    ),
    "sharing-outside": Scope(
        "All messages of the parties outside party 1 together are {claim} for {change}; "
        + _FEATURES
        + "; for {releases}. "
        "Derivation not peer-reviewed; exact arithmetic.",
        _RECORDS,
        {"replace": "replacing one sample's features, only those outside party 1"},
    ),
    "istdp": Scope(
        "The released iterates are {claim} for {change}, for {releases}. Exact arithmetic.",
        ("clipped-examples", "public-divisor", "data-free-steps", "fresh-noise", "data-free-schedule"),
        {"replace": "replacing one record, n public", "add-remove": "add/remove, fixed divisor n-hat"},
    ),
}


@dataclass(frozen=True)
class Statement:
    """One printable statement.  `epsilon` is infinite when it is no guarantee; see the subclasses."""

    text: str
    epsilon: float
    delta: float
    adjacency: str
    published: float  # the papers' own bound (delta = 0)
    assumptions: tuple[str, ...]  # what was verified by code and is relied on
    unverified: tuple[str, ...]  # names of hypotheses that were not
    listed: tuple[str, ...] = ()  # leakages: information, not differential privacy; never added
    not_covered: str = NOT_COVERED
    kind: ClassVar[str] = ""


@dataclass(frozen=True)
class Certificate(Statement):
    """Bounds the whole run."""

    kind: ClassVar[str] = "certificate"


@dataclass(frozen=True)
class OdometerReading(Statement):
    """Spent so far."""

    kind: ClassVar[str] = "odometer"


@dataclass(frozen=True)
class Simulation(Statement):
    """Guarantees nothing; `would_be` is what secret noise of the same law would have given."""

    would_be: float = math.inf
    kind: ClassVar[str] = "simulation"


S = TypeVar("S", bound=Statement)


def weakest(statements: Iterable[S]) -> S:
    """The statement with the largest epsilon, of statements of one kind about one delta and adjacency."""
    listed = list(statements)
    require(listed, "no statement was given; needed: at least one")
    kinds = {type(s) for s in listed}
    if len(kinds) > 1:
        raise TypeError(
            f"statements of different kinds: {', '.join(sorted(k.kind for k in kinds))}; they never mix"
        )
    about = {(s.delta, s.adjacency) for s in listed}
    require(len(about) == 1, "statements about different delta or adjacency cannot be compared; restate them")
    return max(listed, key=lambda s: s.epsilon)


def statement(
    kind: Kind,
    events: Event | Iterable[Event],
    adjacency: Adjacency,
    delta: float,
    *,
    scope: str,
    verified: Collection[str] = (),
    tolerance: float | None = None,
) -> Statement:
    """What may be said of `events`, the releases of the node that spent most (`nodes.combine` finds it).

    `verified` names the hypotheses that code has checked; `tolerance` is tau of certified solves.
    """
    check_adjacency(adjacency)
    require(scope in SCOPES, f"scope is {scope!r}; choose one of {', '.join(SCOPES)}")
    require(
        adjacency in SCOPES[scope].adjacencies,
        f"nothing is proved for {scope} under {adjacency}; choose one of {', '.join(SCOPES[scope].adjacencies)}",
    )
    unknown = sorted(set(verified) - set(HYPOTHESES))
    require(not unknown, f"unknown hypothesis {''.join(unknown[:1])!r}; known: {', '.join(HYPOTHESES)}")
    listed = [events] if isinstance(events, Event) else list(events)
    needed = _needed(kind, scope, listed)
    missed = tuple(name for name in needed if name not in verified)
    price = _price(kind, listed, delta, adjacency)
    common = {
        "delta": delta,
        "adjacency": adjacency,
        "published": pricing.published_epsilon(listed, adjacency),
        "assumptions": tuple(HYPOTHESES[name] for name in needed if name in verified),
        "unverified": missed,
        "listed": tuple(f"{e.nats:.4g} nats about {e.what}" for e in listed if isinstance(e, Leakage)),
    }
    sentence = _sentence(scope, listed, adjacency, _claim(price, delta), tolerance, kind)
    if kind == "simulation":
        text = "SIMULATION: noise from a seed guarantees nothing; epsilon = infinity. " + (
            f"With secret noise of the same law: {sentence}" if not missed and math.isfinite(price) else ""
        )
        would_be = math.inf if missed else price
        return Simulation(text=text.strip(), epsilon=math.inf, would_be=would_be, **common)  # type: ignore[arg-type]
    reasons = [f"not verified: {HYPOTHESES[name]} ({name})" for name in missed]
    reasons += [f"no bound is proved for: {e.reason}" for e in listed if isinstance(e, Unbounded)]
    if reasons:
        price, sentence = math.inf, "No guarantee, epsilon = infinity: " + "; ".join(reasons) + "."
    elif math.isinf(price):
        sentence = "No guarantee, epsilon = infinity: nothing is proved at this delta."
    if kind == "odometer":
        text = f"Spent so far; after a stop that depended on data this is no guarantee. {sentence}"
        return OdometerReading(text=text, epsilon=price, **common)  # type: ignore[arg-type]
    return Certificate(text=sentence, epsilon=price, **common)  # type: ignore[arg-type]


def _needed(kind: Kind, scope: str, listed: list[Event]) -> tuple[str, ...]:
    """The hypotheses of a scope for these events."""
    require(
        kind in ("certificate", "odometer", "simulation"),
        f"kind is {kind!r}; choose certificate, odometer or simulation",
    )
    names = SCOPES[scope].hypotheses
    solved = [e for e in listed if isinstance(e, ObjectivePerturbation)]
    if any(not e.one_signed for e in solved):
        names = tuple("bounded-slope" if name == "one-signed-slope" else name for name in names)
    if any(not e.output_epsilon for e in solved):
        names = tuple("exact-solve" if name == "certified-solve" else name for name in names)
    return (*names, "committed-schedule") if kind == "certificate" else names


def _price(kind: Kind, listed: list[Event], delta: float, adjacency: Adjacency) -> float:
    """The tightest bound; for a reading of the odometer only those that hold for adaptively chosen releases."""
    price = pricing.adaptive_epsilon if kind == "odometer" else pricing.epsilon
    return price(listed, delta, adjacency)


def _claim(epsilon: float, delta: float) -> str:
    return f"({rounded_up(epsilon)}, {delta:g})-DP" if delta else f"{rounded_up(epsilon)}-DP"


def _sentence(
    scope: str, listed: list[Event], adjacency: str, claim: str, tolerance: float | None, kind: Kind
) -> str:
    said = SCOPES[scope]
    releases = sum(e.releases for e in listed if not isinstance(e, (PostProcessing, Leakage)))
    outputs = sorted(
        {e.output_epsilon for e in listed if isinstance(e, ObjectivePerturbation) and e.output_epsilon}
    )
    solves = "solves exact"
    if outputs:
        noise = " to ".join(f"{x:g}" for x in dict.fromkeys((outputs[0], outputs[-1])))
        certified = "" if tolerance is None else f" to {tolerance:g}"
        solves = f"solves certified{certified} with output noise {noise}"
    return said.sentence.format(
        claim=claim,
        change=said.adjacencies[adjacency],
        releases=f"the {releases} releases so far"
        if kind == "odometer"
        else f"the committed {releases} releases",
        solves=solves,
    )
