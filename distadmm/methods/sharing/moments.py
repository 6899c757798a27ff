"""Moment messages: a party answers with d_m-sized sums over the records, never with an N-vector.

Party 1 is the centre.  Its scores z1 = D_1 x_1 + b stay frozen; with g = l'(z1), h = l''(z1) a party holding
rows phi_i, |phi_i| <= R, replies once with

    p = sum_i g_i phi_i + noise,        H = sum_i h_i phi_i phi_i' + symmetric noise

and everything else is made from these two.  Without noise, minimising the model p'x + x'Hx/2 + lambda/2 |x|^2
is the first x-update of ADMM sharing with y = l'(z1) and one penalty h_i a record.

Sensitivity (l2; Frobenius for matrices) when the features of ONE record at that party change.  N, labels
and D_1 are the same in both worlds, so z1 is, and exactly one summand changes:

                            -> 0        another, features >= 0     another, any
    sum g phi               C R         sqrt(2) C R                2 C R          |g| <= C
    sum h phi phi'          c R^2       sqrt(2) c R^2              sqrt(2) c R^2   0 <= h <= c

sqrt(2) C R where slopes have one sign or, as in one reply, are the same number (docs/proofs/moments.md).

Invariants that guard privacy
-----------------------------
* The party bounds R, C, c by itself, row by row, whatever it is sent.
* Later gradients are taken at models made of released values alone.

The replies of a party: V1, V1-T, V1-ADMM and V2's.  Each takes what the centre sent, releases its moments through
the party's ledger, and returns an `Answer`: the message, and the model made of the released values alone.  `mu` is
the party's whole budget (mu-Gaussian), half of mu^2 for the gradients and half for the curvature.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.privacy.noise.queries import Query, Releases, matrix_query, noise_for
from distadmm.problems.losses import Array, Loss
from distadmm.problems.prox import prox

NEIGHBOURS = ("replace", "zero")


@dataclass(frozen=True)
class Bounds:
    """What the party enforces, all of it public."""

    row: float  # R
    slope: float  # C
    curvature: float  # c
    neighbours: str = "replace"  # the record's features become another row's, or all zero
    nonnegative: bool = False  # features below 0 are cut to 0
    one_signed: bool = True  # the loss's slope has one sign for each record

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.row) and self.row > 0,
            f"--row-norm is {self.row}; needed: a public bound > 0 on the norm of a record's features",
        )
        require(
            math.isfinite(self.slope) and math.isfinite(self.curvature),
            "the loss has no bound on its slope or curvature, so nothing bounds a record's share; "
            "use --loss logistic or smooth-hinge",
        )
        require(
            self.neighbours in NEIGHBOURS,
            f"--adjacency is {self.neighbours!r}; choose one of: {', '.join(NEIGHBOURS)}",
        )

    def gradient(self, *, same_slope: bool, slope: float | None = None) -> float:
        """Sensitivity of sum g phi; `same_slope` says that g does not depend on the row that changes."""
        size = (self.slope if slope is None else slope) * self.row
        if self.neighbours == "zero":
            return size
        aligned = self.nonnegative and (same_slope or self.one_signed)
        return (math.sqrt(2.0) if aligned else 2.0) * size

    def gram(self, weight: float) -> float:
        """Sensitivity of sum w phi phi' with weights in [0, weight]."""
        size = weight * self.row**2
        return size if self.neighbours == "zero" else math.sqrt(2.0) * size

    def sums_exactly(self, rows: int, steepest: float) -> bool:
        """Whether floats hold the sums over so many `exact` rows, of weights up to `steepest` or those bounds."""
        weight = max(1.0, steepest, self.slope, self.curvature)
        return rows * weight * max(1.0, self.row) ** 2 * 2.0 ** (2 * _ROW_BITS + _WEIGHT_BITS) < 2.0**53


_ROW_BITS, _WEIGHT_BITS = 8, 12  # 2 * 8 + 12 bits and 2^15 records are far below 2^53


def _cut(values: Array, bits: int) -> Array:
    """Multiples of 2^-bits, towards zero."""
    return np.trunc(values * 2.0**bits) * 2.0**-bits


def _scaled(weights: Array, matrix: Any) -> Any:
    """Row i of a matrix, sparse or not, times weight i."""
    if not hasattr(matrix, "tocsr"):
        return weights[:, None] * matrix
    from scipy.sparse import diags

    return (diags(weights) @ matrix).tocsr()


class Rows:
    """A party's rows as the mechanisms see them: cut at 0 if so agreed, and no longer than R.

    With `exact` the rows are cut down to multiples of 2^-8 and weights (`fine`) to multiples of 2^-12, towards
    zero, so that no bound is exceeded; their sums are then exact in float64 (`Bounds.sums_exactly`) and rounding
    proves nothing wrong: a discrete mechanism can stand on them.
    """

    def __init__(self, matrix: Any, bounds: Bounds, *, exact: bool = False):
        self.exact = exact
        self.sparse = hasattr(matrix, "tocsr")
        matrix = matrix.tocsr(copy=True) if self.sparse else np.array(matrix, dtype=float)
        if bounds.nonnegative:
            matrix = matrix.maximum(0) if self.sparse else np.maximum(matrix, 0)
        squares = matrix.multiply(matrix).sum(axis=1) if self.sparse else (matrix**2).sum(axis=1)
        norms = np.sqrt(np.asarray(squares).ravel())
        # A hair below R, so that rounding in the product cannot exceed it.
        factor = np.where(norms > bounds.row, bounds.row * (1 - 1e-12) / np.maximum(norms, 1e-300), 1.0)
        self.matrix = _scaled(factor, matrix)
        if exact and self.sparse:
            self.matrix.data = _cut(self.matrix.data, _ROW_BITS)
        elif exact:
            self.matrix = _cut(self.matrix, _ROW_BITS)
        self.transposed = self.matrix.T.tocsr() if self.sparse else self.matrix.T
        self.width = int(self.matrix.shape[1])
        self.clipped = int((factor < 1).sum())

    def fine(self, weights: Array) -> Array:
        """Weights as they enter a sum."""
        return _cut(weights, _WEIGHT_BITS) if self.exact else weights

    def scores(self, x: Array) -> Array:
        return self.matrix @ x

    def gradient(self, g: Array) -> Array:
        """sum_i g_i phi_i."""
        return self.transposed @ g

    def curvature(self, h: Array | None = None) -> Array:
        """sum_i h_i phi_i phi_i'; h = 1 when none is given."""
        product = self.transposed @ (self.matrix if h is None else _scaled(h, self.matrix))
        return product.toarray() if self.sparse else np.asarray(product)


class Reply(NamedTuple):
    """What a party releases, with the noise it put in."""

    target: Array  # m: -p for one reply; the mean of H x - p over several gradients
    curvature: Array  # H
    sigma_g: float  # standard deviation of the noise in `target`
    sigma_h: float  # of the diagonal of H; off the diagonal it is this over sqrt(2)

    def spread(self, w: Array, x: Array, extra: float) -> Array:
        """The variance of the target in each direction of H: see `shrunk`."""
        return w * (1.0 + extra) + self.sigma_g**2 + 0.5 * self.sigma_h**2 * float(x @ x)


def slopes(loss: Loss, z: Array, labels: Array, bounds: Bounds) -> tuple[Array, Array]:
    """(g, h) as the party bounds them by itself, whatever scores it was sent."""
    with np.errstate(all="ignore"):
        g, h = loss.slope(z, labels), loss.curvature(z, labels)
    return bounded(g, -bounds.slope, bounds.slope), bounded(h, 0.0, bounds.curvature)


def bounded(values: Array, low: float, high: float) -> Array:
    """Values cut to [low, high]; what is not a number becomes 0.

    A NaN for one record would show in the reply which of its features differ from zero.
    """
    return np.clip(np.nan_to_num(values, nan=0.0), low, high)


def shrunk(reply: Reply, lam: float, extra: float = 0.0) -> Array:
    """The model made of a noisy reply: the posterior mean under x ~ N(0, I/lambda), one eigenvalue at a time.

    With H = U diag(w) U', w floored at 0, the target m has in direction k the variance w_k (sampling) +
    sigma_g^2 + sigma_h^2 |x|^2 / 2 (noise in H times x), so x_k = w_k m_k / (w_k^2 + lambda var_k); |x|^2
    by iteration.  `extra` is more variance in units of w.  No noise: (H + lambda I)^-1 m.
    """
    w, U = np.linalg.eigh(reply.curvature)
    w = np.maximum(w, 0.0)
    m = U.T @ reply.target
    x = np.zeros_like(m)
    for _ in range(100):
        below = w * w + lam * reply.spread(w, x, extra)
        new = np.divide(w * m, below, out=np.zeros_like(m), where=below > 0)
        if np.abs(new - x).max(initial=0.0) <= 1e-13 * (1e-300 + np.abs(new).max(initial=0.0)):
            return U @ new
        x = new
    return U @ x


def prior_precision(reply: Reply, extra: float = 0.0) -> float:
    """lambda of greatest marginal likelihood, m_k ~ N(0, w_k^2/lambda + var_k), from released values alone."""
    w, U = np.linalg.eigh(reply.curvature)
    w = np.maximum(w, 0.0)
    m = U.T @ reply.target
    grid = np.logspace(-2, 4, 61)
    fits = []
    for lam in grid:
        total = w * w / lam + reply.spread(w, shrunk(reply, lam, extra), extra)
        seen = total > 0
        fits.append(float(np.log(total[seen]).sum() + (m[seen] ** 2 / total[seen]).sum()))
    return float(grid[int(np.argmin(fits))])


LARGEST = 1e6  # scores beyond are cut: what a party is sent must not make its sums overflow or lose digits


class Answer(NamedTuple):
    """All a party gives away, and the model that follows from it."""

    x: Array
    message: Array  # the gradients in turn, then the upper triangle of the matrix row by row


def _answer(x: Array, gradients: list[Array], matrix: Array) -> Answer:
    return Answer(x, np.concatenate([*gradients, matrix[np.triu_indices(len(x))]]))


@dataclass(frozen=True)
class Schedule:
    """The releases of one party, fixed before the first: `rounds` gradients and one matrix."""

    gradient: Query
    matrix: Query
    rounds: int

    def queries(self, mode: str, width: int) -> list[Query]:
        return [matrix_query(self.matrix, mode, width), *[self.gradient] * self.rounds]

    def numbers(self, width: int) -> int:
        """Length of the message of a party with `width` columns."""
        return self.rounds * width + width * (width + 1) // 2


def schedule(
    width: int,
    bounds: Bounds,
    mu: float | None,
    mode: str,
    *,
    rounds: int = 1,
    gram: bool = False,
    slope: float | None = None,
) -> Schedule:
    """Noise for `rounds` gradients and the curvature, or for the Gram matrix; none when `mu` is None."""
    by_gradient = bounds.gradient(same_slope=rounds == 1, slope=slope)
    by_matrix = bounds.gram(1.0 if gram else bounds.curvature)
    half = None if mu is None else mu / math.sqrt(2.0)
    return Schedule(
        Query(noise_for(by_gradient, half, mode, width, rounds) if half else 0.0, by_gradient, width),
        Query(noise_for(by_matrix, half, mode, width * (width + 1) // 2) if half else 0.0, by_matrix, width),
        rounds,
    )


class Desk(NamedTuple):
    rows: Rows
    bounds: Bounds
    plan: Schedule
    out: Releases


def one_reply(desk: Desk, z1: Array, labels: Array, loss: Loss, lam: float) -> Answer:
    """V1 (one gradient) and V1-T (several): p_t = sum_i l'(z1 + phi_i x_t) phi_i, x_0 = 0.

    Each x_t is made of what is released so far, and all of it goes out in one message.  The targets
    m_t = H x_t - p_t estimate the same thing, so their mean carries the noise of one gradient of T times
    the budget.
    """
    rows, bounds, plan, out = desk
    z1 = bounded(z1, -LARGEST, LARGEST)
    _, h = slopes(loss, z1, labels, bounds)
    H = out.symmetric(rows.curvature(rows.fine(h)), plan.matrix, 0, 0)
    x = np.zeros(rows.width)
    gradients: list[Array] = []
    targets: list[Array] = []
    for t in range(plan.rounds):
        g, _ = slopes(loss, z1 + rows.scores(x), labels, bounds)
        p = out.vector(rows.gradient(rows.fine(g)), plan.gradient, t, 1)
        gradients.append(p)
        targets.append(H @ x - p)
        sigma = plan.gradient.sigma / math.sqrt(len(targets))
        x = shrunk(Reply(np.mean(targets, axis=0), H, sigma, plan.matrix.sigma), lam)
    return _answer(x, gradients, H)


def admm_reply(desk: Desk, z1: Array, labels: Array, loss: Loss, lam: float) -> Answer:
    """V1-ADMM: the iteration itself, with z and y kept at the party and only D'y and the Gram matrix released.

        x = (lambda I + rho G)^-1 (rho G x - D'(2 y_t - y_{t-1}))
        z = prox_{l/rho}(z1 + D x + y/rho),  y = y + rho (z1 + D x - z)

    y_i is a slope of record i at a point made of row i and released models, so a gradient's bounds hold.
    The x-update allows for the noise as V1 does; the mean of the models is the result.
    """
    rows, bounds, plan, out = desk
    z1, rho = bounded(z1, -LARGEST, LARGEST), 0.1
    G = out.symmetric(rows.curvature(), plan.matrix, 0, 0)
    x = np.zeros(rows.width)
    models: list[Array] = []
    gradients: list[Array] = []
    y, _ = slopes(loss, z1, labels, bounds)
    for t in range(plan.rounds):
        released = out.vector(rows.gradient(rows.fine(y)), plan.gradient, t, 1)
        pull = 2 * released - gradients[-1] if gradients else released
        spread = plan.gradient.sigma * (math.sqrt(5.0) if gradients else 1.0)
        gradients.append(released)
        x = shrunk(Reply(rho * (G @ x) - pull, rho * G, spread, rho * plan.matrix.sigma), lam)
        models.append(x)
        total = z1 + rows.scores(x)
        z = prox(loss, labels, rho, total + y / rho, total)
        y = bounded(y + rho * (total - z), -bounds.slope, bounds.slope)
    return _answer(np.mean(models, axis=0), gradients, G)


def mutual_reply(desk: Desk, g: Array, spread: float, clip: float) -> Answer:
    """V2's reply to slopes g that carry noise of sd `spread` already: sum g phi and the Gram matrix, noised.

    The curvature of the loss is taken to be half its bound; the prior comes from the released values.
    """
    rows, bounds, plan, out = desk
    g = bounded(g, -clip, clip)
    G = out.symmetric(rows.curvature(), plan.matrix, 0, 0)
    p = out.vector(rows.gradient(rows.fine(g)), plan.gradient, 0, 1)
    weight = 0.5 * bounds.curvature
    reply = Reply(-p, weight * G, plan.gradient.sigma, weight * plan.matrix.sigma)
    extra = spread**2 / weight  # the noise in g moves sum g phi by spread^2 G = extra * H
    return _answer(shrunk(reply, prior_precision(reply, extra), extra), [p], G)
