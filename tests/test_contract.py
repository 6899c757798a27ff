"""What every registered algorithm must do; registering is what gets it tested here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.algorithm import find, names
from distadmm.files import read_npz
from distadmm.privacy.noise.release import Unprotected
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.setup import prepare
from distadmm.run.shell import in_process

SMALL: dict[str, Any] = {
    "data": "tiny",
    "topology": "er5",
    "weight": 20.0,
    "rho": 1.0,
    "iterations": 12,
    "progress": "none",
}


def models(name: str, world: World, **flags: Any) -> np.ndarray | None:
    return in_process(radmm.PROGRAMME, radmm.configure(name, **{**SMALL, **flags}), world).models


@pytest.mark.parametrize("name", names())
def test_reaches_the_pooled_optimum(name: str) -> None:
    run = radmm.solve(name, **{**SMALL, "iterations": 400})
    assert abs(run.history[-1].gap) < 1e-8
    assert run.history[-1].consensus_error < 1e-5
    assert np.nanmax(run.column("kkt_residual")) <= 1e-10


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", names())
def test_same_bits_on_any_number_of_ranks(name: str, world: World) -> None:
    together = models(name, world)
    if together is not None:
        np.testing.assert_array_equal(together, models(name, World()))


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
@pytest.mark.parametrize("name", names())
def test_a_resumed_run_equals_the_uninterrupted_one(name: str, world: World, shared_path: Path) -> None:
    """Interrupted on one process, resumed on several: no bit differs from a run in one piece."""
    out = str(shared_path / "run")
    command = [*flags(SMALL), "--algorithm", name, "--checkpoint-every", "5"]
    if world.is_root:
        config = radmm.PROGRAMME.read([*command, "--iterations", "7", "--out", out])
        assert shell.work(radmm.PROGRAMME, config, World()) == 0
        in_one_piece = radmm.solve(name, **SMALL)
    world.barrier()
    config = world.on_root(lambda: radmm.PROGRAMME.read(["--resume", out, "--iterations", "12"]))
    assert shell.work(radmm.PROGRAMME, config, world) == 0
    if world.is_root:
        np.testing.assert_array_equal(read_npz(Path(out) / "models.npz")["models"], in_one_piece.models)
        lines = (Path(out) / "history.csv").read_text().splitlines()
        assert [int(line.split(",")[0]) for line in lines[1:]] == list(range(1, 13))
        assert [float(line.split(",")[2]) for line in lines[1:]] == list(in_one_piece.column("objective"))


def flags(values: dict[str, Any]) -> list[str]:
    return [text for key, value in values.items() for text in ("--" + key.replace("_", "-"), str(value))]


class Spy(Unprotected):
    """Counts what an algorithm asks of the release it must pass through."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def draw(self, k: int, quadratic: np.ndarray, factor: Any = 1.0) -> Any:
        self.calls.append(("draw", k))
        return 0.0

    def seal(self, k: int, f: np.ndarray, residual: np.ndarray) -> np.ndarray:
        self.calls.append(("seal", k))
        return super().seal(k, f, residual)

    def recycle(self, k: int, f: Any = None) -> None:
        self.calls.append(("recycle", k))

    def expose(self, k: int, what: str) -> None:
        self.calls.append(("expose", k))


@pytest.mark.parametrize("name", names())
def test_a_step_that_reads_data_is_charged_once_and_another_not_at_all(name: str) -> None:
    prepared = prepare(radmm.configure(name, **SMALL), World())
    node, spy, reads = prepared.node, Spy(), []
    node.release = spy
    readers = [(objective, ("value", "grad", "hess")) for objective in node.problem.objectives]
    readers += [(block, ("values", "gradients", "hessians")) for _, block in node.problem.blocks]
    for reader, methods in readers:
        for method in methods:
            watched = getattr(reader, method)
            setattr(reader, method, lambda *f, watched=watched: (reads.append(1), watched(*f))[1])
    algorithm = prepared.config.algorithm
    state = algorithm.init(node)
    assert bool(reads) == any(call == "expose" for call, _ in spy.calls)
    for k in range(1, 7):
        spy.calls.clear(), reads.clear()
        state = algorithm.step(k, state, node)
        if reads:
            assert spy.calls in ([("draw", k), ("seal", k)], [("expose", k)])
        else:
            assert spy.calls == [("recycle", k)]


@pytest.mark.parametrize("name", names())
def test_only_rows_of_the_stated_size_go_to_neighbours(name: str) -> None:
    prepared = prepare(radmm.configure(name, **SMALL), World())
    node = prepared.node
    algorithm = prepared.config.algorithm
    state = algorithm.init(node)
    d, edges = node.problem.dimension, len(node.network.columns)
    for k in range(1, 7):
        before = (node.network.traffic.messages, node.network.traffic.bytes)
        state = algorithm.step(k, state, node)
        assert node.network.traffic.messages - before[0] == edges
        assert node.network.traffic.bytes - before[1] == 8 * d * edges


@pytest.mark.parametrize("name", names())
def test_watching_changes_no_bit(name: str) -> None:
    watched = models(name, World(), observe="1")
    np.testing.assert_array_equal(watched, models(name, World(), observe="none"))


@pytest.mark.parametrize("name", names())
def test_phases_are_what_was_registered(name: str) -> None:
    run = in_process(radmm.PROGRAMME, radmm.configure(name, **{**SMALL, "iterations": 2}))
    assert [line.phase for line in run.history] == ["solve", "recycle" if find(name).phases == 2 else "solve"]
