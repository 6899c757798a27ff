"""What must hold whatever a run met; each verdict is computed from what its lives left, none is assumed.

hang       a life had not ended when its time was over
orphan     a process of a job outlived its launcher
uncharged  a message left for which its node's ledger had no entry on disk
twice      the same question was answered with other bytes, and nothing was paid a second time
bits       a run that came to its end, and said nothing, has other bits than the run that met nothing
code       a cause ended with an exit code that is not its own
words      a traceback where nobody raised, or no single line where something was refused
lost       a run with a whole checkpoint could not be taken up, or a refusal changed files
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from distadmm.errors import USAGE
from distadmm.files import read_npz
from distadmm.run.claim import LOCK
from distadmm.testing.faults.lives import Life
from distadmm.testing.faults.tap import FREE, Message, entries

NO_NUMBERS = "no numbers"
VIOLATIONS = ("hang", "orphan", "uncharged", "twice", "bits", "code", "words", "lost")


def bits(folder: Path) -> dict[str, str]:
    """The digest of each array of a run's models."""
    found = {}
    for path in sorted(folder.rglob("*.npz")):
        name = path.relative_to(folder)
        if path.name != "traffic.npz" and "checkpoint" not in name.parts:
            for array, value in read_npz(path).items():
                content = f"{value.dtype}{value.shape}".encode() + value.tobytes()
                sound = value.dtype.kind != "f" or bool(np.isfinite(value).all())
                found[f"{name}:{array}"] = hashlib.sha256(content).hexdigest() if sound else NO_NUMBERS
    return found


def sent(lives: Sequence[list[Message]], folder: Path) -> dict[str, str]:
    """What is wrong with the messages of a run's lives, one after the other, and with what its ledgers say of them."""
    wrong: dict[str, str] = {}
    answers: dict[tuple[int, str, int], str] = {}
    open_: dict[int, set[str]] = {}  # of nodes whose messages have no key
    again = _paid_again(folder)
    for life in lives:
        places: dict[tuple[int, str], int] = {}
        for message in life:
            node, key, digest, noted = message
            if not key:
                known = open_.setdefault(node, set())
                known.add(digest)
                if len(known) > noted:
                    wrong["uncharged"] = f"node {node}: message {len(known)} and {noted} entries"
                continue
            if not noted:
                wrong["uncharged"] = f"node {node} at {key}"
            at = places[node, key] = places.get((node, key), 0) + 1
            before = answers.setdefault((node, key, at), digest)
            if before != digest and not (key.isdigit() and again <= int(key)):
                wrong["twice"] = f"node {node} at {key}"
    return wrong


def _paid_again(folder: Path) -> float:
    """The first iteration for which a node has paid twice: from there on its answers, and others', may be new ones."""
    found = [float("inf")]
    for own in entries(folder).values():
        seen: set[int] = set()
        for entry in own:
            if entry["kind"] in FREE or entry["kind"] == "post" or not isinstance(entry.get("k"), int):
                continue
            if entry["k"] in seen:
                found.append(entry["k"])
            seen.add(entry["k"])
    return min(found)


def ended(life: Life, codes: Iterable[int], *, raises: bool = False) -> dict[str, str]:
    """What is wrong with how a life ended, when these are the codes of its cause."""
    if life.hung:
        return {"hang": f"no end within {life.seconds:.0f} s"}
    wrong = {}
    if life.orphans:
        wrong["orphan"] = f"{life.orphans} processes were left"
    if life.code not in codes:
        wrong["code"] = f"exit code {life.code}: {last_line(life)}"
    if "Traceback" in life.said and not raises:
        wrong["words"] = last_line(life)
    if life.code == USAGE and not any(": " in line for line in life.said.splitlines()):
        wrong["words"] = "refused without a word"
    return wrong


def last_line(life: Life) -> str:
    return (life.said.strip().splitlines() or [""])[-1][:160]


def content(folder: Path) -> dict[str, bytes]:
    """Of all files but the lock, which a run that was killed leaves and the next one takes away."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path): path.read_bytes() for path in files}
