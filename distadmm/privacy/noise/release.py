"""What stands between a node's data and its neighbours when there is no noise: nothing, and the ledger says so.

`draw`, `seal`, `recycle` and `expose` are what every algorithm passes through; `protected.Protected` is the
same with noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distadmm.errors import BudgetExhausted, InputError

if TYPE_CHECKING:
    from distadmm.privacy.ledger.books import Books
    from distadmm.privacy.noise.seal import Guard
    from distadmm.ranks.graph_network import Network
    from distadmm.ranks.world import World

Array = np.ndarray
UNCHECKED = "unchecked code"  # of an algorithm that is not this package's own
HEAD_BYTES = 32  # of the ledger's head, which travels with a private message


def leave_together(world: World, refused: Sequence[int], said: str) -> None:
    """Of all ranks, where some refuse members what they ask for; `said` has a hole for the first of these."""
    everywhere = [member for some in world.allgather(refused) for member in some]
    if everywhere:
        raise BudgetExhausted(said.format(min(everywhere)), shared=True)


class Unprotected:
    """No noise: every message that depends on data is an open release, of infinite cost.

    With books, each is written down as such; a notebook's run without a folder keeps none.
    """

    private = False

    @property
    def epsilon(self) -> float:
        return float("inf")

    @property
    def statement(self) -> str:
        return "none"

    def __init__(self, books: Books | None = None):
        self.books = books
        self.guard: Guard | None = None
        self._believed = True  # what the algorithm says of what it recycles
        self._k = 0

    def watch(self, network: Network, start: Array, file: str) -> None:
        """From now on `network` shows its messages to a guard; of unchecked code it believes nothing.

        The common start is no release: it is known to all before any data is read.
        """
        from distadmm.privacy.noise.seal import Guard

        def charge(at: int, reason: str, k: int) -> None:
            if self.books is not None:
                self.books.ledgers[at].expose(
                    f"{UNCHECKED} {file}: {reason}" if file else reason, iteration=k
                )

        self.guard, self._believed = Guard(network.nodes.tolist(), charge), not file
        self.guard.seal(0, start, purpose="start", uses=np.inf)
        network.guard = self.guard

    def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> Array | float:
        self.expose(k, "no noise was asked for")
        return 0.0

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        return f

    def recycle(self, k: int, f: Array | None = None) -> None:
        self._k = k
        if self.books is not None:
            self.books.post(iteration=k)
        if self.guard is not None and self._believed and f is not None:
            self.guard.seal(k, f, purpose="recycled")

    def expose(self, k: int, what: str) -> None:
        self._k = k
        if self.books is not None:
            self.books.expose(what, iteration=k)
        if self.guard is not None:
            self.guard.permit(k, "open")

    def checkpoint(self, k: int) -> None:
        """A durable checkpoint holds everything up to iteration k."""
        if self.books is not None:
            self.books.checkpoint(k)

    def memory(self) -> dict[str, Array]:
        """What a checkpoint keeps: the head of each node's ledger."""
        return {} if self.books is None else {"head": self.books.heads.copy()}

    def recall(self, memory: dict[str, Array]) -> None:
        """Refuse to go on with a ledger that lacks what it held at the checkpoint."""
        if self.books is None or "head" not in memory:
            return
        for ledger, head in zip(self.books.ledgers, memory["head"]):
            if "roster" in memory and not memory["roster"][0][ledger.node]:
                continue  # it had left; its rank may have gone, and another one kept this
            if head.astype(np.uint8).tobytes() not in ledger.holds():
                raise InputError(
                    f"the ledger of node {ledger.node} is shorter than it was at the checkpoint, or another one: "
                    "restore it from a backup, or start a new run"
                )

    def close(self) -> None:
        if self.books is not None:
            self.books.close()
