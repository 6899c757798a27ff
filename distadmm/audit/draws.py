"""Where the noise of an audit's own plays comes from: what a run of that mode draws from."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from distadmm.audit.bounds import Array
from distadmm.audit.noises import Finding, Noise
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise import sources

REPEATED = "the audit's own runs use SIMULATION noise, which a seed repeats: nothing in them is protected"
SECRET = "the audit's own runs draw secret noise as a secure run does: another audit draws other noise"


class Draws(NamedTuple):
    mode: str  # secure or simulation
    seed: int  # of simulation noise

    def source(self, seed: int | None = None) -> sources.Source:
        """A source of its own, as another process has it."""
        if self.mode == "secure":
            return sources.source_of("secure")
        return sources.source_of("simulation", self.seed if seed is None else seed)

    @property
    def words(self) -> str:
        return SECRET if self.mode == "secure" else REPEATED

    def findings(self) -> list[Finding]:
        """Two processes that would draw the same secret noise."""
        if self.mode != "secure":
            return []
        one, two = (self.source().at(0, 1, 1).words(4).tolist() for _ in range(2))
        text = "two sources of secret noise give the same words: processes share their noise"
        return [Finding("key", -1, -1, text)] if one == two else []


def ledgers(nodes: Iterable[int], adjacency: Any, source: sources.Source) -> list[MemoryLedger]:
    """Of a play, in memory; nobody will ask for the Renyi curves of their entries."""
    header: dict[str, Any] = {"adjacency": adjacency, "mode": source.mode, "source": source.name}
    return [MemoryLedger(int(i), scope="record", orders=(2.0, 16.0), **header) for i in nodes]


class Played(NamedTuple):
    """Many plays of a mechanism in two neighbouring worlds."""

    here: Array  # log-likelihood ratios of plays under D
    there: Array  # under D'
    events: list[Event]  # what the ledger of a play says
    noises: Sequence[Noise] = ()  # recovered from the plays, level 0
    findings: Sequence[Finding] = ()  # what needs no statistics
