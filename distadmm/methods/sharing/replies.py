"""The replies of a party in moment mode: V1, V1-T, V1-ADMM and V2's.

Each takes what the centre sent, releases its moments through the party's ledger, and returns an `Answer`:
the message, and the model made of the released values alone.  `mu` is the party's whole budget
(mu-Gaussian), half of mu^2 for the gradients and half for the curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.methods.sharing.moments import Bounds, Reply, Rows, bounded, prior_precision, shrunk, slopes
from distadmm.privacy.noise.queries import Query, Releases, matrix_query, noise_for
from distadmm.problems.losses import Loss
from distadmm.problems.prox import prox

Array = np.ndarray


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


def one_reply(
    rows: Rows,
    z1: Array,
    labels: Array,
    loss: Loss,
    lam: float,
    bounds: Bounds,
    plan: Schedule,
    out: Releases,
) -> Answer:
    """V1 (one gradient) and V1-T (several): p_t = sum_i l'(z1 + phi_i x_t) phi_i, x_0 = 0.

    Each x_t is made of what is released so far, and all of it goes out in one message.  The targets
    m_t = H x_t - p_t estimate the same thing, so their mean carries the noise of one gradient of T times
    the budget.
    """
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


def admm_reply(
    rows: Rows,
    z1: Array,
    labels: Array,
    loss: Loss,
    lam: float,
    bounds: Bounds,
    plan: Schedule,
    out: Releases,
    rho: float = 0.1,
) -> Answer:
    """V1-ADMM: the iteration itself, with z and y kept at the party and only D'y and the Gram matrix released.

        x = (lambda I + rho G)^-1 (rho G x - D'(2 y_t - y_{t-1}))
        z = prox_{l/rho}(z1 + D x + y/rho),  y = y + rho (z1 + D x - z)

    y_i is a slope of record i at a point made of row i and released models, so a gradient's bounds hold.
    The x-update allows for the noise as V1 does; the mean of the models is the result.
    """
    z1 = bounded(z1, -LARGEST, LARGEST)
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


def mutual_reply(
    rows: Rows, g: Array, spread: float, bounds: Bounds, plan: Schedule, out: Releases, clip: float
) -> Answer:
    """V2's reply to slopes g that carry noise of sd `spread` already: sum g phi and the Gram matrix, noised.

    The curvature of the loss is taken to be half its bound; the prior comes from the released values.
    """
    g = bounded(g, -clip, clip)
    G = out.symmetric(rows.curvature(), plan.matrix, 0, 0)
    p = out.vector(rows.gradient(rows.fine(g)), plan.gradient, 0, 1)
    weight = 0.5 * bounds.curvature
    reply = Reply(-p, weight * G, plan.gradient.sigma, weight * plan.matrix.sigma)
    extra = spread**2 / weight  # the noise in g moves sum g phi by spread^2 G = extra * H
    return _answer(shrunk(reply, prior_precision(reply, extra), extra), [p], G)
