"""Failing, stalling and preempted ranks: the job ends, soon, with a code and a reason."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BASE = ["--data", "tiny", "--topology", "er5", "--progress", "none"]

FAILING = """
import os, time
from dataclasses import dataclass
from typing import NamedTuple
import distadmm
from distadmm.errors import InputError

class State(NamedTuple):
    f: object
    last: object = False

@distadmm.register("failing")
@dataclass(frozen=True)
class Failing:
    how: str = distadmm.flag("raise", help="how to fail")

    def ended(self, state):
        if self.how == "late" and state.last:
            time.sleep(60)
        return ""

    def init(self, node):
        return State(node.start)

    def step(self, k, st, node):
        if k == 2 and self.how == "kill":
            for line in open("/proc/self/maps"):
                if "/dev/shm/" in line:
                    print("mapped", line.split("/dev/shm/")[1].split()[0], flush=True)
        if k == 3 and 2 in node.network.nodes and self.how not in ("slowly", "late"):
            if self.how == "raise":
                raise RuntimeError("node two is unwell")
            if self.how == "exit":
                raise SystemExit(7)
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            if self.how == "input":
                raise InputError("node two cannot read its rows; mend them")
            time.sleep(60)
        if self.how == "slowly":
            time.sleep(1.2)
        node.network.neighbour_sum(st.f)
        return st._replace(last=k == 5 and 2 in node.network.nodes)
"""


def start(mpiexec: list[str], ranks: int, arguments: list[str], **options) -> subprocess.Popen:
    command = [*mpiexec, "-n", str(ranks), sys.executable, "-m", "distadmm.radmm", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


def finish(process: subprocess.Popen, limit: float = 60) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"no end within {limit:g} s")
    return process.returncode, out, err


def own_words(said: str) -> list[str]:
    """Lines of ours: what Open MPI's launcher says of a code that is not 0 stands between two rules."""
    return re.sub(r"-{40,}\n.*?-{40,}\n", "", said, flags=re.S).strip().splitlines()


@pytest.fixture
def failing(tmp_path: Path) -> str:
    path = tmp_path / "failing.py"
    path.write_text(FAILING)
    return str(path)


def test_a_killed_job_leaves_no_shared_memory(failing: str, mpiexec, tmp_path) -> None:
    flags = ["--algorithm", failing, "--how", "kill", "--iterations", "5", "--out", str(tmp_path / "o")]
    code, out, _ = finish(start(mpiexec, 5, [*BASE, *flags]))
    names = {word for line in out.splitlines() if line.startswith("mapped ") for word in line.split()[1:]}
    assert code != 0
    assert names
    assert not [name for name in names if Path("/dev/shm", name).exists()]


@pytest.mark.parametrize(("how", "told"), [("raise", "node two is unwell"), ("exit", "SystemExit: 7")])
def test_a_rank_that_raises_ends_all_and_says_which(
    how: str, told: str, failing: str, mpiexec, tmp_path
) -> None:
    arguments = [
        *BASE,
        "--algorithm",
        failing,
        "--how",
        how,
        "--iterations",
        "5",
        "--out",
        str(tmp_path / "o"),
    ]
    code, _, err = finish(start(mpiexec, 5, arguments))
    assert code != 0
    assert told in err
    assert "[rank 2] " in err
    assert "Traceback" in err


def test_an_input_error_of_one_rank_is_one_line_and_code_two(failing: str, mpiexec, tmp_path) -> None:
    arguments = [
        *BASE,
        "--algorithm",
        failing,
        "--how",
        "input",
        "--iterations",
        "5",
        "--out",
        str(tmp_path / "o"),
    ]
    code, _, err = finish(start(mpiexec, 5, arguments))
    assert code == 2
    assert "cannot read its rows" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("content", [None, "a,b,y\n1,nan,1\n"])
def test_a_bad_file_of_test_rows_is_told_before_anything_is_written(
    content: str | None, mpiexec, tmp_path
) -> None:
    rows = "".join(f"{i / 40},{1 - i / 50},{1 if i % 3 else -1}\n" for i in range(40))
    (tmp_path / "rows.csv").write_text("a,b,y\n" + rows)
    if content is not None:
        (tmp_path / "test.csv").write_text(content)
    files = ["--data", str(tmp_path / "rows.csv"), "--test-data", str(tmp_path / "test.csv")]
    code, _, err = finish(
        start(
            mpiexec, 3, [*files, "--topology", "ring:3", "--out", str(tmp_path / "o"), "--progress", "none"]
        )
    )
    assert code == 2
    assert len(own_words(err)) == 1
    assert "test.csv" in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("how", "where"), [("stall", "after iteration 2, iterating"), ("late", "after iteration 5, iterating")]
)
def test_a_stalled_rank_is_named(how: str, where: str, failing: str, mpiexec, tmp_path) -> None:
    """In an iteration, or after the last."""
    arguments = [*BASE, "--algorithm", failing, "--how", how, "--iterations", "5", "--stall-timeout", "3"]
    code, _, err = finish(start(mpiexec, 5, [*arguments, "--out", str(tmp_path / "o")]), 40)
    assert code != 0
    assert f"least far: rank 2 (node 2) {where}" in err
    assert "--stall-timeout" in err


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_ends_the_job(signal_sent: int, failing: str, mpiexec, tmp_path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    code = FAILING.replace("time.sleep(60)", f"os.kill(os.getpid(), {int(signal_sent)})")
    Path(failing).write_text(code)
    arguments = [
        *BASE,
        "--algorithm",
        failing,
        "--how",
        "die",
        "--iterations",
        "5",
        "--out",
        str(tmp_path / "o"),
    ]
    assert finish(start(mpiexec, 5, arguments))[0] != 0


def test_more_ranks_than_nodes(mpiexec, tmp_path: Path) -> None:
    code, out, err = finish(start(mpiexec, 6, [*BASE, "--iterations", "2"], cwd=tmp_path))
    assert code == 2
    assert out == ""
    assert "mpiexec -n 5" in err
    assert len(own_words(err)) == 1
    assert list(tmp_path.iterdir()) == []


def test_bad_flags_are_told_once_by_twenty_ranks(mpiexec) -> None:
    code, out, err = finish(start(mpiexec, 20, ["--etta", "1"]))
    assert (code, out) == (2, "")
    assert len(own_words(err)) == 1


def test_one_help_page_from_all_ranks(mpiexec) -> None:
    code, out, _ = finish(start(mpiexec, 4, ["--help"]))
    assert code == 0
    assert out.count("usage:") == 1


def test_a_launcher_of_another_mpi_is_refused(tmp_path: Path) -> None:
    """Such a launcher sets a size of its own and every process comes up alone."""
    environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "20", "OMPI_COMM_WORLD_RANK": "0"}
    command = [sys.executable, "-m", "distadmm.radmm", *BASE, "--iterations", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "20 processes but each of them is alone" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_preempted_run_goes_on_where_it_was(mpiexec, tmp_path: Path) -> None:
    """SIGUSR1, to one rank after the other, then --resume: the models of an uninterrupted run, bit for bit."""
    from distadmm.files import read_json, read_npz

    arguments = [*BASE, "--iterations", "100000", "--observe", "50", "--checkpoint-every", "1000"]
    out = tmp_path / "run"
    process = start(mpiexec, 3, [*arguments, "--out", str(out)])
    deadline = time.monotonic() + 40
    while not (out / "checkpoint" / "latest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in ranks_of(process.pid):
        with contextlib.suppress(ProcessLookupError):  # the first was enough for all to end
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.05)  # the last hear it while or after the run is written down
    code, _, err = finish(process)
    assert code == 128 + signal.SIGUSR1, err
    done = read_json(out / "summary.json")["iterations"]
    assert 1000 <= done < 100000
    more = ["--resume", str(out), "--iterations", str(done + 60), "--progress", "none"]
    assert finish(start(mpiexec, 2, more))[0] == 0
    other = tmp_path / "other"
    assert (
        finish(start(mpiexec, 1, [*arguments, "--iterations", str(done + 60), "--out", str(other)]))[0] == 0
    )
    resumed, straight = read_npz(out / "models.npz")["models"], read_npz(other / "models.npz")["models"]
    assert resumed.tobytes() == straight.tobytes()


def test_a_job_that_was_suspended_has_not_stalled(failing: str, mpiexec, tmp_path: Path) -> None:
    """Ctrl-Z, or scontrol suspend, for longer than --stall-timeout, in the middle of an iteration."""
    arguments = [*BASE, "--algorithm", failing, "--how", "slowly", "--iterations", "4", "--observe", "none"]
    process = start(mpiexec, 3, [*arguments, "--stall-timeout", "6", "--out", str(tmp_path / "run")])
    deadline = time.monotonic() + 40
    while sum(map(listens, ranks_of(process.pid))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in ranks_of(process.pid):
            os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(8.0)
    code, _, err = finish(process)
    assert (code, err) == (0, "")


def test_a_run_that_cannot_be_resumed_is_told_in_one_line_and_left_as_it_was(mpiexec, tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = [*BASE, "--iterations", "4", "--checkpoint-every", "2", "--out", str(out)]
    assert finish(start(mpiexec, 3, flags))[0] == 0
    latest = out / "checkpoint" / "latest.json"

    def refused(told: str) -> None:
        code, shown, err = finish(start(mpiexec, 3, ["--resume", str(out), "--progress", "none"]))
        assert (code, shown) == (2, "")
        assert len(own_words(err)) == 1, err
        assert told in err

    for path in (out / "checkpoint").glob("iteration-*/rank-00001.npz"):
        path.rename(path.with_name("elsewhere"))
    refused("rank-00001.npz")
    latest.unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    refused("no complete checkpoint")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def listens(pid: int) -> bool:
    """Whether it is told of signals by now: by the handler of SIGTERM, for MPICH has one of its own for SIGUSR1."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def ranks_of(pid: int) -> list[int]:
    """The Python processes below `pid`."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
                command = (path.parent / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:  # it has ended meanwhile
                continue
            if int(fields[1]) == parent:
                child = int(path.parent.name)
                todo.append(child)
                if b"python" in command:
                    found.append(child)
    return found
