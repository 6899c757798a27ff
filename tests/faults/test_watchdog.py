"""A rank that is stopped, or gets nowhere, ends the job soon, wherever it is, with its name; a slow one does not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import mpiexec_command

DRIVER = ("-m", "distadmm.testing.faults.meet")
RADMM = "radmm --data tiny --topology er5 --iterations 5 --progress none --checkpoint-every 2"
SHARING = "sharing --data tiny --split 8,12,10 --iterations 5 --progress none"
ISTDP = "istdp --data synthetic:300x5 --iterations 5 --epsilon 1 --adjacency replace --rng simulation --repetitions 3"
IAS = "ias --problem gauss --f js --beta 0.6 --restarts 4"
FUNNEL = "funnel --problem synthetic-unif --points 2"


def run(fault: str, programme: str, *more: str, ranks: int = 3, limit: float = 40) -> tuple[int, str]:
    """Exit code and what was said of `RANK FAULT WHERE CALL`; no process is left behind."""
    command = [
        *mpiexec_command(),
        "-n",
        str(ranks),
        sys.executable,
        *DRIVER,
        *fault.split(),
        *programme.split(),
    ]
    process = subprocess.Popen(
        [*command, *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=10)
        pytest.fail(f"no end within {limit:g} s: {said}")
    return process.returncode, said


def often(*cases: tuple[str, str, str]) -> list:
    """The first three each time, the rest with --long."""
    return [pytest.param(*case, marks=[pytest.mark.slow] * (at > 2)) for at, case in enumerate(cases)]


@pytest.mark.parametrize(
    ("fault", "programme", "phase"),
    often(
        ("1 SIGSTOP start-up 1", RADMM, "rank 1 at start-up"),
        ("2 SIGSTOP writing 1", SHARING, "rank 2 (party 2)"),
        ("2 SIGSTOP solving 1", IAS, "rank 2 at solving"),
        ("1 SIGSTOP reading 1", RADMM, "rank 1 at reading rows"),
        ("0 SIGSTOP pricing 1", RADMM, "rank 0 (node 0, 1) at pricing"),
        ("2 SIGSTOP set-up 1", RADMM, "rank 2 (node 4) at set-up"),
        ("1 SIGSTOP iterating 4", RADMM, "rank 1 (node 2, 3) after iteration 3, iterating"),
        ("1 SIGSTOP writing 1", RADMM, "rank 1 (node 2, 3) after iteration 5, writing"),
        ("1 SIGSTOP leaving 1", RADMM, "rank 1 (node 2, 3) after iteration 5, writing"),
        ("1 SIGSTOP reading 1", SHARING, "rank 1 at reading rows"),
        ("2 SIGSTOP iterating 3", SHARING, "rank 2 (party 2) after iteration 2"),
        ("0 SIGSTOP reading 1", ISTDP, "rank 0 at reading rows"),
        ("1 SIGSTOP iterating 2", ISTDP, "rank 1"),
        ("0 SIGSTOP leaving 1", IAS, "rank 0 at writing"),
        ("0 SIGSTOP solving 1", FUNNEL, "rank 0 at solving"),
    ),
)
def test_a_stopped_rank_is_named_and_ends_the_job(
    fault: str, programme: str, phase: str, tmp_path: Path
) -> None:
    code, said = run(fault, programme, "--stall-timeout", "1", "--out", str(tmp_path / "o"))
    assert code == 75, said
    assert phase in said
    assert said.count("--stall-timeout 1") == 1
    begun = "start it again" if "iteration 3" not in phase and "iteration 5" not in phase else "--resume"
    assert begun in said or programme == SHARING


def test_a_rank_that_sleeps_in_its_step_is_told_from_those_that_wait_for_it(tmp_path: Path) -> None:
    code, said = run("1 doze:60 iterating 4", RADMM, "--stall-timeout", "1", "--out", str(tmp_path / "o"))
    assert code == 75
    assert "least far: rank 1 (node 2, 3) after iteration 3, iterating on host " in said
    assert "rank 0 waits for nodes 2, 3 (rank 1 on host " in said  # by who has waited for half the time
    assert f"to go on: mpiexec -n 3 python -m distadmm.radmm --resume {tmp_path / 'o'}" in said


@pytest.mark.parametrize(
    ("fault", "code"),
    [("1 doze:90 solving 1", 75), pytest.param("1 busy:12 solving 1", 0, marks=pytest.mark.slow)],
)
def test_a_solve_that_tells_nothing_is_known_by_the_processor_time_it_takes(
    fault: str, code: int, tmp_path: Path
) -> None:
    """Ten times the timeout, which a rank sleeps or works for."""
    found, said = run(fault, IAS, "--stall-timeout", "1", "--out", str(tmp_path / "o"), limit=80)
    assert found == code, said
    assert ("least far: rank 1 at solving" in said) == bool(code)


@pytest.mark.parametrize("timeout", ["0.1", pytest.param("1", marks=pytest.mark.slow)])
def test_reading_that_takes_processor_time_is_not_stopped_however_short_an_iteration_may_be(
    timeout: str, tmp_path: Path
) -> None:
    """Longer than ten times the timeout; at 1 s longer than the least that is allowed, too."""
    busy = 2 if timeout == "0.1" else 12
    code, said = run(
        f"1 busy:{busy} reading 1",
        SHARING,
        "--stall-timeout",
        timeout,
        "--observe",
        "none",
        "--out",
        str(tmp_path / "o"),
    )
    assert "reading rows" not in said
    assert code == 0 or "iterating" in said, said


@pytest.mark.slow
def test_reading_that_sleeps_is_stopped(tmp_path: Path) -> None:
    code, said = run("1 doze:60 reading 1", SHARING, "--stall-timeout", "0.5", "--out", str(tmp_path / "o"))
    assert (code, "least far: rank 1 at reading rows" in said) == (75, True), said


@pytest.mark.slow
def test_of_fifty_healthy_runs_with_a_slow_rank_none_is_stopped(tmp_path: Path) -> None:
    """A rank that takes ten times as long for an iteration as the others, under a timeout of some thirty of them."""
    for number in range(50):
        programme, rank = (RADMM, SHARING)[number % 2], number % 3
        fault = f"{rank} slow:0.05 iterating 1"
        code, said = run(fault, programme, "--stall-timeout", "1.5", "--out", str(tmp_path / str(number)))
        assert (code, "--stall-timeout" in said) == (0, False), (number, said)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 17))])
def test_a_rank_that_is_slow_is_not_stopped(seed: int, tmp_path: Path) -> None:
    """Ten times as slow as an iteration is, asleep half the timeout, or longer where start-up takes long."""
    chance = random.Random(seed)
    rank = chance.randrange(3)
    where = chance.choice(["reading", "pricing", "set-up", "writing"])
    for fault in (
        f"{rank} slow:0.05 iterating 1",
        f"{rank} doze:0.5 iterating 3",
        f"{rank} doze:2.5 {where} 1",
    ):
        programme = chance.choice([RADMM, SHARING])
        code, said = run(fault, programme, "--stall-timeout", "1", "--out", str(tmp_path / fault))
        assert code == 0, said
        assert "--stall-timeout" not in said
