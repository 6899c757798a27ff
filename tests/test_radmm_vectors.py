"""Replays every trajectory of the reference-vector files: inputs, start and noise come from the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distadmm.algorithm import Facts, Node, find
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic
from distadmm.ranks.graph_network import Network, Roster
from tests.vector_files import folder, load_all

FAMILY = {"admm", "madmm", "radmm", "mradmm"}


class Recorded(Unprotected):
    """Noise from a file instead of a generator."""

    def __init__(self, noise: Any, every: int):
        super().__init__()
        self.noise, self.every = noise, every

    def draw(self, k: int, quadratic: np.ndarray, factor: Any = 1.0) -> Any:
        return 0.0 if self.noise is None else factor * np.array(self.noise[(k - 1) // self.every])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cases = [
        pytest.param(problem, case, id=f"{name}-{problem['name']}-{case['name']}")
        for name, content in load_all(folder(metafunc.config)).items()
        if isinstance(content, dict) and "problems" in content and isinstance(content["problems"], list)
        for problem in content["problems"]
        for case in problem["cases"]
        if case["algo"] in FAMILY
    ]
    assert cases or metafunc.config.getoption("--vectors"), "the bundled vectors hold no case of this family"
    metafunc.parametrize(("problem", "case"), cases)


def node_of(problem: dict[str, Any], case: dict[str, Any]) -> Node:
    n = problem["N"]
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for i, j in problem["edges"]:
        neighbours[i].append(j)
        neighbours[j].append(i)
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in neighbours])))
    indices = np.concatenate([np.sort(row) for row in neighbours])
    network = Network(Roster.alone(indptr, indices))
    ridge = problem["rho"] / n
    objectives = [
        GeneralisedLinear(np.array(X), np.array(y, float), Logistic(), weight=problem["C"], ridge=ridge)
        for X, y in zip(problem["X"], problem["y"])
    ]
    facts = Facts(n, np.diff(indptr), float("nan"), problem["C"], ridge, 0.25)
    every = find(case["algo"]).phases
    table = {"eta": np.array(case["eta"]), "eta_growth": None}
    release = Recorded(case["noise"], every)
    return Node(network, Problem(objectives, 1e-13), release, facts, np.array(problem["f0"], float), table)


def test_trajectory(problem: dict[str, Any], case: dict[str, Any]) -> None:
    node = node_of(problem, case)
    arguments = {"dual_step": "own" if case["theta"] is None else str(case["theta"])}
    if find(case["algo"]).phases == 2:
        arguments["gamma"] = case["gamma"]
    algorithm = find(case["algo"]).cls(**arguments)
    state = algorithm.init(node)
    for k in range(1, case["T"] + 1):
        state = algorithm.step(k, state, node)
        np.testing.assert_allclose(state.f, case["f"][k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.lam, case["lam"][k], rtol=1e-9, atol=1e-9)
        assert node.problem.values(state.f).sum() == pytest.approx(case["obj"][k], rel=1e-9)
        assert node.problem.data_losses(state.f).mean() == pytest.approx(case["avg_loss"][k], rel=1e-9)
        spread = np.sqrt(((state.f - state.f.mean(axis=0)) ** 2).sum())
        assert spread == pytest.approx(case["consensus"][k], rel=1e-9, abs=1e-9)
