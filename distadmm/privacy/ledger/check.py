"""Whether ledgers are whole: every line, every witness, every message that was kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distadmm.errors import InputError
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger.tally import Tally
from distadmm.privacy.ledger.witness import all_sightings, missing


class Verdict(NamedTuple):
    notes: list[str]
    faults: list[str]


def verified(files: Sequence[Path]) -> Verdict:
    """Every line of every file, every witness and every kept message that stands beside them."""
    notes, faults = [], []
    seen = {folder: all_sightings(folder) for folder in {file.parent for file in files}}
    sent = {folder: replay.read_all(folder) for folder in seen}
    for file in files:
        found = chain.read(file)
        if found.fault or not found.entries:
            faults.append(str(found.fault or f"{file}: no whole entry"))
            continue
        try:
            tally = Tally.of(found.entries)
        except InputError as error:
            faults.append(f"{file}: {error}")
            continue
        node, sound = tally.header["node"], len(faults)
        holds = {bytes.fromhex(entry["h"]) for entry in found.entries}
        for sighting in missing(seen[file.parent], node, holds):
            faults.append(
                f"{file}: {sighting.observer} holds a head of iteration {sighting.iteration} that is not in it: "
                "its tail was cut or replaced"
            )
        for (owner, iteration), message in sent[file.parent].items():
            if owner == node and message.head not in holds and message.head.hex() not in tally.lost_heads:
                if found.torn:
                    continue
                faults.append(f"{file}: a message of iteration {iteration} was kept whose entry is not in it")
        if len(faults) == sound:
            notes.append(_note(file, found, tally, sum(s.node == node for s in seen[file.parent])))
    return Verdict(notes, faults)


def _note(file: Path, found: chain.Chain, tally: Tally, witnesses: int) -> str:
    parts = [f"{len(found.entries)} entries", f"{tally.releases} releases", f"head {found.head[:16]}"]
    parts.append(
        f"{witnesses} witness{'es' * (witnesses != 1)}"
        if witnesses
        else "no witness: a cut tail would not show"
    )
    parts += [f"torn line {line} kept ({len(fragment)} bytes)" for line, fragment in found.fragments]
    if found.torn:
        parts.append(f"torn tail ({len(found.torn)} bytes) not yet accounted for")
    return f"{file}: {', '.join(parts)}"
