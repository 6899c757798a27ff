"""The command: what it writes, what it says, what it refuses; the same bits on any number of ranks."""

import csv
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from distadmm.files import read_npz
from distadmm.istdp import PROGRAMME, main
from distadmm.ranks.world import World
from distadmm.run import shell
from tests.common import PRINTED

SMALL = ["--data", "synthetic:200x20"]
PRIVATE = [*SMALL, "--epsilon", "2", "--adjacency", "replace", "--iterations", "5"]


def digest(folder):
    """Everything a run writes but the time, which the lines of ledgers carry as well."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl")
    found = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    found["summary.json"] = {**json.loads((folder / "summary.json").read_text()), "seconds": 0}
    return found


def test_a_run_leaves_what_it_promises(tmp_path, capsys):
    out = tmp_path / "run"
    assert main([*PRIVATE, "--out", str(out)]) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {
        "config.json",
        "history.csv",
        "models.npz",
        "model.json",
        "coefficients.csv",
        "summary.json",
        "ledger",
    }
    summary = json.loads((out / "summary.json").read_text())
    assert summary["epsilon"] <= 2.0
    theta = read_npz(out / "models.npz")["theta"]
    assert theta.shape == (1, 20)
    with open(out / "history.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    assert "objective" not in rows[0]  # nothing but what was released
    shown = capsys.readouterr().out
    assert "The released iterates are (" in shown
    assert "Not covered" in shown


def test_config_json_repeats_the_run(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    assert main([*PRIVATE, "--rng", "simulation", "--out", str(first)]) == 0
    assert main(["--config", str(first / "config.json"), "--out", str(second)]) == 0
    left, right = digest(first), digest(second)
    left.pop("config.json"), right.pop("config.json")  # names its own directory
    assert left == right


def test_add_remove_writes_no_number_of_rows(tmp_path):
    out = tmp_path / "run"
    words = [
        *SMALL,
        "--epsilon",
        "2",
        "--adjacency",
        "add-remove",
        "--public-rows",
        "150",
        "--iterations",
        "3",
    ]
    assert main([*words, "--rng", "simulation", "--out", str(out)]) == 0
    config = json.loads((out / "config.json").read_text())
    assert "rows" not in config["data"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["divisor"] == 150.0


def test_without_epsilon_there_is_no_privacy_and_it_says_so(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["--data", "tiny", "--penalty", "l1", "--out", str(out)]) == 0
    assert "not private" in capsys.readouterr().out
    assert not (out / "ledger").exists()
    assert json.loads((out / "summary.json").read_text())["converged"]


def test_the_printed_form_reports_what_happens(tmp_path, capsys):
    out = tmp_path / "run"
    assert main([*PRINTED, "--iterations", "8", "--rng", "simulation", "--strict", "--out", str(out)]) == 4
    shown = capsys.readouterr().out
    assert "No guarantee" in shown
    assert "accepted no step" in shown
    lines = (out / "ledger" / "node-0000.jsonl").read_text()
    assert "refuted" in lines
    assert json.loads((out / "summary.json").read_text())["epsilon"] == "inf"


def test_files_of_the_user(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    for loss, y in (("logistic", (X[:, 0] > 0).astype(int)), ("squared", 2 * X[:, 0])):
        path = tmp_path / f"{loss}.csv"
        lines = ["a,b,c,y", *(",".join(map(str, [*row, t])) for row, t in zip(X, y))]
        path.write_text("\n".join(lines) + "\n")
        out = tmp_path / loss
        words = [
            "--data",
            str(path),
            "--loss",
            loss,
            "--row-norm",
            "none",
            "--penalty",
            "mcp",
            "--lambda",
            "0.05",
        ]
        words += ["--test-fraction", "0.25", "--reach", "3", "--out", str(out)]
        assert main(words) == 0
        with open(out / "coefficients.csv") as file:
            assert "a" in [row["column"] for row in csv.DictReader(file)]
        summary = json.loads((out / "summary.json").read_text())
        assert "test_accuracy" in summary or summary["test_mean_squared_error"] < 0.1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--epsilon", "1"], "--adjacency"),
        (["--epsilon", "1", "--adjacency", "both"], "replace"),
        (["--epsilon", "1", "--adjacency", "add-remove"], "--public-rows"),
        (
            ["--epsilon", "1", "--adjacency", "add-remove", "--public-rows", "9", "--test-fraction", "0.2"],
            "deals all rows out anew",
        ),
        (["--epsilon", "0", "--adjacency", "replace"], "epsilon"),
        (["--epsilon", "1", "--adjacency", "replace", "--delta", "1"], "delta"),
        (["--epsilon", "1", "--adjacency", "replace", "--gradient-norm", "0"], "--gradient-norm is"),
        (["--epsilon", "1", "--adjacency", "replace", "--shortest", "5", "--longest", "2"], "step bounds"),
        (["--reach", "1"], "the reach, alpha, is 1; the penalty mcp needs alpha > 1 (--reach)"),
        (["--penalty", "scad", "--reach", "2"], "alpha > 2"),
        (["--lambda", "-1"], "lambda"),
        (["--lambda", "nan"], "lambda"),
        (["--penalty", "ridge"], "choose"),
        (["--loss", "hinge"], "choose"),
        (["--loss", "sigmoid", "--epsilon", "1", "--adjacency", "replace"], "the loss must be convex"),
        (["--public-rows", "100"], "--epsilon"),
        (["--form", "paper"], "--epsilon"),
        (["--form", "paper", "--epsilon", "1", "--adjacency", "replace"], "--lambda"),
        (["--repetitions", "3"], "--rng simulation"),
        (["--data", "synthetic:many"], "synthetic:ROWS"),
        (["--data", "nowhere.csv"], "nowhere.csv"),
        (["--row-norm", "short"], "--row-norm"),
        (["--iterations", "0"], "--iterations"),
        (["--lamda", "1"], "did you mean --lambda"),
    ],
)
def test_bad_input_is_one_line_and_nothing_written(words, says, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["--data", "tiny", *words, "--out", str(out)]) == 2
    caught = capsys.readouterr()
    assert len(caught.err.strip().splitlines()) == 1
    assert says in caught.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("rows", "loss", "says"),
    [
        (["1,2,0", "2,1,1", "3,1,2"], "logistic", "3 distinct"),
        (["1,2,0", "2,nan,1", "3,1,0"], "logistic", "nan"),
        (["1,2,0", "2,1,inf"], "squared", "inf"),
    ],
)
def test_bad_rows_are_one_line(rows, loss, says, tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(["a,b,y", *rows]) + "\n")
    assert main(["--data", str(path), "--loss", loss, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert says in error.lower()
    assert not (tmp_path / "run").exists()


def test_a_private_run_states_the_width_of_a_libsvm_file(tmp_path, capsys):
    """Otherwise the length of theta is the largest index in the rows, which one record can change."""
    path, out = tmp_path / "rows.svm", tmp_path / "run"
    path.write_text("".join(f"{(-1) ** i} 1:1 {2 + i}:1\n" for i in range(6)))
    words = ["--data", str(path), "--epsilon", "1", "--adjacency", "replace", "--out", str(out)]
    assert main(words) == 2
    assert "give --features N" in capsys.readouterr().err
    assert not out.exists()
    assert main([*words, "--features", "9"]) == 0
    assert read_npz(out / "models.npz")["theta"].shape == (1, 9)


def test_a_refused_run_leaves_an_old_one_alone(tmp_path, capsys):
    out = tmp_path / "run"
    assert main([*PRIVATE, "--rng", "simulation", "--out", str(out)]) == 0
    before = digest(out)
    assert main([*SMALL, "--epsilon", "1", "--adjacency", "add-remove", "--force", "--out", str(out)]) == 2
    assert main([*PRIVATE, "--out", str(out)]) == 2  # not empty, and no --force
    assert digest(out) == before
    capsys.readouterr()


def test_labels_of_arrays_are_zero_and_one():
    from distadmm import istdp
    from distadmm.errors import InputError

    X = np.eye(4)
    with pytest.raises(InputError, match="labels 0 and 1"):
        istdp.solve(X, [0, 1, 2, 1])
    with pytest.raises(InputError, match="NaN"):
        istdp.solve([[np.nan, 1.0]], [1])
    with pytest.raises(InputError, match="one target a row"):
        istdp.solve(X, [0, 1])
    same = istdp.solve(X, [0, 1, 0, 1], lam=0.01).theta
    np.testing.assert_array_equal(same, istdp.solve(X, [-1, 1, -1, 1], lam=0.01).theta)


def test_starting_the_command_loads_no_heavy_module():
    heavy = ("scipy", "sklearn", "matplotlib", "networkx")
    script = f"import sys, distadmm.istdp; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


REPEATED = [*PRIVATE, "--rng", "simulation", "--repetitions", "3"]


@pytest.mark.mpi(min_size=2, sizes=[2, 4])
def test_the_same_bits_on_any_number_of_ranks(world, shared_path):
    out = shared_path / "together"
    assert main([*REPEATED, "--out", str(out)]) == 0
    if world.is_root:
        alone = shared_path / "alone"
        options = PROGRAMME.read([*REPEATED, "--out", str(alone)])
        assert shell.work(PROGRAMME, options, World()) == 0  # this process by itself
        left, right = digest(out), digest(alone)
        left.pop("config.json"), right.pop("config.json")
        assert left == right
        assert len(list((out / "ledger").iterdir())) == 3


def test_reproduction_parts_do_not_depend_on_who_does_them(tmp_path, capsys):
    from distadmm.papers.istdp import PARTS, items
    from distadmm.papers.istdp import main as reproduce

    pytest.importorskip("matplotlib", reason="figures are the extra [plot]")
    for figure in ("accounting", "attack"):
        out = tmp_path / figure
        assert reproduce(["--figure", figure, "--seeds", "1", "--out", str(out)]) == 0
        assert {path.name for path in out.iterdir()} == {f"{figure}.{end}" for end in ("csv", "svg", "md")}
        with open(out / f"{figure}.csv") as file:
            rows = list(csv.reader(file))[1:]
        again = [list(map(str, PARTS[figure](item).values())) for item in items(figure, 1)]
        assert rows == again
    assert "does not agree" in capsys.readouterr().out
