"""Rows are the same whichever way they are read: in pieces or at once, cell by cell or by pyarrow, from any format."""

import gzip
import hashlib
import hmac
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.data import csvfile, records
from distadmm.data.content import Contents
from distadmm.data.csvfile import CsvFile
from distadmm.data.deal import Deal
from distadmm.data.formats import LibsvmFile
from distadmm.data.source import open_source
from distadmm.data.table import dense
from distadmm.errors import InputError
from distadmm.ranks.world import World

SPELLINGS = [
    "1.5",
    "+2",
    " 3 ",
    "1e-3",
    ".5",
    "7.",
    "-0",
    "1_0",
    "4.9e-324",
    "0.1",
    "1e22",
    "\u0663",
    "9" * 22,
]
SCHEMA = """
target = "income"
labels = ["no", "yes"]
missing = ["?"]
ignore = ["id"]
[columns]
age = { max = 100, missing = 40, missing_indicator = true }
weight = { min = -5, max = 5 }
job = { values = ["clerk", "cook, head", "pilot"], missing_indicator = true }
"""


def people(folder, rows=200, seed=0):
    """A table of numbers, texts with delimiters, and missing cells."""
    rng = np.random.default_rng(seed)
    lines = ["id,age,weight,job,income"]
    for i in range(rows):
        age = rng.choice(["?", "", str(rng.integers(0, 100))], p=[0.1, 0.1, 0.8])
        job = rng.choice(['"cook, head"', "clerk", "pilot", "?", '"pilot"'])
        lines.append(f"{i},{age},{rng.uniform(-5, 5)!r},{job},{rng.choice(['no', 'yes'])}")
        if i % 17 == 0:
            lines.append("  ")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "people.toml").write_text(SCHEMA)
    return str(folder / "people.csv"), {"schema": str(folder / "people.toml")}


def numbers(path, X, y, names=None):
    names = names or [f"x{j + 1}" for j in range(X.shape[1])]
    lines = [",".join([*names, "y"])]
    lines += [",".join([*map(repr, x), str(v)]) for x, v in zip(X.tolist(), y.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def same(one, other):
    for a, b in zip(one.everything(), other.everything()):
        assert np.array_equal(a, b)
    assert one.feature_names == other.feature_names
    assert one.classes == other.classes
    for node in range(3):
        assert one.content(node, 3, b"k" * 16) == other.content(node, 3, b"k" * 16)


def pieces(monkeypatch, size):
    monkeypatch.setattr(records, "PIECE", size)
    monkeypatch.setattr(csvfile, "PIECE", size)
    monkeypatch.setattr(csvfile, "_AT_ONCE", size)


@pytest.fixture(params=["cells", "arrow"])
def route(request, monkeypatch):
    if request.param == "arrow":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(csvfile, "LARGE", 0)
    return request.param


@pytest.mark.parametrize("size", [1, 40, 300, 5000])
def test_pieces_of_any_size_give_the_same_rows(tmp_path, monkeypatch, route, size):
    path, how = people(tmp_path)
    whole = open_source(path, **how)
    pieces(monkeypatch, size)
    same(whole, open_source(path, **how))


def test_a_quoted_cell_may_go_on_over_pieces(tmp_path, monkeypatch):
    cell = "one\n\nline, and\r\nanother"
    rows = [f'"{cell}",{i},"{i % 2}"' for i in range(30)]
    text = "\n".join(['"te\nxt",x,y', *rows, ""])
    (tmp_path / "t.csv").write_bytes(text.encode())
    for size in (1, 7, 64, 1 << 20):
        pieces(monkeypatch, size)
        file = CsvFile(tmp_path / "t.csv")
        assert file.header == ["te\nxt", "x", "y"]
        assert file.column("te\nxt") == [cell] * 30
        assert file.column("x") == [str(i) for i in range(30)]
        assert [file.place(i) for i in (0, 1)] == ["line 6", "line 10"]


@given(
    st.lists(
        st.sampled_from(SPELLINGS),
        min_size=2,
        max_size=12,
    )
)  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_pyarrow_and_python_round_alike(tmp_path_factory, cells):
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("t")
    lines = ["x,y", *(f"{cell},{i % 2}" for i, cell in enumerate(cells))]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    large = csvfile.LARGE
    try:
        found = []
        for csvfile.LARGE in (0, 1 << 40):
            found.append(CsvFile(folder / "t.csv").read()[0].tobytes())
    finally:
        csvfile.LARGE = large
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("cook", "line 4, column 'x2': 'cook' is not a number"),
        ("", "line 4, column 'x2': the cell is empty"),
        ("NaN", "line 4, column 'x2': 'NaN' stands for no number"),
        ("1e999", "line 4, column 'x2': the value is 1e999"),
        ("1,2", "line 4 has 4 cells, the header has 3"),
        ("caf\xe9", "line 4 is not UTF-8"),
        ('"3', "line 4: a quote opens that nothing closes"),
    ],
)
def test_a_bad_cell_is_named_by_its_line_on_every_route(tmp_path, monkeypatch, route, cell, said):
    lines = ["x1,x2,y", "1,2,0", "", f"3,{cell},1", "5,6,0", ""]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    for size in (1, 1 << 20):
        pieces(monkeypatch, size)
        with pytest.raises(InputError) as error:
            open_source(str(tmp_path / "t.csv"))
        assert said in str(error.value)


def test_a_number_outside_its_bounds_is_shown_as_it_stands(tmp_path, route):
    path, how = people(tmp_path)
    text = (tmp_path / "people.csv").read_text().splitlines()
    text[1] = "0,50,7.50,clerk,no"
    (tmp_path / "people.csv").write_text("\n".join(text))
    with pytest.raises(InputError, match=r"line 2, column 'weight': 7\.50 is outside the bounds -5 to 5"):
        open_source(path, **how)


def test_every_format_gives_the_same_bits(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 5)), rng.permutation(60) % 2
    known = open_source(numbers(tmp_path / "t.csv", X, y), seed=4)
    np.savez(tmp_path / "t.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "packed.npz", X=np.asfortranarray(X), y=y)
    np.save(tmp_path / "t.npy", np.column_stack([X, y]))
    files = ["t.npz", "packed.npz", "t.npy"]
    if csvfile.arrow() is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({**{f"x{j + 1}": X[:, j] for j in range(5)}, "y": y})
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=7)
        files.append("t.parquet")
    for name in files:
        same(known, open_source(str(tmp_path / name), seed=4))
    chosen = open_source(str(tmp_path / "t.npy"), target="x2", task="regression", clip=None)
    assert chosen.feature_names == ("x1", "x3", "x4", "x5", "x6")
    np.testing.assert_array_equal(np.sort(chosen.everything()[1]), np.sort(X[:, 1]))


def test_parquet_is_read_as_the_csv_with_a_schema_and_missing_cells(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path, how = people(tmp_path)
    file = CsvFile(tmp_path / "people.csv")
    columns = file.texts()
    ages = [None if cell in ("", "?") else int(cell) for cell in columns["age"]]
    jobs = pa.array([None if cell == "?" else cell for cell in columns["job"]]).dictionary_encode()
    typed = {
        "id": pa.array(list(map(int, columns["id"]))),
        "age": pa.array(ages),
        "weight": pa.array(list(map(float, columns["weight"]))),
        "job": jobs,
        "income": pa.array(columns["income"]),
    }
    pq.write_table(pa.table(typed), tmp_path / "people.parquet", row_group_size=33)
    one, other = open_source(path, **how), open_source(str(tmp_path / "people.parquet"), **how)
    for a, b in zip(one.everything(), other.everything()):
        assert np.array_equal(a, b)
    typed["weight"] = pa.array([9.5, *map(float, columns["weight"][1:])])
    pq.write_table(pa.table(typed), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"bad\.parquet row 1, column 'weight': 9\.5 is outside the bounds"):
        open_source(str(tmp_path / "bad.parquet"), **how)
    pq.write_table(pa.table({"x": [[1], [2]], "y": [0, 1]}), tmp_path / "lists.parquet")
    with pytest.raises(InputError, match=r"column 'x' holds list<.*>; needed: numbers or texts"):
        open_source(str(tmp_path / "lists.parquet"))
    (tmp_path / "none.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        open_source(str(tmp_path / "none.parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(InputError, match=r"pip install 'distadmm\[arrow\]'"):
        open_source(str(tmp_path / "people.parquet"), **how)


def _named(source, node, key):
    """The first name of the rows of a node, by the library's HMAC."""
    sums = source.reading.sums(source.file, source.training[source.shards(5)[node]], key).kinds[0]
    codes = [hashlib.blake2b(each.tobytes(), key=key[:64], digest_size=8).digest() for each in sums]
    codes.sort(key=lambda code: int.from_bytes(code, "little"))
    return hmac.digest(key, b"".join(codes), "sha256").hex()


@pytest.mark.parametrize("deal", ["iid", "blocks", "quantity:0.4", "label:0.5", "column:x1"])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "npz", "svm"])
def test_what_a_rank_holds_is_what_it_would_be_dealt(tmp_path, monkeypatch, suffix, deal):
    pieces(monkeypatch, 200)
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(50, 3)).round(2) + 4, rng.permutation(50) % 2
    path = tmp_path / f"t.{suffix}"
    if suffix.startswith("csv"):
        numbers(tmp_path / "t.csv", X, y)
        if suffix == "csv.gz":
            path.write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    elif suffix == "npz":
        np.savez(path, X=X, y=y)
    else:
        path.write_text(
            "\n".join(
                f"{v} " + " ".join(f"{j + 1}:{a!r}" for j, a in enumerate(x)) for x, v in zip(X.tolist(), y)
            )
        )
    how = {"deal": Deal.of(deal, 3), "intercept": True, "test_fraction": 0.2, "seed": 1}
    whole, held = open_source(str(path), **how), open_source(str(path), world=World(), **how)
    held.hold([1, 3, 4], 5, World())
    for node in (1, 3, 4):
        for again in range(2):  # the second time from the file
            for a, b in zip(whole.node(node, 5), held.node(node, 5)):
                assert np.array_equal(a, b), again
        assert whole.content(node, 5, b"k" * 16) == held.content(node, 5, b"k" * 16)
    for key in (b"k" * 16, b"l" * 70):
        one_by_one = Contents.of({node: whole.content(node, 5, key) for node in (4, 1, 3)})
        assert held.contents([4, 1, 3], 5, key) == one_by_one
        assert one_by_one.names[4][0] == _named(whole, 4, key)
    held.hold([0, 1, 2, 3], 5, World())
    found = held.nodes([0, 1, 2, 3], 5, stacked=True)
    rows = [pair for X, y in found for pair in (zip(X, y) if y.ndim == 2 else [(X, y)])]
    assert len(rows) == 4
    for node, (X, y) in enumerate(rows):
        for a, b in zip(whole.node(node, 5), (dense(X), y)):
            assert np.array_equal(a, b)
    assert held.classes == whole.classes
    assert held.facts == whole.facts
    for a, b in zip(whole.test(), held.test()):
        assert np.array_equal(a, b)
    if deal == "blocks":
        assert np.array_equal(whole.training, np.arange(40))


def test_a_deal_in_blocks_reads_its_own_pieces_alone(tmp_path, monkeypatch):
    pieces(monkeypatch, 500)
    rng = np.random.default_rng(3)
    path = numbers(tmp_path / "t.csv", rng.normal(size=(400, 3)), np.arange(400) % 2)
    source = open_source(path, world=World(), deal=Deal.of("blocks", 0))
    read, original = [], records._Unpacked.read
    monkeypatch.setattr(
        records._Unpacked, "read", lambda self, size: read.append(size) or original(self, size)
    )
    source.hold([2], 8, World())
    size = (tmp_path / "t.csv").stat().st_size
    assert sum(read) < size / 8 + 1200  # its part, and what else stands in its first and last piece


@pytest.mark.parametrize("bad", [3, 22, 45])
def test_bad_rows_of_any_node_and_of_the_test_rows_are_told(tmp_path, bad):
    X, y = np.ones((50, 2)), np.arange(50) % 2
    path = numbers(tmp_path / "t.csv", X, y)
    lines = (tmp_path / "t.csv").read_text().splitlines()
    lines[bad] = "1,cook,0"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    source = open_source(path, world=World(), test_fraction=0.3)
    with pytest.raises(InputError, match=f"line {bad + 1}, column 'x2': 'cook'"):
        source.hold(range(4), 4, World())


def test_libsvm_in_pieces(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    rows = []
    for _ in range(100):
        columns = np.sort(rng.choice(500, size=rng.integers(0, 9), replace=False)) + 1
        pairs = (f"{c}:{rng.normal()!r}" for c in columns)
        rows.append(" ".join([str(rng.choice([-1, 1])), *pairs]) + rng.choice(["", " # 3:1 of a comment"]))
    (tmp_path / "t.svm").write_text("# head\n\n" + "\n".join(rows) + "\n500:1\n".replace("500:1", "1 500:1"))
    whole = LibsvmFile(tmp_path / "t.svm").read()
    pieces(monkeypatch, 64)
    chosen = rng.permutation(101)[:40]
    for rows_of in (None, chosen):
        X, y = LibsvmFile(tmp_path / "t.svm").read(rows_of)
        at = np.arange(101) if rows_of is None else rows_of
        assert np.array_equal(X.toarray(), whole[0].toarray()[at])
        assert np.array_equal(y, whole[1][at])


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("known", [(), ("0", "1")])
def test_ranks_hold_what_one_process_would(known):
    import tempfile
    from pathlib import Path

    from distadmm.ranks.world import connect

    world = connect()
    folder = world.broadcast(tempfile.mkdtemp() if world.is_root else "")
    path = Path(folder) / "t.csv"
    X = np.random.default_rng(1).normal(size=(60, 3))
    if world.is_root:
        numbers(path, X, np.arange(60) % 2)
    world.broadcast(None)
    for deal in ("iid", "blocks", "label:0.5"):
        how = {"labels": known, "deal": Deal.of(deal, 2), "test_fraction": 0.1}
        alone, mine = open_source(str(path), **how), open_source(str(path), world=world, **how)
        nodes = np.array_split(np.arange(7), world.size)[world.rank].tolist()
        mine.hold(nodes, 7, world)
        for node in nodes:
            for a, b in zip(alone.node(node, 7), mine.node(node, 7)):
                assert np.array_equal(a, b)
        assert mine.classes == alone.classes
    if world.is_root:
        path.write_text(path.read_text() + "1,2,cook,1\n")
    world.broadcast(None)
    broken = open_source(str(path), world=world)
    with pytest.raises(InputError, match=r"^.*t\.csv line 62, column 'x3': 'cook'") as error:
        broken.hold(np.array_split(np.arange(7), world.size)[world.rank].tolist(), 7, world)
    assert error.value.shared
