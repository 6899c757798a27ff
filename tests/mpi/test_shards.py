"""One file a node: each rank opens its own files and no other, and nothing is computed from all of them together."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.setup import prepare

FLAGS: dict[str, Any] = {
    "topology": "ring:5",
    "weight": 20.0,
    "rho": 1.0,
    "iterations": 8,
    "progress": "none",
}


def write_shards(folder: Path, count: int = 5, rows: int = 30) -> str:
    rng = np.random.default_rng(0)
    for node in range(count):
        X = rng.normal(size=(rows, 3))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=rows) > 0, 1, -1)
        y[:2] = (1, -1)
        lines = ["a,b,c,y"] + [",".join(map(repr, [*row.tolist(), int(label)])) for row, label in zip(X, y)]
        (folder / f"shard-{node}.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "shard-{rank}.csv")


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_a_rank_opens_only_the_files_of_its_nodes(world: World, shared_path: Path, monkeypatch) -> None:
    pattern = world.on_root(lambda: write_shards(shared_path))
    opened: set[str] = set()

    def watch(original: Any) -> Any:
        def opening(file: Any, *args: Any, **kwargs: Any) -> Any:
            if "shard-" in str(file):
                opened.add(Path(str(file)).name)
            return original(file, *args, **kwargs)

        return opening

    monkeypatch.setattr(builtins, "open", watch(builtins.open))
    monkeypatch.setattr(io, "open", watch(io.open))
    prepared = prepare(radmm.configure("admm", data=pattern, **FLAGS), world)
    mine = {f"shard-{node}.csv" for node in prepared.node.network.nodes.tolist()}
    assert opened <= mine
    assert not prepared.source.pooled_allowed


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_the_gap_is_unknown_and_said_to_be(world: World, shared_path: Path, capsys) -> None:
    pattern = world.on_root(lambda: write_shards(shared_path))
    out = str(shared_path / "run")
    assert shell.work(radmm.PROGRAMME, radmm.configure("admm", data=pattern, out=out, **FLAGS), world) == 0
    if world.is_root:
        assert "each node holds its own rows" in capsys.readouterr().out
        assert json.loads((Path(out) / "summary.json").read_text())["mean_model_gap"] is None
        header, first = (Path(out) / "history.csv").read_text().splitlines()[:2]
        assert first.split(",")[header.split(",").index("mean_model_gap")] == ""


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_resume_on_another_number_of_ranks_knows_the_files_again(world: World, shared_path: Path) -> None:
    pattern = world.on_root(lambda: write_shards(shared_path))
    out = str(shared_path / "run")
    flags = {**FLAGS, "data": pattern, "checkpoint_every": 4}
    if world.is_root:
        assert (
            shell.work(
                radmm.PROGRAMME, radmm.configure("admm", out=out, **{**flags, "iterations": 4}), World()
            )
            == 0
        )
        straight = radmm.solve("admm", **flags).models
    world.barrier()
    config = world.on_root(lambda: radmm.PROGRAMME.read(["--resume", out, "--iterations", "8"]))
    assert shell.work(radmm.PROGRAMME, config, world) == 0
    if world.is_root:
        np.testing.assert_array_equal(read_npz(Path(out) / "models.npz")["models"], straight)
    world.barrier()
    if world.is_root:
        path = shared_path / "shard-3.csv"
        path.write_text(path.read_text().replace(",1\n", ",-1\n", 1))
    world.barrier()
    config = world.on_root(lambda: radmm.PROGRAMME.read(["--resume", out, "--iterations", "9"]))
    with pytest.raises(InputError, match="data are not those"):
        shell.work(radmm.PROGRAMME, config, world)


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_a_missing_file_is_one_error_for_all(world: World, shared_path: Path) -> None:
    pattern = world.on_root(lambda: write_shards(shared_path, count=4))
    with pytest.raises(InputError, match=r"shard-4\.csv") as caught:
        prepare(radmm.configure("admm", data=pattern, **FLAGS), world)
    assert caught.value.shared
