"""Imperfect networks: what is heard, what is predicted, and that every rank sees the same network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.graphs.topology import load, load_changing
from distadmm.methods.consensus import tuned
from distadmm.ranks.conditions import Conditions
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.world import World
from distadmm.run.setup import prepare
from distadmm.run.shell import in_process

SMALL: dict[str, Any] = {
    "data": "tiny", "topology": "ring:6", "weight": 20.0, "rho": 1.0, "iterations": 12, "progress": "none",
}  # fmt: skip


def conditions_on(text: str, **options: Any) -> tuple[Conditions, Any]:
    graph = load(text)
    receiver = np.repeat(np.arange(graph.n), graph.degrees)
    return Conditions(sender=graph.indices, receiver=receiver, edge_of=graph.edge_index, **options), graph


@given(seed=st.integers(0, 50), loss=st.floats(0, 0.9), leave=st.floats(0, 0.5), k=st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_a_moment_is_consistent(seed: int, loss: float, leave: float, k: int) -> None:
    conditions, _ = conditions_on("er5", seed=seed, loss=loss, leave=leave, back=0.5)
    moment = conditions.at(k)
    assert not np.any(moment.received & ~moment.edges)  # only messages on edges arrive
    assert not np.any(
        moment.edges & ~(moment.present[conditions.sender] & moment.present[conditions.receiver])
    )
    there = set(zip(conditions.receiver[moment.edges].tolist(), conditions.sender[moment.edges].tolist()))
    assert there == {(j, i) for i, j in there}  # both ends of an edge agree
    again, _ = conditions_on("er5", seed=seed, loss=loss, leave=leave, back=0.5)
    for mine, other in zip(moment, again.at(k)):  # asked in another order, still the same
        np.testing.assert_array_equal(mine, other)


def test_frequencies_are_those_asked_for() -> None:
    conditions, _ = conditions_on("complete:8", seed=1, loss=0.3)
    lost = np.mean([1 - conditions.at(k).received.mean() for k in range(300)])
    assert lost == pytest.approx(0.3, abs=0.01)
    conditions, _ = conditions_on("ring:50", seed=1, leave=0.2, back=0.6)
    absent = np.mean([1 - conditions.present(k).mean() for k in range(20, 400)])
    assert absent == pytest.approx(0.2 / (0.2 + 0.6), abs=0.01)  # the chain's stationary law


def test_a_changing_network_is_the_one_that_topology_describes() -> None:
    changing = load_changing("links:p=0.5:seed=3:er5")
    prepared = prepare(radmm.configure("admm", **{**SMALL, "topology": "links:p=0.5:seed=3:er5"}), World())
    conditions = prepared.node.network.conditions
    assert conditions is not None
    for k in range(10):
        np.testing.assert_array_equal(conditions.at(k).edges, changing.active(k)[conditions.edge_of])


def test_the_last_row_received_stands_in_for_a_lost_one() -> None:
    conditions, graph = conditions_on("er5", seed=4, loss=0.4)
    network = Network(Roster.alone(graph.indptr, graph.indices))
    network.endure(conditions)
    heard = np.zeros((len(graph.indices), 2))
    rng = np.random.default_rng(0)
    for k in range(1, 20):
        F = rng.normal(size=(5, 2))
        network.begin(k)
        found = network.neighbour_sum(F)
        arrived = conditions.at(k).received
        heard[arrived] = F[graph.indices[arrived]]
        for i in range(5):
            expected = heard[graph.indptr[i] : graph.indptr[i + 1]].sum(axis=0)
            np.testing.assert_allclose(found[i], expected, atol=1e-13)
    assert network.traffic.lost == sum((~conditions.at(k).received).sum() for k in range(1, 20))


def test_a_neighbour_that_is_not_there_is_taken_to_agree() -> None:
    conditions, graph = conditions_on("er5", seed=2, loss=0.2, leave=0.3, back=0.4)
    network = Network(Roster.alone(graph.indptr, graph.indices))
    network.endure(conditions)
    heard, rng = np.zeros((5, 5, 2)), np.random.default_rng(0)
    for k in range(1, 30):
        F, moment = rng.normal(size=(5, 2)), conditions.at(k)
        network.begin(k)
        found = network.neighbour_sum(F)
        for i, j, arrived in zip(conditions.receiver, conditions.sender, moment.received):
            if arrived:
                heard[i, j] = F[j]
        expected = np.zeros((5, 2))
        for i, j, there in zip(conditions.receiver, conditions.sender, moment.edges):
            expected[i] += heard[i, j] if there else F[i]
        np.testing.assert_allclose(found, expected, atol=1e-13)
        assert network.degree[:, 0].tolist() == graph.degrees.tolist()


def test_across_an_edge_that_is_away_nodes_stay_where_they_met_last() -> None:
    conditions, graph = conditions_on("er5", seed=2, loss=0.2, leave=0.3, back=0.4)
    network = Network(Roster.alone(graph.indptr, graph.indices))
    network.endure(conditions)
    heard, met, rng = np.zeros((5, 5, 2)), np.zeros((5, 5, 2)), np.random.default_rng(0)
    for k in range(1, 30):
        F, moment = rng.normal(size=(5, 2)), conditions.at(k)
        network.begin(k)
        together, apart = network.meet(F)
        for i, j, arrived in zip(conditions.receiver, conditions.sender, moment.received):
            if arrived:
                heard[i, j] = F[j]
        differ = np.zeros((5, 2))
        for i, j, there in zip(conditions.receiver, conditions.sender, moment.edges):
            if there:
                met[i, j] = F[i] + heard[i, j]
                differ[i] += F[i] - heard[i, j]
        np.testing.assert_allclose(together, met.sum(axis=1), atol=1e-13)
        np.testing.assert_allclose(apart, differ, atol=1e-13)


@given(seed=st.integers(0, 30), leave=st.floats(0, 0.5))
@settings(deadline=None, max_examples=30)
def test_what_nodes_differ_by_cancels_where_no_message_is_lost(seed: int, leave: float) -> None:
    """So the duals, which add it up, keep their sum of zero, and the nodes agree on the optimum."""
    conditions, graph = conditions_on("er5", seed=seed, leave=leave, back=0.5, link=0.7)
    network = Network(Roster.alone(graph.indptr, graph.indices))
    network.endure(conditions)
    for k in range(1, 6):
        network.begin(k)
        _, apart = network.meet(np.random.default_rng(k).normal(size=(5, 3)))
        np.testing.assert_allclose(apart.sum(axis=0), 0.0, atol=1e-12)


BAD_NETWORKS = [
    {"message_loss": 0.3},
    {"drop_out": "0.2:0.5"},
    {"topology": "links:p=0.6:seed=1:ring:6"},
    {"topology": "seq:ring:6,star:6"},
]


@pytest.mark.mpi(min_size=2, sizes=[3])
@pytest.mark.parametrize("what", BAD_NETWORKS, ids=str)
@pytest.mark.parametrize("name", ["admm", "no-tune", "radmm"])
def test_same_bits_on_ranks_however_bad_the_network(name: str, what: dict, world: World) -> None:
    plain = {"tune": False} if name == "no-tune" else {}
    config = radmm.configure(name.replace("no-tune", "admm"), **{**SMALL, **what, **plain})
    together = in_process(radmm.PROGRAMME, config, world)
    if world.is_root:
        alone = in_process(radmm.PROGRAMME, config)
        np.testing.assert_array_equal(together.models, alone.models)
        assert (together.lost, together.messages) == (alone.lost, alone.messages)


def test_resume_on_a_bad_network(tmp_path: Path) -> None:
    flags = {**SMALL, "message_loss": 0.3, "drop_out": "0.2:0.5", "algorithm": "admm"}
    words = [w for key, value in flags.items() for w in ("--" + key.replace("_", "-"), str(value))]
    assert radmm.main([*words, "--out", str(tmp_path / "a")]) == 0
    assert (
        radmm.main([*words, "--iterations", "7", "--checkpoint-every", "3", "--out", str(tmp_path / "b")])
        == 0
    )
    assert radmm.main(["--resume", str(tmp_path / "b"), "--iterations", "12", "--progress", "none"]) == 0
    one, two = (read_npz(tmp_path / name / "models.npz")["models"] for name in "ab")
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["admm", "radmm", "mradmm", "madmm"])
@pytest.mark.parametrize(
    "what",
    [
        {"topology": "links:p=0.6:seed=1:ring:6"},
        {"topology": "seq:ring:6,star:6"},
        {"drop_out": "0.2:0.5"},
    ],
    ids=str,
)
def test_changing_networks_still_reach_the_optimum(name: str, what: dict) -> None:
    plain = {"tune": False} if name == "admm" else {}
    run = radmm.solve(name, **{**SMALL, **what, **plain, "iterations": 600})
    assert abs(run.history[-1].mean_model_gap) < 1e-6


TUNED = {**SMALL, "topology": "er5", "algorithm": "admm"}


def tuned_gap(**what: Any) -> float:
    """Of the mean of the models, and how far the models are from it."""
    last = radmm.solve(**{**TUNED, **what}).history[-1]
    return abs(last.mean_model_gap) + last.primal_residual**2


@pytest.mark.parametrize("metric", ["r1", "full", "public"])
def test_where_all_messages_arrive_tuned_links_are_the_tuned_method(metric: str) -> None:
    """Two recursions, of nodes and of edges' ends, agree."""
    still, changing = (
        radmm.solve(**{**TUNED, "metric": metric, "message_loss": loss}).models for loss in (0.0, 1e-300)
    )
    assert still is not None
    assert changing is not None
    np.testing.assert_allclose(changing, still, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", ["r1", "full", "public"])
@pytest.mark.parametrize(
    "what",
    [
        {"message_loss": 0.3},
        {"drop_out": "0.2:0.5"},
        {"topology": "links:p=0.3:seed=1:er5"},
        {"topology": "seq:ring:6,star:6"},
        {"message_loss": 0.2, "drop_out": "0.1:0.5", "topology": "links:p=0.6:seed=1:ring:6"},
    ],
    ids=str,
)
def test_self_tuned_admm_reaches_the_optimum_on_any_network(metric: str, what: dict) -> None:
    """Messages lost one by one, too: plain ADMM stops short of the optimum there."""
    longer, small = (300, 1e-4) if metric == "public" else (80, 1e-7)
    assert tuned_gap(**what, metric=metric, iterations=longer) < small


@pytest.mark.parametrize("deal", ["label:0.3", "quantity:0.3"])
def test_self_tuned_admm_beats_a_plain_penalty_on_changing_links(deal: str) -> None:
    for what in ({"message_loss": 0.1}, {"drop_out": "0.2:0.5"}, {"topology": "links:p=0.5:seed=1:er5"}):
        flags = {**what, "deal": deal, "iterations": 40}
        assert tuned_gap(**flags) < 0.1 * tuned_gap(**flags, tune=False)


def test_the_metric_comes_with_the_first_message_that_arrives() -> None:
    """Until then the edge is no part of a node's problem; a node that has heard nobody stays at its own minimum."""
    prepared = prepare(radmm.configure(**{**TUNED, "topology": "links:p=0.1:seed=4:er5"}), World())
    node, algorithm = prepared.node, prepared.config.algorithm
    network = node.network
    assert network.conditions is not None
    state, heard = algorithm.init(node), np.zeros(len(network.indices), bool)
    for k in range(1, 30):
        network.begin(k)
        sent = network.traffic.messages
        state = algorithm.step(k, state, node)
        there = network.conditions.at(k).edges
        # Both ends of an edge hear each other at once: a message for the metric, once, and one of the method.
        assert network.traffic.messages - sent == there.sum() + (there & ~heard).sum()
        heard |= there
        np.testing.assert_array_equal(network.by_edge(state.far)[:, -1] > 0, heard)
        for i in range(5):
            if not heard[network.indptr[i] : network.indptr[i + 1]].any():
                own = tuned.own_minima(node)[i]
                np.testing.assert_allclose(state.f[i], own, atol=1e-6)
    assert 0 < heard.sum() < len(heard) or heard.all()


def test_a_checkpoint_of_another_method_is_not_taken_up(tmp_path: Path, capsys) -> None:
    """As one of a release whose ADMM did not tune itself on such links."""
    words = "--algorithm admm --data tiny --topology ring:6 --drop-out 0.2:0.5 --progress none --checkpoint-every 2"
    out = ["--iterations", "4", "--out", str(tmp_path / "run")]
    assert radmm.main([*words.split(), "--no-tune", *out]) == 0
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace('"tune": false', '"tune": null'))
    assert radmm.main(["--resume", str(tmp_path / "run"), "--iterations", "8", "--progress", "none"]) == 2
    assert "the checkpoint is of another method" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["admm", "radmm", "mradmm", "madmm"])
@pytest.mark.parametrize("topology", ["ring:6", "links:p=0.1:seed=1:ring:6"])
def test_nodes_that_are_left_alone_do_not_run_away(name: str, topology: str) -> None:
    """With a heavy loss and a small ridge, as the paper has them, their duals over the ridge would have them leap."""
    flags = {**SMALL, "weight": 1750.0, "rho": 0.22, "topology": topology, "drop_out": "0.2:0.4"}
    gap = radmm.solve(name, **{**flags, "eta": 0.7, "iterations": 400}).column("mean_model_gap")
    assert gap[-1] < 0.5 * gap[20]
    assert gap.max() < 2.0


def test_the_price_of_a_release_is_the_same_on_a_changing_network() -> None:
    noise = {"alpha": 1, "adjacency": "replace", "rng": "simulation", "iterations": 8}
    for name in ("radmm", "madmm"):
        spent = [
            radmm.solve(name, **{**SMALL, **noise, **what}).epsilon
            for what in ({}, {"drop_out": "0.5:0.5"}, {"topology": "links:p=0.6:seed=1:ring:6"})
        ]
        assert spent[0] == spent[1] == spent[2]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"message_loss": 1.0}, "--message-loss"),
        ({"message_loss": float("nan")}, "--message-loss"),
        ({"drop_out": "often"}, "LEAVE:RETURN"),
        ({"drop_out": "0.5:-0.1"}, "RETURN"),
        ({"bandwidth": 0.0}, "--bandwidth"),
        ({"latency": -1.0}, "--latency"),
    ],
)
def test_bad_conditions(flags: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        prepare(radmm.configure("admm", **{**SMALL, **flags}), World())


def test_a_node_that_nobody_hears_stays_in_the_recycled_iteration() -> None:
    """Without neighbours and gamma = 0 equation (19) divides by zero; there is nothing to recycle then."""
    found = radmm.solve(
        "radmm",
        data="tiny",
        topology="links:p=0.4:seed=1:ring:4",
        gamma=0.0,
        weight=1.0,
        rho=1.0,
        iterations=60,
    )
    assert found.models is not None
    assert np.isfinite(found.models).all()
    assert found.history[-1].mean_model_gap < 1e-3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("observe", ["1", "none"])
def test_a_run_that_diverges_says_so_and_fails(observe: str, tmp_path: Path, capsys) -> None:
    words = (
        f"--data tiny --topology ring:4 --dual-step 1e300 --iterations 20 --observe {observe} --progress none"
    )
    assert radmm.main([*words.split(), "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().out
    assert "ended by: divergence" in shown
    assert "no longer finite" in shown
    assert "objective gap  none: the run diverged" in shown
