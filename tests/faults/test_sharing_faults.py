"""Runs of ADMM sharing that are killed, stalled or told to end: what was sent is sent again, to the byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from distadmm import sharing
from distadmm.commands import ledger as ledger_command
from distadmm.files import read_npz
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger.tally import Tally

DRIVER = """
import os, sys, time

how, party, after = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
from distadmm.privacy.noise import mechanism, queries
from distadmm.ranks import star

calls = 0

def trouble(before, wanted):
    def call(self, *arguments, **keywords):
        global calls
        if wanted(self, *arguments):
            calls += 1
            if calls > after:
                if how == "stall":
                    time.sleep(60)
                if how == "slow":
                    time.sleep(0.2)
                if how in ("sent", "charged"):
                    os.kill(os.getpid(), 9)
        return before(self, *arguments, **keywords)
    return call

if how == "charged":  # the ledger has the line, and nothing was drawn yet
    paid = lambda noise, at, purpose: noise.ledgers[at].node == party
    mechanism.Noise._stream = trouble(mechanism.Noise._stream, paid)
elif how in ("kept", "late"):  # the answer before is kept, and the next is about to be made
    how = "sent" if how == "kept" else "stall"
    queries.Releases.vector = trouble(queries.Releases.vector, lambda out, *_: out.ledger.node == party)
else:  # the vector is kept, and about to be sent
    star.Star.up = trouble(star.Star.up, lambda at, *_: party in at.hosted and at._kind == "vector")
from distadmm import sharing
raise SystemExit(sharing.main(sys.argv[4:]))
"""
COMMON = ["--data", "tiny", "--split", "8,12,10", "--observe", "none", "--progress", "none"]
VECTORS = ["--mechanism", "s2", "--epsilon", "4", "--row-norm", "3", "--lambda", "30", "--rounds", "9"]
MOMENTS = ["--mechanism", "v1-t", "--epsilon", "4", "--row-norm", "3"]
SIMULATED = ["--rng", "simulation"]
EVERY = ["--checkpoint-every", "4"]
CASES: dict[str, tuple[list[str], str, int]] = {  # flags, how it is killed, after how many quiet calls
    "sound": (["--iterations", "12", *EVERY], "sent", 6),
    "gauss-seidel": (["--iterations", "6", "--form", "gauss-seidel", "--checkpoint-every", "2"], "sent", 10),
    "sgd": (
        ["--algorithm", "sgd", "--iterations", "5", "--batch", "50", "--checkpoint-every", "2"],
        "sent",
        25,
    ),
    "vectors": ([*VECTORS, *SIMULATED, *EVERY], "sent", 6),
    "vectors, charged": ([*VECTORS, *SIMULATED, *EVERY], "charged", 6),
    "vectors, before a checkpoint": ([*VECTORS, *SIMULATED], "sent", 6),
    "moments": ([*MOMENTS, *SIMULATED], "kept", 2),
    "moments, charged": ([*MOMENTS, *SIMULATED], "charged", 2),
    "vectors, secure": ([*VECTORS, *EVERY], "sent", 6),
    "moments, secure": (MOMENTS, "kept", 2),
}


EACH_TIME = ("vectors", "moments, charged", "vectors, secure")  # tried each time; the others with --long


def start(
    tmp_path: Path, mpiexec: list[str], ranks: int, how: str, after: int, *words: Any
) -> subprocess.Popen:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    before = [*mpiexec, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.Popen(
        [*before, sys.executable, str(script), how, "2", str(after), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen, limit: float = 60) -> tuple[int, str]:
    try:
        _, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"no end within {limit:g} s")
    return process.returncode, err


def resumed(mpiexec: list[str], ranks: int, folder: Path) -> None:
    if ranks == 1:
        assert sharing.main(["--resume", str(folder)]) == 0
        return
    command = [*mpiexec, "-n", str(ranks), sys.executable, "-m", "distadmm.sharing", "--resume", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def models(folder: Path) -> list[bytes]:
    return [read_npz(folder / "models" / f"party-{m}.npz")["x"].tobytes() for m in (1, 2, 3)]


def releases(folder: Path) -> dict[str, int]:
    """By ledger, how many releases it has paid for."""
    found = {}
    for path in sorted((folder / "ledger").glob("*.jsonl")):
        content = chain.read(path)
        assert content.fault is None
        tally = Tally.of(content.entries)
        found[path.name] = tally.releases + tally.torn
    return found


@pytest.mark.parametrize(
    "name", [name if name in EACH_TIME else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    name: str, tmp_path: Path, mpiexec: list[str], capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, how, after = CASES[name]
    killed = tmp_path / "killed"
    on = 2 if name in ("sound", "vectors") else 1
    code, err = finish(start(tmp_path, mpiexec, on, how, after, *COMMON, *flags, "--out", killed))
    assert code != 0, err
    assert not (killed / "summary.json").exists()
    sent, paid = replay.read_all(killed / "ledger"), releases(killed)
    secure = "secure" in name
    if secure:
        assert sent
    else:
        assert sharing.main([*COMMON, *flags, "--out", str(tmp_path / "whole")]) == 0
    for ranks in (1, 2, 3) if "moments" in name else (1, 3, 4):  # there party 1 is the centre
        folder = shutil.copytree(killed, tmp_path / f"on-{ranks}")
        with monkeypatch.context() as patched:  # an account knows which copy of a run was taken up again
            account = shutil.copytree(os.environ["XDG_STATE_HOME"], tmp_path / f"account-{ranks}")
            patched.setenv("XDG_STATE_HOME", str(account))
            resumed(mpiexec, ranks, folder)
        after_all = releases(folder)
        assert all(after_all[node] >= count for node, count in paid.items())
        if secure:  # what had left before is what left now, to the byte, and the schedule paid for all of it
            replies = read_npz(folder / "replies.npz") if (folder / "replies.npz").exists() else None
            again = replay.read_all(folder / "ledger")
            for place, message in sent.items():
                if place in again:
                    assert again[place].payload.startswith(message.payload)
                if replies is not None and place == (2, 0):
                    assert message.payload in again[place].payload
            assert set(after_all.values()) == {4 if replies is not None else 9}
        else:
            assert models(folder) == models(tmp_path / "whole")
            whole = releases(tmp_path / "whole")
            assert all(after_all[node] >= count for node, count in whole.items())
        assert ledger_command.main(["verify", str(folder)]) == 0
        assert json.loads((folder / "summary.json").read_text())["ended"] in ("iterations", "converged")
    capsys.readouterr()


def test_a_secure_release_that_was_charged_and_not_kept_costs_anew(
    tmp_path: Path, mpiexec: list[str]
) -> None:
    """Nobody can tell whether it left; so the last round has no budget any more, and all ranks end before it."""
    killed = tmp_path / "killed"
    words = [*COMMON, *VECTORS, *EVERY, "--out", killed]
    assert finish(start(tmp_path, mpiexec, 2, "charged", 6, *words))[0] != 0
    command = [*mpiexec, "-n", "3", sys.executable, "-m", "distadmm.sharing", "--resume", str(killed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    summary = json.loads((killed / "summary.json").read_text())
    assert (summary["ended"], summary["iterations"]) == ("privacy budget", 8)
    assert releases(killed)["node-0002.jsonl"] == 9


@pytest.mark.parametrize(
    ("flags", "how", "after", "where"),
    [
        (["--iterations", "30"], "stall", 5, "at set-up"),
        ([*VECTORS, *SIMULATED], "late", 5, "after iteration"),
        ([*MOMENTS, *SIMULATED], "late", 1, "at set-up"),
    ],
    ids=["vectors", "noisy vectors", "moments"],
)
def test_a_stalled_party_ends_the_job(flags, how, after, where, tmp_path: Path, mpiexec: list[str]) -> None:
    words = [*COMMON, *flags, "--stall-timeout", "1", "--out", tmp_path / "r"]
    code, err = finish(start(tmp_path, mpiexec, 3, how, after, *words), 40)
    assert code == 75, err
    assert "least far: rank " in err
    assert f"(party 2) {where}" in err


@pytest.mark.parametrize("ranks", [1, 3])
def test_sigterm_saves_and_ends_with_143(ranks: int, tmp_path: Path, mpiexec: list[str]) -> None:
    folder = tmp_path / "r"
    words = [
        *COMMON,
        "--iterations",
        "40",
        "--stop-tolerance",
        "0",
        "--checkpoint-every",
        "100",
        "--out",
        folder,
    ]
    process = start(tmp_path, mpiexec, ranks, "slow", 3, *words)
    limit = time.monotonic() + 30
    while not (folder / "ledger" / "node-0002.jsonl").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    code, err = finish(process)
    assert code == 143, err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ended"] == "signal 15"
    assert 0 < summary["iterations"] < 40
    resumed(mpiexec, 4, folder)
    assert sharing.main([*COMMON, *words[len(COMMON) : -1], str(tmp_path / "whole")]) == 0
    assert models(folder) == models(tmp_path / "whole")
