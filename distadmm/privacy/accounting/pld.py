"""Composition of privacy losses by FFT, rounded against us.  For schedules committed before the first release.

Releases of one schedule, each dominated by a pair of polygons (`curves`), are together dominated by the product
of the polygons' discrete pairs.  Its loss is a sum of independent losses on a grid of step h; T being its law,

    delta(eps) = P(infinite) + sum_{l > eps} T(l) (1 - e^(eps - l)).

T is computed by FFT under the tilt T_theta(l) ~ T(l) e^(theta l), theta chosen for the eps or delta that is
asked: the rounding of the FFT is then relative to e^(ln M(theta) - theta eps), the Chernoff bound, and not to 1.

What is charged
* grid: knots are moved to the grid by reading the convex polygon there, and the polygon through them is above
  it: nothing is lost.
* window: losses above the window are added to delta by a Chernoff bound; those that wrap round it only add.
* FFT: |error|_2 <= eta log2(n) |data|_2, eta = 7 roundings (Higham 2002, Theorem 24.2), the errors of powers and
  products in first order, and Cauchy-Schwarz against the weights of the sum.
* sums and products of positive terms: one relative rounding for each.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distadmm.privacy.accounting import curves
from distadmm.privacy.accounting.curves import Array, Curve, Masses, Pair
from distadmm.privacy.accounting.schedule import MOST_PRICED

_ROUNDING = float(np.finfo(float).eps) / 2
_FFT = 7 * _ROUNDING
_LARGEST = 2**17  # points of a window; a coarser grid is taken beyond
_ABOVE = 1e-9  # what lies above the window, relative to delta
_TRIED = np.geomspace(1e-2, 1e2, 96)  # tilts, in units of one over the standard deviation of the sum
_TINY = 1e-10  # losses; profiles are rounded up by 5e-13
_LEAST_SPREAD = 1e-9  # of the furthest loss: of what hardly varies, a tilt would leave nothing but roundings
_AIMED_BY = 12  # terms of a long schedule that are looked at to choose a tilt


class Term(NamedTuple):
    """`times` releases that are dominated by `pair`."""

    pair: Pair
    times: int


class _Part(NamedTuple):
    """A term on the grid."""

    steps: Array  # losses, in steps of the grid
    masses: Masses
    times: int


class _Law(NamedTuple):
    """The law T of the sum above 0, summed from above, and what is not exact about it."""

    loss: Array  # losses l > 0 of the window
    upper: Array  # sum_{l' >= l} T(l'), one more entry than `loss`: 0 beyond the last
    lower: Array  # sum_{l' >= l} T(l') e^(around - l')
    around: float  # the epsilon that is looked at: e^-l' alone would underflow beyond 700
    step: float
    theta: float
    log_scale: float  # ln M(theta)
    error: float  # of the FFT: multiplies M(theta) e^(-theta eps)
    relative: float  # of every sum, from roundings of products
    outside: float  # P(infinite) + P(above the window)


def epsilon(terms: Sequence[Term], delta: float) -> float:
    """An epsilon >= 0 at which the product of `terms` has at most this delta; infinite when none is found."""
    if not terms:
        return 0.0
    if _lost(terms):
        return math.inf
    if sum(t.times * float(t.pair.right.value[0]) for t in terms) <= delta:
        return 0.0  # total variations add
    if _infinite(terms) >= delta:
        return math.inf
    thetas = _tilts(terms)
    moments = _rough_log_moments(terms, thetas)
    # The Renyi conversion, used to aim only: any tilt gives a bound.
    with np.errstate(divide="ignore"):
        aims = (moments + math.log(1 / delta) - np.log1p(thetas)) / thetas + np.log1p(-1 / (1 + thetas))
    at = int(np.argmin(aims))
    return _solve(_law(terms, float(thetas[at]), max(float(aims[at]), 0.0), delta), delta)


def delta(terms: Sequence[Term], epsilon: float) -> float:
    """An upper bound of the delta of the product of `terms` at epsilon >= 0."""
    if not terms:
        return 0.0
    infinite = _infinite(terms)
    if infinite > 0.1 or _lost(terms):  # nothing worth composing is left
        return 1.0
    parts = _gridded(terms, _finest(terms))
    thetas = _tilts(terms)
    chernoff = _log_moments(parts, thetas) - thetas * epsilon
    at = int(np.argmin(chernoff))
    law = _law(terms, float(thetas[at]), epsilon, math.exp(min(max(chernoff[at], -600.0), 0.0)) / 100)
    return min(1.0, float(_delta(law, np.array([epsilon]))[0]))


def _lost(terms: Sequence[Term]) -> bool:
    """Whether roundings may be all that is left of the product: of too many terms, or of none but tiny losses."""
    return sum(t.times for t in terms) > MOST_PRICED or _furthest(terms) < _TINY


def _furthest(terms: Sequence[Term]) -> float:
    return max(float(c.eps[-1]) for t in terms for c in (t.pair.right, t.pair.left))


def _finest(terms: Sequence[Term]) -> int:
    """log2 of a step that adds at most 1e-5 to the variance of the sum: a bend moves to the grid points beside it."""
    spreads = [(t.times, *_spread_of(t.pair)) for t in terms]
    allowed = 1e-5 * sum(times * variance for times, variance, _ in spreads)
    furthest = _furthest(terms)
    log2_step, least = math.ceil(math.log2(furthest)), math.floor(math.log2(furthest)) - 40
    while sum(times * min(4.0**log2_step / 6, 2.0**log2_step * size) for times, _, size in spreads) > allowed:
        log2_step -= 1
        if log2_step <= least:
            break
    return log2_step


@lru_cache(maxsize=4096)
def _spread_of(pair: Pair) -> tuple[float, float]:
    """The variance and the mean size of the loss of one release."""
    m = curves.masses(pair)
    mean = float(m.p @ m.loss)
    return float(m.p @ (m.loss - mean) ** 2) + 1e-300, float(m.p @ np.abs(m.loss))


@lru_cache(maxsize=1024)
def _on_grid(pair: Pair, log2_step: int) -> tuple[Array, Masses]:
    """The pair with its knots at whole multiples of h = 2^log2_step."""
    h = 2.0**log2_step
    sides, steps = [], []
    for curve in (pair.right, pair.left):
        index = np.unique(np.concatenate([np.floor(curve.eps / h), np.ceil(curve.eps / h)])).astype(np.int64)
        sides.append(Curve(index * h, curves.read(curve, index * h)))
        steps.append(index)
    return np.concatenate([-steps[1][:0:-1], steps[0]]), curves.masses(Pair(sides[0], sides[1]))


def _gridded(terms: Sequence[Term], log2_step: int) -> list[_Part]:
    return [_Part(*_on_grid(t.pair, log2_step), t.times) for t in terms]


def _infinite(terms: Sequence[Term]) -> float:
    """P(loss = infinity) of the sum."""
    finite = sum(t.times * math.log1p(-min(float(t.pair.right.value[-1]), 1 - _ROUNDING)) for t in terms)
    return -math.expm1(finite) * (1 + 1e-12)


def _log_moments(parts: Sequence[_Part], theta: Array) -> Array:
    total = np.zeros_like(theta)
    for part in parts:
        total += part.times * curves.log_moment(part.masses, theta)
    return total


def _rough_log_moments(terms: Sequence[Term], theta: Array) -> Array:
    """The same of some of the terms, in the place of all."""
    some = terms[:: -(-len(terms) // _AIMED_BY)]
    share = sum(t.times for t in some) / sum(t.times for t in terms)
    return _log_moments(_gridded(some, _finest(terms)), theta) / share


def _tilts(terms: Sequence[Term]) -> Array:
    wide = math.sqrt(sum(t.times * _spread_of(t.pair)[0] for t in terms))
    return _TRIED / max(wide, _LEAST_SPREAD * _furthest(terms))


def _law(terms: Sequence[Term], theta: float, epsilon: float, delta: float) -> _Law:
    """The tilted law in a window that holds what matters for this epsilon and delta."""
    log2_step = _finest(terms)
    while True:
        h = 2.0**log2_step
        parts = _gridded(terms, log2_step)
        tilted = [_tilt(p, theta) for p in parts]
        mean = sum(p.times * float(t @ p.masses.loss) for p, (t, _) in zip(parts, tilted))
        variance = sum(
            p.times * (float(t @ p.masses.loss**2) - float(t @ p.masses.loss) ** 2)
            for p, (t, _) in zip(parts, tilted)
        )
        reach = 9 * math.sqrt(max(variance, 0.0))
        thetas = theta * np.geomspace(1, 8, 16)
        log_moments = _log_moments(parts, thetas)
        lightest = float(np.min((log_moments - math.log(_ABOVE) - math.log(delta)) / thetas))
        least, most = (sum(p.times * float(p.masses.loss[end]) for p in parts) for end in (0, -1))
        # What lies below the window is wrapped and lost for any eps that is not in it: epsilon must be.
        low = min(max(mean - reach, least), epsilon)
        high = min(max(lightest, epsilon), most)
        n = 2 ** max(4, math.ceil(math.log2((high - min(low, high)) / h + 8)))
        if n <= _LARGEST:
            break
        log2_step += 1
    start = math.floor(min(low, high) / h) - 2
    loss = (start + np.arange(n)) * h
    beyond = 0.0
    if loss[-1] < most:
        beyond = float(np.exp(np.minimum(log_moments - thetas * loss[-1], 0.0)).min())
    spectrum = np.ones(n // 2 + 1, dtype=complex)
    norms = 0.0
    for part, (t, _) in zip(parts, tilted):
        wrapped = np.bincount(part.steps % n, weights=t, minlength=n)
        norms += part.times * float(np.linalg.norm(wrapped))
        spectrum *= _power(np.fft.rfft(wrapped), part.times)
    values = np.roll(np.fft.irfft(spectrum, n), -(start % n))
    size = float(np.linalg.norm(values))
    steps = sum(p.times for p in parts)
    short = sum(
        p.times * max(1 - math.fsum(p.masses.p) - p.masses.infinite, 0.0) for p in parts
    )  # by rounding
    extent = max(float(np.abs(p.masses.loss).max()) for p in parts)
    shift = sum(p.times * s for p, (_, s) in zip(parts, tilted))
    exponent = shift - theta * loss
    used = (loss > 0) & (exponent < 600.0)
    p = np.maximum(values[used], 0.0) * np.exp(exponent[used])
    error = _FFT * math.log2(n) * (norms + size) + 6 * steps * _ROUNDING * size
    # Cut far below epsilon: what is subtracted there is too small, never too large, and nothing overflows.
    since = np.exp(np.minimum(epsilon - loss[used], 50.0))
    return _Law(
        loss=loss[used],
        upper=np.append(np.cumsum(p[::-1])[::-1], 0.0),
        lower=np.append(np.cumsum((p * since)[::-1])[::-1], 0.0),
        around=epsilon,
        step=h,
        theta=theta,
        log_scale=shift,
        error=error * min(math.sqrt(n), 1 / math.sqrt(-math.expm1(-2 * theta * h))),
        relative=short
        + 4 * _ROUNDING * (steps * (4 + theta * extent) + abs(shift) + theta * abs(loss).max() + n),
        outside=_infinite(terms) + beyond,
    )


def _tilt(part: _Part, theta: float) -> tuple[Array, float]:
    """p e^(theta l - c), with c = ln M(theta), so that it sums to one."""
    loss, p, _ = part.masses
    constant = float(curves.log_moment(part.masses, np.array([theta]))[0])
    return p * np.exp(np.where(p > 0, theta * loss - constant, 0.0)), constant


def _power(x: Array, count: int) -> Array:
    """x^count by squaring."""
    result = np.ones_like(x)
    while count:
        if count & 1:
            result *= x
        count >>= 1
        if count:
            x = x * x
    return result


def _delta(law: _Law, eps: Array) -> Array:
    """The upper bound of delta at eps: the sum, the error of the FFT and the window's outside."""
    first = np.searchsorted(law.loss, eps, side="right")
    least = np.exp(np.minimum(eps - law.around, 700.0)) * law.lower[first]
    inside = law.upper[first] * (1 + law.relative) - least * (1 - law.relative)
    fft = law.error * np.exp(np.minimum(law.log_scale - law.theta * eps, 700.0))
    return np.maximum(inside, 0.0) + fft + law.outside


def _solve(law: _Law, delta: float) -> float:
    """The least epsilon of the window with delta(eps) <= delta: the grid cell first, then inside it."""
    if len(law.loss) == 0:
        return math.inf
    ends = np.append(max(0.0, law.loss[0] - law.step), law.loss)
    fits = _delta(law, ends) <= delta
    if not fits.any():
        return math.inf
    first = int(np.argmax(fits))
    if first == 0:
        return float(ends[0])
    low, high = float(ends[first - 1]), float(ends[first])
    for _ in range(40):
        middle = (low + high) / 2
        if _delta(law, np.array([middle]))[0] <= delta:
            high = middle
        else:
            low = middle
    return high
