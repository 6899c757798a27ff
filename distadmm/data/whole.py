"""One file of the user's for all nodes: each process reads the rows of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.data import formats, public, source
from distadmm.data.reading import LIBSVM, Reading, file_digest
from distadmm.data.table import (
    WIDE,
    Array,
    Matrix,
    Sparse,
    blocks_of,
    collected,
    data_id,
    dense,
    local_key,
    permutation,
    take,
)
from distadmm.errors import InputError, require

if TYPE_CHECKING:
    from distadmm.data.content import Content, Contents
    from distadmm.ranks.world import World

HELD_OUT = 0x7FFFFFFF  # stands where a node's number would, in the random choices of a test file


class Form(NamedTuple):
    """What every rank must know of a whole file before it reads its rows."""

    n_rows: int
    feature_names: tuple[str, ...]
    classes: public.Fact | None  # None: they are to be found in the rows
    pieces: Any = None  # where its records stand


class FileSource(source.WholeSource):
    """One file, cut into shards by a permutation seeded by `seed`.

    Alone, it reads and checks all rows.  With a `form`, and where it is `shared` between ranks, each rank reads the
    rows of its own nodes when it is told which these are (`hold`), and what else is asked for when it is.
    """

    def __init__(
        self,
        path: Path,
        reading: Reading,
        *,
        test_fraction: float = 0.0,
        test_data: Path | None = None,
        form: Form | None = None,
        shared: bool = False,
        **options: Any,
    ):
        super().__init__(task=reading.task, **options)
        self.path, self.reading, self.name, self.source = path, reading, path.name, str(path)
        self.test_data, self.test_fraction = test_data, test_fraction
        self._rows: tuple[Matrix, Array] | None = None
        self._shares: Shares | None = None
        self._nodes: dict[int, int] = {}  # of what is held, where each node's rows stand
        known = None if form is None else form.pieces
        asked = reading if form is None else with_width(reading, form)
        self.file = reading.sanitised(asked.open(path, known=known))
        count = self.file.n_rows
        if form is not None:
            require(
                form.n_rows == count,
                f"{path} has {count} rows here and {form.n_rows} on rank 0; give all ranks the same file",
            )
        pieces = getattr(self.file, "pieces", None)
        self._learn(form or Form(count, self.file.feature_names, reading.known(), pieces))
        self.order_by(reading.seed)
        if form is None and not shared:
            X, target = collected(self.file, None)
            y, classes = reading.targets(target, self._target, self.file.place)
            self._learn(self.form._replace(classes=classes))
            self._rows = X, y

    def _learn(self, form: Form) -> None:
        self.form, classes = form, form.classes or public.Fact((), public.ROWS)
        self.classes = classes.value
        self.facts = replace(
            self.reading.facts(self.path, form.feature_names, classes, self.clip),
            **({"deal": self.facts.deal} if hasattr(self, "facts") else {}),
        )
        self.feature_names = (*form.feature_names, *(("intercept",) if self.intercept else ()))

    @property
    def _target(self) -> str:
        return f"{self.path}: the target"

    def order_by(self, seed: int | None) -> None:
        """By a permutation, or as the file has them; what comes last is held out."""
        blocks = self._by.how == "blocks"
        if seed is None and not blocks:
            return
        held, n = self.test_fraction, self.file.n_rows
        require(0.0 <= held < 1.0, f"--test-fraction is {held}; needed: at least 0, less than 1")
        require(
            not (held and self.test_data),
            "--test-fraction and --test-data both hold rows out; give one of them",
        )
        last = round(held * n)
        require(last < n, f"--test-fraction {held} leaves no row of {n} to train on; give less")
        order = np.arange(n) if blocks else permutation(n, seed or 0)
        self.deal(order[: n - last], order[n - last :])

    def _targets(self, cells: Array, rows: Array) -> Array:
        def place(i: int) -> str:
            return self.file.place(int(rows[i]))

        return self.reading.targets(cells, self._target, place, self.form.classes)[0]

    def hold(self, nodes: Sequence[int], n_nodes: int, world: World) -> None:
        """Read the rows of these nodes at once, and no others where those stand in other pieces of the file.

        Called by all ranks, with all nodes among them; rank 0 looks through what is held out for testing as well.
        """
        if self._by.looks_at_rows and world.size > 1:
            # Whoever looks at rows to deal them has found their classes: all know them then, or none.
            self._dealt, classes = world.on_root(lambda: (self.shards(n_nodes), self.form.classes))
            self._learn(self.form._replace(classes=classes))
        shards = self.shards(n_nodes)
        self._nodes = {node: at for at, node in enumerate(nodes)}
        own = shards.of(nodes)
        self._shares = shares = Shares(self.training[own.order], own.ends, int(self.intercept))
        known = self.form.classes
        cells: set[Any] = set()
        with world.together(named=False):
            rows = np.concatenate([shares.rows, self.testing]) if world.is_root else shares.rows
            for places, X, found in blocks_of(self.file, rows):
                targets = found if known is None else self._targets(found, rows[places])
                if known is None or known.source == "convention":
                    cells |= set(found.tolist())
                shares.put(places, X, targets)
            shares.close(lambda X: dense(self.finish(X, sparse=False, own=True)))
        if known is None or known.source == "convention":
            everywhere = set().union(*world.allgather(cells))
            with world.together(named=False):
                self._classes_among(everywhere)
                if known is None:
                    shares.targets = self._targets(shares.targets, shares.rows)

    def _classes_among(self, cells: set[Any]) -> None:
        """Learn which classes there are from all different target cells, or see that they are the conventional ones."""
        different = np.array(sorted(cells, key=str), dtype=object)
        if self.form.classes is None:
            classes = self.reading.found(different, self._target, self.file.n_rows)
            self._learn(self.form._replace(classes=classes))
        else:
            self.reading.targets(different, self._target, None, self.form.classes)

    def _know_classes(self) -> None:
        if self.form.classes is None:
            cells: set[Any] = set()
            for _, _, found in blocks_of(self.file):
                cells |= set(found.tolist())
            self._classes_among(cells)

    def node(self, node: int, n_nodes: int, *, sparse: bool = False) -> tuple[Matrix, Array]:
        """Rows that are held are given away: whoever asks again has them read again."""
        at = None if self._shares is None else self._nodes.pop(node, None)
        if at is None:
            return super().node(node, n_nodes, sparse=sparse)
        assert self._shares is not None
        X, y = self._shares.take(at), self._shares.y(at)
        if not self._nodes:
            self._shares = None
        if isinstance(X, Sparse):
            return self.finish(X, sparse=sparse, own=True), y
        return (Sparse.from_dense(X) if sparse else X), y

    def nodes(
        self, nodes: Sequence[int], n_nodes: int, *, sparse: bool = False, stacked: bool = False
    ) -> Iterator[tuple[Matrix, Array]]:
        shares, self_held = self._shares, list(nodes) == list(self._nodes)
        if shares is None or shares.sparse or sparse or not (stacked and self_held):
            return super().nodes(nodes, n_nodes, sparse=sparse)
        self._shares, self._nodes = None, {}
        return shares.stacks()

    def read(self, rows: Array, *, sparse: bool) -> tuple[Matrix, Array]:
        if self._rows is not None:
            X, y = self._rows
            return take(X, rows), y[rows]
        self._know_classes()
        X, cells = collected(self.file, rows)
        return X, self._targets(cells, rows)

    def _column(self, name: str) -> Array:
        if self._rows is not None:
            return super()._column(name)
        self._know_classes()
        at = self._columns_of(name, self.form.feature_names) if name else []
        found: Array = np.empty(0)
        for places, X, cells in blocks_of(self.file, self.training):
            part = source.told_apart(dense(X)[:, at]) if name else self._targets(cells, self.training[places])
            found = found if len(found) else np.empty(len(self.training), part.dtype)
            found[places] = part
        return found

    def test(self, *, sparse: bool = False) -> tuple[Matrix, Array] | None:
        if self.test_data is None:
            return super().test(sparse=sparse)
        X, y = held_out_of(self.test_data, self.reading, self.form, self.path)
        return self.finish(X, sparse=sparse, count=False), y

    @property
    def wide(self) -> bool:
        return formats.kind(self.path) in LIBSVM and self.n_features > WIDE

    def encoding(self) -> dict[str, Any]:
        unit = getattr(self.path, "unit", 1.0)  # of a table of this session
        return {
            **super().encoding(),
            **self.reading.as_json(),
            **({"unit": unit} if unit != 1.0 else {}),
        }

    def content(self, node: int, n_nodes: int, key: bytes) -> Content:
        return self.reading.content(self.file, self.training[self.shards(n_nodes)[node]], key)

    def contents(self, nodes: Sequence[int], n_nodes: int, key: bytes) -> Contents:
        own = self.shards(n_nodes).of(nodes)
        return self.reading.sums(self.file, self.training[own.order], key).contents(nodes, own.ends, key)

    def data_id(self, key: bytes | None = None) -> str:
        content = {"file": file_digest(self.path), "reading": self.reading.as_text()}
        return data_id(content, key or local_key())


def held_out_of(path: Path, reading: Reading, form: Form, training: Path) -> tuple[Matrix, Array]:
    """X and y of a file of test rows, which has the columns and the classes of the training file."""
    file = with_width(reading, form).open(path)
    X, target, names = reading.read(file, HELD_OUT)
    same_columns(training, form.feature_names, path, names)
    return X, reading.targets(target, f"{path}: the target", file.place, form.classes)[0]


def with_width(reading: Reading, form: Form) -> Reading:
    """A libsvm file says its width only when all of it is read; `form` knows it."""
    if reading.features is not None:
        return reading
    return replace(reading, features=len(form.feature_names))


def same_columns(path: Path, names: tuple[str, ...], other: Path, other_names: tuple[str, ...]) -> None:
    found = f"{other} has {len(other_names)} feature columns, {path} has {len(names)}"
    require(len(names) == len(other_names), f"{found}; needed: the same columns")
    for position, (name, other_name) in enumerate(zip(names, other_names), 1):
        if name != other_name:
            found = f"feature column {position} is {other_name!r} in {other} and {name!r} in {path}"
            raise InputError(f"{found}; needed: the same columns in the same order")


SMALL = 1 << 14  # entries: nodes with more are no stack
_GROUP = 1 << 19  # entries: small nodes that follow one another share an array, and its end


class Shares:
    """The rows of a rank's nodes, put in their places as they are read, and given away node by node: they exist once.

    `rows`: their numbers, those of the i-th node being rows[ends[i]:ends[i + 1]]; `beside`: columns of ones behind
    those that are read."""

    def __init__(self, rows: Array, ends: Array, beside: int):
        self.rows, self._ends = rows, ends
        self._beside, self.targets = beside, np.empty(0, dtype=object)
        self._pieces: list[tuple[Array, Sparse]] = []
        self._sparse: Sparse | None = None
        self._groups: list[Array | None] = []
        self._starts: Array = np.empty(0, dtype=np.int64)  # of the groups, among the rows

    def put(self, places: Array, X: Matrix, targets: Array) -> None:
        """Of rows whose place lies behind the nodes' nothing is kept."""
        if len(beyond := np.flatnonzero(places >= len(self.rows))):
            own = np.delete(np.arange(len(places)), beyond)
            places, X, targets = places[own], take(X, own), targets[own]
        if not len(self.targets):
            self.targets = np.empty(len(self.rows), targets.dtype)
        self.targets[places] = targets
        if isinstance(X, Sparse):
            self._pieces.append((places, X))
            return
        if not self._groups:
            self._make(X.shape[1])
        group = np.searchsorted(self._starts, places, side="right") - 1
        for g in np.unique(group).tolist():
            here, into = group == g, self._groups[g]
            assert into is not None
            into[places[here] - self._starts[g], : X.shape[1]] = X[here]

    def _make(self, width: int) -> None:
        starts, size = [0], _GROUP // (width + self._beside)
        for begin, end in zip(self._ends.tolist(), self._ends[1:].tolist()):
            if end - starts[-1] > size and begin > starts[-1]:
                starts.append(begin)
        self._starts = np.array(starts)
        for low, high in zip(starts, [*starts[1:], len(self.rows)]):
            group = np.empty((high - low, width + self._beside))
            group[:, width:] = 1.0
            self._groups.append(group)

    def close(self, finish: Callable[[Array], Array]) -> None:
        """All rows are there; `finish` is done to those that are written out, many nodes at once."""
        self._groups = [None if group is None else finish(group) for group in self._groups]
        if self._pieces:
            order = np.concatenate([places for places, _ in self._pieces])
            whole = Sparse.below([piece for _, piece in self._pieces])
            self._pieces = []
            self._sparse = whole.take(np.argsort(order))

    def take(self, i: int) -> Matrix:
        """The rows of the i-th node, which are the caller's from now on; nodes are asked for in their order."""
        low, high = self._ends[i : i + 2].tolist()
        if self._sparse is not None:
            return self._sparse.take(np.arange(low, high))
        g = int(np.searchsorted(self._starts, low, side="right")) - 1
        group = self._groups[g]
        assert group is not None
        begin = int(self._starts[g])
        if high == begin + len(group):
            self._groups[g] = None
        return group[low - begin : high - begin]

    @property
    def sparse(self) -> bool:
        return self._sparse is not None

    def stacks(self) -> Iterator[tuple[Array, Array]]:
        """The rows and targets of all nodes, those of small ones with equally many rows stacked; then none are left."""
        sizes = np.diff(self._ends)
        for g, begin in enumerate(self._starts.tolist()):
            group, self._groups[g] = self._groups[g], None
            assert group is not None
            first, last = np.searchsorted(self._ends[:-1], (begin, begin + len(group))).tolist()
            cuts = [first, *(np.flatnonzero(np.diff(sizes[first:last])) + first + 1).tolist(), last]
            for a, b in pairwise(cuts):
                low, high = self._ends[[a, b]].tolist()
                X, y = group[low - begin : high - begin], self.targets[low:high]
                shape = b - a, int(sizes[a])
                if b - a == 1 or X.size > SMALL * (b - a):
                    yield from zip(X.reshape(*shape, -1), y.reshape(shape))
                else:
                    yield X.reshape(*shape, -1), y.reshape(shape)

    def y(self, i: int) -> Array:
        return self.targets[self._ends[i] : self._ends[i + 1]]
