"""How far from the optimum the nodes of a noisy run will end, from the graph and public constants alone.

Along a direction of curvature h node i has O_i(f) = h/2 (f - c - c_i)^2, the noise has variance v_i, and the iteration
is linear: mean and covariance of each node's error follow exactly.  c is what all rows say together, c_i how a node's
own few rows differ from it: one record moves the gradient by w, so c_i has variance w (h - r)/h^2 with ridge r.

What nobody knows before looking is how c lies among the directions: c ~ h^(-1/4), half way between all directions
lowering the loss alike and c the same in all: of these three, closest to runs on two synthetic tables, one seed each.
Where classes lie apart c is longer and curvatures lower, and the penalty comes out too large (benchmarks/README.md).
Nor does anybody know the curvatures.  Rows of norm at most 1 have second moments that add up to at most 1, and a model
that fits sees less than the largest l'': noise, whose worth follows their sum, meets lower ones than the bias does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Facts
from distadmm.methods import doubling
from distadmm.methods.consensus import smoothing

LARGEST = 1000  # nodes of a network that is followed: the cost grows with their square
_LONG, _LONGEST = 500, 10_000  # solves, from which sums are doubled, and at most followed step by step
_SMALL = 24  # nodes up to which they are
_MODES = 8  # curvatures at which the recursion is followed
_EACH = 64  # nodes up to which each is followed; of more, some that are drawn
_GAIN = 0.5  # of C ln 2: what all directions together lower the loss by
# Of C c1, what all curvatures that noise meets add up to: the best of .03 to 1 on three such tables.
_CURVED = 0.25


class Course(NamedTuple):
    """What is public of a run's iterations."""

    solves: int
    eta: float
    gamma: float = 0.0
    phases: int = 1
    power: float | None = None  # of the weights of a mean over the solves

    @property
    def weights(self) -> Array:
        """Of the models after each solve, in what a node ends with."""
        w = np.zeros(self.solves)
        w[-1] = 1.0
        if self.power is None:
            return w
        for t in range(1, self.solves + 1):
            step = (self.power + 1.0) / (t + self.power)
            w[: t - 1] *= 1.0 - step
            w[t - 1] = step
        return w


def adjacency(network: Any) -> Array | None:
    """The graph on rank 0, put together from what each rank knows of it; None elsewhere."""
    gathered = network.world.gather((np.repeat(network.nodes, np.diff(network.indptr)), network.indices))
    if gathered is None:
        return None
    A = np.zeros((network.n_nodes, network.n_nodes))
    for rows, columns in gathered:
        A[rows, columns] = 1.0
    return A


def expected_excess(
    A: Array, facts: Facts, d: int, noise: Array, record: Array, course: Course, rounds: int = 0
) -> float:
    """Expected excess of the nodes' own models' mean loss; `noise` is the variance at each node, `record` its w."""
    h, c = modes(facts, d)
    each, data = d / _MODES, h - facts.ridge  # directions of each curvature
    most = _CURVED * facts.weight * facts.max_curvature / (each * float(np.sum(data)))
    low = facts.ridge + min(1.0, most) * data
    h, c = np.append(h, low), np.append(c, np.zeros(_MODES))
    own = record[:, None] * np.maximum(h - facts.ridge, 0.0) / h**2
    W = np.linalg.matrix_power(smoothing.matrix(A), rounds)
    some = np.arange(len(A))
    if len(A) > _EACH:
        some = np.random.default_rng(len(A)).choice(some, max(8, _EACH**2 // len(A)), replace=False)
    bias, variance = follow(A, h, c, noise, own, course, W[some])
    bias, variance = np.mean(bias**2, axis=0)[:_MODES], np.mean(variance, axis=0)[_MODES:]
    return float(np.sum(h[:_MODES] * bias) + each * np.sum(low * variance)) / (2 * facts.weight)


def modes(facts: Facts, d: int) -> tuple[Array, Array]:
    """Curvatures h, and how far the optimum is along each."""
    top = facts.ridge + facts.weight * facts.max_curvature / np.sqrt(d)
    h = np.geomspace(max(facts.ridge, 1e-3 * top), top, _MODES)
    c = h**-0.25
    return h, c * np.sqrt(2 * _GAIN * np.log(2) * facts.weight / np.sum(h * c**2))


def _summed_over(weights: Array, x: Array) -> Array:
    """np.tensordot(weights, x, 1), whose care for axes takes longer than these sums."""
    return (weights @ x.reshape(len(x), -1)).reshape(*weights.shape[:-1], *x.shape[1:])


def follow(
    A: Array, h: Array, c: Array, noise: Array, own: Array, course: Course, weights: Array
) -> tuple[Array, Array]:
    """Mean and variance of each row of weights.x after the run, for each curvature h; x is a coordinate a node.

        odd    x+   = S (eta (V + A) x - 2 lam - e),   S = 1/(h + 2 eta V),   lam+ = lam + eta/2 (V - A) x+
        even   x++  = x+ - D (h x+ + e + 2 lam+ + eta (V - A) x+),   D = 1/(2 eta V + gamma)

    x is the error beside the optimum of all nodes.  What reaches weights.x of the noise e of each solve is found by
    going backwards: p and q are how weights.x changes with x and with lam.  A node's own c_i is an e = -h c_i that
    all solves share, and moves the optimum by c_i/N.
    """
    n, eta, V = len(A), course.eta, A.sum(axis=1)[:, None, None]
    S, D = 1.0 / (h + 2 * eta * V), 1.0 / (2 * eta * V + course.gamma)

    def heard(x: Array) -> Array:
        return _summed_over(A, x)

    def apart(x: Array) -> Array:
        return V * x - heard(x)

    def back(p: Array, q: Array) -> tuple[Array, Array, Array]:
        """How weights.x changes with this solve's e, and with x and lam before it."""
        reach = np.zeros(())
        if course.phases == 2:
            reach = -D * p
            p, q = p + h * reach + eta * apart(reach), q + 2 * reach
        r = S * (p + eta / 2 * apart(q))
        return reach - r, eta * (V * r + heard(r)), q - 2 * r

    if course.solves > _LONG and _summable(n, course):
        ended, whole, variance = _summed(n, h, c, noise, course, weights, back)
    else:
        x, lam = np.broadcast_to(-c, (n, 1, len(h))), np.zeros((n, 1, len(h)))
        mean = np.zeros_like(lam)
        for share in course.weights:
            x = S * (eta * (V * x + heard(x)) - 2 * lam)
            lam = lam + eta / 2 * apart(x)
            if course.phases == 2:
                x = x - D * (h * x + 2 * lam + eta * apart(x))
            mean += share * x
        ended = np.tensordot(weights, mean[:, 0], axes=1)
        p = q = whole = np.zeros((n, len(weights), len(h)))
        variance = np.zeros(p.shape[1:])
        for share in course.weights[::-1]:
            reach, p, q = back(p + share * weights.T[:, :, None], q)
            variance, whole = variance + _summed_over(noise, reach**2), whole + reach
    moved = -h * whole - weights.sum(axis=1)[:, None] / n
    return ended, variance + np.einsum("im,ipm->pm", own, moved**2)


def follows(n: int, solves: int, power: float | None) -> bool:
    """Whether a run's noise is followed: step by step, or by doubling, whose cost grows with the cube of the nodes."""
    return n <= LARGEST and (solves <= _LONGEST or _summable(n, Course(solves, 0.0, power=power)))


def _summable(n: int, course: Course) -> bool:
    return n <= _SMALL and doubling.summable(course.power)


def _summed(
    n: int, h: Array, c: Array, noise: Array, course: Course, weights: Array, back: Callable[..., Any]
) -> tuple[Array, Array, Array]:
    """Mean, sum of reach and variance of `follow`, of so many solves that their sums are doubled.

    The state holds p and q as they follow from each node's share in what is looked at, and the weights o of the mean.
    """
    moves, last = doubling.weighing(course.power, course.solves)
    one, more = np.eye(n), len(last)
    unit = np.eye(2 * n)[:, :, None] * np.ones(len(h))
    reach, p, q = (part.transpose(2, 0, 1) for part in back(unit[:n], unit[n:]))
    wide = np.zeros((len(h), (2 + more) * n, (2 + more) * n))
    # What q has in common to all nodes is seen by nobody and stays for ever, its rounding too: it is left out.
    wide[:, :n, : 2 * n], wide[:, n : 2 * n, : 2 * n] = p, q - q.mean(axis=1, keepdims=True)
    wide[:, 2 * n :, 2 * n :] = np.kron(moves, one)
    start = np.concatenate([one, 0 * one]) if course.power is None else np.kron([last[-1], 0.0, *last], one).T
    if more:
        wide[:, :n, 2 * n :] = np.kron(moves[-1], one)
    full = np.zeros_like(wide)
    full[:, : 2 * n, : 2 * n] = (noise[:, None] * reach).swapaxes(1, 2) @ reach
    P, G, S = doubling.doubled(wide, full, course.solves)
    before = (P @ start)[:, :n] - (1.0 / course.solves if course.power == 0 else 0.0) * one
    out = weights.T
    variance = np.einsum("im,hij,jm->mh", out, start.T @ G @ start, out, optimize=True)
    whole = (reach @ (S @ start)[:, : 2 * n] @ out).transpose(1, 2, 0)
    return -c * (before @ out).sum(axis=1).T, whole, variance
