"""Interior-point Newton steps on the columns x_u = p(u|.) of a mapping, coupled only by sum_u x_u = 1.

Maximises  sum_u G(x_u) + mu sum log(x - eps),  where G is either the objective of eq. (1) itself or its
surrogate (10), I(S;U) replaced by its tangent, in which P_U = P^T P_Y is eliminated.  Either way

    -G'' = beta (diag(D t^2) - v p^T - p v^T + sum(D) p p^T) - theta (J^T diag(1/c) J - p p^T / m),
    D = p f''(t)/x,   v = D t,   m = p.x,   c = J x,   J = p(s,y),   theta = 1 or, for (10), 0,

a diagonal and a matrix of rank |S|+2 a column, so a step costs K|Y|^2 and one |Y| x |Y| system.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.objective import Array, Objective

THINNEST = 1e-14  # barrier
TO_THE_WALL = 0.995  # of the way to a bound, at most


class _Blocks(NamedTuple):
    """B_u = diag(d_u) + W_u M_u W_u^T for every column u."""

    d: Array  # (K, Y)
    W: Array  # (K, Y, r)
    M: Array  # (K, r, r)
    M_inverse: Array

    def times(self, X: Array) -> Array:
        inner = np.matmul(self.M, np.matmul(self.W.transpose(0, 2, 1), X[..., None]))
        return self.d * X + np.matmul(self.W, inner)[..., 0]

    def factor(self) -> tuple[Array, Array]:
        """W/d and the capacitance M^-1 + W^T W/d."""
        L = self.W / self.d[..., None]
        return L, self.M_inverse + np.matmul(self.W.transpose(0, 2, 1), L)

    def positive_definite(self) -> Array:
        """By inertia: B > 0 iff the capacitance has as many positive eigenvalues as M^-1."""
        _, capacitance = self.factor()
        symmetric = 0.5 * (capacitance + capacitance.transpose(0, 2, 1))
        positive = (np.linalg.eigvalsh(symmetric) > 0).sum(-1)
        return positive == (np.linalg.eigvalsh(self.M_inverse) > 0).sum(-1)


def _blocks(objective: Objective, X: Array, barrier: Array, theta: Array) -> _Blocks:
    problem, K = objective.problem, len(X)
    p, J = problem.P_Y, problem.joint
    m, c = X @ p, X @ J.T
    t = m[:, None] / X
    D = objective.beta * p * objective.measure.f2(t) / X
    S = len(J)
    W = np.empty((K, len(p), S + 2))
    W[:, :, 0], W[:, :, 1], W[:, :, 2:] = D * t, p, J.T
    theta = np.maximum(theta, 1e-12)
    sigma = D.sum(1) + theta / m
    M, M_inverse = np.zeros((K, S + 2, S + 2)), np.zeros((K, S + 2, S + 2))
    M[:, 0, 1] = M[:, 1, 0] = M_inverse[:, 0, 1] = M_inverse[:, 1, 0] = -1.0
    M[:, 1, 1], M_inverse[:, 0, 0] = sigma, -sigma
    index = np.arange(2, S + 2)
    M[:, index, index], M_inverse[:, index, index] = -theta[:, None] / c, -c / theta[:, None]
    return _Blocks(D * t * t + barrier, W, M, M_inverse)


class Climb(NamedTuple):
    P: Array
    F: float  # of G, that is of (10) when there was a tangent
    steps: int
    a: Array  # the multipliers of the rows' sums, divided by p(y)
    price: Array  # per column, what one more unit of its lower bound costs of G


def _worth(objective: Objective, P: Array, tangent: Array | None) -> tuple[float, Array]:
    """G and its gradient by p(u|y), divided by p(y)."""
    value = objective(P)
    if tangent is None:
        return float(value.F), value.g
    p = objective.problem.P_Y[:, None]
    a = objective.problem.P_Y @ P
    t = a / P
    pull = objective.measure.h(t) + objective.problem.P_Y @ objective.measure.f1(t)
    return float((p * P * tangent).sum() - objective.beta * value.E), tangent - objective.beta * pull


def climb(
    objective: Objective,
    P: Array,
    eps: float | Array,
    *,
    tangent: Array | None = None,
    mu: float = 1e-5,
) -> Climb:
    """At most 100 Newton steps from the mapping P[y, u] >= eps (rows of any common sum) while the barrier falls.

    `eps` may differ from column to column.

    `tangent` = A^T log(p(s|u)/p(s)) at some mapping asks for (10), the surrogate that is tangent there.
    """
    p = objective.problem.P_Y
    total, K = P.sum(1, keepdims=True), P.shape[1]
    room = total - np.broadcast_to(eps, (K,)).sum()
    Z = np.maximum(P - eps, 1e-6 * room / K)
    Z *= room / Z.sum(1, keepdims=True)
    P = eps + Z
    V, nu = mu / Z, np.zeros(len(p))
    full = np.full(K, 0.0 if tangent is not None else 1.0)
    G, g = _worth(objective, P, tangent)
    rows = np.arange(len(P))
    k = 0
    while k < 100:
        k += 1
        try:
            direction, nu = _newton_direction(objective, P, V / Z, p[:, None] * g + mu / Z, full)
        except np.linalg.LinAlgError:  # singular to working precision: as far as Newton goes
            break
        direction[rows, Z.argmax(1)] -= direction.sum(1)  # exactly along the constraint
        dual = mu / Z - V - V / Z * direction
        slope = float(((p[:, None] * g + mu / Z) * direction).sum())
        length = _to_the_wall(Z, direction)
        start = G + mu * np.log(Z).sum()
        while True:
            Z_new = Z + length * direction
            G_new, g_new = _worth(objective, eps + Z_new, tangent)
            if G_new + mu * np.log(Z_new).sum() >= start + 1e-4 * length * slope - 1e-15 or length < 1e-10:
                break
            length *= 0.5
        Z, G, g = Z_new, G_new, g_new
        P = eps + Z
        V = V + min(1.0, _to_the_wall(V, dual)) * dual
        complement = float((Z * V).mean())
        if mu <= THINNEST and slope < 1e-13:
            break
        mu = max(THINNEST, min(mu, 0.1 * complement if length > 0.9 else 0.7 * complement))
    return Climb(P * (total / P.sum(1, keepdims=True)), G, k, nu / p, V.sum(0))


def _newton_direction(
    objective: Objective, P: Array, barrier: Array, force: Array, full: Array
) -> tuple[Array, Array]:
    X, r = P.T, force.T
    blocks = _blocks(objective, X, barrier.T, full)
    if full.any():
        full = full * blocks.positive_definite()
        blocks = _blocks(objective, X, barrier.T, full)
    L, capacitance = blocks.factor()
    LC = np.matmul(L, np.linalg.inv(capacitance))
    schur = np.diag((1 / blocks.d).sum(0)) - np.tensordot(LC, L, axes=((0, 2), (0, 2)))

    def solve(v: Array) -> Array:
        return v / blocks.d - np.matmul(LC, np.matmul(L.transpose(0, 2, 1), v[..., None]))[..., 0]

    direction, nu = np.zeros_like(r), np.zeros(r.shape[1])
    for _ in range(3):  # every column is nearly free along itself, so the first solution is refined
        left = r - blocks.times(direction) - nu
        change = np.linalg.solve(schur, solve(left).sum(0) + direction.sum(0))
        direction, nu = direction + solve(left - change), nu + change
    return direction.T, nu


def _to_the_wall(Z: Array, direction: Array) -> float:
    down = direction < 0
    return min(1.0, TO_THE_WALL * float((-Z[down] / direction[down]).min())) if down.any() else 1.0
