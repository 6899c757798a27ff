"""How rows come to nodes: every row once, whatever the deal, and seeds that are real replicates."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.commands import report, sweep
from distadmm.data.deal import Deal
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

SPLITS = ["published", "iid", "quantity:0.3", "quantity:5", "label:0.1", "label:10", "column:area (mean)"]


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_training_row_is_dealt_once(how, seed):
    source = open_source("tiny", deal=Deal.of(how, seed))
    dealt = np.concatenate(source.shards(9))
    assert sorted(dealt) == list(range(source.n_rows))
    assert min(map(len, source.shards(9))) > 0
    again = open_source("tiny", deal=Deal.of(how, seed))
    assert all(map(np.array_equal, source.shards(9), again.shards(9)))
    X, y = (np.concatenate(parts) for parts in zip(*(source.node(i, 9) for i in range(9))))
    assert sorted(map(tuple, np.column_stack([X, y]))) == sorted(
        map(tuple, np.column_stack(source.everything()))
    )


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 12), st.integers(0, 2**31), st.sampled_from(["label:", "quantity:"]), st.floats(0.01, 100)
)
def test_no_node_is_left_without_rows(nodes, seed, kind, alpha):
    targets = np.random.default_rng(seed).integers(0, 3, 12)
    parts = Deal.of(f"{kind}{alpha}", seed).shards(12, nodes, lambda _: targets)
    assert sorted(np.concatenate(parts)) == list(range(12))
    assert all(map(len, parts))


def test_splits_are_as_unlike_as_they_are_asked_to_be():
    def shares(how):
        source = open_source("tiny", deal=Deal.of(how, 1))
        return np.array([(source.node(i, 5)[1] > 0).mean() for i in range(5)]), source

    even, unlike = shares("label:1000")[0], shares("label:0.1")[0]
    assert np.ptp(even) < 0.1 < 0.6 < np.ptp(unlike)
    sizes = [len(part) for part in shares("quantity:0.2")[1].shards(5)]
    assert max(sizes) > 3 * min(sizes)
    source = shares("column:area (mean)")[1]
    column = source.feature_names.index("area (mean)")
    raw = open_source("tiny", clip=None, deal=Deal.of("column:area (mean)", 1))
    ranges = [(X[:, column].min(), X[:, column].max()) for X, _ in (raw.node(i, 5) for i in range(5))]
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))


def test_a_categorical_column_keeps_its_values_together():
    source = open_source("adult", deal=Deal.of("column:relationship", 3))
    places = [j for j, name in enumerate(source.feature_names) if name.startswith("relationship=")]
    held = [np.unique(source.node(i, 20)[0][:, places].argmax(axis=1)) for i in range(20)]
    assert all(len(values) <= 3 for values in held)
    assert sum(len(values) == 1 for values in held) >= 14


def test_seeds_deal_bundled_rows_anew_and_0_as_published():
    labels = lambda deal: open_source("adult", deal=deal).node(0, 20)[1]  # noqa: E731
    published = open_source("adult").node(0, 20)[1]
    assert np.array_equal(published, labels(Deal.of("iid", 0)))
    assert np.array_equal(published, labels(Deal.of("published", 5)))
    assert not np.array_equal(published, labels(Deal.of("iid", 5)))


def test_a_file_is_dealt_by_the_data_seed_and_held_out_by_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i / 100},{i % 2}\n" for i in range(100)))
    read = lambda seed, deal: open_source(str(path), clip=None, seed=seed, test_fraction=0.2, deal=deal)  # noqa: E731
    plain = read(3, None)
    for same in (read(3, Deal.of("published", 3)), read(0, Deal.of("iid", 3))):
        assert np.array_equal(plain.node(0, 4)[0], same.node(0, 4)[0])
        assert np.array_equal(plain.test()[0], same.test()[0])
    assert not np.array_equal(plain.node(0, 4)[0], read(3, Deal.of("iid", 4)).node(0, 4)[0])
    shards = tmp_path / "s-{rank}.csv"
    for rank in range(2):
        (tmp_path / f"s-{rank}.csv").write_text("a,y\n0.1,0\n0.2,1\n")
    with pytest.raises(InputError, match="leave out --deal"):
        open_source(str(shards), deal=Deal.of("label:1", 0))


def run(out, *words):
    asked = ["--data", "tiny", "--topology", "ring:4", "--algorithm", "admm", "--iterations", "6", *words]
    return radmm.main([*asked, "--out", str(out), "--progress", "none"])


def test_three_seeds_are_three_replicates_and_equal_bits_are_named(tmp_path, capsys):
    words = ["--topology", "ring:4", "--data", "tiny", "--algorithm", "admm", "--iterations", "6"]
    for name, more in (("anew", []), ("published", ["--deal", "published"])):
        assert sweep.main([*words, "--seed", "0", "1", "2", *more, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    gaps = {}
    for name in ("anew", "published"):
        assert report.main([str(tmp_path / name), "--out", str(tmp_path / f"{name}.html")]) == 0
        said = capsys.readouterr().out
        assert ("came out with equal bits" in said) == (name == "published")
        runs = [p for p in (tmp_path / name).iterdir() if (p / "summary.json").exists()]
        gaps[name] = {json.loads((p / "summary.json").read_text())["mean_model_gap"] for p in runs}
    assert {name: len(found) for name, found in gaps.items()} == {"anew": 3, "published": 1}


def test_a_run_of_a_release_without_deals_goes_on_with_the_rows_it_had(tmp_path):
    assert run(tmp_path / "a", "--seed", "5", "--deal", "published", "--checkpoint-every", "3") == 0
    config = tmp_path / "a" / "config.json"
    told = json.loads(config.read_text())
    for name in ("deal", "data_seed"):
        del told["config"][name]
    config.write_text(json.dumps(told))
    assert radmm.main(["--resume", str(tmp_path / "a"), "--iterations", "12", "--progress", "none"]) == 0
    assert run(tmp_path / "b", "--seed", "5", "--deal", "published", "--iterations", "12") == 0
    models = [np.load(tmp_path / name / "models.npz")["models"] for name in "ab"]
    assert np.array_equal(*models)


@pytest.mark.parametrize(
    ("how", "stated", "certain"),
    [
        ("label:1", [], False),
        ("column:area (mean)", [], False),
        ("quantity:1", [], True),
        ("label:1", ["deal"], True),
    ],
)
def test_a_deal_by_what_is_in_the_rows_bounds_nothing_unless_it_is_stated(how, stated, certain):
    config = radmm.configure(
        data="tiny",
        topology="ring:4",
        iterations=4,
        epsilon=1.0,
        adjacency="replace",
        deal=how,
        stated=stated,
    )
    doubt = prepare(config, World()).source.facts.doubt
    assert (doubt == "") == certain
    assert certain or "--stated deal" in doubt


@pytest.mark.parametrize(
    "how", ["label", "label:0", "label:nan", "quantity:-1", "iid:2", "column:", "dirichlet:1"]
)
def test_a_split_that_is_none_is_named(tmp_path, capsys, how):
    assert run(tmp_path / "a", "--deal", how) == 2
    assert "needed: iid, published" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
