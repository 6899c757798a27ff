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

CLIP, and how far steps may go, were chosen on the synthetic tables of benchmarks/gossip.py, before others were looked
at; SETTLED on the same, after Adult had shown that it was needed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.algorithm import Facts
from distadmm.methods import doubling
from distadmm.methods.consensus import forecast, smoothing

Array = np.ndarray
CLIP = 0.5  # of a record's gradient
NODE_CLIP = 0.25  # of the mean gradient of a whole node
RATIOS = tuple(2.0**k for k in range(-1, 7))  # c/s that are tried
SECOND = {"momentum": (0.0, 0.5, 0.8, 0.9), "relaxation": (0.03, 0.1, 0.25, 0.5)}  # that are tried
# Steps from which momentum .9 is tried: it overshoots where a loss is flatter than a parabola, which in 20 to 60 steps
# costs those tables up to 6 % and gains them at most 2 %.
SETTLED = 80
_LONG = 256  # steps, from which sums over them are doubled
_LOOKED = 256  # of their first steps, whether an impulse grows
_AT_ONCE = 64  # eigenvalues of W
_RATES = 12  # that are tried
_TURNS = 4  # in which noise is made for a choice, and the choice for the noise
_GAINS = 0.98  # of the expected excess, for which noise made for the graph is taken, and another turn


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
    relaxation: Any = 0.0  # of `fixed_point`

    def words(self, longest: float) -> str:
        again = [f"{name} {getattr(self, name):g}" for name in SECOND if getattr(self, name)]
        first = [f"{self.share:.0%} of mu^2 for second moments"] if self.share else []
        step = f"step {self.step / longest:.3g}, clip {self.clip:g}"
        return ", ".join([step, *first, *again, *self.after.words])


class Noise(NamedTuple):
    """One way to make noise of one budget, as a forecast sees it."""

    # u'Su/N beside each eigenvalue of W, S beside the variance of noise that nobody shares
    shares: Array = np.ones(1)
    # Of what edges share, to a common factor:
    own: Array | None = None  # s^2 of each node; None: nothing is shared
    pairs: Array | None = None  # c^2 of each edge
    exposed: Array | None = None  # of each node, by how many collude (`pairwise_gaussian.by_size`)
    level: bool = True  # every node hides as much as the one that a record moves most
    factor: float = 1.0  # of the variance that this node would have alone
    words: str = ""

    @classmethod
    def of(
        cls, A: Array, own: Array, pairs: Array, exposed: Array, need: Array, at: int, typical: float
    ) -> Self:
        """`need`: how far a record moves each node's gradient, squared, beside the farthest, and `typical` their mean;
        every node is hidden from `at` others."""
        factor = float((need * (exposed[at] if at < len(exposed) else 1 / own)).max())
        shares = factor / typical * along(A, np.diag(own + pairs.sum(axis=1)) - pairs)
        return cls(shares, own, pairs, exposed, bool(np.all(need == 1)), factor)

    def spans(self, need: Array) -> Self:
        """With words for weights that differ."""
        assert self.own is not None
        assert self.pairs is not None
        own = _range(np.sqrt(self.factor * self.own / need))
        words = f", noise weighed for the graph: a node's own {own} times what it would be alone"
        if (self.pairs > 0).any():
            words += f", what edges share {_range(np.sqrt(self.factor * self.pairs[self.pairs > 0]))} times"
        return self._replace(words=words, level=False)


def _range(values: Array) -> str:
    return " to ".join(dict.fromkeys(f"{end:.2g}" for end in (values.min(), values.max())))


def along(A: Array, S: Array) -> Array:
    """u'Su/N beside each eigenvalue of W, of noise with covariance S over the nodes."""
    _, vectors = np.linalg.eigh(smoothing.matrix(A))
    return np.einsum("im,ij,jm->m", vectors, S, vectors) / len(A)  # type: ignore[no-any-return]


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

    def worth(self, at: int, variance: float, shares: Array, bend: float) -> Array:
        """How the excess of one choice grows with the noise along each eigenvector of W, where it does."""
        longer = np.sqrt(1 + 2 * np.pi * bend * variance * (self.scatter[at] @ shares))
        slope = (self.bias[at] + (longer - 1) * (self.c + self.bias[at])) * (self.c + self.bias[at]) @ self.h
        return np.maximum(self.passed[at] + np.pi * bend / longer * slope * self.scatter[at], 0.0)


def followed(
    algorithm: Any, facts: Facts, d: int, values: Array, use: Constants, iterations: int
) -> Followed:
    """The recursion without noise, and of an impulse; `use.step` and `use.momentum` have a line a choice."""
    h, c = forecast.modes(facts, d)
    count, h = len(h), h / facts.weight
    steep = facts.ridge / facts.weight + facts.max_curvature
    if np.isfinite(steep):  # where nothing is expected, but a method that diverges there diverges
        h, c = np.append(h, steep), np.append(c, 0.0)
    lines: dict[str, Any] = {name: np.reshape(getattr(use, name), (-1, 1, 1)) for name in ("step", *SECOND)}
    use = use._replace(**lines)
    lam = values[:, None]
    long = iterations > _LONG and doubling.summable(use.after.power)
    with np.errstate(over="ignore", invalid="ignore"):
        bias, passed, squares, grows = (_summed if long else _run)(algorithm, h, c, lam, use, iterations)
        passed = passed * lam ** (2 * use.after.rounds)
        scores = np.maximum(h - facts.ridge / facts.weight, 0.0)[:count]
        scatter = squares[..., :count] @ (scores / scores.sum())
        passed = 0.5 * d / count * (passed[..., :count] @ h[:count])
    stable = np.logical_not(grows.any(axis=(1, 2)))
    return Followed(h[:count], c[:count], bias[:, :count], passed, scatter, stable)


def _run(
    algorithm: Any, h: Array, c: Array, lam: Array, use: Constants, iterations: int
) -> tuple[Array, ...]:
    """By choice, eigenvalue and curvature: bias, passed, squares of r where gradients are taken, and whether r grows;
    step by step."""
    p, choices = forecast.Course(iterations, 0.0, power=use.after.power).weights, len(use.step)

    def run(x: Array, noise: float, lam: Array) -> tuple[Array, Array]:
        """Models after each step, from x, under noise in the first one, and where the next gradients are taken."""
        kept, seen, looked = algorithm.starts(x), [], []
        at = algorithm.at(x, kept, h, use)
        for t in range(iterations):
            g = algorithm.bent(h * at + noise * (t == 0), h, use)
            x, kept = algorithm.advance(x, kept, g, lambda rows: lam * rows, use)
            at = algorithm.at(x, kept, h, use)
            seen.append(x)
            looked.append(at)
        return np.stack(seen), np.stack(looked)

    bias = np.tensordot(p, run(np.tile(-c, (choices, 1, 1)), 0.0, np.ones((1, 1)))[0], axes=1)[:, 0]
    r, looked = run(np.zeros((choices, len(lam), len(h))), 1.0, lam)
    later = np.array([np.append(p[s:], np.zeros(s)) for s in range(iterations)])
    passed = (np.tensordot(later, r, axes=1) ** 2).sum(axis=0)
    grows = ~(np.abs(r[-1]) <= 2 * np.abs(r[: iterations // 2 + 1]).max(axis=0))
    return bias, passed, (looked**2).sum(axis=0), grows


def _summed(
    algorithm: Any, h: Array, c: Array, lam: Array, use: Constants, iterations: int
) -> tuple[Array, ...]:
    """The same of so many steps that their sums are doubled.

    With y_t = w_t e_x + T' y_{t+1}, what a noise of step t does to the end is b.y_t, and what the start does T' y_1.
    """
    moves, weights = doubling.weighing(use.after.power, iterations)
    more = len(weights)

    def steps(lam: Array) -> tuple[Array, Array, Array]:
        """T; b, what noise 1 in a gradient leaves; and a, where gradients are taken; of states (x, kept)."""
        shape = len(use.step), len(lam), len(h)
        width = algorithm.starts(np.zeros(shape)).shape[-1] // len(h)
        columns, looks = [], []
        for unit in range(width + 2):
            at = (np.arange(width + 1) == unit).astype(float)
            x, kept = np.full(shape, at[0]), np.repeat(at[1:], len(h))
            kept = np.broadcast_to(kept, (*shape[:2], width * len(h)))
            look = algorithm.at(x, kept, h, use)
            looks.append(np.broadcast_to(look, shape))
            g = algorithm.bent(h * look + (unit > width), h, use)
            x, kept = algorithm.advance(x, kept, g, lambda rows: lam * rows, use)
            parts = [x, *np.split(kept, width, axis=-1)]
            columns.append(np.stack([np.broadcast_to(part, shape) for part in parts], axis=-1))
        return np.stack(columns[:-1], axis=-1), columns[-1], np.stack(looks[:-1], axis=-1)

    def ends(T: Array, Q: Array) -> tuple[Array, Array]:
        """y_1, and the sum of y'Qy over the steps."""
        inner = T.shape[-1]
        wide = np.zeros((*T.shape[:-2], inner + more, inner + more))
        wide[..., :inner, :inner], wide[..., inner:, inner:] = T.swapaxes(-1, -2), moves
        wide[..., 0, inner:] = moves[-1] if more else 0.0
        last = np.concatenate([np.eye(inner)[0] * (weights[-1] if more else 1.0), weights])
        full = np.zeros_like(wide)
        full[..., :inner, :inner] = Q
        before, G, _ = doubling.doubled(wide, full, iterations - 1)
        whole = full + wide.swapaxes(-1, -2) @ G @ wide
        return (before @ last)[..., :inner], np.einsum("i,...ij,j->...", last, whole, last)

    T, *_ = steps(np.ones((1, 1)))
    first, _ = ends(T, np.zeros_like(T))
    start = np.concatenate([-c, algorithm.starts(-c[None])[0]]).reshape(-1, len(c))
    bias = np.einsum("cmhi,cmhij,jh->ch", first, T, start)
    found = []
    for some in np.array_split(lam, -(-len(lam) // _AT_ONCE)):
        T, b, a = steps(some)
        passed = ends(T, b[..., :, None] * b[..., None, :])[1]
        x = a[..., :, None] * a[..., None, :]
        squares = np.einsum("...i,...ij,...j->...", b, doubling.doubled(T, x, iterations)[1], b)
        # The largest of the first half: of its first steps, and of those after 2, 4, 8, ...
        largest, at, v = np.zeros(b.shape[:-1]), T, b
        for _ in range(min(_LOOKED, iterations // 2 + 1)):
            largest, v = np.maximum(largest, np.abs(v[..., 0])), (T @ v[..., None])[..., 0]
        for _ in range((iterations // 2).bit_length()):
            largest, at = np.maximum(largest, np.abs((at @ b[..., None])[..., 0, 0])), at @ at
        end = (doubling.doubled(T, x, iterations - 1)[0] @ b[..., None])[..., 0, 0]
        found.append((passed, squares, ~(np.abs(end) <= 2 * largest)))
    return bias, *(np.concatenate(each, axis=1) for each in zip(*found))


def choose(
    algorithm: Any, facts: Facts, d: int, values: Array, sd: Callable[[float], float], iterations: int,
    longest: float, clips: Sequence[float], afters: Sequence[smoothing.Smoothing], noises: Sequence[Noise],
    climb: Callable[[float], float], opened: Sequence[Constants],
    improve: Callable[[Array], Noise] | None = None, improved: bool = False,
) -> tuple[Constants, Noise, float]:  # fmt: skip
    """The constants and the noise with the least expected excess, and that.

    `sd(clip)`: deviation of a coordinate of one node's noise that nobody shares, as the budget asks for; `climb(clip)`:
    from the least slope of a record's loss to the largest; `opened`: what may be released first, at what share;
    `improve`: a noise made for what each eigenvector of W is worth, the only one to be taken where it is `improved`.
    """
    least, most = algorithm.rates
    rates = np.geomspace(least, most, _RATES) if algorithm.rate == "auto" else [float(algorithm.rate)]
    name, asked = algorithm.second, getattr(algorithm, algorithm.second, "0")
    tried = SECOND[name][:-1] if name == "momentum" and iterations < SETTLED else SECOND[name]
    seconds = tried if asked == "auto" else [float(asked)]
    gap = 1.0 - float(np.sort(values)[-2]) if len(values) > 1 else 1.0
    step, second = map(np.ravel, np.meshgrid(np.multiply(rates, longest), seconds, indexing="ij"))
    given: dict[str, Any] = {"step": step, name: second, "gap": gap}
    uses = [first._replace(after=after, **given) for after, first in product(afters, opened)]
    courses = [(use, followed(algorithm, facts, d, values, use, iterations)) for use in uses]

    def best_of(noises: Sequence[Noise]) -> tuple[Constants, Noise, float, Callable[[], Array]]:
        """With the least expected excess, and what each eigenvector is worth there."""
        found = []
        for (use, course), clip, noise in product(courses, clips, noises):
            bend = (facts.max_curvature / climb(clip)) ** 2 if np.isfinite(facts.max_curvature) else 0.0
            seen = sd(clip) ** 2 / (1 - use.share), noise.shares, bend
            with np.errstate(over="ignore", invalid="ignore"):
                costs = course.excess(*seen)
            at = int(np.argmin(costs))
            chosen = use._replace(**{"step": float(step[at]), "clip": clip, name: float(second[at])})
            found.append((chosen, noise, float(costs[at]), partial(course.worth, at, *seen)))
        return min(found, key=lambda each: each[2])

    best = best_of(noises)
    for turn in range(_TURNS if improve else 0):
        assert improve is not None
        other = best_of([improve(best[3]())])
        if not (other[2] < best[2] * _GAINS or (improved and not turn)):
            break
        best = other
    return best[:3]


def width_of(node: Any) -> int:
    """Columns of the rows: of several classes each has a model of its own."""
    first = node.problem.objectives[0]
    return int(first.dimension) // int(getattr(first, "classes", 1))
