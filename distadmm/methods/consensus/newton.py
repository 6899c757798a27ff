"""Newton's method on sums over a spanning tree: a handful of rounds, whatever the graph and whoever holds which rows.

In a round every node sends its value, its gradient and, where the root asked for it, its Hessian at f up the tree,
and the root sends the next f down:

    v, g = sum_i O_i(f), sum_i O_i'(f);   s = f - f_best, y = g - g_best
    B = sum_i O_i''(f) if it came, else B + y y'/s.y - B s s'B/s.B s             (BFGS)
    if v <= v_best + s.g_best/10^4:   f_best, v_best, g_best = f, v, g;  mu = mu/4      the step pays
    else:                             mu = 4 mu                                         it does not
    f = f_best - (B + mu S)^-1 g_best

After a step that pays with a Hessian at both of its ends, mu being 0, B + t/2 (B - B_before) takes the place of B: what
the Hessian will be half-way, if it goes on changing as it did.  t, at most 1/2, is the share of s that the next step
repeats, measured by B.

S, the first B, is a matrix that no Hessian exceeds, where the loss has such a bound: with mu = 1 a step always pays.
For the logistic loss it is the Hessian at 0, and mu stays 0; a loss that is flat in places, as a rounded hinge is,
needs it.  A Hessian is asked for after each step that left more than 3/20 of (g.B^-1 g)^1/2.  It travels in single
precision, and far from the end in whole 16 bits of what a unit diagonal leaves, unless B is so ill-conditioned that
the rounding would show.  Nodes with rows enough begin with one or two sums over one row in six; with the first sums
over all rows v_best is forgotten.  The end is where g.B^-1 g says that nothing is left which the rounding of the value
would not hide; f is f_best then.

Nothing here is private: a node sees the sums over all nodes below it in the tree; of a leaf, what that leaf has.
It is linearised consensus ADMM with the matrix penalty (B + mu S)/N, whose duals the sums make needless.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.errors import require
from distadmm.ranks.tree import RAW

_POOR = 0.15  # a step that leaves more than this share is followed by a fresh Hessian
_PAYS = 1e-4  # share of what the slope promises that a step has to deliver
_LEVEL = 1e-14  # of the value: what it may rise by, for it is rounded
# A factor of mu; mu after the first step that does not pay; below this one it is 0.
_MORE, _FIRST, _LEAST = 4.0, 0.03, 0.001
_REPEATS, _LONGER = 0.5, 4.0  # most that t is; times that a step which looks ahead may be longer, squared
_SMOOTH = 0.25  # share of the change of B by which their mean may miss y
_MOST = 2**15 - 1
_SHIFTS = 1e-12, 1e-9, 1e-6, 1e-3, 1.0  # added to the unit diagonal of B until it is positive definite
_FINE = 1e-4  # least pivot at which the rounding of single precision (6e-8 an entry) is small
_ROUGH = 2.6e-4  # the same of 16 bits, times sqrt d: ten times the norm of a matrix of such roundings
NONE, DOUBLE, SINGLE, SHORT = range(4)  # the Hessian that is asked for: in which precision
_FEW = 6  # of so many rows one, where a node has enough
# Share of the value left to gain from which on these will do, and 16 bits for a Hessian.
_FAR, _NEAR = 0.5, 1e-3


class State(NamedTuple):
    f: Array  # where the next sums are taken, one row a node of this rank; the models
    asked: Array  # which Hessian they include, a column
    few: Array  # whether some rows will do for them, a column
    over: Array  # whether nothing is left to be gained, a column
    # What the root remembers, the same in every row of its rank; elsewhere zero.
    best: Array  # the point of least value so far
    slope: Array  # the sum of gradients there
    B: Array
    S: Array
    level: Array  # v_best; (g.B^-1 g)^1/2 there, negative before the first; mu


class Memory(NamedTuple):
    """The root's row of a state."""

    best: Array
    slope: Array
    B: Array
    S: Array
    level: Array


@register("newton")
@dataclass(frozen=True)
class Newton:
    """Newton's method on sums over a spanning tree: a handful of rounds, whatever the graph."""

    flags_title = "algorithm"
    tree: ClassVar[bool] = True
    matrix_free: ClassVar[bool] = False
    spectrum: ClassVar[bool] = False

    def check(self, node: Node, iterations: int) -> None:
        require(
            node.tree.conditions is None,
            "--algorithm newton sums over a tree, which has to stay as it is: leave out lost messages, drop-outs and "
            "changing graphs, or take admm",
        )

    def ended(self, state: State) -> str:
        return "converged" if state.over.any() else ""

    def init(self, node: Node) -> State:
        n, d = node.start.shape
        no = np.zeros(d), np.zeros((d, d))
        nothing = Memory(no[0], no[0], no[1], no[1], np.array([np.inf, -1.0, 0.0]))
        asked, yes = np.full((n, 1), SINGLE), np.ones((n, 1), bool)
        return State(node.start, asked, yes, ~yes, *_spread(nothing, n))

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is seen where the run is watched
    def step(self, k: int, st: State, node: Node) -> State:
        n, d, tree = *st.f.shape, node.tree
        what = "value and gradient" + " and Hessian" * bool(st.asked.any())
        node.release.expose(k, f"newton: every node's {what} enter the sums over the tree as they are")
        sums = tree.up(said(k, st, node), codes=(RAW, short(d)) if st.asked[0, 0] == SHORT else ())
        memory, words = Memory(*(np.zeros(np.shape(rows)[1:]) for rows in st[4:])), None
        if sums is not None:
            at = int(np.searchsorted(node.members, tree.shape.root))
            f, asked, few, over, memory = advance(st.f[at], Memory(*(rows[at] for rows in st[4:])), sums)
            words = np.concatenate([f, [asked, few, over]])
        told = np.broadcast_to(tree.down(words, d + 3, np.float64), (n, d + 3))
        rest = told[:, d : d + 1].astype(int), told[:, d + 1 : d + 2] > 0, told[:, d + 2 :] > 0
        return State(told[:, :d].copy(), *rest, *_spread(memory, n))


def said(k: int, st: State, node: Node) -> tuple[Array, ...]:
    """A row a node: whether it left rows out, value and gradient at f; and, if asked for, the upper triangle of the
    Hessian."""
    asked, d = int(st.asked[0, 0]), node.problem.dimension
    problem = node.problem.sample(_FEW) if st.few[0, 0] else node.problem
    apart = [part is not whole for part, whole in zip(problem.objectives, node.problem.objectives)]
    sums = np.column_stack([apart, problem.values(st.f), problem.gradients(st.f)])
    sums[~np.isfinite(st.f).all(axis=1), 0] = (
        np.nan
    )  # a model that was lost, which is no step that went too far
    if asked == NONE:
        return (sums,)
    triangles = np.empty((len(sums), d * (d + 1) // 2), np.float32 if asked == SINGLE else np.float64)
    for triangle, H in zip(triangles, problem.hessians(st.f, asked != DOUBLE, steepest=k == 1)):
        triangle[:] = H[upper(d)]
    return sums, triangles


class Short:
    """The upper triangle of a semidefinite matrix: its diagonal in single precision, the rest, between -1 and 1 where
    the diagonal is 1, in 16 bits."""

    def __init__(self, d: int):
        i, j = upper(d)
        self.on, self.off = np.flatnonzero(i == j), np.flatnonzero(i != j)
        self.i, self.j = i[self.off], j[self.off]

    def size(self, row: Array) -> int:
        return 4 * len(self.on) + 2 * len(self.off)

    def pack(self, row: Array) -> bytes:
        diagonal = row[self.on].astype(">f4")
        unit = self._unit(diagonal)
        unit[unit == 0.0] = np.inf
        whole = np.rint(np.clip(row[self.off] / unit, -1, 1) * _MOST)
        return bytes(diagonal.tobytes() + whole.astype(">i2").tobytes())

    def unpack(self, payload: bytes, like: Array) -> Array:
        row = np.empty_like(like)
        diagonal = np.frombuffer(payload, ">f4", len(self.on))
        whole = np.frombuffer(payload, ">i2", offset=4 * len(self.on))
        row[self.on], row[self.off] = diagonal, whole / _MOST * self._unit(diagonal)
        return row

    def _unit(self, diagonal: Array) -> Array:
        root = np.sqrt(np.maximum(diagonal.astype(float), 0.0))
        return root[self.i] * root[self.j]


@lru_cache(maxsize=2)
def short(d: int) -> Short:
    return Short(d)


@lru_cache(maxsize=2)
def upper(d: int) -> tuple[Array, Array]:
    """The places of an upper triangle, row by row."""
    return np.triu_indices(d)


def advance(f: Array, old: Memory, sums: tuple[Array, ...]) -> tuple[Array, int, bool, bool, Memory]:
    """The root's part of a round: the next f, which Hessian and whether some rows will do there, whether this is the
    end, and what it keeps."""
    (samples, value), g = sums[0][:2], sums[0][2:]
    if np.isnan(samples):
        return np.full_like(f, np.nan), NONE, False, False, old
    least, left, mu = old.level
    s, y = f - old.best, g - old.slope
    if value <= least + _PAYS * (s @ old.slope) + _LEVEL * abs(least):
        best, paid = f, True
        B = symmetric(sums[1], len(f)) if len(sums) > 1 else corrected(old.B, s, y)
        S = B if left < 0 else old.S
        mu = mu / _MORE if mu > _MORE * _LEAST else 0.0
    else:  # also where the value is not finite
        best, value, g, S, paid = old.best, least, old.slope, old.S, False
        B = corrected(old.B, s, y)
        mu = max(_MORE * mu, _FIRST)
    p, pivot = solved(B + mu * S, -g)
    now = float(np.sqrt(max(-(g @ p), 0.0)))
    # Twice at most: rows that a sample can tell apart, as those of one class, stay far from an end for ever.
    few = bool(samples and left < 0 and mu == 0.0 and now * now > _FAR * abs(value))
    # What all rows say comes next then, and compares with nothing that is known.
    kept = Memory(best, g, B, S, np.array([np.inf if samples and not few else value, now, mu]))
    rest = -(g @ solved(B, -g)[0]) if mu > 0.0 else now * now
    if rest <= np.finfo(float).eps * abs(value) and not samples:
        return best, NONE, False, True, kept
    poor = left < 0 or mu > 0.0 or now > _POOR * left
    if not (samples or (poor and paid)):
        asked = NONE
    elif mu == 0.0 and now * now > _NEAR * abs(value) and pivot >= _ROUGH * np.sqrt(len(f)):
        asked = SHORT
    else:
        asked = SINGLE if pivot >= _FINE else DOUBLE
    if len(sums) > 1 and paid and left >= 0 and mu == 0.0:
        p = ahead(p, g, B, old.B, s, y)
    return best + p, asked, few, False, kept


def ahead(p: Array, g: Array, B: Array, before: Array, s: Array, y: Array) -> Array:
    """In the place of the step p: one with what B will be half-way along it, of which s came before."""
    Bs, change = B @ s, 0.5 * (B - before)
    # The mean of both Hessians must explain y, as it does of a loss whose curvature has no jumps.
    turn = change @ s
    if not s @ Bs > 0.0 or not np.linalg.norm(Bs - turn - y) <= _SMOOTH * np.linalg.norm(turn):
        return p
    repeats = min(max((p @ Bs) / (s @ Bs), 0.0), _REPEATS)
    q, _ = solved(B + repeats * change, -g)
    return q if q @ B @ q <= _LONGER * (p @ B @ p) else p


def corrected(B: Array, s: Array, y: Array) -> Array:
    """B with B s = y, and otherwise as it was."""
    Bs = B @ s
    if not s @ y > 0.0 or not s @ Bs > 0.0:  # no step, or a loss that is flat along it
        return B
    return B + np.outer(y, y) / (s @ y) - np.outer(Bs, Bs) / (s @ Bs)


def symmetric(triangle: Array, d: int) -> Array:
    H, (i, j) = np.empty((d, d)), upper(d)
    H[i, j] = H[j, i] = triangle
    return H


def solved(B: Array, b: Array) -> tuple[Array, float]:
    """B^-1 b, a little added to a B that is singular; and the least pivot of B when its diagonal is 1."""
    diagonal = np.diag(B)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    unit = B * scale[:, None] * scale
    for shift in _SHIFTS:
        unit.flat[:: len(b) + 1] = diagonal * scale**2 + shift
        try:
            pivots = np.diag(np.linalg.cholesky(unit)) ** 2
        except np.linalg.LinAlgError:
            continue
        return scale * np.linalg.solve(unit, scale * b), float(pivots.min())
    return np.full_like(b, np.nan), 0.0  # what is not finite; the run says that it diverges


def _spread(memory: Memory, n: int) -> list[Array]:
    """The same for n nodes, which takes no room."""
    return [np.broadcast_to(rows, (n, *np.shape(rows))) for rows in memory]
