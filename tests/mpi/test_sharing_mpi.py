"""ADMM sharing over real ranks: the bits do not depend on who hosts whom."""

import json

import numpy as np
import pytest

from distadmm import sharing
from distadmm.files import read_npz
from distadmm.ranks.world import World


def _run(folder, *arguments):
    return sharing.main(["--out", str(folder), "--data", "tiny", "--split", "8,12,10", *map(str, arguments)])


def _models(folder):
    return [read_npz(folder / "models" / f"party-{m}.npz")["x"].tobytes() for m in (1, 2, 3)]


def _alone(world, monkeypatch, folder, *arguments):
    """The same run by rank 0 in a world of its own."""
    if world.is_root:
        with monkeypatch.context() as patch:
            patch.setattr("distadmm.ranks.world.connect", lambda *_: World())
            assert _run(folder, *arguments) == 0
    world.broadcast(None)


WAYS = (
    ("--iterations", 12, "--wire", "float32"),
    ("--iterations", 5, "--form", "gauss-seidel"),
    ("--iterations", 5, "--form", "averaged"),
    ("--iterations", 5, "--form", "paper", "--penalty-rho", 0.3),
    ("--iterations", 2, "--algorithm", "sgd"),
    ("--iterations", 5, "--secure-aggregation"),
)


@pytest.mark.mpi(min_size=4, sizes=[4])
def test_four_ranks_give_the_bits_of_one_process(world, shared_path, monkeypatch):
    for number, arguments in enumerate(WAYS):
        ranks, alone = shared_path / f"ranks-{number}", shared_path / f"alone-{number}"
        assert _run(ranks, *arguments) == 0
        _alone(world, monkeypatch, alone, *arguments)
        assert _models(ranks) == _models(alone), arguments
        one, other = ((folder / "history.csv").read_text() for folder in (ranks, alone))
        assert one == other, arguments
        traffic = [json.loads((folder / "summary.json").read_text())["traffic"] for folder in (ranks, alone)]
        assert traffic[0] == traffic[1], arguments


@pytest.mark.mpi(min_size=3, sizes=[3])
def test_private_runs_have_the_same_bits_on_ranks(world, shared_path, monkeypatch):
    for mechanism, ledgers in (("v1-t", 2), ("v2", 3), ("s3", 2)):
        arguments = ["--epsilon", 4, "--mechanism", mechanism, "--row-norm", 2, "--seed", 3]
        arguments += ["--rng", "simulation"]
        ranks, alone = shared_path / f"ranks-{mechanism}", shared_path / f"alone-{mechanism}"
        assert _run(ranks, *arguments) == 0
        _alone(world, monkeypatch, alone, *arguments)
        assert _models(ranks) == _models(alone), mechanism
        names = [
            sorted(path.name for path in (folder / "ledger").glob("*.jsonl")) for folder in (ranks, alone)
        ]
        assert names[0] == names[1]
        assert len(names[0]) == ledgers


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_parties_may_share_a_rank(world, shared_path, monkeypatch):
    assert _run(shared_path / "ranks", "--iterations", 6) == 0
    _alone(world, monkeypatch, shared_path / "alone", "--iterations", 6)
    assert _models(shared_path / "ranks") == _models(shared_path / "alone")


@pytest.mark.mpi(min_size=3, sizes=[3])
def test_each_rank_reads_its_own_file_only(world, shared_path, monkeypatch):
    """Every rank can read its own party's file and no other; the keys still bring the rows together."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(30, 4))
    labels = np.where(columns[:, 0] + columns[:, 2] > 0, 1, -1)
    if world.is_root:
        for name, header, cells in (
            ("labels", "id,y", labels[:, None]),
            ("party1", "id,a,b", columns[:, :2]),
            ("party2", "id,c,d", columns[:, 2:]),
        ):
            order = rng.permutation(30)
            lines = [header, *(",".join([f"k{i}", *map(str, cells[i])]) for i in order)]
            (shared_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    world.broadcast(None)
    own = {0: "labels", 1: "party1", 2: "party2"}[world.rank]
    from distadmm.data import parties

    read = parties.read_party

    def only_mine(path, *arguments, **keywords):
        assert path.endswith(f"{own}.csv"), f"rank {world.rank} opened {path}"
        return read(path, *arguments, **keywords)

    monkeypatch.setattr(parties, "read_party", only_mine)
    files = [str(shared_path / f"{name}.csv") for name in ("party1", "party2")]
    arguments = [
        "--party-files",
        ",".join(files),
        "--label-file",
        str(shared_path / "labels.csv"),
        "--key",
        "id",
    ]
    assert sharing.main([*arguments, "--out", str(shared_path / "run"), "--iterations", "5"]) == 0
    assert read_npz(shared_path / "run" / "models" / "party-2.npz")["x"].shape == (2,)


@pytest.mark.mpi(min_size=4, sizes=[4])
def test_more_ranks_than_work_are_refused(shared_path):
    assert sharing.main(["--split", "15,15", "--data", "tiny", "--out", str(shared_path / "r")]) == 2
    assert not (shared_path / "r").exists()


@pytest.mark.mpi(min_size=3, sizes=[3])
def test_a_party_in_trouble_ends_the_run_everywhere(world, shared_path, monkeypatch):
    from distadmm.methods.sharing import setup as module

    load = module.load

    def damaged(*arguments, **keywords):
        parts = load(*arguments, **keywords)
        if world.rank == 2:
            parts.train[2][:] = np.nan
        return parts

    monkeypatch.setattr(module, "load", damaged)
    assert sharing.main(["--split", "15,15", "--data", "tiny", "--out", str(shared_path / "r")]) == 2
