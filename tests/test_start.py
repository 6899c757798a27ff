"""--start: each node begins at public random numbers of its own; nothing else changes, prices least of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.ranks.world import World
from distadmm.run.shell import in_process

FLAGS: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "weight": 50.0, "eta": "2", "iterations": 6, "progress": "none",
}  # fmt: skip
PRIVATE = {"alpha": "3", "adjacency": "replace", "rng": "simulation"}


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_same_bits_on_ranks(world: World) -> None:
    config = radmm.configure("radmm", **FLAGS, **PRIVATE, start=0.5, seed=4)
    together = in_process(radmm.PROGRAMME, config, world).models
    if world.is_root:
        np.testing.assert_array_equal(together, in_process(radmm.PROGRAMME, config, World()).models)


@pytest.mark.parametrize(
    "name", ["admm", "madmm", "radmm", "mradmm", "gossip", "tracking", "accelerated", "fixed-point", "extra"]
)
def test_nodes_start_apart_and_come_together(name: str) -> None:
    flags = {**FLAGS, "iterations": 400}
    if name in ("gossip", "tracking", "accelerated", "fixed-point", "extra"):
        del flags["eta"]
    first = radmm.solve(name, **{**flags, "iterations": 0}, start=0.3, seed=1).models
    assert abs(first.std() - 0.3) < 0.05
    assert np.ptp(first, axis=0).min() > 0
    other = radmm.solve(name, **{**flags, "iterations": 0}, start=0.3, seed=2).models
    assert not np.isclose(first, other).any()
    if name in ("admm", "radmm"):
        apart, same = (radmm.solve(name, **flags, rho=20.0, start=start).models for start in (0.3, 0.0))
        assert not np.array_equal(apart, same)
        np.testing.assert_allclose(apart, same, atol=1e-4)  # one optimum


def test_the_price_is_that_of_a_start_at_zero() -> None:
    apart, same = (radmm.solve("radmm", **FLAGS, **PRIVATE, start=start) for start in (1.0, 0.0))
    assert apart.epsilon == same.epsilon
    assert not np.array_equal(apart.models, same.models)


def test_a_resumed_run_starts_where_it_did(tmp_path: Path) -> None:
    whole = radmm.solve("radmm", **FLAGS, start=0.7, out=tmp_path / "whole")
    assert radmm.main(words(tmp_path / "part", "--iterations", "4", "--checkpoint-every", "2")) == 0
    assert radmm.main(["--resume", str(tmp_path / "part"), "--iterations", "6"]) == 0
    with np.load(tmp_path / "part" / "models.npz") as kept:
        np.testing.assert_array_equal(kept[kept.files[0]], whole.models)


def words(out: Path, *more: str) -> list[str]:
    given = ["--algorithm", "radmm", "--data", "tiny", "--topology", "er5", "--weight", "50", "--eta", "2"]
    return [*given, "--progress", "none", "--start", "0.7", "--out", str(out), *more]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--drop-out", "0.1:0.5"], "imperfections"),
        (["--start", "-1"], "zero or more"),
    ],
)
def test_bad_input(more: list[str], told: str, tmp_path: Path, capsys) -> None:
    given = words(tmp_path / "run", *more)
    assert radmm.main(given) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [(["admm", "--tune"], "--tune starts its edges"), (["newton"], "have one together")],
)
def test_methods_with_a_start_of_their_own_refuse(
    algorithm: list[str], told: str, tmp_path: Path, capsys
) -> None:
    given = ["--data", "tiny", "--topology", "er5", "--start", "0.1", "--algorithm", *algorithm]
    assert radmm.main([*given, "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err
