"""From scores of transcripts to statements: Clopper-Pearson, the trade-off test, the lower bound on epsilon.

Two worlds, D and D', some scores of each.  Half of them choose a test {score > t} (or {score <= t}) and which
world is its alternative; the other half, never looked at before, count how often it is right and wrong.  With
p <= P(test | alternative) and q >= P(test | null), each at (1 - confidence)/2,

    level 1   the claim  P(S) <= e^eps Q(S) + delta(eps) for all eps  is refuted where  p > e^eps q + delta(eps)
    level 2   eps >= ln((p - delta) / q)

Both hold with the confidence asked for, whatever the scores are; a sound mechanism is refuted with probability
at most 1 - confidence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from distadmm.privacy.accounting import accountant, gaussian
from distadmm.privacy.accounting.events import Adjacency, Array, Event

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 60.0, 160)])
_THRESHOLDS = 200

Worth = Callable[[Array, Array], Array]  # of tests with (power at least, level at most)


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


def at_most(hits: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson: the probability is below this, but for `error`."""
    inside = np.minimum(hits, trials - 1)
    return np.where(hits >= trials, 1.0, special.betaincinv(inside + 1, trials - inside, 1 - error))


def at_least(hits: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson: the probability is above this, but for `error`."""
    inside = np.maximum(hits, 1)
    return np.where(hits <= 0, 0.0, special.betaincinv(inside, trials - inside + 1, error))


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


def rates(test: Cut, here: Array, there: Array, confidence: float) -> Rates:
    alternative, null = (here, there) if test.first else (there, here)
    right, wrong = test.hits(alternative), test.hits(null)
    error = (1 - confidence) / 2
    power = float(at_least(right, len(alternative), error))
    return Rates(right, wrong, (len(alternative), len(null)), power, float(at_most(wrong, len(null), error)))


def _choose(here: Array, there: Array, worth: Worth, confidence: float) -> Cut:
    """The test that is worth most on the half that may be looked at."""
    pooled = np.sort(np.concatenate([here, there]))
    middles = (pooled[1:] + pooled[:-1]) / 2
    cuts = middles[np.unique(np.linspace(0, len(middles) - 1, min(_THRESHOLDS, len(middles))).astype(int))]
    error = (1 - confidence) / 2
    best, most = Cut(0.0, True, True), -math.inf
    for above in (True, False):
        counts = [np.searchsorted(np.sort(side), cuts, side="right") for side in (here, there)]
        hits = [len(side) - count if above else count for side, count in zip((here, there), counts)]
        for first in (True, False):
            (right, n), (wrong, m) = ((hits[0], len(here)), (hits[1], len(there)))[:: 1 if first else -1]
            value = worth(at_least(right, n, error), at_most(wrong, m, error))
            at = int(np.argmax(value))
            if value[at] > most:
                best, most = Cut(float(cuts[at]), above, first), float(value[at])
    return best


def _over(claim: Claim, power: Any, level: Any) -> Array:
    """How far (power, level) is above the claim, at each epsilon of its curve (last axis)."""
    power, level = np.asarray(power)[..., None], np.asarray(level)[..., None]
    return power - np.exp(claim.epsilons) * level - claim.deltas


def _epsilon(power: Any, level: Any, delta: float) -> Array:
    with np.errstate(divide="ignore"):
        found = np.log(np.maximum(np.asarray(power) - delta, 0.0) / np.maximum(level, 1e-300))
    return np.maximum(found, 0.0)


def trade_off(claim: Claim, here: Array, there: Array, *, delta: float, confidence: float = 0.95) -> Outcome:
    """Level 1: is the claim's whole curve compatible with how well the worlds are told apart?"""

    def worth(power: Array, level: Array) -> Array:
        over = _over(claim, power, level).max(axis=-1)
        # Where no test is above the claim, the one that tells the worlds apart best is worth reporting.
        return np.where(over > 0, 1 + over, power - level)

    return _outcome(claim, here, there, delta, confidence, worth)


def lower_bound(
    claim: Claim, here: Array, there: Array, *, delta: float, confidence: float = 0.95
) -> Outcome:
    """Level 2: a lower bound on epsilon at delta, and whether it is above the claim's."""
    found = _outcome(
        claim, here, there, delta, confidence, lambda power, level: _epsilon(power, level, delta)
    )
    return found._replace(refuted=found.epsilon > claim.epsilon(delta))


def _outcome(
    claim: Claim, here: Array, there: Array, delta: float, confidence: float, worth: Worth
) -> Outcome:
    # Transcripts are independent, so any split that does not look at the scores will do.
    test = _choose(here[0::2], there[0::2], worth, confidence)
    found = rates(test, here[1::2], there[1::2], confidence)
    over = _over(claim, found.power, found.level)
    at, excess = float(claim.epsilons[int(np.argmax(over))]), float(over.max())
    mu = None
    if found.power > 0 and found.level < 1:
        mu = max(0.0, float(special.ndtri(found.power) - special.ndtri(found.level)))
    least = float(_epsilon(found.power, found.level, delta))
    return Outcome(excess > 0, least, delta, at, excess, mu, confidence, test, found)
