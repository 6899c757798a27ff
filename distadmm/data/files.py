"""The user's own files as sources: one file for all nodes, or one file a node."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distadmm.data import formats, mapping, public, session, source
from distadmm.data.reading import LIBSVM, Reading, file_digest
from distadmm.data.schema import read_schema
from distadmm.data.table import WIDE, Array, Matrix, data_id, local_key
from distadmm.data.whole import FileSource, Form, held_out_of, same_columns
from distadmm.errors import InputError, require

if TYPE_CHECKING:
    from distadmm.data.content import Content


Signed = tuple[str, tuple[str, ...]]  # a file, and its feature columns


class PatternSource(source.Source):
    """`shard-{rank}.csv`: node i reads file i, counted from 0, and no other.

    Nothing is learnt from the rows of all nodes together: neither bounds nor classes nor their number.
    """

    pooled_allowed = False
    n_rows = None

    def __init__(self, pattern: str, reading: Reading, *, test_data: Path | None = None, **options: Any):
        super().__init__(task=reading.task, **options)
        if reading.sanitise:  # a seed that others know would undo what the mapping hides
            reading = replace(reading, seed=int.from_bytes(local_key(), "big"))
        self.pattern, self.reading, self.name, self.source = pattern, reading, pattern, pattern
        self.test_data = test_data
        try:
            fields = {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}
            pattern.format(rank=0, node=0)
        except (ValueError, LookupError, AttributeError):
            fields = {"?"}
        require(
            fields <= {"rank", "node"},
            f"--data {pattern}: the braces hold something else than the number of a node; use {{rank}}",
        )
        if formats.kind(self.path(0)) in LIBSVM:
            require(
                reading.features is not None,
                f"--data {pattern}: a libsvm file does not say its number of columns; give --features N",
            )
        self.feature_names = ()
        self.classes = ()
        self.facts = reading.facts(self.path(0), (), public.Fact((), "header"), self.clip)
        self.nodes_read: set[int] = set()
        self.form: Form | None = None  # of the first file read
        self.read_from: Path | None = None

    def path(self, node: int) -> Path:
        return Path(self.pattern.format(rank=node, node=node))

    def node(self, node: int, n_nodes: int, *, sparse: bool = False) -> tuple[Matrix, Array]:
        path = self.path(node)
        self._check_number(n_nodes, path)
        file = self.reading.open(path)
        X, target, names = self.reading.read(file, node)
        y, classes = self.reading.targets(target, f"{path}: the target", file.place, whole=False)
        if self.form is None:
            self.form, self.read_from = Form(0, names, classes), path
            self.feature_names = (*names, *(("intercept",) if self.intercept else ()))
            self.classes, self.facts = classes.value, self.reading.facts(path, names, classes, self.clip)
        agree([self.signature(), (str(path), names)])
        self.nodes_read.add(node)
        return self.finish(X, sparse=sparse), y

    def _check_number(self, n_nodes: int, path: Path) -> None:
        """As many files as nodes; on a machine that holds its own only, that this one is there."""
        if not path.exists():
            there = [number for number in range(n_nodes + 1) if self.path(number).exists()]
            seen = f"files {there[0]} to {there[-1]}, {len(there)} in all," if there else "none of them"
            raise InputError(
                f"no file {path}; {n_nodes} nodes need {self.path(0)} to {self.path(n_nodes - 1)}, "
                f"and {seen} can be seen here"
            )
        extra = self.path(n_nodes)
        require(
            not extra.exists(),
            f"{extra} is one file more than the {n_nodes} nodes of the network; use a network of as many nodes, "
            "or take the file away",
        )

    def signature(self) -> Signed:
        """What must be the same in all files; it tells nothing of the rows."""
        assert self.form is not None, "read a node first"
        return str(self.read_from), self.form.feature_names

    def test(self, *, sparse: bool = False) -> tuple[Matrix, Array] | None:
        """The held-out file, which everybody may know; read after a node's own file."""
        if self.test_data is None or self.form is None or self.read_from is None:
            return None
        X, y = held_out_of(self.test_data, self.reading, self.form, self.read_from)
        return self.finish(X, sparse=sparse, count=False), y

    @property
    def wide(self) -> bool:
        return formats.kind(self.path(0)) in LIBSVM and (self.reading.features or 0) > WIDE

    def encoding(self) -> dict[str, Any]:
        return {**super().encoding(), **self.reading.as_json()}

    def content(self, node: int, n_nodes: int, key: bytes) -> Content:
        return self.reading.content(self.reading.open(self.path(node)), None, key)

    def node_ids(self, key: bytes | None = None) -> dict[int, str]:
        """The keyed hash of each node's file that this process has read."""
        key = key or local_key()
        reading = self.reading.as_text()
        return {
            node: data_id({"file": file_digest(self.path(node)), "reading": reading}, key)
            for node in sorted(self.nodes_read)
        }

    def data_id(self, key: bytes | None = None) -> str:
        """Of the files that this process has read, together."""
        key = key or local_key()
        return data_id({str(node): name for node, name in self.node_ids(key).items()}, key)


class ListSource(PatternSource):
    """A table of this session a node."""

    def __init__(self, tables: Sequence[session.Held], reading: Reading, **options: Any):
        self.tables = tables
        super().__init__("tables of the nodes", reading, **options)

    def path(self, node: int) -> Any:
        return self.tables[node]

    def _check_number(self, n_nodes: int, path: Any) -> None:
        require(
            len(self.tables) == n_nodes,
            f"{len(self.tables)} tables for the {n_nodes} nodes of the network; give one a node, in the nodes' order",
        )

    def node(self, node: int, n_nodes: int, *, sparse: bool = False) -> tuple[Matrix, Array]:
        self._check_number(n_nodes, None)
        return super().node(node, n_nodes, sparse=sparse)


def agree(signatures: Sequence[Signed]) -> None:
    """Files of different nodes have the same columns; their classes are stated, never taken from one of them."""
    (first, names), *others = signatures
    for other, other_names in others:
        same_columns(Path(first), names, Path(other), other_names)


def from_text(
    text: str,
    *,
    labels: Sequence[str] = (),
    schema: str | None = None,
    sanitise: Mapping[str, mapping.ColumnMapping] | None = None,
    test_fraction: float = 0.0,
    test_data: str | None = None,
    clip: float | None = 1.0,
    intercept: bool = False,
    world: Any = None,
    **reads: Any,
) -> source.Source:
    """The source of a file name or of a pattern; `reads` are the other fields of `Reading`."""
    described = read_schema(schema) if schema else None
    reading = Reading(labels=tuple(labels), schema=described, sanitise=sanitise or {}, **reads)
    options: dict[str, Any] = {"clip": clip, "intercept": intercept}
    place, held_out = session.path_of(text), session.path_of(test_data) if test_data else None
    if isinstance(place, list):
        own = "test_fraction: each node has rows of its own; give the held-out ones as test_data"
        require(not test_fraction, own)
        return ListSource(place, reading, test_data=held_out, **options)
    if "{" in text:
        require(
            not test_fraction,
            "--test-fraction: each node holds its own file; give the held-out rows by --test-data",
        )
        return PatternSource(text, reading, test_data=held_out, **options)

    options |= {"test_fraction": test_fraction, "test_data": held_out, "shared": world is not None}
    whole = partial(FileSource, place, reading, **options)
    if world is None or world.size == 1:
        return whole()
    mine: list[FileSource] = []

    def inspect() -> Form:
        mine.append(whole())
        return mine[0].form

    form = world.on_root(inspect)
    with world.together():
        if not mine:
            mine.append(whole(form=form))
    return mine[0]
