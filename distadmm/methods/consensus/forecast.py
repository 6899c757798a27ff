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
LARGEST = 1000  # nodes of a network that is followed: the cost grows with their square
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
    top = facts.ridge + facts.weight * facts.max_curvature / np.sqrt(d)
    h = np.geomspace(max(facts.ridge, 1e-3 * top), top, _MODES)
    c = np.sqrt(facts.weight * np.log(2) / (_MODES * h))
    mean = np.full(len(A), 1.0 / len(A))
    bias, variance = follow(A, h, c, noise, K, eta, gamma, phases, mean)
    return float(np.sum(0.5 * h * (bias**2 + d / _MODES * variance))) / facts.weight


def follow(
    A: Array, h: Array, c: Array, noise: Array, K: int, eta: float, gamma: float, phases: int, weights: Array
) -> tuple[Array, Array]:
    """Mean and variance of the error of weights.x after K solves, for each curvature h; x is a coordinate a node.

        odd    x+   = S (eta (V + A) x - 2 lam - e),   S = 1/(h + 2 eta V),   lam+ = lam + eta/2 (V - A) x+
        even   x++  = x+ - D (h x+ + e + 2 lam+ + eta (V - A) x+),   D = 1/(2 eta V + gamma)

    What reaches weights.x of the noise e of each solve is found by going backwards: p and q are how weights.x changes
    with x and with lam.
    """
    V = A.sum(axis=1)[:, None]
    S, D = 1.0 / (h + 2 * eta * V), 1.0 / (2 * eta * V + gamma)

    def apart(x: Array) -> Array:
        return V * x - A @ x

    x, lam = np.broadcast_to(-c, (len(A), len(h))), np.zeros((len(A), len(h)))
    for _ in range(K):
        x = S * (eta * (V * x + A @ x) - 2 * lam)
        lam = lam + eta / 2 * apart(x)
        if phases == 2:
            x = x - D * (h * x + 2 * lam + eta * apart(x))
    p, q = np.broadcast_to(weights[:, None], x.shape), np.zeros_like(x)
    variance = np.zeros(len(h))
    for _ in range(K):
        reach = np.zeros_like(x)
        if phases == 2:
            reach = -D * p
            p, q = p + h * reach + eta * apart(reach), q + 2 * reach
        r = S * (p + eta / 2 * apart(q))
        reach = reach - r
        p, q = eta * (V * r + A @ r), q - 2 * r
        variance = variance + noise @ reach**2
    return weights @ x, variance
