"""Renyi curves on one fixed grid of orders: what a filter adds up, and what they say in (epsilon, delta).

A curve is an upper bound of the Renyi divergence of every order in `ORDERS`, in both directions, rounded up.
Curves of adaptive releases add.
"""

from __future__ import annotations

import numpy as np

from distadmm.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    Event,
    Gaussian,
    Leakage,
    PostProcessing,
    Unbounded,
)

Array = np.ndarray

#: Orders a with a - 1 from 0.1 to 4000 in equal ratios of 1.28: what falls between two costs < 0.5 %.
ORDERS: Array = 1.0 + np.round(np.geomspace(0.1, 4000.0, 44), 3)
ORDERS.setflags(write=False)

# Relative slack on every closed form: some hundred roundings of double precision.
_SLACK = 1e-13


def curve(event: Event, orders: Array, adjacency: Adjacency) -> Array:
    """The Renyi curve of all releases of `event` at `orders`."""
    orders = np.asarray(orders, dtype=float)
    if isinstance(event, (PostProcessing, Leakage)):
        return np.zeros_like(orders)
    if isinstance(event, Unbounded):
        return np.full_like(orders, np.inf)
    if isinstance(event, Gaussian):
        return _up(event.count * orders / (2 * event.noise_multiplier**2))
    if isinstance(event, DiscreteGaussian):
        # Canonne, Kamath and Steinke (2020): the zCDP of the continuous Gaussian holds on the integers.
        return _up(event.count * orders * (event.sensitivity_grid / event.sigma_grid) ** 2 / 2)
    single = event.single().pure_epsilon(adjacency)
    return _up(event.releases * of_pure(single, orders))


def of_pure(epsilon: float, orders: Array) -> Array:
    """Randomised response, which dominates every epsilon-DP mechanism:
    ln[cosh((a - 1/2) eps) / cosh(eps / 2)] / (a - 1)."""
    if np.isinf(epsilon):
        return np.full_like(orders, np.inf)
    x, y = (orders - 0.5) * epsilon, 0.5 * epsilon
    large = np.logaddexp(x, -x) - np.logaddexp(y, -y)
    # cosh x - cosh y as a product: nothing cancels for small epsilon.
    z = np.minimum(x, 30.0)
    small = np.log1p(2 * np.sinh((z + y) / 2) * np.sinh((z - y) / 2) / np.cosh(min(y, 30.0)))
    return np.where(x < 1.0, small, large) / (orders - 1)


def _up(values: Array) -> Array:
    return np.nextafter(values * (1 + _SLACK), np.inf)
