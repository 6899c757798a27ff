"""The command: what it prints and writes, and how it refuses."""

import csv
import json

import numpy as np
import pytest

from distadmm import Mapping, ias
from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.objective import Objective

QUICK = ["--restarts", "3", "--no-figure"]


def run(capsys, *words):
    code = ias.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def read_table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_what_it_says(tmp_path, capsys):
    out = tmp_path / "run"
    code, said, err = run(
        capsys, "--problem", "binom", "--f", "js", "--beta", 0.6, "--certify", "--out", out, "--restarts", 4
    )
    assert (code, err) == (0, "")
    assert "beta_glob 1.514" in said
    written = {"mapping.npz", "mapping.csv", "config.json", "summary.json", "model.json", "mapping.svg"}
    assert {p.name for p in out.iterdir()} == written
    result = json.loads((out / "summary.json").read_text())
    binary, text = Mapping.load(out / "mapping.npz"), Mapping.load(out / "mapping.csv")
    assert (binary.matrix == text.matrix).all()
    assert np.abs(binary.matrix.sum(1) - 1).max() <= 1e-12
    problem = ias.stand_in("binom")
    value = Objective(problem, ias.measure("js"), 0.6)(np.maximum(binary.matrix, 1e-300))
    assert result["F"] == pytest.approx(float(value.F), abs=1e-9)
    assert result["I_SU"] == pytest.approx(binary.leakage().inference, abs=1e-9)
    assert result["certificate"]["gap"] < 1e-6
    assert len(result["F_of_starts"]) == len(result["iterations"]) == 4
    assert (out / "mapping.svg").read_text().lstrip().startswith("<?xml")


def test_the_config_of_a_run_repeats_it(tmp_path, capsys):
    run(
        capsys, "--problem", "sharp", "--f", "lc", "--beta", 1.0, "--seed", 3, *QUICK, "--out", tmp_path / "a"
    )
    code, _, _ = run(
        capsys, "--config", tmp_path / "a" / "config.json", "--out", tmp_path / "b", "--no-figure"
    )
    assert code == 0
    assert (tmp_path / "a" / "mapping.npz").read_bytes() == (tmp_path / "b" / "mapping.npz").read_bytes()


def test_without_matplotlib_one_line_and_no_figure(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    code, _, err = run(capsys, "--restarts", 1, "--out", tmp_path / "run")
    assert code == 0
    assert "distadmm[plot]" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run" / "mapping.svg").exists()


def test_the_printed_form_says_what_happens(tmp_path, capsys):
    words = ["--form", "paper", "--f", "js", "--beta", 0.6, "--eps", 1e-4, "--iterations", 2, "--inner", 10]
    code, said, _ = run(capsys, *words, "--no-figure", "--out", tmp_path / "run")
    assert code == 0
    assert "Refuted" in said
    assert "claimed by the paper, not proved" in said
    assert "|delta|_1 = 1," in said


def test_a_sweep_writes_a_falling_curve(tmp_path, capsys):
    out = tmp_path / "sweep"
    words = ["sweep", "--problem", "binom", "--f", "lc", "--betas", "0.5,1.2,1.54,1.7", "--restarts", 4]
    code, said, _ = run(capsys, *words, "--strict", "--out", out)
    assert code == 0
    rows = read_table(out / "curve.csv")
    I, E, gap = (np.array([float(row[name]) for row in rows]) for name in ("I_SU", "E_d", "gap"))
    assert (np.diff(I) <= 1e-12).all()
    assert (np.diff(E) <= 1e-12).all()
    assert gap.max() <= 1e-6
    assert I[2] > 0.01  # 1.54 lies between beta_loc 1.514 and beta_glob 1.556
    assert I[3] == pytest.approx(0, abs=1e-9)
    assert len(list(out.glob("mapping-*.npz"))) == 4
    assert "beta_glob" in said
    assert (out / "curve.svg").exists()


def test_a_sweep_places_its_own_betas(tmp_path, capsys):
    words = ["sweep", "--problem", "sharp", "--points", 2, "--no-certify", *QUICK]
    code, _, _ = run(capsys, *words, "--out", tmp_path / "s")
    rows = read_table(tmp_path / "s" / "curve.csv")
    assert code == 0
    assert float(rows[-1]["beta"]) == pytest.approx(1.02 * 0.985142, abs=1e-5)
    assert {row["certified"] for row in rows} == {"False"}


def problem_files(folder):
    problem = ias.stand_in("gauss")
    json_ = folder / "p.json"
    json_.write_text(json.dumps({"P_S": problem.P_S.tolist(), "P_YgS": problem.P_YgS.tolist()}))
    npz = folder / "p.npz"
    np.savez(npz, joint=problem.joint)
    table = folder / "p.csv"
    with open(table, "w") as file:
        file.write("," + ",".join(problem.values) + "\n")
        for s, row in enumerate(problem.joint):
            file.write(f"s{s}," + ",".join(repr(float(x)) for x in row) + "\n")
    return json_, npz, table


def test_every_kind_of_input_gives_the_same_mapping(tmp_path, capsys):
    found = []
    for number, path in enumerate(problem_files(tmp_path)):
        out = tmp_path / f"run{number}"
        assert run(capsys, "--input", path, "--beta", 0.3, *QUICK, "--out", out)[0] == 0
        found.append(json.loads((out / "summary.json").read_text())["F"])
    assert found == pytest.approx([found[0]] * 3, abs=1e-9)


def test_rows_and_counts_agree(tmp_path, capsys):
    rng = np.random.default_rng(0)
    s, y = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    y = np.where(rng.random(300) < 0.5, s, y)
    rows, table = tmp_path / "rows.csv", tmp_path / "table.csv"
    rows.write_text("sick,age,job\n" + "".join(f"{a},40,{b}\n" for a, b in zip(s, y)))
    counts = np.zeros((2, 3), int)
    np.add.at(counts, (s, y), 1)
    table.write_text(
        "s,0,1,2\n" + "".join(f"{i},{','.join(map(str, row))}\n" for i, row in enumerate(counts))
    )
    run(
        capsys,
        "--rows",
        rows,
        "--infer",
        "sick",
        "--column",
        "job",
        "--beta",
        0.1,
        *QUICK,
        "--out",
        tmp_path / "a",
    )
    run(capsys, "--input", table, "--beta", 0.1, *QUICK, "--out", tmp_path / "b")
    by_rows, by_counts = (Mapping.load(tmp_path / name / "mapping.npz") for name in "ab")
    assert by_rows.matrix == pytest.approx(by_counts.matrix, abs=1e-12)
    assert by_rows.values == by_counts.values == ("0", "1", "2")
    assert by_rows.column == "job"
    assert by_rows.apply(y.astype(str), np.random.default_rng(0)).shape == (300,)


def test_adult_keeps_the_order_of_its_documentation(tmp_path, capsys):
    from distadmm.data.adult.domains import DOMAINS

    words = ["--data", "adult", "--infer", "income", "--column", "education", "--beta", 0.02, *QUICK]
    code, _, _ = run(capsys, *words, "--out", tmp_path / "a")
    assert code == 0
    mapping = Mapping.load(tmp_path / "a" / "mapping.npz")
    assert mapping.values == DOMAINS["education"]
    assert mapping.leakage().inference < mapping.leakage().inference_before


def test_strict_tells_an_unsettled_run(tmp_path, capsys):
    words = ["--method", "ga", "--iterations", 3, "--strict", *QUICK, "--out", tmp_path / "run"]
    code, _, err = run(capsys, *words)
    assert code == 4
    assert "not settled" in err


BAD = [
    (["--beta", "0"], "--beta is 0"),
    (["--beta", "-1"], "--beta is -1"),
    (["--beta", "nan"], "--beta is nan"),
    (["--beta", "much"], "needed: a number"),
    (["--u-size", "0"], "--u-size is 0"),
    (["--eps", "0.2"], "eps is 0.2; needed 0 < eps <= 1/|U|"),
    (["--eps", "0"], "--eps is 0"),
    (["--f", "kl"], "choose one of: mi, js, lc, hellinger"),
    (["--method", "newton"], "choose one of: gba"),
    (["--form", "paper", "--method", "gba"], "--form paper is Algorithm 1"),
    (["--restarts", "0"], "--restarts is 0"),
    (["--seed", "-1"], "--seed is -1"),
    (["--iterations", "0"], "--iterations is 0"),
    (["--stop-tolerance", "-1"], "--stop-tolerance is -1"),
    (["--inner", "0"], "--inner is 0"),
    (["--ga-step", "0"], "--ga-step is 0"),
    (["--problem", "fig1"], "choose one of: gauss"),
    (["--input", "absent.json"], "absent.json"),
    (["--input", "absent.txt"], "not .json, .npz or .csv"),
    (["--rows", "absent.csv"], "needs --infer COLUMN and --column COLUMN"),
    (["--rows", "absent.csv", "--infer", "a", "--column", "b"], "absent.csv"),
    (["--infer", "a"], "a file or a bundled table; give it"),
    (["--data", "adult", "--input", "x.json"], "both give the problem"),
    (["--data", "adult", "--infer", "income", "--column", "fnlwgt"], "adult has no column 'fnlwgt'"),
    (["--data", "adult", "--infer", "sex", "--column", "sex"], "both 'sex'"),
    (["--data", "adult", "--infer", "income", "--column", "workclass"], "Never-worked"),
    (["--smooth", "1"], "--smooth adds"),
    (["--certfy"], "did you mean --certify"),
    (["sweep", "--betas", "0.1,-1"], "--betas is -1.0"),
    (["sweep", "--points", "1"], "--points is 1"),
    (["sweep", "--beta", "1"], "unknown argument '--beta'"),
    (["sweep", "--eps", "0.3"], "eps is 0.3"),
]


@pytest.mark.parametrize(("words", "told"), BAD)
def test_bad_flags_are_one_line_and_leave_nothing(words, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, err = run(capsys, *words)
    assert code == 2
    assert said == ""
    assert told in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


GOOD = [[0.5, 0.5], [0.25, 0.75]]
BAD_TABLES = [
    ({"P_S": [0.5, 0.4], "P_YgS": GOOD}, "P_S sums to 0.9"),
    ({"P_S": [0.5, 0.5], "P_YgS": [[0.5, 0.5], [0.3, 0.6]]}, "row 1 of P_YgS sums to 0.9"),
    ({"P_S": [0.5, 0.5], "P_YgS": [[1.5, -0.5], [0.3, 0.7]]}, "negative entry -0.5"),
    ({"P_S": [0.5, 0.5], "P_YgS": [[float("nan"), 0.5], [0.3, 0.7]]}, "NaN"),
    ({"P_S": [0.5, 0.5], "P_YgS": [["a", 0.5], [0.3, 0.7]]}, "not a table of numbers"),
    ({"P_S": [0.5, 0.5], "P_YgS": [[1.0], [0.3, 0.7]]}, "not a table of numbers"),
    ({"P_S": [1.0, 0.0], "P_YgS": GOOD}, "of S has probability zero"),
    ({"P_S": [0.5, 0.5], "P_YgS": [[1.0, 0.0], [1.0, 0.0]]}, "of Y has probability zero"),
    ({"P_S": [1.0], "P_YgS": [[0.5, 0.5]]}, "needed at least 2"),
    ({"P_S": [0.2, 0.3, 0.5], "P_YgS": GOOD}, "needed 3 rows"),
    ({"P_S": [0.5, 0.5]}, "no P_YgS"),
    ({"joint": [[0.5, 0.1], [0.1, 0.1]]}, "sums to 0.8"),
    ({"joint": [[3, -1], [1, 1]]}, "negative"),
    ({"joint": [[3, 0], [1, 0]]}, "of Y has probability zero"),
    ({"joint": [[0, 0], [1, 1]]}, "of S has probability zero"),
    ({"joint": [[0, 0], [0, 0]]}, "sums to 0"),
    ({"joint": [1, 2]}, "needed a row per s"),
    ({"P_S": [0.5, 0.5], "P_YgS": GOOD, "values": ["a"]}, "1 values"),
    ({"P_S": [0.5, 0.5], "P_YgS": GOOD, "values": ["a", "a"]}, "same name"),
    ([1, 2], "not an object"),
]


def test_complex_numbers_are_no_table(tmp_path, capsys):
    np.savez(tmp_path / "t.npz", joint=np.full((2, 2), 0.25 + 0j))
    code, _, err = run(capsys, "--input", tmp_path / "t.npz")
    assert code == 2
    assert "complex" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("table", "told"), BAD_TABLES)
def test_bad_tables_are_one_line_and_leave_nothing(table, told, tmp_path, capsys, monkeypatch):
    path = tmp_path / "in" / "t.json"
    path.parent.mkdir()
    path.write_text(json.dumps(table))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    code, _, err = run(capsys, "--input", path)
    assert code == 2
    assert told in err
    assert "t.json" in err
    assert err.count("\n") == 1
    assert not list(work.iterdir())


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("s,a,b\nx,1,2\ny,1\n", [], "line 3"),
        ("s,a,b\nx,1,two\ny,1,2\n", [], "--infer COLUMN"),
        ("s,a,b\n", [], "has a header and no rows"),
        ("a,b\nx,y\n", ["--infer", "c", "--column", "b"], "no column 'c'"),
        ("a,b\nx,y\nx,z\n", ["--infer", "a", "--column", "b"], "needed at least 2"),
    ],
)
def test_bad_csv_files(text, words, told, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(text)
    code, _, err = run(capsys, "--rows" if words else "--input", path, *words)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


def test_a_full_directory_is_kept(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    code, _, err = run(capsys, "--out", tmp_path, *QUICK)
    assert code == 2
    assert "not empty" in err
    assert (tmp_path / "mine").read_text() == "x"


def test_as_functions_bad_input_is_an_input_error():
    from distadmm.errors import InputError

    problem = ias.stand_in("gauss")
    for arguments in (
        {"beta": 0},
        {"u_size": 0},
        {"eps": 0.5},
        {"starts": "many"},
        {"method": "sgd"},
        {"restarts": 0},
    ):
        with pytest.raises(InputError):
            ias.solve(problem, **{"f": "mi", "beta": 0.4, **arguments})
    with pytest.raises(InputError, match="no stand-in"):
        ias.stand_in("fig1")
    with pytest.raises(InputError, match="sums to"):
        Inference(np.array([0.5, 0.6]), np.eye(2))
