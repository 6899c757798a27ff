"""How much noise a budget asks for: the parameters that spend at most epsilon, by the bounds of `pricing`."""

import math
from collections.abc import Callable

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.accountant import epsilon as price
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import Adjacency, Event, Gaussian, KNorm, check_adjacency
from distadmm.privacy.accounting.gaussian import gaussian_noise_multiplier
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation

_RELATIVE = 1e-6  # how close to the budget a scale is brought; always from below


def gaussian_discrete_sigma(
    epsilon: float, delta: float, sensitivity: float, count: int = 1, dimension: int = 1
) -> float:
    """The least sigma, in grid units, of `count` discrete Gaussian releases; `sensitivity` in grid units, rounding to
    the grid included."""
    check_budget(epsilon, delta)
    require(delta > 0, "the discrete Gaussian has no guarantee with delta = 0; give a delta above 0")
    start = gaussian_noise_multiplier(epsilon, delta, count) * sensitivity

    def spend(sigma: float) -> float:
        return price(DiscreteGaussian(sigma, sensitivity, count, dimension), delta, "replace")

    return _weakest(spend, epsilon, start, noisier=1)


def objective_scale(
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    *,
    dimension: int,
    weight: float,
    curvature: float,
    floor: float,
    count: int,
    noise: str = "gamma",
    output_epsilon: float = 0.0,
    one_signed: bool = True,
    logistic: bool = False,
) -> float:
    """The scale of objective perturbation (the largest alpha, or the least sigma) of `count` releases that spends at
    most `epsilon` at `delta`."""
    check_budget(epsilon, delta)
    check_adjacency(adjacency)

    public = weight, curvature, floor, count, output_epsilon, one_signed, logistic

    def event(scale: float) -> ObjectivePerturbation:
        return ObjectivePerturbation(noise, dimension, scale, *public)

    moved = event(1.0).shift(adjacency)
    if noise == "gamma":
        fixed = event(1e-50).pure_epsilon(adjacency)  # the determinants and the output noise
        if delta == 0:
            require(
                epsilon > fixed,
                f"epsilon {epsilon:g} is below {fixed:g}, what {count} releases cost whatever the noise is;"
                " give a larger epsilon, fewer releases, or a delta above 0",
            )
            return (epsilon - fixed) * (1 - 1e-14) / (count * moved)
        start = math.sqrt(dimension) / (gaussian_noise_multiplier(epsilon, delta, count) * moved)
    else:
        require(delta > 0, "Gaussian noise has no guarantee with delta = 0; give a delta above 0")
        start = gaussian_noise_multiplier(epsilon, delta, count) * moved
    noisier = 1 if noise == "gaussian" else -1
    return _weakest(lambda scale: price(event(scale), delta, adjacency), epsilon, start, noisier)


def output_perturbation(
    noise: str,
    dimension: int,
    scale: float,
    weight: float,
    floor: float,
    adjacency: Adjacency,
    count: int = 1,
) -> Event:
    """Noise on the released minimiser itself: one record moves it by at most w / Phi (replaced: 2 w / Phi), because it
    changes the gradient of a Phi-strongly convex objective by at most w (2 w).  For any convex loss with |l'| <= 1.
    `scale` is alpha of gamma noise, or sigma of Gaussian noise."""
    check_adjacency(adjacency)
    moved = (weight if adjacency == "add-remove" else 2 * weight) / floor
    if noise == "gamma":
        return KNorm(dimension, scale, moved, count)
    require(noise == "gaussian", f"noise is {noise!r}; choose gamma or gaussian")
    return Gaussian(scale / moved, count)


def check_budget(epsilon: float, delta: float) -> None:
    require(
        math.isfinite(epsilon) and epsilon > 0, f"epsilon is {epsilon!r}; needed: a finite number above 0"
    )
    require(0 <= delta < 1, f"delta is {delta!r}; needed: a number from 0 to below 1")


def _weakest(spend: Callable[[float], float], epsilon: float, start: float, noisier: int) -> float:
    """The scale nearest to no noise with spend(scale) <= epsilon; more noise is up (`noisier` 1) or down (-1).

    Regula falsi on the logarithms (Illinois), bisection where a price is 0 or infinite.
    """

    def excess(log_noise: float) -> float:
        spent = spend(math.exp(noisier * log_noise))
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    origin = noisier * math.log(start)
    low = high = origin
    above = below = excess(origin)
    step = 0.02
    while below > 0:
        low, above, high, step = high, below, high + step, 2 * step
        below = excess(high)
        if high - origin > 60:
            raise InputError(
                f"no amount of noise spends at most epsilon {epsilon:g}; give a larger epsilon, a larger delta or"
                " fewer releases"
            )
    step = 0.02
    while above <= 0:
        high, below, low, step = low, above, low - step, 2 * step
        above = excess(low)
        if origin - low > 60:
            break
    a, b, last = above, -below, 0  # Illinois: the end that stays loses half its weight
    while below < -_RELATIVE and high - low > _RELATIVE:
        share = a / (a + b) if math.isfinite(a + b) else 0.5
        middle = low + min(max(share, 0.02), 0.98) * (high - low)
        found = excess(middle)
        if found > 0:
            low, a, b, last = middle, found, b / 2 if last == 1 else b, 1
        else:
            high, below, b, a, last = middle, found, -found, a / 2 if last == -1 else a, -1
    return math.exp(noisier * high)
