"""What every registered algorithm must do; registering is what gets it tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.algorithm import find, names
from distadmm.ranks.world import World
from distadmm.testing import contracts

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
OWN = [str(EXAMPLES / "gradient_tracking.py"), str(EXAMPLES / "noisy_gradient_tracking.py")]
BUILT_IN = names()
OWN_OPTIMUM = [
    "masked",
    "gossip",
    "accelerated",
    "preconditioned",
]  # with a ridge and weights of its own; beside it by a constant step
EVERY = pytest.mark.parametrize("name", [*BUILT_IN, *OWN], ids=lambda name: Path(name).stem)
SMALL: dict[str, Any] = {"data": "tiny", **contracts.SMALL["graph"]}
NOISE: dict[str, Any] = {
    "epsilon": 8.0,
    "adjacency": "replace",
    "noise": "gaussian",
    "weight": 1.0,
    "rng": "simulation",
}


@pytest.mark.parametrize("name", [n for n in (*BUILT_IN, *OWN) if n not in OWN_OPTIMUM])
def test_reaches_the_pooled_optimum(name: str) -> None:
    flags = {"rate": "0.8"} if name in ("tracking", "extra") else {}
    run = radmm.solve(name, **SMALL, **flags, iterations=400 if name in BUILT_IN else 1500)
    assert abs(run.history[-1].mean_model_gap) < 1e-8
    assert run.history[-1].consensus_error < 1e-5
    if name in BUILT_IN:
        assert np.nanmax(run.column("kkt_residual")) <= 1e-10


@EVERY
@pytest.mark.parametrize("contract", contracts.ALONE, ids=lambda contract: contract.__name__)
def test_keeps(contract: Any, name: str) -> None:
    contract(name)


@pytest.mark.mpi(min_size=2)
@EVERY
def test_same_bits_on_any_number_of_ranks(name: str, world: World) -> None:
    contracts.same_bits(name, world)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", OWN[1:])
def test_same_bits_under_noise(name: str, world: World) -> None:
    contracts.same_bits(name, world, **NOISE)


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
@EVERY
def test_a_resumed_run_equals_the_uninterrupted_one(name: str, world: World, shared_path: Path) -> None:
    contracts.exact_resume(name, world, shared_path)


STARS: dict[str, dict[str, Any]] = {  # how `sharing` is asked for each; one that is not listed here fails
    **{form: {"form": form} for form in ("paper", "averaged", "gauss-seidel")},
    "corrected": {"form": "sound"},
    "sgd": {"name": "sgd"},
    **{
        kind: {"mechanism": kind, "epsilon": 4.0, "adjacency": "replace", "rng": "simulation"}
        for kind in ("s1", "s2", "s3")
    },
    "equation-10": {"mechanism": "paper", "epsilon": 4.0, "adjacency": "replace"},
}


@pytest.mark.mpi(min_size=2, sizes=[3])
@pytest.mark.parametrize(
    "name", [name for name in names("star") if name not in ("s1", "s2", "s3")]
)  # need ledgers
def test_a_star_finds_the_same_bits_on_any_number_of_ranks(name: str, world: World) -> None:
    contracts.same_bits(**{"name": "admm", "world": world, "family": "star", **STARS[name]})


@pytest.mark.mpi(min_size=2, sizes=[3])
@pytest.mark.parametrize("name", names("star"))
def test_a_resumed_star_equals_the_uninterrupted_one(name: str, world: World, shared_path: Path) -> None:
    contracts.exact_resume(
        **{"name": "admm", "world": world, "folder": shared_path, "family": "star", **STARS[name]}
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_rows_of_the_built_in_ones_are_models(name: str) -> None:
    run = radmm.solve(name, **SMALL, iterations=12, **({"tune": False} if name == "admm" else {}))
    assert run.models is not None
    if find(name).cls.tree:
        assert run.messages == 2 * (len(run.models) - 1) * run.iterations
    else:
        wide = 2 if name == "tracking" else 1  # models and tracks
        models = 8 * wide * run.models.shape[1] * run.messages
        assert run.bytes > models if find(name).cls.opens else run.bytes == models


BROKEN = {  # what is changed in the example, and which contract sees it
    "one_release_a_read": ("    rate: float", "    phases = 2\n    rate: float"),
    "draws_as_scheduled": ("draw(k, np.inf)", "draw(k, 2.0)"),
    "messages_of_one_size": (
        "np.hsplit(self.mix(message, node), 2)",
        "np.hsplit(self.mix(self.mix(message, node), node), 2)",
    ),
    "same_bits": ("st.f - length * y", "st.f - length * y * (1 + len(y))"),
    "exact_resume": (
        "        y = st.y + g - st.g\n",
        "        STEPS.append(k)\n        y = st.y + g - st.g + 1e-3 * len(STEPS)\n",
    ),
}


@pytest.mark.parametrize("contract", BROKEN)
def test_a_broken_contract_is_found(contract: str, tmp_path: Path, mpiexec: list[str]) -> None:
    """And the command that authors run says which, and ends with 1."""
    path = tmp_path / "mine.py"
    example = Path(OWN[1]).read_text()
    path.write_text(example.replace(*BROKEN[contract]) + "\n\nSTEPS = []\n")
    assert BROKEN[contract][0] in example
    ranks = [*mpiexec, "-n", "2"] if contract == "same_bits" else []
    done = subprocess.run(
        [*ranks, sys.executable, "-m", "distadmm.testing", str(path), "--rate", "0.2"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    lines = {line.split(":")[0] for line in done.stdout.splitlines()}
    assert f"broken  {contract.replace('_', ' ')}" in lines, done.stdout + done.stderr
    assert done.returncode == 1


def test_recycling_ones_are_known_by_their_class() -> None:
    assert [name for name in BUILT_IN if find(name).phases == 2] == ["radmm", "mradmm"]
