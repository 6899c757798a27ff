"""Regularisers R(x) = l1 |x|_1 + l2/2 |x|^2 and the convex sets X_m a model may be kept in."""

from dataclasses import dataclass

import numpy as np

from distadmm.errors import require

Array = np.ndarray


@dataclass(frozen=True)
class Regulariser:
    """R(x) = l1 |x|_1 + l2/2 |x|^2: l2 is (0, 1), l1 is (1, 0), the elastic net (alpha, 1 - alpha)."""

    l1: float = 0.0
    l2: float = 1.0

    def __post_init__(self) -> None:
        require(
            self.l1 >= 0 and self.l2 >= 0 and self.l1 + self.l2 > 0,
            f"regulariser weights are l1={self.l1:g}, l2={self.l2:g}; needed: both >= 0 and one of them > 0",
        )

    def value(self, x: Array) -> float:
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


def regulariser_named(text: str) -> Regulariser:
    """`l2`, `l1` or `enet:ALPHA`."""
    name, _, alpha = text.partition(":")
    if name == "l2" and not alpha:
        return Regulariser(0.0, 1.0)
    if name == "l1" and not alpha:
        return Regulariser(1.0, 0.0)
    share = _numbers(alpha, 1) if name == "enet" else None
    require(
        share is not None and 0 <= share[0] <= 1,
        f"--reg is {text!r}; choose one of: l2, l1, enet:ALPHA with ALPHA in [0, 1]",
    )
    assert share is not None
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
    require(False, f"--region is {text!r}; choose one of: whole, box:LOW:HIGH, ball:RADIUS")
    raise AssertionError


def _numbers(text: str, count: int) -> list[float] | None:
    try:
        values = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    return values if len(values) == count else None
