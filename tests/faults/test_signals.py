"""What a run does when it is told to end: in start-up, by one rank alone, by Ctrl-C once and twice."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distadmm.ranks.watch import Watchdog
from tests.conftest import mpiexec_command
from tests.faults.test_codes import own
from tests.faults.test_ranks import finish, listens, ranks_of
from tests.faults.test_watchdog import DRIVER
from tests.test_cli import hear_ctrl_c

ENDLESS = {
    "radmm": "--data tiny --topology er5 --iterations 100000 --observe 50 --progress none",
    "sharing": "--data tiny --split 8,12,10 --iterations 100000 --stop-tolerance 0 --observe none --progress none",
    "istdp": "--data synthetic:99x5 --iterations 9000 --epsilon 1 --adjacency replace --rng simulation --progress none",
}


def start(fault: str, programme: str, out: Path, *more: str, ranks: int = 3) -> subprocess.Popen:
    before = [*mpiexec_command(), "-n", str(ranks)] if ranks > 1 else []
    command = [*before, sys.executable, *DRIVER, *fault.split(), programme, *ENDLESS[programme].split()]
    return subprocess.Popen(
        [*command, *more, "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )  # fmt: skip


def wait_for(what: Callable[[], object], limit: float = 40) -> None:
    end = time.monotonic() + limit
    while not what() and time.monotonic() < end:
        time.sleep(0.05)


def iterating(process: subprocess.Popen, out: Path, ranks: int = 3) -> list[int]:
    """The processes of the ranks, once a checkpoint says that they iterate."""
    wait_for((out / "checkpoint" / "latest.json").exists)
    return ranks_of(process.pid) if ranks > 1 else [process.pid]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_in_start_up_ends_the_job_and_nothing_is_begun(number: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("0 doze:20 reading 1", "radmm", out)
    wait_for(lambda: sum(map(listens, ranks_of(process.pid))) == 3)
    for pid in ranks_of(process.pid)[1:]:
        os.kill(pid, number)
    code, said, err = finish(process)
    assert (code, said) == (128 + number, ""), err
    assert err.count("before anything was begun") == 1
    assert not out.exists()


def test_ranks_that_are_told_at_the_same_moment_do_not_both_speak(tmp_path: Path) -> None:
    one, two = (Watchdog(1.0, rank, 2) for rank in range(2))
    for dog in (one, two):
        dog._board = dog._shared_board(str(tmp_path / "board"))
    fcntl.flock(one._file, fcntl.LOCK_EX)  # it is about to say that it speaks
    said: list[bool] = []
    other = threading.Thread(target=lambda: said.append(two.speaks()))
    other.start()
    other.join(0.2)
    assert not said
    assert one.speaks()
    other.join(5)
    assert said == [False]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_before_the_library_is_there_is_not_lost(number: int, tmp_path: Path) -> None:
    """MPICH takes SIGUSR1 for itself when it starts."""
    out = tmp_path / "run"
    process = start(f"0 {signal.Signals(number).name} distadmm.ranks.world:connect 1", "radmm", out)
    code, _, err = finish(process)
    assert code == 128 + number, err
    assert not out.exists()


def test_ctrl_c_while_a_script_that_has_mpi_already_starts_a_run_is_one_line(tmp_path: Path) -> None:
    """Such a run has no watchdog, for not all ranks of the script's job may come by."""
    script = (
        "import mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI\n"
        "from distadmm.testing.faults import meet\n"
        f"raise SystemExit(meet.main('0', 'SIGINT', 'start-up', '1', 'radmm', '--out', {str(tmp_path / 'run')!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, preexec_fn=hear_ctrl_c
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "distadmm.radmm: interrupted\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("programme", ["radmm", pytest.param("sharing", marks=pytest.mark.slow),
                                       pytest.param("istdp", marks=pytest.mark.slow)])  # fmt: skip
def test_sigterm_to_one_rank_that_is_not_the_first_is_heard(programme: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("0 slow:0.002 iterating 1", programme, out, "--checkpoint-every", "20")
    os.kill(iterating(process, out)[-1], signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 143, err
    assert json.loads((out / "summary.json").read_text())["ended"] == "signal 15"


ANOTHER_HOST = """
import sys
from distadmm.flags import entering
entering("__main__")
from distadmm.ranks import watch, world
world.on_one_host = lambda: False
watch.Watchdog.tell = lambda self, number: None
from distadmm.testing.faults import meet
raise SystemExit(meet.main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)])
def test_a_signal_to_a_rank_of_another_host_is_heard(number: int, tmp_path: Path) -> None:
    """No rank sees what another one was told: that is how it is between hosts."""
    out = tmp_path / "run"
    name = signal.Signals(number).name
    command = [
        *mpiexec_command(),
        "-n",
        "3",
        sys.executable,
        "-c",
        ANOTHER_HOST,
        "2",
        name,
        "iterating",
        "40",
    ]
    done = subprocess.run(
        [*command, "radmm", *ENDLESS["radmm"].split(), "--out", str(out)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 128 + number, done.stderr
    assert json.loads((out / "summary.json").read_text())["ended"] == f"signal {number:d}"


def test_a_refusal_keeps_its_code_where_a_launcher_ends_the_others_for_it(tmp_path: Path) -> None:
    """As srun --kill-on-bad-exit does: a job that was refused is not put back into the queue for a signal."""
    fault = "0 all:SIGTERM distadmm.ranks.watch:Watchdog.__exit__ 1"
    code, _, err = finish(start(fault, "radmm", tmp_path / "run", "--observe", "0"))
    assert code == 2, err


@pytest.mark.parametrize(
    ("programme", "ranks"),
    [
        ("radmm", 3),
        ("sharing", 1),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in [("radmm", 1), ("sharing", 3)]),
    ],
)
def test_ctrl_c_saves_says_how_to_go_on_and_another_one_stops(
    programme: str, ranks: int, tmp_path: Path
) -> None:
    """Once: the run ends after its iteration, with models, summary and state, though no checkpoints were asked for."""
    if ranks > 1 and own()["int"] == 1:
        pytest.skip(
            "Open MPI's launcher kills the ranks before they have saved anything (docs/reliability.md)"
        )
    out = tmp_path / "run"
    process = start("0 slow:0.005 iterating 1", programme, out, ranks=ranks)
    wait_for(lambda: (out / "ledger").exists() or (out / "config.json").exists())
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    code, said, err = finish(process)
    assert code == 130, err
    ended = json.loads((out / "summary.json").read_text())
    assert ended["ended"] == "signal 2"
    assert (out / "model.json").exists()
    again = said.strip().splitlines()[-1]
    assert again.startswith("signal 2; to go on: ")
    assert again.endswith(f"python -m distadmm.{programme} --resume {out}")
    words = [sys.executable, "-m", f"distadmm.{programme}", "--resume", str(out), "--progress", "none"]
    more = subprocess.run(
        [*words, "--iterations", str(ended["iterations"] + 20)], capture_output=True, text=True, timeout=60
    )
    assert more.returncode == 0, more.stderr
    assert json.loads((out / "summary.json").read_text())["iterations"] == ended["iterations"] + 20


def test_ctrl_c_twice_stops_in_the_middle_of_an_iteration(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("0 doze:60 iterating 30", "radmm", out, "--checkpoint-every", "20", ranks=1)
    iterating(process, out)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process, 20)
    assert code == 130
    assert err.splitlines()[-1] == "distadmm.radmm: interrupted"
    assert not (out / "summary.json").exists()
