"""The bundled tables are what they say, and their encodings are what the literature states."""

import hashlib
import re

import numpy as np
import pytest

from distadmm.data.adult import a9a, raw
from distadmm.data.adult import table as adult_table
from distadmm.data.adult.domains import ATTRIBUTES, DOMAINS, MAXIMA, MISSING
from distadmm.data.adult.table import adult_columns
from distadmm.data.heart_failure import table as heart_failure
from distadmm.data.source import open_source
from distadmm.data.table import Table, clip_rows, dense
from distadmm.data.tiny import table as tiny


def load_adult():
    """The 40,000 training and the 5,222 test rows, each row divided by max(1, |x|)."""

    def table(rows):
        records = adult_table.complete()[rows]
        X, _ = clip_rows(adult_table.encode(records))
        repeated = len(records) - len(np.unique(records))
        return Table(
            X,
            adult_table.target(records),
            adult_table.COLUMNS,
            "adult",
            adult_table.LICENCE,
            adult_table.SOURCE,
            adult_table.ROWS_DROPPED,
            repeated,
        )

    training, test = adult_table.split()
    return table(training), table(test)


@pytest.fixture(scope="module")
def cells():
    """The rows of both published files as text, split in the plainest way."""
    lines = (raw.published("adult.data") + raw.published("adult.test")).decode().splitlines()
    return [line.rstrip(".").split(", ") for line in lines if line.count(", ") == 14]


@pytest.mark.parametrize("package", [raw, tiny, heart_failure])
def test_published_files_have_their_published_hashes(package):
    for name, digest in package.PUBLISHED.items():
        path = package.HERE / name
        content = path.read_bytes() if path.exists() else package.published(name)
        assert hashlib.sha256(content).hexdigest() == digest
        assert digest in (package.HERE / "SOURCE.md").read_text()


@pytest.mark.parametrize("package", [raw, tiny, heart_failure])
def test_every_table_states_source_and_licence(package):
    text = (package.HERE / "SOURCE.md").read_text()
    assert "CC BY 4.0" in text
    assert re.search(r"doi\.org/10\.24432/\w+", text)
    for name in package.PUBLISHED:
        assert name in text


def test_recoded_adult_is_the_published_text():
    assert (raw.records() == raw.parse_published()).all()
    assert raw.RECODED in (raw.HERE / "SOURCE.md").read_text()


def test_rows_are_dealt_in_the_order_of_the_seed():
    assert (raw.dealt() == raw.permuted(raw.parse_published())).all()
    assert raw.DEALT in (raw.HERE / "SOURCE.md").read_text()


def test_rows_picked_by_number_are_those_of_the_whole_table():
    numbers = raw.dealt()[17:40]
    assert (raw.rows(numbers) == raw.records()[numbers]).all()
    assert (adult_table.complete()[adult_table.place(numbers)] == raw.rows(numbers)).all()


@pytest.mark.parametrize("damaged", ["adult.npy", "dealt.npy"])
def test_a_damaged_table_is_not_used(damaged, tmp_path, monkeypatch):
    source = open_source("adult")
    for name in ("adult.npy", "dealt.npy"):
        content = bytearray((raw.HERE / name).read_bytes())
        content[-1] ^= name == damaged
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(raw, "HERE", tmp_path)
    for use in (raw.records, source.data_id):
        with pytest.raises(RuntimeError, match=f"{damaged} .*reinstall"):
            use()


def test_domains_are_those_of_the_documentation():
    text = raw.published("adult.names").decode()
    documented = dict(re.findall(r"^([a-z-]+): (.*)\.$", text, flags=re.MULTILINE))
    assert tuple(documented) == ATTRIBUTES
    for name, values in documented.items():
        if values == "continuous":
            assert name in MAXIMA
        else:
            assert tuple(values.split(", ")) == DOMAINS[name]
    source = (raw.HERE / "SOURCE.md").read_text()
    for name, bound in MAXIMA.items():
        assert f"| {name} | {bound:,} |" in source


def test_adult_has_the_published_counts():
    training, test = load_adult()
    assert (training.n_rows, test.n_rows) == (40_000, 5_222)
    assert training.n_features == 105
    assert training.rows_dropped == 3_620
    y = np.concatenate([training.y, test.y])
    assert round(100 * (y > 0).mean(), 2) == 24.78  # as adult.names states
    records, complete = raw.records(), adult_table.complete()
    assert len(records) - len(np.unique(records)) == a9a.table().duplicates == 52
    assert len(complete) - len(np.unique(complete)) == adult_table.DUPLICATES
    assert len(records) - len(complete) == adult_table.ROWS_DROPPED


def test_adult_rows_are_encoded_as_the_recipe_says(cells):
    """Written a second time, row by row from the text."""
    complete = [row for row in cells if "?" not in row]
    order = np.random.default_rng(20191).permutation(len(complete))
    training, test = load_adult()
    names = training.feature_names
    chosen = np.random.default_rng(0).choice(40_000, 200, replace=False)
    for table, position, row in [
        *((training, i, complete[order[i]]) for i in chosen),
        *((test, i, complete[order[40_000 + i]]) for i in range(50)),
    ]:
        x = np.zeros(105)
        for name, cell in zip(ATTRIBUTES, row):
            if name in DOMAINS:
                x[names.index(f"{name}={cell}")] = 1.0
            else:
                x[names.index(name)] = int(cell) / MAXIMA[name]
        x /= max(1.0, np.linalg.norm(x))
        np.testing.assert_allclose(table.X[position], x, rtol=1e-14)
        assert table.y[position] == (1 if row[-1] == ">50K" else -1)


def test_adult_reaches_the_optimum_of_an_independent_implementation():
    """C = 1750, rho = 0.22, five nodes: loss 0.33991687795878095, 830 of 5222 test rows wrong, |f| = 28.704114."""
    training, test = load_adult()
    X, y, weight, rho = training.X, training.y, 1750 / 8000, 0.22
    f = np.zeros(105)
    for _ in range(30):
        p = 1 / (1 + np.exp(y * (X @ f)))
        gradient = rho * f - weight * (X.T @ (y * p))
        hessian = rho * np.eye(105) + weight * (X.T * (p * (1 - p))) @ X
        f -= np.linalg.solve(hessian, gradient)
        if np.linalg.norm(gradient) < 1e-9:
            break
    loss = np.logaddexp(0, -y * (X @ f)).mean()
    assert loss == pytest.approx(0.33991687795878095, abs=1e-10)
    assert np.linalg.norm(f) == pytest.approx(28.704113974681967, rel=1e-8)
    assert (test.y * (test.X @ f) <= 0).sum() == 830


def test_a_source_gives_each_node_its_part_of_the_table():
    training, test = load_adult()
    source = open_source("adult")
    parts = [source.node(i, 7) for i in range(7)]
    assert (np.vstack([X for X, _ in parts]) == training.X).all()
    assert (np.concatenate([y for _, y in parts]) == training.y).all()
    assert source.clipped.rows == source.clipped.clipped == 40_000
    assert (source.test()[0] == test.X).all()
    assert (source.everything()[1] == training.y).all()
    assert source.clipped.rows == 40_000  # what an observer reads is not counted again


@pytest.mark.parametrize("name", ["adult", "tiny", "a9a"])
def test_sparse_and_dense_rows_agree(name):
    source = open_source(name, intercept=True)
    X, y = source.node(3, 40)
    S, z = source.node(3, 40, sparse=True)
    np.testing.assert_allclose(S.toarray(), X, rtol=1e-14)
    assert (y == z).all()
    assert X.shape[1] == source.n_features == len(source.feature_names)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-15


@pytest.mark.parametrize("name", ["adult", "tiny", "a9a"])
def test_the_two_classes_serve_every_task(name):
    signs = open_source(name).node(0, 30)[1]
    assert (open_source(name, task="regression").node(0, 30)[1] == signs).all()
    numbers = open_source(name, task="multiclass").node(0, 30)[1]
    assert numbers.dtype.kind == "i"
    assert (2 * numbers - 1 == signs).all()


def test_raw_columns_keep_to_their_domains():
    columns = adult_columns()
    assert len(columns["age"]) == 45_222
    for name, domain in DOMAINS.items():
        assert columns[name].min() >= 0
        assert columns[name].max() < len(domain)
    for name, bound in MAXIMA.items():
        assert columns[name].max() == bound


def test_never_worked_is_a_column_of_zeros():
    training, _ = load_adult()
    column = training.X[:, training.feature_names.index("workclass=Never-worked")]
    assert (column == 0).all()
    assert (np.delete(training.X, training.feature_names.index("workclass=Never-worked"), 1) != 0).any()


def test_a9a_is_the_file_of_libsvm_to_the_byte():
    """Hashes of LIBSVM's a9a and a9a.t; its a9a has no blank at the end of a line from row 30,000 on."""
    table = a9a.table()
    X = table.X
    texts = []
    for row in range(table.n_rows):
        pairs = " ".join(f"{j + 1}:1" for j in X.indices[X.indptr[row] : X.indptr[row + 1]])
        blank = "" if 30_000 <= row < raw.TRAINING_ROWS else " "
        texts.append(f"{'+1' if table.y[row] > 0 else '-1'} {pairs}{blank}\n")
    training, test = a9a.split()
    for rows, digest in [
        (training, "7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca"),
        (test, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    ]:
        text = "".join(texts[row] for row in rows)
        assert hashlib.sha256(text.encode()).hexdigest() == digest
    assert X.shape[1] == len(a9a.columns()) == 123


def test_a_missing_category_is_a_block_of_zeros_in_a9a():
    records = raw.records()
    X, names = dense(a9a.encode(records[:500])), a9a.columns()
    block = [i for i, name in enumerate(names) if name.startswith("occupation=")]
    gap = records["occupation"][:500] == MISSING
    assert 0 < gap.sum() < 500
    assert (X[:, block].sum(axis=1) == np.where(gap, 0, 1)).all()


def test_tiny_is_scaled_by_its_published_maxima_and_learnable():
    source = open_source("tiny", clip=None)
    X, y = source.everything()
    assert X.shape == (455, 30)
    assert X.min() >= 0
    assert X.max() <= 1.05  # the description rounds to three digits
    test_X, test_y = source.test()
    assert len(test_y) == 114
    f = np.linalg.lstsq(np.column_stack([X, np.ones(455)]), y, rcond=None)[0]
    assert (np.sign(test_X @ f[:-1] + f[-1]) == test_y).mean() > 0.9


def test_heart_failure_counts_299_patients_of_whom_96_died():
    counts = heart_failure.counts()
    assert counts.sum() == 299
    assert counts[:, 1].sum() == 96
    joint = heart_failure.joint(("sex", "death"), ("anaemia", "diabetes"))
    assert joint.shape == (4, 4)
    for sex in (0, 1):
        for death in (0, 1):
            for anaemia in (0, 1):
                for diabetes in (0, 1):
                    by_hand = counts[sex, death, anaemia, :, diabetes].sum()
                    assert joint[2 * sex + death, 2 * anaemia + diabetes] == by_hand
    swapped = heart_failure.joint(("death", "sex"), ("diabetes", "anaemia"))
    assert (swapped == joint[[0, 2, 1, 3]][:, [0, 2, 1, 3]]).all()


def test_adult_is_split_without_looking_at_the_seed():
    first, second = open_source("adult", seed=1), open_source("adult", seed=2)
    assert (first.node(0, 20)[0] == second.node(0, 20)[0]).all()
    assert first.data_id() == second.data_id()
    assert first.describe()["rows"] == 40_000
    assert first.describe()["duplicates"] == 47
    assert first.describe()["features"] == len(adult_table.COLUMNS) == 105
