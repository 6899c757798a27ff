"""The only two ways in which data reach the private iteration: xi = clipped mean gradient + paid noise.

    NoisyGradient   float arithmetic, continuous Gaussian noise; what a simulation uses
    GridGradient    the sum over the records in exact integers, discrete Gaussian noise; for secure runs

Each call charges the ledger, durably, before any noise is drawn.  `Desk` is where a loop finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from distadmm.errors import Unsolved, require
from distadmm.methods.istdp.plan import Plan
from distadmm.methods.istdp.private import ClippedGradient, blocks
from distadmm.privacy.accounting.events import Event, Gaussian
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.noise.mechanism import Noise
from distadmm.privacy.noise.queries import Query, within
from distadmm.problems.losses import Array, Loss
from distadmm.ranks.fabric import Fabric

_BITS = 16  # of a unit row, and of a slope in units of C
_THETA_BITS = 20  # of theta after the point, where the gradient is taken
_EXACT = 2.0**53  # integers below are exact in a float, whatever the order of their sum


@dataclass(frozen=True)
class Price:
    """The schedule of a run, and what it costs: a function of public numbers."""

    plan: Plan
    event: Event  # of each of its releases
    sigma: float  # of the noise on each coordinate of xi
    epsilon: float  # of the whole schedule, at the plan's delta; infinite for the printed form
    schedule: Committed


def price_of(plan: Plan, mode: str) -> Price:
    """What the noisy gradients of `plan` cost; secure ones lie on a grid, and the grid is paid for."""
    from distadmm.privacy.accounting.accountant import epsilon

    event: Event = Gaussian(plan.noise_multiplier)
    sigma = plan.sigma
    if mode == "secure":
        query = query_of(plan)
        event, sigma = query.event(mode), query.sigma * plan.clip / plan.divisor
    every = event.times(plan.iterations)
    return Price(plan, event, sigma, epsilon(every, plan.delta, plan.adjacency), Committed((every,)))


class NoisyGradient:
    """xi(k, theta) = clipped mean gradient at theta + N(0, sigma^2 I)."""

    def __init__(self, X: Array, y: Array, loss: Loss, plan: Plan, noise: Noise):
        self.exact = ClippedGradient(X, y, loss, plan.clip, plan.divisor)
        self.plan, self.noise = plan, noise
        self.event = Gaussian(plan.noise_multiplier)
        self.sigma = plan.sigma

    @cached_property
    def _paid(self) -> int:
        """The last release of an earlier process, whose noise a seed repeats; asked before the first of this one."""
        last = self.noise.ledgers[0].tally.last_iteration
        return -1 if last is None or self.noise.source.mode != "simulation" else last

    def __call__(self, k: int, theta: Array) -> Array:
        plan = self.plan
        draw = self.noise.repeat if k <= self._paid else self.noise.draw
        b = draw(self.event, iteration=k, shape=plan.dimension, sensitivity=plan.sensitivity)
        return self.exact(theta) + b


class GridGradient:
    """The same with every record's part an integer vector of norm at most 2^32, in units of 2^-32 C.

    x_i is kept as |x_i| times a unit row of `_BITS` bits, and its slope is cut, towards zero, to the
    multiple that keeps the product within the norm C: so the sum is exact in floats whatever its order, and
    a record moves it by C (or 2C when replaced), not by C and a rounding error.  The sum is rounded to the
    noise's own grid, which `GridQuery` charges, and divided by n' after the noise.
    """

    def __init__(self, X: Array, y: Array, loss: Loss, plan: Plan, noise: Noise):
        n = len(y)
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        unit = np.rint(X / np.where(norms > 0, norms, 1.0)[:, None] * 2.0**_BITS)
        require(
            n * 2.0 ** (2 * _BITS) <= _EXACT,
            f"{n} rows are too many for exact sums; needed: at most {int(_EXACT / 2 ** (2 * _BITS))}",
        )
        length = np.sqrt(np.einsum("ij,ij->i", unit, unit))  # of exact integers, one rounding
        with np.errstate(divide="ignore"):
            most = np.where(length > 0, np.floor(2.0 ** (2 * _BITS) / (length * (1 + 1e-15))), 0.0)
        self.blocks = [(unit[rows], norms[rows], most[rows], y[rows]) for rows in blocks(*X.shape)]
        self.plan, self.noise, self.loss = plan, noise, loss
        self.query = query_of(plan)
        self.event = self.query.event("secure")
        self.sigma = self.query.sigma * plan.clip / plan.divisor

    def sum(self, theta: Array) -> Array:
        """sum_i clip_C(grad l_i) / C, a multiple of 2^-32."""
        coarse = np.rint(theta * 2.0**_THETA_BITS)
        require(
            float(np.abs(coarse).sum()) * 2.0**_BITS < _EXACT,
            "theta has grown beyond what exact arithmetic holds; take shorter steps or scale the rows down",
        )
        total = np.zeros(len(theta))
        for unit, norms, most, y in self.blocks:
            z = (unit @ coarse) * (norms * 2.0 ** -(_BITS + _THETA_BITS))
            slope = self.loss.slope(z, y) * (norms * (2.0**_BITS / self.plan.clip))
            total += np.trunc(np.clip(slope, -most, most)) @ unit
        return total * 2.0 ** (-2 * _BITS)

    def __call__(self, k: int, theta: Array) -> Array:
        released = self.noise.on_grid(self.sum(theta), self.query.grid, iteration=k)
        return released * (self.plan.clip / self.plan.divisor)


@cache
def query_of(plan: Plan) -> Query:
    """The sum in units of C as a query on a grid, with as much noise as the plan's budget needs there."""
    from distadmm.privacy.accounting.accountant import epsilon

    def keeps(event: Event) -> bool:
        return epsilon(event.times(plan.iterations), plan.delta, plan.adjacency) <= plan.epsilon

    moved = 2.0 if plan.adjacency == "replace" else 1.0
    return within(plan.noise_multiplier, moved, plan.dimension, "secure", keeps)


class Paid:
    """What reads the rows of one member, through its ledger; `kept` until the next checkpoint where there is one.

    After a resume the noisy gradients that followed the checkpoint are given again as they were, to the byte; from
    the first that nobody kept on, each takes fresh noise and a charge of its own, within what the ledger admits.
    """

    def __init__(self, ledger: MemoryLedger, xi: Any, *, kept: bool = False):
        self.ledger, self.xi, self._kept, self._again = ledger, xi, kept, True

    def __call__(self, k: int, theta: Array) -> Array:
        before = self.ledger.stored(k) if self._again else None
        if before is not None:
            return np.frombuffer(before)
        sound = np.isfinite(theta).all()
        require(sound, f"no finite numbers after iteration {k}; nothing more was released", Unsolved)
        self._again, noisy = False, self.xi(k, theta)
        if self._kept:
            self.ledger.store_release(k, noisy.tobytes())
        return noisy

    def checkpoint(self, k: int) -> None:
        """In ledgers, and so in the streams of noise, the first iteration is number 0."""
        self.ledger.checkpoint(k - 1)


class Desk:
    """The place of the one member of a run that sends no messages."""

    fabric = Fabric()  # there is nobody to send to

    def __init__(self, release: Paid, rows: Any = None):
        self.release, self.rows = release, rows
        self.members = np.array([release.ledger.node])

    def keep(self, state: Any) -> dict[str, Array]:
        head = np.frombuffer(self.release.ledger.head, np.uint8)
        return {name: np.asarray(value) for name, value in state._asdict().items()} | {"head": head}

    def take_up(self, parts: Sequence[dict[str, Array]], state: Any) -> Any:
        (kept,) = parts
        require(
            kept["head"].tobytes() in self.release.ledger.holds(),
            "the ledger is shorter than it was at the checkpoint, or another one: restore it from a backup, or start "
            "a new run",
        )
        kept = {"model": kept["theta"], **kept}  # older checkpoints know the last theta alone
        found = (kept[name] for name in state._fields)
        return type(state)(*(value if value.ndim else value.item() for value in found))
