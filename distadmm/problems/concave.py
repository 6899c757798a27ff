"""Folded concave penalties and their exact proximal maps, for every step.

Each penalty is R(theta) = sum_i phi(theta_i) with phi(0) = 0, slope `lam` at zero, and (except l1) flat
beyond alpha * lam.  `derivatives(theta)` gives phi' and phi'' away from zero.  `prox(s, step)` returns, for
each entry of s, a global minimiser of

    h(t) = (t - s)^2 / 2 + step * phi(t).

When the step is short, h is convex and the map is continuous.  When it is long, h is not, the map jumps,
and the jump lies where the two best pieces of h cost the same; the closed forms below are those crossings.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from distadmm.errors import InputError, require

Array = np.ndarray


class Penalty(Protocol):
    """What the solvers ask of a penalty."""

    @property
    def lam(self) -> float: ...

    def value(self, theta: Array) -> float: ...

    def derivatives(self, theta: Array) -> tuple[Array, Array]: ...

    def prox(self, s: Array, step: float) -> Array: ...


@dataclass(frozen=True)
class _Folded:
    """A penalty of slope `lam` at zero whose reach, alpha lam, is more than `least` times it."""

    lam: float
    alpha: float
    name: ClassVar[str]
    least: ClassVar[float]

    def __post_init__(self) -> None:
        _require_lambda(self.lam)
        needed = f"the penalty {self.name} needs alpha > {self.least:g}"
        require(self.alpha > self.least, f"the reach, alpha, is {self.alpha:g}; {needed} (--reach)")


@dataclass(frozen=True)
class MCP(_Folded):
    """Minimax concave penalty: phi(t) = lam |t| - t^2 / (2 alpha) up to |t| = alpha lam, then alpha lam^2 / 2."""

    alpha: float = 3.0
    name: ClassVar[str] = "mcp"
    least: ClassVar[float] = 1

    def value(self, theta: Array) -> float:
        # lam m - m^2/(2 alpha) at m = min(|t|, alpha lam) is alpha lam^2/2 on the flat part.
        m = np.minimum(np.abs(theta), self.alpha * self.lam)
        return float(self.lam * m.sum() - m @ m / (2 * self.alpha))

    @property
    def dent(self) -> float:
        """How far the second derivative falls below 0."""
        return 1.0 / self.alpha

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        left = self.lam - np.abs(theta) / self.alpha
        return np.copysign(np.maximum(left, 0.0), theta), np.where(left > 0, -1.0 / self.alpha, 0.0)

    def prox(self, s: Array, step: float) -> Array:
        lam, alpha = self.lam, self.alpha
        size = np.abs(s)
        if step >= alpha:  # h is concave between 0 and alpha lam: hard threshold
            return np.where(size > lam * np.sqrt(step * alpha), s, 0.0)
        shrunk = np.maximum(size - step * lam, 0.0) * (alpha / (alpha - step))
        # `shrunk` passes |s| exactly where |s| passes alpha lam.
        return np.copysign(np.minimum(shrunk, size), s)


@dataclass(frozen=True)
class SCAD(_Folded):
    """Smoothly clipped absolute deviation: slope lam up to lam, then falling to 0 at alpha lam; alpha > 2."""

    alpha: float = 3.7
    name: ClassVar[str] = "scad"
    least: ClassVar[float] = 2

    def value(self, theta: Array) -> float:
        size = np.abs(theta)
        # The slope is lam minus (size - lam) / (alpha - 1) once size is past lam.
        m = np.minimum(size, self.alpha * self.lam)
        excess = np.maximum(m - self.lam, 0.0)
        return float(self.lam * m.sum() - excess @ excess / (2 * (self.alpha - 1)))

    @property
    def dent(self) -> float:
        return 1.0 / (self.alpha - 1.0)

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        falling = (self.alpha * self.lam - np.abs(theta)) / (self.alpha - 1)
        middle = (falling > 0) & (falling < self.lam)
        return np.copysign(np.clip(falling, 0.0, self.lam), theta), np.where(
            middle, -1 / (self.alpha - 1), 0.0
        )

    def prox(self, s: Array, step: float) -> Array:
        lam, alpha = self.lam, self.alpha
        size = np.abs(s)
        if step >= alpha + 1:
            return np.where(size > lam * np.sqrt(step * (alpha + 1)), s, 0.0)
        soft = np.maximum(size - step * lam, 0.0)
        if step >= alpha - 1:  # concave middle piece: from soft threshold straight to s
            return np.where(size > lam * (alpha + 1 + step) / 2, s, np.copysign(soft, s))
        middle = (size * (alpha - 1) - step * alpha * lam) / (alpha - 1 - step)
        # Beyond lam (1 + step) the middle line is the larger of the two, until it passes |s| at alpha lam.
        return np.copysign(np.minimum(np.maximum(soft, middle), size), s)


@dataclass(frozen=True)
class CappedL1(_Folded):
    """Capped l1: phi(t) = lam min(|t|, alpha lam)."""

    alpha: float = 3.0
    name: ClassVar[str] = "capped-l1"
    least: ClassVar[float] = 0

    def value(self, theta: Array) -> float:
        return float(self.lam * np.minimum(np.abs(theta), self.alpha * self.lam).sum())

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        inside = np.abs(theta) < self.alpha * self.lam
        return np.copysign(np.where(inside, self.lam, 0.0), theta), np.zeros_like(theta)

    def prox(self, s: Array, step: float) -> Array:
        lam, cap = self.lam, self.alpha * self.lam
        size = np.abs(s)
        if step * lam >= 2 * cap:
            return np.where(size > np.sqrt(2 * step * lam * cap), s, 0.0)
        return np.where(size > cap + step * lam / 2, s, np.copysign(np.maximum(size - step * lam, 0.0), s))


@dataclass(frozen=True)
class L1:
    """phi(t) = lam |t|, the convex penalty the others are compared with."""

    lam: float
    name: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        _require_lambda(self.lam)

    def value(self, theta: Array) -> float:
        return float(self.lam * np.abs(theta).sum())

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        return np.copysign(self.lam, theta), np.zeros_like(theta)

    def prox(self, s: Array, step: float) -> Array:
        return np.copysign(np.maximum(np.abs(s) - step * self.lam, 0.0), s)


@dataclass(frozen=True)
class WithIntercept:
    """`penalty` on all coordinates but the last, which is left free."""

    penalty: Penalty

    @property
    def lam(self) -> float:
        return self.penalty.lam

    def value(self, theta: Array) -> float:
        return self.penalty.value(theta[:-1])

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        first, second = self.penalty.derivatives(theta[:-1])
        return np.append(first, 0.0), np.append(second, 0.0)

    def prox(self, s: Array, step: float) -> Array:
        return np.append(self.penalty.prox(s[:-1], step), s[-1])


PENALTIES = ("mcp", "scad", "capped-l1", "l1")


def make(name: str, lam: float, alpha: float | None = None) -> MCP | SCAD | CappedL1 | L1:
    """The penalty of that name; `alpha` None takes its default."""
    if name == "l1":
        return L1(lam)
    for kind in (MCP, SCAD, CappedL1):
        if name == kind.name:
            return kind(lam) if alpha is None else kind(lam, alpha)
    raise InputError(f"the penalty is {name!r}; choose one of: {', '.join(PENALTIES)}")


def _require_lambda(lam: float) -> None:
    require(np.isfinite(lam) and lam >= 0, f"lambda is {lam:g}; needed: a finite number >= 0")
