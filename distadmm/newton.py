"""The primal solve: minimise O(f) + <linear, f> + 1/2 f'Qf to a stated residual of its gradient.

Newton's method with a *lagged* Hessian: the inverse of H = O''(anchor) + Q is kept from one solve to the
next and renewed only where a step contracts the gradient by less than `RENEW`.  A step then costs one
gradient instead of one Hessian, and consecutive ADMM iterations, whose solutions lie close together,
mostly need no Hessian at all.  The residual is that of the true gradient, so lagging costs no accuracy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.problem import Objective

Array = np.ndarray
RENEW = 0.3  # refresh the inverse when a step leaves more than this of the gradient's norm
_STEPS = 200


class Solution(NamedTuple):
    f: Array
    residual: float  # 2-norm of the gradient at f


class LaggedNewton:
    """Solver of one node.  `anchor` and `quadratic` are all it remembers, so a checkpoint can carry them."""

    def __init__(self, objective: Objective):
        self.objective = objective
        self.anchor: Array | None = None  # where the Hessian was last taken
        self.quadratic: float | Array = 0.0  # and the Q it was taken with
        self._inverse: Array | None = None

    def remember(self, anchor: Array | None, quadratic: float | Array) -> None:
        """Take the inverse Hessian at `anchor`, as it was before a checkpoint."""
        self.anchor, self.quadratic, self._inverse = anchor, quadratic, None

    def _renew(self, f: Array, quadratic: float | Array) -> None:
        self.anchor, self.quadratic, self._inverse = f.copy(), quadratic, None

    def _newton_step(self, g: Array) -> Array:
        if self._inverse is None:
            assert self.anchor is not None
            hessian = self.objective.hess(self.anchor)
            self._inverse = np.linalg.inv(hessian + _as_matrix(self.quadratic, len(self.anchor)))
        return -(self._inverse @ g)

    def minimise(self, linear: Array, quadratic: float | Array, start: Array, tolerance: float) -> Solution:
        def gradient(f: Array) -> Array:
            return self.objective.grad(f) + linear + _times(quadratic, f)

        f, g = start, gradient(start)
        residual = _norm(g)
        for _ in range(_STEPS):
            if residual <= tolerance:
                break
            fresh = self.anchor is None
            if fresh:
                self._renew(f, quadratic)
            step = self._newton_step(g)
            trial = f + step
            g_trial = gradient(trial)
            left = _norm(g_trial)
            if left <= RENEW * residual:
                f, g, residual = trial, g_trial, left
                continue
            self.anchor = None  # the curvature has moved: take it anew
            if not fresh and left >= residual:
                continue  # and do not go where the lagged one misled
            # A shorter gradient need not mean a lower objective, so it is the objective that decides.
            shortened = self._shorten(linear, quadratic, f, g, step)
            if shortened is not None:
                f = shortened
                g = gradient(f)
                residual = _norm(g)
            elif fresh:  # no descent is left to be had in floating point
                break
        if self.anchor is None:
            self._renew(f, quadratic)
        return Solution(f, residual)

    def _shorten(
        self, linear: Array, quadratic: float | Array, f: Array, g: Array, step: Array
    ) -> Array | None:
        """Halve a Newton step until the objective falls as Armijo's rule asks."""

        def phi(f: Array) -> float:
            return float(self.objective.value(f) + linear @ f + 0.5 * (f @ _times(quadratic, f)))

        here, slope, length = phi(f), float(g @ step), 1.0
        for _ in range(40):
            if phi(f + length * step) <= here + 1e-4 * length * slope:
                return f + length * step
            length *= 0.5
        return None


class NewtonCG:
    """Solver for objectives that offer Hessian-vector products `hessp(f, v)` instead of a matrix."""

    def __init__(self, objective: Any):
        self.objective = objective
        self.anchor: Array | None = None
        self.quadratic: float | Array = 0.0

    def remember(self, anchor: Array | None, quadratic: float | Array) -> None:
        """Nothing is kept between solves."""

    def _product(self, f: Array, quadratic: float | Array, v: Array) -> Array:
        return self.objective.hessp(f, v) + _times(quadratic, v)

    def minimise(self, linear: Array, quadratic: float | Array, start: Array, tolerance: float) -> Solution:
        f = start
        g = self.objective.grad(f) + linear + _times(quadratic, f)
        residual = _norm(g)
        for _ in range(_STEPS):
            if residual <= tolerance:
                break
            step = _conjugate_gradients(
                partial(self._product, f, quadratic),
                -g,
                min(0.1, np.sqrt(residual)) * residual,
            )
            length = 1.0
            for _ in range(40):
                trial = f + length * step
                g_trial = self.objective.grad(trial) + linear + _times(quadratic, trial)
                if _norm(g_trial) < residual:
                    break
                length *= 0.5
            else:
                break
            f, g, residual = trial, g_trial, _norm(g_trial)
        return Solution(f, residual)


def _conjugate_gradients(product: Callable[[Array], Array], b: Array, tolerance: float) -> Array:
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    rr = float(r @ r)
    for _ in range(2 * len(b)):
        if np.sqrt(rr) <= tolerance:
            break
        Ap = product(p)
        a = rr / float(p @ Ap)
        x += a * p
        r -= a * Ap
        rr, before = float(r @ r), rr
        p = r + (rr / before) * p
    return x


def solver_of(objective: Objective) -> LaggedNewton | NewtonCG:
    return LaggedNewton(objective) if hasattr(objective, "hess") else NewtonCG(objective)


def _norm(g: Array) -> float:
    return float(np.sqrt(g @ g))


def _times(quadratic: float | Array, f: Array) -> Array:
    return quadratic @ f if isinstance(quadratic, np.ndarray) and quadratic.ndim == 2 else quadratic * f


def _as_matrix(quadratic: float | Array, d: int) -> Array:
    return quadratic if isinstance(quadratic, np.ndarray) and quadratic.ndim == 2 else quadratic * np.eye(d)
