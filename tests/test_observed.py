"""Under a budget nobody computes a loss of a private row, unless it is asked for; then the sentence says so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import ledger, report
from distadmm.data.source import open_source
from distadmm.errors import DONE, USAGE, InputError
from distadmm.methods.sharing import observe as of_parties
from distadmm.problems.consensus import Problem
from distadmm.problems.losses import LOSSES
from distadmm.run import history
from distadmm.run import observe as of_nodes

BESIDES = "Besides, without noise and with no bound"
NOISE = ["--epsilon", "2", "--adjacency", "replace", "--progress", "none"]
RADMM = ["--data", "tiny", "--topology", "er5", "--iterations", "4", "--eta", "20", "--weight", "20", *NOISE]
ISTDP = ["--data", "tiny", "--iterations", "3", *NOISE]
PARTIES = ["--data", "tiny", "--split", "15,15"]
SHARING = {
    "v1": [*PARTIES, "--epsilon", "2"],
    "v2": [*PARTIES, "--epsilon", "2", "--mechanism", "v2"],
    "s2": [*PARTIES, "--epsilon", "8", "--mechanism", "s2", "--rounds", "2"],
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of ones own."""
    X = np.random.default_rng(1).normal(size=(60, 4)).round(3)
    lines = [",".join(map(str, [*row, 1 if row[0] > 0 else 0])) for row in X.tolist()]
    (path := tmp_path / "rows.csv").write_text("p,q,r,s,target\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would compute a figure of private rows fails."""

    def refuse(*given: Any, **more: Any) -> None:
        raise AssertionError("a figure of private rows was computed")

    for name in ("values", "values_at", "data_losses"):
        monkeypatch.setattr(Problem, name, refuse)
    monkeypatch.setattr(radmm, "optimum", refuse)
    monkeypatch.setattr(istdp, "_objective", refuse)
    monkeypatch.setattr(of_parties.Observer, "reference", refuse)
    gathered = of_parties.pooled
    monkeypatch.setattr(
        of_parties,
        "pooled",
        lambda star, given: gathered(star, given) if len(given) == 0 or _small(given) else refuse(),
    )


def _small(matrices: Any) -> bool:
    """The test rows of `tiny`."""
    return all(matrix.shape[0] == 114 for matrix in matrices.values())


def shown(out: Path, capsys: Any) -> str:
    capsys.readouterr()
    assert ledger.main(["show", str(out)]) == DONE
    return capsys.readouterr().out


@pytest.mark.usefixtures("nothing_is_looked_at")
def test_consensus_observes_what_is_public_alone(tmp_path: Path, rows: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert radmm.main([*RADMM, "--out", str(out)]) == DONE
    said = capsys.readouterr().out
    assert "objective gap  - (of private rows" in said
    assert "not covered" not in said
    assert "%" in said  # the test rows of a bundled table are public
    summary = json.loads((out / "summary.json").read_text())
    assert summary["mean_model_gap"] is None
    assert summary["test_error"] > 0
    lines = [line.split(",") for line in (out / "history.csv").read_text().splitlines()]
    for name in ("objective", "average_loss", "mean_model_gap", "kkt_residual"):
        assert {line[lines[0].index(name)] for line in lines[1:]} == {""}
    for name in ("consensus_error", "test_error", "epsilon"):
        assert all(line[lines[0].index(name)] for line in lines[1:])
    assert BESIDES not in shown(out, capsys)
    cut = ["--data", str(rows), "--test-fraction", "0.2", "--out", str(tmp_path / "cut")]
    assert radmm.main([*RADMM, *cut]) == DONE
    assert "test error     - (of rows cut off the private file" in capsys.readouterr().out
    assert json.loads((tmp_path / "cut/summary.json").read_text())["test_error"] is None
    given = ["--data", str(rows), "--test-data", str(rows), "--out", str(tmp_path / "given")]
    assert radmm.main([*RADMM, *given]) == DONE
    assert json.loads((tmp_path / "given/summary.json").read_text())["test_error"] is not None


def test_consensus_says_what_was_observed_because_somebody_asked(
    tmp_path: Path, rows: Path, capsys: Any
) -> None:
    out = tmp_path / "run"
    cut = ["--data", str(rows), "--test-fraction", "0.2", "--out", str(out)]
    assert radmm.main([*RADMM, *cut, "--observe", "all:2", "--checkpoint-every", "2"]) == DONE
    said = capsys.readouterr().out
    assert (
        "not covered    exact figures of private rows: objectives, losses and gap, and the test error" in said
    )
    assert json.loads((out / "summary.json").read_text())["mean_model_gap"] is not None
    assert (
        f"{BESIDES}, for whoever sees the files of the run: objectives, losses and gap, and the test error."
        in shown(out, capsys)
    )
    page = tmp_path / "page.html"
    assert report.main([str(out), "--out", str(page)]) == DONE
    told = (
        "no epsilon covers the exact figures of private rows that --observe all computed, of 1 of the 1 runs"
    )
    assert told in capsys.readouterr().out
    assert told in page.read_text()
    assert radmm.main([*RADMM, "--checkpoint-every", "2", "--out", str(tmp_path / "quiet")]) == DONE
    assert report.main([str(tmp_path / "quiet"), "--out", str(page)]) == DONE
    assert "--observe all computed" not in page.read_text()
    asked = ["--resume", str(tmp_path / "quiet"), "--iterations", "6", "--observe", "all"]
    assert radmm.main(asked) == USAGE
    assert "did not begin with --observe all" in capsys.readouterr().err


def test_a_run_without_noise_is_observed_as_before() -> None:
    run = radmm.solve("radmm", data="tiny", topology="er5", iterations=4)
    assert np.isfinite(run.column("mean_model_gap")).all()
    assert math.isfinite(of_nodes.Measurement(*run.history[-1]).objective)


def test_test_rows_are_measured_at_the_models_that_nodes_hold(tmp_path: Path, capsys: Any) -> None:
    """Loss and error, mean over the nodes and the worst one; the mean of the models is told by that name alone."""
    out = tmp_path / "run"
    assert radmm.main([*RADMM, "--rng", "simulation", "--out", str(out)]) == DONE
    said = capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    models = np.load(out / "models.npz")
    X, y = open_source("tiny", clip=1.0).test()  # type: ignore[misc]
    losses = np.log1p(np.exp(-y[:, None] * (X @ models["models"].T))).mean(axis=0)
    errors = np.mean(np.sign(X @ models["models"].T) != y[:, None], axis=0)
    for name, each in (("loss", losses), ("error", errors)):
        of_mean = summary[f"mean_model_test_{name}"]
        assert summary[f"test_{name}"] == pytest.approx(each.mean())
        assert summary[f"worst_test_{name}"] == pytest.approx(each.max())
        assert f"worst_test_{name}" in (out / "history.csv").read_text()
        assert each.max() > each.mean() >= 0.9 * of_mean
    assert losses.mean() != pytest.approx(np.log1p(np.exp(-y * (X @ models["mean"]))).mean())
    assert f"test loss      {losses.mean():.4f} by the nodes' own models (worst {losses.max():.4f})" in said
    history = (out / "history.csv").read_text().splitlines()
    last = dict(zip(history[0].split(","), history[-1].split(",")))
    assert float(last["worst_test_loss"]) == pytest.approx(losses.max())


def test_a_history_of_the_last_release_goes_on_under_the_names_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("iteration,gap,test_error\n1,0.5,0.25\n2,0.25,0.125\n")
    history.write(
        tmp_path, ("iteration", "mean_model_gap", "worst_test_error", "test_error"), [(2, 0.2, 0.3, 0.1)], 1
    )
    assert (tmp_path / "history.csv").read_text().split() == [
        "iteration,mean_model_gap,worst_test_error,test_error", "1,0.5,,0.25", "2,0.2,0.3,0.1",
    ]  # fmt: skip
    assert history.earlier(tmp_path, "mean_model_gap", 1) == 0.5


@pytest.mark.usefixtures("nothing_is_looked_at")
@pytest.mark.parametrize("mechanism", SHARING)
def test_parties_observe_what_is_public_alone(mechanism: str, tmp_path: Path, capsys: Any) -> None:
    """V2's first party and those of S2 keep models without noise: not even public test rows meet these."""
    out = tmp_path / "run"
    assert sharing.main([*SHARING[mechanism], "--out", str(out)]) == DONE
    said = capsys.readouterr().out
    table = {line[:24].strip(): line[24:].split() for line in said.splitlines() if line[24:].strip()}
    if mechanism == "v1":
        assert table["party 1 alone"] == table["all features, one place"] == ["-", "-", "-"]
        assert table["this run, 2 parties"][0] == "-" not in table["this run, 2 parties"][1:]
    else:  # no table of dashes
        assert "party 1 alone" not in table
        assert "no figures: they would tell of private rows" in said
    assert BESIDES not in said
    assert BESIDES not in shown(out, capsys)


@pytest.mark.parametrize("mechanism", SHARING)
def test_parties_say_what_was_observed_because_somebody_asked(
    mechanism: str, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "run"
    assert sharing.main([*SHARING[mechanism], "--observe", "all:end", "--out", str(out)]) == DONE
    said = capsys.readouterr().out
    assert BESIDES in said
    assert "-" not in next(line for line in said.splitlines() if line.startswith("party 1 alone")).split()
    assert BESIDES in shown(out, capsys)


def test_thresholding_observes_what_is_public_alone_and_says_what_else(
    tmp_path: Path, rows: Path, capsys: Any, nothing_is_looked_at: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert istdp.main([*ISTDP, "--out", str(tmp_path / "quiet")]) == DONE
    said = capsys.readouterr().out
    assert "test accuracy" in said
    assert BESIDES not in said
    cut = ["--data", str(rows), "--test-fraction", "0.2"]
    assert istdp.main([*ISTDP, *cut, "--out", str(tmp_path / "cut")]) == DONE
    assert "test accuracy" not in capsys.readouterr().out
    monkeypatch.undo()
    assert istdp.main([*ISTDP, *cut, "--observe", "all", "--out", str(tmp_path / "all")]) == DONE
    said = capsys.readouterr().out
    assert "test accuracy" in said
    beside = f"{BESIDES}, for whoever sees the files of the run: the objective and the figures of the held-out rows."
    assert beside in said
    assert beside in shown(tmp_path / "all", capsys)
    assert "objective" in (tmp_path / "all/history.csv").read_text()


CLAUSE = "One record of a node's share of the file, as dealt out"


@pytest.mark.parametrize(
    ("adjacency", "shards", "said"),
    [("add-remove", 0, True), ("add-remove", 3, False), ("replace", 0, False)],
)
def test_add_remove_on_one_file_that_is_dealt_out_has_its_clause(
    adjacency: str, shards: int, said: bool, tmp_path: Path, rows: Path, capsys: Any
) -> None:
    for i in range(shards):
        (tmp_path / f"shard-{i}.csv").write_text(rows.read_text())
    data = str(tmp_path / "shard-{rank}.csv") if shards else str(rows)
    flags = ["--topology", "ring:3", "--adjacency", adjacency, "--public-rows", "60", "--data", data]
    out = tmp_path / "run"
    assert radmm.main([*RADMM, *flags, "--out", str(out)]) == DONE
    assert (CLAUSE in shown(out, capsys)) is said


TOLD = (
    "seconds",
    "hash",
    "h",
    "prev",
    "t",
    "boot",
    "run",
    "dataset",
    "data_id",
    "out",
    "data",
    "name",
    "source",
)


@pytest.mark.parametrize("programme", ["radmm", "istdp"])
def test_one_record_less_shows_in_nothing_but_the_noise(programme: str, tmp_path: Path, rows: Path) -> None:
    """Where records come and go, nothing that is fixed before the first release knows how many there are."""
    lines = rows.read_text().splitlines()
    main, flags = {"radmm": (radmm.main, RADMM), "istdp": (istdp.main, ISTDP)}[programme]
    flags = [*flags, "--adjacency", "add-remove", "--public-rows", "50"]
    found = []
    for number, some in enumerate((lines, lines[:-1])):
        (tmp_path / f"{number}").mkdir()
        (data := tmp_path / f"{number}" / "rows.csv").write_text("\n".join(some) + "\n")
        out = tmp_path / f"{number}" / "run"
        assert main([*flags, "--data", str(data), "--rng", "simulation", "--out", str(out)]) == DONE
        told = json.loads((out / "config.json").read_text())
        entries = [
            json.loads(line)
            for path in sorted((out / "ledger").glob("node-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        described = {
            key: value for key, value in told.items() if key not in ("run", "data_id", "versions", "config")
        }
        described["data"] = {k: v for k, v in told["data"].items() if k != "source"}
        found.append((described, [{k: v for k, v in entry.items() if k not in TOLD} for entry in entries]))
    assert found[0] == found[1]


def test_what_is_rounding_takes_no_axis_that_is_logarithmic() -> None:
    run = radmm.solve("admm", data="tiny", topology="complete:4", iterations=3)
    line = run.history[-1]
    run.history.append(line._replace(iteration=4, primal_residual=1e-17))
    axis = run.plot().axes[0]
    assert axis.get_ylim()[0] > 1e-13 * line.primal_residual


def test_what_was_not_measured_of_private_rows_is_said_with_what_was() -> None:
    words = {"data": "tiny", "topology": "ring:4", "epsilon": 4, "adjacency": "replace", "iterations": 2}
    run = radmm.solve("radmm", **words, rng="simulation")
    told = r"of objective \(of private rows observe='all' measures it\); measured: .*test_loss"
    with pytest.raises(InputError, match=told):
        run.plot("objective")


@pytest.mark.parametrize("at_once", [2, 4])
@pytest.mark.parametrize("classes", [1, 3])
def test_equal_models_are_looked_at_once_and_figures_are_those_of_each_alone(
    classes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(90, 4)), rng.choice([-1, 1] if classes == 1 else range(classes), 90)
    models = rng.normal(size=(5, 4 * classes))[[0, 1, 0, 2, 1]]
    alone = [of_nodes.own_figures(f[None], (X, y), LOSSES["logistic"]) for f in models]
    looked, scores = [], of_nodes._scores
    monkeypatch.setattr(of_nodes, "_scores", lambda few, X: looked.append(len(few)) or scores(few, X))
    monkeypatch.setattr(of_nodes, "_SCORES", at_once * len(y))
    found = of_nodes.own_figures(models, (X, y), LOSSES["logistic"])
    assert looked == ([3] if at_once == 4 else [2, 1])
    assert found.test_error == np.mean([each.test_error for each in alone])
    assert (
        found.worst_test_error
        == max(each.test_error for each in alone)
        == max(of_nodes.error_rate(f, X, y) for f in models)
    )
    assert found.test_loss == pytest.approx(np.mean([each.test_loss for each in alone]), rel=1e-13)
    assert found.worst_test_loss == pytest.approx(max(each.test_loss for each in alone), rel=1e-13)
