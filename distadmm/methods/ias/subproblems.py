"""The two sub-problems of Algorithm 1, solved exactly and for a whole batch at once.

Row y, eq. (20), has for every u the optimality condition G(x) = nu or x = eps with G(x) <= nu, where

    G(x) = -beta h(a/x) - D - lam + rho (a - r - w x),    w = p(y),   r = sum of p(y') p(u|y') over y' != y,

falls in x.  P_U, eq. (21), is one scalar root per u of

    -beta sum_y p(y) f'(a/x_y) + lam - rho (a - m) = 0,   m = sum_y p(y) x_y,   falling in a.
"""

from __future__ import annotations

import numpy as np

from distadmm.methods.ias.measures import Measure

Array = np.ndarray
PRECISION = 1e-14


def solve_row(
    measure: Measure, beta: float, a: Array, drift: Array, pull: Array, eps: float, start: Array
) -> Array:
    """The row x >= eps of sum one with -beta h(a/x) + drift - pull x = nu off the bound, for each of a batch.

    `drift` = -D - lam + rho (a - r) and `pull` = rho w > 0; Newton on (x, nu) together, its step kept within
    [x/5, max(4x, 1/4)]; bisection on nu where that has not settled.
    """
    K = start.shape[-1]
    if eps * K >= 1 - 1e-12:
        return np.full_like(start, 1 / K)
    x = np.maximum(start, eps)
    x = x / x.sum(-1, keepdims=True)
    residual = np.full(x.shape[:-1], np.inf)
    for _ in range(60):
        t = a / x
        G = drift - beta * measure.h(t) - pull * x
        H = beta * t * t * measure.f2(t) / x + pull
        held = np.zeros(x.shape, dtype=bool)
        for _ in range(K):  # the bound entries are those that the multiplier of the others pushes down
            free = np.where(held, 0.0, 1 / H)
            nu = ((free * G).sum(-1) + np.where(held, eps, x).sum(-1) - 1) / free.sum(-1)
            new_held = held | ((x <= eps) & (nu[..., None] > G))
            if np.array_equal(new_held, held):
                break
            held = new_held
        residual = np.abs(np.where(held, 0.0, (G - nu[..., None]) / H)).max(-1)
        move = np.where(held, eps - x, (G - nu[..., None]) / H)
        x = np.maximum(np.clip(x + move, 0.2 * x, np.maximum(4 * x, 0.25)), eps)
        if (residual <= PRECISION).all():
            break
    off = (residual > 1e-10) | (np.abs(x.sum(-1) - 1) > 1e-12)
    if off.any():
        x = np.where(off[..., None], _row_by_bisection(measure, beta, a, drift, pull, eps, K), x)
    return x


def _row_by_bisection(
    measure: Measure, beta: float, a: Array, drift: Array, pull: Array, eps: float, K: int
) -> Array:
    """The same row, slowly and surely: bisection on nu, and within it on every x."""

    def G(x: Array) -> Array:
        return drift - beta * measure.h(a / x) - pull * x

    def row(nu: Array) -> Array:
        low, high = np.full(drift.shape, np.log(eps)), np.zeros(drift.shape)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = G(np.exp(middle)) > nu[..., None]
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.exp(0.5 * (low + high))

    one = np.ones_like(drift)
    nu_low, nu_high = G(one).min(-1), G(eps * one).max(-1)
    for _ in range(100):
        nu = 0.5 * (nu_low + nu_high)
        large = row(nu).sum(-1) > 1
        nu_low, nu_high = np.where(large, nu, nu_low), np.where(large, nu_high, nu)
    x = np.maximum(row(0.5 * (nu_low + nu_high)), eps)
    free = x > eps * (1 + 1e-9)
    return np.where(free, x * ((1 - eps * (~free).sum(-1)) / np.where(free, x, 0).sum(-1))[..., None], eps)


def solve_marginal(
    measure: Measure, beta: float, p: Array, P: Array, lam: Array, rho: float, m: Array, start: Array
) -> Array:
    """p(u) > 0 of eq. (21), unconstrained: Newton within a bracket that every step narrows.

    Where f'(0+) is finite (Le Cam) the root may not exist: then p(u) is the smallest number of the bracket.
    """
    low, high = np.full_like(start, SMALLEST), np.maximum(start, 1.0)

    def slope(a: Array) -> Array:
        return lam - rho * (a - m) - beta * np.matmul(p, measure.f1(a[..., None, :] / P))

    while True:
        rising = slope(high) > 0
        if not rising.any():
            break
        low, high = np.where(rising, high, low), np.where(rising, 2 * high, high)
    a = np.clip(start, low, high)
    for _ in range(100):
        s = slope(a)
        low, high = np.where(s >= 0, a, low), np.where(s <= 0, a, high)
        curve = rho + beta * np.matmul(p, measure.f2(a[..., None, :] / P) / P)
        newton = a + s / curve
        inside = (newton > low) & (newton < high)
        new = np.where(inside, newton, np.sqrt(low * high))
        if (np.abs(new - a) <= PRECISION * np.abs(a)).all():
            break
        a = new
    return new


SMALLEST = 1e-30
