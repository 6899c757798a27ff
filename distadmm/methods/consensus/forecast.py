"""How far from the optimum a noisy run will end, from the graph and public constants alone.

Along a direction of curvature h all nodes have O_i(f) = h/2 (f - c)^2, the noise has variance v_i, and the
iteration is linear: mean and covariance of the error follow exactly.  The curvatures h run from the ridge to that of
the heaviest direction; c is such that all directions together lower the loss by half of C ln 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distadmm.algorithm import Facts

Array = np.ndarray
LARGEST = 100  # nodes of a network that is followed: the cost grows with their cube
_MODES = 8  # curvatures at which the recursion is followed


def adjacency(network: Any) -> Array | None:
    """The graph on rank 0, put together from what each rank knows of it; None elsewhere."""
    edges = (np.repeat(network.nodes, np.diff(network.indptr)), network.indices)
    gathered = network.world.gather(edges)
    if gathered is None:
        return None
    A = np.zeros((network.n_nodes, network.n_nodes))
    for rows, columns in gathered:
        A[rows, columns] = 1.0
    return A


def expected_excess(
    A: Array, facts: Facts, d: int, noise: Array, K: int, eta: float, gamma: float, phases: int
) -> float:
    """Expected excess of the mean model's mean loss after K solves; `noise` is the variance at each node."""
    V = np.diag(A.sum(axis=1))
    top = facts.ridge + facts.weight * facts.max_curvature / np.sqrt(d)
    excess = 0.0
    for h in np.geomspace(max(facts.ridge, 1e-3 * top), top, _MODES):
        c = np.sqrt(facts.weight * np.log(2) / (_MODES * h))
        bias, covariance = follow(A, V, h, c, noise, K, eta, gamma, phases)
        ones = np.ones(len(A)) / len(A)
        excess += 0.5 * h * (float(ones @ bias) ** 2 + d / _MODES * float(ones @ covariance @ ones))
    return excess / facts.weight


def follow(
    A: Array, V: Array, h: float, c: float, noise: Array, K: int, eta: float, gamma: float, phases: int
) -> tuple[Array, Array]:
    """Mean and covariance of the models' errors; state (x, lambda), one coordinate a node."""
    n = len(A)
    identity, zero = np.eye(n), np.zeros((n, n))
    solve = np.linalg.inv(h * identity + 2 * eta * V)
    # Odd: x+ = solve (eta (V + A) x - 2 lam - e),  lam+ = lam + eta/2 (V - A) x+
    x_plus = np.hstack([eta * solve @ (V + A), -2 * solve])
    x_noise = -solve
    step = np.vstack([x_plus, np.hstack([zero, identity]) + eta / 2 * (V - A) @ x_plus])
    kick = np.vstack([x_noise, eta / 2 * (V - A) @ x_noise])
    if phases == 2:
        # Even: x++ = x+ - (h x+ + e + 2 lam+ + eta (V - A) x+) / (2 eta V + gamma)
        damp = np.linalg.inv(2 * eta * V + gamma * identity)
        even = np.block([[identity - damp @ (h * identity + eta * (V - A)), -2 * damp], [zero, identity]])
        step, kick = even @ step, even @ kick + np.vstack([-damp, zero])
    mean = np.concatenate([np.full(n, -c), np.zeros(n)])
    covariance = np.zeros((2 * n, 2 * n))
    for _ in range(K):
        mean = step @ mean
        covariance = step @ covariance @ step.T + kick @ np.diag(noise) @ kick.T
    return mean[:n], covariance[:n, :n]
