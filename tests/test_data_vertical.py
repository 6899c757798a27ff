"""Columns at different parties: blocks, alignment by key, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from distadmm.data.files import Reading
from distadmm.data.parties import (
    align_parties,
    common_keys,
    positions,
    read_party,
    split_columns,
)
from distadmm.data.source import open_source
from distadmm.data.table import Sparse, dense
from distadmm.errors import InputError


def write(path, header, rows):
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
    return path


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4), min_size=2, max_size=4))
@settings(deadline=None, max_examples=40)
def test_blocks_are_the_columns_in_order(seed, sizes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, sum(sizes))) * (rng.random((6, sum(sizes))) < 0.5)
    blocks = split_columns(X, sizes)
    assert (np.hstack(blocks) == X).all()
    sparse = split_columns(Sparse.from_dense(X), sizes)
    start = 0
    for block, other, size in zip(blocks, sparse, sizes):
        reference = csr_matrix(X)[:, start : start + size]
        assert (other.toarray() == block).all()
        assert (other.indptr == reference.indptr).all()
        start += size


def test_a9a_splits_into_66_and_57_columns():
    X, _ = open_source("a9a", clip=None).everything(sparse=True)
    first, second = split_columns(X, (66, 57))
    assert (first.shape[1], second.shape[1]) == (66, 57)
    assert np.linalg.matrix_rank(first.toarray()) == 56
    assert np.linalg.matrix_rank(second.toarray()) == 53


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((4,), "one party"), ((4, 0), "widths above 0"), ((3, 2), "adds up to 5 columns; the table has 4")],
)
def test_bad_splits(sizes, expected):
    with pytest.raises(InputError, match=expected):
        split_columns(np.ones((2, 4)), sizes)


@pytest.fixture
def files(tmp_path):
    """A centre with labels and one column, two parties with other row orders."""
    return [
        write(tmp_path / "centre.csv", ["id", "age", "y"], [["p", 1, 1], ["q", 2, -1], ["r", 3, 1]]),
        write(tmp_path / "bank.csv", ["loan", "id"], [[30, "r"], [10, "p"], [20, "q"]]),
        write(tmp_path / "shop.csv", ["id", "tea", "rice"], [["q", 2, 0], ["r", 3, 0], ["p", 1, 7]]),
    ]


def test_rows_are_brought_into_one_order(files):
    centre, bank, shop = align_parties(files, "id")
    assert centre.keys == bank.keys == shop.keys == ["p", "q", "r"]
    assert (centre.y == [1, -1, 1]).all()
    assert bank.y is None
    assert (bank.X[:, 0] == [10, 20, 30]).all()
    assert (shop.X == [[1, 7], [2, 0], [3, 0]]).all()
    assert shop.feature_names == ("tea", "rice")


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_the_join_keeps_what_all_have_and_each_can_do_its_part_alone(seed):
    rng = np.random.default_rng(seed)
    keys = [[str(k) for k in rng.permutation(30)[: rng.integers(20, 30)]] for _ in range(3)]
    order = common_keys(keys, "inner")
    assert set(order) == set(keys[0]) & set(keys[1]) & set(keys[2])
    for own in keys:
        assert [own[row] for row in positions(own, order)] == order
    if any(set(own) != set(keys[0]) for own in keys):
        with pytest.raises(InputError, match="--join inner"):
            common_keys(keys)


def test_mismatch_is_told_by_count(files):
    write(files[1], ["id", "loan"], [["p", 1], ["q", 2], ["s", 3], ["t", 4]])
    with pytest.raises(InputError, match=r"2 of 5 keys are common") as error:
        align_parties(files, "id")
    message = str(error.value)
    assert "centre.csv lacks 2" in message
    assert "bank.csv lacks 1" in message
    assert "'s'" not in message  # counts, not people
    centre, bank, shop = align_parties(files, "id", "inner")
    assert centre.keys == ["p", "q"]
    assert (bank.X[:, 0] == [1, 2]).all()
    assert len(shop.X) == len(centre.y) == 2


def test_repeated_keys_are_refused_either_way(files):
    write(files[2], ["id", "tea", "rice"], [["p", 1, 1], ["q", 1, 1], ["p", 2, 2], ["p", 3, 3]])
    for join in ("refuse", "inner"):
        with pytest.raises(InputError, match="2 of 4 keys occur again"):
            align_parties(files, "id", join)


def test_nothing_in_common(files):
    write(files[1], ["id", "loan"], [["x", 1]])
    with pytest.raises(InputError, match="no key is common"):
        align_parties(files, "id", "inner")
    with pytest.raises(InputError, match="choose one of"):
        align_parties(files, "id", "outer")


def test_a_file_without_the_key_or_with_an_empty_one(files):
    with pytest.raises(InputError, match=r"centre.csv has no column 'ids'; did you mean 'id'"):
        align_parties(files, "ids")
    write(files[1], ["id", "loan"], [["p", 1], ["", 2], ["r", 3]])
    with pytest.raises(InputError, match=r"bank.csv line 3: the key 'id' is empty"):
        align_parties(files, "id")


def test_a_centre_may_hold_labels_alone(tmp_path, files):
    write(files[0], ["id", "y"], [["p", 1], ["q", 0], ["r", 1]])
    centre = align_parties(files, "id")[0]
    assert centre.X.shape == (3, 0)
    assert (centre.y == [1, -1, 1]).all()
    write(files[0], ["y", "id"], [[1, "p"], [0, "q"], [1, "r"]])  # the key is never taken for the target
    assert (align_parties(files, "id")[0].y == [1, -1, 1]).all()
    with pytest.raises(InputError, match="no column but id"):
        read_party(write(tmp_path / "keys.csv", ["id"], [["p"]]), "id")


def test_archives_have_keys_and_libsvm_has_none(tmp_path):
    np.savez(tmp_path / "p.npz", X=np.eye(3), id=np.array(["p", "q", "r"]))
    party = read_party(tmp_path / "p.npz", "id")
    assert party.keys == ["p", "q", "r"]
    assert (dense(party.X) == np.eye(3)).all()
    (tmp_path / "p.svm").write_text("+1 1:1\n-1 2:1\n")
    with pytest.raises(InputError, match="no key column"):
        read_party(tmp_path / "p.svm", "id")


def test_only_the_named_target_is_read_as_one(files):
    party = read_party(files[0], "id", Reading(target="age", task="regression"), target=True)
    assert (party.y == [1, 2, 3]).all()
    assert party.feature_names == ("y",)
