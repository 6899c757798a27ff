"""K-norm (gamma) noise, density proportional to exp(-alpha |b|_2) on R^d: its exact hockey-stick.

Theorem A.  Among all shifts |v| <= Delta the shift by Delta e_1 is the worst for every e^eps, and with
s = alpha Delta, r ~ Gamma(d, 1), t the cosine between b and e_1, (1 + t)/2 ~ Beta((d-1)/2, (d-1)/2),

    L = sqrt(r^2 + 2 r s t + s^2) - r,        h(eps) = P(L > eps) - e^eps P(L < -eps).

Proof: docs/proofs/k-norm.md.

Quadrature.  L > l  iff  r < (s - l)/2  or  (1 - t)/2 < c (1 + (s + l)/(2 r)),  c = (s - l)/(2 s), so one
integral over r is left.  Its integrand has a kink at r = (s - l)/2 and is a half-integer power beside it:
the range is split there, and r = kink + u^2 makes it smooth.  (Integrating across the kink loses up to 6e-4 of
delta in the plane.)  Gauss-Legendre with 128 and with 96 nodes; what they differ by is charged three times, and
1e-12 of P(L > eps) for the incomplete beta and gamma functions.  From 20 dimensions on, where the integrand is
smooth, 72 and 54 nodes come first, and do wherever they agree.  (In the plane three times their difference can
fall short of the error, by 2e-8 of the result.)
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from scipy import special

Array = np.ndarray

_NODES = ((72, 54), (128, 96))
_SMOOTH = 20  # dimensions from which the first of these is tried
_ROUGH, _ROUGHEST = 1e-4, 5e-11  # what a difference may add to the result, in parts of it and at most
_SLACK = 1e-12
_LARGEST = 700.0  # e^eps is taken no larger: what is subtracted is then too small, never too large
_NEAR = 1e-100  # radii below this quantile are not integrated; their mass is charged
_OUTER = 1e-40  # beyond this one neither: what is integrated falls with the radius

# The incomplete beta function, in which most of the time goes.
_STEEPEST = 60.0  # the largest exponent: with larger ones powers lose digits
_DEGREES = (24, 32, 48, 64)
_AT_ONCE = 8192  # numbers, which stay in the cache


def hockey_stick(dimension: int, s: float, eps: Array) -> Array:
    """h(eps) for eps >= 0, never below the true value."""
    eps = np.asarray(eps, dtype=float)
    if dimension == 1:  # Laplace
        return np.maximum(-np.expm1(np.minimum((eps - s) / 2, 0.0)), 0.0) * (1 + _SLACK)
    return _outward(partial(_hockey_stick, dimension, s), dimension, eps, eps >= s)


def hockey_stick_sign_free(dimension: int, s: float, eps: Array) -> Array:
    """E[(1 - e^(eps - Z))_+] for eps >= 0 and Z the larger loss of the shifts +-Delta e_1 (Z >= 0 always),
    never below the true value."""
    eps = np.asarray(eps, dtype=float)
    if dimension == 1:  # |b + s| and |b - s|: the larger is |b| + s
        return np.maximum(-np.expm1(np.minimum(eps - s, 0.0)), 0.0) * (1 + _SLACK)
    return _outward(partial(_hockey_stick_sign_free, dimension, s), dimension, eps, eps >= s)


def log_tail_moment(dimension: int, s: float, order: Array, above: float) -> Array:
    """An upper bound of ln E[e^((a-1) L); L > above] at Renyi orders a.

    E[e^(p L); L > m] <= e^(-k m) E[e^((p+k) L)] for k >= 0.  L falls with r and is at most s; for r >= R > s it is at
    most s t + s^2/(2 (R - s)), and E[e^(q t)] <= e^(q^2/(2d)); P(r < x d) <= e^(-d (x - 1 - ln x)) for x < 1.
    """
    power = np.asarray(order, dtype=float)[:, None, None] - 1
    extra = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 121)])[:, None] * above * dimension / s**2
    x = np.linspace(0.02, 0.98, 49)
    x = x[x * dimension > 2 * s]
    q = power + extra
    least = (q * s - extra * above).min(axis=(1, 2))
    if len(x) == 0:
        return least
    rare = q * s - dimension * (x - 1 - np.log(x))
    usual = q**2 * s**2 / (2 * dimension) + q * s**2 / (2 * (x * dimension - s))
    return np.minimum(least, (np.logaddexp(rare, usual) - extra * above).min(axis=(1, 2)))


def _outward(
    rule: Callable[[Array, int], tuple[Array, Array]], dimension: int, eps: Array, beyond: Array
) -> Array:
    """The divergence, of `rule`'s (divergence, P(L > eps)), made an upper bound; exactly 0 beyond the pure bound."""
    found, todo = np.zeros_like(eps), np.flatnonzero(~beyond)
    for fine, coarse in _NODES if dimension >= _SMOOTH else _NODES[-1:]:
        if len(todo) == 0:
            break
        value, above = rule(eps[todo], fine)
        apart = 3 * np.abs(value - rule(eps[todo], coarse)[0])
        found[todo] = np.clip(value + apart + _SLACK * above + _NEAR, 0.0, 1.0)
        todo = todo[apart > np.minimum(_ROUGH * np.abs(value), _ROUGHEST) + 0.1 * _SLACK * above]
    return found


def _hockey_stick(dimension: int, s: float, eps: Array, nodes: int) -> tuple[Array, Array]:
    """h(eps) and P(L > eps)."""
    half = (dimension - 1) / 2
    c = np.maximum(s - eps, 0.0) / (2 * s)
    kink = np.maximum(s - eps, 0.0) / 2
    far = (s + eps)[:, None]

    def cap(r: Array, u: Array) -> Array:
        return beta_below(half, np.minimum(c[:, None] * (1 + far / (2 * r)), 1.0))

    def rest(r: Array, u: Array) -> Array:
        return beta_below(half, c[:, None] * (u * u / r))

    above = special.gammainc(dimension, kink) + _over_radius(dimension, kink, nodes, cap)
    below = _over_radius(dimension, (s + eps) / 2, nodes, rest)
    return above - np.exp(np.minimum(eps, _LARGEST)) * below, above


def _hockey_stick_sign_free(dimension: int, s: float, eps: Array, nodes: int) -> tuple[Array, Array]:
    """The same for Z = max(L(+s), L(-s)): Z > l  iff  r < (s^2 - l^2)/(2 l)  or  |t| > t*(r).

    E[e^-Z; Z > l] is twice the mass that the shifted noise puts on {b_1 > s, L > l}; there the first
    condition binds for r < (s^2 + l^2)/(2 l) and the second beyond.
    """
    half = (dimension - 1) / 2
    l = np.minimum(eps, s)[:, None]
    with np.errstate(divide="ignore"):
        kink = ((s * s - l * l) / (2 * l))[:, 0]
        turn = ((s * s + l * l) / (2 * l))[:, 0]
    c = (s - l) / (2 * s)

    def cap(r: Array, u: Array) -> Array:
        return beta_below(half, np.minimum(c * (1 + (s + l) / (2 * r)), 0.5))

    def inner(r: Array, u: Array) -> Array:
        return beta_below(half, u * u / (2 * r))

    def outer(r: Array, u: Array) -> Array:
        return beta_below(half, c * np.maximum(1 - (s + l) / (2 * r), 0.0))

    above = special.gammainc(dimension, kink) + 2 * _over_radius(dimension, kink, nodes, cap)
    near = _over_radius(dimension, np.full_like(kink, s), nodes, inner, until=turn)
    far = _over_radius(dimension, turn, nodes, outer)
    return above - np.exp(np.minimum(l[:, 0], _LARGEST)) * 2 * (near + far), above


def _over_radius(dimension: int, start: Array, nodes: int, integrand, until: Array | None = None) -> Array:
    """Integral over r from `start` (an array) of the Gamma(d, 1) density times integrand(r, u), r = start + u^2."""
    x, weight = _gauss_legendre(nodes)
    low = float(special.gammaincinv(dimension, _NEAR))
    high = float(special.gammainccinv(dimension, _OUTER))
    finite = np.isfinite(start)
    begin = np.where(finite, start, high)
    first = np.sqrt(np.maximum(low - begin, 0.0))
    end = np.maximum(high, begin) if until is None else np.clip(until, begin, np.maximum(high, begin))
    last = np.maximum(np.sqrt(end - begin), first)
    u = first[:, None] + (last - first)[:, None] * x
    r = begin[:, None] + u * u
    values = np.exp(_log_gamma_density(dimension, r)) * integrand(r, u) * 2 * u
    return np.where(finite, (values @ weight) * (last - first), 0.0)


def beta_below(half: float, x: Array) -> Array:
    """P(b < x) of b ~ Beta(half, half), to 3e-13 of itself: with y the smaller of x and 1 - x,

        P(b < y) = (4 y (1 - y))^half G(y),    G(y) = G(0) sum_n y^n prod_(i<n) (2 half + i) / (half + 1 + i),

    where G is smooth up to 1/2 and of Chebyshev terms that soon vanish.
    """
    series = _beta_series(half) if half <= _STEEPEST else None
    if series is None:
        return np.asarray(special.betainc(half, half, x))
    found = np.empty(x.shape)
    given, put = x.reshape(-1), found.reshape(-1)
    for first in range(0, given.size, _AT_ONCE):
        some = given[first : first + _AT_ONCE]
        y = np.minimum(some, 1.0 - some)
        with np.errstate(divide="ignore"):  # at 0
            lower = np.exp(half * np.log(4.0 * y * (1.0 - y)))
        lower *= np.polynomial.chebyshev.chebval(4.0 * y - 1.0, series)
        put[first : first + _AT_ONCE] = np.where(some <= 0.5, lower, 1.0 - lower)
    return found


@lru_cache(maxsize=64)
def _beta_series(half: float) -> Array | None:
    """Coefficients of G over [0, 1/2]; None: more are needed."""

    def terms(t: Array) -> Array:
        y = (t + 1.0) / 4.0
        term, total, n = np.ones_like(y), np.ones_like(y), 0
        while (term > 1e-18 * total).any():
            term = term * (2 * half + n) / (half + 1 + n) * y
            total, n = total + term, n + 1
        return total

    at_zero = math.exp(-math.log(half) - special.betaln(half, half) - half * math.log(4.0))
    for degree in _DEGREES:
        found: Array = np.polynomial.chebyshev.Chebyshev.interpolate(terms, degree).coef
        if np.abs(found[-3:]).max() <= 1e-15 * found[0]:
            return at_zero * found
    return None


@lru_cache(maxsize=4)
def _gauss_legendre(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1]."""
    x, weight = np.polynomial.legendre.leggauss(nodes)
    return (x + 1) / 2, weight / 2


def _log_gamma_density(d: int, r: Array) -> Array:
    """(d-1) ln r - r - ln Gamma(d), without the cancellation of terms of size d ln d."""
    x = (r - d) / d
    if d < 20:
        constant = d * math.log(d) - d - math.lgamma(d)
    else:  # Stirling
        constant = 0.5 * math.log(d / (2 * math.pi)) - 1 / (12 * d) + 1 / (360 * d**3) - 1 / (1260 * d**5)
    return constant - d * (x - np.log1p(x)) - np.log(r)
