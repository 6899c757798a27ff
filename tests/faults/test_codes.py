"""One exit code a cause, under whichever launcher there is: what a launcher makes of it by itself stands in a table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import mpiexec_command
from tests.faults.test_watchdog import run

RADMM = "radmm --data tiny --topology er5 --iterations 60 --progress none --checkpoint-every 3 --observe 4"
# A killed rank is the launcher's to tell, and so is what becomes of a signal that only the launcher got.
LAUNCHERS = {
    "open mpi": {"killed": 137, "fault": 139, "term": 1, "int": 1},
    "intel": {"killed": 255, "fault": 255},
}
MPICH = {"killed": 9, "fault": 11, "term": 143, "int": 130}


def own() -> dict[str, int]:
    said = subprocess.run(
        [mpiexec_command()[0], "--version"], capture_output=True, text=True, timeout=60
    ).stdout.lower()
    name = "open mpi" if "open mpi" in said or "openrte" in said else "intel" if "intel" in said else ""
    return MPICH | LAUNCHERS.get(name, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("- none start-up 1", 0),
        ("1 RuntimeError iterating 4", 1),
        ("0 RuntimeError iterating 4", 1),
        ("1 nan iterating 4", 1),
        ("1 full:0 iterating 5", 2),
        ("1 SIGSTOP iterating 5", 75),
        ("1 SIGSTOP start-up 1", 75),
        ("1 SIGTERM iterating 5", 143),
        ("1 SIGTERM reading 1", 143),
        ("1 SIGUSR1 iterating 5", 138),
        ("0 SIGINT iterating 5", 130),
        ("1 launcher:SIGUSR1 iterating 5", 138),
        ("1 launcher:SIGTERM iterating 5", "term"),
        ("1 launcher:SIGINT iterating 5", "int"),
        ("1 SIGKILL iterating 5", "killed"),
        ("0 SIGKILL iterating 5", "killed"),
        ("1 SIGSEGV iterating 4", "fault"),
    ],
)
def test_a_cause_has_its_code(fault: str, code: int | str, tmp_path: Path) -> None:
    found, said = run(fault, RADMM, "--stall-timeout", "5", "--out", str(tmp_path / "o"), limit=120)
    assert found == (own()[code] if isinstance(code, str) else code), said
    told = {1: "rank ", 2: "cannot write", 75: "--stall-timeout 5"}
    assert told.get(found, "") in said or code in ("term", "int")
