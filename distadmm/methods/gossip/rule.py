"""The constants of noisy gossip from public facts alone, and the loss that is to be expected with them.

Along a direction of curvature h every method here is linear: errors x, noise e and W's eigenvalue l in place of W.
What the noise of one step does to later models is the same whichever step it is, so one impulse tells all:

    bias      of the nodes' mean, where l = 1: from x = -c without noise
    variance  mean over nodes: 1/N sum over eigenvectors u of W of (u'Su) sum_s (sum_{t >= s} p_t r_{t-s}(l, h))^2 l^2R

with S the covariance of one gradient's noise over the nodes, p the weights of the mean over steps, R mixing rounds.
h and c are those of `consensus.forecast`, so that forecasts of all private methods can be compared.

CLIP and FASTEST were chosen on the synthetic tables of benchmarks/gossip.py, before other tables were looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Facts
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.consensus.smoothing import Smoothing

Array = np.ndarray
CLIP = 0.5  # of a record's gradient
NODE_CLIP = 0.25  # of the mean gradient of a whole node
FASTEST = 1.9  # of 1/(largest curvature), beyond which no step goes: 2 diverges
_STEPS = np.geomspace(1e-3, FASTEST, 23)


class Constants(NamedTuple):
    """What a run does besides its method; all of it public."""

    step: float  # of the gradient of a node's O_i/C
    clip: float
    after: Smoothing

    def words(self, longest: float) -> str:
        power, rounds = self.after
        means = [] if power is None else [f"models averaged with weights t^{power:g}"]
        mixing = [f"{rounds} mixing round" + "s" * (rounds > 1)] if rounds else []
        return ", ".join([f"step {self.step / longest:.3g}, clip {self.clip:g}", *means, *mixing])


class Mixing(NamedTuple):
    """The graph as a forecast sees it: W's eigenvalues, and u'Su/N beside each for noise of variance 1."""

    values: Array
    shares: Array

    @classmethod
    def of(cls, A: Array | None, S: Array | None = None) -> Mixing:
        """S: covariance of the noise over the nodes; None: independent."""
        if A is None:
            return cls(np.ones(1), np.ones(1))
        values, vectors = np.linalg.eigh(smoothing.matrix(A))
        spread = np.ones(len(A)) if S is None else np.einsum("im,ij,jm->m", vectors, S, vectors)
        return cls(values, spread / len(A))


def excess(
    algorithm: Any, facts: Facts, d: int, mixing: Mixing, sd: float, use: Constants, iterations: int
) -> float:
    """Expected excess of the nodes' own models' mean loss; `sd` of one coordinate of one node's noise."""
    h, c = forecast.modes(facts, d)
    h = h / facts.weight
    p = forecast.Course(iterations, 0.0, power=use.after.power).weights

    def run(x: Array, noise: Array, lam: Array) -> Array:
        """Models after each step, from x, under noise in the first one."""
        kept, seen = np.zeros((algorithm.extra, *x.shape)), []
        for t in range(iterations):
            g = h * x + (noise if t == 0 else 0.0)
            x, kept = algorithm.advance(x, kept, g, lambda rows: lam * rows, use)
            seen.append(x)
        return np.stack(seen)

    lam = mixing.values[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        bias = np.tensordot(p, run(-c[None], np.zeros(1), np.ones((1, 1))), axes=1)[0]
        r = run(np.zeros((len(lam), len(h))), np.ones((len(lam), 1)), lam)
        reach = np.array([np.tensordot(p[s:], r[: iterations - s], axes=1) for s in range(iterations)])
        passed = (reach**2).sum(axis=0) * lam ** (2 * use.after.rounds)
        variance = sd**2 * np.einsum("m,mh->h", mixing.shares, passed)
        found = float(np.sum(0.5 * h * (bias**2 + d / len(h) * variance)))
    return found if np.isfinite(found) else float("inf")


def choose(
    algorithm: Any, facts: Facts, d: int, mixing: Mixing, noise: Any, iterations: int, longest: float,
    clips: Sequence[float], afters: Sequence[Smoothing],
) -> tuple[Constants, float]:  # fmt: skip
    """The constants with the least expected excess; `noise(clip)` is the sd that the budget asks for."""
    rates = _STEPS if algorithm.rate == "auto" else [float(algorithm.rate)]
    tried = [
        Constants(float(rate) * longest, clip, after) for rate in rates for clip in clips for after in afters
    ]
    costs = [excess(algorithm, facts, d, mixing, noise(each.clip), each, iterations) for each in tried]
    best = int(np.argmin(costs))
    return tried[best], costs[best]
