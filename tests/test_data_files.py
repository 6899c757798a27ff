"""Users' files: three formats agree, each rank reads its own rows, and bad files are said in one line."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.data import reading, records
from distadmm.data.files import FileSource, agree
from distadmm.data.source import open_source
from distadmm.data.table import dense, permutation
from distadmm.errors import InputError


def write_csv(path, X, y, names=None):
    names = names or [f"x{j + 1}" for j in range(X.shape[1])]
    lines = [",".join([*names, "y"])]
    lines += [",".join([*map(repr, x.tolist()), str(label)]) for x, label in zip(X, y)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def write_libsvm(path, X, y):
    lines = []
    for x, label in zip(X, y):
        pairs = [f"{j + 1}:{v!r}" for j, v in enumerate(x.tolist()) if v]
        lines.append(" ".join([f"{label:+d}", *pairs]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def write_npz(path, X, y):
    np.savez(path, X=X, y=y)
    return str(path)


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(23, 4))
    X[rng.random(X.shape) < 0.4] = 0.0
    X[0, 3] = 7.0  # the last column of a libsvm file is known by its entries
    return X, np.where(rng.random(23) < 0.5, 1, -1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans())
@settings(deadline=None, max_examples=25)
def test_csv_npz_and_libsvm_give_the_same_rows(tmp_path_factory, seed, n_nodes, intercept):
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("files")
    X = rng.normal(size=(rng.integers(5, 30), rng.integers(1, 6))) * 3
    X[rng.random(X.shape) < 0.5] = 0.0
    X[0, -1] = 1.5
    y = rng.permutation(np.where(np.arange(len(X)) % 2, 1, -1))
    files = [
        write_csv(folder / "t.csv", X, y),
        write_npz(folder / "t.npz", X, y),
        write_libsvm(folder / "t.svm", X, y),
    ]
    order = permutation(len(X), seed)
    pieces = np.array_split(order, n_nodes)
    for file in files:
        source = open_source(file, seed=seed, intercept=intercept)
        for node, rows in enumerate(pieces):
            part, labels = source.node(node, n_nodes)
            full = np.column_stack([X, np.ones(len(X))]) if intercept else X
            by_hand = full[rows] / np.maximum(1, np.linalg.norm(full[rows], axis=1, keepdims=True))
            np.testing.assert_allclose(part, by_hand, rtol=1e-14, atol=0)
            assert (labels == y[rows]).all()


@pytest.mark.parametrize(("write", "suffix"), [(write_csv, "csv"), (write_npz, "npz"), (write_libsvm, "svm")])
def test_a_rank_that_is_told_the_facts_reads_the_same_rows(tmp_path, table, write, suffix):
    first = open_source(write(tmp_path / f"t.{suffix}", *table), seed=3)
    other = FileSource(first.path, first.reading, form=first.form, clip=1.0)
    for node in range(4):
        X, y = first.node(node, 4)
        Z, z = other.node(node, 4)
        assert (X == Z).all()
        assert (y == z).all()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("suffix", ["csv", "svm"])
def test_ranks_open_a_whole_file_together(suffix):
    import tempfile
    from pathlib import Path

    from distadmm.ranks.world import connect

    world = connect()
    folder = world.broadcast(tempfile.mkdtemp() if world.is_root else "")
    path = Path(folder) / f"t.{suffix}"
    rng = np.random.default_rng(1)
    X = rng.normal(size=(11, 3))
    y = np.where(np.arange(11) % 2, 1, -1)
    if world.is_root:
        (write_csv if suffix == "csv" else write_libsvm)(path, X, y)
    world.broadcast(None)
    source = open_source(str(path), seed=9, clip=None, world=world)
    rows = np.array_split(permutation(11, 9), world.size)[world.rank]
    Z, z = source.node(world.rank, world.size)
    np.testing.assert_allclose(Z, X[rows], rtol=1e-15)
    assert (z == y[rows]).all()
    with pytest.raises(InputError) as error:
        open_source(str(path) + ".none.csv", world=world)
    assert error.value.shared


@pytest.mark.parametrize(
    ("pack", "suffix"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_compressed_text_is_read_like_plain(tmp_path, table, pack, suffix):
    plain = write_csv(tmp_path / "t.csv", *table)
    packed = tmp_path / f"u.csv{suffix}"
    packed.write_bytes(pack((tmp_path / "t.csv").read_bytes()))
    assert (open_source(plain).everything()[0] == open_source(str(packed)).everything()[0]).all()
    packed.write_bytes(b"no such thing")
    with pytest.raises(InputError, match="cannot"):
        open_source(str(packed))


def test_csv_in_many_spellings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfa; b;"y, or\nn"\r\n\r\n1;2;"1"\r\n 3 ;4;0\r\n\r\n')
    source = open_source(str(path), clip=None)
    X, y = source.everything()
    assert source.feature_names == ("a", "b")
    assert sorted(zip(X.tolist(), y.tolist())) == [([1.0, 2.0], 1.0), ([3.0, 4.0], -1.0)]


def test_the_target_may_stand_anywhere(tmp_path, table):
    X, y = table
    path = tmp_path / "t.csv"
    path.write_text("y,a,b\n" + "".join(f"{label},{a},{b}\n" for (a, b, *_), label in zip(X, y)))
    source = open_source(str(path), target="y", clip=None)
    np.testing.assert_array_equal(source.everything()[0], X[permutation(23, 0)][:, :2])


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([0, 1, 1], (0, 1), [-1, 1, 1]),
        ([-1, 1, -1], (-1, 1), [-1, 1, -1]),
        (["1.0", "0.0", "0"], (0, 1), [1, -1, -1]),
        ([2, 5, 5], (2, 5), [-1, 1, 1]),
        (["yes", "no", "yes"], ("no", "yes"), [1, -1, 1]),
        (["<=50K", ">50K", "<=50K"], ("<=50K", ">50K"), [-1, 1, -1]),
    ],
)
def test_two_classes_become_minus_and_plus_one(tmp_path, labels, classes, expected):
    path = write_csv(tmp_path / "t.csv", np.arange(3.0)[:, None], labels)
    source = open_source(path, clip=None)
    X, y = source.everything()
    assert source.classes == classes
    assert (y[np.argsort(X[:, 0])] == expected).all()


def test_labels_decide_which_class_is_positive(tmp_path):
    path = write_csv(tmp_path / "t.csv", np.arange(3.0)[:, None], ["good", "bad", "good"])
    for labels, expected in [(("bad", "good"), [1, -1, 1]), (("good", "bad"), [-1, 1, -1])]:
        X, y = open_source(path, labels=labels, clip=None).everything()
        assert (y[np.argsort(X[:, 0])] == expected).all()


def test_many_classes_and_real_targets(tmp_path):
    path = write_csv(tmp_path / "t.csv", np.arange(4.0)[:, None], [7, 3, 5, 3])
    source = open_source(path, task="multiclass", clip=None)
    X, y = source.everything()
    assert source.classes == (3, 5, 7)
    assert (y[np.argsort(X[:, 0])] == [2, 0, 1, 0]).all()
    X, y = open_source(path, task="regression", clip=None).everything()
    assert (y[np.argsort(X[:, 0])] == [7, 3, 5, 3]).all()


def test_held_out_rows_by_share_and_by_file(tmp_path, table):
    X, y = table
    path = write_csv(tmp_path / "t.csv", X, y)
    source = open_source(path, test_fraction=0.2, clip=None, seed=4)
    assert (source.n_rows, source.test_rows) == (18, 5)
    together = np.vstack([source.everything()[0], source.test()[0]])
    assert (together == X[permutation(23, 4)]).all()
    assert open_source(path).test() is None
    other = write_csv(tmp_path / "other.csv", X[:6], y[:6])
    assert (open_source(path, test_data=other, clip=None).test()[0] == X[:6]).all()


SCHEMA = """
target = "income"
labels = ["low", "high"]
missing = ["?"]
ignore = ["id"]
[columns]
job = ["clerk", "cook", "pilot"]
age = { max = 100 }
temperature = { min = 30, max = 40 }
"""


def write_schema(folder, text=SCHEMA):
    (folder / "schema.toml").write_text(text)
    return str(folder / "schema.toml")


def test_a_schema_encodes_by_what_is_publicly_known(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,age,job,income,temperature\n7,50,pilot,high,37\n8,25, cook ,low,30\n9,0,?,low,40\n")
    source = open_source(str(path), schema=write_schema(tmp_path), clip=None)
    X, y = source.everything()
    assert source.feature_names == ("job=clerk", "job=cook", "job=pilot", "age", "temperature")
    order = np.argsort(-X[:, 3])
    np.testing.assert_allclose(X[order], [[0, 0, 1, 0.5, 0.7], [0, 1, 0, 0.25, 0], [0, 0, 0, 0, 1]])
    assert (y[order] == [1, -1, -1]).all()


def test_a_row_is_encoded_alike_whatever_stands_in_the_others(tmp_path):
    schema = write_schema(tmp_path)
    rows = ["7,50,pilot,high,37", "8,25,cook,low,30", "9,100,clerk,low,40"]
    encoded = []
    for chosen in (rows[:2], rows):
        path = tmp_path / f"t{len(chosen)}.csv"
        path.write_text("\n".join(["id,age,job,income,temperature", *chosen]) + "\n")
        X, _ = open_source(str(path), schema=schema).everything()
        encoded.append(X[X[:, 2] > 0][0])
    assert (encoded[0] == encoded[1]).all()


def test_one_file_a_node(tmp_path, table):
    X, y = table
    pieces = np.array_split(np.arange(23), 3)
    for node, rows in enumerate(pieces):
        write_csv(tmp_path / f"shard-{node}.csv", X[rows], y[rows])
    for spelling in ("{rank}", "{node}"):
        source = open_source(str(tmp_path / f"shard-{spelling}.csv"))
        assert not source.pooled_allowed
        assert source.n_rows is None
        for node, rows in enumerate(pieces):
            part, labels = source.node(node, 3)
            norms = np.linalg.norm(X[rows], axis=1, keepdims=True)
            np.testing.assert_allclose(part, X[rows] / np.maximum(1, norms))
            assert (labels == y[rows]).all()
        assert source.n_features == 4
        assert source.clipped.rows == 23


def test_a_node_reads_its_own_file_and_no_other(tmp_path, table, monkeypatch):
    X, y = table
    for node in range(3):
        write_csv(tmp_path / f"shard-{node}.csv", X, y)
    opened = set()
    monkeypatch.setattr(records, "require_an_end", lambda path: opened.add(path.name))
    open_source(str(tmp_path / "shard-{rank}.csv")).node(1, 3)
    assert opened == {"shard-1.csv"}


def test_a_node_may_have_one_class_when_its_name_is_known(tmp_path, table):
    X, _ = table
    write_csv(tmp_path / "a-0.csv", X, [1] * 23)
    assert (open_source(str(tmp_path / "a-{rank}.csv")).node(0, 1)[1] == 1).all()
    write_csv(tmp_path / "b-0.csv", X, ["yes"] * 23)
    pattern = str(tmp_path / "b-{rank}.csv")
    with pytest.raises(InputError, match="--labels"):
        open_source(pattern).node(0, 1)
    assert (open_source(pattern, labels=("no", "yes")).node(0, 1)[1] == 1).all()


def test_held_out_rows_beside_one_file_a_node(tmp_path, table):
    X, y = table
    write_csv(tmp_path / "s-0.csv", X, y)
    held_out = write_csv(tmp_path / "held-out.csv", X[:5], y[:5])
    source = open_source(str(tmp_path / "s-{rank}.csv"), test_data=held_out, clip=None)
    source.node(0, 1)
    assert (source.test()[0] == X[:5]).all()


def test_names_of_data_follow_the_files(tmp_path, table, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    X, y = table
    for node in range(2):
        write_csv(tmp_path / f"s-{node}.csv", X + node, y)
    whole = [open_source(str(tmp_path / f"s-{node}.csv")).data_id() for node in (0, 1, 0)]
    assert whole[0] == whole[2] != whole[1]
    assert open_source(str(tmp_path / "s-0.csv"), target="x1", task="regression").data_id() != whole[0]
    source = open_source(str(tmp_path / "s-{rank}.csv"))
    source.node(0, 2)
    one = source.data_id()
    source.node(1, 2)
    assert source.data_id() != one
    assert len(set(source.node_ids().values())) == 2


GOOD = "a,b,y\n1,2,1\n3,4,-1\n5,6,1\n"
BAD_FILES = {
    "empty": ("t.csv", "", {}, "is empty"),
    "blank": ("t.csv", " \n\n", {}, "is empty"),
    "header only": ("t.csv", "a,b,y\n", {}, "no rows"),
    "no header": ("t.csv", "1,2,1\n3,4,-1\n", {}, "line 1 holds numbers"),
    "two columns of one name": ("t.csv", "a,a,y\n1,2,1\n", {}, "two columns named 'a'"),
    "a column without name": ("t.csv", "a,,y\n1,2,1\n", {}, "has no name"),
    "missing target": ("t.csv", GOOD, {"target": "yy"}, "no column 'yy'; did you mean 'y'"),
    "no features": ("t.csv", "y\n1\n-1\n", {}, "no column but the target"),
    "ragged": ("t.csv", "a,b,y\n1,2,1\n\n3,4\n", {}, "line 4 has 2 cells, the header has 3"),
    "text": ("t.csv", "a,b,y\n1,2,1\n3,cook,-1\n", {}, "line 3, column 'b': 'cook' is not a number"),
    "empty cell": ("t.csv", "a,b,y\n1,,1\n3,4,-1\n", {}, "line 2, column 'b': the cell is empty"),
    "nan": ("t.csv", "a,b,y\n1,2,1\n3,nan,-1\n", {}, "line 3, column 'b': 'nan' stands for no number"),
    "inf": ("t.csv", "a,b,y\n-inf,2,1\n3,4,-1\n", {}, "line 2, column 'a': the value is -inf"),
    "single class": ("t.csv", "a,b,y\n1,2,1\n3,4,1\n", {}, "one class only"),
    "many values": ("t.csv", "a,b,y\n1,2,1\n3,4,2\n5,6,3\n", {}, "3 distinct values"),
    "empty target": ("t.csv", "a,y\n1,no\n3,\n5,yes\n7,\n", {}, "line 3: the cell is empty, as 1 more are; leave"),
    "empty number": ("t.csv", "a,y\n1,1\n3,\n5,0\n", {"labels": ("0", "1")}, "line 3: the cell is empty; leave"),
    "word among numbers": ("t.csv", "a,y\n1,1\n3,yes\n", {"labels": ("0", "1")}, "line 3: 'yes' is none of"),
    "labels that do not occur": ("t.csv", GOOD, {"labels": ("0", "1")}, "line 3: -1 is none of the classes"),
    "one label": ("t.csv", GOOD, {"labels": ("1",)}, "two different labels"),
    "text for regression": (
        "t.csv", "a,y\n1,2.5\n2,much\n", {"task": "regression"}, "line 3: 'much' is not a number",
    ),
    "nan target": ("t.csv", "a,y\n1,2.5\n2,nan\n", {"task": "regression"}, "line 3: the target is nan"),
    "real numbers as classes": (
        "t.csv", "a,y\n" + "".join(f"1,{i / 7}\n" for i in range(200)), {"task": "multiclass"}, "no classes",
    ),
    "unknown task": ("t.csv", GOOD, {"task": "ranking"}, "choose one of"),
    "a quote alone": ("t.csv", '"', {}, "line 1: a quote opens that nothing closes"),
    "a quote left open": ("t.csv", 'a,y\n1,no\n2,"yes\n3,no\n4,yes\n', {}, "line 3: a quote opens that nothing closes"),
    "a row for header": ("t.csv", "1,yes\n2,no\n", {"target": "y"}, "1, yes; its first line has to name"),
    "unknown suffix": ("t.feather", "x", {}, "what is .feather"),
    "share too large": ("t.csv", GOOD, {"test_fraction": 0.9}, "no row of 3"),
    "share out of range": ("t.csv", GOOD, {"test_fraction": 1.5}, "less than 1"),
    "clip of nothing": ("t.csv", GOOD, {"clip": 0.0}, "--clip"),
    "libsvm label": ("t.svm", "+1 1:2\nx 1:3\n", {}, "line 2: the label 'x'"),
    "libsvm nan label": ("t.svm", "+1 1:2\nnan 1:3\n", {}, "line 2: the label is nan"),
    "libsvm pair": ("t.svm", "+1 1:2\n-1 1:3 2:\n", {}, "line 2: '2:'"),
    "libsvm two colons": ("t.svm", "+1 1:2\n-1 1:3:4\n", {}, "line 2: '1:3:4'"),
    "libsvm without colon": ("t.svm", "+1 1:2\n-1 5 1:3\n", {}, "line 2: '5'"),
    "libsvm from zero": ("t.svm", "+1 0:2 1:3\n-1 1:1\n", {}, "line 1: index 0; indices start at 1"),
    "libsvm order": ("t.svm", "+1 1:2\n-1 3:1 2:1\n", {}, "line 2: index 2 comes after 3"),
    "libsvm twice": ("t.svm", "+1 1:2\n-1 3:1 3:1\n", {}, "line 2: index 3 comes after 3"),
    "libsvm real index": ("t.svm", "+1 1:2\n-1 1.5:1\n", {}, "line 2: '1.5:1'"),
    "libsvm inf": ("t.svm", "+1 1:2\n-1 2:inf\n", {}, "line 2: the value of index 2 is inf"),
    "libsvm too wide": ("t.svm", "+1 1:2\n-1 3:1\n", {"features": 2}, "line 2: index 3 is above"),
    "libsvm without pairs": ("t.svm", "+1\n-1\n", {}, "no index:value pair"),
    "libsvm wild index": ("t.svm", "+1 1:2\n-1 90000000:1\n", {}, "is very large"),
    "libsvm comments": ("t.svm", "# one\n# two\n", {}, "comments alone"),
    "libsvm target": ("t.svm", "+1 1:2\n-1 3:1\n", {"target": "y"}, "leave out --target"),
    "no features given": ("t.svm", "+1 1:2\n-1 3:1\n", {"features": 0}, "--features is 0"),
}  # fmt: skip


def refused(call):
    """The message of the InputError that `call` raises: one line with something to do."""
    with pytest.raises(InputError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    assert error.value.code == 2
    return message


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_one_clear_line(tmp_path, case):
    name, text, options, expected = BAD_FILES[case]
    (tmp_path / name).write_text(text)
    assert expected in refused(lambda: open_source(str(tmp_path / name), **options))


def test_a_folder_is_no_table(tmp_path):
    assert "is a folder; give a file" in refused(lambda: open_source(str(tmp_path)))


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"X": np.ones((2, 2))}, "no array 'y'; it holds: X"),
        ({"y": np.ones(2)}, "no array 'X'"),
        ({"X": np.ones(2), "y": np.ones(2)}, "rows by columns"),
        ({"X": np.ones((2, 0)), "y": np.ones(2)}, "rows by columns"),
        ({"X": np.array([["a"], ["b"]]), "y": np.ones(2)}, "needed: numbers"),
        ({"X": np.array([[1.0], [np.nan]]), "y": np.ones(2)}, "X[1, 0] is nan"),
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, "one entry a row"),
        ({"X": np.ones((2, 2)), "y": np.array([1, -1]), "feature_names": np.array(["a"])}, "one each"),
        ({"X": np.ones((2, 2)), "y": np.array([1.0, np.nan])}, "y[1]: the target is nan"),
        ({"X": np.ones((2, 2)), "y": np.array([1.0, -1j])}, "y is of type complex128"),
    ],
)
def test_a_bad_archive_is_one_clear_line(tmp_path, arrays, expected):
    np.savez(tmp_path / "t.npz", **arrays)
    assert expected in refused(lambda: open_source(str(tmp_path / "t.npz")))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"text", b"\x80\x04N."])
def test_what_is_no_archive_is_said(tmp_path, content):
    (tmp_path / "t.npz").write_bytes(content)
    assert "t.npz" in refused(lambda: open_source(str(tmp_path / "t.npz")))


def test_an_archive_of_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[{}]], dtype=object), y=np.ones(1))
    assert "plain arrays" in refused(lambda: open_source(str(tmp_path / "t.npz")))


@pytest.mark.parametrize("name", ["nothing.csv", "nothing.npz", "nothing.svm", "folder.csv", "folder.npz"])
def test_unreadable_files_are_named(tmp_path, name):
    if name.startswith("folder"):
        (tmp_path / name).mkdir()
    assert name in refused(lambda: open_source(str(tmp_path / name)))


def test_text_in_another_encoding_is_said_with_its_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,y\n1,1\n2,caf\xe9\n")
    assert "line 3 is not UTF-8" in refused(lambda: open_source(str(tmp_path / "t.csv")))


def test_unknown_tables_are_named_with_the_known_ones():
    assert "adult, tiny, a9a" in refused(lambda: open_source("adlt"))
    assert "needs none" in refused(lambda: open_source("adult", target="y"))


def test_more_nodes_than_rows(tmp_path, table):
    source = open_source(write_csv(tmp_path / "t.csv", *table))
    assert "24 nodes but only 23 rows" in refused(lambda: source.node(0, 24))


def test_the_wrong_number_of_files(tmp_path, table):
    for node in range(3):
        write_csv(tmp_path / f"s-{node}.csv", *table)
    source = open_source(str(tmp_path / "s-{rank}.csv"))
    message = refused(lambda: source.node(3, 5))
    assert "5 nodes need" in message
    assert "files 0 to 2, 3 in all" in message
    assert "one file more than the 2 nodes" in refused(lambda: source.node(0, 2))


def test_files_counted_from_one_are_noticed(tmp_path, table):
    for node in (1, 2):
        write_csv(tmp_path / f"s-{node}.csv", *table)
    message = refused(lambda: open_source(str(tmp_path / "s-{rank}.csv")).node(0, 2))
    assert "s-0.csv" in message
    assert "files 1 to 2" in message


def test_files_of_different_width_or_names(tmp_path, table):
    X, y = table
    write_csv(tmp_path / "s-0.csv", X, y)
    write_csv(tmp_path / "s-1.csv", X[:, :3], y)
    write_csv(tmp_path / "s-2.csv", X, y, names=["x1", "x3", "x2", "x4"])
    pattern = str(tmp_path / "s-{rank}.csv")
    source = open_source(pattern)
    source.node(0, 3)
    assert "has 3 feature columns" in refused(lambda: source.node(1, 3))
    assert "feature column 2 is 'x3'" in refused(lambda: source.node(2, 3))
    signatures = []
    for node in (0, 2):  # as two ranks would
        alone = open_source(pattern)
        alone.node(node, 3)
        signatures.append(alone.signature())
    assert "feature column 2" in refused(lambda: agree(signatures))
    agree(signatures[:1] * 2)


def test_classes_spelt_differently_at_two_nodes(tmp_path, table):
    X, y = table
    write_csv(tmp_path / "s-0.csv", X, y)
    write_csv(tmp_path / "s-1.csv", X, (y + 1) // 2)
    source = open_source(str(tmp_path / "s-{rank}.csv"))
    np.testing.assert_array_equal(source.node(0, 2)[1], source.node(1, 2)[1])
    write_csv(tmp_path / "t-0.csv", X, np.where(y > 0, "yes", "no"))
    assert "--labels" in refused(lambda: open_source(str(tmp_path / "t-{rank}.csv")).node(0, 1))


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"test_fraction": 0.5}, "--test-data"), ({"task": "multiclass"}, "--labels")],
)
def test_what_one_file_a_node_cannot_have(tmp_path, table, options, expected):
    write_csv(tmp_path / "s-0.csv", *table)
    assert expected in refused(lambda: open_source(str(tmp_path / "s-{rank}.csv"), **options).node(0, 1))


def test_patterns_that_say_too_little(tmp_path):
    assert "use {rank}" in refused(lambda: open_source("s-{number}.csv"))
    assert "--features" in refused(lambda: open_source("s-{rank}.svm"))
    assert "use {rank}" in refused(lambda: open_source("s-{rank.csv"))


BAD_SCHEMAS = {
    "not TOML": ("target = ", "is not TOML"),
    "unknown key": ("goal = 1\n[columns]\na = { max = 1 }\n", "unknown key 'goal'"),
    "no columns": ('target = "y"\n', "has no [columns]"),
    "no bounds": ("[columns]\na = {}\n", "column 'a' is {}"),
    "crossed bounds": ("[columns]\na = { min = 2, max = 1 }\n", "min < max"),
    "one category": ('[columns]\na = ["x"]\n', "two or more different values"),
    "category twice": ('[columns]\na = ["x", "x"]\n', "two or more different values"),
    "labels no list": ('labels = "a"\n[columns]\na = { max = 1 }\n', "needed: a list"),
    "column not in file": ("[columns]\na = { max = 9 }\nb = { max = 9 }\nc = { max = 9 }\n", "no column 'c'"),
    "column not described": ("[columns]\na = { max = 9 }\n", "says nothing of column 'b'"),
    "out of bounds": ("[columns]\na = { max = 9 }\nb = { max = 5 }\n", "line 4, column 'b': 6 is outside"),
    "outside the domain": (
        '[columns]\na = { max = 9 }\nb = ["2", "4"]\n',
        "line 4, column 'b': '6' is not in",
    ),
}


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_bad_schema_is_one_clear_line(tmp_path, case):
    text, expected = BAD_SCHEMAS[case]
    (tmp_path / "t.csv").write_text(GOOD)
    schema = write_schema(tmp_path, text)
    assert expected in refused(lambda: open_source(str(tmp_path / "t.csv"), schema=schema))


def test_a_schema_is_for_csv(tmp_path, table):
    schema = write_schema(tmp_path)
    for file in (write_npz(tmp_path / "t.npz", *table), write_libsvm(tmp_path / "t.svm", *table)):
        assert "leave it out" in refused(lambda file=file: open_source(file, schema=schema))
    assert "cannot read --schema" in refused(lambda: open_source("t.csv", schema=str(tmp_path / "none.toml")))


def test_sparse_rows_stay_sparse(tmp_path, table):
    source = open_source(write_libsvm(tmp_path / "t.svm", *table), clip=None)
    X, _ = source.everything(sparse=True)
    assert len(X.data) == np.count_nonzero(table[0])
    assert (dense(X) == source.everything()[0]).all()


@given(
    st.sampled_from(["t.csv", "t.svm"]),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(list("1:,;.-+eEnaif#\"'\n\t \0é?"))), max_size=6),
)
@settings(deadline=None, max_examples=50)
def test_damaged_files_are_read_or_refused_never_worse(tmp_path_factory, name, seed, strokes):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(4, 2)).round(1), np.array([1, -1, 1, -1])
    path = tmp_path_factory.mktemp("damaged") / name
    (write_csv if name == "t.csv" else write_libsvm)(path, X, y)
    text = path.read_text()
    for place, stroke in strokes:
        text = text[:place] + stroke + text[place + 1 :]
    path.write_text(text)
    try:
        source = open_source(str(path))
    except InputError as refusal:
        message = str(refusal)
        assert path.name in message
        return
    X, y = source.everything()
    assert np.isfinite(X).all()
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-15


def test_a_format_of_ones_own_is_read_as_any_other(tmp_path, table, monkeypatch):
    """The reader that docs/data.md shows."""
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text()
    code = page[page.index("from distadmm.data.reading import register_format") :]
    monkeypatch.setattr(reading, "FORMATS", {})
    exec(code[: code.index("```")], {"np": np})
    X, y = table
    np.savetxt(tmp_path / "t.fixed", np.column_stack([X, y]))
    write_csv(tmp_path / "t.csv", X, y)
    own, csv = (open_source(str(tmp_path / f"t.{suffix}"), seed=3) for suffix in ("fixed", "csv"))
    for node in range(3):
        for mine, known in zip(own.node(node, 3), csv.node(node, 3)):
            np.testing.assert_allclose(mine, known)
    assert "--features" in own.facts.doubt
    stated = open_source(str(tmp_path / "t.fixed"), features=X.shape[1], private=True, stated=("bounds",))
    assert "is unchecked code" in stated.facts.doubt  # code of the user's is believed by --assume alone
    assert not stated.facts.without_reader.doubt


def test_a_format_that_lacks_something_is_told_the_lines_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FORMATS", {})

    class Short:
        def __init__(self, path, reading):
            self.path = path

        def place(self, row):
            return ""

    with pytest.raises(InputError, match=r"lacks read; write: def read\(self, rows=None\): return X, target"):
        reading.register_format(".short")(Short)
    Short.read = lambda self, rows=None: None
    reading.register_format(".short")(Short)
    (tmp_path / "t.short").write_text("1")
    assert "lacks n_rows, feature_names; write: self.n_rows" in refused(
        lambda: open_source(str(tmp_path / "t.short"))
    )
    assert "needed: a dot" in refused(lambda: reading.register_format("short"))
