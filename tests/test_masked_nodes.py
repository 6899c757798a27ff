"""Masked sums that protect all rows of a node: what a whole node moves, whatever it holds, and a run that says so."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.audit.masked import reach
from distadmm.commands import account as account_command
from distadmm.commands import check, compare
from distadmm.commands import ledger as ledger_command
from distadmm.errors import InputError
from distadmm.methods.masked import machine
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, choose, diagonal
from tests.test_masked import solved

FLAGS: dict[str, Any] = {"adjacency": "node", "epsilon": 8.0, "public_rows": 12}
KINDS = ("squares", "curvature", "first", "later", "plain")


def rule(columns: int = 4, mu: float = 1.0, rows_each: int = 12) -> Rule:
    return choose(
        name="centred", loss="logistic", adjacency="node", nodes=20, colluding=5, rows=20 * rows_each,
        columns=columns, mu=mu,
    )  # fmt: skip


def parts(
    of: Rule, rows: np.ndarray, learner: Learner, kinds: tuple[str, ...] = KINDS
) -> dict[str, np.ndarray]:
    """All that a node may be asked, in units of its cuts."""
    node, ask = Rows(rows, np.ones(len(rows)), of, of.bits), learner.ask()
    made = {}
    for kind in kinds:
        kept = kind in ("squares", "curvature")
        asked = ask._replace(kind=kind if kept else "gradient", first=kind == "first", plain=kind == "plain")
        made[kind] = rows_sum(node, asked, learner) * 4.0**-of.bits
    return made


def apart(of: Rule, kind: str, one: np.ndarray, two: np.ndarray) -> float:
    weight = np.where(diagonal(of.columns), 1.0, 2.0) if kind == "curvature" else 1.0
    return math.sqrt((weight * (one - two) ** 2).sum())


def charged(of: Rule, kind: str) -> float:
    return of.moved("gradient" if kind in KINDS[2:] else kind, kind == "first", kind == "plain")


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    hostile=st.sampled_from([1e-9, 1.0, 50.0, 1e12]),
    mu=st.sampled_from([1e-3, 1.0]),
)
def test_no_node_moves_a_sum_by_more_than_is_charged(seed: int, hostile: float, mu: float) -> None:
    """Any two tables, from none to many rows of any length, opposite and orthogonal ones most of all."""
    of, stream = rule(mu=mu), np.random.default_rng(seed)
    learner = Learner(of)
    learner.scale = np.exp(stream.normal(size=4)) * hostile
    learner.rho = float(np.exp(stream.normal())) * hostile ** stream.integers(-1, 2)
    learner.w = stream.normal(size=(4, 1)) * hostile
    rows = stream.normal(size=(stream.integers(0, 200), 4)) * 10.0 ** stream.uniform(-3, 3)
    other = [
        -rows, np.tile(np.eye(4)[:1], (300, 1)), rows * [1, 0, 0, 0], stream.normal(size=(7, 4)) * [0, 1, 1, 1],
    ][stream.integers(4)]  # fmt: skip
    one, two = parts(of, rows, learner), parts(of, other, learner)
    for kind in KINDS:
        assert apart(of, kind, one[kind], two[kind]) <= charged(of, kind)


def test_a_search_for_violations_comes_to_the_bound_and_no_further() -> None:
    """Hill climbing on two tables at once, on a coarse grid, where cutting to it matters most."""
    of, stream, learner = rule(3, mu=1e-4), np.random.default_rng(5), Learner(rule(3, mu=1e-4))
    assert of.bits < 8
    for kind in KINDS:
        best, tables = 0.0, [stream.normal(size=(40, 3)), stream.normal(size=(40, 3))]
        for _ in range(300):
            column = 10.0 ** (stream.normal(size=(2, 3)) * (stream.integers(3, size=(2, 1)) == 0))
            shape = (40, 3) if stream.integers(2) else (1, 3)  # each row for itself, or all
            moved = [t + stream.normal(size=shape) * 10.0 ** stream.uniform(-3, 1) for t in tables]
            tried = [t * each for t, each in zip(moved, column)]
            far = apart(of, kind, *(parts(of, t, learner, (kind,))[kind] for t in tried))
            if far > best:
                best, tables = far, tried
        assert 0.9 * charged(of, kind) < best <= charged(of, kind)


def test_what_is_not_cut_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    of, learner = rule(), Learner(rule())
    assert machine.cuts_nodes(of)
    for ask in (learner.ask(), learner.ask()._replace(kind="curvature", words=10)):
        assert reach(of, ask, learner) <= math.sqrt(2)
    gradient = learner.ask()._replace(kind="gradient", words=4, first=True)
    assert reach(of, gradient, learner) == pytest.approx(2.0, abs=1e-3)
    monkeypatch.setattr(Rows, "cut_whole", lambda self, kind, sums: sums)
    assert not machine.cuts_nodes(of)
    assert reach(of, gradient, learner) > 10


def test_a_run_says_for_whom_it_holds(tmp_path: Path, capsys: Any) -> None:
    run = solved(**{**FLAGS, "rng": "secure"}, out=tmp_path / "run")
    assert (run.epsilon, run.statement, run.iterations) == (8.0, "certificate", 11)
    assert ledger_command.main(["show", str(tmp_path / "run")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "is (8.000, 1e-05)-DP for replacing all rows held by another node" in shown
    words = "--mechanism masked --nodes 5 --trust coalition:2 --epsilon 8 --adjacency node"
    assert account_command.main(words.split()) == 0
    table = dict(line.split() for line in capsys.readouterr().out.partition("\n\n")[0].splitlines()[1:])
    assert all(f"{size}: {share}" in shown for size, share in table.items())
    words = "--algorithm masked --epsilon 8 --adjacency node --trust coalition:2 --topology er5 --rows 12 --columns 5"
    assert check.main(words.split()) == 0
    assert "5 nodes of 5 columns under this budget" in capsys.readouterr().out


def test_a_comparison_asks_for_whole_nodes() -> None:
    words = "--topology=er5 --epsilon=8 --adjacency=node --trust=any --rows=12 --columns=5 --public-rows=12 --forecast"
    made = compare.read([*words.split(), "--algorithm=gossip", "--algorithm=masked"]).forecasts
    assert {point.name.rpartition("_")[0] for point in made.points} == {"gossip", "masked"}
    assert all(
        {"--adjacency=node", "12"} <= {*point.words, point.words[-2].rpartition("=")[2]}
        for point in made.points
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"public_rows": None}, "needs --public-rows B"),
        ({"loss": "huber"}, "choose --algorithm gossip"),
        ({"evaluate": 1.0}, "--evaluate has no form"),
        ({"l1": "auto"}, "--l1 has no form"),
        ({"anyway": False}, "use more nodes"),
    ],
)
def test_what_has_no_such_form_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        solved(**{**FLAGS, **change})
