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

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Facts
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.consensus.smoothing import Smoothing

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
    after: Smoothing
    momentum: Any = 0.0
    gap: float = 1.0  # of W

    def words(self, longest: float) -> str:
        power, rounds = self.after
        means = [] if power is None else [f"models averaged with weights t^{power:g}"]
        mixing = [f"{rounds} mixing round" + "s" * (rounds > 1)] if rounds else []
        again = [f"momentum {self.momentum:g}"] if self.momentum else []
        return ", ".join([f"step {self.step / longest:.3g}, clip {self.clip:g}", *again, *means, *mixing])


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
    def of(cls, A: Array, ratio: float = 0.0, spread: float = 1.0) -> Noise:
        _, vectors = np.linalg.eigh(smoothing.matrix(A))
        S = np.eye(len(A)) + ratio**2 * (np.diag(A.sum(axis=1)) - A)
        return cls(ratio, spread, np.einsum("im,ij,jm->m", vectors, S, vectors) / len(A))


def mixing(A: Array | None) -> Array:
    """W's eigenvalues; of a graph that is too large, as if nobody averaged."""
    return np.ones(1) if A is None else np.linalg.eigvalsh(smoothing.matrix(A))


def followed(
    algorithm: Any, facts: Facts, d: int, values: Array, use: Constants, iterations: int
) -> tuple[Array, Array]:
    """Expected excess of the nodes' own models' mean loss: without noise, and for noise of variance 1 along each u.

    `use.step` and `use.momentum` have a line a choice.
    """
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
            x, kept = algorithm.advance(x, kept, h * x + noise * (t == 0), lambda rows: lam * rows, use)
            seen.append(x)
        return np.stack(seen)

    lam = values[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        bias = np.tensordot(p, run(np.tile(-c, (choices, 1, 1)), 0.0, np.ones((1, 1))), axes=1)[:, 0]
        r = run(np.zeros((choices, len(lam), len(h))), 1.0, lam)
        later = np.array([np.append(p[s:], np.zeros(s)) for s in range(iterations)])
        passed = (np.tensordot(later, r, axes=1) ** 2).sum(axis=0) * lam ** (2 * use.after.rounds)
        grows = ~(np.abs(r[-1]) <= 2 * np.abs(r[: iterations // 2 + 1]).max(axis=0)).all(axis=(1, 2))
        expected = np.where(np.arange(len(h)) < count, h, 0.0)
        return np.where(grows, np.inf, 0.5 * bias**2 @ expected), 0.5 * d / count * (passed @ expected)


def choose(
    algorithm: Any, facts: Facts, d: int, values: Array, sd: Callable[[float], float], iterations: int,
    longest: float, clips: Sequence[float], afters: Sequence[Smoothing], noises: Sequence[Noise],
) -> tuple[Constants, Noise, float]:  # fmt: skip
    """The constants and the noise with the least expected excess, and that.

    `sd(clip)`: deviation of a coordinate of one node's noise that nobody shares, as the budget asks for.
    """
    rates = _STEPS if algorithm.rate == "auto" else [float(algorithm.rate)]
    asked = getattr(algorithm, "momentum", "0")
    momenta = MOMENTA if asked == "auto" else [float(asked)]
    gap = 1.0 - float(np.sort(values)[-2]) if len(values) > 1 else 1.0
    step, momentum = map(np.ravel, np.meshgrid(np.multiply(rates, longest), momenta, indexing="ij"))
    best: tuple[Constants, Noise, float] | None = None
    for after in afters:
        use = Constants(step, 0.0, after, momentum, gap)
        bias, passed = followed(algorithm, facts, d, values, use, iterations)
        for clip, noise in product(clips, noises):
            with np.errstate(over="ignore", invalid="ignore"):
                costs = bias + (sd(clip) * noise.spread) ** 2 * (passed @ noise.shares)
            at = int(np.argmin(np.where(np.isfinite(costs), costs, np.inf)))
            if best is None or costs[at] < best[2]:
                best = (
                    Constants(float(step[at]), clip, after, float(momentum[at]), gap),
                    noise,
                    float(costs[at]),
                )
    assert best is not None
    return best
