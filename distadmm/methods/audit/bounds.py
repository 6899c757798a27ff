"""From scores of transcripts to statements: Clopper-Pearson, the trade-off test, the lower bound on epsilon.

Two worlds, D and D', some scores of each.  Half of them choose a test {score > t} (or {score <= t}) and which
world is its alternative; the other half, never looked at before, count how often it is right and wrong.  With
p <= P(test | alternative) and q >= P(test | null), each at (1 - confidence)/2,

    level 1   the claim  P(S) <= e^eps Q(S) + delta(eps) for all eps  is refuted where  p > e^eps q + delta(eps)
    level 2   eps >= ln((p - delta) / q)

Both hold with the confidence asked for, whatever the scores are; a sound mechanism is refuted with probability
at most 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import special

from distadmm.privacy import accountant, gaussian
from distadmm.privacy.events import Adjacency, Event

Array = np.ndarray

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 60.0, 160)])
_THRESHOLDS = 200


@dataclass(frozen=True)
class Claim:
    """delta(eps) of what is claimed, as a curve; `words` say whose claim it is."""

    words: str
    epsilons: Array
    deltas: Array
    mu: float | None = None  # of an exactly Gaussian claim
    price: Callable[[float], float] | None = None  # epsilon at a delta, where more than the curve is known

    def epsilon(self, delta: float) -> float:
        """The claim's epsilon at delta; of a bare curve, upwards on its grid."""
        if self.price is not None:
            return self.price(delta)
        fits = np.flatnonzero(self.deltas <= delta)
        return float(self.epsilons[fits[0]]) if len(fits) else math.inf


def claim_of(events: Sequence[Event], adjacency: Adjacency, words: str) -> Claim:
    """What the accountant makes of a ledger's events."""
    mus = [event.gdp_mu(adjacency) for event in events]
    if all(mu is not None for mu in mus):
        return gaussian_claim(math.sqrt(sum(mu * mu for mu in mus if mu is not None)), words)
    curve = [accountant.delta(events, float(e), adjacency) for e in _EPSILONS[::4]]
    price = partial(accountant.epsilon, list(events), adjacency=adjacency)
    return Claim(words, _EPSILONS[::4], np.array(curve), price=price)


def gaussian_claim(mu: float, words: str) -> Claim:
    deltas = gaussian.hockey_stick(mu, _EPSILONS) if mu > 0 else np.zeros_like(_EPSILONS)
    return Claim(words, _EPSILONS, deltas, mu, partial(gaussian.epsilon, mu))


def point_claim(epsilon: float, delta: float, words: str) -> Claim:
    """(epsilon, delta) and nothing else, as a theorem states it."""
    return Claim(words, np.array([epsilon]), np.array([delta]))


def at_most(hits: int, trials: int, error: float) -> float:
    """Clopper-Pearson: the probability is below this, but for `error`."""
    return 1.0 if hits >= trials else float(special.betaincinv(hits + 1, trials - hits, 1 - error))


def at_least(hits: int, trials: int, error: float) -> float:
    """Clopper-Pearson: the probability is above this, but for `error`."""
    return 0.0 if hits <= 0 else float(special.betaincinv(hits, trials - hits + 1, error))


class Cut(NamedTuple):
    """{score > t} or {score <= t}, and whether D is the alternative."""

    threshold: float
    above: bool
    first: bool

    def hits(self, scores: Array) -> int:
        found = scores > self.threshold
        return int(np.count_nonzero(found if self.above else ~found))


class Rates(NamedTuple):
    """What the held-out half says of a test."""

    right: int  # of the alternative's transcripts
    wrong: int  # of the null's
    trials: tuple[int, int]
    power: float  # at least
    level: float  # at most


class Outcome(NamedTuple):
    """A statement that holds with `confidence`."""

    refuted: bool
    epsilon: float  # lower bound at `delta`
    delta: float
    at: float  # level 1: the epsilon at which the claim fails by most
    excess: float  # p - e^eps q - delta(eps) there; above 0: refuted
    mu: float | None  # lower bound on mu, if the mechanism is Gaussian; otherwise for orientation only
    confidence: float
    test: Cut
    rates: Rates


def _halves(scores: Array) -> tuple[Array, Array]:
    """Transcripts are independent, so any split that does not look at the scores will do."""
    return scores[0::2], scores[1::2]


def rates(test: Cut, here: Array, there: Array, confidence: float) -> Rates:
    alternative, null = (here, there) if test.first else (there, here)
    right, wrong = test.hits(alternative), test.hits(null)
    error = (1 - confidence) / 2
    return Rates(
        right,
        wrong,
        (len(alternative), len(null)),
        at_least(right, len(alternative), error),
        at_most(wrong, len(null), error),
    )


def _choose(here: Array, there: Array, worth: Callable[[Rates], float], confidence: float) -> Cut:
    """The test that is worth most on the half that may be looked at."""
    pooled = np.sort(np.concatenate([here, there]))
    middles = (pooled[1:] + pooled[:-1]) / 2
    at = np.unique(np.linspace(0, len(middles) - 1, min(_THRESHOLDS, len(middles))).astype(int))
    candidates = [
        Cut(float(t), above, first) for t in middles[at] for above in (True, False) for first in (True, False)
    ]
    return max(candidates, key=lambda test: worth(rates(test, here, there, confidence)))


def _excess(claim: Claim, found: Rates) -> tuple[float, float]:
    """Where on the curve the claim fails by most, and by how much."""
    over = found.power - np.exp(claim.epsilons) * found.level - claim.deltas
    best = int(np.argmax(over))
    return float(claim.epsilons[best]), float(over[best])


def _epsilon(found: Rates, delta: float) -> float:
    if found.power <= delta or found.level <= 0:
        return 0.0
    return max(0.0, math.log((found.power - delta) / found.level))


def trade_off(claim: Claim, here: Array, there: Array, *, delta: float, confidence: float = 0.95) -> Outcome:
    """Level 1: is the claim's whole curve compatible with how well the worlds are told apart?"""
    return _outcome(claim, here, there, delta, confidence, lambda found: _excess(claim, found)[1])


def lower_bound(
    claim: Claim, here: Array, there: Array, *, delta: float, confidence: float = 0.95
) -> Outcome:
    """Level 2: a lower bound on epsilon at delta, and whether it is above the claim's."""
    found = _outcome(claim, here, there, delta, confidence, lambda rates: _epsilon(rates, delta))
    return found._replace(refuted=found.epsilon > claim.epsilon(delta))


def _outcome(
    claim: Claim, here: Array, there: Array, delta: float, confidence: float, worth: Callable[[Rates], float]
) -> Outcome:
    (seen, kept), (seen_there, kept_there) = _halves(np.asarray(here)), _halves(np.asarray(there))
    test = _choose(seen, seen_there, worth, confidence)
    found = rates(test, kept, kept_there, confidence)
    at, excess = _excess(claim, found)
    mu = None
    if found.power > 0 and found.level < 1:
        mu = max(0.0, float(special.ndtri(found.power) - special.ndtri(found.level)))
    return Outcome(excess > 0, _epsilon(found, delta), delta, at, excess, mu, confidence, test, found)
