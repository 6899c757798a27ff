"""The private iteration: data enter through noisy clipped gradients and through nothing else.

    xi^k      = 1/n' sum_i clip_C(grad l(<x_i, theta^k>; y_i)) + b^k          (`xi`, charged to the ledger)
    alpha_k   = fixed, or <d_theta, d_theta> / <d_theta, d_xi> in [alpha_min, alpha_max]
    theta^k+1 = prox_{alpha_k R}(theta^k - alpha_k xi^k)                                        (4)

The model is the last theta, or the mean of those of the last iterations: it swings less, so that T may be large.

Invariant that guards privacy: `Thresholding` never sees a record.  Steps, thresholds and the number of
iterations are functions of the xi already released, so they are post-processing and cost nothing.  A line
search on the true objective (step 1.3.2 of the paper) or a step from exact gradients (step 1.2) is not,
and has no place here; see `printed`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Defaults
from distadmm.errors import require
from distadmm.methods.istdp.gist import barzilai_borwein
from distadmm.problems.concave import Penalty
from distadmm.problems.losses import Loss

_CACHED = 2**21  # entries of X (16 MB) up to which a larger cache holds all of it
_BLOCK = 2**17  # entries of a block (1 MB)

ADJACENCIES = ("replace", "add-remove")


@dataclass(frozen=True)
class NoisySteps:
    """Data-free bounds on alpha_k; `rule` "fixed" keeps the first one."""

    rule: str = "bb"
    first: float = 4.0
    shortest: float = 4.0  # alpha_min
    longest: float = 80.0  # alpha_max

    def __post_init__(self) -> None:
        require(self.rule in ("bb", "fixed"), f"the step rule is {self.rule!r}; choose bb or fixed")
        require(
            0 < self.shortest <= self.longest < math.inf,
            f"step bounds are {self.shortest:g} and {self.longest:g}; needed: 0 < shortest <= longest",
        )
        require(0 < self.first < math.inf, f"the first step is {self.first:g}; needed: a number above 0")


class State(NamedTuple):
    theta: Array  # theta^k
    before: Array  # theta^k-1
    xi: Array  # the noisy gradient there
    step: float  # alpha_k-1, which led here
    model: Array  # theta^k, or the mean of the theta that count


@dataclass(frozen=True)
class Thresholding(Defaults):
    """(4), as a loop runs it; `place.release(k, theta)` is the k-th noisy gradient, k = 0, 1, ..."""

    penalty: Penalty
    steps: NoisySteps
    dimension: int
    alone: float = math.inf  # so many iterations, each theta is the model; later ones count towards the mean

    def init(self, place: Any) -> State:
        nothing = np.zeros(self.dimension)
        return State(nothing, nothing, nothing, self.steps.first, nothing)

    def step(self, k: int, st: State, place: Any) -> State:
        xi, step = place.release(k - 1, st.theta), st.step
        if k > 1 and self.steps.rule == "bb":
            d_theta = st.theta - st.before
            moved, bend = float(d_theta @ d_theta), float(d_theta @ (xi - st.xi))
            step = barzilai_borwein(moved, bend, self.steps.shortest, self.steps.longest)
        theta = self.penalty.prox(st.theta - step * xi, step)
        counted = max(1.0, k - self.alone)
        model = theta if counted == 1 else st.model + (theta - st.model) / counted
        return State(theta, st.theta, xi, step, model)


def iterate(
    xi: Callable[[int, Array], Array],
    start: Array,
    penalty: Penalty,
    steps: NoisySteps,
    alone: float = math.inf,
) -> Iterator[State]:
    """theta^1, theta^2, ... for a gradient of one's own; `xi(k, theta)` is asked once for each."""
    method, place = Thresholding(penalty, steps, len(start), alone), SimpleNamespace(release=xi)
    return states(method, method.init(place)._replace(theta=np.array(start, dtype=float)), place)


def states(method: Any, state: Any, place: Any) -> Iterator[Any]:
    """What follows a state, without end."""
    for k in count(1):
        state = method.step(k, state, place)
        yield state


class ClippedGradient:
    """1/n' sum_i of the records' gradients, each shortened to norm C; at one theta, or at each column of a table.

    grad l_i = l'(z_i) x_i has norm |l'(z_i)| |x_i|, so clipping it is clipping the slope to -+ C / |x_i|:
    no gradient of a single record is ever formed.
    """

    def __init__(self, X: Array, y: Array, loss: Loss, clip: float, divisor: float):
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        with np.errstate(divide="ignore"):
            bound = clip / norms  # infinite for a row of zeros, whose gradient is zero
        self.loss, self.divisor = loss, divisor
        self.blocks = [(X[rows], y[rows], bound[rows]) for rows in blocks(*X.shape)]

    def __call__(self, theta: Array) -> Array:
        total, each = np.zeros_like(theta), (-1,) + (1,) * (theta.ndim - 1)
        for X, y, bound in self.blocks:
            slope, most = self.loss.slope(X @ theta, y.reshape(each)), bound.reshape(each)
            total += (np.clip(slope, -most, most).T @ X).T
        return total / self.divisor


def blocks(rows: int, columns: int) -> list[slice]:
    """The rows in pieces that stay in the cache between the two products of a gradient; one when all do."""
    size = rows if rows * columns <= _CACHED else max(1, _BLOCK // columns)
    return [slice(at, at + size) for at in range(0, rows, size)]


def sensitivity(clip: float, divisor: float, adjacency: str) -> float:
    """How far one record can move the clipped mean: 2C/n' when it is replaced, C/n' when it comes or goes."""
    require(
        adjacency in ADJACENCIES,
        f"adjacency is {adjacency!r}; there is no default: choose one of {', '.join(ADJACENCIES)}",
    )
    require(0 < clip < math.inf, f"the clipping norm is {clip:g}; needed: a finite number above 0")
    require(0 < divisor < math.inf, f"the divisor is {divisor:g}; needed: a finite number above 0")
    return (2 * clip if adjacency == "replace" else clip) / divisor


def noise_level_lambda(sigma: float, dimension: int) -> float:
    """sigma sqrt(2 ln d): above it stays the largest of d noise coordinates about half of the time.

    It is computed from public numbers only.
    """
    return sigma * math.sqrt(2 * math.log(max(dimension, 2)))
