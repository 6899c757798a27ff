"""Epsilons that published code prints, and what its releases are worth, in code of our own from the equations alone.

Releases x^t = g^t + z^t with Cov(z^t) = S = sigma^2 I + c^2 L over the nodes, L the graph's Laplacian, z independent
over t.  Replacing what node i holds moves g_i^t by at most Delta = 2C, so T releases are exactly mu-Gaussian,
mu^2 = T Delta^2 max_i (S^-1)_ii; against a coalition Q that knows its own seeds, S is that of the graph without Q.
`docs/claims.md` says where each equation stands.
"""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from distadmm.privacy.accounting import curves, gaussian, pld

Array = np.ndarray
DELTA = 1e-5
NODES = 16


class Row(NamedTuple):
    """One line of the table."""

    who: str
    setting: str
    claimed: str
    found: str


def ring(n: int = NODES) -> Array:
    return np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)


def torus(side: int = 4) -> Array:
    return np.kron(ring(side), np.eye(side)) + np.kron(np.eye(side), ring(side))


def laplacian(A: Array) -> Array:
    return np.diag(A.sum(axis=1)) - A


def exposed(A: Array, sigma: float, c: float, colluding: int = 0) -> float:
    """max over coalitions Q and i outside of (S^-1)_ii, by enumeration; seeds of Q's edges are known."""
    worst = 0.0
    for Q in combinations(range(len(A)), colluding):
        honest = [i for i in range(len(A)) if i not in Q]
        S = sigma**2 * np.eye(len(honest)) + c**2 * laplacian(A[np.ix_(honest, honest)])
        worst = max(worst, float(np.diag(np.linalg.inv(S)).max()))
    return worst


def exact(T: int, C: float, worst: float) -> float:
    return gaussian.epsilon(2 * C * math.sqrt(T * worst), DELTA)


# -- DECOR: a step's Renyi rho = 2 C^2 (S^-1)_ii; in all T rho + 2 sqrt(T rho ln(1/delta)) -------------------


def converted(total_rho: float, delta: float = DELTA) -> float:
    return total_rho + 2 * math.sqrt(total_rho * math.log(1 / delta))


def rho_for(epsilon: float, delta: float = DELTA) -> float:
    """The total rho that is converted into epsilon."""
    return (math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))) ** 2


class Searched(NamedTuple):
    sigma: float
    c: float


def decor_search(A: Array, epsilon: float, T: int, C: float, stop: float = 1e-4) -> Searched:
    """The pair that the search finds: the least sigma of 50 for which some c of 1,000 does, by bisection, which ends
    where a step's rho is above its target by less than `stop`."""
    target = rho_for(epsilon) / T
    most = C * math.sqrt(2 / target)
    least = most / math.sqrt(len(A))
    grid = np.linspace(least / 1000, 10 * most, 1000)

    def rho(sigma: float, at: int) -> float:
        return 2 * C**2 * exposed(A, sigma, grid[at])

    for sigma in np.linspace(least, most, 50):
        low, high = 0, len(grid)
        while high - low > 1 and rho(sigma, high - 1) <= target:
            middle = low + (high - low) // 2
            found = rho(sigma, middle)
            if target < found < target + stop:
                return Searched(float(sigma), float(grid[middle]))
            low, high = (middle, high) if found > target else (low, middle)
        if high - low == 1:
            return Searched(float(sigma), float(grid[low]))
    raise AssertionError("the grid holds no such pair")


def frozen(T: int, C: float, sigma: float) -> float:
    """What composition proves where the pairwise noise is drawn once: differences of two steps have sigma's alone."""
    return exact(T, C, 1 / sigma**2)


def frozen_exposed(A: Array, sigma: float, c: float, signs: Array, i: int = 0) -> float:
    """(a x e_i)' Cov^-1 (a x e_i) for changes a_t = `signs` of node i's gradients, with frozen noise."""
    T, n = len(signs), len(A)
    cov = np.kron(np.eye(T), sigma**2 * np.eye(n)) + np.kron(np.ones((T, T)), c**2 * laplacian(A))
    moved = np.kron(signs, np.eye(n)[i])
    return float(moved @ np.linalg.solve(cov, moved))


def decor(epsilon: float, A: Array, T: int = 5000, C: float = 0.1) -> dict[str, float]:
    sigma, c = decor_search(A, epsilon, T, C)
    ran = T + 1  # steps 0 to T
    return {
        "own formula": converted(T * 2 * C**2 * exposed(A, sigma, c)),
        "fresh, an eavesdropper": exact(ran, C, exposed(A, sigma, c)),
        "fresh, one curious node": exact(ran, C, exposed(A, sigma, c, 1)),
        "frozen": frozen(ran, C, sigma),
    }


# -- PN-f-DP: rho of DECOR's Theorem 1 with n - 1 nodes, and mu of the same ----------------------------------


def bound(A: Array, own: float, pairwise: float) -> float:
    """1/((n-1) own) + (1 - 1/(n-1)) / (own + lambda_2 pairwise); the theorem's arguments are variances."""
    n, gap = len(A), float(np.sort(np.linalg.eigvalsh(laplacian(A)))[1])
    return 1 / ((n - 1) * own) + (1 - 1 / (n - 1)) / (own + gap * pairwise)


def pn_f_dp(epsilon: float, A: Array, C: float, T: int = 1000, power: int = 1) -> dict[str, float]:
    """sigma of the f-DP arm as it is matched to DECOR's; `power` = 1 hands deviations over, 2 variances."""
    least = C * math.sqrt(2 * T / rho_for(epsilon)) / math.sqrt(len(A))
    decors, c = decor_search(A, epsilon, T, C)
    target = converted(T * 2 * C**2 * bound(A, least**power, c**power))

    def mu(sigma: float) -> float:
        return math.sqrt(T) * C * math.sqrt(2 * bound(A, sigma**power, c**power))

    def over(sigma: float) -> float:
        return float(gaussian.hockey_stick(mu(sigma), target)) - DELTA

    sigma = float(brentq(over, 1e-2, 1000.0))
    return {
        "own target": target,
        "sigma beside DECOR's": sigma / decors,
        "exact": exact(T, C, exposed(A, sigma, c)),
    }


# -- Muffliato: alpha Delta^2/(2 sigma^2) sum_t sum_{w in N(v)} (W^t)_uw^2 / |W^t_w|^2 -----------------------


def uniform(A: Array) -> Array:
    """W of a regular graph: a node and its neighbours weigh the same."""
    return (A + np.eye(len(A))) / (A[0].sum() + 1)


def seen(W: Array, T: int, v: int) -> list[Array]:
    """What neighbours of v send it in T rounds, as combinations of the noisy values they began with."""
    return [np.linalg.matrix_power(W, t)[w] for t in range(T) for w in np.flatnonzero(W[v]) if w != v]


def summed(W: Array, T: int, v: int) -> Array:
    """The share of local privacy's mu^2 that v learns of each node, message added to message."""
    return np.sum([row**2 / (row @ row) for row in seen(W, T, v)], axis=0)


def jointly(W: Array, T: int, v: int) -> Array:
    """The same of all messages together: they share their noise, and v knows its own value."""
    B = np.array([np.eye(len(W))[v], *seen(W, T, v)])
    return np.diag(np.linalg.pinv(B) @ B)


def worth(shares: Array, epsilon: float) -> Array:
    """Epsilons of shares of the mu^2 that is worth `epsilon` to everybody."""
    mu = gaussian.mu_at(epsilon, DELTA)
    return np.array([gaussian.epsilon(mu * math.sqrt(min(share, 1.0)), DELTA) for share in shares])


# -- private ADMM: noise of deviation 2 L^2 T / (rho n^2) beside clip_L, each times lambda -------------------


def private_admm(
    epsilon: float, users: int = 100, n: int = 1000, T: int = 1000, L: float = 1.6
) -> dict[str, float]:
    """One participation of one user, seen through the sum of `users` of them; deviations are in units of lambda."""
    delta = 1e-6
    variance = 2 * L**2 * T / (rho_for(epsilon, delta) * n**2)  # of rho-zCDP, noise on the mean
    mu = 4 * L / (variance * math.sqrt(users))
    return {
        "deviation used": variance,
        "deviation meant": math.sqrt(variance),
        "mu": mu,
        "epsilon": gaussian.epsilon(mu, delta),
    }


# -- Whisper: DECOR's conversion for the sum of a batch, all rows counted in every round ---------------------


def whisper(epsilon: float, rows: int = 1628, batch: int = 128, T: int = 5000) -> float:
    """The same noise where each batch is drawn afresh, without replacement, and stays secret.

    A draw of m of B: H_gamma' <= m/B H_gamma at gamma' = 1 + m/B (gamma - 1), for a replaced record, both ways.
    """
    share, mu = batch / rows, math.sqrt(2 * rho_for(epsilon) / T)  # of one round
    eps = np.concatenate([[0.0], np.geomspace(1e-4 * mu, 9 * mu + mu**2 / 2, 400)])
    curve = curves.hull(np.log1p(share * np.expm1(eps)), share * gaussian.hockey_stick(mu, eps))
    return pld.epsilon([pld.Term(curves.joined(curve, curve), T + 1)], DELTA)


def whisper_without_sampling(epsilon: float, T: int = 5000) -> float:
    return gaussian.epsilon(math.sqrt(2 * rho_for(epsilon)) * math.sqrt((T + 1) / T), DELTA)


def dealt(A: Array, S: Array) -> bool:
    """Whether the covariance S needs a dealer: noise of edges' seeds is correlated between neighbours alone."""
    far = (A + np.eye(len(A))) == 0
    return bool(np.abs(S[far]).max(initial=0.0) > 1e-9 * np.abs(S).max())


# -- the table -----------------------------------------------------------------------------------------------


def table() -> list[Row]:
    rows = []
    for claimed in (3, 10, 20):
        found = decor(claimed, ring())
        said = ", ".join(f"{name} {value:.1f}" for name, value in list(found.items())[1:])
        rows.append(Row("DECOR", "ring", f"{claimed} (own formula {found['own formula']:.2f})", said))
    for name, A, C in (("ring", ring(), 1.5), ("torus", torus(), 5.0)):
        for claimed in (3, 10):
            wrong, mended = (pn_f_dp(claimed, A, C, power=power)["exact"] for power in (1, 2))
            rows.append(
                Row(
                    "PN-f-DP", name, f"{claimed}", f"{wrong:.1f}; with variances, factor 2 left: {mended:.1f}"
                )
            )
    W = uniform(ring(6))
    told = f"share of mu^2: {jointly(W, 2, 0)[2]:.3f}"
    rows.append(Row("Muffliato", "ring of 6, 2 rounds", f"share of mu^2: {summed(W, 2, 0)[2]:.3f}", told))
    W = uniform(ring())
    sums, true = (worth(each(W, 15, 0)[1:], 3.0) for each in (summed, jointly))
    rows.append(
        Row(
            "Muffliato", "ring, 15 rounds, local 3", f"mean {sums.mean():.1f}", f"every node {true.min():.1f}"
        )
    )
    found = private_admm(5.0)
    rows.append(
        Row("private ADMM", "sum of 100 users", "5", f"{found['epsilon']:.0f} (mu {found['mu']:.1f})")
    )
    found = private_admm(0.01)
    more = found["deviation used"] / found["deviation meant"]
    rows.append(Row("private ADMM", "noise", "0.01", f"{more:.0f} times the deviation meant"))
    for claimed in (3, 10, 40):
        rows.append(Row("Whisper", "batches secret", f"{claimed}", f"at most {whisper(claimed):.2f}"))
    return rows


def lines() -> list[str]:
    """As they stand in docs/claims.md."""
    return [f"| {row.who} | {row.setting} | {row.claimed} | {row.found} |" for row in table()]
