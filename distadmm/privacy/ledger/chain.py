"""The file format of a ledger: one JSON object a line, each holding the hash of the line before it.

An entry is written in canonical form: keys sorted, no blanks, ASCII, floats in their shortest
round-trip form, infinity as "inf".  Its last member `h` is the SHA-256 of the canonical form of all the
others, which include `prev`, the `h` of the line before.  So an edited digit, a lost line or two lines
that changed places are found at the first line concerned.  A lost *tail* is not, by the chain alone: that is what
the heads are for which the neighbours keep (`witness.py`).

A tail without its closing newline is what a crash leaves of a line.  It stays in the file as evidence:
the next line is an entry of kind "torn" that holds the length and the hash of the fragment.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.errors import told
from distadmm.files import read_bytes, require_an_end, sha256

VERSION = 1  # of a file of one ledger
SHELF = 2  # of a file of many (`shelf`)
FOR_ALL = 3  # of a line there that is an entry of each
TEXT = b'{"kind":"text"'  # how a line begins that says what entries of such a file share
GENESIS = "0" * 64  # what the first entry has for `prev`
LONG = 1e8  # bytes of ledgers that take seconds to read
A_SECOND = 3e7  # of them are read in one, about
NOT_WHOLE = "is not a whole JSON entry"
_AS_THEY_ARE = frozenset((str, int, bool, type(None)))

Entry = dict[str, Any]


class Fault(NamedTuple):
    """The first line of a file that is not what was written, and why."""

    path: str
    line: int  # counted from 1
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}"


class Chain(NamedTuple):
    """What a ledger file holds, as far as it can be trusted."""

    path: str
    entries: list[Entry]  # up to the first fault
    fragments: list[tuple[int, bytes]]  # torn lines kept as evidence: (line, bytes)
    torn: bytes  # a tail that no later entry accounts for yet
    unended: bool  # the last entry is whole but lacks its newline
    fault: Fault | None

    @property
    def head(self) -> str:
        return self.entries[-1]["h"] if self.entries else GENESIS


def tell_long(files: Iterable[Path]) -> None:
    """Whoever waits for much to be read knows what for, and about how long."""
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size > LONG:
        told = f"reading {size / 1e6:.0f} MB of ledgers, which takes about {size / A_SECOND:.0f} s"
        print(told, file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it; an infinity or NaN becomes its name."""
    kind = type(value)
    if kind in _AS_THEY_ARE:  # most of all there is
        return value
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is dict or isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and numbers
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def canonical(entry: Mapping[str, Any]) -> str:
    """The text whose hash an entry carries."""
    return _text(plain(entry))


def _text(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False)


def joined(own: bytes, of_all: bytes) -> bytes:
    """The head of a node behind a line for all: of the hash of its latest line of its own, and of that line."""
    return sha256(own + of_all).digest()  # type: ignore[no-any-return]


def sealed(text: str) -> tuple[bytes, bytes]:
    """The line of the entry whose canonical form is `text`, and its hash (32 bytes)."""
    body = text.encode()
    digest = sha256(body).digest()
    return b'%b,"h":"%b"}\n' % (body[:-1], digest.hex().encode()), digest


def template(entry: Mapping[str, Any], holes: Mapping[str, str]) -> str:
    """A %-format of the canonical form of `entry` with a hole for each key of `holes`, in sorted order.

    `holes` gives the %-code of each: {"k": "%d", "prev": '"%s"'}.  Filling it in is the same as building
    the entry and serialising it, at a tenth of the cost.
    """
    marks = {key: f"\x00{key}\x00" for key in holes}
    text = canonical({**entry, **marks}).replace("%", "%%")
    for key, code in holes.items():
        text = text.replace(json.dumps(marks[key]), code)
    return text


def unsealed(line: bytes) -> Entry | str:
    """What `line` says, or why it is not as it was sealed."""
    try:
        entry = json.loads(line)
    except ValueError:
        return NOT_WHOLE
    except RecursionError:
        return "is nested deeper than any entry: no ledger wrote it"
    if not isinstance(entry, dict) or not isinstance(entry.get("h"), str):
        return "is not a ledger entry (it has no hash)"
    claimed = entry.pop("h")
    try:
        written, digest = sealed(_text(entry))
    except ValueError:  # a bare NaN or Infinity, which no ledger writes
        return "is not in canonical form: it was edited"
    if digest.hex() != claimed:
        return "its contents do not match its hash: it was edited"
    if written != line + b"\n":
        return "is not in canonical form: it was edited"
    entry["h"] = claimed
    return entry


def _parsed(line: bytes, previous: Entry | None) -> Entry | str:
    """The entry of `line`, or why it cannot follow `previous`."""
    entry = unsealed(line)
    if isinstance(entry, dict):
        return misplaced(entry, previous, VERSION) or entry
    return entry


def misplaced(entry: Entry, previous: Entry | None, version: int) -> str:
    """Why `entry` cannot follow `previous`; empty where it can."""
    seq, expected = entry.get("seq"), previous["seq"] + 1 if previous else 0
    if entry.get("prev") != (previous["h"] if previous else GENESIS):
        if seq != expected:
            return f"entry {seq} stands where entry {expected} was written: lines are missing or moved"
        return "does not hold the hash of the line before it: that line was replaced"
    if seq != expected:
        return f"its number is {seq}, not {expected}"
    if entry.get("v") != version:
        return f"is of format version {entry.get('v')!r}; this program reads version {version} here"
    if (entry.get("kind") == "open") != (previous is None):
        return "is an opening entry" if previous else "is not an opening entry"
    return ""


def fragment_entry(fragment: bytes) -> Entry:
    """What the entry after a torn tail says of it."""
    return {"kind": "torn", "bytes": len(fragment), "sha256": sha256(fragment).hexdigest()}


def _accounts_for(entry: Entry | str, fragment: bytes) -> bool:
    return isinstance(entry, dict) and fragment_entry(fragment).items() <= entry.items()


def parse(content: bytes, path: str = "ledger", after: Entry | None = None) -> Chain:
    """The entries of a ledger file, its torn lines, and its first fault; or of what follows its entry `after`."""
    lines = content.split(b"\n")
    tail = lines.pop()  # what follows the last newline
    entries: list[Entry] = []
    fragments: list[tuple[int, bytes]] = []
    at = 0
    while at < len(lines):
        previous = entries[-1] if entries else after
        entry = _parsed(lines[at], previous)
        if isinstance(entry, str):
            # A torn line is accounted for by the next whole one.
            next_one = _parsed(lines[at + 1], previous) if at + 1 < len(lines) else ""
            if not _accounts_for(next_one, lines[at]):
                return Chain(path, entries, fragments, b"", False, Fault(path, at + 1, entry))
            fragments.append((at + 1, lines[at]))
            at += 1
            continue
        entries.append(entry)
        at += 1
    if tail:
        entry = _parsed(tail, entries[-1] if entries else after)
        if isinstance(entry, dict):
            return Chain(path, [*entries, entry], fragments, b"", True, None)
        if entry != NOT_WHOLE:
            return Chain(path, entries, fragments, b"", False, Fault(path, at + 1, entry))
    return Chain(path, entries, fragments, tail, False, None)


def open_own(path: Path, flags: int) -> int:
    """A file that its owner alone may read, made if it is not there."""
    with told(f"cannot open {path}: REASON; a run writes there as long as it lasts"):
        return os.open(path, flags | os.O_CREAT, 0o600)


def write_all(file: int, content: bytes) -> None:
    """Write `content` in one call if the system takes it in one, else until it has taken all."""
    written = os.write(file, content)
    while written < len(content):
        written += os.write(file, content[written:])


def read(path: str | Path) -> Chain:
    """The ledger file at `path`."""
    with told(f"cannot read the ledger {path}: REASON; give a .jsonl file or a run directory"):
        return parse(read_bytes(path), str(path))


def has_secret_noise(path: str | Path) -> bool:
    """Whether `path` is a ledger of noise that no seed repeats and of which some was reserved; unread, it may be.

    Without a whole opening line, and without another one that pays, nothing was released.
    """
    require_an_end(path)
    try:
        with open(path, "rb") as file:
            line = file.readline()
            # Many ledgers in one file, each entry of which names what it says in a text.
            if line.startswith(TEXT):
                content = line + file.read()
                return b'"mode":"secure"' in content and any(
                    b'"kind":"%b"' % kind in content for kind in (b"commit", b"charge")
                )
            paid = any(b'"kind":"commit"' in more or b'"kind":"charge"' in more for more in file)
    except OSError:
        return True
    secret = line.endswith(b"\n") and b'"kind":"open"' in line and b'"mode":"simulation"' not in line
    return secret and paid
