"""Small nodes solved side by side: the same bits whoever shares the stack, the answers of the one-by-one solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.problems import newton_batched as batched
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import HuberHinge, Logistic, Squared
from distadmm.problems.newton import LaggedNewton
from distadmm.problems.newton_batched import SMALL, Block, blocks

LOSSES = [Logistic(), HuberHinge(), Squared()]


def node(seed: int, loss: Any = LOSSES[0], rows: int = 30, d: int = 5, **options: Any) -> GeneralisedLinear:
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(rows, d)) / np.sqrt(d)
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0) if loss.labels else rng.normal(size=rows)
    return GeneralisedLinear(X, y, loss, **{"weight": 10.0 + seed, "ridge": 0.1 + 0.01 * seed, **options})


def inputs(seed: int, n: int, d: int = 5, matrices: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([8, seed])
    linear = 3 * rng.normal(size=(n, d))
    if not matrices:
        return linear, 0.5 + 4 * rng.random((n, 1))
    roots = rng.normal(size=(n, d, d))
    return linear, roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d)


def trajectory(problem: Problem, which: slice, n: int, matrices: bool = False, solves: int = 6) -> np.ndarray:
    """Several warm-started solves of the nodes `which` of n."""
    f, found = np.zeros((n, 5))[which], []
    for k in range(solves):
        linear, quadratic = inputs(k, n, matrices=matrices)
        f = problem.argmin(linear[which], quadratic[which], f)
        found.append(f)
    assert problem.residual.max() <= 1e-10
    return np.stack(found)


@pytest.mark.parametrize("matrices", [False, True], ids=["numbers", "matrices"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rows", [30, 2], ids=["tall", "wide"])  # wide: inverses by rows
def test_bits_do_not_depend_on_who_shares_the_stack(
    rows: int, loss: Any, matrices: bool, monkeypatch: Any
) -> None:
    n = 23
    whole = trajectory(Problem([node(i, loss, rows) for i in range(n)]), slice(None), n, matrices)
    for cut in (1, 7, 22):
        for which in (slice(0, cut), slice(cut, n)):
            part = Problem([node(i, loss, rows) for i in range(n)][which])
            np.testing.assert_array_equal(trajectory(part, which, n, matrices), whole[:, which])
    monkeypatch.setattr(batched, "_BLOCK", 3 * rows * 5)  # three nodes a block
    chopped = Problem([node(i, loss, rows) for i in range(n)])
    assert len(chopped.blocks) == 8
    np.testing.assert_array_equal(trajectory(chopped, slice(None), n, matrices), whole)


@pytest.mark.parametrize("divisor", [None, 7])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("rows", [30, 2], ids=["tall", "wide"])
def test_a_stack_of_rows_is_the_objectives_one_by_one(rows: int, loss: Any, divisor: int | None) -> None:
    shared = {"weight": 10.0, "ridge": 0.1, "divisor": divisor}
    rng = np.random.default_rng(rows)
    X = rng.normal(size=(9, rows, 5))
    y = np.where(rng.random((9, rows)) < 0.5, 1.0, -1.0) if loss.labels else rng.normal(size=(9, rows))
    one_by_one = [GeneralisedLinear(A, b, loss, **shared) for A, b in zip(X, y)]
    other = node(1, loss, 17)
    apart = Problem([*one_by_one, other])
    together = Problem([batched.Stack(X.copy(), y, loss, **shared), other])
    np.testing.assert_array_equal(trajectory(together, slice(None), 10), trajectory(apart, slice(None), 10))
    np.testing.assert_array_equal(together.scales, apart.scales)
    f = rng.normal(size=(10, 5))
    np.testing.assert_array_equal(together.gradients(f), apart.gradients(f))
    assert len(together.objectives) == 10
    for mine, its in zip(together.objectives[::-1], apart.objectives[::-1]):
        assert all(map(np.array_equal, mine.records(), its.records()))
        np.testing.assert_array_equal(mine.hess(f[0]), its.hess(f[0]))
        assert (mine.rows, mine.scale, mine.ridge) == (its.rows, its.scale, its.ridge)
    assert together.objectives[3] is together.objectives[3]


@given(
    seed=st.integers(0, 10_000),
    which=st.integers(0, len(LOSSES) - 1),
    matrices=st.booleans(),
    rows=st.sampled_from([30, 2, 1]),
)
@settings(deadline=None, max_examples=60)
def test_agrees_with_the_one_by_one_solver(seed: int, which: int, matrices: bool, rows: int) -> None:
    n = 6
    objectives = [node(seed + i, LOSSES[which], rows) for i in range(n)]
    alone = [LaggedNewton(node(seed + i, LOSSES[which], rows)) for i in range(n)]
    problem = Problem(objectives)
    assert not problem.solvers
    linear, quadratic = inputs(seed, n, matrices=matrices)
    f = problem.argmin(linear, quadratic, np.zeros((n, 5)))
    for i in range(n):
        Q = quadratic[i] if matrices else float(quadratic[i, 0])
        np.testing.assert_allclose(f[i], alone[i].minimise(linear[i], Q, np.zeros(5), 1e-10).f, atol=1e-8)
        pull = linear[i] + (Q @ f[i] if matrices else Q * f[i])
        assert np.linalg.norm(objectives[i].grad(f[i]) + pull) <= 1.1e-10
        assert problem.residual[i] <= 1e-10


def test_values_and_losses_are_those_of_the_objectives() -> None:
    for loss in LOSSES:
        objectives = [node(i, loss) for i in range(4)]
        problem, f = Problem(objectives), np.random.default_rng(0).normal(size=(4, 5))
        lone = [node(i, loss) for i in range(4)]
        np.testing.assert_allclose(problem.values(f), [o.value(row) for o, row in zip(lone, f)], rtol=1e-13)
        np.testing.assert_allclose(
            problem.data_losses(f), [o.data_loss(row) for o, row in zip(lone, f)], rtol=1e-13
        )
        np.testing.assert_allclose(problem.gradients(f), [o.grad(row) for o, row in zip(lone, f)], atol=1e-13)


def test_the_shape_of_a_node_alone_decides() -> None:
    small, large = node(0), node(1, rows=SMALL // 5 + 1)
    problem = Problem([large, small, node(2), node(3, rows=31), node(4, Squared())])
    assert list(problem.solvers) == [0]
    assert [rows.tolist() for rows, _ in problem.blocks] == [[1, 2], [3], [4]]
    assert [rows.tolist() for rows, _ in blocks([small])[1]] == [[0]]
    linear, quadratic = inputs(0, 5)
    f = problem.argmin(linear, quadratic, np.zeros((5, 5)))
    assert problem.residual.max() <= 1e-10
    for i, objective in enumerate(problem.objectives):
        assert np.linalg.norm(objective.grad(f[i]) + linear[i] + quadratic[i] * f[i]) <= 1.1e-10


@pytest.mark.parametrize("matrices", [False, True], ids=["numbers", "matrices"])
def test_memory_restores_the_very_solver(matrices: bool) -> None:
    """After a checkpoint, on other blocks and beside a node solved alone, not a bit is different."""
    n = 9
    make = [lambda i=i: node(i) if i else node(0, rows=SMALL // 5 + 1) for i in range(n)]

    def further(problem: Problem, which: slice, f: np.ndarray) -> list[np.ndarray]:
        found = []
        for k in range(4, 8):
            linear, quadratic = inputs(k, n, matrices=matrices)
            found.append(f := problem.argmin(linear[which], quadratic[which], f))
        return found

    problem = Problem([m() for m in make])
    f = trajectory(problem, slice(None), n, matrices, solves=4)[-1]
    memory = {name: value.copy() for name, value in problem.memory().items()}
    assert memory["taken"].any()
    expected = further(problem, slice(None), f)
    for which in (slice(0, 4), slice(4, n), slice(None)):
        again = Problem([m() for m in make[which]])
        again.restore({name: value[which] for name, value in memory.items()})
        for one, other in zip(further(again, which, f[which]), expected):
            np.testing.assert_array_equal(one, other[which])


def test_a_node_whose_full_step_overshoots_is_finished_alone(monkeypatch: Any) -> None:
    """Far from the optimum of a nearly separable logistic, Newton's full step makes things worse."""
    objectives = [node(i, weight=1000.0, ridge=1e-6) for i in range(3)]
    problem, taken = Problem(objectives), []
    alone = Block._alone
    monkeypatch.setattr(Block, "_alone", lambda self, i, *rest: (taken.append(i), alone(self, i, *rest)))
    start = np.zeros((3, 5))
    start[1] = 40.0
    f = problem.argmin(np.zeros((3, 5)), np.full((3, 1), 1e-6), start)
    assert set(taken) == {1}
    assert problem.residual.max() <= 1e-10
    for i, objective in enumerate(objectives):
        lone = LaggedNewton(objective).minimise(np.zeros(5), 1e-6, np.zeros(5), 1e-10)
        np.testing.assert_allclose(f[i], lone.f, atol=1e-6)


def test_rows_are_kept_once() -> None:
    problem = Problem([node(i) for i in range(4)])
    ((_, block),) = problem.blocks
    assert all(o.A.base is block.A and o._forward.base is block.A for o in problem.objectives)
