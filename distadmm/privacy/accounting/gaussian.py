"""Gaussian noise: exact trade-offs, rounded against us.

A query of l2 sensitivity Delta with N(0, sigma^2 I) on it is mu-Gaussian with mu = Delta / sigma, and T of
them, chosen adaptively, are exactly sqrt(sum mu_t^2)-Gaussian together (Dong, Roth and Su 2022):

    delta(eps; mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from distadmm.errors import require

Array = np.ndarray

# log_ndtr is good to a few units in the last place of its value; the exponential multiplies that by |value|.
_ROUNDINGS = 2e-15


def hockey_stick(mu: float, eps: Array | float) -> Array:
    """delta(eps; mu), never below the true value."""
    eps = np.asarray(eps, dtype=float)
    log_p = log_ndtr(mu / 2 - eps / mu)
    log_q = log_ndtr(-mu / 2 - eps / mu)
    p = np.exp(log_p)
    exact = p * -np.expm1(np.minimum(eps + log_q - log_p, 0.0))
    return np.minimum(exact + _ROUNDINGS * (4 + np.abs(log_p) + np.abs(eps)) * p, 1.0)


def hockey_stick_sign_free(mu: float, eps: Array | float) -> Array:
    """E[(1 - e^(eps - Z))_+] for Z = mu |X| + mu^2/2, X ~ N(0, 1), eps >= 0: the larger loss of the shifts
    +-Delta.  Never below the true value."""
    eps = np.asarray(eps, dtype=float)
    x = np.maximum(eps / mu - mu / 2, 0.0)  # Z > eps is |X| > x
    log_p, log_q = log_ndtr(-x), log_ndtr(-x - mu)
    p = 2 * np.exp(log_p)
    exact = p * -np.expm1(np.minimum(eps + log_q - log_p, 0.0))
    return np.minimum(exact + _ROUNDINGS * (4 + np.abs(log_p) + np.abs(eps)) * p, 1.0)


def log_tail_moment(mu: float, order: Array, above: float) -> Array:
    """ln E[e^((a-1) L); L > above], L ~ N(mu^2/2, mu^2): what a cut at `above` leaves out of order a."""
    return order * (order - 1) * mu**2 / 2 + log_ndtr((order - 0.5) * mu - above / mu)


def delta(mu: float, epsilon: float) -> float:
    """delta of a mu-Gaussian mechanism at epsilon."""
    return 0.0 if mu == 0 else float(hockey_stick(mu, epsilon))


def epsilon(mu: float, delta: float) -> float:
    """The least epsilon >= 0 at which a mu-Gaussian mechanism has this delta (up to 1e-14, upwards)."""
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    if mu == 0 or hockey_stick(mu, 0.0) <= delta:
        return 0.0
    # A Chernoff bound on the normal tail alone is above the answer.
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return _least(lambda e: float(hockey_stick(mu, e)) <= delta, 0.0, high)


def mu_at(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP."""
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    require(
        math.isfinite(epsilon) and epsilon > 0, f"epsilon is {epsilon!r}; needed: a finite number above 0"
    )

    def overspends(mu: float) -> bool:
        return float(hockey_stick(mu, epsilon)) > delta

    high = math.sqrt(2 * epsilon) + 2 * float(-log_ndtr(-1.0))
    while not overspends(high):
        high *= 2
    return -_least(lambda m: not overspends(-m), -high, -1e-12 * epsilon)


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
