"""Losses and regularisers that are not convex: refused where nothing is known of them, stationary points elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distadmm import istdp, radmm, sharing
from distadmm.errors import DONE, USAGE, InputError
from distadmm.methods.sharing import stationary
from distadmm.methods.sharing.admm import Problem
from distadmm.methods.sharing.averaged import Averaged
from distadmm.methods.sharing.gauss_seidel import GaussSeidel
from distadmm.methods.sharing.jacobi import Corrected, Paper
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.concave import MCP
from distadmm.problems.loss_check import require_true
from distadmm.problems.losses import LOSSES, Logistic, Sigmoid, Squared, least_curvature, smoothness
from distadmm.problems.prox import prox
from distadmm.problems.regularisers import Box, Regulariser, Whole, regulariser_named
from distadmm.ranks.star import Star

SIGMOID = LOSSES["sigmoid"]
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _instance(problem: Problem, seed: int = 0, rows: int = 40, widths: tuple[int, ...] = (3, 4, 2)) -> Seat:
    """Three parties of which the last repeats a column of the first: no block needs full rank, nor do all together."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(rows, d)) for d in widths]
    blocks[-1][:, 0] = blocks[0][:, 0]
    labels = np.sign(sum(b @ rng.normal(size=b.shape[1]) for b in blocks) + rng.normal(size=rows))
    columns = {m: Columns(b, centre=problem.intercept) for m, b in enumerate(blocks, 1)}
    return Seat(Star(parties=len(blocks)), problem, columns, labels, rows)


def _slopes(seat: Seat) -> dict:
    return {m: block.adjoint for m, block in seat.blocks.items()}


@settings(QUIET, max_examples=50)
@given(st.floats(-30, 30), st.sampled_from([-1.0, 1.0]), st.floats(1.001, 50), st.floats(-50, 50))
def test_the_z_update_of_a_loss_that_is_not_convex_is_a_global_minimum(n, y, times, start) -> None:
    rho, grid = times * smoothness(SIGMOID), np.linspace(-60, 60, 40_001)
    label = np.array([y])
    z = prox(SIGMOID, label, rho, np.array([n]), np.array([start]))

    def h(z):
        return SIGMOID.value(z, y) + 0.5 * rho * (z - n) ** 2

    assert h(z)[0] <= h(grid).min() + 1e-12
    assert abs(SIGMOID.slope(z, label) + rho * (z - n))[0] <= 1e-12 * (1 + rho * abs(n))


PROBLEMS = {
    "sigmoid": Problem(SIGMOID, 0.3, intercept=True),
    "sigmoid, l1": Problem(SIGMOID, 0.3, Regulariser(1.0, 0.0)),
    "sigmoid, mcp": Problem(SIGMOID, 0.4, regulariser_named("mcp:1.5"), intercept=True),
    "logistic, scad": Problem(LOSSES["logistic"], 0.4, regulariser_named("scad")),
    "sigmoid, box": Problem(SIGMOID, 0.1, region=Box(-0.4, 0.4)),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("form", [Corrected, Averaged])
def test_every_iteration_descends_by_what_is_proved_and_bounds_v(name: str, form: type) -> None:
    """The Lagrangian falls by A sum |delta|^2 + B |dz|^2 + kappa |dx|^2 at least, and V <= K times its fall."""
    seat = _instance(PROBLEMS[name])
    problem, labels, rows = seat.problem, seat.labels, seat.rows
    rho = 1.02 * stationary.least_descending(problem.loss)
    algorithm = form(
        rho=rho, rho_rule="fixed", tolerance=0.0, **({"theta": "bound"} if form is Corrected else {})
    )
    state = algorithm.init(seat)
    squares = {m: float(block.spectrum[0][-1]) for m, block in seat.blocks.items()}
    found = stationary.rate(problem, rho, state.tau, 3.0, squares, rows)
    assert found.proved
    first = worth = stationary.lagrangian(problem, labels, state, state.x)
    seen = []
    for k in range(1, 60):
        after = algorithm.step(k, state, seat)
        lower = stationary.lagrangian(problem, labels, after, after.x)
        moved = (
            sum(np.sum((after.v[m] - state.v[m]) ** 2) for m in seat.blocks) + rows * (after.b - state.b) ** 2
        )
        bent = sum(np.sum((after.x[m] - state.x[m]) ** 2) for m in seat.blocks)
        least = found.moved * moved + found.turned * np.sum((after.z - state.z) ** 2) + found.bent * bent
        assert worth - lower >= least - 1e-9 * abs(worth)
        V = stationary.measure(problem, labels, after, after.x, _slopes(seat))
        assert found.K * (worth - lower) >= V - 1e-8
        seen.append(V)
        assert min(seen) <= found.K * first / k  # the objective is above zero
        state, worth = after, lower


@pytest.mark.parametrize(
    "form", [Corrected(tolerance=0.0), GaussSeidel(tolerance=0.0)], ids=["parallel", "in turn"]
)
@pytest.mark.parametrize("reg", ["l2", "mcp:20"])
def test_where_it_rests_is_a_stationary_point_of_the_objective_itself(form, reg: str) -> None:
    """By the slopes of sum l(Dx + b) + lambda R(x), which know nothing of z, y and V."""
    seat = _instance(Problem(SIGMOID, 0.6, regulariser_named(reg), intercept=True))
    state = form.init(seat)
    for k in range(1, 401):
        state = form.step(k, state, seat)
    score = sum(block.apply(state.x[m]) for m, block in seat.blocks.items()) + state.b
    g = SIGMOID.slope(score, seat.labels)
    assert abs(g.sum()) < 1e-2
    for m, block in seat.blocks.items():
        x, pull = state.x[m], block.adjoint(g)
        if reg == "l2":
            np.testing.assert_allclose(pull + 0.6 * x, 0.0, atol=1e-3)
        else:
            slope = 0.6 * seat.problem.reg.folded.derivatives(x)[0]
            assert np.all(np.where(x == 0, np.abs(pull) <= 0.6 + 2e-2, np.abs(pull + slope) < 2e-2))
    assert stationary.measure(seat.problem, seat.labels, state, state.x, _slopes(seat)) < 1e-3


def test_at_a_kink_v_takes_the_nearest_subgradient() -> None:
    """Records rest at the hinge's kink with duals inside (-1, 0): `slope`, one end of that, is never near them."""
    seat = _instance(Problem(LOSSES["hinge"], 0.4, regulariser_named("mcp"), intercept=True))
    form = Corrected(rho=0.3, tolerance=0.0)
    state = form.init(seat)
    for k in range(1, 1001):
        state = form.step(k, state, seat)
    u = state.y + state.rho * (state.total - state.z)
    inside = (np.abs(u) > 1e-3) & (np.abs(u) < 1 - 1e-3)
    assert inside.sum() > 2
    assert np.abs(1 - seat.labels * state.z)[inside].max() < 1e-12
    assert stationary.measure(seat.problem, seat.labels, state, state.x, _slopes(seat)) < 1e-3
    assert np.sum((seat.problem.loss.slope(state.z, seat.labels) - u)[inside] ** 2) > 0.02
    off = state._replace(z=np.where(inside, state.z + 0.01, state.z))
    assert stationary.measure(seat.problem, seat.labels, off, state.x, _slopes(seat)) > 0.1


def test_a_kink_under_a_folded_penalty_is_named_before_the_start(tmp_path, capsys) -> None:
    asked = ["--data", "tiny", "--reg", "scad", "--iterations", "2", "--out", str(tmp_path / "r")]
    assert sharing.main([*asked, "--loss", "hinge", "--dry-run"]) == DONE
    assert "this loss has a kink" in capsys.readouterr().out
    assert sharing.main([*asked, "--loss", "hinge"]) == DONE
    shown = capsys.readouterr()
    assert shown.err.startswith("Assumption 1 of the paper")
    assert "rho above inf" not in shown.out
    for covered in (["--loss", "smooth-hinge"], ["--loss", "hinge", "--reg", "l1"]):
        assert sharing.main([*asked, *covered, "--dry-run"]) == DONE
        assert "kink" not in "".join(capsys.readouterr())


@settings(QUIET, max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from(["mcp:1.2", "mcp", "scad", "scad:2.1"]), st.floats(0.01, 5))
def test_an_x_update_under_a_folded_penalty_never_raises_its_objective(
    seed: int, text: str, lam: float
) -> None:
    rng, reg = np.random.default_rng(seed), regulariser_named(text)
    block, w, x = Columns(rng.normal(size=(12, 4))), 3 * rng.normal(size=12), 2 * rng.normal(size=4)

    def worth(x):
        return lam * reg.value(x) + 0.35 * np.sum((block.apply(x) - w) ** 2)

    for _ in range(60):
        new = minimise(block, w, 0.7, lam, reg, Whole(), x)
        assert worth(new) <= worth(x) + 1e-9 * (1 + worth(x))
        moved, x = np.abs(new - x).max(), new
    if moved < 1e-9:  # at rest: 0 is a subgradient
        pull = 0.7 * block.adjoint(block.apply(x) - w)
        assert np.all(
            np.where(
                x == 0, np.abs(pull) <= lam + 1e-5, np.abs(pull + lam * reg.folded.derivatives(x)[0]) < 1e-5
            )
        )


def test_a_start_where_the_loss_is_flat_is_not_taken_for_a_solution(tmp_path, capsys) -> None:
    """The best constant of a sigmoid lies at infinity, where nothing leads away: every form starts from zero."""
    asked = ["--data", "tiny", "--loss", "sigmoid", "--iterations", "150"]
    assert sharing.main([*asked, "--out", str(tmp_path / "sound")]) == DONE
    said = capsys.readouterr().out
    assert "not convex: what was found is a stationary point" in said
    assert "proved: rho = 0.2021 lowers the Lagrangian" in said
    assert sharing.main([*asked, "--out", str(tmp_path / "paper"), "--form", "paper"]) == DONE
    assert (
        "no bound: proved is descent for rho above 0.1925 (now 0.2021) and 1 + tau above theta/2 (now 1, 1)"
        in (capsys.readouterr().out)
    )
    sound, paper = (
        json.loads((tmp_path / name / "summary.json").read_text())["comparison"]["this run, 2 parties"]
        for name in ("sound", "paper")
    )
    assert min(sound["accuracy"], paper["accuracy"]) > 0.9
    assert sound["objective"] < paper["objective"]
    lines = (tmp_path / "sound" / "history.csv").read_text().splitlines()
    V = [float(line.rpartition(",")[2]) for line in lines[1:]]
    assert V[-1] < 1e-4 * V[0]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ["--penalty-rho", "0.09"],
            "--penalty-rho is 0.09 and the loss is not convex; needed: more than L = 0.09623",
        ),
        (["--penalty-rho", "0.0001", "--mean"], "needed: more than L = 0.0002115"),
        (["--rho-rule", "curvature"], "lowers the penalty below L"),
        (["--mechanism", "s2", "--epsilon", "1", "--penalty-rho", "0.05"], "needed: more than L = 0.09623"),
        (
            ["--mechanism", "v2", "--epsilon", "1"],
            "--mechanism v2: its proof or its steps take a convex loss",
        ),
        (["--mechanism", "v1-admm", "--epsilon", "1"], "--mechanism v1-admm: its proof"),
        (
            ["--reg", "mcp", "--mechanism", "s1", "--epsilon", "1"],
            "proved for a convex --reg, and mcp is not",
        ),
        (["--reg", "mcp", "--region", "ball:1"], "has no --region ball"),
        (["--reg", "mcp:0.5"], "mcp:REACH, from where on it is flat, above 1"),
    ],
)
def test_what_nothing_is_proved_of_is_refused_by_name(flags: list[str], told: str, tmp_path, capsys) -> None:
    assert (
        sharing.main(["--data", "tiny", "--loss", "sigmoid", "--out", str(tmp_path / "r"), *flags]) == USAGE
    )
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_noisy_vectors_cost_what_they_cost_under_a_convex_loss(tmp_path, capsys) -> None:
    """Their sensitivities come from the x-update, where no loss is."""
    spent = []
    for loss in ("logistic", "sigmoid"):
        out = tmp_path / loss
        asked = [
            "--data",
            "tiny",
            "--mechanism",
            "s2",
            "--epsilon",
            "2",
            "--rounds",
            "2",
            "--rng",
            "simulation",
        ]
        assert sharing.main([*asked, "--loss", loss, "--out", str(out)]) == DONE
        spent.append(
            [json.loads(line) for line in (out / "ledger" / "node-0001.jsonl").read_text().splitlines()]
        )
    capsys.readouterr()
    one, other = (
        [{k: e.get(k) for k in ("type", "event", "noise_multiplier")} for e in each] for each in spent
    )
    assert one == other


@pytest.mark.parametrize("algorithm", ["radmm", "admm", "gossip", "masked"])
def test_consensus_refuses_a_loss_that_is_not_convex_in_one_line(algorithm: str, capsys) -> None:
    assert radmm.main(["--data", "tiny", "--algorithm", algorithm, "--loss", "sigmoid"]) == USAGE
    said = capsys.readouterr().err
    assert "--loss sigmoid is not convex: l'' falls to -0.09623" in said
    assert len(said.splitlines()) == 1


def test_thresholding_takes_it_without_noise(tmp_path, capsys) -> None:
    asked = ["--data", "tiny", "--loss", "sigmoid", "--iterations", "30", "--out", str(tmp_path / "run")]
    assert istdp.main(asked) == DONE, capsys.readouterr().err


class Dented(Sigmoid):
    min_curvature = 0.0


class Deeper(Sigmoid):
    min_curvature = -0.05


class Steeper(Logistic):
    max_slope = 0.5


class Flatter(Squared):
    max_curvature = 0.9


class TwoSigned(Squared):
    one_signed = True


class OfAnother(Squared):
    def slope(self, z, y):
        return z - 1.01 * y


FAULTS = {
    Dented: "its curvature at z = -1.316, y = 1 is -0.0962",
    Deeper: "below its min_curvature = -0.05; state the true bound",
    Steeper: "beyond its max_slope = 0.5",
    Flatter: "has size 1, beyond its max_curvature = 0.9",
    TwoSigned: "say one_signed = False",
    OfAnother: "differences of its value give",
}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_loss_that_says_something_false_of_itself_is_told_the_number(kind: type) -> None:
    with pytest.raises(InputError) as found:
        require_true("--loss mine", kind())
    assert FAULTS[kind] in str(found.value)
    blocks, labels = [np.eye(6)[:, :2], np.eye(6)[:, 2:4]], np.array([1.0, -1, 1, -1, 1, -1])
    with pytest.raises(InputError):  # from Python too
        sharing.solve(blocks, labels, problem=Problem(kind()))


@settings(QUIET, max_examples=25)
@given(st.floats(0.3, 3.0), st.floats(0.2, 2.0))
def test_true_losses_pass_whatever_their_scale(width: float, size: float) -> None:
    huber = LOSSES["huber"]
    require_true("huber", replace(huber, width=width))

    class Scaled(Sigmoid):
        max_slope, max_curvature = 0.25 * size, Sigmoid.max_curvature * size
        min_curvature = -Sigmoid.max_curvature * size

        def value(self, z, y):
            return size * super().value(z, y)

        def slope(self, z, y):
            return size * super().slope(z, y)

        def curvature(self, z, y):
            return size * super().curvature(z, y)

    require_true("scaled", Scaled())
    assert least_curvature(Scaled()) < 0


def test_bundled_losses_are_what_they_say() -> None:
    for name, loss in LOSSES.items():
        if name != "softmax":
            require_true(name, loss)


def test_the_folded_penalty_is_the_one_of_thresholding() -> None:
    reg = regulariser_named("mcp:2.5")
    assert reg.folded == MCP(1.0, 2.5)
    v = np.linspace(-4, 4, 33)
    np.testing.assert_array_equal(reg.prox(v, 0.3), MCP(1.0, 2.5).prox(v, 0.3))
    x = np.array([0.0, 0.7, -2.0, 5.0])
    # l1 |x|_1 less what `bend` is the slope of.
    step = 1e-6
    less = [np.abs(x + s).sum() - reg.value(x + s) for s in (-step, step)]
    nonzero = x[x != 0]
    assert (less[1] - less[0]) / (2 * step) == pytest.approx(reg.bend(nonzero).sum(), abs=1e-5)


def test_the_literal_form_takes_the_penalty_that_descends() -> None:
    seat = _instance(Problem(SIGMOID, 1.0))
    assert Paper().init(seat).rho == pytest.approx(stationary.SPARE * stationary.least_descending(SIGMOID))
    assert Paper(rho=0.1).init(seat).rho == 0.1
    with pytest.raises(InputError, match="more than L"):
        Paper(rho=0.05).init(seat)
