"""Rows of many columns stay sparse: the same models as from the dense table, or one line where that cannot be."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distadmm
from distadmm import radmm
from distadmm.__main__ import main
from distadmm.data import files, table, whole
from distadmm.data.table import Sparse
from distadmm.problems.consensus import GeneralisedLinear, Problem, objective
from distadmm.problems.losses import LOSSES
from distadmm.problems.newton import NewtonCG
from distadmm.problems.sparse import SparseLinear
from distadmm.run import scoring

ROWS, COLUMNS = 60, 40


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(7)
    truth, lines = rng.normal(size=COLUMNS), []
    for _ in range(ROWS):
        columns = np.sort(rng.choice(COLUMNS, size=5, replace=False))
        values = rng.normal(size=5)
        label = 1 if values @ truth[columns] > 0 else -1
        lines.append(
            " ".join([f"{label:+d}", *(f"{c + 1}:{v!r}" for c, v in zip(columns.tolist(), values.tolist()))])
        )
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "t.svm")


@pytest.fixture
def sparse(monkeypatch):
    def narrow(columns=3):
        monkeypatch.setattr(files, "WIDE", columns)
        monkeypatch.setattr(whole, "WIDE", columns)
        monkeypatch.setattr(scoring, "WIDE", columns)

    return narrow


QUICK = {"topology": "ring:4", "features": COLUMNS, "iterations": 12, "tolerance": 1e-11}


@pytest.mark.parametrize("algorithm", ["admm", "madmm", "radmm", "mradmm", "tracking"])
@pytest.mark.parametrize("more", [{}, {"loss": "huber"}, {"loss": "squared", "clip": False}], ids=str)
def test_sparse_and_dense_rows_give_the_same_models(rows, sparse, algorithm, more):
    how = {**QUICK, **more, "data": rows, "test_fraction": 0.2, "intercept": True}
    if algorithm != "tracking":
        how["eta"] = "0.3"
    known = distadmm.solve(algorithm, **how)
    sparse()
    found = distadmm.solve(algorithm, **how)
    np.testing.assert_allclose(found.models, known.models, rtol=1e-9, atol=1e-9)
    assert found.optimum == pytest.approx(known.optimum, rel=1e-9)
    for name in ("objective", "average_loss", "test_error", "test_loss"):
        np.testing.assert_allclose(found.column(name), known.column(name), rtol=1e-9, atol=1e-9)
    if algorithm != "tracking":
        assert np.nanmax(found.column("kkt_residual")) <= 1e-11


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_a_private_run_is_the_same_on_sparse_rows(rows, sparse, mechanism):
    how = {
        **QUICK,
        "data": rows,
        "epsilon": 3.0,
        "adjacency": "replace",
        "rng": "simulation",
        "mechanism": mechanism,
        "tolerance": 1e-10,
    }
    known = distadmm.solve("radmm", **how)
    sparse()
    found = distadmm.solve("radmm", **how)
    np.testing.assert_allclose(found.models, known.models, rtol=1e-9, atol=1e-9)
    assert found.epsilon == known.epsilon
    assert found.statement == known.statement


def test_what_is_built_is_sparse_and_memory_is_no_multiple_of_the_columns(rows, sparse):
    sparse()
    config = radmm.configure("admm", data=rows, **QUICK)
    from distadmm.ranks.world import World
    from distadmm.run.setup import prepare

    problem = prepare(config, World()).node.problem
    assert problem.matrix_free
    assert all(isinstance(each, SparseLinear) for each in problem.objectives)
    assert all(isinstance(solver, NewtonCG) for solver in problem.solvers.values())


def test_a_resumed_run_has_the_same_bits(rows, sparse, tmp_path):
    sparse()
    words = [
        "radmm",
        "--algorithm",
        "radmm",
        "--data",
        rows,
        "--features",
        str(COLUMNS),
        "--topology",
        "ring:4",
    ]
    quiet = ["--progress", "none", "--checkpoint-every", "2"]
    for out, iterations in (("whole", "12"), ("part", "6")):
        assert main([*words, *quiet, "--iterations", iterations, "--out", str(tmp_path / out)]) == 0
    assert main(["radmm", "--resume", str(tmp_path / "part"), "--iterations", "12"]) == 0
    one, other = (np.load(tmp_path / out / "models.npz")["models"] for out in ("whole", "part"))
    assert one.tobytes() == other.tobytes()


@given(st.integers(0, 2**32 - 1), st.sampled_from(["logistic", "huber", "smooth-hinge", "squared"]))
@settings(deadline=None, max_examples=25)
def test_values_gradients_products_and_solves_agree(seed, name):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 30), rng.integers(1, 12)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)
    y, loss = np.where(rng.random(n) < 0.5, 1.0, -1.0), LOSSES[name]
    shared = {"weight": 1.7, "ridge": 0.02, "divisor": int(n) + 3}
    thin = objective(Sparse.from_dense(X).to_scipy(), y, loss, 2, **shared)
    thick = GeneralisedLinear(X, y, loss, **shared)
    f, v = rng.normal(size=d), rng.normal(size=d)
    assert thin.value(f) == pytest.approx(thick.value(f), rel=1e-12)
    np.testing.assert_allclose(thin.grad(f), thick.grad(f), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(thin.grad(f, 0.1), thick.grad(f, 0.1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(thin.hessp(f, v), thick.hess(f) @ v, rtol=1e-9, atol=1e-12)
    found = []
    for each in (thin, thick):
        problem, start = Problem([each], 1e-10), np.zeros((1, d))
        for linear in (v, f):  # the second begins where the first ended
            start = problem.argmin(linear[None], np.array([[0.5]]), start)
            assert problem.residual[0] <= 1e-10
        found.append(start)
    np.testing.assert_allclose(*found, atol=1e-9)


REFUSED = {
    "newton": (["--algorithm", "newton"], "--algorithm newton does not take sparse rows"),
    "masked": (["--algorithm", "masked"], "--algorithm masked does not take sparse rows"),
    "softmax": (["--loss", "softmax"], "--loss softmax does not take sparse rows"),
    "tune": (["--algorithm", "admm", "--tune"], "--tune makes its penalties of Hessians"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_take_sparse_rows_says_so_in_one_line(rows, sparse, monkeypatch, tmp_path, capsys, case):
    sparse()
    monkeypatch.setattr("distadmm.run.setup.MOST_COLUMNS", 30)
    words, said = REFUSED[case]
    out = tmp_path / "r"
    assert main(["radmm", "--data", rows, "--features", str(COLUMNS), "--out", str(out), *words]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert "\n" not in told
    assert not out.exists()


def test_few_enough_columns_are_written_out_where_an_algorithm_needs_it(rows, sparse):
    how = {**QUICK, "data": rows}
    known = distadmm.solve("newton", **how).models
    sparse()
    assert np.array_equal(distadmm.solve("newton", **how).models, known)


def test_other_programmes_and_verbs_say_so_in_one_line(rows, sparse, monkeypatch, tmp_path, capsys):
    sparse()
    run = str(tmp_path / "r")
    private = ["--epsilon", "3", "--adjacency", "replace", "--rng", "simulation"]
    words = [
        "--data",
        rows,
        "--features",
        str(COLUMNS),
        "--topology",
        "ring:4",
        "--iterations",
        "4",
        "--out",
        run,
    ]
    assert main(["radmm", *words, *private, "--progress", "none"]) == 0
    capsys.readouterr()
    assert main(["audit", run]) == 2
    told = capsys.readouterr().err.strip()
    assert "stay sparse" in told
    assert "\n" not in told
    monkeypatch.setattr(table, "MOST_DENSE", 100)
    assert main(["istdp", "--data", rows, "--features", str(COLUMNS)]) == 2
    assert "60 sparse rows of 40 columns are 1.92e-05 GB when written out" in capsys.readouterr().err
    for verb in (["report", run, "--out", str(tmp_path / "r.html")], ["status", run]):
        assert main(verb) == 0


def test_scores_and_exports_are_those_of_the_dense_run(rows, sparse, tmp_path):
    words = [
        "radmm",
        "--algorithm",
        "admm",
        "--eta",
        ".3",
        "--data",
        rows,
        "--features",
        str(COLUMNS),
        "--topology",
    ]
    words += ["ring:4", "--iterations", "8", "--intercept", "--progress", "none"]
    scores, told = [], []
    for name in ("dense", "sparse"):
        if name == "sparse":
            sparse()
        assert main([*words, "--out", str(tmp_path / name)]) == 0
        assert (
            main(["predict", str(tmp_path / name), "--data", rows, "--out", str(tmp_path / f"{name}.csv")])
            == 0
        )
        out = tmp_path / f"{name}.json"
        assert main(["export", str(tmp_path / name), "--format", "json", "--out", str(out)]) == 0
        scores.append(np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1))
        told.append(np.array(json.loads(out.read_text())["coefficients"]))
    np.testing.assert_allclose(*scores, atol=1e-8)
    np.testing.assert_allclose(*told, atol=1e-9)
    assert len(scores[0]) == ROWS
