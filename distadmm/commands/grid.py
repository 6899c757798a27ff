"""A grid of runs: every combination of the values that flags may take, each with a directory of its own.

A flag with several values is varied, one with one value (or none) is the same for all runs.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.errors import require, sense_of
from distadmm.files import read_json, write_json

RECORD = "sweep.json"
_TELLING = ("algorithm", "topology")  # whose values need no name before them
_UNSAFE = re.compile(r"[^A-Za-z0-9.+-]+")


class Point(NamedTuple):
    name: str
    words: tuple[str, ...]  # its flags as the command takes them

    def folder(self, out: Path) -> Path:
        return out / self.name


def from_words(words: Sequence[str], prog: str = "distadmm.radmm") -> dict[str, list[str]]:
    """Flag -> its values, each as the word that sets it: `--seed 0 1 --clip` -> {seed: [--seed=0, --seed=1], ...}."""
    found: dict[str, list[str]] = {}
    bare: list[str] = []  # flags that nothing has followed yet
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found.setdefault(name, [])
            bare = [*bare, *([] if equals else [name])]
            if not equals:
                continue
        else:
            require(name, f"unknown argument {word!r}; give flags of {prog}, each with its values")
            value = word
        bare = [other for other in bare if other != name]
        found[name].append(_word(name, {"true": True, "false": False}.get(value, value)))
    for name in bare:
        found[name].append(f"--{name}")
    return found


def from_table(table: Mapping[str, Any]) -> dict[str, list[str]]:
    """The same from a TOML file, where a list is what a flag takes in turn."""
    found = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        require(
            not isinstance(value, dict),
            f"[{key}] is a section; a sweep file has key = value lines, and [[run]] tables of such lines",
        )
        values = value if isinstance(value, list) else [value]
        require(values, f"{name} has no value; give at least one, or leave the line out")
        found[name] = [_word(name, one) for one in values]
    return found


def from_file(content: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[dict[str, list[str]]]]:
    """The flags of all runs, and those of each [[run]] table besides; one without any where there is no table."""
    runs = content.get("run", [{}])
    good = isinstance(runs, list) and runs and all(isinstance(one, dict) for one in runs)
    require(good, f"run is {runs!r}; needed: the lines of some runs under [[run]], in double brackets")
    return from_table({k: v for k, v in content.items() if k != "run"}), [from_table(one) for one in runs]


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if isinstance(value, list):  # one value that has several parts
        return f"--{name}={','.join(map(str, value))}"
    return f"--{name}={value}"


def points(*grids: Mapping[str, Sequence[str]]) -> list[Point]:
    """All combinations of each grid, the flag given last changing fastest; the same one twice counts once."""
    apart = {name for one in grids for name in one if any(one[name] != other.get(name) for other in grids)}
    found: dict[tuple[str, ...], Point] = {}
    for flags in grids:
        choices = {name: list(dict.fromkeys(values)) for name, values in flags.items()}
        varied = [name for name, values in choices.items() if len(values) > 1 or name in apart]
        for words in product(*choices.values()):
            chosen = dict(zip(choices, words))
            told = [_told(name, chosen[name]) for name in varied]
            found.setdefault(words, Point("_".join(told) or "run", words))
    often = Counter(point.name for point in found.values())
    # Values that differ in signs a file name cannot have are told apart by a hash.
    mark = {words: hashlib.sha256("\0".join(words).encode()).hexdigest()[:6] for words in found}
    return [
        point if often[point.name] == 1 else point._replace(name=f"{point.name}_{mark[words]}")
        for words, point in found.items()
    ]


def _told(name: str, word: str) -> str:
    """What of a directory's name says that a flag has this value."""
    option, equals, value = word.partition("=")
    value = plain(value)
    if name in _TELLING:
        return value
    return f"{name}-{value}" if equals else option.strip("-")


def plain(text: str) -> str:
    """`text` as a part of a file's name."""
    return _UNSAFE.sub("-", text).strip("-.")


def keep_record(out: Path, wanted: Sequence[Point]) -> list[str]:
    """Note what each directory of `out` is for, after making sure that none is for something else; all names."""
    path = out / RECORD
    known: dict[str, list[str]] = {}
    with sense_of(path):
        if path.exists():
            known = {name: [str(word) for word in words] for name, words in read_json(path)["runs"].items()}
    for point in wanted:
        if not point.folder(out).exists():
            continue
        require(
            point.name in known,
            f"--out {out} has a directory {point.name} that is no run of this sweep; give another --out",
        )
        changed = sorted(set(known[point.name]) ^ set(point.words))
        require(
            not changed,
            f"--out {out}: {point.name} was another run there (they differ in {', '.join(changed)}); "
            "give another --out, or the flags it had",
        )
    together = {**known, **{point.name: list(point.words) for point in wanted}}
    if together != known:
        write_json(path, {"runs": together})
    return list(together)
