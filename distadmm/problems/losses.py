"""Losses of one prediction z against one target y, applied to whole arrays.

Each loss is a function l(z; y) convex in z with three members to implement:

    value(z, y)       l(z; y)
    slope(z, y)       l'(z; y), the derivative in z
    curvature(z, y)   l''(z; y)

and three public constants: `max_slope` and `max_curvature` bound |l'| and l'' for |y| = 1 (infinite where
there is no bound), `one_signed` says that l' has one sign for each record, whatever z is.  Privacy theorems
need these bounds; a loss that lies about them voids its guarantee.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from distadmm.structs import struct

Array = np.ndarray


class Loss(Protocol):
    max_slope: float
    max_curvature: float
    one_signed: bool
    labels: bool  # targets are exactly -1 or +1

    def value(self, z: Array, y: Array) -> Array: ...

    def slope(self, z: Array, y: Array) -> Array: ...

    def curvature(self, z: Array, y: Array) -> Array: ...


@struct
class Logistic:
    """log(1 + exp(-y z)); |l'| <= 1, l'' <= 1/4."""

    max_slope = 1.0
    max_curvature = 0.25
    one_signed = True
    labels = True

    def value(self, z: Array, y: Array) -> Array:
        margin = y * z
        # log1p(exp(-|m|)) never overflows, and max(-m, 0) puts back what |m| took away.
        return np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0)

    def slope(self, z: Array, y: Array) -> Array:
        return -y * _sigmoid(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        sigma = _sigmoid(z)
        return sigma * (1.0 - sigma)


@struct
class HuberHinge:
    """The hinge max(0, 1 - y z) with its kink rounded over a margin of 1 -+ `width`; l'' <= 1/(2 width)."""

    width: float = 0.5
    max_slope = 1.0
    one_signed = True
    labels = True

    @property
    def max_curvature(self) -> float:
        return 0.5 / self.width

    def value(self, z: Array, y: Array) -> Array:
        short = 1.0 + self.width - y * z  # how far the margin falls short of the flat part
        return np.where(
            short <= 0.0,
            0.0,
            np.where(short >= 2 * self.width, 1.0 - y * z, short * short / (4 * self.width)),
        )

    def slope(self, z: Array, y: Array) -> Array:
        return -y * np.clip((1.0 + self.width - y * z) / (2 * self.width), 0.0, 1.0)

    def curvature(self, z: Array, y: Array) -> Array:
        return np.where(np.abs(1.0 - y * z) < self.width, 0.5 / self.width, 0.0)


@struct
class Squared:
    """(z - y)^2 / 2; the slope has no bound and no fixed sign, so no privacy theorem here covers it."""

    max_slope = float("inf")
    max_curvature = 1.0
    one_signed = False
    labels = False

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * (z - y) ** 2

    def slope(self, z: Array, y: Array) -> Array:
        return z - y

    def curvature(self, z: Array, y: Array) -> Array:
        return np.ones_like(z)


def _sigmoid(z: Array) -> Array:
    # exp(-|z|) <= 1 for every z, so neither branch can overflow.
    decay = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, decay) / (1.0 + decay)
