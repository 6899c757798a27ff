"""Newton's method on sums over a tree: against other solvers, on any graph and deal, and what it asks and says."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from distadmm import radmm
from distadmm.algorithm import Facts, Node
from distadmm.commands import transcript
from distadmm.errors import InputError
from distadmm.graphs import topology
from distadmm.methods.consensus import newton
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.file import path_of
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import LOSSES
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.tree import Tree
from distadmm.ranks.world import World
from distadmm.testing import contracts
from distadmm.testing.faults.meet import spoilt

SMALL: dict[str, Any] = {"data": "tiny", "topology": "er5", "weight": 20.0, "rho": 1.0, "iterations": 60}


def node_of(objectives: list[Any], graph: str = "") -> Node:
    drawn = topology.load(graph or f"ring:{len(objectives)}")
    facts = Facts(drawn.n, np.diff(drawn.indptr), float("nan"))
    problem, network = Problem(objectives), Network(Roster.alone(drawn.indptr, drawn.indices))
    start = np.zeros((drawn.n, problem.dimension))
    return Node(network, problem, Unprotected(), facts, start, {}, Tree(network))


def rows(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.logspace(0, -1, d)
    X /= np.linalg.norm(X, axis=1)[:, None]
    return X, np.where(X @ rng.normal(size=d) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


def states(node: Node, most: int = 80) -> list[newton.State]:
    algorithm = newton.Newton()
    found = [algorithm.init(node)]
    while len(found) <= most and not algorithm.ended(found[-1]):
        found.append(algorithm.step(len(found), found[-1], node))
    return found


@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "smooth-hinge"])
def test_ends_where_a_quasi_newton_method_on_all_rows_does(loss: str) -> None:
    X, y = rows(600, 6, 1)
    parts = [GeneralisedLinear(X[i::4], y[i::4], LOSSES[loss], weight=150.0, ridge=0.05) for i in range(4)]
    last = states(node_of(parts))[-1]
    assert last.over.all()

    def value(f: np.ndarray) -> float:
        return sum(part.value(f) for part in parts)

    def slope(f: np.ndarray) -> np.ndarray:
        return sum(part.grad(f) for part in parts)

    other = minimize(value, last.f[0] + 0.1, jac=slope, method="BFGS", options={"gtol": 1e-7})
    assert value(last.f[0]) <= other.fun * (1 + 1e-12)
    assert np.linalg.norm(slope(last.f[0])) < 1e-5


@pytest.mark.parametrize("loss", ["huber", "smooth-hinge", "softmax"])
def test_a_run_reaches_the_pooled_optimum_of_every_loss(loss: str) -> None:
    run = radmm.solve("newton", **{**SMALL, "loss": loss})
    assert run.ended == "converged"
    assert abs(run.history[-1].mean_model_gap) < 1e-12
    assert run.history[-1].consensus_error < 1e-10


def test_neither_the_graph_nor_the_deal_of_the_rows_matters() -> None:
    """One class a node is as good as any deal: the sums are the same, but for the order of adding up."""
    X, y = rows(600, 6, 2)
    curves = []
    for graph, order in (("ring:5", None), ("star:5", None), ("complete:5", None), ("path:5", np.argsort(y))):
        shuffled = (X, y) if order is None else (X[order], y[order])
        chunks = [np.split(part, 5) for part in shuffled]
        parts = [
            GeneralisedLinear(a, b, LOSSES["logistic"], weight=20.0, ridge=0.02) for a, b in zip(*chunks)
        ]
        curves.append(
            [sum(part.value(state.f[0]) for part in parts) for state in states(node_of(parts, graph))]
        )
    for curve in curves[1:]:
        np.testing.assert_allclose(curve[:6], curves[0][:6], rtol=1e-5)  # by the rounding of Hessians
        assert curve[-1] == pytest.approx(curves[0][-1], rel=1e-12)


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["logistic", "huber", "smooth-hinge"]),
    st.sampled_from([0.0, 0.01]),
)
def test_the_best_point_never_rises(seed: int, loss: str, ridge: float) -> None:
    X, y = rows(60, 5, seed)
    parts = [GeneralisedLinear(X[i::3], y[i::3], LOSSES[loss], weight=20.0, ridge=ridge) for i in range(3)]
    found = states(node_of(parts), most=30)
    least = [float(state.level[0, 0]) for state in found[1:]]
    assert all(after <= before * (1 + 1e-13) for before, after in pairwise(least))
    for state, value in zip(found[1:], least):
        assert sum(part.value(state.best[0]) for part in parts) == pytest.approx(value, rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 3))
def test_linear_algebra_of_the_root(seed: int, d: int, short: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(max(1, d - short), d))
    B, s, b = root.T @ root, rng.normal(size=d), rng.normal(size=d)
    np.testing.assert_array_equal(newton.symmetric(B[np.triu_indices(d)], d), B)
    x, pivot = newton.solved(B, B @ b)  # B may be singular: then there are many solutions
    np.testing.assert_allclose(B @ x, B @ b, atol=1e-4 * np.abs(B).max())
    assert pivot < 1e-6 or np.linalg.matrix_rank(B) == d
    regular = B + np.eye(d)
    y = regular @ s + 0.1 * s
    corrected = newton.corrected(regular, s, y)
    np.testing.assert_allclose(corrected @ s, y, atol=1e-9)
    assert np.linalg.eigvalsh(corrected)[0] > 0
    assert newton.corrected(B, s, -s) is B
    assert newton.corrected(B, 0 * s, 0 * s) is B


def test_a_hessian_is_asked_for_after_poor_steps_alone_and_in_double_precision_where_it_shows() -> None:
    X, y = rows(400, 5, 3)

    def asked(X: np.ndarray, ridge: float) -> list[int]:
        parts = [
            GeneralisedLinear(X[i::3], y[i::3], LOSSES["logistic"], weight=20.0, ridge=ridge)
            for i in range(3)
        ]
        return [int(state.asked[0, 0]) for state in states(node_of(parts))]

    usual = asked(X, 0.01)
    assert usual[:3] == [newton.SINGLE, newton.SHORT, newton.SHORT]  # once it is known that it may be
    assert usual[-2:] == [newton.NONE] * 2
    assert newton.DOUBLE not in usual
    alike = X.copy()
    alike[:, 4] = alike[:, 3] + 1e-5 * alike[:, 4]
    assert asked(alike, 1e-9)[1] == newton.DOUBLE


def test_looking_half_a_step_ahead_saves_rounds_where_curvature_has_no_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rounds(loss: str, seed: int) -> int:
        X, y = rows(400, 8, seed)
        parts = [
            GeneralisedLinear(X[i::4], y[i::4], LOSSES[loss], weight=1000.0, ridge=0.05) for i in range(4)
        ]
        return len(states(node_of(parts)))

    looking = {(loss, seed): rounds(loss, seed) for loss in ("logistic", "smooth-hinge") for seed in range(4)}
    monkeypatch.setattr(newton, "ahead", lambda p, *_: p)
    spared = {which: rounds(*which) - count for which, count in looking.items()}
    assert all(spared["logistic", seed] >= 1 for seed in range(4))
    assert all(spared["smooth-hinge", seed] >= -1 for seed in range(4))


def test_what_a_step_looks_ahead_at_is_half_way_along_it() -> None:
    """In one dimension and of a cubic, whose second derivative changes as it did: the minimum itself, all but a part
    in the third power."""
    slope, second = lambda x: x + x**2, lambda x: 1 + 2 * x
    before, here = 0.9, 0.3
    g, B, old = (np.array([slope(here)]), np.array([[second(here)]]), np.array([[second(before)]]))
    s, y = np.array([here - before]), g - slope(before)
    p = -g / B[0]
    q = newton.ahead(p, g, B, old, s, y)
    assert abs(q[0] + here) < 0.5 * abs(p[0] + here)
    assert newton.ahead(p, g, B, old, s, 2 * y) is p  # both Hessians do not explain such a change
    assert newton.ahead(p, g, B, old, 0 * s, y) is p


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 3))
def test_a_short_matrix_keeps_its_diagonal_and_loses_less_than_the_sixteenth_bit(
    seed: int, d: int, short: int
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(max(1, d - short), d)) * np.logspace(-3, 3, d)
    root[:, rng.random(d) < 0.2] = 0.0  # columns that nobody has
    B, code = root.T @ root, newton.Short(d)
    row = B[np.triu_indices(d)]
    sent = code.pack(row)
    assert len(sent) == code.size(row) == 4 * d + d * (d - 1)
    found = newton.symmetric(code.unpack(sent, row), d)
    np.testing.assert_allclose(np.diag(found), np.diag(B), rtol=1e-7)
    reach = np.sqrt(np.outer(np.diag(B), np.diag(B)))
    assert (np.abs(found - B) <= reach * (0.51 / (2**15 - 1) + 2e-7)).all()


def test_short_matrices_spare_bytes_and_no_step() -> None:
    X, y = rows(4000, 12, 7)

    def course() -> tuple[int, float, np.ndarray]:
        parts = [
            GeneralisedLinear(X[i::4], y[i::4], LOSSES["logistic"], weight=1e3, ridge=0.1) for i in range(4)
        ]
        node = node_of(parts)
        found = states(node)
        return node.network.traffic.bytes, len(found), found[-1].f

    fewer, steps, f = course()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newton, "_ROUGH", np.inf)
        more, as_many, g = course()
    assert fewer < 0.9 * more
    assert abs(steps - as_many) <= 1
    np.testing.assert_allclose(f, g, rtol=1e-6, atol=1e-9)


def test_a_sample_is_near_all_rows_and_few_rows_are_taken_whole() -> None:
    X, y = rows(4000, 6, 5)
    part = GeneralisedLinear(X, y, LOSSES["logistic"], weight=4000.0, ridge=0.01)
    f = np.linspace(-1, 1, 6)
    some = part.sample(8)
    assert some.rows == 500
    assert some is part.sample(8)
    assert some.value(f) == pytest.approx(part.value(f), rel=0.1)
    other = GeneralisedLinear(X[::8], y[::8], LOSSES["logistic"], weight=4000.0, ridge=0.01)
    np.testing.assert_allclose(some.grad(f), other.grad(f), rtol=1e-12)
    unit = np.linalg.cholesky(np.linalg.inv(part.hess(f)))
    assert np.abs(np.linalg.eigvalsh(unit.T @ some.hess(f) @ unit) - 1).max() < 4 * np.sqrt(6 * 8 / 4000)
    few = GeneralisedLinear(X[:383], y[:383], LOSSES["logistic"])
    assert few.sample(8) is few
    targets = GeneralisedLinear(X, X[:, 0], LOSSES["squared"], weight=4000.0)
    np.testing.assert_array_equal(targets.sample(8).y, X[::8, 0])


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_a_hessian_of_sparse_rows_in_single_precision_is_that_of_all(share: float) -> None:
    """Whether all, some or none of the columns are common."""
    rng = np.random.default_rng(8)
    X = np.where(rng.random((5000, 90)) < np.where(np.arange(90) < 90 * share, 0.2, 0.02), 1.0, 0.0)
    X[:, 17] = 0.0
    y = np.where(rng.random(5000) < 0.5, 1.0, -1.0)
    part = GeneralisedLinear(X, y, LOSSES["logistic"], weight=5000.0, ridge=0.1)
    for f in rng.normal(size=(2, 90)):
        np.testing.assert_allclose(part.hess(f, single=True), part.hess(f), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(part.hess(f, single=True), part.hess(f, single=True))


def test_nodes_with_many_rows_begin_with_some_and_end_where_a_quasi_newton_method_on_all_rows_does() -> None:
    X, y = rows(4000, 6, 6)
    parts = [
        GeneralisedLinear(X[i::4], y[i::4], LOSSES["logistic"], weight=1000.0, ridge=1e-3) for i in range(4)
    ]
    found = states(node_of(parts))
    some = [bool(state.few.all()) for state in found]
    assert some[:2] == [True, True]
    assert not any(some[3:])
    other = minimize(
        lambda f: sum(part.value(f) for part in parts),
        found[-1].f[0],
        jac=lambda f: sum(p.grad(f) for p in parts),
    )
    assert found[-1].over.all()
    assert len(found) <= 12
    assert sum(part.value(found[-1].f[0]) for part in parts) <= other.fun * (1 + 1e-12)


@pytest.mark.parametrize("ridge", [0.1, 1e-7, 0.0])
def test_a_sample_of_one_class_is_left_after_two_rounds(ridge: float) -> None:
    """It has no optimum of its own that steps could come near."""
    X, y = rows(6000, 4, 7)
    X, y[::6] = np.abs(X), 1.0
    blocks = np.split(np.arange(6000), [1998, 3996])
    parts = [GeneralisedLinear(X[b], y[b], LOSSES["logistic"], weight=1000.0, ridge=ridge) for b in blocks]
    found = states(node_of(parts))
    assert sum(bool(state.few.all()) for state in found) == 2
    assert len(found) <= 20
    assert found[-1].over.all()
    assert np.linalg.norm(sum(part.grad(found[-1].f[0]) for part in parts)) < 1e-5


def test_the_end_is_that_of_all_rows_where_one_node_has_many_and_a_column_that_its_sample_misses() -> None:
    X, y = rows(4000, 6, 5)
    X[:, 5] = 0.0
    X[[3, 7, 1001], 5] = 1.0
    for loss in ("logistic", "smooth-hinge"):
        parts = [
            GeneralisedLinear(X[part], y[part], LOSSES[loss], weight=100.0, ridge=0.01)
            for part in (slice(0, 3900), slice(3900, 3950), slice(3950, 4000))
        ]
        last = states(node_of(parts))[-1]
        assert last.over.all()
        assert np.linalg.norm(sum(part.grad(last.f[0]) for part in parts)) < 1e-5


def test_objectives_that_only_multiply_by_their_hessian() -> None:
    class Products:
        def __init__(self, whole: GeneralisedLinear):
            self.whole, self.dimension = whole, whole.dimension
            self.value, self.grad = whole.value, whole.grad

        def hessp(self, f: np.ndarray, v: np.ndarray) -> np.ndarray:
            return self.whole.hess(f) @ v

    X, y = rows(90, 4, 4)
    parts = [GeneralisedLinear(X[i::3], y[i::3], LOSSES["logistic"], weight=9.0, ridge=0.1) for i in range(3)]
    one, other = (states(node_of(list(those)))[-1] for those in (parts, map(Products, parts)))
    np.testing.assert_allclose(one.f, other.f, atol=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_without_a_ridge_and_with_columns_of_nothing_it_still_gets_to_the_bottom(loss: str) -> None:
    run = radmm.solve("newton", **{**SMALL, "loss": loss, "rho": 0.0, "iterations": 40})
    objective = run.column("objective")
    if loss == "squared":
        assert abs(run.history[-1].mean_model_gap) < 1e-12
    else:  # the classes can be told apart: the optimum is zero, far away
        assert objective.min() < 1e-4 * objective[0]


def test_stops_at_a_tolerance_like_the_others() -> None:
    run = radmm.solve("newton", **{**SMALL, "stop_tolerance": 1e-2})
    whole = radmm.solve("newton", **SMALL)
    assert run.ended == whole.ended == "converged"
    assert run.iterations < whole.iterations < SMALL["iterations"]


@pytest.mark.mpi(min_size=2, sizes=[4])
def test_resumes_amid_steps_that_do_not_pay(world: World, shared_path: Path) -> None:
    contracts.exact_resume("newton", world, shared_path, loss="smooth-hinge", rho=0.0)


def test_taken_up_again_at_its_end_it_does_nothing(tmp_path: Path) -> None:
    flags = ["--algorithm", "newton", "--data", "tiny", "--topology", "er5", "--out", str(tmp_path / "run")]
    assert radmm.main([*flags, "--checkpoint-every", "1", "--progress", "none"]) == 0
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert before["ended"] == "converged"
    assert radmm.main(["--resume", str(tmp_path / "run"), "--iterations", "200"]) == 0
    after = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [after[name] for name in ("iterations", "messages", "mean_model_gap", "ended")] == [
        before[name] for name in ("iterations", "messages", "mean_model_gap", "ended")
    ]


def test_what_is_not_finite_diverges_and_says_so() -> None:
    run = radmm.solve("newton", **{**SMALL, "weight": 1e39, "loss": "squared", "observe": "none"})
    assert run.ended == "divergence"


@pytest.mark.parametrize("when", [1, 2])
def test_a_model_that_was_lost_is_no_step_that_went_too_far(
    when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one, and a round later all was as if nothing had been, with other bits."""
    whole = newton.Newton.step

    def step(self: newton.Newton, k: int, state: newton.State, node: Node) -> newton.State:
        found = whole(self, k, state, node)
        return spoilt(found) if k == when else found

    monkeypatch.setattr(newton.Newton, "step", step)
    assert radmm.solve("newton", **{**SMALL, "observe": "4"}).ended == "divergence"


def test_a_damped_step_does_not_tell_how_much_is_left() -> None:
    """g.B^-1 g is 1e-14 of the value, g.(B + mu S)^-1 g below its rounding."""
    g = np.array([1e-10, 0.0])
    old = newton.Memory(np.zeros(2), g, 1e-6 * np.eye(2), np.eye(2), np.array([1.0, 1e-7, 0.03]))
    *_, over, _ = newton.advance(np.ones(2), old, (np.array([0.0, np.inf, 0.0, 0.0]),))
    assert not over
    less = old._replace(slope=1e-4 * g)
    *_, over, _ = newton.advance(np.ones(2), less, (np.array([0.0, np.inf, 0.0, 0.0]),))
    assert over


def test_the_ledger_names_what_travels(tmp_path: Path) -> None:
    run = radmm.solve("newton", **{**SMALL, "iterations": 4}, out=tmp_path / "run")
    assert run.epsilon == np.inf
    for i in range(5):
        kept = json.dumps(
            [entry for entry in chain.read(path_of(tmp_path / "run" / "ledger", i))], default=str
        )
        assert (
            "newton: every node's value and gradient and Hessian enter the sums over the tree as they are"
            in kept
        )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"message_loss": 0.1}, "stay as it is"),
        ({"drop_out": "0.1:0.5"}, "stay as it is"),
        ({"topology": "links:p=0.8:seed=1:er5"}, "stay as it is"),
        ({"eta": 1.0}, "eta"),
        ({"epsilon": 1.0, "adjacency": "replace"}, "no private form"),
        ({"loss": "hinge"}, "kink"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(flags: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        radmm.solve("newton", **{**SMALL, **flags})
    assert len(str(error.value).splitlines()) == 1


def test_a_transcript_is_refused() -> None:
    with pytest.raises(InputError, match="sums over a tree"):
        transcript.of_flags(radmm.configure("newton", **SMALL))


def test_a_wide_area_network_is_predicted(tmp_path: Path) -> None:
    flags = {**SMALL, "topology": "path:5", "latency": 2.0, "iterations": 3}
    run = radmm.solve("newton", **flags, out=tmp_path / "run")
    assert run.summary["predicted_wan_seconds"] == pytest.approx(
        3 * 2 * 3 * 2.0, abs=0.5
    )  # root 1: three hops off
