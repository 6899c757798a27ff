"""Every star algorithm against where the version before the common loop ended, in `vectors/sharing_runs.json.xz`."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from distadmm.algorithm import find
from distadmm.methods.sharing import admm
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Releases, committed
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.columns import Columns
from distadmm.problems.losses import Logistic, loss_named
from distadmm.problems.regularisers import region_named, regulariser_named
from distadmm.ranks.star import Star

STORED = json.loads(lzma.decompress((Path(__file__).parent / "vectors/sharing_runs.json.xz").read_bytes()))
D, LABELS = [np.array(block) for block in STORED["D"]], np.array(STORED["labels"])
ROWS = LABELS.size


def _form(case):
    """The settings of a form, from what was called a plan."""
    how, asked = dict(case["plan"]), case["problem"]
    masked, iterations = how.pop("masked", False), how.pop("iterations")
    if not how.pop("curvature_rule", True):
        how["rho_rule"] = "fixed"
    elif "rho" in how:
        how["rho_rule"] = "curvature"
    if "theta" in how:
        how["theta"] = str(how["theta"])
    problem = admm.Problem(
        loss_named(asked.get("loss", "logistic")),
        asked.get("lam", 1.0),
        regulariser_named(asked.get("reg", "l2")),
        region_named(asked.get("region", "whole")),
        intercept=case["form"] != "paper",
    )
    blocks = {m: Columns(D[m - 1], centre=problem.intercept) for m in range(1, case["parties"] + 1)}
    star = Star(parties=case["parties"], wire=case["wire"])
    seat = Seat(star, problem, blocks, LABELS, ROWS, masked=masked)
    return find(case["form"], "star").cls(**how), seat, iterations


def _sgd(case):
    blocks = {m: Columns(D[m - 1], centre=True) for m in (1, 2, 3)}
    seat = Seat(Star(parties=3), admm.Problem(Logistic(), 1.0, intercept=True), blocks, LABELS, ROWS)
    return find("sgd", "star").cls(**case["sgd"]), seat, case["epochs"]


def _vectors(case):
    terms, cls = case["terms"], find(case["mechanism"], "star").cls
    cuts = (
        {"radius": terms["radius"], "pull": terms["pull"], "message_norm": terms["message"]}
        if cls.by_row
        else {}
    )
    algorithm = cls(rho=terms["rho"], tau=terms["tau"], **cuts)
    problem = admm.Problem(Logistic(), case["lam"], region=algorithm.region(admm.WHOLE), intercept=True)
    mu, rounds, out, queries = mu_at(terms["epsilon"], terms["delta"]), terms["rounds"], {}, {}
    for m in range(algorithm.first, 4):
        queries[m] = algorithm.query(problem, terms["row"][m - 1], ROWS, "simulation", mu, rounds)
        out[m] = Releases(MemoryLedger(m, adjacency="replace", mode="simulation"), Simulation(case["seed"]))
        out[m].commit(committed([queries[m]] * rounds, out[m].mode))
    blocks = {m: algorithm.columns(D[m - 1], terms["row"][m - 1]) for m in (1, 2, 3)}
    star, release = Star(parties=3, party_one_is_centre=algorithm.first == 2), Release(out, queries)
    seat = Seat(star, problem, blocks, LABELS, ROWS, release=release, masked=case["masked"])
    return algorithm, seat, rounds


def _equation_ten(case):
    blocks = {m: Columns(D[m - 1]) for m in (1, 2)}
    seat = Seat(Star(parties=2), admm.Problem(Logistic(), 1.0), blocks, LABELS, ROWS)
    how = {name: case[name] for name in ("rho", "sigma", "seed")}
    return find("equation-10", "star").cls(**how), seat, case["iterations"]


ROUTES = {"form": _form, "sgd": _sgd, "mechanism": _vectors, "sigma": _equation_ten}


def _measured(case, seat=None):
    """What was sent then, or by `seat`; the keys of masks have another length today."""
    if "traffic" not in case:
        return None
    found = case["traffic"] if seat is None else seat.fabric.sent()
    hidden = ("bytes",) if "masked" in case["name"] else ()
    return {
        kind: {k: n for k, n in counts.items() if not (kind.startswith("control") and k in hidden)}
        for kind, counts in found.items()
    }


@pytest.mark.parametrize("case", STORED["cases"], ids=[case["name"] for case in STORED["cases"]])
def test_a_run_ends_where_it_did(case):
    make = next(make for key, make in ROUTES.items() if key in case)
    algorithm, seat, iterations = make(case)
    k, state = iterate(algorithm, seat, iterations)
    wanted = {"iterations": k, "converged": algorithm.ended(state) == "converged"}
    assert {name: case.get(name, value) for name, value in wanted.items()} == wanted
    assert _measured(case, seat) == _measured(case)
    found = {**state._asdict(), "rho_end": getattr(state, "rho", None)}
    for name in ("b", "z", "y", "total", "tau", "theta", "rho_end"):
        if case.get(name) is not None:
            np.testing.assert_allclose(found[name], case[name], rtol=1e-11, atol=1e-13, err_msg=name)
    for m, x in case["x"].items():
        np.testing.assert_allclose(state.x[int(m)], x, rtol=1e-11, atol=1e-13)


# Releases go on from a ledger on disk: tests/faults/test_sharing_faults.py.
WITHOUT_NOISE = [case for case in STORED["cases"] if "mechanism" not in case]


@pytest.mark.parametrize("case", WITHOUT_NOISE, ids=[case["name"] for case in WITHOUT_NOISE])
def test_a_state_that_was_kept_goes_on_to_the_same_bits(case):
    """Through what a checkpoint holds, at half time, into a seat that knows nothing."""
    make = next(make for key, make in ROUTES.items() if key in case)
    algorithm, seat, iterations = make(case)
    _, whole = iterate(algorithm, seat, iterations)
    algorithm, seat, iterations = make(case)
    half = min(iterations, case.get("iterations", iterations)) // 2
    _, state = iterate(algorithm, seat, half)
    kept = seat.keep(state)
    _, other, _ = make(case)
    state = other.take_up([kept], algorithm.init(other))
    k = half
    while k < iterations and not algorithm.ended(state):
        k += 1
        state = algorithm.step(k, state, other)
    for m in whole.x:
        assert state.x[m].tobytes() == whole.x[m].tobytes()
    assert state.b == whole.b
    assert _measured(case, other) == _measured(case)
