"""Regularisers R(x) = l1 |x|_1 + l2/2 |x|^2, folded or not, and the convex sets X_m a model may be kept in."""

from dataclasses import dataclass

import numpy as np

from distadmm.errors import InputError, require
from distadmm.problems.concave import MCP, SCAD, Array


@dataclass(frozen=True)
class Regulariser:
    """R(x) = l1 |x|_1 + l2/2 |x|^2: l2 is (0, 1), l1 is (1, 0), the elastic net (alpha, 1 - alpha).

    `folded`: a concave penalty of slope 1 at zero, whose own value and proximal map then count; it is l1 |x|_1 less
    a convex function, and `bend` is the slope of that.
    """

    l1: float = 0.0
    l2: float = 1.0
    folded: MCP | SCAD | None = None

    def __post_init__(self) -> None:
        require(
            self.l1 >= 0 and self.l2 >= 0 and self.l1 + self.l2 > 0,
            f"regulariser weights are l1={self.l1:g}, l2={self.l2:g}; needed: both >= 0 and one of them > 0",
        )

    @property
    def dent(self) -> float:
        """What R lacks of being convex: R + dent/2 |x|^2 is."""
        return self.folded.dent if self.folded else 0.0

    def bend(self, x: Array) -> Array:
        if not self.folded:
            return np.zeros_like(x)
        return np.sign(x) - np.sign(np.abs(x)) * self.folded.derivatives(x)[0]

    def subgradient(self, x: Array) -> Array:
        return self.l1 * np.sign(x) + self.l2 * x - self.bend(x)

    def prox(self, v: Array, step: float) -> Array:
        """argmin_x |x - v|^2/2 + step R(x)."""
        if self.folded:
            return self.folded.prox(v, step)
        return np.copysign(np.maximum(np.abs(v) - step * self.l1, 0.0), v) / (1.0 + step * self.l2)

    def value(self, x: Array) -> float:
        if self.folded:
            return self.folded.value(x)
        return self.l1 * float(np.abs(x).sum()) + 0.5 * self.l2 * float(x @ x)


@dataclass(frozen=True)
class Whole:
    """No constraint."""


@dataclass(frozen=True)
class Box:
    """low <= x_j <= high for every j."""

    low: float
    high: float

    def __post_init__(self) -> None:
        require(
            self.low <= 0 <= self.high and self.low < self.high,
            f"box is [{self.low:g}, {self.high:g}]; needed: low <= 0 <= high, so that x = 0 is allowed",
        )


@dataclass(frozen=True)
class Ball:
    """|x|_2 <= radius."""

    radius: float

    def __post_init__(self) -> None:
        require(self.radius > 0, f"ball radius is {self.radius:g}; needed: a radius > 0")


Region = Whole | Box | Ball


def into(region: Region, x: Array) -> Array:
    """The nearest point of the region."""
    if isinstance(region, Box):
        return np.clip(x, region.low, region.high)
    norm = float(np.linalg.norm(x)) if isinstance(region, Ball) else 0.0
    return x * (region.radius / norm) if isinstance(region, Ball) and norm > region.radius else x


def regulariser_named(text: str) -> Regulariser:
    """`l2`, `l1`, `enet:ALPHA`, `mcp` or `scad`, these with :REACH or without."""
    name, _, alpha = text.partition(":")
    if name in (MCP.name, SCAD.name):
        kind = MCP if name == MCP.name else SCAD
        reach = _numbers(alpha, 1) if alpha else [kind.alpha]
        if reach is None or not reach[0] > kind.least:
            raise InputError(
                f"--reg is {text!r}; needed: {name}:REACH, from where on it is flat, above {kind.least:g} (default "
                f"{kind.alpha:g})"
            )
        return Regulariser(1.0, 0.0, kind(1.0, reach[0]))
    if name == "l2" and not alpha:
        return Regulariser(0.0, 1.0)
    if name == "l1" and not alpha:
        return Regulariser(1.0, 0.0)
    share = _numbers(alpha, 1) if name == "enet" else None
    if share is None or not 0 <= share[0] <= 1:
        raise InputError(
            f"--reg is {text!r}; choose one of: l2, l1, enet:ALPHA with ALPHA in [0, 1], mcp, scad"
        )
    return Regulariser(share[0], 1.0 - share[0])


def region_named(text: str) -> Region:
    """`whole`, `box:LOW:HIGH` or `ball:RADIUS`."""
    name, _, rest = text.partition(":")
    if name == "whole" and not rest:
        return Whole()
    if name == "box" and (bounds := _numbers(rest, 2)):
        return Box(*bounds)
    if name == "ball" and (radius := _numbers(rest, 1)):
        return Ball(*radius)
    raise InputError(f"--region is {text!r}; choose one of: whole, box:LOW:HIGH, ball:RADIUS")


def _numbers(text: str, count: int) -> list[float] | None:
    try:
        values = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    return values if len(values) == count else None
