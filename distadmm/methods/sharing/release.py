"""What stands between the columns of the parties hosted here and the centre.

Invariant that guards privacy
-----------------------------
* `seal` and `expose` write the party's ledger first, and give leave for one message each (`expose`: for those of the
  iteration); anything else a party sends is charged as unbounded by the guard before it leaves.
* Infinity is said once: of vectors without noise the ledger holds the first, which has no bound, and none after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distadmm.errors import InputError
from distadmm.privacy.accounting.events import Array, Unbounded
from distadmm.privacy.noise.queries import Query, Releases
from distadmm.privacy.noise.release import leave_together
from distadmm.privacy.noise.seal import Guard
from distadmm.ranks.world import World

OPEN = "vectors of predictions sent without noise"


class Release:
    """`queries` are what party m releases in each iteration; a party without one sends its vectors as they are.

    A notebook keeps no ledgers (`out` is empty), and nothing is written down.
    """

    def __init__(self, out: Mapping[int, Releases] | None = None, queries: Mapping[int, Query] | None = None):
        self.out, self.queries = dict(out or {}), dict(queries or {})
        self.private = any(query.sigma > 0 for query in self.queries.values())
        bare = Unbounded(OPEN)
        self._open = {m for m, each in self.out.items() if bare in each.ledger.events}  # whose ledgers say so

        def charging(ledger: Any) -> Callable[[int, str, int], None]:
            return lambda at, reason, k: ledger.expose(reason, iteration=k)

        self._guards = {m: Guard([m], charging(out.ledger)) for m, out in self.out.items()}

    def guard(self, kind: str, rows: Array, seal: Any = None, member: int | None = None) -> None:
        """Asked by the star before a packet of a party leaves."""
        if kind == "vector" and member in self._guards:
            self._guards[member](kind, rows[None], seal)

    def afford(self, k: int, world: World) -> None:
        """All ranks leave together, before anything is drawn, when one party's budget does not admit its release."""
        asked = {m: query for m, query in self.queries.items() if m in self.out}
        poor = [m for m, query in asked.items() if not self.out[m].affords(query, k - 1)]
        said = "the budget does not admit another release of party {}; nothing of it was drawn or sent"
        leave_together(world, poor, said)

    def seal(self, k: int, m: int, value: Array) -> Array:
        """`value` of party m as it leaves in iteration k, without noise."""
        self.expose(k, m)
        return value

    def noisy(self, k: int, m: int, value: Array) -> tuple[Array, float]:
        """(`value` with the noise of party m's query, sigma): whatever is made of it may leave in iteration k."""
        query = self.queries[m]
        if query.sigma == 0:
            return self.seal(k, m, value), 0.0
        # In ledgers, and so in the streams of noise, the first iteration is number 0.
        noisy = self.out[m].vector(value, query, k - 1)
        self.free(k, m)
        return noisy, query.sigma

    def free(self, k: int, m: int) -> None:
        """Party m's next message is made of released values alone."""
        if m in self._guards:
            self._guards[m].permit(k, "release", kind="vector")

    def expose(self, k: int, m: int, what: str = OPEN, **claim: Any) -> None:
        """Note that what party m sends in iteration k depends on its columns and has no bound."""
        if m in self.out:
            if what != OPEN or m not in self._open:
                self.out[m].ledger.expose(what, iteration=k, **claim)
            if what == OPEN:
                self._open.add(m)
            self._guards[m].permit(k, "open", kind="vector")

    def checkpoint(self, k: int) -> None:
        """A durable checkpoint holds everything up to iteration k."""
        for out in self.out.values():
            out.ledger.checkpoint(k - 1)

    def memory(self) -> dict[str, Array]:
        """What a checkpoint keeps: the head of each party's ledger, and how many releases came before."""
        heads = {f"head/{m}": np.frombuffer(out.ledger.head, np.uint8) for m, out in self.out.items()}
        return heads | {f"made/{m}": np.array(out.made) for m, out in self.out.items()}

    def recall(self, memory: Mapping[str, Array]) -> None:
        """Refuse to go on with a ledger that lacks what it held at the checkpoint."""
        for m, out in self.out.items():
            if memory[f"head/{m}"].tobytes() not in out.ledger.holds():
                raise InputError(
                    f"the ledger of party {m} is shorter than it was at the checkpoint, or another one: "
                    "restore it from a backup, or start a new run"
                )
            out.made = int(memory[f"made/{m}"])

    def close(self) -> None:
        for out in self.out.values():
            out.ledger.close()
