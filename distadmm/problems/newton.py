"""The primal solve: minimise O(f) + <linear, f> + 1/2 f'Qf to a stated residual of its gradient.

Newton's method with a *lagged* Hessian: the inverse W of O''(anchor) + Q is kept from one solve to the next,
and within a solve the gradients seen correct it (L-BFGS with W as its first matrix).  A step then costs one
gradient instead of one Hessian.  The residual is that of the true gradient, so lagging costs no accuracy.

When to renew W is a matter of rent and purchase: each gradient beyond the two that a fresh Hessian would
need adds to a debt, and when the debt exceeds what a Hessian costs, one is bought.

A solve begins where the last one of its node ended: there the gradient is known, and the first step is free.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from distadmm.problems.consensus import Array, Objective, hessian_price

PATIENCE = 2.0  # a Hessian is bought when the debt exceeds so many times its price
SLOW, FEE = 0.5, 4.0  # a step that leaves more than this share of the gradient adds so much to the debt
DUE = 2  # gradients a solve that add nothing
_STEPS = 200
_LEVEL = 4 * np.finfo(float).eps  # of the objective: what it may fall by and not show
_PAIRS = 8  # corrections kept within a solve


class Solution(NamedTuple):
    f: Array
    residual: float  # 2-norm of the gradient at f


class Memory(NamedTuple):
    """All that a solver carries from one solve to the next, so that a checkpoint can."""

    anchor: Array | None  # where the Hessian was last taken
    quadratic: float | Array  # and the Q it was taken with
    debt: float  # gradients spent for want of a fresh one
    last: Array | None  # where the last solve ended


FORGETFUL = Memory(None, 0.0, 0.0, None)
KEPT = ("anchor", "taken", "quadratic", "debt", "last", "begun")


def stacked(memories: Sequence[Memory], dimension: int) -> dict[str, Array]:
    """Memories as arrays, one row a node."""
    nowhere = np.zeros(dimension)
    return {
        "anchor": np.stack([nowhere if m.anchor is None else m.anchor for m in memories]),
        "taken": np.array([m.anchor is not None for m in memories]),
        "quadratic": np.stack([np.asarray(m.quadratic, dtype=float) for m in memories]),
        "debt": np.array([m.debt for m in memories]),
        "last": np.stack([nowhere if m.last is None else m.last for m in memories]),
        "begun": np.array([m.last is not None for m in memories]),
    }


def unstacked(arrays: Mapping[str, Array]) -> list[Memory]:
    """What `stacked` was given."""
    return [
        Memory(
            anchor if taken else None,
            Q if np.ndim(Q) == 2 else float(Q),
            float(debt),
            last if begun else None,
        )
        for anchor, taken, Q, debt, last, begun in zip(*(arrays[name] for name in KEPT))
    ]


class LaggedNewton:
    """Solver of one node."""

    def __init__(self, objective: Objective):
        self.objective = objective
        self.limit = PATIENCE * getattr(objective, "price", hessian_price(objective.dimension))
        self.anchor: Array | None = None
        self.quadratic: float | Array = 0.0
        self.debt = 0.0
        self.last: Array | None = None
        self._inverse: Array | None = None
        self._slope: Array | None = None  # O'(last)

    def memory(self) -> Memory:
        return Memory(self.anchor, self.quadratic, self.debt, self.last)

    def forget(self) -> None:
        self.remember(FORGETFUL)

    def remember(self, memory: Memory) -> None:
        self.anchor, self.quadratic, self.debt, self.last = memory
        self._inverse = self._slope = None

    def _renew(self, f: Array, quadratic: float | Array) -> None:
        self.anchor, self.quadratic, self.debt = f.copy(), quadratic, 0.0
        self._inverse = None

    def _times_inverse(self, g: Array) -> Array:
        if self._inverse is None:
            assert self.anchor is not None
            hessian = self.objective.hess(self.anchor)
            self._inverse = inverted(hessian + _as_matrix(self.quadratic, len(self.anchor)))
        return self._inverse @ g

    def minimise(self, linear: Array, quadratic: float | Array, start: Array, tolerance: float) -> Solution:
        """`start` is where the first solve begins."""
        f = start if self.last is None else self.last
        slope = self.objective.grad(f) if self._slope is None else self._slope
        g = slope + linear + _times(quadratic, f)
        residual, steps = _norm(g), 0
        pairs, shortening = Pairs(), False
        for _ in range(_STEPS):
            if residual <= tolerance:
                break
            fresh = self.anchor is None or self.debt > self.limit
            if fresh:
                self._renew(f, quadratic)
                pairs = Pairs()
            step = -pairs.times_inverse(self._times_inverse, g)
            trial = f + step
            slope_trial = self.objective.grad(trial)
            g_trial = slope_trial + linear + _times(quadratic, trial)
            left = _norm(g_trial)
            steps += 1
            if left < residual and not shortening:
                pairs.note(step, g_trial - g)
                self.debt += 1.0 if left <= SLOW * residual else FEE
                f, g, slope, residual = trial, g_trial, slope_trial, left
            elif not fresh:  # the lagged curvature misleads: take it anew and do not move
                self.anchor = None
            else:
                self.anchor = None
                shortened = self._shorten(linear, quadratic, f, g, step)
                shortening = shortened is not None  # from now on: gradients that fall may lead back
                if shortened is None:  # no descent is left to be had in floating point
                    if not left < residual:  # nor a NaN
                        break
                    shortened = trial
                f, slope = shortened, self.objective.grad(shortened)
                g = slope + linear + _times(quadratic, f)
                residual = _norm(g)
        self.debt = max(self.debt - min(steps, DUE), 0.0)
        self.last, self._slope = f.copy(), slope
        return Solution(f, residual)

    def _shorten(
        self, linear: Array, quadratic: float | Array, f: Array, g: Array, step: Array
    ) -> Array | None:
        """Shorten a Newton step until the objective falls as Armijo's rule asks, and rises little beyond.

        A convex objective falls as long as its slope along the step is negative.  Where its curvature jumps, halving
        alone goes to and fro between the pieces for ever.
        """

        def phi(f: Array) -> float:
            return float(self.objective.value(f) + linear @ f + 0.5 * (f @ _times(quadratic, f)))

        here, slope, low, high, middle = phi(f), float(g @ step), 0.0, 1.0, 1.0
        if -slope <= _LEVEL * abs(here):
            return None
        for _ in range(40):
            at = f + middle * step
            rise = float(step @ (self.objective.grad(at) + linear + _times(quadratic, at)))
            if rise > -0.1 * slope:
                high = middle
            elif rise < 0.1 * slope and middle < 1.0:
                low = middle
            elif phi(at) <= here + 1e-4 * middle * slope:
                return at
            else:
                high = middle
            middle = 0.5 * (low + high)
        return f + low * step if low else None


class Pairs:
    """Steps s and changes of the gradient y = (Hessian) s of one solve: what L-BFGS corrects an inverse by."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Array, Array, float]] = []

    def note(self, s: Array, y: Array) -> None:
        product = float(s @ y)
        if product > 0.0:
            self._pairs = [*self._pairs[1 - _PAIRS :], (s, y, 1.0 / product)]

    def times_inverse(self, first: Callable[[Array], Array], g: Array) -> Array:
        """The corrected inverse times g: the two-loop recursion, `first` being the uncorrected product."""
        shares = []
        for s, y, weight in reversed(self._pairs):
            shares.append(weight * float(s @ g))
            g = g - shares[-1] * y
        z = first(g)
        for (s, y, weight), share in zip(self._pairs, reversed(shares)):
            z = z + (share - weight * float(y @ z)) * s
        return z


class NewtonCG:
    """Solver for objectives that offer Hessian-vector products `hessp(f, v)` instead of a matrix.

    A solve begins where the last one of its node ended, and nothing else is kept.
    """

    def __init__(self, objective: Any):
        self.objective = objective
        self.last: Array | None = None
        self._slope: Array | None = None  # O'(last)

    def memory(self) -> Memory:
        return FORGETFUL._replace(last=self.last)

    def forget(self) -> None:
        self.remember(FORGETFUL)

    def remember(self, memory: Memory) -> None:
        self.last, self._slope = memory.last, None

    def _product(self, f: Array, quadratic: float | Array, v: Array) -> Array:
        return self.objective.hessp(f, v) + _times(quadratic, v)

    def minimise(self, linear: Array, quadratic: float | Array, start: Array, tolerance: float) -> Solution:
        f = start if self.last is None else self.last
        slope = self.objective.grad(f) if self._slope is None else self._slope
        g = slope + linear + _times(quadratic, f)
        residual = begun = _norm(g)
        for _ in range(_STEPS):
            if residual <= tolerance:
                break
            # The smaller the gradient, the better a step is solved for; never better than is asked of the last.
            least = max(min(0.1, residual / begun) * residual, 0.5 * tolerance)
            step = _conjugate_gradients(partial(self._product, f, quadratic), -g, least)
            length = 1.0
            for _ in range(40):
                trial = f + length * step
                slope_trial = self.objective.grad(trial)
                g_trial = slope_trial + linear + _times(quadratic, trial)
                if _norm(g_trial) < residual:
                    break
                length *= 0.5
            else:
                break
            f, g, slope, residual = trial, g_trial, slope_trial, _norm(g_trial)
        self.last, self._slope = f.copy(), slope
        return Solution(f, residual)


def _conjugate_gradients(product: Callable[[Array], Array], b: Array, tolerance: float) -> Array:
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    rr = float(r @ r)
    for _ in range(2 * len(b)):
        if sqrt(rr) <= tolerance:
            break
        Ap = product(p)
        a = rr / float(p @ Ap)
        x += a * p
        r -= a * Ap
        rr, before = float(r @ r), rr
        p = r + (rr / before) * p
    return x


def solver_of(objective: Objective) -> LaggedNewton | NewtonCG:
    products = getattr(objective, "matrix_free", False) or not hasattr(objective, "hess")
    return NewtonCG(objective) if products else LaggedNewton(objective)


def inverted(matrices: Array) -> Array:
    """NaN, by which no step goes, where one of them has no inverse."""
    try:
        return np.linalg.inv(matrices)
    except np.linalg.LinAlgError:
        return np.full_like(matrices, np.nan)


def _norm(g: Array) -> float:
    return sqrt(g @ g)


def _times(quadratic: float | Array, f: Array) -> Array:
    return quadratic @ f if isinstance(quadratic, np.ndarray) and quadratic.ndim == 2 else quadratic * f


def _as_matrix(quadratic: float | Array, d: int) -> Array:
    return quadratic if isinstance(quadratic, np.ndarray) and quadratic.ndim == 2 else quadratic * np.eye(d)
