"""Ranks of a masked run that fall asleep or die: the others end with a model, a sentence and a code; nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import DONE
from distadmm.files import read_json, read_npz
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.ledger import chain
from distadmm.ranks.world import World
from distadmm.run import shell

FAULTY = """
import os, signal, sys, time
from distadmm import radmm
from distadmm.ranks.tree import Tree
from distadmm.run import checkpoint
from distadmm.run.observe import Observer

ranks, how, where, call = set(map(int, sys.argv[1].split(","))), sys.argv[2], sys.argv[3], int(sys.argv[4])
cls = Observer if where == "measure" else checkpoint if where in ("_make", "write_bytes") else Tree
plain, calls = getattr(cls, where), []
here = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))

def faulty(*given, **named):
    calls.append(1)
    if len(calls) == call and here in ranks:
        time.sleep(float(how[5:])) if how.startswith("doze:") else os.kill(os.getpid(), getattr(signal, how))
    return plain(*given, **named)

setattr(cls, where, faulty)
raise SystemExit(radmm.main(sys.argv[5:]))
"""
FLAGS = [
    *("--algorithm", "masked", "--anyway", "--data", "tiny", "--topology", "er5", "--epsilon", "8", "--progress"),
    *("none", "--adjacency", "replace", "--trust", "coalition:2", "--rng", "simulation", "--min-roster", "3"),
    *("--stall-timeout", "20"),
]  # fmt: skip
BUDGET = gaussian.mu_at(8.0, 1e-5) ** 2


def faulty(mpiexec: list[str], fault: str, out: Path, *more: str) -> tuple[int, str, float]:
    """(exit code, what was said, seconds) of a run on five ranks with this fault."""
    command = [*mpiexec, "-n", "5", sys.executable, "-c", FAULTY, *fault.split(), *FLAGS, "--out", str(out)]
    began = time.monotonic()
    found = subprocess.run([*command, *more], capture_output=True, text=True, timeout=100)
    return found.returncode, found.stdout + found.stderr, time.monotonic() - began


def charged(run: Path, node: int) -> list[dict[str, Any]]:
    entries = chain.read(run / "ledger" / f"node-{node:04d}.jsonl").entries
    return [e for e in entries if e["kind"] == "charge"]


@pytest.mark.parametrize(
    "fault",
    [
        "3 SIGSTOP up 6",
        pytest.param("0 SIGSTOP down 6", marks=pytest.mark.slow),  # it speaks for all; another one does then
        pytest.param("1 SIGSTOP up 6", marks=pytest.mark.slow),  # the root of the tree
        pytest.param("1 SIGSTOP down 9", marks=pytest.mark.slow),  # it has the total and tells nobody
        pytest.param("0 SIGSTOP measure 6", marks=pytest.mark.slow),
        pytest.param("2 SIGSTOP measure 6", marks=pytest.mark.slow),
        pytest.param("2 SIGSTOP _over 1", marks=pytest.mark.slow),  # nothing is lost, nobody sleeps
        pytest.param(
            "2 doze:6 up 6", marks=pytest.mark.slow
        ),  # it wakes up, finds its node out, and keeps step
        pytest.param("2 doze:15 up 6", marks=pytest.mark.slow),  # it wakes up, and finds itself out
        pytest.param("3 SIGSTOP _make 1", marks=pytest.mark.slow),  # in a checkpoint
        pytest.param("0 SIGSTOP write_bytes 1", marks=pytest.mark.slow),  # before it is said to be one
        pytest.param("0,3 SIGSTOP up 6", marks=pytest.mark.slow),  # two in one sum
        pytest.param("2,3 SIGSTOP _make 1", marks=pytest.mark.slow),  # two in one checkpoint
    ],
)
def test_the_others_go_on_without_a_rank_that_sleeps(fault: str, mpiexec: list[str], tmp_path: Path) -> None:
    ranks, how, where, _ = fault.split()
    sleepers, out = [int(rank) for rank in ranks.split(",")], tmp_path / "run"
    code, said, _ = faulty(mpiexec, fault, out, "--checkpoint-every", "4")
    assert code == DONE, said
    assert "Traceback" not in said
    out_of_it = where != "_over"
    gone, lost = out_of_it and how != "doze:6", out_of_it * len(sleepers)
    assert (f"Ranks {sleepers} did not answer any more" in said) == gone
    assert (f"{lost} of 5 nodes dropped out; the model is that of the nodes left." in said) == out_of_it
    assert "is (8.000, 1e-05)-DP for replacing one record" in said
    assert read_json(out / "summary.json")["ended"] == "iterations"
    models = read_npz(out / "models.npz")["models"]
    assert models.shape == (5 - gone * lost, 30)
    assert np.isfinite(models).all()
    assert (models == models[0]).all()
    rounds: dict[int, list[int]] = {}
    for node in range(5):
        paid = charged(out, node)
        assert sum(e["mu2"] for e in paid) <= BUDGET
        rounds[node] = [e["params"]["round"] for e in paid]
        assert rounds[node] == list(range(len(paid)))
        if node not in sleepers:
            assert [e["params"]["roster"] for e in paid][-1] == 5 - lost
    assert all(len(paid) == 15 for node, paid in rounds.items() if node not in sleepers)
    if where == "up" and out_of_it:
        options = radmm.PROGRAMME.read(["--resume", str(out), "--iterations", "200", "--progress", "none"])
        assert shell.work(radmm.PROGRAMME, options, World()) == DONE  # also after what was kept without it
        assert all(len(charged(out, node)) == 15 for node in range(5))


def test_a_killed_rank_ends_the_job_and_another_job_goes_on(mpiexec: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said, seconds = faulty(
        mpiexec, "3 SIGKILL up 9", out, "--checkpoint-every", "1", "--stall-timeout", "60"
    )
    if "Open MPI" not in said:
        assert code not in (DONE, 75)
    assert seconds < 50  # not by the watchdog
    before = max(len(charged(out, node)) for node in range(5))  # what one has paid for, all pay for
    options = radmm.PROGRAMME.read(["--resume", str(out), "--progress", "none"])
    assert shell.work(radmm.PROGRAMME, options, World()) == DONE
    for node in range(5):
        paid = charged(out, node)
        assert sum(e["mu2"] for e in paid) <= BUDGET
        assert [e["params"]["round"] for e in paid] == list(range(15))
        sessions = [e["params"]["session"] for e in paid]
        assert len(set(sessions)) == 2  # what was released is not asked again
        assert before - 1 <= sessions.count(sessions[0]) <= before
    assert np.any(read_npz(out / "models.npz")["models"] != 0)


def test_a_killed_rank_is_survived_where_the_library_survives_it(mpiexec: list[str], tmp_path: Path) -> None:
    """Open MPI with ULFM; other libraries end the job."""
    if "--oversubscribe" not in mpiexec or not Path(sys.executable).with_name("ompi_info").exists():
        pytest.skip("needs the wheel of Open MPI")
    for rank in "30":
        code, said, _ = faulty([*mpiexec, "--with-ft", "ulfm"], f"{rank} SIGKILL up 6", tmp_path / rank)
        assert code == DONE, said
        assert f"Ranks [{rank}] did not answer any more" in said
        assert read_npz(tmp_path / rank / "models.npz")["models"].shape == (4, 30)
