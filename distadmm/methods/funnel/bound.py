"""Lower bounds on I(S;Y), proven.

Weak duality: for any alpha and lambda >= 0, every channel with I(X;Y) >= R leaks at least

    H(S) - alpha . p - lambda (H(X) - R) - max_w g(w),     g(w) = H(S w) - lambda H(w) - alpha . w

and the same multipliers bound every other R.  Where the maximum sits: at a local maximum of g in the relative
interior of a face, no direction d != 0 along the face with S d = 0 can exist (g would be strictly convex along
it), so at most rank(S) symbols carry weight.  Each face of rank(S) symbols is cut into cells.  On a cell with
corners v_i and centre c, H(S w) lies below its tangent at c and -lambda H below the chord of the corners, so

    max over the cell of g  <=  max_i [ -sum_k t_k(v_i) log t_k(c) - lambda H(v_i) - alpha . v_i ],   t = S w

Cells whose bound is small enough are settled; the others are halved.  From the cells that promise most, g is climbed:
a posterior found with g above what was asked for is a column the program lacks, and ends the attempt.  In floating
point, not interval arithmetic.
"""

from math import comb
from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel import lp, perfect
from distadmm.methods.funnel.model import FLOOR, Array, Joint, entropy, log0

DIMENSION = 4  # symbols of a face, at most
CELLS = 4_000_000  # looked at, at most
CHUNK = 40_000  # cells at a time
CLIMBED, CLIMBS = 40, 30  # cells of each size from which g is climbed, and the steps
ROUNDING = 1e-12


class Certificate(NamedTuple):
    excess: float  # max g is proven not to exceed this
    cells: int  # looked at
    settled: bool  # excess is no more than was asked for
    missed: Array  # M x C: posteriors with a greater g, which the program lacks


def faces(joint: Joint) -> int:
    """The number of symbols that can carry weight together at a maximum of g; two where columns are all but equal."""
    return min(max(int(np.linalg.matrix_rank(joint.S, tol=1e-10)), 2), joint.M)


def provable(joint: Joint) -> bool:
    """Whether the faces are few and small enough to be cut up."""
    m = faces(joint)
    return m <= DIMENSION and comb(joint.M, m) <= perfect.ENUMERABLE


def dobrushin(joint: Joint) -> float:
    """The contraction coefficient: largest total variation between two columns of P(s|x)."""
    return max(float(np.abs(joint.S - joint.S[:, [i]]).sum(axis=0).max()) / 2 for i in range(joint.M))


def contraction_bound(joint: Joint, R: float) -> float:
    """I(S;Y) >= I(S;X) - eta (H(X) - R), since I(S;X|Y) <= eta H(X|Y) by the strong data-processing inequality."""
    return max(0.0, joint.ISX - dobrushin(joint) * (joint.HX - R))


def certify(joint: Joint, alpha: Array, slope: float, tol: float, cells: int = CELLS) -> Certificate:
    """An upper bound on max_w g(w), as near as `tol` above zero if the number of cells allows."""
    symbols = perfect.supports(joint.M, faces(joint))
    m = symbols.shape[1]
    S, price = joint.S.T[symbols], alpha[symbols]  # faces x m x K, faces x m
    corners, face = np.tile(np.eye(m), (len(symbols), 1, 1)), np.arange(len(symbols))
    at, none = lp.Optimum(np.empty(0), alpha, slope, np.nan), np.empty((joint.M, 0))
    settled, looked = -np.inf, 0
    while len(face):
        chunks = np.array_split(np.arange(len(face)), 1 + len(face) // CHUNK)
        above = np.concatenate([_above(corners[c], S[face[c]], price[face[c]], slope) for c in chunks])
        rest = above > tol
        looked += len(face)
        settled = max(settled, float(above[~rest].max(initial=-np.inf)))
        missed = _climbed(joint, corners, symbols[face], above, at, tol) if rest.any() else none
        if missed.size or looked + 2 * rest.sum() > cells:
            return Certificate(float(above.max()) + ROUNDING, looked, False, missed)
        corners, face = corners[rest], face[rest]
        chunks = np.array_split(np.arange(len(face)), 1 + len(face) // CHUNK)
        corners = np.concatenate([half for c in chunks for half in _halved(corners[c], S[face[c]], slope)])
        face = np.concatenate([np.tile(face[c], 2) for c in chunks])
    return Certificate(settled + ROUNDING, looked, True, none)


def _climbed(joint: Joint, corners: Array, symbols: Array, above: Array, at: lp.Optimum, tol: float) -> Array:
    """Posteriors with g > tol that are reached from the centres of the cells with the largest bounds."""
    some = np.argsort(-above, kind="stable")[:CLIMBED]
    w = np.zeros((joint.M, len(some)))
    w[symbols[some].T, np.arange(len(some))] = corners[some].mean(axis=1).T
    w, g = lp.ascend(joint, w, at, CLIMBS)
    return w[:, g > tol]


def _above(corners: Array, S: Array, price: Array, slope: float) -> Array:
    t = corners @ S
    centre = np.maximum(log0(t.mean(axis=1)), FLOOR)
    linear = np.einsum("cvk,ck->cv", t, centre)
    return (-linear - slope * entropy(corners, axis=2) - np.einsum("cvm,cm->cv", corners, price)).max(axis=1)


def _halved(corners: Array, S: Array, slope: float) -> tuple[Array, Array]:
    """Both halves of each cell, cut across the edge along which the two bounds err most."""
    a, b = np.triu_indices(corners.shape[1], 1)
    near, far = np.sqrt(corners), np.sqrt(corners @ S)
    length = ((far[:, a] - far[:, b]) ** 2).sum(axis=2) + slope * ((near[:, a] - near[:, b]) ** 2).sum(axis=2)
    longest, row = length.argmax(axis=1), np.arange(len(corners))
    a, b = a[longest], b[longest]
    middle = (corners[row, a] + corners[row, b]) / 2
    one, other = corners.copy(), corners
    one[row, a], other[row, b] = middle, middle
    return one, other


def lower(joint: Joint, R: float, alpha: Array, slope: float, excess: float) -> float:
    """The bound of weak duality at R, given that max g <= excess."""
    return joint.HS - float(alpha @ joint.p) - slope * (joint.HX - R) - excess
