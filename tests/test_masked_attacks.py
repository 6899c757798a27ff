"""Attacks on what masked sums claim: strangers' code, copies of ledgers, budgets at the edge, words without warning."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.commands import ledger as ledger_command
from distadmm.errors import DONE, USAGE, InputError
from distadmm.files import read_json
from distadmm.methods.masked import private, rows
from distadmm.privacy.accounting.events import Unbounded
from distadmm.privacy.accounting.statements import BESIDES
from distadmm.privacy.ledger import chain
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.setup import prepare

FLAGS = ["--data", "tiny", "--topology", "er5", "--epsilon", "8", "--adjacency", "replace", "--trust", "coalition:2",
         "--anyway", "--progress", "none"]  # fmt: skip
SEEDED = [*FLAGS, "--algorithm", "masked", "--rng", "simulation"]
STRANGER = """
from distadmm.algorithm import register
from distadmm.methods.masked.masked import Masked
from distadmm.methods.masked.rows import Rows
from distadmm.structs import struct

class Loud(Rows):
    def _whole(self, sums):
        return 1000 * super()._whole(sums)

@register("loud")
@struct
class Mine(Masked):
    "Masked, of records a thousand times as large."

    def _rows(self, node, rule):
        looks = [objective.records() for objective in node.problem.objectives]
        return [Loud(X, y, rule, rule.bits) for X, y in looks]
"""


def charged(run: Path, node: int = 0) -> list[Any]:
    entries = chain.read(run / "ledger" / f"node-{node:04d}.jsonl").entries
    return [entry for entry in entries if entry["kind"] == "charge"]


def test_what_a_stranger_makes_of_masked_sums_is_not_certified(tmp_path: Path, capsys: Any) -> None:
    file, run = tmp_path / "loud.py", tmp_path / "run"
    file.write_text(STRANGER)
    assert radmm.main([*FLAGS, "--algorithm", str(file), "--iterations", "3", "--out", str(run)]) == DONE
    assert "No guarantee, epsilon = infinity: unchecked code" in capsys.readouterr().out
    summary = read_json(run / "summary.json")
    assert math.isinf(float(summary["epsilon"]))
    assert "unchecked code" in summary["statement"]
    assert "8.0" not in {line.split(",")[10] for line in (run / "history.csv").read_text().splitlines()}
    ledger_command.main(["show", str(run)])
    shown = capsys.readouterr().out
    assert "No guarantee" in shown
    assert "by size of coalition" not in shown


def test_no_sentence_of_a_simulation_goes_without_its_warning(tmp_path: Path, capsys: Any) -> None:
    for more in (["--dry-run"], ["--iterations", "1", "--out", str(tmp_path / "run")]):
        assert radmm.main([*SEEDED, *more]) == DONE
        said = [line for line in capsys.readouterr().out.splitlines() if "Everything that any" in line]
        assert said
        assert all(line.startswith("SIMULATION: ") for line in said)


def test_a_budget_beyond_the_sampler_is_refused_before_anything_is_charged(
    tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"
    assert radmm.main([*SEEDED, "--epsilon", "1e-9", "--delta", "1e-12", "--out", str(run)]) == USAGE
    assert "2^27 grid units" in capsys.readouterr().err
    assert not run.exists()


def resumed(run: Path, iterations: int) -> None:
    options = radmm.PROGRAMME.read(
        ["--resume", str(run), "--iterations", str(iterations), "--progress", "none"]
    )
    shell.work(radmm.PROGRAMME, options, World())


def test_a_ledger_that_was_put_back_pays_for_what_the_others_paid_for(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert radmm.main([*SEEDED, "--iterations", "5", "--checkpoint-every", "5", "--out", str(run)]) == DONE
    own = run / "ledger" / "node-0000.jsonl"
    earlier, kept = own.read_bytes(), shutil.copytree(run / "checkpoint", tmp_path / "kept")
    resumed(run, 9)
    own.write_bytes(earlier)
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(kept, run / "checkpoint")  # the later one would know better
    resumed(run, 100)
    spent = [math.fsum(entry["mu2"] for entry in charged(run, node)) for node in range(5)]
    assert len(charged(run)) == len(charged(run, 1)) == 15
    assert spent[0] == pytest.approx(spent[1], rel=1e-12)


@pytest.mark.parametrize(("adjacency", "lost"), [("replace", 3), ("label", 1)])
def test_what_is_entered_is_the_budget_whatever_was_spent_of_it(adjacency: str, lost: int) -> None:
    """Lost rounds change what is asked, so that the rest of the schedule is less than what may yet be spent."""
    config = radmm.configure(
        "masked", data="tiny", topology="er5", epsilon=8.0, adjacency=adjacency, trust="coalition:2", anyway=True,
        rng="simulation",
    )  # fmt: skip
    plan = private.plan_of(prepare(config, World()))
    charged = [replace(plan.schedule.candidates[0], round=r) for r in range(lost)]
    most = plan.schedule.entered(charged)
    assert most == plan.schedule.entered([])
    assert 1 - 1e-9 <= math.fsum(event.gdp_mu(adjacency) ** 2 for event in most) / plan.mu**2 < 1
    exposed = Unbounded("something else")
    assert exposed in plan.schedule.entered([*charged, exposed])


def test_an_old_copy_of_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Its ledgers have forgotten what was released since; whoever keeps the account has not."""
    monkeypatch.setenv("DISTADMM_ACCOUNT", str(tmp_path / "account"))
    run, copy = tmp_path / "run", tmp_path / "copy"
    words = [*FLAGS, "--algorithm", "masked", "--iterations", "4", "--checkpoint-every", "4"]
    assert radmm.main([*words, "--out", str(run)]) == DONE
    shutil.copytree(run, copy)
    resumed(run, 7)
    with pytest.raises(InputError, match="is an old copy"):
        resumed(copy, 7)
    assert len(charged(copy)) == 4
    resumed(run, 9)
    assert [e["params"]["round"] for e in charged(run)] == list(range(12))  # three were in no checkpoint


def test_labels_are_looked_at_where_they_are_not_folded_in() -> None:
    """Rows bear their labels when sums are made, and would show none that is not -1 or +1."""
    rule = SimpleNamespace(
        colluding=2,
        nodes=5,
        columns=3,
        kinds=["squares"],
        share_variances=lambda *_: np.full(1, 2**20),
        least_share=2**30,
        of_labels=False,
        of_nodes=False,
    )

    def found(*labels: float) -> bool:
        objective = SimpleNamespace(labels=np.array(labels))
        facts = SimpleNamespace(norm=SimpleNamespace(value=1.0), doubt="", require_short_rows=lambda: None)
        prepared = SimpleNamespace(
            source=SimpleNamespace(facts=facts),
            config=SimpleNamespace(privacy=SimpleNamespace(adjacency="replace", public_rows=None)),
            node=SimpleNamespace(problem=SimpleNamespace(objectives=[objective])),
        )
        return private._checked(prepared, rule, 0, 4)["capped-slopes"]  # type: ignore[arg-type]

    assert found(1.0, -1.0)
    assert not found(1.0, 1 + 1e-9)
    assert not found(1.0, math.nan)


@pytest.mark.parametrize("method", [["masked"], ["gossip", "--noise-model", "pairwise"]])
def test_a_row_that_two_nodes_hold_is_refused_before_a_file_is_written(
    method: list[str], tmp_path: Path, capsys: Any
) -> None:
    """It moves each sum twice; the same sums, so that costs add up as mu and not as its square."""
    stream = np.random.default_rng(0)
    tables = [stream.normal(size=(60, 3)) * 0.3 for _ in range(2)]
    for node, X in enumerate((tables[0], tables[0][::-1], tables[1])):
        lines = ["a,b,c,y", *(f"{a:.5f},{b:.5f},{c:.5f},{int(a > 0)}" for a, b, c in X)]
        (tmp_path / f"n{node}.csv").write_text("\n".join(lines) + "\n")
    flags = [word for word in FLAGS if word != "--anyway" or method == ["masked"]]
    words = [*flags, "--algorithm", *method, "--data", str(tmp_path / "n{node}.csv"), "--labels", "0,1",
             "--topology", "ring:3", "--trust", "coalition:1"]  # fmt: skip
    assert radmm.main([*words, "--out", str(tmp_path / "run")]) == USAGE
    assert "nodes [0, 1] hold the same rows" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("ledger/*"))


def test_sentences_say_what_was_computed_besides_and_that_rows_were_dealt(
    tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"
    words = [
        *SEEDED,
        "--adjacency",
        "add-remove",
        "--public-rows",
        "91",
        "--observe",
        "all",
        "--iterations",
        "1",
    ]
    assert radmm.main([*words, "--out", str(run)]) == DONE
    printed = capsys.readouterr().out
    assert ledger_command.main(["show", str(run)]) == DONE
    for said in (printed, capsys.readouterr().out):
        assert "as dealt out: that depends on the number of rows" in said
        assert BESIDES in said


def test_rows_that_touch_where_work_is_split_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of the first rows may be row by row, and those of later ones not."""
    apart = rows._margins

    def split(phi: Any, w: np.ndarray) -> np.ndarray:
        return np.concatenate([apart(phi[:60], w), phi[60:] @ w])

    monkeypatch.setattr(rows, "_margins", split)
    assert not all(private.keeps_rows_apart(d) for d in (105, 120, 200))
