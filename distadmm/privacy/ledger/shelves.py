"""Ledgers as they lie in files, whatever the layout: a file each, or many in the files of their ranks (`shelf`).

A chain may begin in one file and go on in others of its folder, where its node moved to another rank or its run was
taken up again.  All that are given are read together, and each chain is put together and checked from its opening line.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.errors import told
from distadmm.files import read_bytes
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.chain import Chain, Entry, Fault

_UNREADABLE = "cannot read the ledger {}: REASON; give a .jsonl file or a run directory"
_NODE = re.compile(rb'"node":(\d+)')


class _Piece(NamedTuple):
    """What one file holds of one chain."""

    path: str
    entries: list[tuple[int, Entry]]  # with their lines
    torn: bytes  # how its file ends
    last: int  # line


def is_shelf(path: Path) -> bool:
    """Whether the file at `path` holds the ledgers of many nodes."""
    if path.stem.startswith("nodes-"):
        return True
    with told(_UNREADABLE.format(path)), open(path, "rb") as file:
        return file.read(len(chain.TEXT)) == chain.TEXT


def file_of(found: Chain) -> Path:
    """The file in which a chain ends."""
    return Path(re.sub(r" \(node \d+\)$", "", found.path))


def first_of(path: Path) -> Entry:
    """The first opening entry in a ledger file, unchecked; empty where there is none."""
    texts: dict[str, Entry] = {}
    with open(path, "rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
                if entry["kind"] == "open":
                    return {**texts.get(entry.get("with"), {}), **entry}
                texts[entry["h"]] = entry["members"]
            except (ValueError, KeyError, TypeError, RecursionError):
                return {}
    return {}


def of_nodes(folder: Path, nodes: Collection[int]) -> dict[int, Chain]:
    """The chains of these nodes in a ledger folder; of one that has none, an empty chain."""
    found = {node: Chain(str(folder), [], [], b"", False, None) for node in nodes}
    files = sorted(folder.glob("*.jsonl"))
    for each in _read(files, frozenset(nodes)):
        if each.entries:
            node = each.entries[0]["node"]
            if node in found and found[node].entries:  # which of them goes on, nobody can tell
                why = f"is of node {node}, of which {found[node].path} is a ledger already: take one of them away"
                each = each._replace(fault=Fault(each.path, 1, why))
            found[node] = each
        elif each.fault:
            return dict.fromkeys(found, each)
    return found


def read_all(files: Iterable[Path]) -> list[Chain]:
    """Every chain of these files, to its end, also where that is in other files of their folder.

    One without entries stands for a file that cannot be read to its end.
    """
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    found: list[Chain] = []
    for folder, some in folders.items():
        shelved = any(is_shelf(path) for path in folder.glob("nodes-*.jsonl"))
        around = sorted({*some, *folder.glob("*.jsonl")}) if shelved else some
        found += _read(around, None, frozenset(map(str, some)))
    return found


def _read(
    files: Iterable[Path], wanted: frozenset[int] | None, asked: frozenset[str] | None = None
) -> Iterator[Chain]:
    """The chains of the nodes `wanted`, or that have a part in the files `asked`; all where that is None."""
    pieces: dict[int, list[_Piece]] = {}
    whole: list[Chain] = []
    faulty = False
    for file in files:
        if is_shelf(file):
            fault = _sort(file, pieces, wanted)
            if fault:
                faulty = True
                yield Chain(str(file), [], [], b"", False, fault)
            continue
        if wanted is not None and not _is_of(file, wanted):
            continue
        whole.append(chain.read(file))
    if wanted is None and not (whole or pieces or faulty):
        # Nothing is left of any.  One that is empty beside others is what a kill leaves of a run that goes on.
        yield from (Chain(str(file), [], [], b"", False, None) for file in files)
    for found in whole:
        node = found.entries[0].get("node") if found.entries else None
        more = [] if found.fault or node is None else pieces.pop(node, [])
        if asked is None or not asked.isdisjoint((found.path, *(piece.path for piece in more))):
            yield _joined(more, found) if more else found
    for node in sorted(pieces):
        if asked is None or not asked.isdisjoint(piece.path for piece in pieces[node]):
            yield _joined(pieces[node])


def _is_of(file: Path, wanted: frozenset[int]) -> bool:
    found = re.fullmatch(r"node-0*(\d+)", file.stem)
    return found is None or int(found[1]) in wanted


def _sort(path: Path, pieces: dict[int, list[_Piece]], wanted: frozenset[int] | None) -> Fault | None:
    """Deal the lines of a file out to the nodes they are of."""
    with told(_UNREADABLE.format(path)):
        lines = read_bytes(path).split(b"\n")
    torn, texts = b"", {}
    if lines[-1] and chain.unsealed(lines[-1]) == chain.NOT_WHOLE:
        torn = lines[-1]
    lines = lines[:-1] if torn or not lines[-1] else lines
    mine: dict[int, list[tuple[int, Entry]]] = {}
    of_all = chain.GENESIS  # hash of the latest line that is of many nodes
    for number, line in enumerate(lines, 1):
        is_text = line.startswith(chain.TEXT)
        if wanted is not None and not is_text and (of := _NODE.search(line)) and int(of[1]) not in wanted:
            continue
        entry = chain.unsealed(line)
        if isinstance(entry, str):
            return Fault(str(path), number, entry)
        if is_text:
            texts[entry["h"]] = entry["members"]
            continue
        if (name := entry.get("with")) is not None and name not in texts:
            return Fault(str(path), number, "names a text that no line before it says: lines are missing")
        said: dict[str, Any] = {**texts.get(name, {}), **entry}
        if "nodes" in said:
            if why := _misplaced_for_all(said, of_all, number):
                return Fault(str(path), number, why)
            of_all = said["h"]
            for low, high in said["nodes"]:
                for node in (
                    range(low, high + 1) if wanted is None else wanted.intersection(range(low, high + 1))
                ):
                    mine.setdefault(node, []).append((number, said))
            continue
        if not isinstance(said.get("node"), int):
            return Fault(str(path), number, "is not of a node")
        mine.setdefault(said["node"], []).append((number, said))
    for node, entries in mine.items():
        if "nodes" in entries[0][1]:
            return Fault(str(path), entries[0][0], f"is of node {node}, of which no line before it is")
        pieces.setdefault(node, []).append(_Piece(str(path), entries, torn, len(lines) + 1))
    return None


def _misplaced_for_all(entry: Entry, before: str, most: int) -> str:
    """Why `entry` is none of the nodes that it names, at most so many; empty where it is one."""
    if entry.get("v") != chain.FOR_ALL:
        return f"is of format version {entry.get('v')!r}; this program reads version {chain.FOR_ALL} of a line for all"
    if entry.get("prev") != before:
        return "does not hold the hash of the line for all before it: lines are missing or moved"
    ranges = entry["nodes"]
    good = isinstance(ranges, list) and all(
        isinstance(each, list) and len(each) == 2 and all(type(node) is int for node in each)
        for each in ranges
    )
    if not good or not sum(max(high - low + 1, 0) for low, high in ranges) <= most:
        return "names no nodes, or more than have lines before it"
    return ""


def _of_one(entry: Entry, own: Entry, before: Entry) -> Entry:
    """What a line for all is in the chain of a node whose latest line of its own is `own`."""
    head = chain.joined(bytes.fromhex(own["h"]), bytes.fromhex(entry["h"])).hex()
    said = {key: value for key, value in entry.items() if key != "nodes"}
    return {**said, "node": own["node"], "v": chain.SHELF, "prev": before["h"], "h": head}


def _joined(pieces: list[_Piece], before: Chain | None = None) -> Chain:
    """One chain of what files hold of it, each entry checked against the one before."""
    pieces = sorted(pieces, key=lambda piece: piece.entries[0][1].get("seq", 0))
    entries = list(before.entries) if before else []
    fragments = list(before.fragments) if before else []
    label = f"{pieces[-1].path} (node {pieces[0].entries[0][1]['node']})"
    # Torn ends that no entry has accounted for yet.
    left = [(0, before.torn)] if before and before.torn else []
    for piece in pieces:
        own = piece.entries[0][1]
        for number, entry in piece.entries:
            if "nodes" in entry:
                entry = _of_one(entry, own, entries[-1])
            else:
                own = entry
            why = chain.misplaced(entry, entries[-1] if entries else None, chain.SHELF)
            if why:
                return Chain(label, entries, fragments, b"", False, Fault(piece.path, number, why))
            for end in [end for end in left if chain.fragment_entry(end[1]).items() <= entry.items()]:
                left.remove(end)
                fragments.append(end)
            entries.append(entry)
        if piece.torn:
            left.append((piece.last, piece.torn))
    return Chain(label, entries, fragments, left[-1][1] if left else b"", False, None)
