"""Replays of reference values of the privacy funnel: best known values, perfect privacy, AEM trajectories.

`--vectors DIR` replays every file of DIR with a "pf" table; the default is tests/vectors.
"""

import numpy as np
import pytest

from distadmm.methods.funnel import aem, curve, perfect
from distadmm.methods.funnel.model import Joint, from_joint, informations
from distadmm.methods.funnel.solvers import Effort
from tests.vector_files import folder, load_all

CLOSE = 1e-5


def pytest_generate_tests(metafunc):
    tables = {
        name: content["pf"]
        for name, content in load_all(folder(metafunc.config)).items()
        if isinstance(content, dict) and "pf" in content
    }
    if "problem" in metafunc.fixturenames:
        found = {
            f"{name}-{key}": case
            for name, table in tables.items()
            for key, case in table.items()
            if isinstance(case, dict) and "best_isy" in case
        }
        metafunc.parametrize("problem", marked(found), ids=list(found))
    if "perfect_problem" in metafunc.fixturenames:
        found = {
            f"{name}-{key}": case
            for name, table in tables.items()
            for key, case in table.items()
            if "R0_perfect" in case
        }
        metafunc.parametrize("perfect_problem", marked(found), ids=list(found))
    if "trajectory" in metafunc.fixturenames:
        found = {
            f"{name}-{k}": case
            for name, table in tables.items()
            for k, case in enumerate(table["trajectory"])
        }
        metafunc.parametrize("trajectory", found.values(), ids=list(found))


def marked(found):
    """The largest tables take most of a minute."""
    large = {name for name in found if "adult" in name}
    return [
        pytest.param(case, marks=pytest.mark.slow) if name in large else case for name, case in found.items()
    ]


@pytest.fixture(scope="module")
def prepared():
    """The joint distribution of a table and its perfect privacy, made once."""
    made = {}

    def make(case):
        if id(case) not in made:
            counts = np.array(case.get("counts", ()), dtype=float)
            joint = from_joint(counts / counts.sum() + 1e-3) if counts.size else Joint(case["S"], case["p"])
            made[id(case)] = joint, perfect.solve(joint)
        return made[id(case)]

    return make


def test_best_known_values(problem, prepared):
    joint, known = prepared(problem)
    assert pytest.approx(problem["H"], abs=1e-12) == joint.HX
    assert pytest.approx(problem["ISX"], abs=1e-12) == joint.ISX
    effort = Effort(repeats=1, programs=12) if joint.M > 50 else Effort(repeats=1)
    found = curve.curve(joint, problem["R"], effort=effort, certify=joint.M < 10, known=known)
    for one, best in zip(found, problem["best_isy"]):
        assert one.leakage <= best + CLOSE
        assert one.lower <= min(best, one.leakage) + 1e-9
        # the channel is what it is said to be, by its own rows
        leak, told = informations(joint, one.v)
        assert leak == pytest.approx(one.leakage, abs=1e-12)
        assert told >= one.R - 1e-12
        assert np.abs(one.v.sum(axis=1) - 1).max() < 1e-12
        if joint.M < 10:
            assert one.leakage - one.lower < 2e-6


def test_perfect_privacy(perfect_problem, prepared):
    joint, known = prepared(perfect_problem)
    leak, told = informations(joint, known.v)
    assert leak < 1e-12
    assert told == pytest.approx(known.R0, abs=1e-12)
    if known.exact:
        assert pytest.approx(perfect_problem["R0_perfect"], abs=1e-9) == known.R0
    else:
        assert perfect_problem["R0_perfect"] - CLOSE <= known.R0 <= known.upper


def test_aem_trajectory(trajectory):
    joint, R, tol = Joint(trajectory["S"], trajectory["p"]), trajectory["R"], trajectory["tol"]
    state = aem.start(joint, np.array(trajectory["v0"])[None])
    assert state.leak[0] == pytest.approx(trajectory["isy0"], abs=tol)
    for isy, ixy, Lambda in zip(trajectory["isy"], trajectory["ixy"], trajectory["lam"]):
        state = aem.step(joint, state, R)
        assert state.leak[0] == pytest.approx(isy, abs=tol)
        assert state.told[0] == pytest.approx(ixy, abs=tol)
        assert state.Lambda[0] == pytest.approx(Lambda, abs=tol)
    np.testing.assert_allclose(aem.channels(joint, state)[0], trajectory["v_final"], rtol=0, atol=tol)
