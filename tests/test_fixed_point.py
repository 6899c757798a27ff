"""Private ADMM as a noisy fixed-point iteration: its equations by other means, what a record moves, whole runs."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from distadmm import radmm
from distadmm.commands import audit as audit_command
from distadmm.commands import ledger as ledger_command
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.gossip.private import plan_of, sensitivities
from distadmm.methods.gossip.release import Gradients
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.loss_check import require_true
from distadmm.problems.losses import LOSSES, Cut
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.setup import prepare
from distadmm.testing import contracts

Array = np.ndarray
PLAIN: dict[str, Any] = {"data": "tiny", "weight": 20.0, "rho": 1.0, "observe": "none"}
PRIVATE: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "rng": "simulation",
    "iterations": 6, "observe": "none",
}  # fmt: skip


# -- the equations ------------------------------------------------------------------------------------


def prox(A: Array, v: Array, gamma: float, ridge: float, most: float = np.inf) -> Array:
    """argmin of the mean logistic loss, slopes cut to `most`, + ridge |x|^2/2 + |x - v|^2/(2 gamma); labels are folded
    into A."""
    bend = np.log(1 / most - 1) if most < 1 else -np.inf  # where the slope is -most

    def target(x: Array) -> tuple[float, Array]:
        z = A @ x
        loss = np.logaddexp(0, -np.maximum(z, bend)) + np.minimum(most, 1e9) * np.maximum(bend - z, 0)
        slope = -np.minimum(1 / (1 + np.exp(np.minimum(z, 700))), most)
        g = A.T @ slope / len(A) + ridge * x + (x - v) / gamma
        return loss.mean() + ridge * x @ x / 2 + (x - v) @ (x - v) / (2 * gamma), g

    found = minimize(target, v, jac=True, method="BFGS", options={"gtol": 1e-11, "maxiter": 5000})
    return found.x  # type: ignore[no-any-return]


def mirrored(node: Any, gamma: float, relaxation: float, noise: Array, most: float = np.inf) -> Array:
    """The models after as many steps as there is noise for, in the letters of the method's docstring."""
    A = forecast.adjacency(node.network)
    assert A is not None
    W, ridge = smoothing.matrix(A), node.facts.ridge / node.facts.weight
    z = node.start.copy()
    u, t = z.copy(), z.copy()
    for e in noise:
        before = u.copy()
        for i, each in enumerate(node.problem.objectives):
            x = prox(each.A, 2 * z[i] - u[i], gamma, ridge, most)
            u[i] = u[i] + 2 * relaxation * (x - z[i] - gamma * e[i])
        t = W @ (t + u - before)
        z = t
    return z  # type: ignore[no-any-return]


@pytest.mark.parametrize("topology", ["complete:5", "ring:5"])
def test_a_run_is_the_recursion(topology: str) -> None:
    config = radmm.configure("fixed-point", topology=topology, **PLAIN)
    node = prepare(config, World()).node
    gamma = 10.0 * config.algorithm.unit(node)
    expected = mirrored(node, gamma, 0.4, np.zeros((4, *node.start.shape)))
    run = radmm.solve("fixed-point", topology=topology, iterations=4, relaxation="0.4", **PLAIN)
    assert run.models == pytest.approx(expected, abs=1e-7)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("topology", ["complete:5", "er5"])
def test_a_private_run_is_the_recursion_under_noise_and_cut_slopes(topology: str) -> None:
    flags = {**PRIVATE, "topology": topology, "mixing": "0", "average": "last", "gradient_clip": "0.3"}
    prepared = prepare(radmm.configure("fixed-point", **flags), World())
    plan = plan_of(prepared)
    use, node = plan.recipe.constants, prepared.node
    noise = np.stack([
        [q.sigma * Simulation(0).at(i, 1, k).standard_normal(node.problem.dimension)
         for i, q in enumerate(plan.recipe.queries)]
        for k in range(1, 7)
    ])  # fmt: skip
    expected = mirrored(node, use.step, use.relaxation, noise, 0.3)
    assert radmm.solve("fixed-point", **flags).models == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(expected, mirrored(node, use.step, use.relaxation, noise), atol=1e-4)


def test_on_a_complete_graph_everybody_has_the_mean() -> None:
    run = radmm.solve("fixed-point", topology="complete:5", iterations=5, **PLAIN)
    assert run.models == pytest.approx(np.tile(run.models.mean(axis=0), (5, 1)), abs=1e-13)


@pytest.mark.parametrize(
    "flags", [{"rate": "1"}, {"relaxation": "0.5"}, {"rate": "30", "relaxation": "0.25"}]
)
def test_the_fixed_point_is_the_pooled_optimum_whatever_the_constants(flags: dict[str, str]) -> None:
    """Of rows that lie apart: each node has its own."""
    shared = {**PLAIN, "observe": "800", "rho": 20.0, "topology": "er5", "iterations": 800}
    run = radmm.solve("fixed-point", **shared, **flags)
    assert abs(run.history[-1].mean_model_gap) < 1e-8
    assert run.history[-1].consensus_error < 1e-4


# -- one record ---------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    loss=st.sampled_from(["logistic", "huber", "smooth-hinge", "squared"]),
    adjacency=st.sampled_from(["replace", "add-remove", "label"]),
    clip=st.sampled_from([0.1, 0.5, 0.8, 3.0]), rate=st.floats(-14, 4), tolerance=st.sampled_from([1e-10, 0.05]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
@example("logistic", "replace", 0.1, -12.5, 1e-10, 0)
def test_no_record_moves_a_release_by_more_than_is_charged(
    loss: str, adjacency: str, clip: float, rate: float, tolerance: float, seed: int
) -> None:
    stream = np.random.default_rng(seed)
    X = stream.normal(size=(6, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = stream.choice([-1.0, 1.0], size=6) * (10 if loss == "squared" else 1)
    X_other, y_other, keep = X.copy(), y.copy(), np.arange(6)
    if adjacency == "replace":
        X_other[-1], y_other[-1] = -X[-1] if seed % 2 else stream.permutation(X[-1]), y[seed % 5]
    elif adjacency == "label":
        y_other[-1] = -y[-1]
    else:
        keep = keep[:-1]
    flags = {**PRIVATE, "loss": loss, "adjacency": adjacency, "public_rows": 6, "gradient_clip": str(clip)}
    config = radmm.configure("fixed-point", **flags)
    v, shared = (
        stream.normal(size=(1, 3)) * 10.0 ** stream.uniform(-2, 2),
        {"weight": 7.0, "ridge": 0.3, "divisor": 6},
    )
    use = SimpleNamespace(step=10.0**rate)

    def released(X: Array, y: Array) -> tuple[Array, Any]:
        node: Any = SimpleNamespace(
            problem=Problem([GeneralisedLinear(X, y, LOSSES[loss], **shared)], tolerance),
            facts=SimpleNamespace(weight=7.0), recall=lambda name, k, make: make(),
            release=SimpleNamespace(private=True, certify=lambda k, residual: left.append(residual)),
        )  # fmt: skip
        return config.algorithm.raw(1, v, clip, node, use)[0], node

    left: list[Array] = []
    one, node = released(X, y)
    other, _ = released(X_other[keep], y_other[keep])
    assert rate < 0 or max(left) <= tolerance
    if max(left) > tolerance:  # of steps so short that rounding shows: no bound
        return
    charged = sensitivities(SimpleNamespace(config=config, node=node), clip)[0]  # type: ignore[arg-type]
    assert np.linalg.norm(one - other) <= charged


def test_what_a_record_may_move_is_reached() -> None:
    """By opposite rows whose slopes are cut; a solve's residual comes on top."""
    X, y = np.array([[1.0, 0.0]]), np.ones(1)
    config = radmm.configure("fixed-point", **PRIVATE)
    found = []
    for rows in (X, -X):
        problem = Problem([GeneralisedLinear(rows, y, LOSSES["logistic"])], 1e-12)
        node: Any = SimpleNamespace(
            problem=problem, facts=SimpleNamespace(weight=1.0), recall=lambda name, k, make: make(),
            release=SimpleNamespace(private=False),
        )  # fmt: skip
        found.append(config.algorithm.raw(1, np.zeros((1, 2)), 0.3, node, SimpleNamespace(step=1e-3))[0])
    charged = sensitivities(SimpleNamespace(config=config, node=node), 0.3)[0]  # type: ignore[arg-type]
    assert 0.6 * (1 - 1e-6) < np.linalg.norm(found[0] - found[1]) <= charged
    node.problem.tolerance = 0.1
    assert sensitivities(SimpleNamespace(config=config, node=node), 0.3)[0] == pytest.approx(0.8)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["logistic", "huber", "smooth-hinge", "squared"])
def test_a_cut_loss_is_a_loss(name: str) -> None:
    """Its value belongs to its slope, which belongs to its curvature, and is nowhere steeper than the cut."""
    cut = Cut(LOSSES[name], 0.3)
    require_true(name, cut)
    z, y = np.linspace(-40, 40, 999), np.where(np.arange(999) % 2, 1.0, -1.0)
    assert np.abs(cut.slope(z, y)).max() == 0.3
    middle = LOSSES[name].slope(z, y)
    few = np.abs(middle) < 0.3
    assert np.array_equal(cut.value(z, y)[few], LOSSES[name].value(z, y)[few])
    step = 1e-6
    assert (cut.value(z + step, y) - cut.value(z - step, y)) / (2 * step) == pytest.approx(
        cut.slope(z, y), abs=1e-5
    )


def test_a_solve_that_misses_its_tolerance_has_no_bound() -> None:
    flags = {**PRIVATE, "tolerance": 1e-30, "iterations": 2}
    run = radmm.solve("fixed-point", **flags)
    assert math.isinf(run.epsilon)
    assert "a solve ended at gradient norm" in run.statement
    cut = radmm.solve("fixed-point", **{**flags, "adjacency": "node"})
    assert cut.epsilon <= 8.0  # whatever the solve ends at is cut


# -- whole runs ---------------------------------------------------------------------------------------


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_same_bits_under_noise_on_ranks(world: World) -> None:
    contracts.same_bits("fixed-point", world, **{**PRIVATE, "progress": "none"})


def test_a_private_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = radmm.solve("fixed-point", **PRIVATE).models
    noisy, made = Gradients.noisy, []

    def noting(self: Gradients, k: int, values: Array) -> Array:
        made.append(k)
        if len(made) == 4:
            raise KeyboardInterrupt
        return noisy(self, k, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gradients, "noisy", noting)
        with pytest.raises(KeyboardInterrupt):
            radmm.solve("fixed-point", out=tmp_path / "run", **PRIVATE, checkpoint_every=2)
    options = radmm.PROGRAMME.read(["--resume", str(tmp_path / "run"), "--progress", "none"])
    assert shell.work(radmm.PROGRAMME, options, World()) == 0
    assert np.array_equal(read_npz(tmp_path / "run" / "models.npz")["models"], whole)
    ledger = (tmp_path / "run" / "ledger" / "node-0000.jsonl").read_text()
    assert (ledger.count('"kind":"release"'), ledger.count('"kind":"charge"')) == (6, 0)


@pytest.mark.parametrize("trust", ["any", "coalition:1"])
def test_its_sentence_names_solves_and_the_auditor_finds_nothing(
    trust: str, tmp_path: Path, capsys: Any
) -> None:
    flags = {**PRIVATE, "topology": "complete:5", "trust": trust, "epsilon": 1.0, "rng": "secure"}
    run = radmm.solve("fixed-point", out=tmp_path / "run", account=str(tmp_path / "account"), **flags)
    assert 0.99 < run.epsilon <= 1.0
    assert ledger_command.main(["show", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Gradients are those where proximal steps of convex losses end, solved to 1e-10" in said
    assert ("share in part" in said) == (trust != "any")
    assert audit_command.main([str(tmp_path / "run"), "--runs", "60"]) == 0


def test_all_rows_of_a_node_may_be_others(tmp_path: Path, capsys: Any) -> None:
    flags = {**PRIVATE, "adjacency": "node", "gradient_clip": "0.01"}
    run = radmm.solve("fixed-point", out=tmp_path / "run", **flags)
    assert 7.9 < run.epsilon <= 8.0
    plan = plan_of(prepare(radmm.configure("fixed-point", **flags), World()))
    assert {query.sensitivity for query in plan.recipe.queries} == {0.02}
    ledger_command.main(["show", str(tmp_path / "run")])
    assert "for replacing all rows held by one node" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"relaxation": "0"}, "--relaxation is 0; needed: a number above 0, at most 1"),
        ({"relaxation": "far"}, "--relaxation is 'far'"), ({"loss": "sigmoid"}, "--loss sigmoid is not convex"),
        ({"loss": "hinge"}, "--loss hinge has a kink"), ({"message_loss": 0.1}, "leave out --message-loss"),
        ({"momentum": "0.5"}, "momentum"), ({"mechanism": "output"}, "has no --mechanism"),
    ],
)  # fmt: skip
def test_what_it_has_no_meaning_for_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        radmm.solve("fixed-point", **{**PRIVATE, **flags})


def test_without_noise_slopes_may_be_cut() -> None:
    free, cut = (
        radmm.solve("fixed-point", topology="er5", iterations=60, **PLAIN, **flags).models
        for flags in ({}, {"gradient_clip": "0.2"})
    )
    assert not np.allclose(free, cut, atol=1e-3)
