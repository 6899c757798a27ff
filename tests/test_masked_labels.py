"""Masked sums that protect labels alone: one noisy sum, and others that no label moves by a bit."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from distadmm import radmm
from distadmm.audit.masked import reach
from distadmm.commands import ledger as ledger_command
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.masked import private
from distadmm.methods.masked import rows as rows_module
from distadmm.methods.masked.learner import Ask, Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows, slope_of
from distadmm.methods.masked.rule import LABEL_ROUNDS, Rule, choose
from distadmm.methods.masked.sums import Sums
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.ledger import chain
from tests.test_masked import solved

FLAGS: dict[str, Any] = {"adjacency": "label", "epsilon": 2.0}


def rule(columns: int = 5) -> Rule:
    return choose(
        name="centred",
        loss="logistic",
        adjacency="label",
        nodes=4,
        colluding=1,
        rows=200,
        columns=columns,
        mu=1.0,
    )


def sums(of: Rule, rows: np.ndarray, labels: np.ndarray, learner: Learner) -> dict[str, np.ndarray]:
    """All that a node may be asked, in whole numbers."""
    each = Rows(rows * labels[:, None], np.ones(len(labels)), of, of.bits)
    ask = learner.ask()
    gradient = ask._replace(kind="gradient")
    asked = {
        "squares": ask._replace(kind="squares"), "curvature": ask._replace(kind="curvature"),
        "first": gradient._replace(first=True), "later": gradient._replace(first=False, t=1),
        "plain": gradient._replace(first=False, plain=True),
    }  # fmt: skip
    return {name: rows_sum(each, one, learner, None) for name, one in asked.items()}


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), hostile=st.sampled_from([1e-9, 1.0, 50.0, 1e12]))
def test_a_label_moves_one_sum_by_at_most_one_and_no_other_by_a_bit(seed: int, hostile: float) -> None:
    of, stream = rule(), np.random.default_rng(seed)
    rows = stream.normal(size=(7, 5)) * 10.0 ** stream.uniform(-3, 3, size=(7, 1))
    labels = stream.choice([-1.0, 1.0], 7)
    other = labels.copy()
    other[stream.integers(7)] *= -1
    learner = Learner(of)
    learner.scale = np.exp(stream.normal(size=5)) * hostile
    learner.rho = float(np.exp(stream.normal())) * hostile ** stream.integers(-1, 2)
    learner.w = stream.normal(size=(5, 1)) * hostile
    one, two = sums(of, rows, labels, learner), sums(of, rows, other, learner)
    for name in ("squares", "curvature", "later", "plain"):  # whatever is asked, also out of turn
        assert np.array_equal(one[name], two[name])
        assert of.moved("gradient" if name in ("later", "plain") else name, False, name == "plain") == 0
    assert math.dist(one["first"], two["first"]) * 4.0**-of.bits <= of.moved("gradient", True) == 1.0


def test_the_bound_is_reached() -> None:
    of, learner = rule(), Learner(rule())
    row, there = np.eye(5)[:1], np.array([1.0])
    a, b = (sums(of, row, sign * there, learner)["first"] * 4.0**-of.bits for sign in (1, -1))
    assert math.dist(a, b) > 0.99


def test_sums_that_remember_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    of, learner = rule(), Learner(rule())
    learner.w = np.ones((5, 1))
    later = Ask("gradient", 5, 1)
    assert private.forgets_labels(of)
    assert reach(of, later, learner) == 0.0
    assert reach(of, later._replace(first=True), learner) == pytest.approx(1.0, abs=0.01)
    monkeypatch.setattr(rows_module, "_odd", lambda z: slope_of(rule(), z, np.ones(len(z))))
    assert not private.forgets_labels(of)
    assert reach(of, later, learner) > 0.1


def test_a_sum_without_noise_has_a_price_for_labels_alone() -> None:
    event = SharedDiscreteGaussian(0, 3, 0.0, "curvature", 15, 1, 4, 4, 0)
    assert event.gdp_mu("label") == 0.0
    assert event.gdp_mu("replace") == event.gdp_mu("add-remove") == math.inf
    for half in ((0, 1.0), (2**20, 0.0)):
        with pytest.raises(InputError):
            SharedDiscreteGaussian(half[0], 3, half[1], "curvature", 15, 1, 4, 4, 0)


def test_a_run_spends_its_budget_on_one_sum_and_says_what_is_not_protected(
    tmp_path: Path, capsys: Any
) -> None:
    run = solved(**{**FLAGS, "rng": "secure"}, out=tmp_path / "run")
    assert (run.epsilon, run.statement, run.iterations) == (2.0, "certificate", LABEL_ROUNDS + 3)
    paid = [e for e in chain.read(run.path / "ledger" / "node-0000.jsonl").entries if e["kind"] == "charge"]
    assert [e["params"]["round"] for e in paid] == list(range(LABEL_ROUNDS + 3))
    assert [e["params"]["round"] for e in paid if e["mu2"] > 0] == [2]
    assert ledger_command.main(["show", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "is (2.000, 1e-05)-DP for changing the label of one record held by another node" in shown
    assert "Features, and who is in the data, are not protected at all." in shown


def test_a_kill_in_the_noisy_round_leaves_no_model_and_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with monkeypatch.context() as patch:
        agreed = Sums._agreed
        patch.setattr(Sums, "_agreed", lambda self, *a: 1 / (self.round < 3) and agreed(self, *a))
        with pytest.raises(ZeroDivisionError):
            solved(**{**FLAGS, "rng": "secure"}, out=tmp_path / "cut", checkpoint_every=1)
    shutil.copytree(tmp_path / "cut", tmp_path / "run")  # this process keeps the first one's ledgers open
    assert radmm.main(["--resume", str(tmp_path / "run"), "--progress", "none"]) == 0
    assert "1 of 3 rounds were lost and are paid for" in capsys.readouterr().out
    assert not read_npz(tmp_path / "run" / "models.npz")["models"].any()


def test_without_noise_the_rounds_end_at_the_minimum() -> None:
    """A quasi-Newton method on the same rows, with the same ridges, ends there as well."""
    stream, of = np.random.default_rng(3), rule()
    rows = stream.normal(size=(200, 5)) * [1.0, 0.3, 0.1, 3.0, 1.0]
    labels = np.where(rows @ [1.0, -2.0, 0.0, 0.5, 1.0] + stream.normal(size=200) > 0, 1.0, -1.0)
    each, learner = Rows(rows * labels[:, None], np.ones(200), of, of.bits), Learner(of)
    while not learner.done:
        learner.take(rows_sum(each, learner.ask(), learner, None) * 4.0**-of.bits, 4)
    phi = each._phi(learner.scale, learner.rho)
    found = minimize(
        lambda w: np.logaddexp(0, -phi @ w).sum() + (learner.L * w * w).sum() / 2,
        np.zeros(5),
        jac=lambda w: -phi.T @ (1 / (1 + np.exp(phi @ w))) + learner.L * w,
    )
    np.testing.assert_allclose(learner.mean[:, 0], found.x, atol=5e-3 * np.abs(found.x).max())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss": "huber"}, "labels enter by one sum with the logistic loss"),
        ({"rule": "first"}, "labels enter by one sum with the logistic loss"),
        ({"min_roster": 3}, "leave out --min-roster"),
    ],
)
def test_what_has_no_such_form_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        solved(**{**FLAGS, **change})
