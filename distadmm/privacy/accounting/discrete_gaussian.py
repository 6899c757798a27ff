"""The discrete Gaussian on a grid: exact integers, so that no float takes part in a release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from distadmm.privacy.accounting.events import Adjacency, Array, Event, positive, whole
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.privacy.accounting.curves import Pair


@struct
class DiscreteGaussian(Event):
    """Independent N_Z(0, sigma^2) on each of `dimension` integers, l2 sensitivity in the same grid units.

    Not the continuous formula: at sigma = 1 grid unit the true delta is up to 1.8 times what that says.
    Rounding a query to the grid raises its sensitivity; charge that to `sensitivity_grid`.
    """

    sigma_grid: float
    sensitivity_grid: float
    count: int = 1
    dimension: int = 1
    mech: ClassVar[str] = "discrete-gaussian"
    law: ClassVar[str] = "discrete"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self, "sigma_grid", "sensitivity_grid")
        whole(self, "count", "dimension")

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        """Canonne, Kamath and Steinke (2020): the bound of the continuous Gaussian holds on the integers."""
        return orders * (self.sensitivity_grid / self.sigma_grid) ** 2 / 2

    def pairs(self, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
        from distadmm.privacy.accounting import gaussian, profiles

        return profiles.symmetric(gaussian.discrete(self.sigma_grid, self.sensitivity_grid, self.dimension))

    def group(self, records: int) -> Event:
        return replace(self, sensitivity_grid=self.sensitivity_grid * records)

    def exported(self) -> tuple[str, dict[str, Any]]:
        return "ZCDpEvent", {"rho": (self.sensitivity_grid / self.sigma_grid) ** 2 / 2, "xi": 0.0}

    def sample(self, stream: Any, shape: Any = None, sensitivity: float | None = None) -> Array:
        return stream.discrete_normal(self.sigma_grid, self.dimension)
