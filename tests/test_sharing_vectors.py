"""Replays of whole trajectories: every x, v, z, y and objective of every case, diverging ones included.

`--vectors DIR` replays every file of DIR that has the same schema; the default is tests/vectors.
"""

import json
import lzma
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from distadmm.methods.sharing import admm
from distadmm.methods.sharing.jacobi import Paper
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.columns import Columns
from distadmm.problems.losses import LOSSES
from distadmm.problems.regularisers import Ball, Box, Regulariser, Whole
from distadmm.ranks.star import Star
from distadmm.structs import struct

_REGULARISERS = {"l2": Regulariser(0, 1), "l1": Regulariser(1, 0)}
_REGIONS = {"box": Box, "ball": Ball}


def _read(path):
    text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return json.loads(text)


def _cases(directory):
    found = []
    for path in sorted([*directory.glob("*.json"), *directory.glob("*.json.xz")]):
        content = _read(path)
        if isinstance(content, dict) and "form" in content.get("header", {}) and "cases" in content:
            found += [case for case in content["cases"] if {"D", "b", "traj", "rho", "tau"} <= case.keys()]
    return found


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        given = metafunc.config.getoption("--vectors", default=None)
        directory = Path(given) if given else Path(__file__).parent / "vectors"
        cases = _cases(directory)
        assert cases or given, f"no trajectories of the sharing schema in {directory}"
        metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])


def _problem(case):
    reg, region = case["reg"], case["X"]
    return admm.Problem(
        LOSSES[case["loss"].replace("_", "-")],
        case["lam"],
        _REGULARISERS[reg] if isinstance(reg, str) else Regulariser(reg[1], 1 - reg[1]),
        Whole() if region is None else _REGIONS[region[0]](*region[1:]),
    )


@struct
class Noised(Paper):
    """The paper's form with the noise of the file."""

    noise: tuple = ()
    kind: str = "x"

    def answer(self, k, m, x, seat):
        if not self.noise:
            return super().answer(k, m, x, seat)
        noise, block = np.array(self.noise[k - 1][m - 1]), seat.blocks[m]
        return x, block.apply(x + noise) if self.kind == "x" else block.apply(x) + noise


@struct
class OneVector(Noised):
    two_vectors: ClassVar[bool] = False


@pytest.mark.parametrize("form", [OneVector, Noised], ids=["one-vector", "paper"])
def test_trajectory_is_reproduced(case, form):
    blocks = {m: Columns(np.array(D)) for m, D in enumerate(case["D"], 1)}
    labels, problem = np.array(case["b"]), _problem(case)
    algorithm = form(rho=case["rho"], tau=case["tau"], noise=case["noise"] or (), kind=case["noise_kind"])
    seat = Seat(Star(parties=case["M"]), problem, blocks, labels, labels.size)
    state = algorithm.init(seat)
    tolerance = 1e-8 if problem.reg.l1 else 1e-9
    for t, expected in enumerate(case["traj"]):
        state = algorithm.step(t + 1, state, seat)

        def agree(found, wanted, what, scale, t=t):
            error = np.abs(np.asarray(found) - np.asarray(wanted)).max()
            assert error <= tolerance * (1 + scale), f"{what} at t={t + 1}: off by {error:.2g}"

        for m in blocks:
            agree(state.x[m], expected["x"][m - 1], f"x_{m}", np.abs(expected["x"][m - 1]).max())
            agree(state.v[m], expected["v"][m - 1], f"v_{m}", np.abs(expected["v"][m - 1]).max())
        agree(state.z, expected["z"], "z", np.abs(expected["z"]).max())
        if case["loss"] != "hinge":  # there the dual is one of many subgradients
            agree(state.y, expected["y"], "y", np.abs(expected["y"]).max())
        if not case["noise"]:
            prediction = sum(blocks[m].apply(state.x[m]) for m in blocks)
            value = problem.loss.value(prediction, labels).sum()
            value += problem.lam * sum(problem.reg.value(x) for x in state.x.values())
            agree(value, case["objective"][t], "objective", abs(case["objective"][t]))
