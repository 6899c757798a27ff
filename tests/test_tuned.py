"""The self-tuned ADMM: its metric by two routes, what it keeps, what it sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.algorithm import Facts, Node
from distadmm.graphs import topology
from distadmm.graphs.facts import mu, theta_pinned
from distadmm.methods.consensus import tuned
from distadmm.methods.consensus.admm import ADMM
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.world import World
from distadmm.testing import contracts

D, RIDGE = 4, 1e-2
LEAFY = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (1, 6), (2, 7), (2, 8)]  # leaves 6, 7 and 8


def objectives(n: int) -> list[Any]:
    made = []
    for i in range(n):
        rng = np.random.default_rng(i)
        X = rng.normal(size=(40, D)) + 2 * rng.normal(size=D)
        X /= np.linalg.norm(X, axis=1)[:, None]
        y = np.where(rng.random(40) < 0.2 + 0.1 * (i % 6), 1.0, -1.0)
        made.append(GeneralisedLinear(X, y, Logistic(), ridge=RIDGE))
    return made


def node_of(graph: topology.Topology, own: list[Any] | None = None, roster: Roster | None = None) -> Node:
    roster = roster or Roster.alone(graph.indptr, graph.indices)
    facts = Facts(graph.n, np.diff(graph.indptr), mu(graph), 1.0, RIDGE, 0.25, theta_pinned(graph))
    problem = Problem(own or objectives(graph.n), tolerance=1e-12)
    start = np.zeros((graph.n, problem.dimension))
    return Node(Network(roster), problem, Unprotected(), facts, start, {"eta": None, "eta_growth": None})


def leafy() -> topology.Topology:
    return topology.from_edges(9, LEAFY)


def dense(P: tuned.Curvature | tuned.Whole, row: int) -> np.ndarray:
    return P.matrix(row, np.eye(D))


def random_curvature(rng: np.random.Generator, rows: int, spikes: int) -> tuned.Curvature:
    u = rng.normal(size=(spikes, rows, D))
    u /= np.linalg.norm(u, axis=2)[:, :, None]
    return tuned.Curvature(
        rng.uniform(1e-3, 1.0, (rows, 1)),
        tuple(tuned.Spike(direction, rng.uniform(0.0, 30.0, (rows, 1))) for direction in u),
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_a_curvature_is_its_matrix(seed: int, spikes: int) -> None:
    rng = np.random.default_rng(seed)
    P, x = random_curvature(rng, 3, spikes), rng.normal(size=(3, D))
    for row in range(3):
        np.testing.assert_allclose(P.times(x)[row], P.matrix(row, np.eye(D)) @ x[row], rtol=1e-10, atol=1e-12)
    chosen = np.array([2, 0, 2])
    np.testing.assert_array_equal(P.at(chosen).times(x[chosen]), P.times(x)[chosen])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_two_ends_meet_at_the_optimum_of_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P, far = random_curvature(rng, 3, 1), random_curvature(rng, 3, 1)
    t, t_far = rng.normal(size=(2, 3, D))
    w = tuned.meeting_point(P, t, far, t_far)
    np.testing.assert_allclose(w, tuned.meeting_point(far, t_far, P, t), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(P.times(w - t) + far.times(w - t_far), 0.0, atol=1e-8)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_whole_matrices_meet_where_spikes_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P, far = random_curvature(rng, 3, 1), random_curvature(rng, 3, 1)
    t, t_far = rng.normal(size=(2, 3, D))
    identity = np.eye(D)
    rows = [
        np.concatenate([point, of.matrix(i, identity)[np.triu_indices(D)], [1.0]])
        for of, points in ((P, t), (far, t_far))
        for i, point in enumerate(points)
    ]
    matrices, points = tuned._matrices(np.stack(rows))
    whole, other = tuned.Whole(matrices, np.arange(3)), tuned.Whole(matrices, np.arange(3, 6))
    np.testing.assert_allclose(whole.times(t_far), P.times(t_far), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        other.at(np.array([2, 0])).times(t[:2]), far.at(np.array([2, 0])).times(t[:2]), atol=1e-9
    )
    met = tuned.agreed(whole, points[:3], other, points[3:])
    np.testing.assert_allclose(met, tuned.meeting_point(P, t, far, t_far), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["r1", "full"])
def test_both_ends_of_an_edge_use_one_metric(kind: str) -> None:
    graph = leafy()
    M = tuned.metric(node_of(graph), kind)
    owner = np.repeat(np.arange(graph.n), graph.degrees)
    total = np.zeros_like(M.Q)
    for e, (i, j) in enumerate(zip(owner.tolist(), graph.indices.tolist())):
        np.testing.assert_allclose(dense(M.far, e), dense(M.own, j), atol=1e-15)
        total[i] += 0.5 * (dense(M.own, i) + dense(M.own, j))
    np.testing.assert_allclose(M.Q, total, rtol=1e-12)
    np.testing.assert_array_equal(M.mine, owner)


def test_the_direction_is_that_of_the_largest_curvature_at_the_own_minimum() -> None:
    node = node_of(leafy())
    rows = tuned.curvature_rows(node)
    for objective, row in zip(node.problem.objectives, rows):
        t, u, e = row[:D], row[D : 2 * D], row[-2]
        assert np.linalg.norm(objective.grad(t)) < 1e-3  # short of it by the convexity added
        np.testing.assert_allclose(objective.hess(t) @ u, e * u, atol=1e-12)
        assert e == pytest.approx(np.linalg.eigvalsh(objective.hess(t))[-1])


def test_the_solver_does_not_notice_the_own_minima() -> None:
    """A resumed run makes the metric anew, and must go on as if it had not."""
    runs = []
    for disturbed in (False, True):
        node, algorithm = node_of(leafy()), tuned.Tuned("r1")
        state = algorithm.init(node)
        for k in range(1, 4):
            memory = node.problem.memory()
            if disturbed:
                tuned.metric(node, "r1")
            else:
                node.problem.restore(memory)  # as reading a checkpoint does
            state = algorithm.step(k, state, node)
        runs.append(state)
    for one, other in zip(*runs):
        np.testing.assert_array_equal(one, other)


def test_a_leaf_is_passed_on() -> None:
    graph = leafy()
    node = node_of(graph)
    assert tuned.leaves_matter(node.facts)
    M = tuned.metric(node, "r1")
    assert node.network.traffic.messages == 2 * len(graph.indices)
    rows = tuned.curvature_rows(node)
    steepest = max((7, 8), key=lambda i: rows[i][-2] - rows[i][-3])
    for host, leaf in ((1, 6), (2, steepest)):
        u, (c, e, _), s = rows[leaf][D : 2 * D], rows[leaf][-3:], rows[host][-1]
        np.testing.assert_allclose(M.own.spikes[1].u[host], u)
        assert M.own.spikes[1].weight[host, 0] == pytest.approx(0.5 * s * (e - c))
    others = [i for i in range(9) if i not in (1, 2)]
    np.testing.assert_array_equal(M.own.spikes[1].weight[others], 0.0)


@pytest.mark.parametrize("spec", ["star:6", "er5", "ring:8", "path:3"])
def test_leaves_of_small_networks_and_stars_are_not(spec: str) -> None:
    graph = topology.load(spec)
    node = node_of(graph)
    assert not tuned.leaves_matter(node.facts)
    assert len(tuned.metric(node, "r1").own.spikes) == 1
    assert node.network.traffic.messages == len(graph.indices)


@pytest.mark.parametrize("kind", tuned.RELAXATION)
def test_duals_sum_to_zero_and_nodes_agree_on_the_optimum(kind: str) -> None:
    node = node_of(leafy())
    algorithm = tuned.Tuned(kind)
    state = algorithm.init(node)
    for k in range(1, {"r1": 200, "full": 300}.get(kind, 2000)):
        state = algorithm.step(k, state, node)
        assert np.abs(state.L.sum(axis=0)).max() < 1e-11
    gradient = sum(o.grad(state.f[0]) for o in node.problem.objectives)
    assert np.linalg.norm(gradient) < 1e-8
    assert np.abs(state.f - state.f[0]).max() < 1e-8


def test_without_relaxation_the_public_metric_is_plain_admm(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a regular graph the metric is one number: equations (8)-(9) with eta half of it."""
    monkeypatch.setitem(tuned.RELAXATION, "public", 1.0)
    graph = topology.load("ring:6")
    node, other = node_of(graph), node_of(graph)
    eta = float(tuned.public_scale(node.facts, node.degree)[0, 0]) / 2
    other.table["eta"] = np.full(6, eta)
    algorithm, plain = tuned.Tuned("public"), ADMM(eta=str(eta), tune=False)
    state, beside = algorithm.init(node), plain.init(other)
    for k in range(1, 8):
        state, beside = algorithm.step(k, state, node), plain.step(k, beside, other)
        np.testing.assert_allclose(state.f, beside.f, atol=1e-9)
        np.testing.assert_allclose(state.L, 2 * beside.lam, atol=1e-9)


def test_the_public_metric_sends_models_alone() -> None:
    node = node_of(leafy())
    algorithm = tuned.Tuned("public")
    state = algorithm.init(node)
    assert node.network.traffic.messages == 0
    for k in range(1, 4):
        state = algorithm.step(k, state, node)
    assert node.network.traffic.messages == 3 * len(node.network.columns)
    assert node.network.traffic.bytes == 3 * len(node.network.columns) * 8 * D


def test_the_full_metric_sends_each_hessian_once() -> None:
    node = node_of(leafy())
    algorithm = tuned.Tuned("full")
    state, edges = algorithm.init(node), len(node.network.columns)
    assert node.network.traffic.messages == edges
    assert node.network.traffic.bytes == edges * 8 * (D + D * (D + 1) // 2 + 1)
    algorithm.step(1, state, node)
    assert node.network.traffic.messages == 2 * edges


class Products:
    """An objective that offers products with its Hessian only."""

    def __init__(self, of: GeneralisedLinear):
        self.of, self.dimension = of, of.dimension
        self.value, self.grad = of.value, of.grad

    def hessp(self, f: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.of.hess(f) @ v


def test_products_with_the_hessian_are_enough() -> None:
    graph = leafy()
    node, other = node_of(graph), node_of(graph, [Products(o) for o in objectives(9)])
    algorithm = tuned.Tuned("r1")
    state, beside = algorithm.init(node), algorithm.init(other)
    for k in range(1, 6):
        state, beside = algorithm.step(k, state, node), algorithm.step(k, beside, other)
    np.testing.assert_allclose(state.f, beside.f, atol=1e-6)


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_the_full_metric_keeps_the_contracts(world: World, shared_path: Path) -> None:
    contracts.same_bits("admm", world, metric="full", topology="path:8")
    contracts.exact_resume("admm", world, shared_path, metric="full", topology="path:8")
    if world.is_root:
        for contract in contracts.ALONE:
            contract("admm", metric="full")


@pytest.mark.mpi(min_size=2, sizes=[2, 3])
def test_same_bits_with_leaves_on_any_number_of_ranks(world: World) -> None:
    from distadmm import radmm
    from distadmm.run.shell import in_process

    flags: dict[str, Any] = {
        "data": "tiny", "topology": "path:8", "weight": 20.0, "rho": 1.0, "iterations": 6, "progress": "none",
    }  # fmt: skip
    config = radmm.configure("admm", **flags)
    together = in_process(radmm.PROGRAMME, config, world).models
    if world.is_root:
        np.testing.assert_array_equal(together, in_process(radmm.PROGRAMME, config).models)


def test_each_set_up_message_is_in_the_ledger(tmp_path) -> None:
    """A leaf beside enough other nodes makes two of them; both stand before the first iteration's."""
    import json

    from distadmm import radmm

    rows = tmp_path / "leaf.edges"
    rows.write_text("0 1\n1 2\n2 3\n3 4\n4 1\n2 4\n4 5\n5 1\n")
    words = f"--algorithm admm --data tiny --topology {rows} --iterations 2 --progress none --out {tmp_path / 'o'}"
    assert radmm.main(words.split()) == 0
    for file in sorted((tmp_path / "o" / "ledger").glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        setup = [line for line in lines if line.get("k") == 0]
        assert [line["kind"] for line in setup] == ["charge", "charge"], file
        assert all(line["pure_eps"] == "inf" for line in setup)
        assert lines.index(setup[-1]) < min(i for i, line in enumerate(lines) if line.get("k") == 1)


@pytest.mark.parametrize("metric", ["r1", "full"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber"])
def test_nodes_of_one_row_and_no_ridge_have_a_metric(loss: str, metric: str, tmp_path) -> None:
    """Nothing in a node's data holds most directions; the sum of all is fitted without error all the same."""
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(4, 5)), y=np.array([1.0, -1.0, 1.0, -1.0]))
    flags = {
        "data": str(tmp_path / "rows.npz"),
        "topology": "ring:4",
        "loss": loss,
        "weight": 1.0,
        "rho": 0.0,
    }
    run = radmm.solve("admm", **flags, iterations=100, tune=True, metric=metric)
    assert run.history[-1].objective < 1e-3 * 4
