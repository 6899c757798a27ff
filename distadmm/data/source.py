"""Where the rows of a run come from: a `Source` gives each node its rows, of norm <= 1, and no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.data.deal import Deal, Pieces
from distadmm.data.mapping import ColumnMapping
from distadmm.data.public import PUBLISHED, ROWS, Fact, PublicFacts, mappings_of
from distadmm.data.table import (
    NOTHING_CLIPPED,
    PUBLIC_KEY,
    Array,
    ClipReport,
    Matrix,
    Sparse,
    Table,
    clip_rows,
    data_id,
    dense,
    permutation,
    take,
    with_intercept,
)
from distadmm.data.targets import TASKS
from distadmm.errors import InputError, require
from distadmm.files import held

if TYPE_CHECKING:
    from distadmm.data.content import Content, Contents
    from distadmm.ranks.world import World


class Source(ABC):
    """Rows for the nodes of a run.  `clip` is the bound on a row's norm (None: rows stay as they are)."""

    name: str
    task: str = "binary"
    classes: tuple[Any, ...] = (-1, 1)  # what the file calls the classes; their order is that of y
    feature_names: tuple[str, ...]
    licence: str = "not stated"
    source: str = "not stated"
    pooled_allowed: bool  # may one process see all rows?
    n_rows: int | None  # training rows; None when each node holds its own file
    test_rows: int = 0
    rows_dropped: int | None = None  # rows of the source left out for missing values, where it is known
    duplicates: int | None = None  # rows equal to an earlier one, kept, where it is known
    facts: PublicFacts  # what is known of the table, and by what

    def __init__(self, *, clip: float | None = 1.0, intercept: bool = False, task: str = "binary"):
        require(task in TASKS, f"task is {task!r}; choose one of: {', '.join(TASKS)}")
        self.clip, self.intercept, self.task = clip, intercept, task
        self.clipped: ClipReport = NOTHING_CLIPPED  # of all rows read so far by this process

    @property
    def n_features(self) -> int:
        """Columns of X, the intercept included."""
        return len(self.feature_names)

    @property
    def wide(self) -> bool:
        """Whether rows are kept sparse where that can be: many columns, of a format in which most are left out."""
        return False

    @abstractmethod
    def node(self, node: int, n_nodes: int, *, sparse: bool = False) -> tuple[Matrix, Array]:
        """X and y of one of `n_nodes` nodes."""

    def nodes(
        self, nodes: Sequence[int], n_nodes: int, *, sparse: bool = False, stacked: bool = False
    ) -> Iterator[tuple[Matrix, Array]]:
        """X and y of these nodes; `stacked`: of small ones that follow one another and have equally many rows, both
        may come with a leading axis "nodes"."""
        return (self.node(i, n_nodes, sparse=sparse) for i in nodes)

    def hold(self, nodes: Sequence[int], n_nodes: int, world: World) -> None:
        """Make the rows of these nodes ready; called by all ranks.  Here they are read when they are asked for."""
        return

    def test(self, *, sparse: bool = False) -> tuple[Matrix, Array] | None:
        """X and y of the held-out rows; None when there are none."""
        return None

    @abstractmethod
    def data_id(self, key: bytes | None = None) -> str:
        """Keyed hash of the data as this process sees it; bundled tables use a public key."""

    @abstractmethod
    def content(self, node: int, n_nodes: int, key: bytes) -> Content:
        """Which rows one of `n_nodes` nodes has, by keyed names; the same however they are read."""

    def contents(self, nodes: Sequence[int], n_nodes: int, key: bytes) -> Contents:
        """`content` of several."""
        from distadmm.data.content import Contents

        return Contents.of({node: self.content(node, n_nodes, key) for node in nodes})

    def deal_by(self, deal: Deal, stated: bool = False) -> None:
        """Rows reach the nodes by `deal`; who has a file a node has dealt already.

        `stated`: that the nodes have just these rows is said to be so, not a consequence of what is in them.
        """
        require(
            deal.how in ("iid", "published", "blocks"),
            f"--deal {deal.how} deals out one table; --data {self.name} is one file a node: leave out --deal",
        )

    def describe(self) -> dict[str, Any]:
        """What a configuration or a dry run shows; nothing in it is computed from private rows but counts."""
        counts = {name: getattr(self, name) for name in ("test_rows", "rows_dropped", "duplicates")}
        return {
            "name": self.name, "task": self.task, "rows": self.n_rows, **counts, "features": self.n_features,
            "classes": list(self.classes), "clip": self.clip, "intercept": self.intercept, "licence": self.licence,
            "source": self.source, "known_by": self.facts.sources(),
        }  # fmt: skip

    def encoding(self) -> dict[str, Any]:
        """How raw rows become these columns, for those who have new ones; nothing of it is computed from rows."""
        return {"table": self.name, "known_by": self.facts.sources()}

    def finish(self, X: Matrix, *, sparse: bool, count: bool = True, own: bool = False) -> Matrix:
        """Intercept, clipping, and the form asked for; rows of the caller's `own` are clipped where they stand."""
        if self.intercept and X.shape[1] < self.n_features:
            X = with_intercept(X)
        if self.clip is not None:
            X, report = clip_rows(X, self.clip, own=own)
            if count:
                self.clipped = self.clipped.merge(report)
        if sparse:
            return X if isinstance(X, Sparse) else Sparse.from_dense(X)
        return dense(X)


class WholeSource(Source):
    """All rows in one place: any process can read any of them, and each reads only its own.

    `training` and `testing` are row numbers of the table in the order in which they are dealt out.
    """

    pooled_allowed = True
    training: Array
    testing: Array
    _dealt: Pieces | None = None
    _by = Deal("published", None)

    @abstractmethod
    def read(self, rows: Array, *, sparse: bool) -> tuple[Matrix, Array]:
        """X before intercept and clipping, and y, of these rows of the table."""

    def shards(self, n_nodes: int) -> Pieces:
        """Positions among the training rows, node by node."""
        assert self.n_rows is not None
        if self._dealt is None or len(self._dealt) != n_nodes:  # once, not once a node
            self._dealt = self._by.shards(self.n_rows, n_nodes, self._column)
        return self._dealt

    def deal_by(self, deal: Deal, stated: bool = False) -> None:
        self._by, self._dealt = deal, None
        if deal.looks_at_rows and not stated:
            why = f"--deal {deal.how} deals rows by what is in them; --stated deal states that nodes have them so"
            self.facts = replace(self.facts, deal=Fact(deal.how, ROWS, why))
        self.order_by(deal.seed)

    def order_by(self, seed: int | None) -> None:
        """The order in which training rows are dealt; of a bundled table 0 and None mean the published one."""
        if seed:
            self.training = self.training[permutation(len(self.training), seed)]

    def _column(self, name: str) -> Array:
        """The targets (''), or a column by which training rows are told apart: a number, or the place in a domain."""
        X, y = self.read(self.training, sparse=False)
        return (
            told_apart(dense(X)[:, self._columns_of(name, self.feature_names[: X.shape[1]])]) if name else y
        )

    def _columns_of(self, name: str, names: Sequence[str]) -> list[int]:
        """Where a column stands, or those that its categories became."""
        found = [j for j, each in enumerate(names) if each == name] or [
            j for j, each in enumerate(names) if each.startswith((f"{name}=", f"{name}~"))
        ]
        known = ", ".join(dict.fromkeys(each.partition("=")[0] for each in names))
        require(found, f"--deal column:{name}: no such column; there are: {known[:200]}")
        return found

    def node(self, node: int, n_nodes: int, *, sparse: bool = False) -> tuple[Matrix, Array]:
        X, y = self.read(self.training[self.shards(n_nodes)[node]], sparse=sparse)
        return self.finish(X, sparse=sparse), y

    def content(self, node: int, n_nodes: int, key: bytes) -> Content:
        from distadmm.data.content import of_public

        return of_public(self.name, self.training[self.shards(n_nodes)[node]], key)

    def everything(self, *, sparse: bool = False) -> tuple[Matrix, Array]:
        """All training rows, for an observer."""
        return self._uncounted(self.training, sparse)

    def test(self, *, sparse: bool = False) -> tuple[Matrix, Array] | None:
        return self._uncounted(self.testing, sparse) if len(self.testing) else None

    def _uncounted(self, rows: Array, sparse: bool) -> tuple[Matrix, Array]:
        X, y = self.read(rows, sparse=sparse)
        return self.finish(X, sparse=sparse, count=False), y

    def as_task(self, y: Array) -> Array:
        """Targets -1/+1 as the task wants them: class numbers for multiclass, else as they are."""
        return (y > 0).astype(np.int64) if self.task == "multiclass" else y

    def deal(self, training: Array, testing: Array) -> None:
        self.training, self.testing, self._dealt = training, testing, None
        self.n_rows, self.test_rows = len(training), len(testing)


def told_apart(block: Array) -> Array:
    """By what rows are told apart: their number, or the place of their category in its domain."""
    width = block.shape[1]
    return block[:, 0] if width == 1 else np.where(block.any(axis=1), block.argmax(axis=1), width)


BUNDLED_BOUNDS = Fact("as its SOURCE.md states", "bundled")


def _bundled(source: Source, bounds: Fact = BUNDLED_BOUNDS, sanitised: Iterable[str] = ()) -> PublicFacts:
    """What is known of a table that comes with distadmm."""
    classes, columns = Fact(source.classes, "bundled"), Fact(source.n_features, "bundled")
    return PublicFacts(classes, columns, bounds, Fact(source.clip, "flag"), mappings_of(sanitised))


class TableSource(WholeSource):
    def __init__(
        self, table: Table, training: Array, testing: Array, *, bounds: Fact = BUNDLED_BOUNDS, **options: Any
    ):
        super().__init__(**options)
        self.table = table
        self.name, self.licence, self.source = table.name, table.licence, table.source
        self.rows_dropped, self.duplicates = table.rows_dropped, table.duplicates
        self.feature_names = (*table.feature_names, *(("intercept",) if self.intercept else ()))
        self.facts = _bundled(self, bounds)
        self.deal(training, testing)

    def read(self, rows: Array, *, sparse: bool) -> tuple[Matrix, Array]:
        return take(self.table.X, rows), self.as_task(self.table.y[rows])

    def data_id(self, key: bytes | None = None) -> str:
        return data_id({"X": self.table.X, "y": self.table.y}, key or PUBLIC_KEY)


class AdultSource(WholeSource):
    """Adult in the 105-column encoding; rows are encoded when they are read."""

    name = "adult"

    def __init__(self, *, sanitise: Mapping[str, ColumnMapping] | None = None, seed: int = 0, **options: Any):
        from distadmm.data.adult import table as adult

        super().__init__(**options)
        self.licence, self.source = adult.LICENCE, adult.SOURCE
        self.rows_dropped, self.duplicates = adult.ROWS_DROPPED, adult.DUPLICATES
        self.replaced = adult.sanitised(sanitise or {}, seed)
        self.feature_names = (*adult.columns(self.replaced), *(("intercept",) if self.intercept else ()))
        self.facts = _bundled(self, sanitised=sanitise or ())
        self.deal(*adult.dealt())

    def read(self, rows: Array, *, sparse: bool) -> tuple[Matrix, Array]:
        from distadmm.data.adult import table as adult

        records = adult.raw.rows(rows)
        place = adult.place(rows) if self.replaced else rows
        replaced = {
            name: column._replace(codes=column.codes[place]) for name, column in self.replaced.items()
        }
        return adult.encode(records, replaced, sparse=sparse), self.as_task(adult.target(records))

    def data_id(self, key: bytes | None = None) -> str:
        from distadmm.data.adult import raw

        raw.check()
        replaced = {name: column.codes for name, column in self.replaced.items()}
        return data_id({"adult": raw.RECODED, **replaced}, key or PUBLIC_KEY)


def _tiny(**options: Any) -> Source:
    from distadmm.data.tiny import table as tiny

    return TableSource(tiny.table(), *tiny.split(), **options)


def _a9a(**options: Any) -> Source:
    from distadmm.data.adult import a9a

    why = "the columns of a9a are cut at quantiles of its rows; --stated bounds states that these are public constants"
    return TableSource(a9a.table(), *a9a.split(), bounds=Fact(a9a.EDGES, PUBLISHED, why), **options)


BUNDLED: dict[str, Callable[..., Source]] = {"adult": AdultSource, "tiny": _tiny, "a9a": _a9a}


def open_source(
    text: str,
    *,
    clip: float | None = 1.0,
    intercept: bool = False,
    seed: int = 0,
    sanitise: Mapping[str, ColumnMapping] | None = None,
    world: Any = None,
    deal: Deal | None = None,
    **reading: Any,
) -> Source:
    """The source that `--data TEXT` names: a bundled table, a file, or a pattern with {rank} or {node}.

    `reading` says how a user's file is to be read (see `files.from_text`).  With a `world` of several
    ranks, all of them call this together: rank 0 checks a whole file and tells the others what they need.
    """
    if clip is not None:
        require(clip > 0, f"--clip is {clip}; needed: a bound above 0 on the norm of a row")
    options: dict[str, Any] = {"clip": clip, "intercept": intercept}
    stated = reading.get("stated", ())
    if text in BUNDLED:
        options["task"] = reading.pop("task", "binary")
        reading.pop("private", None)
        reading.pop("stated", None)
        for name, value in reading.items():
            flag = name.replace("_", "-")
            require(not value, f"--{flag} is for files of your own; the bundled table {text!r} needs none")
        if text == "adult":
            options |= {"sanitise": sanitise, "seed": seed}
        else:
            require(not sanitise, f"--sanitise: {text!r} has no raw categorical columns; use --data adult")
        source = BUNDLED[text](**options)
        source.facts = source.facts.stating(stated)
    else:
        from distadmm.data.files import from_text

        if held(text) is None and not any(mark in text for mark in "{./"):
            known = ", ".join(BUNDLED)
            raise InputError(f"--data {text}: no such table; bundled: {known}; or give a file name")
        source = from_text(text, sanitise=sanitise, seed=seed, world=world, **reading, **options)
    if deal is not None:
        source.deal_by(deal, "deal" in stated)
    return source
