"""The private evaluation of a masked run: what a record moves, what it finds, what it costs."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.commands import ledger as ledger_command
from distadmm.commands import report as report_command
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.files import read_json
from distadmm.methods.masked.learner import Learner, asks
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, choose
from distadmm.methods.masked.sums import Sums
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.filter import GaussianFilter
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

LOSSES = {"logistic": 1, "squared": 1, "huber": 1, "softmax": 3}
RUN: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "trust": "coalition:2",
    "rng": "simulation", "anyway": True, "evaluate": 2.0,
}  # fmt: skip


def rule(loss: str = "logistic", **change: Any) -> Rule:
    known = {
        "adjacency": "replace",
        "nodes": 5,
        "colluding": 2,
        "rows": 4000,
        "columns": 4,
        "mu": 0.5,
        **change,
    }
    return replace(choose(name="centred", loss=loss, outputs=LOSSES[loss], **known), evaluation=0.3)


def target(loss: str, stream: np.random.Generator) -> float:
    return {"softmax": float(stream.integers(3)), "squared": stream.uniform(-1, 1)}.get(loss, 1.0)


def told(of: Rule, x: np.ndarray, y: float, f: np.ndarray) -> np.ndarray:
    return Rows(x[None], np.array([y]), of, of.bits).evaluation(f).astype(float) * 4.0**-of.bits


@settings(max_examples=150, deadline=None)
@given(
    loss=st.sampled_from(list(LOSSES)),
    seed=st.integers(0, 10**6),
    reach=st.sampled_from([1e-6, 1.0, 30.0, 1e9]),
)
def test_no_record_moves_it_by_more_than_is_charged(loss: str, seed: int, reach: float) -> None:
    """Whatever model totals made, opposite rows of any length most of all."""
    stream = np.random.default_rng(seed)
    f = stream.normal(size=(4, LOSSES[loss])) * reach
    x = stream.normal(size=4) * 10.0 ** stream.uniform(-3, 3)
    other = [-x, stream.normal(size=4), np.zeros(4)][stream.integers(3)]
    for adjacency in ("replace", "add-remove"):
        of = rule(loss, adjacency=adjacency)
        one, two = told(of, x, target(loss, stream), f), told(of, other, target(loss, stream), f)
        moved = one if adjacency == "add-remove" else one - two
        assert np.linalg.norm(moved) <= of.moved("evaluation")


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bound_is_reached_and_needs_the_cut(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, e = rule(loss), np.eye(4)[0]
    f = np.zeros((4, LOSSES[loss]))
    f[0] = [90.0, -90.0, 0.0] if loss == "softmax" else -90.0
    right = {"softmax": (e, 0.0), "squared": (0 * e, 0.0)}.get(loss, (-e, 1.0))
    wrong = {"softmax": (e, 1.0), "squared": (e, 1.0)}.get(loss, (e, 1.0))

    def reached() -> float:
        return float(np.linalg.norm(told(of, *wrong, f) - told(of, *right, f)))

    assert reached() == pytest.approx(of.moved("evaluation"))
    monkeypatch.setattr(Rule, "most_loss", property(lambda self: 4.0))
    monkeypatch.setattr(np, "clip", lambda values, low, high: values)  # planted: losses are not cut
    assert reached() > 2 * of.moved("evaluation")


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_training_and_evaluation_meet_their_budget_together_and_nothing_more_is_admitted(
    adjacency: Any,
) -> None:
    flags = {**RUN, "adjacency": adjacency, **({"public_rows": 91} if adjacency == "add-remove" else {})}
    prepared = prepare(radmm.configure("masked", **flags), World())
    plan = radmm.PROGRAMME.price(prepared)
    assert plan is not None
    epsilon, mu = plan.epsilon, math.hypot(gaussian.mu_at(8.0, 1e-5), gaussian.mu_at(2.0, 1e-5))
    assert gaussian.epsilon(mu, 1e-5) == epsilon < 10.0
    header: dict[str, Any] = {"adjacency": adjacency, "mode": "simulation", "trust": "coalition:2"}
    ledger = MemoryLedger(0, **header, budget=GaussianFilter(epsilon, 1e-5, mu, exact=True))
    assert [event.kind for event in plan.schedule.candidates][-1] == "evaluation"
    for event in plan.schedule.candidates:
        ledger.charge(event, iteration=1 + event.round)
    assert not any(ledger.affords([event]) for event in plan.schedule.candidates)
    alone = replace(plan, rule=replace(plan.rule, evaluation=0.0))
    assert alone.committed() != plan.committed()  # who is to be evaluated never unmasks who is not


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    return radmm.solve("masked", out=folder, checkpoint_every=1, **RUN), folder


def test_it_finds_what_the_rows_say_and_changes_no_bit_of_the_model(run: Any, capsys: Any) -> None:
    made, folder = run
    found, rows = made.summary["evaluation"], open_source("tiny")
    parts = [rows.node(i, 5) for i in range(5)]
    X, y = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    z = y * (X @ made.model)
    true_error, true_loss = np.mean(z <= 0), np.minimum(np.logaddexp(0, -z), 4).mean()
    assert found["rows"] == len(y) == 455
    assert 0 < abs(found["error"] - true_error) < 5 * found["error_spread"]
    assert 0 < abs(found["loss"] - true_loss) < 5 * found["loss_spread"]
    without = radmm.solve("masked", **{**RUN, "evaluate": None})
    np.testing.assert_array_equal(made.models, without.models)
    assert ledger_command.main(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "(8.432, 1e-05)-DP" in shown
    assert "(the last one evaluates the model)" in shown


def test_its_report_counts_rounds_and_shows_the_evaluation(run: Any, tmp_path: Path, capsys: Any) -> None:
    made, folder = run
    assert report_command.main([str(folder), "--out", str(tmp_path / "page.html")]) == 0
    head, row = capsys.readouterr().out.splitlines()[1:3]
    assert "rounds" in head
    assert "own rows %" in head
    assert "iterations" not in head
    assert f"{100 * made.summary['evaluation']['error']:.2f}" in row


@pytest.mark.parametrize(
    ("columns", "hope", "doubted"), [(105, 39, 1), (105, 41, 0), (600, 59, 1), (600, 61, 0)]
)
def test_heavy_ball_is_doubted_sooner(columns: int, hope: float, doubted: bool) -> None:
    of = rule(columns=columns, rows=20_000, mu=hope * np.sqrt(columns) / 20_000, colluding=0)
    assert of.hope == pytest.approx(hope)
    assert bool(of.check()) == doubted


def test_small_tables_are_doubted_before_anything_is_spent_and_smaller_ones_refused(capsys: Any) -> None:
    """Z = n mu/(sqrt(d) nf): refused below 10, doubted below 40, and neither beyond."""
    for epsilon, hope in ((1.0, "doubted"), (0.2, "refused"), (8.0, "good")):
        flags = {**RUN, "evaluate": None, "epsilon": epsilon, "anyway": False, "trust": "coalition:0"}
        prepared = prepare(radmm.configure("masked", **flags), World())
        if hope == "refused":
            with pytest.raises(InputError, match="needed: 10"):
                radmm.PROGRAMME.price(prepared)
            continue
        told = radmm.PROGRAMME.outlook(prepared, radmm.PROGRAMME.price(prepared))
        assert ("doubt      may be no better" in told) == (hope == "doubted")
        radmm.solve("masked", **flags, observe="none")
        assert ("warning: may be no better than the base rate" in capsys.readouterr().err) == (
            hope == "doubted"
        )


def test_a_finished_run_taken_up_again_has_it_still(run: Any) -> None:
    made, folder = run
    assert radmm.main(["--resume", str(folder), "--progress", "none"]) == 0
    assert read_json(folder / "summary.json")["evaluation"] == made.summary["evaluation"]


def test_rounds_that_are_lost_leave_its_budget_alone() -> None:
    """Squares lost again and again take gradients from the end, never the evaluation."""
    of = rule(mu=2.0)
    learner, kinds = Learner(of), []
    for _ in range(of.most_rounds - 1):
        kinds.append(learner.ask().kind)
        learner.take(None, 0)
    assert learner.trained
    assert not learner.done
    assert learner.ask().kind == "evaluation"
    learner.take(np.array([400.0, 100.0]), 4)
    assert learner.done
    assert learner.told["rows"] == 3200
    assert learner.told["error"] == 400 / 3200
    assert [ask.kind for ask in asks(of)].count("evaluation") == 1


def test_an_evaluation_that_was_cut_short_is_paid_for_and_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training ended early, its evaluation was charged, and the process ended before any total: rounds are left."""
    folder = tmp_path / "run"  # copied, for this process keeps the first one's ledgers open
    with monkeypatch.context() as patch:
        patch.setattr(Sums, "affords", lambda self, *asks: self.round < 8 or asks[0].kind == "evaluation")
        agreed = Sums._agreed
        patch.setattr(Sums, "_agreed", lambda self, *a: 1 / (self.round < 9) and agreed(self, *a))
        with pytest.raises(ZeroDivisionError):
            radmm.solve("masked", **{**RUN, "rng": "secure"}, out=tmp_path / "cut", checkpoint_every=1)
    shutil.copytree(tmp_path / "cut", folder)
    assert radmm.main(["--resume", str(folder), "--progress", "none"]) == 0
    for path in sorted((folder / "ledger").glob("node-*.jsonl")):
        paid = [entry for entry in chain.read(path).entries if entry["kind"] == "charge"]
        kinds = [entry["params"]["kind"] for entry in paid]
        assert kinds.count("evaluation") == 1
        assert len(kinds) > 9  # what was left of training went on
    assert not read_json(folder / "summary.json")["evaluation"]


def test_nodes_that_drop_out_are_survived_by_it() -> None:
    """Over seeds: where rounds were lost and a model was made, it is evaluated, of the rows that were left."""
    seen = []
    for seed in range(6):
        made = radmm.solve(
            "masked", **{**RUN, "drop_out": "0.02:0", "min_roster": 2, "trust": "any", "seed": seed}
        )
        seen.append((made.summary["evaluation"] or {"rows": 0})["rows"])
    assert 455 in seen
    assert any(0 < rows < 455 for rows in seen)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"epsilon": None, "adjacency": None}, "add --epsilon"), ({"iterations": 12}, "--iterations 12 ends before"),
     ({"evaluate": 0.0}, "above zero")],
)  # fmt: skip
def test_bad_input_is_told_in_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        radmm.solve("masked", **{**RUN, **change})
