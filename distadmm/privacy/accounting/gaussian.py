"""Gaussian noise: exact trade-offs, rounded against us.

A query of l2 sensitivity Delta with N(0, sigma^2 I) on it is mu-Gaussian with mu = Delta / sigma, and T of
them, chosen adaptively, are exactly sqrt(sum mu_t^2)-Gaussian together (Dong, Roth and Su 2022):

    delta(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).

Discrete Gaussian noise on a grid costs not what the continuous formula says, but never far above it (`discrete`).
N_Z(0, sigma^2)^n on an integer query of l2 sensitivity Delta.  Three bounds, the smallest of which is used:

* any n (derived for this project; not peer-reviewed: docs/proofs/discrete-gaussian.md).  With s1^2 + s2^2 = sigma^2 and
  theta = 2 sum_k exp(-2 pi^2 s2^2 k^2) the release is nearly a function of a continuous Gaussian of width s1:

      H_gamma <= e^u H_{gamma e^-(u+l)}(continuous, s1),  u = n ln(1 + theta),  l = n ln[(1 + theta)/(1 - theta)].

* n = 1: the exact divergence of the largest whole shift, summed (the likelihood ratio is monotone, so smaller
  shifts are easier).
* concentrated DP of Delta^2 / (2 sigma^2), as for the continuous Gaussian (Canonne, Kamath and Steinke 2020).
"""

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting import curves

Array = np.ndarray

# log_ndtr is good to a few units in the last place of its value; the exponential multiplies that by |value|.
_ROUNDINGS = 2e-15
_CHOSEN = 4  # times as much where noise is chosen, so that it is within its budget however it is priced again
_FAR_OUT = -25.0  # below which the tail's asymptotic series is exact to the last place
_FURTHEST = 1e60  # standard deviations
_LARGEST_SUM = 4096.0  # sigma up to which the one-dimensional sums are done
_SHARES = (1e-9, 1e-6, 1e-4, 1e-2)  # u + l tried, in units of mu


def log_ndtr(x: Array | float) -> Array | float:
    """ln Phi(x); of one number without scipy, whose loading would keep all ranks of a run waiting."""
    if np.ndim(x):
        from scipy.special import log_ndtr as of_each

        return of_each(x)
    x = float(x)
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > _FAR_OUT:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    series, term = 0.0, 1.0  # 1 - 1/x^2 + 1.3/x^4 - ...
    for k in range(1, 12):
        term *= -(2 * k - 1) / (x * x)
        series += term
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log1p(series)


def hockey_stick(mu: float, eps: Array | float, roundings: float = _ROUNDINGS) -> Array:
    """delta(eps; mu), never below the true value."""
    eps = np.asarray(eps, dtype=float)
    away = np.minimum(eps, _FURTHEST * mu) / mu  # further out nothing is left either way
    return np.minimum(_above(log_ndtr(mu / 2 - away), log_ndtr(-mu / 2 - away), eps, roundings), 1.0)


def hockey_stick_sign_free(mu: float, eps: Array | float) -> Array:
    """E[(1 - e^(eps - Z))_+] for Z = mu |X| + mu^2/2, X ~ N(0, 1), eps >= 0: the larger loss of the shifts
    +-Delta.  Never below the true value."""
    eps = np.asarray(eps, dtype=float)
    x = np.maximum(eps / mu - mu / 2, 0.0)  # Z > eps is |X| > x
    return np.minimum(2 * _above(log_ndtr(-x), log_ndtr(-x - mu), eps, _ROUNDINGS), 1.0)


def _above(log_p: Any, log_q: Any, eps: Array, roundings: float) -> Array:
    """p - e^eps q, not below it."""
    p = np.exp(log_p)
    exact = p * -np.expm1(np.minimum(eps + log_q - log_p, 0.0))
    return exact + roundings * (4 + np.abs(log_p) + np.abs(eps)) * p


def log_tail_moment(mu: float, order: Array, above: float) -> Array:
    """ln E[e^((a-1) L); L > above], L ~ N(mu^2/2, mu^2): what a cut at `above` leaves out of order a."""
    return order * (order - 1) * mu**2 / 2 + log_ndtr((order - 0.5) * mu - above / mu)


def delta(mu: float, epsilon: float) -> float:
    """delta of a mu-Gaussian mechanism at epsilon."""
    return 0.0 if mu == 0 else max(float(hockey_stick(mu, epsilon)), math.ulp(0.0))


@lru_cache(maxsize=1024)
def epsilon(mu: float, delta: float) -> float:
    """The least epsilon >= 0 at which a mu-Gaussian mechanism has this delta (up to 1e-14, upwards)."""
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    if mu == 0 or hockey_stick(mu, 0.0) <= delta:
        return 0.0
    # A Chernoff bound on the normal tail alone is above the answer.
    if mu > _FURTHEST:
        return math.inf
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return _least(lambda e: float(hockey_stick(mu, e)) <= delta, 0.0, high)


@lru_cache(maxsize=1024)
def mu_at(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP, from below: priced again it is no more than epsilon."""
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    require(
        math.isfinite(epsilon) and epsilon > 0, f"epsilon is {epsilon!r}; needed: a finite number above 0"
    )
    overspends = partial(_overspends, epsilon, delta)
    high = math.sqrt(2 * epsilon) + 2 * float(-log_ndtr(-1.0))
    while not overspends(high):
        high *= 2
    return -_least(lambda m: not overspends(-m), -high, -1e-12 * epsilon)


def _overspends(epsilon: float, delta: float, mu: float) -> bool:
    return float(hockey_stick(mu, epsilon, _CHOSEN * _ROUNDINGS)) > delta


def at_least_mu_at(mu: float, epsilon: float, delta: float) -> float:
    """max(mu, mu_at(epsilon, delta)), which is worked out only where it is the larger."""
    return mu if mu > 0 and _overspends(epsilon, delta, mu) else max(mu, mu_at(epsilon, delta))


def gaussian_noise_multiplier(epsilon: float, delta: float, count: int = 1) -> float:
    """The least sigma / sensitivity with which `count` adaptive Gaussian releases are (epsilon, delta)-DP."""
    require(count >= 1, f"count is {count!r}; needed: a whole number of at least 1")
    return math.nextafter(math.sqrt(count) / mu_at(epsilon, delta), math.inf)


def _least(holds, low: float, high: float) -> float:
    """The upper end of the last bisection of [low, high], where `holds` turns true."""
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= 1e-15 * abs(high):
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def discrete(sigma: float, sensitivity: float, dimension: int) -> curves.Curve:
    """An upper bound of the hockey-stick of one release, the same both ways."""
    mu = sensitivity / sigma
    eps = np.concatenate([np.arange(768) * (mu / 64), np.linspace(12, 14 + mu / 2, 64) * mu])
    bound = _concentrated(mu, eps)
    for share in _SHARES:
        bound = np.minimum(bound, _rounded(sigma, sensitivity, dimension, share * mu, eps))
    if dimension == 1 and max(sigma, sensitivity / 64) <= _LARGEST_SUM:
        bound = np.minimum(bound, summed(sigma, math.floor(sensitivity), eps))
    return curves.hull(eps, bound)


def _rounded(sigma: float, sensitivity: float, n: int, allowed: float, eps: Array) -> Array:
    """The first bound, with s2 such that u + l is about `allowed`; 1 where there is no such s2."""
    second = math.log(max(6 * n / allowed, math.e)) / (2 * math.pi**2)
    if second >= sigma**2:
        return np.ones_like(eps)
    theta = 2 * math.exp(-2 * math.pi**2 * second) / (1 - math.exp(-6 * math.pi**2 * second))
    if theta >= 1:
        return np.ones_like(eps)
    up, down = n * math.log1p(theta), n * (math.log1p(theta) - math.log1p(-theta))
    later = eps - up - down
    tight = hockey_stick(sensitivity / math.sqrt(sigma**2 - second), np.abs(later))
    early = np.minimum(later, 0.0)  # gamma < 1: H_gamma = 1 - gamma + gamma H_{1/gamma}
    tight = np.where(later < 0, -np.expm1(early) + np.exp(early) * tight, tight)
    return np.minimum(math.exp(min(up, 1.0)) * (1 + 1e-15) * tight, 1.0) if up < 1 else np.ones_like(eps)


def _concentrated(mu: float, eps: Array) -> Array:
    """delta <= e^((a-1)(a mu^2/2 - eps)) (1 - 1/a)^(a-1) / a, the least over a grid of a > 1."""
    a = 1 + np.geomspace(1e-2, 1e5, 200)[:, None]
    log_delta = (a - 1) * (a * mu**2 / 2 - eps) - np.log(a) + (a - 1) * np.log1p(-1 / a)
    return np.exp(np.minimum(log_delta.min(axis=0), 0.0)) * (1 + 1e-12)


def summed(sigma: float, shift: int, eps: Array) -> Array:
    """sum_x [p(x) - e^eps p(x - shift)]_+ over the integers, p the discrete Gaussian, never below the true value."""
    if shift == 0:
        return np.zeros_like(eps)
    reach = math.ceil(38 * sigma) + shift + 2
    x = np.arange(-reach, reach + 1, dtype=float)
    p = np.exp(-(x**2) / (2 * sigma**2))
    below = np.cumsum(p) / p.sum()
    # p(x) > e^eps p(x - shift)  iff  x < shift/2 - sigma^2 eps / shift; at the cut itself both terms are equal.
    cut = np.floor(shift / 2 - sigma**2 * np.asarray(eps, dtype=float) / shift)

    def mass(upto: Array) -> Array:
        at = np.clip(upto + reach, -1, len(below) - 1).astype(int)
        return np.where(at < 0, 0.0, below[np.maximum(at, 0)])

    power = mass(cut)
    slack = 4 * len(x) * float(np.finfo(float).eps)
    return np.clip(power * (1 + slack) - np.exp(np.minimum(eps, 700.0)) * mass(cut - shift), 0.0, 1.0)
