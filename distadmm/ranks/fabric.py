"""What carries messages: a graph's network, sums over its tree, a star, or nothing where nobody is spoken to.

    begin(k)                         iteration k starts
    send(kind, words, dtype, seal)   what leaves: `words` in `dtype`, as many as stated, once the guard let them pass
    traffic                          what this rank has sent
    memory, restore                  what later iterations depend on besides an algorithm's state, for a checkpoint
    on_loss(node)                    a node is out: the job goes on without it if the algorithm survives that, or ends
    named(nodes)                     what they are called, and where they are
    close                            every message that was sent has been received

Each fabric has words of its own besides (`exchange`, `sum`, `up`, `down`), which post what `send` lets pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from distadmm.errors import STALLED, InputError, require
from distadmm.ranks.world import done

Array = np.ndarray


class Guard(Protocol):
    """Decides whether a message may leave; it writes ledgers, or raises.  Ranks know no ledger: they are given one."""

    def __call__(self, kind: str, rows: Array, seal: Any = None, member: int | None = None) -> None:
        """`rows` of all members of this rank, or the message of one `member`; `seal`: what travels with them."""
        ...


class Lost(InputError):
    """A sum that came to nothing, or a node; `nodes` are to blame, `told`: whether the root says so to everybody."""

    code = STALLED

    def __init__(self, nodes: Collection[int], why: str, told: bool = False):
        self.nodes, self.told = sorted(set(nodes)), told
        super().__init__(why)


class Fabric:
    """What the loop and releases ask of one; what stands here is that of a member who speaks to nobody."""

    guard: Guard | None = None
    traffic: Any = None
    survives: bool = False  # a loss, as the algorithm says of itself
    lost: frozenset[int] = frozenset()  # nodes that are out: nobody speaks to them any more

    @property
    def absent(self) -> Array | None:
        """Which members of this rank sit out this iteration; None where none does."""
        return None

    def begin(self, k: int) -> None:
        """Iteration k starts."""

    def send(
        self, kind: str, words: Array, dtype: Any = None, seal: Any = None,
        *, member: int | None = None, size: int | None = None,
    ) -> Array:  # fmt: skip
        """What leaves, for the fabric to post: `words` in `dtype`, seen by the guard; `size`: what was stated."""
        packet = words if dtype is None else np.ascontiguousarray(words, dtype=dtype)
        if size is not None and packet.size != size:
            said = f"a message ({kind}) has {packet.size} numbers, and its receiver waits for {size}"
            raise InputError(f"{said}; nothing of it was sent")
        if self.guard is not None:
            self.guard(kind, packet, seal, member)
        return packet

    def memory(self) -> dict[str, Array]:
        return {}

    def restore(self, memory: Mapping[str, Array]) -> None:
        """Take back what `memory` gave."""

    def named(self, nodes: Iterable[int]) -> str:
        return f"node {', '.join(map(str, nodes))}"

    def on_loss(self, node: int, why: str = "is lost") -> None:
        """`node` is out.  Ends the job unless the algorithm has said that it `survives`."""
        if not self.survives:
            said = f"{self.named([node])} {why}, and every one is needed; take the run up again with --resume"
            raise Lost([node], said)
        self.lost |= {node}

    def close(self) -> None:
        """Every message that was sent has been received."""


class Awaited:
    """Messages that a rank of a fabric waits for, and of whom: told by `World.complete` how long it has been.

    Who is silent for half the time that the watchdog allows is named to it, by whoever waits.  Where it has not ended
    the job in iterations by one and a half times that, as where there is none, the silent are out.
    """

    def __init__(self, fabric: Any, expected: Sequence[tuple[Any, Iterable[int]]]):
        self.fabric, self.dog, self.expected = fabric, fabric.world.dog, expected

    def __call__(self, waited: float) -> None:
        allowed = self.dog.allowed
        if waited < allowed / 2:
            return
        silent = sorted(
            {int(node) for request, nodes in self.expected if not done(request) for node in nodes}
        )
        self.dog.misses(self.fabric.named(silent))
        if self.dog.iterates and waited > 1.5 * allowed:
            for node in silent:
                self.fabric.on_loss(node, f"has been silent for {waited:.0f} s to {self.dog.name}")


def require_fabric(place: Any) -> None:
    """Refuse a place whose fabric lacks what is asked of one."""
    made = getattr(place, "fabric", None)
    wanted = [name for name in vars(Fabric) if not name.startswith("_")]
    missing = [name for name in wanted if not hasattr(made, name)]
    require(
        not missing,
        f"{type(place).__name__}.fabric is a {type(made).__name__} without {', '.join(missing)}; inherit what a fabric "
        f"of one's own does not say:\n\n    class {type(made).__name__}(distadmm.ranks.fabric.Fabric):",
    )
