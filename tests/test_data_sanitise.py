"""A randomised column in place of the true one, the same whatever process reads it."""

from dataclasses import dataclass

import numpy as np
import pytest

from distadmm.data.adult.domains import DOMAINS
from distadmm.data.adult.table import adult_columns, split
from distadmm.data.source import open_source
from distadmm.errors import InputError


@dataclass
class Rows:
    """P(u|y) as a matrix, one row a category."""

    P: np.ndarray

    @property
    def n_inputs(self):
        return self.P.shape[0]

    @property
    def n_outputs(self):
        return self.P.shape[1]

    def apply(self, column, rng):
        steps = np.cumsum(self.P, axis=1)[column]
        return (rng.random(len(column))[:, None] > steps[:, :-1]).sum(axis=1)


KEEP = Rows(np.eye(6))
COIN = Rows(np.array([[0.8, 0.2]] * 3 + [[0.1, 0.9]] * 3))


def test_the_identity_changes_nothing_but_names():
    plain, kept = open_source("adult"), open_source("adult", sanitise={"relationship": KEEP})
    assert (plain.node(2, 50)[0] == kept.node(2, 50)[0]).all()
    assert "relationship~0" in kept.feature_names
    assert "relationship=Wife" not in kept.feature_names


def test_symbols_come_with_their_probabilities_and_do_not_depend_on_the_reader():
    source = open_source("adult", sanitise={"relationship": COIN}, seed=5)
    parts = np.vstack([source.node(i, 4)[0] for i in range(4)])
    again = open_source("adult", sanitise={"relationship": COIN}, seed=5)
    assert (again.node(0, 1)[0] == parts).all()
    assert source.n_features == 105 - 6 + 2
    column = source.feature_names.index("relationship~0")
    symbol = np.where(parts[:, column] > 0, 0, 1)
    truth = adult_columns()["relationship"][split()[0]]
    for category in range(6):
        share = (symbol[truth == category] == 0).mean()
        expected = COIN.P[category, 0]
        error = np.sqrt(expected * (1 - expected) / (truth == category).sum())
        assert abs(share - expected) < 5 * error
    other = open_source("adult", sanitise={"relationship": COIN}, seed=6)
    assert (other.node(0, 1)[0] != parts).any()


def test_two_columns_draw_independently():
    half = {"relationship": Rows(np.full((6, 2), 0.5)), "race": Rows(np.full((5, 2), 0.5))}
    source = open_source("adult", sanitise=half)
    X, _ = source.node(0, 1)
    first, second = (X[:, source.feature_names.index(f"{name}~0")] > 0 for name in half)
    assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(40_000)


def test_education_takes_its_number_along():
    size = len(DOMAINS["education"])
    source = open_source("adult", sanitise={"education": Rows(np.full((size, 2), 0.5))})
    assert "education-num" not in source.feature_names
    X, _ = source.node(0, 40, sparse=True)
    assert X.shape[1] == len(source.feature_names) == 105 - size + 2 - 1


def test_the_name_of_the_data_tells_sanitised_from_plain():
    names = [
        open_source("adult", sanitise=sanitise, seed=seed).data_id()
        for sanitise, seed in [({}, 0), ({"relationship": COIN}, 0), ({"relationship": COIN}, 1)]
    ]
    assert len(set(names)) == 3


@pytest.fixture
def shards(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    rng = np.random.default_rng(0)
    for node in range(2):
        rows = [f"{rng.choice(['a', 'b'])},{rng.random():.3f},{rng.choice([-1, 1])}" for _ in range(200)]
        (tmp_path / f"s-{node}.csv").write_text("\n".join(["kind,x,y", *rows]) + "\n")
    (tmp_path / "schema.toml").write_text('target = "y"\n[columns]\nkind = ["a", "b"]\nx = { max = 1 }\n')
    return tmp_path


def test_files_are_sanitised_where_they_are_read(shards):
    noise = {"kind": Rows(np.full((2, 3), 1 / 3))}
    options = {"schema": str(shards / "schema.toml"), "clip": None}
    whole = open_source(str(shards / "s-0.csv"), sanitise=noise, seed=1, **options)
    parts = np.vstack([whole.node(i, 3)[0] for i in range(3)])
    assert (whole.node(0, 1)[0] == parts).all()
    assert whole.feature_names == ("kind~0", "kind~1", "kind~2", "x")
    assert (parts[:, :3].sum(axis=1) == 1).all()
    plain = open_source(str(shards / "s-0.csv"), seed=1, **options)
    assert (plain.node(0, 1)[0][:, -1] == parts[:, -1]).all()


def test_with_one_file_a_node_the_seed_of_the_run_decides_nothing(shards):
    """Who knows the seed could undo the mapping: the draws follow a key that stays on the machine."""
    noise = {"kind": Rows(np.full((2, 2), 0.5))}
    options = {"schema": str(shards / "schema.toml"), "sanitise": noise}
    pattern = str(shards / "s-{rank}.csv")
    first = open_source(pattern, seed=1, **options).node(0, 2)[0]
    assert (open_source(pattern, seed=2, **options).node(0, 2)[0] == first).all()
    other = open_source(pattern, seed=1, **options).node(1, 2)[0]
    assert (other[:, 0] > 0).tolist() != (first[:, 0] > 0).tolist()
    (shards / "config" / "distadmm" / "data-id.key").unlink()
    assert (open_source(pattern, seed=1, **options).node(0, 2)[0] != first).any()


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"colour": KEEP}, "no such categorical column; there are: workclass"),
        ({"age": KEEP}, "no such categorical column"),
        ({"sex": KEEP}, "takes 6 categories, the column has 2"),
    ],
)
def test_bad_mappings(mapping, expected):
    with pytest.raises(InputError, match=expected):
        open_source("adult", sanitise=mapping)


def test_tables_without_categories_cannot_be_sanitised(shards):
    with pytest.raises(InputError, match="no raw categorical columns"):
        open_source("tiny", sanitise={"sex": KEEP})
    with pytest.raises(InputError, match="there are: none"):
        open_source(str(shards / "s-0.csv"), sanitise={"kind": KEEP})


def test_a_row_without_value_cannot_be_sanitised(shards):
    path = shards / "gap.csv"
    path.write_text("kind,x,y\na,0.5,1\n?,0.5,-1\n")
    (shards / "gap.toml").write_text(
        'target = "y"\nmissing = ["?"]\n[columns]\nkind = ["a", "b"]\nx = { max = 1 }\n'
    )
    with pytest.raises(InputError, match="no value there"):
        open_source(str(path), schema=str(shards / "gap.toml"), sanitise={"kind": Rows(np.eye(2))})
