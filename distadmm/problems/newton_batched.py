"""Primal solves of many small nodes side by side.

Nodes with few rows cost more in calls than in arithmetic.  Those of equal shape are stacked, (n, B, d), and
take their steps together: lagged Newton as in `newton`, each node with its own inverse, its own debt and its
own end; a node that has converged stands still.

Held up by tests: whether a node is solved here is decided by its own shape, and every product is one of
that node alone, so the bits of its solution do not depend on which others share the stack.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.problems import newton
from distadmm.problems.consensus import Array, GeneralisedLinear, hessian_price
from distadmm.problems.losses import Loss

SMALL = 16_384  # entries: a node with no more is solved in a block
_BLOCK = 131_072  # entries of a block, so that a solve finds its rows in the cache
_NODES = 1024  # of a block: with more the vectors of a solve leave the cache
_STEPS = 100


def _most(entries: int) -> int:
    """How many nodes of so many entries are a block."""
    return min(-(-_BLOCK // entries), _NODES)


class Stack(NamedTuple):
    """What the objectives of several nodes with equally many rows are made of, in the place of these."""

    X: Array  # (nodes, rows, columns), nobody else's
    y: Array  # (nodes, rows)
    loss: Loss
    weight: float
    ridge: float
    divisor: int | None

    def pieces(self) -> Iterator[Stack]:
        """A block each, of about equally many nodes."""
        n, rows, columns = self.X.shape
        count = -(-n // _most(rows * columns))
        ends = [n * i // count for i in range(count + 1)]
        return (self._replace(X=self.X[a:b], y=self.y[a:b]) for a, b in pairwise(ends))


class Objectives(Sequence[Any]):
    """Of each node; those of a stack are made when they are asked for, for most runs never do."""

    def __init__(self) -> None:
        self._firsts: list[int] = []  # the node at which each part begins
        self._parts: list[Any] = []  # a block, or the objective of one node
        self._count = 0

    def add(self, part: Any, count: int = 1) -> None:
        self._firsts.append(self._count)
        self._parts.append(part)
        self._count += count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(self._count)[i]]
        i = range(self._count)[i]
        at = bisect_right(self._firsts, i) - 1
        part = self._parts[at]
        return part.objective(i - self._firsts[at]) if isinstance(part, Block) else part


def blocks(objectives: Iterable[Any]) -> tuple[Objectives, list[tuple[Any, Block]]]:
    """All the objectives, and (which of them, their block); the large and the user's own are in no block.

    A block is stacked as soon as it is full, so that rows made one node after another exist once.
    """
    everyone = Objectives()
    waiting: dict[Any, list[int]] = {}
    found: list[tuple[Any, Block]] = []

    def stack(members: list[int]) -> None:
        found.append((np.array(members), Block([everyone[i] for i in members])))

    for objective in objectives:
        i = len(everyone)
        if isinstance(objective, Stack):
            for piece in objective.pieces():
                block = Block.of_stack(piece)
                found.append((slice(len(everyone), len(everyone) + block.n), block))
                everyone.add(block, block.n)
            continue
        everyone.add(objective)
        if type(objective) is not GeneralisedLinear or objective.A.size > SMALL:
            continue
        members = waiting.setdefault((objective.A.shape, objective.loss), [])
        members.append(i)
        if len(members) >= _most(objective.A.size):
            stack(members)
            waiting[objective.A.shape, objective.loss] = []
    for members in waiting.values():
        if members:
            stack(members)
    return everyone, found


class _State(NamedTuple):
    """A solve under way, one row a node."""

    f: Array
    slope: Array  # what O'(f) is made of, as `slopes` gives it
    g: Array  # gradient of the whole primal step
    residual: Array


class Block:
    """A stack of objectives of one shape and loss, and what their solver remembers."""

    _stack: Stack  # what objectives are made of when they are asked for
    _made: dict[int, GeneralisedLinear]

    def __init__(self, objectives: Sequence[GeneralisedLinear]):
        first = objectives[0]
        A = np.empty((len(objectives), first.rows, first.dimension))
        for i, objective in enumerate(objectives):
            A[i] = objective.A
            objective.share(A[i])  # one copy of the rows
        scale, ridge = (np.array([[getattr(o, name)] for o in objectives]) for name in ("scale", "ridge"))
        self._begin(A, np.stack([o.y for o in objectives]), first.loss, scale, ridge)
        self._made = dict(enumerate(objectives))

    @classmethod
    def of_stack(cls, stack: Stack) -> Self:
        """Of rows that are stacked already, and nobody else's."""
        block, A = cls.__new__(cls), np.ascontiguousarray(stack.X)
        one, y = (len(A), 1), np.asarray(stack.y, dtype=float)
        scale = np.broadcast_to(stack.weight / (stack.divisor or A.shape[1]), one)
        if stack.loss.labels:
            A *= y[:, :, None]
            y, stack = np.broadcast_to(1.0, one), stack._replace(y=y.astype(np.int8))
        block._begin(A, y, stack.loss, scale, np.broadcast_to(stack.ridge, one))
        block._stack, block._made = stack._replace(X=A), {}
        return block

    def objective(self, i: int) -> GeneralisedLinear:
        """That of the i-th node."""
        if i not in self._made:
            of = self._stack
            shared: dict[str, Any] = {"weight": of.weight, "ridge": of.ridge, "divisor": of.divisor}
            y = of.y[i].astype(float)
            self._made[i] = GeneralisedLinear(self.A[i], y, self.loss, folded=True, **shared)
        return self._made[i]

    def _begin(self, A: Array, y: Array, loss: Loss, scale: Array, ridge: Array) -> None:
        self.A, self.y, self.loss, self.scale, self.ridge = A, y, loss, scale, ridge
        self.n, rows, self.d = A.shape
        self.limit = newton.PATIENCE * hessian_price(self.d)
        self.by_rows = (
            2 * rows <= self.d
        )  # inverses and gradients: then smaller, and inverses cheaper to apply
        self.forget()

    def memory(self) -> dict[str, Array]:
        """One row a node: zeros where nothing is remembered."""
        anchor, last = (
            np.where(known[:, None], rows, 0.0)
            for known, rows in ((self.taken, self.anchor), (self.begun, self.last))
        )
        rows = (anchor, self.taken, self._quadratic, self.debt, last, self.begun)
        return dict(zip(newton.KEPT, rows))

    def remember(self, memory: Mapping[str, Array]) -> None:
        """Take back what `memory` gave."""
        self.anchor, self.taken, self._quadratic, self.debt, self.last, self.begun = (
            np.array(memory[name]) for name in newton.KEPT
        )
        self._anew()

    def forget(self) -> None:
        """Remember nothing; there is no room for it before it is wanted."""
        self.anchor = self.last = np.broadcast_to(0.0, (self.n, self.d))
        self._quadratic, self.debt = np.zeros((2, self.n))
        self.taken, self.begun = np.zeros((2, self.n), dtype=bool)
        self._anew()

    def _anew(self) -> None:
        self._slope: Array | None = None  # `slopes` at `last`
        self._inverse = np.empty((self.n, 0, 0))
        self._known = np.zeros(self.n, dtype=bool)  # which rows of _inverse are of their anchor

    def _rows(self, which: Array) -> Array:
        return self.A if len(which) == self.n else self.A[which]

    def slopes(self, f: Array, which: Array) -> Array:
        """What is kept of the gradients at f: those of the rows' losses, where these are fewer numbers."""
        A = self._rows(which)
        slope = self.scale[which] * self.loss.slope(np.matmul(A, f[:, :, None])[:, :, 0], self.y[which])
        return slope if self.by_rows else self._back(slope, f, which)

    def gradients(self, slopes: Array, f: Array, which: Array) -> Array:
        """Those of the objectives at f, by what `slopes` gave."""
        return self._back(slopes, f, which) if self.by_rows else slopes

    def _back(self, slope: Array, f: Array, which: Array) -> Array:
        return np.matmul(slope[:, None, :], self._rows(which))[:, 0, :] + self.ridge[which] * f

    def curvatures(self, f: Array, which: Array) -> Array:
        A = self._rows(which)
        return self.scale[which] * self.loss.curvature(np.matmul(A, f[:, :, None])[:, :, 0], self.y[which])

    def hessians(self, f: Array, which: Array) -> Array:
        A = self._rows(which)
        H = np.matmul(A.transpose(0, 2, 1), A * self.curvatures(f, which)[:, :, None])
        H[:, range(self.d), range(self.d)] += self.ridge[which]
        return H

    def data_losses(self, f: Array) -> Array:
        return self.loss.value(np.matmul(self.A, f[:, :, None])[:, :, 0], self.y).mean(axis=1)

    def values(self, f: Array) -> Array:
        squares = np.einsum("ij,ij->i", f, f)
        weights = self.scale[:, 0] * self.A.shape[1]
        return weights * self.data_losses(f) + 0.5 * self.ridge[:, 0] * squares

    def minimise(
        self, linear: Array, quadratic: Array, start: Array, tolerance: float
    ) -> tuple[Array, Array]:
        """(minimisers, gradient norms left), one row a node; `quadratic` is (n, 1) or (n, d, d).

        `start` is where a node's first solve begins.  What is returned is the place where the next one begins too.
        """
        quadratic = quadratic if quadratic.ndim == 3 else quadratic.reshape(self.n)

        everyone = np.arange(self.n)
        if not self.begun.all():
            self.last = np.where(self.begun[:, None], self.last, start)
        f = self.last
        slope = self.slopes(f, everyone) if self._slope is None else self._slope
        g = self.gradients(slope, f, everyone) + linear + _times(quadratic, f)
        st = _State(f, slope, g, _norms(g))
        steps = np.zeros(self.n)
        which = np.flatnonzero(st.residual > tolerance)
        for _ in range(_STEPS):
            if not len(which):
                break
            fresh = ~self.taken[which] | (self.debt[which] > self.limit)
            self._renew(which[fresh], st.f, quadratic)
            trial = st.f[which] - self._times_inverse(which, st.g[which])
            slope = self.slopes(trial, which)
            g = self.gradients(slope, trial, which) + linear[which] + _times(quadratic[which], trial)
            left, before = _norms(g), st.residual[which]
            better = left < before
            steps[which] += 1
            self.debt[which] += np.where(left <= newton.SLOW * before, 1.0, newton.FEE) * better
            moved = which[better]
            st.f[moved], st.slope[moved] = trial[better], slope[better]
            st.g[moved], st.residual[moved] = g[better], left[better]
            self.taken[which[~better]] = False  # lagged curvature misleads: take it anew and do not move
            for i in which[~better & fresh]:
                self._alone(int(i), st, linear, quadratic, tolerance)
            stuck = np.zeros(self.n, dtype=bool)
            stuck[which[~better & fresh]] = True
            which = np.flatnonzero((st.residual > tolerance) & ~stuck)
        for i in which:  # too slow like this
            self._alone(int(i), st, linear, quadratic, tolerance)
        self.debt = np.maximum(self.debt - np.minimum(steps, newton.DUE), 0.0)
        self._slope, self.begun[:] = st.slope, True
        return f, st.residual

    def _alone(self, i: int, st: _State, linear: Array, quadratic: Array, tolerance: float) -> None:
        """Finish a node whose full Newton step does not help, or hardly, with the solver that can shorten steps."""
        Q = quadratic[i] if quadratic.ndim == 3 else float(quadratic[i])
        st.f[i], st.residual[i] = newton.LaggedNewton(self.objective(i)).minimise(
            linear[i], Q, st.f[i], tolerance
        )
        st.slope[i] = self.slopes(st.f[i : i + 1], np.array([i]))[0]

    def _renew(self, which: Array, f: Array, quadratic: Array) -> None:
        if self._quadratic.ndim != quadratic.ndim:
            self._quadratic = np.zeros_like(quadratic)
        if not self.anchor.flags.writeable:
            self.anchor = np.zeros((self.n, self.d))
        self.anchor[which], self._quadratic[which] = f[which], quadratic[which]
        self.taken[which], self.debt[which], self._known[which] = True, 0.0, False

    def _times_inverse(self, which: Array, g: Array) -> Array:
        if self.by_rows and self._quadratic.ndim == 1:
            return self._times_inverse_by_rows(which, g)
        wanted = self._wanted(which, self.d, self.d)
        if len(wanted):
            H = self.hessians(self.anchor[wanted], wanted)
            Q = self._quadratic[wanted]
            if Q.ndim == 3:
                H += Q
            else:
                H[:, range(self.d), range(self.d)] += Q[:, None]
            self._inverse[wanted] = newton.inverted(H)
        W = self._inverse if len(which) == self.n else self._inverse[which]
        return np.matmul(W, g[:, :, None])[:, :, 0]

    def _times_inverse_by_rows(self, which: Array, g: Array) -> Array:
        """(c I + A'D A)^-1 g = (g - A'(c D^-1 + AA')^-1 A g) / c, with sqrt(D) (c I + sqrt(D) AA' sqrt(D))^-1 sqrt(D)
        in the place of (c D^-1 + AA')^-1, for D may hold zeros: m x m numbers are kept of a node of m rows."""
        m = self.A.shape[1]
        wanted = self._wanted(which, m, m)
        if len(wanted):
            A, c = self._rows(wanted), self.ridge[wanted] + self._quadratic[wanted][:, None]
            root = np.sqrt(np.maximum(self.curvatures(self.anchor[wanted], wanted), 0.0))
            G = root[:, :, None] * np.matmul(A, A.transpose(0, 2, 1)) * root[:, None, :]
            G[:, range(m), range(m)] += c
            self._inverse[wanted] = root[:, :, None] * newton.inverted(G) * root[:, None, :]
        A, c = self._rows(which), self.ridge[which] + self._quadratic[which][:, None]
        W = self._inverse if len(which) == self.n else self._inverse[which]
        inner = np.matmul(W, np.matmul(A, g[:, :, None]))
        return (g - np.matmul(A.transpose(0, 2, 1), inner)[:, :, 0]) / c

    def _wanted(self, which: Array, *shape: int) -> Array:
        """Those of which no inverse is known; there is room for it from now on."""
        if self._inverse.shape[1:] != shape:
            self._inverse = np.empty((self.n, *shape))
            self._known[:] = False
        wanted = which[~self._known[which]]
        self._known[wanted] = True
        return wanted


def _times(quadratic: Array, f: Array) -> Array:
    if quadratic.ndim == 3:
        return np.matmul(quadratic, f[:, :, None])[:, :, 0]
    return quadratic[:, None] * f


def _norms(g: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", g, g))
