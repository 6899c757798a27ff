"""What one node learns of another from its own messages: against brute force, real messages and attacks."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.audit.bounds import gaussian_claim, trade_off
from distadmm.errors import InputError
from distadmm.files import read_json
from distadmm.graphs import topology
from distadmm.methods.consensus.smoothing import matrix
from distadmm.methods.gossip.private import plan_of
from distadmm.methods.gossip.release import Gradients
from distadmm.privacy.accounting import gaussian, network, pairwise_gaussian
from distadmm.privacy.noise.sources import Simulation
from distadmm.ranks.graph_network import Network
from distadmm.ranks.world import World
from distadmm.run.setup import prepare
from tests.claims import recomputed
from tests.common import connected_graphs

Array = np.ndarray
ONCE: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "rng": "simulation",
    "iterations": 1, "mixing": "1", "observe": "none", "by_distance": True,
}  # fmt: skip
SHARED = {"trust": "coalition:1", "noise_model": "pairwise"}


def continuous(A: Array, ratio: float = 0.0, own: Array | None = None) -> network.Noise:
    """s^2 = 1 and c = `ratio`."""
    n = len(A)
    return network.Noise(np.ones(n) if own is None else own, ratio**2 * A, np.zeros(n))


def shares(A: Array, noise: network.Noise, rounds: int) -> Array:
    """Of each node (column) at each other (line)."""
    return np.array([network.learned(network.averaging(A), noise, q, rounds) for q in range(len(A))])


def brute_force(A: Array, noise: network.Noise, q: int, rounds: int) -> Array:
    """B'(B S B')^+ B, S without what q's edges share, in floats."""
    W, n = matrix(A), len(A)
    rows = [
        np.eye(n)[q],
        *(np.linalg.matrix_power(W, t)[j] for j in np.flatnonzero(A[q]) for t in range(rounds)),
    ]
    pairs = noise.pairs.copy()
    pairs[q] = pairs[:, q] = 0
    S = np.diag(noise.own + pairs.sum(axis=1)) - pairs
    root = np.linalg.cholesky(S)
    seen = np.array(rows) @ root  # of S^-1/2 x
    span = np.linalg.pinv(seen, rcond=1e-9) @ seen
    half = np.linalg.inv(root)
    return half.T @ span @ half


def test_on_a_ring_of_six_two_messages_tell_all_where_their_sum_says_a_third() -> None:
    A = recomputed.ring(6)
    assert np.allclose(matrix(A), recomputed.uniform(A))
    found = shares(A, continuous(A), 2)
    assert found[0, 2] == 1.0
    assert recomputed.summed(recomputed.uniform(A), 2, 0)[2] == pytest.approx(1 / 3)
    assert found[0].tolist() == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("ratio", [0.0, 3.0])
@pytest.mark.parametrize(("nodes", "graphs"), [(5, 30), pytest.param(6, 142, marks=pytest.mark.slow)])
def test_every_pair_of_every_small_graph_is_as_brute_force_has_it(
    nodes: int, graphs: int, ratio: float
) -> None:
    checked, stream = 0, np.random.default_rng(0)
    for A in connected_graphs(nodes):
        n = len(A)
        noise = continuous(A, ratio, stream.uniform(0.2, 1.0, n))
        for rounds in (1, 2, 3, 4) if nodes == 6 else (1 + checked % 4,):
            found = shares(A, noise, rounds)
            for q in range(n):
                true = np.diag(brute_force(A, noise, q, rounds))
                others = [i for i in range(n) if i != q]
                assert found[q, others] == pytest.approx(true[others], abs=1e-7)
        everything = pairwise_gaussian.exposures(noise.own, noise.pairs, 1)
        assert (shares(A, noise, 4).max(axis=0) <= everything * (1 + 1e-9)).all()
        checked += 1
    assert checked == graphs


def test_who_sees_all_messages_learns_what_a_coalition_of_one_does() -> None:
    A = np.ones((6, 6)) - np.eye(6)
    noise = continuous(A, 3.0)
    assert shares(A, noise, 1)[0, 1:] == pytest.approx(
        pairwise_gaussian.exposures(noise.own, noise.pairs, 1)[1:]
    )


def test_what_is_shared_along_edges_of_ones_own_hides_nothing_from_one() -> None:
    """Three leaves of a star share with the centre alone, which knows it all; an eavesdropper does not."""
    A = np.zeros((4, 4))
    A[0, 1:] = A[1:, 0] = 1.0
    noise = continuous(A, 10.0)
    assert shares(A, noise, 1)[0, 1:] == pytest.approx(1.0)
    assert pairwise_gaussian.exposures(noise.own, noise.pairs, 0)[1] == pytest.approx(1 / 3.894, rel=1e-3)


def test_gradients_at_hidden_models_tell_more_than_the_matrix_of_averages() -> None:
    """A path 0 - 1 - 2, five steps: a loss of curvature 1/step at node 2 takes the noise of its model out again."""
    W, steps = matrix(np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])), 5

    def told(curvature: float) -> float:
        """mu^2 of node 2 for node 0, whose gradient of each step changes by 1 or -1."""
        x, noise, change = np.zeros((3, 4 * steps)), [], []  # of the noise of all steps, then of the changes
        for t in range(steps):
            g = np.diag([0.0, 0.0, curvature]) @ x
            g[:, 3 * t : 3 * t + 3] += np.eye(3)
            g[2, 3 * steps :] = np.arange(steps) == t  # in all, whatever its model has become
            y = x - g
            own = np.zeros(4 * steps)
            own[3 * t] = 1.0
            for row in (y[1], own):
                noise.append(row[: 3 * steps])
                change.append(row[3 * steps :])
            x = W @ y
        N, a = np.array(noise), np.array(change)
        P = a.T @ np.linalg.pinv(N @ N.T) @ a
        return max(np.array(signs) @ P @ signs for signs in product((-1.0, 1.0), repeat=steps))

    assert told(1.0) / told(0.0) == pytest.approx(1.442, rel=1e-3)


def test_several_participations_are_refused_for_a_sum_over_scalars_says_too_little() -> None:
    """Two differences of three gradients: three vectors at 120 degrees are worth more than any three numbers."""
    B = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    P = B.T @ np.linalg.pinv(B @ B.T) @ B
    scalars = max(a @ P @ a for a in np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T)
    angles = 2 * math.pi / 3 * np.arange(3)
    vectors = np.cos(angles[:, None] - angles) * P
    assert scalars == pytest.approx(8 / 3)
    assert vectors.sum() == pytest.approx(3.0)
    assert np.abs(P).sum() >= vectors.sum()


@pytest.mark.parametrize("mixing", [0, 2])
@pytest.mark.parametrize(
    ("name", "flags"),
    [("gossip", {"momentum": "0.5"}), ("accelerated", {"mixes": 3}), ("tracking", {}), ("fixed-point", {})],
)
def test_what_neighbours_really_send_spans_what_is_counted(
    name: str, flags: dict[str, Any], mixing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, sent = Network.exchange, []
    monkeypatch.setattr(
        Network, "exchange", lambda self, rows: (sent.append(np.array(rows)), exchange(self, rows))[1]
    )
    released: list[Array] = []
    noisy = Gradients.noisy

    def noting(self: Gradients, k: int, values: Array) -> Array:
        released.append(noisy(self, k, values))
        return released[-1]

    monkeypatch.setattr(Gradients, "noisy", noting)
    radmm.solve(name, **{**ONCE, **flags, "mixing": str(mixing), "average": "last"})
    (x,), A = released, topology.load("er5").adjacency().toarray()
    n = len(x)
    assert len(sent) == flags.get("mixes", 1) + mixing
    messages = np.concatenate([rows.reshape(n, -1, x.shape[1]) for rows in sent], axis=1) @ np.linalg.pinv(x)
    for q in range(n):
        real = np.concatenate([np.eye(n)[[q]], *messages[np.flatnonzero(A[q])]])
        counted = np.array(list(network.seen(network.averaging(A), q, len(sent)).rows.values())).astype(float)
        ranks = [
            np.linalg.matrix_rank(rows, tol=1e-8) for rows in (real, counted, np.concatenate([real, counted]))
        ]
        assert ranks == [len(counted)] * 3


# -- attacks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.0, 2.0])
def test_an_attack_comes_near_to_what_is_certified_and_never_above(ratio: float) -> None:
    """Discrete noise, the messages of two rounds on a torus, and the best test of one node on another."""
    A, plays, moved, s = recomputed.torus(3), 20000, 600, 512.0
    n, q, i = len(A), 0, 4
    noise = network.Noise(np.full(n, s**2), (ratio * s) ** 2 * A, np.ones(n))
    mu = moved * math.sqrt(network.learned(network.averaging(A), noise, q, 2)[i])
    assert 0.05 < (mu / moved * s) ** 2 < 0.95
    W, stream = matrix(A), Simulation(5).at(0, 1, 1)
    x = stream.discrete_normal(s, plays * n).reshape(plays, n).astype(float)
    for a, b in np.argwhere(np.triu(A)):
        v = stream.discrete_normal(max(ratio, 1.0) * s, plays) * (ratio > 0) * (q not in (a, b))
        x[:, a] += v
        x[:, b] -= v
    there = x.copy()
    there[:, i] += moved
    near = np.flatnonzero(A[q])
    B = np.concatenate([np.eye(n)[[q]], np.eye(n)[near], W[near]])
    pairs = noise.pairs.copy()
    pairs[q] = pairs[:, q] = 0
    S = np.diag(noise.own + pairs.sum(axis=1)) - pairs
    best = B.T @ np.linalg.pinv(B @ S @ B.T) @ B[:, i]  # the likelihood ratio of what is received
    found = trade_off(gaussian_claim(mu, ""), there @ best, x @ best, delta=1e-5)
    assert not found.refuted
    assert found.mu is not None
    assert 0.85 * mu < found.mu <= mu
    assert trade_off(gaussian_claim(0.85 * mu, ""), there @ best, x @ best, delta=1e-5).refuted


def test_where_the_grid_shows_through_nothing_is_certified() -> None:
    """x_2 + 10^6 x_3, of whole numbers below that, tells both: what noise on the reals says is false there."""
    n, far = 4, Fraction(1, 10**6)
    W = np.array([[Fraction(0)] * n for _ in range(n)])
    for a, b, weight in ((0, 1, Fraction(1, 2)), (1, 2, far), (1, 3, Fraction(1, 3))):
        W[a, b] = W[b, a] = weight
    W = W + np.diag(1 - W.sum(axis=1))
    s = 2.0**9
    reals = network.learned(W, network.Noise(np.full(n, s**2), np.zeros((n, n)), np.zeros(n)), 0, 2)
    assert reals[2] * s**2 < 1e-10
    gridded = network.learned(W, network.Noise(np.full(n, s**2), np.zeros((n, n)), np.ones(n)), 0, 2)
    assert np.isinf(gridded[[2, 3]]).all()
    x = np.random.default_rng(0).integers(-5000, 5000, 2)
    told = int(
        (Fraction(int(x[0])) * far + Fraction(int(x[1])) / 3) * 3 * 10**6
    )  # what node 0 takes off node 1's sum
    assert told - 10**6 * round(told / 10**6) == 3 * x[0]


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_noise_of_few_steps_of_its_grid_hides_nothing_that_is_sent(graph: str) -> None:
    """Of deviation 1 or 255, on edges that the sender shares; 2^8 is enough."""
    A = recomputed.ring(5) if graph == "ring" else np.ones((5, 5)) - np.eye(5)
    for c, said in ((1.0, False), (255.0, False), (256.0, True)):
        found = shares(A, network.Noise(np.full(5, 2.0**20), c**2 * A, np.ones(5)), 1)
        assert np.isfinite(found[0, 1]) == said
        assert (found >= 0).all()


def test_units_of_a_grid_change_nothing() -> None:
    A, unit = recomputed.torus(3), 2.0**-30
    for noise in (network.Noise(np.full(9, 2.0**40), 9 * 2.0**40 * A, np.ones(9)), continuous(A, 3.0)):
        finer = network.Noise(noise.own * unit**2, noise.pairs * unit**2, noise.spacing * unit)
        assert shares(A, finer, 2) * unit**2 == pytest.approx(shares(A, noise, 2), rel=1e-12)
        assert np.isfinite(shares(A, finer, 2)).all()


def test_a_node_that_is_in_no_message_is_hidden_on_any_grid() -> None:
    A = recomputed.ring(8)
    noise = network.Noise(np.full(8, 2.0**18), 0 * A, np.ones(8))
    assert shares(A, noise, 2)[0, [3, 4, 5]].tolist() == [0.0] * 3


# -- runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rng", ["simulation", "secure"])
@pytest.mark.parametrize("noise", [{}, SHARED])
def test_a_run_of_one_gradient_says_what_each_distance_learns(
    noise: dict[str, Any], rng: str, tmp_path: Path
) -> None:
    flags = {**ONCE, **noise, "rng": rng, "topology": "ring:8", "account": str(tmp_path / "account")}
    run = radmm.solve("gossip", **flags)
    told = run.summary["by_distance"]
    far = {line["distance"]: line for line in told["distances"]}
    assert told["missed"] == ""
    assert [far[d]["pairs"] for d in range(1, 5)] == [16, 16, 16, 8]
    assert far[3]["epsilon"] == far[4]["epsilon"] == 0.0  # two messages reach two edges
    assert (
        0
        < far[2]["epsilon"]
        <= far[1]["epsilon"]
        <= told["most"]
        <= run.epsilons["coalition:1"] * (1 + 1e-12)
    )
    if noise:
        assert far[1]["epsilon"] < 0.99 * told["most"]
    else:
        assert far[2]["epsilon"] == pytest.approx(run.epsilon, rel=1e-3)
    assert any("SHAKE-256" in line for line in run.said) == bool(noise)
    assert "what the rounding of messages tells is not covered" in "\n".join(run.said)


@pytest.mark.parametrize(
    ("name", "flags", "missed"),
    [
        ("gossip", {"iterations": 2}, "one-gradient"), ("tracking", {"iterations": 3}, "one-gradient"),
        ("preconditioned", {"iterations": 20}, "one-gradient"), ("gossip", {"drop_out": "0.2:0.5"}, "all-rounds"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_unbounded_by_name(
    name: str, flags: dict[str, Any], missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = radmm.solve(name, **{**ONCE, **flags})
    assert run.summary["by_distance"]["missed"] == missed
    assert run.summary["by_distance"]["distances"] == []
    assert any("unbounded" in line and f"({missed})" in line and "What stands" in line for line in run.said)


def test_rows_that_two_nodes_hold_leave_no_bound_by_distance(tmp_path: Path) -> None:
    """Said as it is: not as what would be needed."""
    rows = np.random.default_rng(0).normal(size=(5, 40, 3)) / 10
    rows[3] = rows[0]
    files = [(X, np.sign(X[:, 0])) for X in rows]
    run = radmm.solve("ring:5", files, algorithm="gossip", iterations=1, epsilon=1.0, adjacency="replace",
        by_distance=True, account=str(tmp_path / "account"))  # fmt: skip
    assert run.epsilon > 1.4
    assert run.summary["by_distance"]["most"] == run.epsilon
    (line,) = (line for line in run.said if "by distance" in line)
    assert "unbounded: more than --epsilon 1 is spent" in line
    assert not run.summary["by_distance"]["distances"]


def test_a_run_that_goes_on_is_no_run_of_one_gradient(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    radmm.solve("gossip", **ONCE, out=folder, checkpoint_every=1)
    assert read_json(folder / "summary.json")["by_distance"]["missed"] == ""
    assert radmm.main(["--resume", str(folder), "--iterations", "2"]) == 0
    assert read_json(folder / "summary.json")["by_distance"]["missed"] == "one-gradient"


def test_methods_of_ones_own_are_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom distadmm.algorithm import register\n"
        "from distadmm.methods.gossip.gossip import Gossip\n\n\n"
        '@register("mine")\n@dataclass(frozen=True)\nclass Mine(Gossip):\n    """A step."""\n'
    )
    run = radmm.solve(str(file), **ONCE)
    assert run.summary["by_distance"]["missed"]
    assert not run.summary["by_distance"]["distances"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"epsilon": None, "adjacency": None, "rng": "secure"}, "add --epsilon"),
        ({"topology": "ring:65"}, "65 nodes"),
    ],
)
def test_what_cannot_be_said_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        radmm.solve("gossip", **{**ONCE, **flags})


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_all_ranks_refuse_together_what_hides_nothing(world: World) -> None:
    """In one line: no rank ends the job of the others."""
    config = radmm.configure("gossip", data="tiny", topology="er5", by_distance=True)
    with pytest.raises(InputError, match="--by-distance says what noise hides") as found:
        radmm.PROGRAMME.price(prepare(config, world))
    assert found.value.shared


@pytest.mark.slow
@pytest.mark.mpi(min_size=2)
def test_the_same_is_said_on_any_number_of_ranks(world: World) -> None:
    config = radmm.configure("gossip", **{**ONCE, **SHARED, "topology": "ring:8"})
    said = [plan_of(prepare(config, ranks)).learned for ranks in (world, World())]  # type: ignore[union-attr]
    assert said[0] is not None
    assert len(said[0].lines) == 4
    assert said[0] == said[1]


def test_epsilon_by_distance_is_that_of_mu() -> None:
    A = recomputed.ring(6)
    lines = network.by_distance(A, continuous(A), np.full(6, 0.5), 2, 1e-5, math.inf)
    assert [(line.distance, line.pairs) for line in lines] == [(1, 12), (2, 12), (3, 6)]
    assert [line.epsilon for line in lines] == [gaussian.epsilon(0.5, 1e-5)] * 2 + [0.0]
