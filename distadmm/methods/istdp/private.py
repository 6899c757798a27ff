"""The private iteration: data enter through noisy clipped gradients and through nothing else.

    xi^k      = 1/n' sum_i clip_C(grad l(<x_i, theta^k>; y_i)) + b^k          (`xi`, charged to the ledger)
    alpha_k   = fixed, or <d_theta, d_theta> / <d_theta, d_xi> in [alpha_min, alpha_max]
    theta^k+1 = prox_{alpha_k R}(theta^k - alpha_k xi^k)                                        (4)

Invariant that guards privacy: `iterate` never sees a record.  Steps, thresholds and the number of
iterations are functions of the xi already released, so they are post-processing and cost nothing.  A line
search on the true objective (step 1.3.2 of the paper) or a step from exact gradients (step 1.2) is not,
and has no place here; see `printed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.istdp.gist import barzilai_borwein
from distadmm.problems.concave import Penalty
from distadmm.problems.losses import Loss

Array = np.ndarray

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


class Iterate(NamedTuple):
    theta: Array  # theta^k+1
    xi: Array  # the noisy gradient at theta^k that led there
    step: float  # alpha_k


def iterate(
    xi: Callable[[int, Array], Array], start: Array, penalty: Penalty, steps: NoisySteps
) -> Iterator[Iterate]:
    """theta^1, theta^2, ...; `xi(k, theta)` is asked once for each, k = 0, 1, ..."""
    theta, step = np.array(start, dtype=float), steps.first
    k = 0
    noisy = xi(k, theta)
    while True:
        theta_new = penalty.prox(theta - step * noisy, step)
        yield Iterate(theta_new, noisy, step)
        k += 1
        noisy_new = xi(k, theta_new)
        if steps.rule == "bb":
            d_theta, d_xi = theta_new - theta, noisy_new - noisy
            moved, bend = float(d_theta @ d_theta), float(d_theta @ d_xi)
            step = barzilai_borwein(moved, bend, steps.shortest, steps.longest)
        theta, noisy = theta_new, noisy_new


class ClippedGradient:
    """1/n' sum_i of the records' gradients, each shortened to norm C.

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
        total = np.zeros(len(theta))
        for X, y, bound in self.blocks:
            slope = self.loss.slope(X @ theta, y)
            total += np.clip(slope, -bound, bound) @ X
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
