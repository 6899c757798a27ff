"""What follows the last solve: made of releases alone, counted, the same on any ranks and after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import DONE, USAGE
from distadmm.files import read_npz
from distadmm.graphs.topology import load
from distadmm.methods.consensus import smoothing
from distadmm.privacy.ledger import chain
from distadmm.ranks.world import World
from distadmm.run import shell

NOISY = {
    "data": "tiny",
    "topology": "er5",
    "iterations": 8,
    "eta": "3",
    "alpha": "0.5",
    "adjacency": "replace",
    "rng": "simulation",
    "weight": 20.0,
    "progress": "none",
}
AFTER = {"average": "2", "mixing": "3"}


@pytest.mark.parametrize(("algorithm", "phases"), [("radmm", 2), ("admm", 1), ("mradmm", 2), ("madmm", 1)])
def test_a_mean_over_the_solves_and_rounds_of_mixing(algorithm: str, phases: int) -> None:
    """Against the runs of every shorter length, whose iterates are the same, and the matrix of the rounds."""
    flags = {**NOISY, "observe": "none"}
    ends = [radmm.solve(algorithm, **{**flags, "iterations": k}).models for k in range(phases, 9, phases)]
    share = np.zeros(len(ends))
    for t in range(1, len(ends) + 1):
        step = 3.0 / (t + 2.0)
        share[: t - 1] *= 1 - step
        share[t - 1] = step
    W = smoothing.matrix(load("er5").adjacency().toarray())
    want = np.linalg.matrix_power(W, 3) @ np.tensordot(share, ends, axes=1)
    found = radmm.solve(algorithm, **flags, **AFTER)
    np.testing.assert_allclose(found.models, want, rtol=1e-12, atol=1e-14)
    bare = radmm.solve(algorithm, **flags)
    assert found.epsilon == bare.epsilon
    edges = len(load("er5").edges)
    assert found.messages == bare.messages + 3 * 2 * edges


def test_the_rounds_keep_the_mean_and_bring_models_together() -> None:
    for topology in ("ring:16", "er20", "complete:5", "star:9"):
        W = smoothing.matrix(load(topology).adjacency().toarray())
        rounds = smoothing.rounds_for(W)
        np.testing.assert_allclose(W.sum(axis=0), 1)
        np.testing.assert_allclose(W, W.T)
        assert (W >= -1e-15).all()
        assert 1 <= rounds <= 16
    assert smoothing.rounds_for(smoothing.matrix(load("complete:5").adjacency().toarray())) == 1


def test_rounds_cost_nothing_and_stand_in_the_ledger(tmp_path: Path) -> None:
    kinds = {}
    for name, after in (("bare", {}), ("smoothed", AFTER)):
        out = tmp_path / name
        run = radmm.solve("radmm", **NOISY, **after, out=out)
        entries = chain.read(out / "ledger" / "node-0002.jsonl").entries
        kinds[name] = [entry["kind"] for entry in entries]
        assert run.statement == "simulation"
    assert kinds["smoothed"].count("post") == kinds["bare"].count("post") + 3
    assert kinds["smoothed"].count("release") == kinds["bare"].count("release")


def test_a_resumed_run_ends_alike(tmp_path: Path) -> None:
    flags = {**NOISY, **AFTER}
    radmm.solve("radmm", **flags, out=tmp_path / "whole")
    parted = tmp_path / "parted"
    radmm.solve("radmm", **{**flags, "iterations": 5}, checkpoint_every=3, out=parted)
    for iterations in (8, 8):  # the second goes no further, and smooths what the checkpoint holds
        assert radmm.main(["--resume", str(parted), "--iterations", str(iterations)]) == DONE
        one, other = (read_npz(folder / "models.npz") for folder in (parted, tmp_path / "whole"))
        assert all(np.array_equal(one[key], other[key]) for key in other)


@pytest.mark.mpi(min_size=2)
def test_all_ranks_together_end_as_one_does(world: World) -> None:
    config = radmm.configure("radmm", **NOISY, **AFTER)
    together = shell.in_process(radmm.PROGRAMME, config, world)
    alone = shell.in_process(radmm.PROGRAMME, config, World())
    if world.is_root:
        np.testing.assert_array_equal(together.models, alone.models)
        assert together.messages == alone.messages


def test_without_a_budget_nothing_follows_the_last_solve(tmp_path: Path) -> None:
    assert (
        radmm.main([*_words({**NOISY, "epsilon": 4, "alpha": None, "eta": None}), "--out", str(tmp_path)])
        == DONE
    )
    assert "mixing round" in json.loads((tmp_path / "summary.json").read_text())["choice"]
    plain = {key: NOISY[key] for key in ("data", "topology", "iterations", "eta")}
    np.testing.assert_array_equal(
        radmm.solve("radmm", **plain).models, radmm.solve("radmm", **plain, average="last", mixing="0").models
    )


def _words(flags: dict) -> list[str]:
    return [f"--{key.replace('_', '-')}={value}" for key, value in flags.items() if value is not None]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--mixing", "some"], "a whole number"),
        (["--mixing", "1.5"], "a whole number"),
        (["--average", "-1"], "0 or more"),
        (["--average", "first"], "'last' or a finite number"),
        (["--mixing", "2", "--message-loss", "0.1"], "stays as it is"),
        (["--algorithm", "admm", "--average", "1"], "--tune has none"),
    ],
)
def test_bad_input(words: list[str], told: str, capsys, tmp_path: Path) -> None:
    assert (
        radmm.main([*words, "--data", "tiny", "--topology", "ring:4", "--out", str(tmp_path / "o")]) == USAGE
    )
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert told in said
    assert not (tmp_path / "o").exists()


def test_errors_are_those_of_the_nodes_own_models() -> None:
    from distadmm.data.source import open_source
    from distadmm.run.observe import error_rate

    run = radmm.solve("radmm", **{**NOISY, "observe": "1"})
    test = open_source("tiny", clip=1.0).test()
    assert test is not None
    own = [error_rate(f, *test) for f in run.models]
    assert max(own) > min(own)
    assert run.summary["test_error"] == pytest.approx(np.mean(own))
    assert run.history[-1].test_error == pytest.approx(np.mean(own))
    assert run.summary["worst_test_error"] == max(own)
    assert run.summary["mean_model_test_error"] == error_rate(run.model, *test)
