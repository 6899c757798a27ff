"""What one node adds to a sum, in whole numbers: each row by itself, then integers added up.

What is done to a row depends, bit for bit, on that row, on constants and on totals: margins come from row-wise
operations and never from a BLAS product, which would let one row change the rounding of another.  Rows, their images
phi and slopes are cut toward zero to multiples of 2^-b, so products are multiples of 4^-b and their sums are exact.
|phi| <= 1 and |u| <= Cp hold whatever scale, rho and w are told.  Where all rows of a node may be others, its whole
sum is cut as well.
"""

import math
from typing import Any

import numpy as np

from distadmm.errors import Unsolved, require
from distadmm.methods.masked.rule import MOST_COLUMNS, Array, Rule, diagonal
from distadmm.problems.losses import LOSSES

_UNIT = 1 - 1e-9  # to which longer rows are cut, where they are cut to a grid: below 1 after every rounding


class Rows:
    """One node's rows under a rule; `bits` None: as floats, uncut."""

    def __init__(self, X: Array, y: Array, rule: Rule, bits: int | None):
        """`X`: rows times labels where labels are +-1; `y`: targets, or the number of each row's class."""
        _require_finite(X, y, rule)
        self.rule, self.bits = rule, bits
        self._unit = 1.0 if bits is None else _UNIT
        wide = X.shape[1] > MOST_COLUMNS  # of public sizes alone, so that every node works alike
        self._ones = np.ones(X.shape[1])
        self.x = self._within(_sparse(X) if wide else np.ascontiguousarray(X, dtype=float))
        self.at_zero = self._cut(slope_of(rule, np.zeros((len(y), rule.outputs)), y))  # r(0), a row a record
        self.targets = self._cut(y) if rule.loss == "squared" else y
        self._seen: tuple[bytes, Any] | None = None

    def _cut(self, values: Array) -> Array:
        if self.bits is None:
            return values
        return np.trunc(values * 2.0**self.bits) / 2.0**self.bits

    def _within(self, rows: Any) -> Any:
        """Rows no longer than 1, each cut to the grid."""
        if isinstance(rows, np.ndarray):
            return self._cut(_shortened(rows, self._unit))
        length = np.sqrt(rows.power(2) @ self._ones)
        rows = rows.copy()
        rows.data = self._cut(rows.data * np.repeat(_factor(length, self._unit), np.diff(rows.indptr)))
        return rows

    def _whole(self, sums: Array) -> Array:
        """Sums as integers, in grid units."""
        if self.bits is None:
            return sums
        require(np.isfinite(sums).all(), "a sum over rows is not finite; this is a bug")
        return np.rint(sums * 4.0**self.bits).astype(np.int64)

    def cut_whole(self, kind: str, sums: Array) -> Array:
        """All that this node adds, in units of the norm to which it is cut; as |.|_F where it is half a matrix.

        Cutting to the grid moves each entry of a curvature by less than 4^-b, so that it may be indefinite by d 4^-b;
        a norm that much shorter keeps the distance of any two within sqrt 2 (`docs/proofs/masked-sums.md`).
        """
        rule, d = self.rule, self.rule.columns
        weight = np.where(diagonal(d), 1.0, 2.0) if kind == "curvature" else 1.0
        limit = self._unit - (d * 4.0**-rule.bits if kind == "curvature" else 0.0)
        require(limit > 0, f"{d} columns on a grid of 4^-{rule.bits}: too coarse; raise --epsilon")
        part = sums * (4.0**-rule.bits / rule.unit(kind))
        cut = part * min(1.0, limit / max(math.sqrt(float((weight * part * part).sum())), limit))
        return np.trunc(cut * 4.0**rule.bits).astype(np.int64)

    def squares(self) -> Array:
        """sum x*x, a column a number."""
        if isinstance(self.x, np.ndarray):
            return self._whole(np.einsum("ij,ij->j", self.x, self.x))
        return self._whole(np.asarray(self.x.power(2).sum(axis=0)).ravel())

    def _phi(self, scale: Array, rho: float) -> Any:
        """x * scale / rho, no longer than 1."""
        name = scale.tobytes() + np.float64(rho).tobytes()
        if self._seen is None or self._seen[0] != name:
            require(
                np.isfinite(scale).all() and np.isfinite(rho),
                "a scale is not finite; nothing was sent",
                Unsolved,
            )
            if isinstance(self.x, np.ndarray):
                phi = self.x * scale / rho
            else:
                phi = self.x.copy()
                phi.data = phi.data * scale[phi.indices] / rho
            self._seen = name, self._within(phi)
        return self._seen[1]

    def curvature(self, scale: Array, rho: float) -> Array:
        """Upper triangle of sum phi phi', row by row."""
        phi = self._phi(scale, rho)
        gram = phi.T @ phi  # of whole numbers: the order does not matter
        return self._whole(gram[np.triu_indices(gram.shape[0])])

    def first(self, scale: Array, rho: float) -> Array:
        """sum phi r(0)'."""
        return self._whole((self._phi(scale, rho).T @ self.at_zero).ravel())

    def later(self, scale: Array, rho: float, w: Array, plain: bool = False) -> Array:
        """sum phi u', u = r(phi'w) - gamma r(0) shortened to Cp; w has a column an output.  `plain`: gamma = 0."""
        require(np.isfinite(w).all(), "the model is not finite; nothing was sent", Unsolved)
        phi, rule = self._phi(scale, rho), self.rule
        z = np.stack([_margins(phi, np.ascontiguousarray(column)) for column in w.T], axis=1)
        u = _odd(z) if rule.of_labels else slope_of(rule, z, self.targets)
        limit = rule.whole_slope if plain else rule.slope
        if rule.centre and not plain and not rule.of_labels:
            u = u - rule.centre * self.at_zero
        if u.shape[1] == 1:
            u = np.clip(u, -limit, limit)
        else:
            u = _shortened(u, limit * self._unit)
        return self._whole((phi.T @ self._cut(u)).ravel())

    def evaluation(self, f: Array) -> Array:
        """How many rows f gets wrong, and the sum of their losses cut to B, in units of B; f has a column an output.

        A row gives a point of [0, 1]^2, so a record that is replaced, comes or goes moves it by sqrt 2 at most.
        """
        require(np.isfinite(f).all(), "the model is not finite; nothing was sent", Unsolved)
        z = np.stack([_margins(self.x, np.ascontiguousarray(column)) for column in f.T], axis=1)
        wrong, lost = losses_of(self.rule, z, self.targets)
        share = np.clip(lost / self.rule.most_loss, 0.0, 1.0)
        share = share if self.bits is None else np.trunc(share * 4.0**self.bits) / 4.0**self.bits
        told = [share] if wrong is None else [wrong.astype(float), share]
        return self._whole(np.array([each.sum() for each in told]))


def _factor(length: Array, limit: float) -> Array:
    """What brings rows of these lengths to the limit; 1 for those within it."""
    long = length > limit
    return np.where(long, limit / np.where(long, length, 1.0), 1.0)


def _shortened(rows: Array, limit: float) -> Array:
    return rows * _factor(np.sqrt(np.einsum("ij,ij->i", rows, rows)), limit)[:, None]


def _margins(phi: Any, w: Array) -> Array:
    """phi'w row by row; a BLAS product would not keep rows apart."""
    return np.einsum("ij,j->i", phi, w) if isinstance(phi, np.ndarray) else phi @ w


def _odd(z: Array) -> Array:
    """r(z) - r(0) of the logistic loss, odd to the last bit: a row times its label gives phi u whatever its label."""
    with np.errstate(over="ignore"):
        return np.copysign(0.5 - 1.0 / (1.0 + np.exp(np.abs(z))), z)


def _sparse(X: Array) -> Any:
    from scipy.sparse import csr_array

    return csr_array(X)


def _require_finite(X: Array, y: Array, rule: Rule) -> None:
    """Before anything is drawn; a row that is no row must not become a number."""
    require(np.isfinite(X).all() and np.isfinite(y).all(), "a row or a target is not finite; mend the data")
    if rule.loss in ("logistic", "huber"):
        require(np.all(y == 1.0), "labels are not all exactly -1 or +1; needed for masked sums")
    if rule.loss == "squared":
        require(
            np.all(np.abs(y) <= 1.0),
            "--loss squared: targets beyond [-1, 1]; give them by public bounds (--schema, or scale them by numbers "
            "that were known before the data)",
        )


def slope_of(rule: Rule, z: Array, y: Array) -> Array:
    """r(z), a row a record; labels are folded into the rows."""
    if rule.loss == "logistic":
        with np.errstate(over="ignore"):
            return -1.0 / (1.0 + np.exp(z))
    if rule.loss == "huber":
        return -np.clip(1.5 - z, 0.0, 1.0)
    if rule.loss == "squared":
        return z - y[:, None]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y.astype(np.int64)] -= 1.0
    return p


def losses_of(rule: Rule, z: Array, y: Array) -> tuple[Array | None, Array]:
    """Which rows the scores get wrong (None: of numbers none is), and the loss of each."""
    if rule.loss == "squared":
        return None, (z[:, 0] - y) ** 2
    if rule.loss == "softmax":
        top = z.max(axis=1)
        own = z[np.arange(len(y)), y.astype(np.int64)]
        return z.argmax(axis=1) != y, top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - own
    return z[:, 0] <= 0, LOSSES[rule.loss].value(z[:, 0], 1.0)  # labels are folded into the rows
