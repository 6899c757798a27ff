"""The exact log-likelihood ratio of an R-ADMM transcript between two neighbouring tables.

A node's release is the minimiser f of  w sum_{a in D} l(a.f) + <pull + b, f> + (ridge + Q)/2 |f|^2  (a = y x).
Noise and model determine each other, so with b(f) = -(w sum l'(a.f) a + pull + (ridge + Q) f)

    p(f | D) = nu(b_D(f)) |det J_D(f)|,     J_D = w sum l''(a.f) a a' + (ridge + Q) I,

and neighbours, which share all but one record a (of D) and a' (of D'), differ by two rank-one terms:

    ln p'(f)/p(f) = ln nu(b_D') - ln nu(b_D) + ln(1 + w l''(a'.f) a'J^-1 a') - ln(1 + w l''(a.f) a J^-1 a),

J over the common records.  No noise sample, solver or density estimate comes between the messages and the
score; the ratio of a transcript is the sum over its releases, since the pull depends on released values alone.
All transcripts are treated at once.
"""

from typing import NamedTuple

import numpy as np

from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.problems.losses import Array, Loss


class Neighbours(NamedTuple):
    """D = common + only_here, D' = common + only_there; rows are y x, at most one in each `only`."""

    common: Array
    only_here: Array
    only_there: Array


class Released(NamedTuple):
    """One release of R independent transcripts."""

    f: Array  # (R, d)
    linear: Array  # (R, d), the pull
    quadratic: Array  # (R,)


def log_noise(b: Array, event: ObjectivePerturbation) -> Array:
    """ln nu(b) up to a constant."""
    squares = np.einsum("rd,rd->r", b, b)
    if event.noise == "gamma":
        return -event.scale * np.sqrt(squares)
    return -squares / (2 * event.scale**2)


def log_ratio(
    released: Released,
    tables: Neighbours,
    event: ObjectivePerturbation,
    loss: Loss,
    weight: float,
    ridge: float,
) -> Array:
    """ln p(f | D') / p(f | D) of one release, for each transcript."""
    f = released.f
    stiff = ridge + released.quadratic
    one = np.ones(1)

    def force(rows: Array) -> Array:
        return weight * loss.slope(f @ rows.T, one) @ rows

    shared = force(tables.common) + released.linear + stiff[:, None] * f
    here = -(shared + force(tables.only_here))
    there = -(shared + force(tables.only_there))
    ratio = log_noise(there, event) - log_noise(here, event)
    bend = weight * loss.curvature(f @ tables.common.T, one)
    for rows, sign in ((tables.only_there, 1.0), (tables.only_here, -1.0)):
        for a in rows:
            added = weight * loss.curvature(f @ a, one) * inverse_form(tables.common, bend, stiff, a)
            ratio = ratio + sign * np.log1p(added)
    return ratio


def inverse_form(rows: Array, bend: Array, stiff: Array, a: Array) -> Array:
    """a'(rows' diag(bend_r) rows + stiff_r I)^-1 a for each r, through the smaller of the two dimensions."""
    m, d = rows.shape
    if m == 0:
        return a @ a / stiff
    if m < d:  # Woodbury, with the square roots of the curvatures so that none need be inverted
        root = np.sqrt(bend)
        along = root * (rows @ a)
        small = root[:, :, None] * (rows @ rows.T) * root[:, None, :] + stiff[:, None, None] * np.eye(m)
        solved = np.linalg.solve(small, along[:, :, None])[:, :, 0]
        return (a @ a - np.einsum("rm,rm->r", along, solved)) / stiff
    whole = np.einsum("rm,mi,mj->rij", bend, rows, rows) + stiff[:, None, None] * np.eye(d)
    return np.linalg.solve(whole, np.broadcast_to(a, (len(bend), d))[:, :, None])[:, :, 0] @ a
