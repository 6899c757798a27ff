"""A rank's place at a star: the parties it hosts, the centre on rank 0, what they say to one another, and the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.sharing.masks import InClear, Masked
from distadmm.methods.sharing.release import Release
from distadmm.node import under
from distadmm.problems.columns import Columns
from distadmm.ranks.star import Array, Star

if TYPE_CHECKING:
    from distadmm.methods.sharing.admm import Problem


class Seat:
    """What the members of this rank can see: a star algorithm's whole world.

    `blocks` are the columns of the parties hosted here, `labels` are None where the centre is not.
    """

    def __init__(
        self,
        fabric: Star,
        problem: Problem,
        blocks: Mapping[int, Columns],
        labels: Array | None,
        rows: int,
        *,
        release: Release | None = None,
        masked: bool = False,
    ):
        self.fabric, self.problem, self.blocks, self.rows = fabric, problem, blocks, rows
        self.labels = labels if fabric.is_centre else None
        self.release, self.masked = release or Release(), masked
        fabric.guard = self.release.guard
        self.collector = Masked(fabric, rows) if masked else InClear(fabric, rows)

    @property
    def members(self) -> Array:
        """As ledgers and checkpoints number them: 0 for the centre, m for party m."""
        return np.array([*([0] if self.fabric.is_centre else []), *self.fabric.hosted])

    def down(self, message: Array) -> Array:
        """The centre's message at every party of this rank, and at the centre itself, to the wire's precision."""
        received = self.fabric.down(message if self.fabric.is_centre else None, self.rows)
        return self.fabric.rounded(message) if self.fabric.is_centre else received

    def collect(self, k: int, sent: Mapping[int, Array]) -> tuple[Any, dict[int, Array]]:
        """(the sum of all parties' vectors at the centre, else None; this rank's vectors as the centre has them)."""
        total = self.collector.collect(sent, k)
        return total, {m: self.collector.as_sent(value) for m, value in sent.items()}

    def tell(self, *numbers: float) -> list[float]:
        """The centre's numbers, on every rank: the control message."""
        own = np.array(numbers) if self.fabric.is_centre else None
        with self.fabric.counted_as("control"):
            told = self.fabric.down(own, len(numbers), np.float64)
        return (told if own is None else own).tolist()

    def keep(self, state: Any) -> dict[str, Array]:
        """What a checkpoint holds of the members hosted here: a field by party, or the centre's."""
        kept = {f"fabric.{kind}": count for kind, count in self.fabric.memory().items()}
        kept |= {f"release.{name}": value for name, value in self.release.memory().items()}
        for name, value in state._asdict().items():
            if isinstance(value, dict):
                kept |= {f"state.{name}/{m}": part for m, part in value.items()}
            elif self.fabric.is_centre:
                kept[f"state.{name}"] = np.asarray(value)
        return {"members": self.members, **kept}

    def take_up(self, parts: Sequence[Mapping[str, Array]], state: Any) -> Any:
        """The state of this rank's members out of what all ranks kept; `state`, a fresh one, says what belongs here."""
        whole = {name: value for part in parts for name, value in part.items()}
        missing = sorted(set(self.members.tolist()) - {m for part in parts for m in part["members"].tolist()})
        require(not missing, f"the checkpoint has no party {missing[:1]}; it belongs to another run")
        found: dict[str, Any] = {}
        for name, value in state._asdict().items():
            if isinstance(value, dict):
                found[name] = {m: whole[f"state.{name}/{m}"] for m in value}
            elif not isinstance(value, np.ndarray):
                found[name] = type(value)(whole[f"state.{name}"])  # the same for all
            else:
                found[name] = whole[f"state.{name}"] if self.fabric.is_centre else value
        self.release.recall(under("release.", whole))
        sent: dict[str, Array] = {}
        for kind, count in (each for part in parts for each in under("fabric.", part).items()):
            sent[kind] = sent.get(kind, 0) + count
        self.fabric.restore(sent)
        return type(state)(**found)


def iterate(
    algorithm: Any, seat: Seat, iterations: int, observe: Callable[[int, Any], None] | None = None
) -> tuple[int, Any]:
    """(last iteration, final state) in memory: for a notebook, and for models solved on the way to others."""
    k, state = 0, algorithm.init(seat)
    while k < iterations and not algorithm.ended(state):
        k += 1
        state = algorithm.step(k, state, seat)
        if observe is not None:
            observe(k, state)
    return k, state


class Solution(NamedTuple):
    """Of the parties hosted by this rank; what is known to all is the same on every rank."""

    models: dict[int, Array]
    means: dict[int, Array]  # column means of these parties, taken off before the model is applied
    intercept: float
    iterations: int
    converged: bool = False
    failure: str | None = None  # why it did not converge and what to do
    theta: float | None = None
    tau: float = 0.0
    rho: float = float("nan")
    private: bool = False  # models are for plain columns


def solution_of(algorithm: Any, k: int, state: Any, seat: Seat, *, private: bool = False) -> Solution:
    means = {m: block.mean for m, block in seat.blocks.items()}
    theta = getattr(state, "theta", float("nan"))
    explain = getattr(algorithm, "explain", None)
    return Solution(
        state.x, means, state.b, k, algorithm.ended(state) == "converged", explain and explain(state, seat),
        None if np.isnan(theta) else theta, getattr(state, "tau", 0.0), getattr(state, "rho", float("nan")), private,
    )  # fmt: skip
