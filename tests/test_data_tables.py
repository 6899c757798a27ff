"""Sparse rows, clipping, sharding, and keyed names of data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from distadmm.data.deal import Deal
from distadmm.data.table import (
    NOTHING_CLIPPED,
    ClipReport,
    Sparse,
    clip_rows,
    data_id,
    dense,
    local_key,
    take,
    with_intercept,
)
from distadmm.errors import InputError

seeds = st.integers(0, 2**32 - 1)


def some_matrix(seed):
    """A matrix with empty rows and zeros, dense and as scipy's CSR."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(1, 9), rng.integers(1, 7))) * 10.0 ** rng.integers(-3, 4)
    X[rng.random(X.shape) < 0.5] = 0.0
    return X


@given(seeds)
@settings(deadline=None, max_examples=50)
def test_sparse_agrees_with_scipy(seed):
    X = some_matrix(seed)
    S, reference = Sparse.from_dense(X), csr_matrix(X)
    assert (S.indptr == reference.indptr).all()
    assert (S.indices == reference.indices).all()
    assert (S.data == reference.data).all()
    assert (S.toarray() == X).all()
    rows = np.random.default_rng(seed).integers(0, len(X), size=5)
    assert (S.take(rows).toarray() == X[rows]).all()
    assert (S.to_scipy() != reference).nnz == 0


def test_entries_given_twice_are_added_up():
    S = Sparse(np.array([0, 3]), np.array([1, 1, 0]), np.array([2.0, 3.0, 1.0]), (1, 2))
    assert (S.toarray() == [[1.0, 5.0]]).all()


@given(seeds, st.sampled_from([0.5, 1.0, 3.0]), st.booleans())
@settings(deadline=None, max_examples=50)
def test_clipped_rows_keep_their_direction_and_fit_the_bound(seed, bound, sparse):
    X = some_matrix(seed)
    clipped, report = clip_rows(Sparse.from_dense(X) if sparse else X, bound)
    norms = np.linalg.norm(X, axis=1)
    by_hand = np.array([x if n <= bound else x * (bound / n) for x, n in zip(X, norms)])
    np.testing.assert_allclose(dense(clipped), by_hand, rtol=1e-12)
    assert np.linalg.norm(dense(clipped), axis=1).max() <= bound * (1 + 1e-15)
    assert report.rows == len(X)
    assert report.clipped == (norms > bound).sum()
    assert report.largest == pytest.approx(norms.max())
    if report.clipped:
        assert report.mean_factor == pytest.approx((bound / norms[norms > bound]).mean())


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_clipping_looks_at_one_row_at_a_time(seed):
    X = some_matrix(seed)
    one_by_one = np.vstack([clip_rows(x[None])[0] for x in X])
    assert (clip_rows(X)[0] == one_by_one).all()


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_reports_of_parts_merge_to_the_report_of_all(seed):
    X = np.vstack([some_matrix(seed)] * 3)
    whole = clip_rows(X)[1]
    merged = NOTHING_CLIPPED
    for part in np.array_split(X, 3):
        merged = merged.merge(clip_rows(part)[1])
    assert merged[:3] == whole[:3]
    assert merged.mean_factor == pytest.approx(whole.mean_factor)


def test_a_report_says_when_large_numbers_drown_the_others():
    assert "drown" in ClipReport(10, 10, 5e4, 0.001).sentence()
    assert "drown" not in ClipReport(10, 10, 2.0, 5.0).sentence()
    assert NOTHING_CLIPPED.merge(ClipReport(3, 0, 0.5, 0.0)).sentence().startswith("no row of 3 clipped")


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_intercept_is_a_last_column_of_ones_in_both_forms(seed):
    X = some_matrix(seed)
    by_hand = np.column_stack([X, np.ones(len(X))])
    assert (with_intercept(X) == by_hand).all()
    assert (with_intercept(Sparse.from_dense(X)).toarray() == by_hand).all()


def test_take_is_the_same_in_both_forms():
    X = some_matrix(3)
    rows = np.array([0, 0])
    assert (dense(take(Sparse.from_dense(X), rows)) == take(X, rows)).all()


@given(st.integers(1, 200), st.integers(0, 60), st.data())
@settings(deadline=None, max_examples=50)
def test_even_parts_share_out_every_row_once(n_rows, n_nodes, data):
    deal = Deal("published", None)
    if not 0 < n_nodes <= n_rows:
        with pytest.raises(InputError, match=f"{n_nodes} nodes but only {n_rows} rows|at least 1"):
            deal.shards(n_rows, n_nodes, lambda name: np.zeros(n_rows))
        return
    pieces = deal.shards(n_rows, n_nodes, lambda name: np.zeros(n_rows))
    assert all(map(np.array_equal, pieces, np.array_split(np.arange(n_rows), n_nodes)))
    some = data.draw(st.lists(st.integers(0, n_nodes - 1), unique=True))
    assert all(map(np.array_equal, pieces.of(some), [pieces[i] for i in some]))
    assert len(pieces.of(some)) == len(some)


def test_a_name_of_data_changes_with_every_bit_and_with_the_key():
    X = np.arange(6.0).reshape(2, 3)
    reference = data_id({"X": X, "y": np.ones(2)}, b"k" * 16)
    assert data_id({"y": np.ones(2), "X": X.copy(order="F")}, b"k" * 16) == reference
    changed = X.copy()
    changed[1, 2] = np.nextafter(changed[1, 2], 9)
    others = [
        ({"X": changed, "y": np.ones(2)}, b"k" * 16),
        ({"X": X.reshape(3, 2), "y": np.ones(2)}, b"k" * 16),
        ({"X": X.astype(np.float32), "y": np.ones(2)}, b"k" * 16),
        ({"X": X, "z": np.ones(2)}, b"k" * 16),
        ({"X": Sparse.from_dense(X), "y": np.ones(2)}, b"k" * 16),
        ({"X": X, "y": np.ones(2)}, b"l" * 16),
    ]
    names = [data_id(content, key) for content, key in others]
    assert len({reference, *names}) == len(others) + 1


def test_fields_cannot_run_into_each_other():
    assert data_id({"a": b"xy", "b": b""}, b"k") != data_id({"a": b"x", "b": b"y"}, b"k")


def test_the_key_is_made_once_and_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = local_key()
    path = tmp_path / "distadmm" / "data-id.key"
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert local_key() == key
    assert [p.name for p in path.parent.iterdir()] == ["data-id.key"]


def test_a_key_that_cannot_be_kept_or_is_too_short_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="XDG_CONFIG_HOME"):
        local_key(tmp_path / "file" / "key")
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(InputError, match="3 bytes"):
        local_key(tmp_path / "short")
