"""A run of istdp in the shell: stopped, killed, taken up again, kept within a budget; read by every verb."""

from __future__ import annotations

import csv
import gc
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm.commands import audit, ledger, report, transcript
from distadmm.files import read_json, read_npz
from distadmm.istdp import main
from distadmm.methods.istdp.release import Paid
from distadmm.privacy.ledger.file import Ledger
from distadmm.run import kinds

OLD = Path(__file__).parent / "fixtures" / "runs"
PRIVATE = ["--data", "tiny", "--epsilon", "2", "--adjacency", "replace", "--iterations", "10"]
PRIVATE += ["--lambda", "0.001", "--progress", "none"]
SEEDED = [*PRIVATE, "--rng", "simulation", "--seed", "3"]
KEPT = ["--checkpoint-every", "3"]


def theta_of(folder: Path) -> np.ndarray:
    return read_npz(folder / "models.npz")["theta"]


def history_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def shown(folder: Path, capsys) -> dict[str, Any]:
    capsys.readouterr()
    assert ledger.main(["show", str(folder), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    return run


def at(k: int, happens: Any, monkeypatch) -> None:
    """`happens` when the k-th noisy gradient (from 0) has been paid for, drawn and kept."""
    whole = Paid.__call__

    def call(self: Paid, number: int, theta: np.ndarray) -> np.ndarray:
        noisy = whole(self, number, theta)
        if number == k:
            happens()
        return noisy

    monkeypatch.setattr(Paid, "__call__", call)


def test_a_signal_ends_the_run_and_it_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch, capsys) -> None:
    assert main([*SEEDED, "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at(5, lambda: signal.raise_signal(signal.SIGTERM), patch)
        assert main([*SEEDED, *KEPT, "--out", str(out)]) == 128 + signal.SIGTERM
    told = read_json(out / "summary.json")
    assert (told["ended"], told["iterations"], told["statement"]) == ("signal 15", 7, "simulation")
    assert main(["--resume", str(out)]) == 0
    np.testing.assert_array_equal(theta_of(out), theta_of(tmp_path / "whole"))
    assert history_of(out) == history_of(tmp_path / "whole")
    assert shown(out, capsys)["nodes"][0]["releases"] == 10


class Killed(Exception):
    pass


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("rng", ["secure", "simulation"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_killed_run_gives_what_it_gave_or_pays_again(
    rng: str, kept: bool, tmp_path: Path, monkeypatch, capsys
) -> None:
    out, drawn = tmp_path / "run", []
    store = Paid.__call__

    def noted(self: Paid, k: int, theta: np.ndarray) -> np.ndarray:
        noisy = store(self, k, theta)
        drawn.append((k, noisy.copy()))
        return noisy

    monkeypatch.setattr(Paid, "__call__", noted)
    with monkeypatch.context() as patch:
        at(7, kill, patch)
        assert main([*PRIVATE, "--rng", rng, *KEPT, "--out", str(out)]) == 1
    gc.collect()  # the lock on its ledger goes with the process
    if not kept:
        (out / "ledger" / "node-0000.replay").unlink()
    short = rng == "secure" and not kept  # what was drawn twice is paid for twice, out of what there is
    assert main(["--resume", str(out)]) == (3 if short else 0)
    assert [k for k, _ in drawn] == [*range(8), *range(6, 8 if short else 10)]  # a checkpoint after 6 of them
    again = all(np.array_equal(drawn[k][1], drawn[8 + k - 6][1]) for k in (6, 7))
    assert again == (kept or rng == "simulation")
    told, run = read_json(out / "summary.json"), shown(out, capsys)
    assert run["nodes"][0]["releases"] == 10
    if rng == "secure":
        assert told["ended"] == ("privacy budget" if short else "iterations")
        assert told["statement"] == "certificate"
        assert told["epsilon"] <= 2.0
        assert told["epsilon"] == pytest.approx(run["together"]["epsilon"], rel=1e-4)
        assert run["sentence"] in told["notes"]
    else:
        assert main([*SEEDED, "--seed", "0", "--out", str(tmp_path / "whole")]) == 0
        np.testing.assert_array_equal(theta_of(out), theta_of(tmp_path / "whole"))


def test_the_printed_form_goes_on_as_well(tmp_path: Path) -> None:
    words = [*SEEDED, "--form", "paper"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "run"
    assert main([*words, *KEPT, "--time-limit", "1e-9", "--out", str(out)]) == 0
    assert read_json(out / "summary.json")["ended"] == "time limit"
    assert main(["--resume", str(out), "--time-limit", "60"]) == 0
    np.testing.assert_array_equal(theta_of(out), theta_of(tmp_path / "whole"))
    before, after = (read_json(folder / "summary.json") for folder in (tmp_path / "whole", out))
    assert before["notes"] == after["notes"]  # the iterations that accepted no step among them
    assert after["statement"] == kinds.REFUTED


def test_a_ledger_that_was_cut_is_not_gone_on_with(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main([*PRIVATE, *KEPT, "--time-limit", "1e-9", "--out", str(out)]) == 0
    path = out / "ledger" / "node-0000.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    capsys.readouterr()
    assert main(["--resume", str(out)]) == 2
    said = capsys.readouterr().err  # before anything is written, by what the checkpoint knows of the ledger
    assert "the ledger of member 0 in" in said
    assert "is shorter than it was at the checkpoint" in said


@pytest.mark.parametrize("words", [["--data", "tiny"], SEEDED, [*SEEDED, "--repetitions", "3"]])
def test_a_time_limit_leaves_what_was_done(words: list[str], tmp_path: Path) -> None:
    assert main([*words, "--time-limit", "1e-9", "--out", str(tmp_path / "run")]) == 0
    told = read_json(tmp_path / "run" / "summary.json")
    assert told["ended"] == "time limit"
    assert told["iterations"] in (1, 2)
    assert len(theta_of(tmp_path / "run")) == told["repetitions"]


def test_an_open_run_hears_signals(tmp_path: Path, monkeypatch) -> None:
    from distadmm.methods.istdp import solver

    refine = solver.refine

    def refined(*words: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return refine(*words, **options)

    monkeypatch.setattr(solver, "refine", refined)
    out = tmp_path / "run"
    assert main(["--data", "tiny", "--out", str(out)]) == 128 + signal.SIGTERM
    assert read_json(out / "summary.json")["ended"] == "signal 15"


def test_a_budget_refuses_the_schedule_or_ends_what_goes_beyond_it(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    out = tmp_path / "run"
    assert main([*PRIVATE, "--budget-epsilon", "1.9", "--out", str(out)]) == 3
    assert "would overspend the budget" in capsys.readouterr().err
    assert not out.exists()
    words = [*PRIVATE, "--budget-epsilon", "2.2", *KEPT, "--out", str(out)]
    with monkeypatch.context() as patch:
        at(7, kill, patch)
        assert main(words) == 1
    gc.collect()
    (out / "ledger" / "node-0000.replay").unlink()
    assert main(["--resume", str(out)]) == 3  # two more than were reserved
    told = read_json(out / "summary.json")
    assert (told["ended"], told["iterations"]) == ("privacy budget", 8)
    assert shown(out, capsys)["nodes"][0]["releases"] == 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--checkpoint-every", "5"], "are for one run of istdp with noise"),
        ([*SEEDED, "--repetitions", "2", *KEPT], "are for one run of istdp with noise"),
        (["--observe", "--data", "tiny"], "it is --observe all"),
        (["--budget-epsilon", "1"], "every release costs infinity"),
        ([*SEEDED, "--form", "paper", "--budget-epsilon", "1"], "every release costs infinity"),
        (["--observe", "often"], "--observe is 'often'"),
    ],
)
def test_what_cannot_be_run_is_one_line(words: list[str], said: str, tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "run"), *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_continuation_has_as_many_iterations_as_were_paid_for(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main([*PRIVATE, *KEPT, "--time-limit", "1e-9", "--out", str(out)]) == 0
    assert main(["--resume", str(out), "--iterations", "20"]) == 2
    assert "--iterations 10, not 20" in capsys.readouterr().err


def test_a_dry_run_prices_before_a_file_is_written(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PRIVATE, "--dry-run"]) == 0
    said = capsys.readouterr().out
    for words in ("T = 10", "sigma", "lambda 0.001", "at delta 1e-05 (replace)", "none leave"):
        assert words in said
    assert "SIMULATION" not in said
    assert main([*SEEDED, "--dry-run"]) == 0
    assert "SIMULATION" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_an_old_run_with_its_objective_is_made_again(tmp_path: Path) -> None:
    before = json.loads((OLD / "istdp-simulation" / "config.json").read_text())
    assert before["config"]["observe"] is True
    words = ["--config", str(OLD / "istdp-simulation" / "config.json"), "--out", str(tmp_path / "run")]
    assert main(words) == 0
    old, new = history_of(OLD / "istdp-simulation"), history_of(tmp_path / "run")
    assert [float(line["objective"]) for line in old] == pytest.approx(
        [float(line["objective"]) for line in new]
    )


def test_every_verb_reads_the_run(tmp_path: Path, capsys) -> None:
    runs = {"secure": PRIVATE, "seeded": SEEDED, "open": ["--data", "tiny"]}
    for name, words in runs.items():
        assert main([*words, "--out", str(tmp_path / name)]) == 0
        found = kinds.opened(tmp_path / name, "report")
        assert found.kind == "istdp"
        assert found.summary is not None
        known = {"schema", "kind", "ended", "iterations", "seconds", "epsilon", "delta", "adjacency"}
        assert set(found.summary) >= known
    capsys.readouterr()
    assert report.main([*(str(tmp_path / name) for name in runs), "--out", "none"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("certificate", "simulation", kinds.UNBOUNDED, "converged"))
    assert shown(tmp_path / "secure", capsys)["sentence"].startswith("The released iterates are (")
    few = ["--runs", "60", "--confidence", "0.999", "--force", "--out", str(tmp_path / "audit")]
    assert audit.main([str(tmp_path / "seeded"), *few]) == 0
    assert capsys.readouterr().out.count("NOT REFUTED") == 3
    assert transcript.main([str(tmp_path / "secure")]) == 2
    assert f"{tmp_path / 'secure'} is a run of istdp" in capsys.readouterr().err
    assert Ledger.resume(tmp_path / "secure" / "ledger", mode="secure").statement_kind == "certificate"
