"""Sums over many steps of a linear recursion y <- T y, in as many products as their number has digits.

    T^k,   G_k = sum_{t < k} (T^t)' Q T^t,   S_k = sum_{t < k} T^t:     from k to 2k, and from k to k + 1

The weights of a mean over K steps, w_t ~ t (t + 1) ... (t + s - 1) with whole s (`consensus.smoothing`), follow such a
recursion themselves: with o_j(t) = C(t + j - 1, j), o_j(t - 1) = o_j(t) - o_{j-1}(t), and w_t = o_s(t)/C(K + s, s + 1).
"""

import math

import numpy as np

Array = np.ndarray

WHOLE = 8  # powers of weights up to this one are summed by doubling


def summable(power: float | None) -> bool:
    """Whether weights that grow with this power of t have such a recursion."""
    return power is None or (power == int(power) and 0 <= power <= WHOLE)


def doubled(T: Array, Q: Array, count: int) -> tuple[Array, Array, Array]:
    """T^count, G and S of stacked matrices."""
    one = np.broadcast_to(np.eye(T.shape[-1]), T.shape)
    P, G, S = one, np.zeros_like(T), np.zeros_like(T)
    for digit in bin(count)[2:]:
        G, S, P = G + P.swapaxes(-1, -2) @ G @ P, S + S @ P, P @ P
        if digit == "1":
            G, S, P = Q + T.swapaxes(-1, -2) @ G @ T, one + T @ S, P @ T
    return P, G, S


def weighing(power: float | None, count: int) -> tuple[Array, Array]:
    """How o moves from t to t - 1, and o(count), whose last entry is the weight; nothing where the last step is all."""
    if power is None:
        return np.zeros((0, 0)), np.zeros(0)
    s = int(power)
    whole = math.comb(count + s, s + 1)
    return np.eye(s + 1) - np.eye(s + 1, k=-1), np.array(
        [math.comb(count + j - 1, j) / whole for j in range(s + 1)]
    )
