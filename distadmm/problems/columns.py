"""A party's columns and its x-update, exact and cached.

    x = argmin_{x in X}  lambda R(x) + c/2 |D x - w|^2,        c = rho (1 + tau)

The Gram matrix D'D is decomposed once, D'D = V diag(e) V', so a changed c costs nothing:

    l2, whole space   x = V diag(c / (lambda + c e)) V' D'w
    l2 ball           the same with lambda + nu, nu >= 0 the root of |x(nu)| = radius
    mcp, scad         l1 with its own slope at `start` taken off, and a proximal term that keeps the bound convex:
                      a majorant of the objective, equal to it at `start`
    l1, elastic net, box, and a ball around them: accelerated proximal steps on the Gram matrix that guess
                      the active set, one linear solve on it, accepted when the KKT conditions hold

Only the rank of D is kept (d > N goes through D D'), so rank-deficient columns are no special case.
"""

from typing import Any

import numpy as np

from distadmm.problems.regularisers import Array, Ball, Box, Region, Regulariser, Whole


class Columns:
    """One party's N x d block D, dense or scipy sparse; `centre` subtracts the column means implicitly.

    The means never make a sparse block dense: D_c x = D x - (mean.x) 1 and D_c'v = D'v - (1'v) mean.
    """

    def __init__(self, matrix: Any, *, centre: bool = False):
        self.sparse = not isinstance(matrix, np.ndarray)
        if self.sparse:
            self.matrix = matrix.tocsr().astype(float)
            self.transposed = self.matrix.T.tocsr()
        else:
            self.matrix = np.ascontiguousarray(matrix, dtype=float)
            self.transposed = self.matrix.T
        self.rows, self.width = self.matrix.shape
        self.mean = np.asarray(self.matrix.mean(axis=0)).ravel() if centre else np.zeros(self.width)
        self.centred = centre
        self._spectrum: tuple[Array, Array] | None = None
        self._gram: Array | None = None

    def apply(self, x: Array) -> Array:
        """D x."""
        product = self.matrix @ x
        return product - self.mean @ x if self.centred else product

    def adjoint(self, v: Array) -> Array:
        """D'v."""
        product = self.transposed @ v
        return product - v.sum() * self.mean if self.centred else product

    @property
    def gram(self) -> Array:
        """D'D."""
        if self._gram is None:
            product = self.transposed @ self.matrix
            gram = product.toarray() if self.sparse else np.asarray(product)
            self._gram = gram - self.rows * np.outer(self.mean, self.mean) if self.centred else gram
        return self._gram

    @property
    def spectrum(self) -> tuple[Array, Array]:
        """(e, V): the positive eigenvalues of D'D and their orthonormal eigenvectors, one a column."""
        if self._spectrum is None:
            if self.width <= self.rows:
                e, V = np.linalg.eigh(self.gram)
                keep = _significant(e, max(self.rows, self.width))
                self._spectrum = e[keep], np.ascontiguousarray(V[:, keep])
            else:
                full = self.matrix.toarray() if self.sparse else self.matrix
                full = full - self.mean
                e, U = np.linalg.eigh(full @ full.T)
                keep = _significant(e, max(self.rows, self.width))
                self._spectrum = e[keep], (full.T @ U[:, keep]) / np.sqrt(e[keep])
        return self._spectrum

    @property
    def rank(self) -> int:
        return self.spectrum[0].size

    def project(self, v: Array) -> Array:
        """The orthogonal projection of v on the column space of D."""
        e, V = self.spectrum
        return self.apply(V @ ((V.T @ self.adjoint(v)) / e))


def _significant(eigenvalues: Array, size: int) -> Array:
    return eigenvalues > eigenvalues[-1] * size * np.finfo(float).eps


def minimise(
    block: Columns, w: Array, c: float, lam: float, reg: Regulariser, region: Region, start: Array
) -> Array:
    """argmin over x in `region` of lam R(x) + c/2 |D x - w|^2; of a folded R one step down from `start`."""
    pull, first, second = c * block.adjoint(w), lam * reg.l1, lam * reg.l2
    if reg.folded:
        pull, second = pull + lam * (reg.bend(start) + reg.dent * start), second + lam * reg.dent
    if isinstance(region, Ball):
        return _in_ball(block, pull, c, first, second, region.radius, start)
    if first == 0 and isinstance(region, Whole):
        e, V = block.spectrum  # (second I + c D'D)^-1 pull, for a pull in the row space of D
        return V @ ((V.T @ pull) / (second + c * e))
    return _separable(block, pull, c, first, second, region, start)


def _in_ball(
    block: Columns, pull: Array, c: float, first: float, second: float, radius: float, start: Array
) -> Array:
    """The multiplier nu >= 0 of |x| <= radius adds nu/2 |x|^2; |x(nu)| falls with nu.

    Newton on 1/|x(nu)|, which is nearly linear, for l2; bisection with secants for the others.
    """
    if first == 0:
        e, V = block.spectrum
        b = V.T @ pull
        nu = _secular(b, second + c * e, radius)
        return V @ (b / (second + nu + c * e))
    x = _separable(block, pull, c, first, second, Whole(), start)
    if np.linalg.norm(x) <= radius:
        return x
    from scipy.optimize import brentq

    def model(nu: float) -> Array:
        return _separable(block, pull, c, first, second + nu, Whole(), x)

    high = float(np.linalg.norm(pull)) / radius  # |x(nu)| <= |pull| / nu
    nu = brentq(lambda nu: np.linalg.norm(model(nu)) - radius, 0.0, high, xtol=1e-13 * high, rtol=1e-14)
    return model(nu)


def _secular(b: Array, scale: Array, radius: float) -> float:
    """The nu >= 0 with |b / (scale + nu)| = radius; 0 when the norm is already within."""
    with np.errstate(divide="ignore"):
        norm = float(np.linalg.norm(b / scale))
    if norm <= radius:
        return 0.0
    nu, ceiling = 0.0, float(np.linalg.norm(b)) / radius
    for _ in range(100):
        x = b / (scale + nu)
        norm = float(np.linalg.norm(x))
        slope = float((x * x / (scale + nu)).sum()) / norm  # -d|x|/dnu
        step = (norm / radius - 1.0) * norm / slope
        # 1/|x| is concave in nu, so Newton from the left never overshoots; the ceiling guards rounding.
        nu = min(max(nu + step, 0.0), ceiling)
        if abs(step) <= 1e-15 * (nu + float(scale.min())):
            break
    return nu


def _separable(
    block: Columns, pull: Array, c: float, first: float, second: float, region: Region, start: Array
) -> Array:
    """argmin c/2 x'D'Dx - pull'x + first |x|_1 + second/2 |x|^2, box or whole space."""
    H = c * block.gram + second * np.eye(block.width)
    low, high = (region.low, region.high) if isinstance(region, Box) else (-np.inf, np.inf)
    scale = float(np.abs(pull).max(initial=0.0)) + first + 1e-300
    warm = _polish(H, pull, first, low, high, start, scale)
    if warm is not None:
        return warm
    curvature = float(np.linalg.norm(H, 2)) if block.width < 40 else c * block.spectrum[0][-1] + second
    x, momentum, t = start.copy(), start.copy(), 1.0
    for _round in range(400):
        for _ in range(25):
            target = momentum - (H @ momentum - pull) / curvature
            new = np.clip(np.sign(target) * np.maximum(np.abs(target) - first / curvature, 0.0), low, high)
            if (momentum - new) @ (new - x) > 0:  # gradient restart: the momentum points uphill
                t, momentum = 1.0, new
            else:
                t_next = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
                momentum, t = new + (t - 1.0) / t_next * (new - x), t_next
            x = new
        polished = _polish(H, pull, first, low, high, x, scale)
        if polished is not None:
            return polished
    return x


def _polish(
    H: Array, pull: Array, first: float, low: float, high: float, x: Array, scale: float
) -> Array | None:
    """The exact minimiser if x has the right active set, else None."""
    sign = np.sign(x) if first > 0 else np.zeros_like(x)
    at_low, at_high = x <= low, x >= high
    free = ~at_low & ~at_high & ((x != 0) if first > 0 else np.ones(x.size, bool))
    exact = np.where(free, 0.0, x)
    if free.any():
        right = pull[free] - first * sign[free] - H[np.ix_(free, ~free)] @ exact[~free]
        exact[free] = np.linalg.lstsq(H[np.ix_(free, free)], right, rcond=None)[0]
    slack = 1e-11 * scale
    if (
        (exact < low - 1e-12).any()
        or (exact > high + 1e-12).any()
        or (np.sign(exact)[free] * sign[free] < 0).any()
    ):
        return None
    gradient = H @ exact - pull
    ok = np.abs(gradient + first * sign)[free] <= slack
    zero = ~free & (exact == 0) & ~at_low & ~at_high
    ok_zero = np.abs(gradient[zero]) <= first + slack
    ok_low = gradient[at_low] + first * np.sign(low) >= -slack if at_low.any() else np.ones(0, bool)
    ok_high = gradient[at_high] + first * np.sign(high) <= slack if at_high.any() else np.ones(0, bool)
    return exact if ok.all() and ok_zero.all() and ok_low.all() and ok_high.all() else None
