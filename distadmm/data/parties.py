"""What the parties of ADMM sharing read: a table cut by columns, or a file each with a shared key.

Each rank can do its part alone: it calls `read_party` on its own file, sends its keys (and nothing else) to the
centre, which calls `common_keys`, and takes its rows in the order it gets back with `positions`.  Keys say who is
in a party's file: this is known to the centre afterwards.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.data import mapping, options, public
from distadmm.data.parts import Parts, cut, sparse_or_dense, split
from distadmm.data.reading import Reading, file_digest
from distadmm.data.table import Array, Matrix, Sparse, data_id, local_key, take
from distadmm.errors import InputError, require
from distadmm.flags import flag
from distadmm.ranks.star import Star
from distadmm.ranks.world import World
from distadmm.structs import struct

BUNDLED = ("tiny", "adult", "a9a")
HOLD_OUT = 0x484F4C44  # purpose of the permutation that holds records out


@struct
class DataOptions(options.MoreRows):
    split: tuple[int, ...] = flag(
        (), help="columns a party, in order, such as 66,57 (default: equal)", at_least=1
    )
    parties: int | None = flag(
        None, help="number of parties (default: from --split, else the ranks, else 2)", at_least=1
    )
    party_files: tuple[str, ...] = flag(
        (), help="instead of --data: each party's own CSV or npz file, in order"
    )
    label_file: str | None = flag(None, help="the centre's file (default: the labels are in party 1's file)")
    key: str | None = flag(None, help="column that names the record in every party's file")
    join: str = flag(
        "refuse",
        help="when the parties' records differ: refuse, or inner: take the common ones",
        choices=("refuse", "inner"),
    )

    def __post_init__(self) -> None:
        files = len(self.party_files)
        require(
            not (files and self.sanitise),
            "--sanitise goes with --data; sanitise a party's own file before it is given to --party-files",
        )
        require(
            not (files and self.schema),
            "--schema describes the columns of --data; leave it out with --party-files",
        )
        given = {n for n in (len(self.split), self.parties or 0, files) if n}
        require(
            len(given) <= 1,
            f"--split, --parties and --party-files speak of {' and '.join(map(str, sorted(given)))} parties; "
            "give one of them",
        )
        require(
            given != {1},
            "1 party; sharing needs at least 2: give a longer --split, or more --parties or files",
        )
        require(
            not files or self.key,
            "--party-files needs --key NAME, the column that says which rows belong together",
        )
        require(
            not files or not self.test_data, "--test-data goes with --data; use --test-fraction with files"
        )
        require(
            files or not (self.key or self.label_file),
            "--key and --label-file go with --party-files; give these",
        )

    @property
    def labels_at_party_one(self) -> bool:
        """Party 1 holds the labels, so it is the centre too."""
        return bool(self.party_files) and self.label_file is None

    def of_widths(self, widths: Sequence[int]) -> Self:
        """The same table, cut into these widths."""
        return replace(self, split=tuple(widths), parties=None)

    def count(self, world: World, *, party_one_is_centre: bool = False) -> int:
        ranks = world.size - (0 if party_one_is_centre else 1)
        return len(self.split) or len(self.party_files) or self.parties or max(ranks, 2)


def load(
    data: DataOptions, star: Star, seed: int, *, regression: bool = False, private: bool = False
) -> Parts:
    """The parts of this rank, in one order of records everywhere; called by every rank.

    A `private` run is refused what only the rows could tell of the table.
    """
    if data.party_files:
        return _from_files(data, star, seed, regression, private)
    from distadmm.data.source import WholeSource, open_source

    # Each rank reads the table and keeps the columns of its parties.
    reading = data.reading() | {"private": private}
    if regression and data.data not in BUNDLED:
        reading["task"] = "regression"
    with star.world.together():
        washed = mapping.named_mappings(data.sanitise)
        source = open_source(data.data, clip=None, seed=seed, sanitise=washed or None, **reading)
        if not isinstance(source, WholeSource):
            raise InputError(
                f"--data {data.data} is a file a rank; for a file a party give --party-files and --key"
            )
        if private:
            columns = public.Fact(sum(data.split), "flag") if data.split else source.facts.columns
            replace(source.facts, columns=columns).require_public(data.data)
    X, y = source.everything(sparse=True)
    held_out = source.test(sparse=True)
    test = (_matrix(held_out[0]), held_out[1]) if held_out else None
    parts = split(star, data.split, (_matrix(X), y), test, source.feature_names)
    name = source.data_id(None if data.data in BUNDLED else local_key())
    return parts._replace(
        dataset={m: f"{name}, columns of party {m}" for m in star.hosted},
        leakage={m: _leaks(washed, parts.names[m]) for m in star.hosted},
        content=lambda m, key: source.content(0, 1, key).columns(repr(parts.names[m]), key),
        public=data.data in BUNDLED,
        encoding=source.encoding(),
        classes=source.classes,
    )


def _leaks(washed: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    """What the mappings of a party's own columns leak on average, for its ledger, and those of all parties together."""
    from distadmm.data.together import releases, together

    held = [column for column in washed if any(name.startswith(f"{column}~") for name in names)]
    own = releases({column: washed[column] for column in held}, seeded=True)
    return (*own, together(washed).release(seeded=True)) if 0 < len(held) < len(washed) else own


def _matrix(X: Any) -> Any:
    return sparse_or_dense(X.to_scipy() if hasattr(X, "to_scipy") else X)


def _from_files(data: DataOptions, star: Star, seed: int, regression: bool, private: bool) -> Parts:
    """Each rank reads the files of its own parties; only keys and row numbers are exchanged."""

    assert data.key is not None
    task = "regression" if regression else "binary"
    reading = Reading(
        target=data.target, task=task, labels=data.labels, seed=seed, private=private, stated=data.stated
    )
    files = dict(enumerate(data.party_files, 1))
    own, labels = {}, None
    with star.world.together():
        for m in star.hosted:
            own[m] = read_party(files[m], data.key, reading, target=m == 1 and data.labels_at_party_one)
        if star.is_centre:
            labels = (
                read_party(data.label_file, data.key, reading, target=True) if data.label_file else own[1]
            )
    apart = (labels.file, labels.keys) if labels is not None and data.label_file else None
    order, rows, places = one_order(
        star, {m: party.keys for m, party in own.items()}, files, data.join, apart
    )
    own = {m: _taken(party, places[m]) for m, party in own.items()}
    stream = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(HOLD_OUT, 0)))
    testing, training = map(np.sort, np.split(stream.permutation(rows), [round(data.test_fraction * rows)]))
    y = in_order(labels, order).y if labels is not None else None
    matrices = {m: _matrix(party.X) for m, party in own.items()}
    return Parts(
        {m: matrix[training] for m, matrix in matrices.items()},
        {m: party.feature_names for m, party in own.items()},
        y[training] if y is not None else None,
        {m: matrix[testing] for m, matrix in matrices.items()} if testing.size else {},
        y[testing] if y is not None and testing.size else None,
        training.size,
        {m: data_id({"file": file_digest(Path(party.file))}, local_key()) for m, party in own.items()},
        content=lambda m, key: reading.content(
            reading.open(Path(files[m]), targetless=not (m == 1 and data.labels_at_party_one)), None, key
        ),
        owners=True,
        encoding={"key": data.key, **reading.as_json()},
        classes=labels.classes if labels is not None else (),
    )


def one_order(
    star: Star,
    own: Mapping[int, Sequence[str]],
    files: Mapping[int, str | Path],
    join: str,
    apart: tuple[str, Sequence[str]] | None = None,
) -> tuple[list[str], int, dict[int, Array]]:
    """At the centre the keys that all parties hold; how many; and the rows of each party here, in that order.

    Keys go to the centre and row numbers come back.  `apart`: a file with labels and its keys, at the centre.
    """
    told = star.texts_up({m: "\n".join(keys) for m, keys in own.items()})
    order: list[str] = []
    messages = None
    with star.world.together():
        if told is not None:
            keys = {m: text.split("\n") for m, text in told.items()}
            lists = [*([apart[1]] if apart else []), *keys.values()]
            order = common_keys(lists, join, [*([apart[0]] if apart else []), *(str(files[m]) for m in keys)])
            messages = {m: positions(held, order) for m, held in keys.items()}
    rows = star.world.broadcast(len(order))
    return order, rows, star.deal(messages, dict.fromkeys(star.home, rows), np.int64)


def split_columns(X: Matrix, sizes: Sequence[int]) -> list[Matrix]:
    """Blocks of columns, in order; the sizes add up to the width of X."""
    require(
        len(sizes) >= 2, f"--split {','.join(map(str, sizes))} makes one party; needed: two or more sizes"
    )
    return [_columns(X, block) for block in cut(sizes, X.shape[1], len(sizes))]


def _columns(X: Matrix, block: slice) -> Matrix:
    if not isinstance(X, Sparse):
        return np.ascontiguousarray(X[:, block])
    inside = (X.indices >= block.start) & (X.indices < block.stop)
    before = np.concatenate([[0], np.cumsum(inside)])
    shape = (X.shape[0], block.stop - block.start)
    return Sparse(before[X.indptr], X.indices[inside] - block.start, X.data[inside], shape)


class Party(NamedTuple):
    """What one party reads from its own file."""

    file: str
    keys: list[str]  # one a row, in file order
    X: Matrix
    y: Array | None  # where the file has the target
    feature_names: tuple[str, ...]
    classes: tuple[Any, ...]


def read_party(path: str | Path, key: str, reading: Reading | None = None, *, target: bool = False) -> Party:
    """One party's file.  `target` says that its target column (reading.target, or the last) holds the labels.

    A file with the labels may hold no features: it belongs to a centre without columns of its own.
    """
    path, reading = Path(path), reading or Reading()
    file = reading.open(path, drop=(key,), targetless=not target, featureless=target)
    keys = keys_of(file, key)
    if reading.private:
        reading.facts(path, file.feature_names, public.Fact((), "header"), None).require_public(str(path))
    X, cells, names = reading.read(file)
    if not target:
        return Party(str(path), keys, X, None, names, ())
    y, classes = reading.targets(cells, f"{path}: the target", file.place)
    return Party(str(path), keys, X, y, names, classes.value)


def keys_of(file: Any, key: str) -> list[str]:
    if not hasattr(file, "column"):
        raise InputError(
            f"{file.path}: a libsvm file has no key column {key!r}; give CSV, or .npz with an array {key!r}"
        )
    keys: list[str] = file.column(key)
    empty = next((row for row, name in enumerate(keys) if not name), None)
    if empty is not None:
        raise InputError(f"{file.path} {file.place(empty)}: the key {key!r} is empty; give every row its key")
    return keys


def common_keys(keys: Sequence[Sequence[str]], join: str = "refuse", files: Sequence[str] = ()) -> list[str]:
    """The keys that all parties hold, in the order of the first; all of them must agree unless `join` is inner.

    Duplicates are refused either way: no rule says which of two rows belongs to a person.
    """
    require(join in ("refuse", "inner"), f"--join is {join!r}; choose one of: refuse, inner")
    names = list(files) or [f"party {number}" for number in range(len(keys))]
    for name, own in zip(names, keys):
        repeated = sum(count - 1 for count in Counter(own).values())
        require(
            not repeated,
            f"{name}: {repeated} of {len(own)} keys occur again further down; keep one row for each key",
        )
    shared = set(keys[0]).intersection(*keys[1:])
    order = [name for name in keys[0] if name in shared]
    if join == "refuse" and any(len(own) != len(shared) for own in keys):
        union = set().union(*keys)
        lacking = [(name, len(union) - len(own)) for name, own in zip(names, keys)]
        held = ", ".join(f"{name} lacks {count}" for name, count in lacking if count)
        raise InputError(
            f"the parties do not hold the same rows: {len(shared)} of {len(union)} keys are common to all "
            f"({held}); complete the files, or take the common rows with --join inner"
        )
    require(order, "no key is common to all parties; check that --key names the same thing in every file")
    return order


def positions(keys: Sequence[str], order: Sequence[str]) -> Array:
    """Where a party's rows stand, in the order the centre asks for."""
    place = {name: row for row, name in enumerate(keys)}
    return np.array([place[name] for name in order], dtype=np.int64)


def align_parties(
    files: Sequence[str | Path],
    key: str,
    join: str = "refuse",
    reading: Reading | None = None,
    *,
    labels_at: int = 0,
) -> list[Party]:
    """All parties' files read in one process, their rows in one order; party `labels_at` has the target."""
    parties = [read_party(file, key, reading, target=i == labels_at) for i, file in enumerate(files)]
    order = common_keys([party.keys for party in parties], join, [party.file for party in parties])
    return [in_order(party, order) for party in parties]


def in_order(party: Party, order: Sequence[str]) -> Party:
    return _taken(party, positions(party.keys, order))


def _taken(party: Party, rows: Array) -> Party:
    y = None if party.y is None else party.y[rows]
    return party._replace(keys=[party.keys[row] for row in rows], X=take(party.X, rows), y=y)
