"""The sufficient condition of Theorem IV.1 (Zhang, Khalili, Liu: Recycled ADMM), evaluated.

The theorem says that MR-ADMM converges to the optimum if, for constants L > 0 and mu > 1 and every t,

    (i)   I + W'(D+A) D~^-1  >  L mu / (2 sigma) (W'(D-A))^+ D_M
    (ii)  W'(D+A)  >  W'(D+A) D~^-1 (W(D-A) + (2/L) W'(D+A)) + L mu / (2 sigma (mu-1)) D_M

with W = W(t) and W' = W(t+1) the diagonal matrices of the penalties eta_i, D~ = 2 W D + gamma, sigma the
least entry of D~, D_M = diag(M_i^2) and M_i the Lipschitz constant of the gradient of O_i.  The matrices
are not symmetric; "X > Y" is read as "the symmetric part of X - Y is positive definite".

What that is worth: the claim is the paper's and not proved here.  It is false as stated when penalties
differ between nodes (the duals' own steps move the fixed point) and when they grow without bound (the steps
die out); it is loose by orders of magnitude; and no gamma satisfies it on a bipartite graph with equal
penalties, since D + A is singular there.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.graphs.facts import Array, dense, is_bipartite
from distadmm.graphs.topology import Topology

NODES_MOST = 300  # beyond, dense eigenvalues of N x N matrices, some hundred times, take too long


class Constants(NamedTuple):
    """L > 0 and mu > 1, for which (i) and (ii) hold at every t."""

    L: float
    mu: float


class Margins(NamedTuple):
    """The least eigenvalue of each condition's symmetric part over all t; positive means that it holds."""

    first: float
    second: float

    @property
    def hold(self) -> bool:
        return min(self) > 0


@dataclass(frozen=True)
class Stage:
    """One t: penalties before and after, as arrays of one entry a node."""

    eta: Array
    eta_next: Array


def stages(penalties: Sequence[Array]) -> list[Stage]:
    """The transitions eta(1) -> eta(2) -> ...; a single entry means constant penalties."""
    rows = [np.asarray(eta, dtype=float).ravel() for eta in penalties]
    pairs = itertools.pairwise(rows) if len(rows) > 1 else [(rows[0], rows[0])]
    return [Stage(eta, eta_next) for eta, eta_next in pairs]


class _Fixed(NamedTuple):
    """What does not depend on gamma, at one t."""

    degrees: Array
    eta: Array
    signless: Array  # W'(D+A)
    laplacian: Array  # W(D-A)
    Z: Array  # (W'(D-A))^+ D_M, its symmetric part


class _Pieces(NamedTuple):
    """One t in the symmetric parts that L and mu multiply: P > u/sigma Z and X - pY > v/sigma D_M."""

    P: Array  # I + W'(D+A) D~^-1
    Z: Array
    X: Array  # W'(D+A) - W'(D+A) D~^-1 W(D-A)
    Y: Array  # W'(D+A) D~^-1 W'(D+A)
    sigma: float


def margins(
    topology: Topology, steps: Sequence[Stage], gamma: float, lipschitz: Array, constants: Constants
) -> Margins:
    """(i) and (ii) as printed, for given L and mu."""
    L, mu = constants
    signless, laplacian = _matrices(topology)
    D_M = np.diag(np.square(lipschitz))
    first, second = [], []
    for step in steps:
        W, W1 = np.diag(step.eta), np.diag(step.eta_next)
        D = 2 * step.eta * topology.degrees + gamma
        D_inv, u = np.diag(1 / D), L * mu / (2 * D.min())
        i = np.eye(topology.n) + W1 @ signless @ D_inv - u * np.linalg.pinv(W1 @ laplacian) @ D_M
        ii = W1 @ signless - W1 @ signless @ D_inv @ (W @ laplacian + 2 / L * W1 @ signless)
        ii -= L * mu / (2 * D.min() * (mu - 1)) * D_M
        first.append(np.linalg.eigvalsh(_symmetric(i))[0])
        second.append(np.linalg.eigvalsh(_symmetric(ii))[0])
    return Margins(float(min(first)), float(min(second)))


def best_constants(
    topology: Topology, steps: Sequence[Stage], gamma: float, lipschitz: Array
) -> Constants | None:
    """L and mu that satisfy (i) and (ii) at every t; None if there are none.

    With p = 2/L, u = L mu / 2 and v = L mu / (2 (mu-1)), so that p = 1/u + 1/v, the conditions read

        (i)   u < u_max = min_t sigma sup{a: P - a Z > 0}
        (ii)  v < phi(p) = min_t sigma lambda_min(D_M^-1/2 (X - p Y) D_M^-1/2).

    Larger u only helps, so they can be met if and only if max_p psi(p) = phi(p) - 1/(p - 1/u_max) > 0,
    p > 1/u_max.  phi is concave (a least eigenvalue of an affine function), hence psi is, and its maximum is
    found by bisection on its slope.
    """
    return _best(_fixed(topology, steps, lipschitz), gamma, lipschitz)


def _best(fixed: Sequence[_Fixed], gamma: float, lipschitz: Array) -> Constants | None:
    return _solve([_pieces(one, gamma) for one in fixed], 1.0 / np.asarray(lipschitz, float))


def smallest_gamma(
    topology: Topology, steps: Sequence[Stage], lipschitz: Array, constants: Constants | None = None
) -> float | None:
    """The smallest gamma >= 0 that meets (i) and (ii), for the best L and mu or for given ones; None if none does.

    Doubling upwards to 1e12 times the largest M_i, then bisection to a relative 1e-6.
    """
    if infeasible_for_every_gamma(topology, steps):
        return None

    fixed = _fixed(topology, steps, lipschitz)

    def met(gamma: float) -> bool:
        if constants is None:
            return _best(fixed, gamma, lipschitz) is not None
        return margins(topology, steps, gamma, lipschitz, constants).hold

    if met(0.0):
        return 0.0
    low, high = 0.0, 1e-6 * float(np.max(lipschitz))
    while not met(high):
        low, high = high, 2 * high
        if high > 1e12 * np.max(lipschitz):
            return None
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def infeasible_for_every_gamma(topology: Topology, steps: Sequence[Stage]) -> bool:
    """True on a bipartite graph with equal penalties: (ii) fails along the null vector z of D + A.

    There z'(X - pY)z = 0 whatever gamma, L and mu are, and -z' D_M z < 0.
    """
    return is_bipartite(topology) and any(np.ptp(step.eta_next) == 0 for step in steps)


def _matrices(topology: Topology) -> tuple[Array, Array]:
    """D + A and D - A, dense."""
    A = dense(topology)
    D = np.diag(topology.degrees.astype(float))
    return D + A, D - A


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2


def _fixed(topology: Topology, steps: Sequence[Stage], lipschitz: Array) -> list[_Fixed]:
    (signless, laplacian), found = _matrices(topology), []
    for step in steps:
        now, later = step.eta[:, None], step.eta_next[:, None]
        Z = _symmetric(np.linalg.pinv(later * laplacian) * np.square(lipschitz))
        found.append(_Fixed(topology.degrees, step.eta, later * signless, now * laplacian, Z))
    return found


def _pieces(fixed: _Fixed, gamma: float) -> _Pieces:
    D = 2 * fixed.eta * fixed.degrees + gamma
    over = fixed.signless / D  # W'(D+A) D~^-1
    X, Y = _symmetric(fixed.signless - over @ fixed.laplacian), _symmetric(over @ fixed.signless)
    return _Pieces(np.eye(len(D)) + _symmetric(over), fixed.Z, X, Y, float(D.min()))


def _solve(pieces: Sequence[_Pieces], scale: Array) -> Constants | None:
    u_max = min(piece.sigma * _largest_multiple(piece.P, piece.Z) for piece in pieces)
    if u_max <= 0:
        return None
    floor = 0.0 if np.isinf(u_max) else 1.0 / u_max
    active = sorted({0, len(pieces) - 1})
    while True:
        # phi over some of the t is above phi over all: no p there means no p at all.
        p, value = _best_p([pieces[t] for t in active], scale, floor)
        if value <= 0:
            return None
        phi = [_phi(piece, scale, p)[0] for piece in pieces]
        worst = int(np.argmin(phi))
        v_least = 1.0 / (p - floor)
        if phi[worst] > v_least:
            v = float(np.sqrt(v_least * phi[worst]))  # between what (i) and what (ii) ask for
            u = 1.0 / (p - 1.0 / v)
            return Constants(L=float(2.0 / p), mu=float(u * p))
        if worst in active:  # rounding: a maximum of zero
            return None
        active.append(worst)


def _largest_multiple(P: Array, Z: Array) -> float:
    """sup{a >= 0: P - a Z > 0}: lambda_min is concave in a, so the set is an interval."""
    values, vectors = np.linalg.eigh(P)
    if values[0] > 0:
        half = vectors / np.sqrt(values)
        top = np.linalg.eigvalsh(half.T @ Z @ half)[-1]
        return 1.0 / top if top > 0 else np.inf
    # P itself is not positive: look where lambda_min(P - a Z) is greatest, then outwards from there.
    a, value = _rise_above_zero(lambda a: _least(P - a * Z, -Z), 1.0)
    if value <= 0:
        return 0.0
    inside, outside = a, 2 * a
    while _least(P - outside * Z, -Z)[0] > 0:
        inside, outside = outside, 2 * outside
        if outside > 1e18 * a:
            return np.inf
    for _ in range(100):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if _least(P - middle * Z, -Z)[0] > 0 else (inside, middle)
    return inside


def _phi(piece: _Pieces, scale: Array, p: float) -> tuple[float, float]:
    """sigma lambda_min(D_M^-1/2 (X - pY) D_M^-1/2) and its slope in p."""
    value, slope = _least((piece.X - p * piece.Y) * np.outer(scale, scale), -piece.Y * np.outer(scale, scale))
    return piece.sigma * value, piece.sigma * slope


def _least(matrix: Array, derivative: Array) -> tuple[float, float]:
    """The least eigenvalue of a symmetric matrix and its derivative along `derivative`."""
    values, vectors = np.linalg.eigh(matrix)
    return float(values[0]), float(vectors[:, 0] @ derivative @ vectors[:, 0])


def _best_p(pieces: Sequence[_Pieces], scale: Array, floor: float) -> tuple[float, float]:
    """Where psi(p) = phi(p) - 1/(p - floor) is greatest, p > floor, and its value there."""

    def psi(s: float) -> tuple[float, float]:
        phi, slope = min(_phi(piece, scale, floor + s) for piece in pieces)
        return phi - 1.0 / s, slope + 1.0 / s**2

    s, value = _rise_above_zero(psi, floor or 1.0)
    return floor + s, value


def _rise_above_zero(function: Callable[[float], tuple[float, float]], near: float) -> tuple[float, float]:
    """Some s > 0 where a concave function is positive, and its value; if there is none, one where it is not.

    The function is given as s -> (value, slope).  Bisection of log s on the sign of the slope, from sixteen
    orders of magnitude around `near`; the tangents at both ends meet above the maximum, which tells early
    that it is not positive.
    """
    low, high = near * 1e-8, near * 1e8
    ends = [(low, *function(low)), (high, *function(high))]
    for _ in range(60):
        (low, rising, up), (high, falling, down) = ends
        if up <= 0 or down >= 0:  # the maximum lies at or beyond an end
            return (low, rising) if up <= 0 else (high, falling)
        meet = (falling - rising + up * low - down * high) / (up - down)
        if rising + up * (meet - low) <= 0:
            return low, rising
        s = float(np.sqrt(low * high))
        value, slope = function(s)
        if value > 0:
            return s, value
        ends[slope <= 0] = (s, value, slope)
    return s, value
