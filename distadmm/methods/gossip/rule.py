"""The constants of noisy gossip from public facts alone, and the loss that is to be expected with them.

Along a direction of curvature h every method here is linear: errors x, noise e and W's eigenvalue l in place of W.
What the noise of one step does to later models is the same whichever step it is, so one impulse tells all:

    bias      of the nodes' mean, where l = 1: from x = -c without noise
    variance  mean over nodes: 1/N sum over eigenvectors u of W of (u'Su) sum_s (sum_{t >= s} p_t r_{t-s}(l, h))^2 l^2R

with S the covariance of one gradient's noise over the nodes, p the weights of the mean over steps, R mixing rounds.
h and c are those of `consensus.forecast`, so that forecasts of all private methods can be compared.

A loss is no parabola: where a node's model scatters, its gradients are those of a loss that is flatter, and lead to
models that are longer.  A score of variance v sees, of a slope that climbs by `climb` and by c1 where it is steepest,
as of a normal distribution function,

    f* + (a - 1) f* in place of f*,     a = sqrt(1 + 2 pi (c1/climb)^2 v)

for good: later rounds and means take out the scatter, not what came of it.  Noise that cancels in sums is not free.

CLIP and FASTEST were chosen on the synthetic tables of benchmarks/gossip.py, before other tables were looked at.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.algorithm import Facts
from distadmm.methods.consensus import forecast, smoothing

Array = np.ndarray
CLIP = 0.5  # of a record's gradient
NODE_CLIP = 0.25  # of the mean gradient of a whole node
FASTEST = 1.9  # of 1/(largest curvature), beyond which no step goes: 2 diverges
RATIOS = tuple(2.0**k for k in range(-1, 7))  # c/s that are tried
MOMENTA = (0.0, 0.5, 0.8, 0.9)
_STEPS = np.geomspace(1e-2, FASTEST, 12)


class Constants(NamedTuple):
    """What a run does besides its method; all of it public."""

    step: Any  # of the gradient of a node's O_i/C
    clip: float
    after: smoothing.Smoothing
    momentum: Any = 0.0
    gap: float = 1.0  # of W
    opening: int = 0  # iterations at the beginning that make no step
    damping: float = 0.0  # m, what noise adds to curvatures that were released
    share: float = 0.0  # of mu^2 for them

    def words(self, longest: float) -> str:
        power, rounds = self.after
        means = [] if power is None else [f"models averaged with weights t^{power:g}"]
        mixing = [f"{rounds} mixing round" + "s" * (rounds > 1)] if rounds else []
        again = [f"momentum {self.momentum:g}"] if self.momentum else []
        first = [f"{self.share:.0%} of mu^2 for second moments"] if self.share else []
        step = f"step {self.step / longest:.3g}, clip {self.clip:g}"
        return ", ".join([step, *first, *again, *means, *mixing])


class Noise(NamedTuple):
    """One way to make noise of one budget, as a forecast sees it."""

    ratio: float = 0.0  # c/s of pairwise noise
    spread: float = 1.0  # s beside that of noise which nobody shares
    shares: Array = np.ones(1)  # u'Su/(N s^2) beside each eigenvalue of W
    known: tuple[float, ...] = ()  # mu^2 by how many collude, beside that of all

    @property
    def words(self) -> str:
        return f", edges share {self.ratio:g} times a node's own noise" if self.ratio else ""

    @classmethod
    def of(cls, A: Array, ratio: float = 0.0, spread: float = 1.0) -> Self:
        _, vectors = np.linalg.eigh(smoothing.matrix(A))
        S = np.eye(len(A)) + ratio**2 * (np.diag(A.sum(axis=1)) - A)
        return cls(ratio, spread, np.einsum("im,ij,jm->m", vectors, S, vectors) / len(A))


def mixing(A: Array | None) -> Array:
    """W's eigenvalues; of a graph that is too large, as if nobody averaged."""
    return np.ones(1) if A is None else np.linalg.eigvalsh(smoothing.matrix(A))


class Followed(NamedTuple):
    """What comes of each choice (a line each)."""

    h: Array  # curvatures of a node's O_i/C, those where something is expected
    c: Array  # how far the optimum is along each
    bias: Array  # of the nodes' mean at the end, without noise
    passed: Array  # excess loss of noise of variance 1 along each eigenvector of W
    scatter: Array  # the same of a row's score, at a node and during the run
    stable: Array

    def excess(self, variance: float, shares: Array, bend: float) -> Array:
        """Of the nodes' own models' mean loss, expected; `bend`: (c1/climb)^2."""
        longer = np.sqrt(1 + 2 * np.pi * bend * variance * (self.scatter @ shares))[:, None] - 1
        bias = self.bias + longer * (self.c + self.bias)
        found = 0.5 * bias**2 @ self.h + variance * (self.passed @ shares)
        return np.where(self.stable & np.isfinite(found), found, np.inf)


def followed(
    algorithm: Any, facts: Facts, d: int, values: Array, use: Constants, iterations: int
) -> Followed:
    """The recursion without noise, and of an impulse; `use.step` and `use.momentum` have a line a choice."""
    h, c = forecast.modes(facts, d)
    count, h = len(h), h / facts.weight
    steep = facts.ridge / facts.weight + facts.max_curvature
    if np.isfinite(steep):  # where nothing is expected, but a method that diverges there diverges
        h, c = np.append(h, steep), np.append(c, 0.0)
    p = forecast.Course(iterations, 0.0, power=use.after.power).weights
    use = use._replace(step=np.reshape(use.step, (-1, 1, 1)), momentum=np.reshape(use.momentum, (-1, 1, 1)))
    choices = len(use.step)  # type: ignore[arg-type]

    def run(x: Array, noise: float, lam: Array) -> Array:
        """Models after each step, from x, under noise in the first one."""
        kept, seen = algorithm.starts(x), []
        for t in range(iterations):
            g = algorithm.bent(h * x + noise * (t == 0), h, use)
            x, kept = algorithm.advance(x, kept, g, lambda rows: lam * rows, use)
            seen.append(x)
        return np.stack(seen)

    lam = values[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        bias = np.tensordot(p, run(np.tile(-c, (choices, 1, 1)), 0.0, np.ones((1, 1))), axes=1)[:, 0]
        r = run(np.zeros((choices, len(lam), len(h))), 1.0, lam)
        later = np.array([np.append(p[s:], np.zeros(s)) for s in range(iterations)])
        passed = (np.tensordot(later, r, axes=1) ** 2).sum(axis=0) * lam ** (2 * use.after.rounds)
        grows = ~(np.abs(r[-1]) <= 2 * np.abs(r[: iterations // 2 + 1]).max(axis=0)).all(axis=(1, 2))
        scores = np.maximum(h - facts.ridge / facts.weight, 0.0)[:count]
        scatter = (r[..., :count] ** 2).sum(axis=0) @ (scores / scores.sum())
        passed = 0.5 * d / count * (passed[..., :count] @ h[:count])
    return Followed(h[:count], c[:count], bias[:, :count], passed, scatter, ~grows)


def choose(
    algorithm: Any, facts: Facts, d: int, values: Array, sd: Callable[[float], float], iterations: int,
    longest: float, clips: Sequence[float], afters: Sequence[smoothing.Smoothing], noises: Sequence[Noise],
    climb: Callable[[float], float], opened: Sequence[Constants],
) -> tuple[Constants, Noise, float]:  # fmt: skip
    """The constants and the noise with the least expected excess, and that.

    `sd(clip)`: deviation of a coordinate of one node's noise that nobody shares, as the budget asks for; `climb(clip)`:
    from the least slope of a record's loss to the largest; `opened`: what may be released first, at what share.
    """
    rates = _STEPS if algorithm.rate == "auto" else [float(algorithm.rate)]
    asked = getattr(algorithm, "momentum", "0")
    momenta = MOMENTA if asked == "auto" else [float(asked)]
    gap = 1.0 - float(np.sort(values)[-2]) if len(values) > 1 else 1.0
    step, momentum = map(np.ravel, np.meshgrid(np.multiply(rates, longest), momenta, indexing="ij"))
    best: tuple[Constants, Noise, float] | None = None
    for after, first in product(afters, opened):
        use = first._replace(step=step, after=after, momentum=momentum, gap=gap)
        course = followed(algorithm, facts, d, values, use, iterations)
        for clip, noise in product(clips, noises):
            with np.errstate(over="ignore", invalid="ignore"):
                bend = (facts.max_curvature / climb(clip)) ** 2 if np.isfinite(facts.max_curvature) else 0.0
                variance = (sd(clip) * noise.spread) ** 2 / (1 - first.share)
                costs = course.excess(variance, noise.shares, bend)
            at = int(np.argmin(costs))
            if best is None or costs[at] < best[2]:
                found = use._replace(step=float(step[at]), clip=clip, momentum=float(momentum[at]))
                best = found, noise, float(costs[at])
    assert best is not None
    return best


def width_of(node: Any) -> int:
    """Columns of the rows: of several classes each has a model of its own."""
    first = node.problem.objectives[0]
    return int(first.dimension) // int(getattr(first, "classes", 1))
