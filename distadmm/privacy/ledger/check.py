"""Whether ledgers are whole: every line, every witness, every message that was kept, and the heads kept elsewhere.

What lies beside a ledger can be cut together with it.  So the account keeps which nodes a run has and, when it has
ended, the last entry of each; and the run prints one name for all of these, which `--heads` compares.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from distadmm.errors import InputError
from distadmm.privacy.ledger import chain, replay, shelves
from distadmm.privacy.ledger.account import Account, Entered
from distadmm.privacy.ledger.file import path_of
from distadmm.privacy.ledger.tally import Tally
from distadmm.privacy.ledger.witness import Sighting, all_sightings, missing

T = TypeVar("T")


class Verdict(NamedTuple):
    notes: list[str]
    faults: list[str]


class _Read(NamedTuple):
    file: Path
    found: chain.Chain
    tally: Tally
    holds: set[bytes]

    @property
    def node(self) -> int:
        return self.tally.header["node"]


def heads_digest(heads: Mapping[int, str]) -> str:
    """One name for the last entries of all ledgers of a run."""
    lines = "".join(f"{node}:{head}\n" for node, head in sorted(heads.items()))
    return sha256(lines.encode()).hexdigest()[:32]


def verified(files: Sequence[Path], account: Account, heads: str | None = None) -> Verdict:
    """Every line of every file, every witness and kept message beside them, and what was kept of them elsewhere."""
    notes: list[str] = []
    faults: list[str] = []
    folders = {file.parent for file in files}
    seen = {folder: _by_node(all_sightings(folder), lambda sighting: sighting.node) for folder in folders}
    sent = {folder: _by_node(replay.read_all(folder).items(), lambda one: one[0][0]) for folder in folders}
    known = account.read().runs
    read = []
    for found in shelves.read_all(files):
        file = Path(found.path)
        if found.fault or not found.entries:
            faults.append(str(found.fault or f"{file}: no whole entry"))
            continue
        try:
            tally = Tally.of(found.entries)
        except InputError as error:
            faults.append(f"{file}: {error}")
            continue
        one = _Read(file, found, tally, {bytes.fromhex(entry["h"]) for entry in found.entries})
        witnessed = seen[file.parent].get(one.node, [])
        wrong = [*_misplaced(one), *_cut(one, witnessed), *_unpaid(one, sent[file.parent].get(one.node, []))]
        wrong += _behind(one, known)
        faults += wrong
        if not wrong:
            notes.append(_note(one, len(witnessed), known))
        read.append(one)
    faults += _absent(files, read, seen, known)
    if heads is not None:
        now = heads_digest({one.node: one.found.head for one in read})
        if now != heads:
            faults.append(f"the heads of these ledgers are {now}, not {heads}: the run did not end like this")
    return Verdict(notes, faults)


def _by_node(each: Iterable[T], node: Callable[[T], int]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for one in each:
        found.setdefault(node(one), []).append(one)
    return found


def _misplaced(one: _Read) -> list[str]:
    """A ledger says of which node it is, and so does the name of its file."""
    stem = one.file.stem
    if not stem.startswith("node-") or path_of("", one.node).stem == stem:
        return []
    return [f"{one.file}: it is the ledger of node {one.node}: that of this node was replaced"]


def _cut(one: _Read, seen: Sequence[Sighting]) -> list[str]:
    return [
        f"{one.file}: {sighting.observer} holds a head of iteration {sighting.iteration} that is not in it: "
        "its tail was cut or replaced"
        for sighting in missing(seen, one.node, one.holds)
    ]


def _unpaid(one: _Read, sent: Sequence[tuple[tuple[int, int], replay.Sent]]) -> list[str]:
    return [
        f"{one.file}: a message of iteration {iteration} was kept whose entry is not in it"
        for (_, iteration), message in sent
        if message.head not in one.holds
        and message.head.hex() not in one.tally.lost_heads
        and not one.found.torn
    ]


def _behind(one: _Read, known: Mapping[str, Entered]) -> list[str]:
    """The account holds what each ledger was opened for, and the last entry of each of a run that has ended."""
    run, tally = known.get(one.tally.header["run"]), one.tally
    if run and (entered := run.nodes.get(one.node)):
        told = entered.adjacency, entered.scope, entered.trust
        if told != (tally.adjacency, tally.header["scope"], tally.trust):
            was = ", ".join(map(str, told))
            return [f"{one.file}: the account was told of a ledger for {was}: this one was written anew"]
    head = run.heads.get(one.node) if run else None
    if head is None or bytes.fromhex(head) in one.holds:
        return []
    return [f"{one.file}: the account holds a head that is not in it: its tail was cut or it was replaced"]


def _absent(
    files: Sequence[Path],
    read: Sequence[_Read],
    seen: Mapping[Path, Mapping[int, Sequence[Sighting]]],
    known: Mapping[str, Entered],
) -> list[str]:
    """Nodes of which the account, or a neighbour, knows and whose ledger is not there; where folders are looked at."""
    faults = []
    for folder, of_nodes in seen.items():
        here = {file.name for file in files if file.parent == folder}
        if here != {path.name for path in folder.glob("*.jsonl")}:
            continue  # some of its files were asked for
        ledgers: dict[
            str, set[int]
        ] = {}  # of each run, its nodes: files of several may have been put together
        for one in read:
            if one.file.parent == folder:
                ledgers.setdefault(one.tally.header["run"], set()).add(one.node)
        sightings = (s for some in of_nodes.values() for s in some)
        told = {("", s.node): f"{s.observer} holds a head of it" for s in sightings if s.iteration >= 0}
        for name in ledgers:
            if run := known.get(name):
                of = f" of run {name}" if len(ledgers) > 1 else ""
                told |= {(of, node): "the account knows it" for node in [*run.nodes, *run.heads]}
        ledgers[""] = set().union(*ledgers.values())
        faults += [
            f"{path_of(folder, node)}: there is no ledger of node {node}{of}, and {why}: it was deleted"
            for (of, node), why in sorted(told.items())
            if node not in ledgers[of.removeprefix(" of run ")]
            and (of or path_of(folder, node).name not in here)
        ]
    return faults


def _note(one: _Read, witnesses: int, known: Mapping[str, Entered]) -> str:
    found, tally = one.found, one.tally
    parts = [f"{len(found.entries)} entries", f"{tally.releases} releases", f"head {found.head[:16]}"]
    anchored = one.node in (run.heads if (run := known.get(tally.header["run"])) else {})
    parts.append(f"{witnesses} witness{'es' * (witnesses != 1)}" if witnesses else "no witness")
    unknown = "no head in the account: whether it was cut or written anew only --heads tells"
    parts.append("its head is in the account" if anchored else unknown)
    parts += [f"torn line {line} kept ({len(fragment)} bytes)" for line, fragment in found.fragments]
    if found.torn:
        parts.append(f"torn tail ({len(found.torn)} bytes) not yet accounted for")
    return f"{one.file}: {', '.join(parts)}"
