"""What a private run commits to before it has looked at a record.

Everything here is a function of public numbers: the budget, the adjacency, the clipping norm C, the public
divisor n', the number of iterations T and the number of columns d.  sigma computed from a private number of
rows would give that number away: with n = 100 and n = 101 its values alone differ by a total variation of
one half.
"""

import math
from dataclasses import dataclass

from distadmm.errors import InputError, require
from distadmm.methods.istdp.private import NoisySteps, noise_level_lambda, sensitivity
from distadmm.privacy.accounting.events import Adjacency
from distadmm.privacy.accounting.schedule import require_few
from distadmm.problems.losses import Loss, least_curvature

_LONGEST = 20.0  # alpha_max over alpha_min where none is given
_FIRM = 2.5  # alpha over the longest step where none is given: every threshold is firm, none is hard
_LEAST = 3.0  # alpha is no less than this


@dataclass(frozen=True)
class Plan:
    epsilon: float
    delta: float
    adjacency: Adjacency
    clip: float  # C
    divisor: float  # n'
    iterations: int  # T
    dimension: int  # d
    noise_multiplier: float  # sigma / sensitivity
    steps: NoisySteps
    lam: float
    alpha: float
    tail: float = 0.0

    @property
    def alone(self) -> float:
        """Iterations before those whose theta are averaged; infinite where the last is the model."""
        return self.iterations - max(1, round(self.tail * self.iterations)) if self.tail else math.inf

    @property
    def sensitivity(self) -> float:
        """How far one record can move the clipped mean gradient."""
        return sensitivity(self.clip, self.divisor, self.adjacency)

    @property
    def sigma(self) -> float:
        return self.noise_multiplier * self.sensitivity


def make_plan(
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | None,
    dimension: int,
    rows: int,
    loss: Loss,
    clip: float = 1.0,
    divisor: float | None = None,
    iterations: int = 50,
    rule: str = "bb",
    first: float | None = None,
    shortest: float | None = None,
    longest: float | None = None,
    lam: float | None = None,
    alpha: float | None = None,
    tail: float = 0.0,
) -> Plan:
    """The plan with what was not given filled in from public numbers.

    The number of `rows` is public when a record is replaced, and n' is that number unless given; when
    records come and go it is private, and n' must be given.  Where no steps are given they lie between
    1/(c1 C^2), the inverse curvature of rows of norm C, and 20 times that; lambda is the size of the noise.
    """
    from distadmm.privacy.accounting.accountant import gaussian_noise_multiplier

    require(0 < delta < 1, f"delta is {delta:g}; needed: a number between 0 and 1")
    require(0 < epsilon < math.inf, f"epsilon is {epsilon:g}; needed: a finite number above 0")
    require(iterations >= 1, f"iterations is {iterations}; needed: at least 1")
    require_few(iterations)
    require(
        least_curvature(loss) == 0,
        "with --epsilon the loss must be convex: noisy gradients of one that is not come to rest where it is flat, at "
        "a model that calls every row the more frequent class; choose logistic, or leave --epsilon out",
    )
    require(0 <= tail <= 1, f"tail is {tail:g}; needed: a share of the iterations, 0 to 1")
    if adjacency is None:
        raise InputError(
            "a private run needs an adjacency and there is no default: replace (one record another, the number of rows "
            "public) or add-remove (one record more or less, with a public divisor)"
        )
    if adjacency == "add-remove" and divisor is None:
        raise InputError(
            "under add-remove the number of rows is private, so the gradients cannot be divided by it; "
            "give a public number in its place (--public-rows N, divisor=N)"
        )
    public = float(rows if divisor is None else divisor)
    sensitivity(clip, public, adjacency)  # refuses what is out of range
    inverse_curvature = 1.0 / (loss.max_curvature * clip**2)
    low = shortest if shortest is not None else inverse_curvature if first is None else first
    high = longest if longest is not None else _LONGEST * low
    steps = NoisySteps(rule, low if first is None else first, low, high)
    multiplier = gaussian_noise_multiplier(epsilon, delta, iterations)
    if lam is None:
        lam = noise_level_lambda(multiplier * sensitivity(clip, public, adjacency), dimension)
    if alpha is None:
        alpha = max(_LEAST, _FIRM * (high if rule == "bb" else steps.first))
    return Plan(
        epsilon, delta, adjacency, clip, public, iterations, dimension, multiplier, steps, lam, alpha, tail
    )
