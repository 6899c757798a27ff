"""The funnel's command and its data: files in, files out, and one clear line for what cannot be."""

import json

import numpy as np
import pytest

from distadmm import Mapping, funnel
from distadmm.data import joint as tables
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.funnel.model import Joint, informations, of_table
from tests.vector_files import BUNDLED, load_all

GOOD = "s,a,b,c\nyes,0.1,0.2,0.3\nno,0.2,0.1,0.1\n"
QUICK = ["--repeats", "1", "--programs", "10", "--no-figure"]


def _rows(path, n=400, seed=0):
    rng = np.random.default_rng(seed)
    age, town = rng.integers(0, 3, n), rng.integers(0, 2, n)
    ill = (rng.random(n) < 0.2 + 0.2 * age).astype(int)
    lines = [f"{i},{['old', 'young', 'middle'][a]},{i + 7},{t}" for i, a, t in zip(ill, age, town)]
    path.write_text("ill,age,number,town\n" + "\n".join(lines) + "\n")
    return ill, age, town


# What comes out


def test_writes_channel_curve_and_result(tmp_path, capsys):
    out = tmp_path / "out"
    assert funnel.main(["--problem", "heart", "--fractions", "0.5,0.8", "--out", str(out), *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "perfect privacy" in shown
    assert "proven" in shown
    result = json.loads((out / "summary.json").read_text())
    assert [point["R_over_HX"] for point in result["points"]] == pytest.approx([0.5, 0.8])
    joint = funnel.problem("heart")
    for number, point in enumerate(result["points"], 1):
        saved = Mapping.load(out / f"mapping-{number:02d}.npz")
        assert np.abs(saved.matrix.sum(axis=1) - 1).max() < 1e-12
        leak, told = informations(joint, saved.matrix)
        assert leak == pytest.approx(point["I_SY"], abs=1e-12)
        assert told >= point["R"] - 1e-12
        assert point["lower_bound"] <= leak
        # the same numbers by the mapping's own accounts, from its own copy of P(s|x) and P(x)
        assert saved.leakage().inference == pytest.approx(leak, abs=1e-12)
        assert saved.leakage().nats == pytest.approx(told, abs=1e-12)
        text = Mapping.load(out / f"mapping-{number:02d}.csv")
        np.testing.assert_array_equal(text.matrix, saved.matrix)
        assert text.values == joint.public
    assert len((out / "curve.csv").read_text().splitlines()) == 3


def test_figure_of_a_curve(tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    assert funnel.main(["--points", "4", "--repeats", "1", "--out", str(out)]) == 0
    assert "<svg" in (out / "curve.svg").read_text()


def test_without_matplotlib_one_line_says_so(tmp_path, capsys, monkeypatch):
    from distadmm.graphs import figures

    monkeypatch.setattr(figures, "possible", lambda: False)
    out = tmp_path / "out"
    assert funnel.main(["--points", "2", "--repeats", "1", "--out", str(out)]) == 0
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "distadmm[plot]" in error
    assert (out / "curve.csv").exists()
    assert not (out / "curve.svg").exists()


def test_printed_form_reports_its_failure(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--form", "paper", "--fractions", "0.5", "--iterations", "20", "--out", str(out)]
    assert funnel.main(words) == 0
    assert "NaN in iteration 1" in capsys.readouterr().out
    result = json.loads((out / "summary.json").read_text())
    assert any("NaN" in outcome["what"] for outcome in result["claimed by the paper, refuted"])
    assert not list(out.glob("mapping*"))
    assert funnel.main([*words, "--force", "--strict"]) == 4


def test_strict_says_when_an_r_is_not_settled(tmp_path, capsys):
    words = ["--method", "aem", "--iterations", "2", "--restarts", "2", "--out", str(tmp_path / "out")]
    assert funnel.main([*words, "--strict"]) == 4
    assert "not settled" in capsys.readouterr().err


def test_config_of_a_run_repeats_it(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert funnel.main(["--rates", "0.4", "--seed", "3", "--out", str(first), *QUICK]) == 0
    assert funnel.main(["--config", str(first / "config.json"), "--out", str(second)]) == 0
    one, other = read_npz(first / "mapping.npz"), read_npz(second / "mapping.npz")
    np.testing.assert_array_equal(one["matrix"], other["matrix"])


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_command_on_two_ranks(mpi_ranks, world, shared_path):
    words = [
        "--problem",
        "heart",
        "--fractions",
        "0.8,0.9",
        "--repeats",
        "2",
        "--programs",
        "6",
        "--no-certify",
    ]
    assert funnel.main([*words, "--out", str(shared_path / "out")]) == 0
    if world.is_root:
        effort = funnel.Effort(repeats=2, programs=6)
        joint = funnel.problem("heart")
        alone = funnel.curve(joint, [0.8 * joint.HX, 0.9 * joint.HX], effort=effort, certify=False)
        for number, one in enumerate(alone, 1):
            Mapping(one.v).save(shared_path / "alone.npz")  # the same way to disk and back, rounding included
            saved = Mapping.load(shared_path / "out" / f"mapping-{number:02d}.npz")
            np.testing.assert_array_equal(saved.matrix, Mapping.load(shared_path / "alone.npz").matrix)
    assert funnel.main(["--rates", "9", "--out", str(shared_path / "no")]) == 2


# What goes in


def test_adult_table_is_the_published_counts():
    counts = load_all(BUNDLED)["funnel.json"]["pf"]["adult_joint1e-3"]["counts"]
    np.testing.assert_array_equal(tables.problem("adult").cells, counts)


def test_heart_table_is_the_published_distribution():
    case = load_all(BUNDLED)["funnel.json"]["pf"]["heart_joint1e-3"]
    joint = funnel.problem("heart", perturb=1e-3)
    np.testing.assert_allclose(joint.S, case["S"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(joint.p, case["p"], rtol=0, atol=1e-12)


def test_perturbation_is_told_as_pseudo_counts():
    table = tables.problem("heart")
    perturbed, smoothed = of_table(table, perturb=1e-3), of_table(table, smooth=0.299)
    assert "0.299 pseudo-counts in each of 64 cells (19.14 in all, to 299 records)" in perturbed.source
    np.testing.assert_allclose(perturbed.S, smoothed.S, rtol=0, atol=1e-12)


def test_rows_are_counted(tmp_path):
    path = tmp_path / "rows.csv"
    ill, age, town = _rows(path)
    table = tables.from_rows(path, ("ill",), ("age", "town"))
    assert table.public == ("middle|0", "middle|1", "old|0", "old|1", "young|0", "young|1")
    codes = np.array([1, 2, 0])[age] * 2 + town  # alphabetical: middle, old, young
    for s in (0, 1):
        np.testing.assert_array_equal(table.cells[s], np.bincount(codes[ill == s], minlength=6))
    assert table.records == 400


def test_combinations_that_no_row_has_are_left_out_and_told():
    cells = np.array([[1, 0, 2], [3, 0, 4], [0, 0, 0]])
    table = tables.Table(cells, ("r", "s", "t"), ("a", "b", "c"), "here", "x", 10).observed()
    assert table.public == ("a", "c")
    assert table.private == ("r", "s")
    assert "1 combinations of X that no record has left out" in table.source


def test_rows_command(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    _rows(path)
    out = tmp_path / "out"
    words = ["--rows", str(path), "--private", "ill", "--public", "age,town", "--smooth", "0.5"]
    assert funnel.main([*words, "--fractions", "0.9", "--out", str(out), *QUICK]) == 0
    assert "0.5 pseudo-counts in each of 12 cells (6 in all, to 400 records)" in capsys.readouterr().out
    assert Mapping.load(out / "mapping.npz").column == "age+town"


def test_bundled_rows_keep_the_documented_order():
    table = tables.adult(("income",), ("education",))
    assert table.public[:3] == ("Bachelors", "Some-college", "11th")
    assert table.cells.sum() == 40_000


def test_joint_files(tmp_path):
    (tmp_path / "t.csv").write_text(GOOD)
    np.savez(tmp_path / "t.npz", joint=np.array([[0.1, 0.2, 0.3], [0.2, 0.1, 0.1]]))
    joint = of_table(tables.read_joint(tmp_path / "t.csv"))
    np.savez(tmp_path / "sp.npz", S=joint.S, p=joint.p)
    assert joint.private == ("yes", "no")
    for name in ("t.npz", "sp.npz"):
        np.testing.assert_allclose(of_table(tables.read_joint(tmp_path / name)).S, joint.S, atol=1e-12)


# What cannot be

BAD_TABLES = {
    "negative": (GOOD.replace("0.1,0.2,0.3", "-0.1,0.4,0.3"), "negative"),
    "nan": (GOOD.replace("0.3\n", "nan\n", 1), "NaN"),
    "sum": (GOOD.replace("0.3\n", "0.4\n", 1), "sums to 1.1"),
    "zero column": ("s,a,b\nyes,0.5,0\nno,0.5,0\n", "column b has probability zero"),
    "zero row": ("s,a,b\nyes,0.5,0.5\nno,0,0\n", "row no has probability zero"),
    "words": (GOOD.replace("0.3\n", "much\n", 1), "much"),
    "ragged": (GOOD.replace("0.1,0.1\n", "0.1\n"), "line 3"),
    "empty": ("s,a\n", "needed: a header and rows"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_table(name, tmp_path, capsys):
    text, words = BAD_TABLES[name]
    (tmp_path / "t.csv").write_text(text)
    _refused(["--input", str(tmp_path / "t.csv")], words, tmp_path, capsys)


BAD_WORDS = {
    "too much": (["--rates", "1.2"], "exceeds H(X)"),
    "negative rate": (["--rates", "-0.1"], "0 <= R <= H(X)"),
    "fraction": (["--fractions", "1.5"], "from 0 to at most 1"),
    "nan rate": (["--rates", "nan"], "R is nan"),
    "points and rates": (["--points", "3", "--rates", "0.1"], "keep one"),
    "method": (["--method", "em"], "choose one of"),
    "symbols": (["--method", "aem", "--symbols", "2"], "at least |X| = 3"),
    "nlp too large": (["--problem", "adult", "--method", "nlp"], "at most 600 unknowns"),
    "columns of nothing": (["--private", "a", "--public", "b"], "--data, a file or a bundled table"),
    "no columns": (["--data", "heart"], "--private COLUMN"),
    "unknown column": (["--data", "heart", "--private", "sex", "--public", "weight"], "no column 'weight'"),
    "column twice": (
        ["--data", "heart", "--private", "sex", "--public", "death,death"],
        "names a column twice",
    ),
    "two problems": (["--data", "heart", "--input", "x.csv"], "keep one"),
    "no file": (["--input", "nowhere.csv"], "no file nowhere.csv"),
    "other file": (["--input", "table.txt"], "neither .csv nor .npz"),
    "smoothed probabilities": (["--smooth", "1"], "use --perturb"),
    "negative smoothing": (["--problem", "heart", "--smooth", "-1"], "zero or more"),
    "seed": (["--seed", "-1"], "zero or more"),
    "starts": (["--method", "aem", "--restarts", "0"], "1 or more"),
    "form": (["--form", "paper", "--method", "greedy"], "does not go with"),
    "spelling": (["--fraction", "0.5"], "--fractions"),
}


@pytest.mark.parametrize("name", BAD_WORDS)
def test_bad_words(name, tmp_path, capsys):
    words, message = BAD_WORDS[name]
    _refused(words, message, tmp_path, capsys)


def _refused(words, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert funnel.main([*words, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert message in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("S", "p", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], [0.5, 0.5], "sums to 0.9"),
        ([[0.5, 0.5], [0.5, 0.5]], [0.5, 0.6], "P(x) sums to 1.1"),
        ([[0.5, 0.5], [0.5, 0.5]], [1.0, 0.0], "P(x) is zero"),
        ([[0.5, -0.5], [0.5, 1.5]], [0.5, 0.5], "negative"),
        ([[0.5, np.nan], [0.5, 0.5]], [0.5, 0.5], "NaN"),
        ([[0.5, 0.5]], [0.5, 0.25, 0.25], "shape"),
    ],
)
def test_bad_distribution(S, p, message):
    with pytest.raises(InputError) as raised:
        Joint(np.array(S), np.array(p))
    assert message in str(raised.value)


def test_symbol_without_probability_is_named():
    with pytest.raises(InputError, match="b; leave such columns out"):
        funnel.from_joint(np.array([[1, 0], [1, 0]]), public=("a", "b"))
