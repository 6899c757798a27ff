"""The launcher of MPI tests is itself tested: it must show failures, deadlocks and silent skips."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = {
    "passes": ("def test_it(world): assert world.size == {n}", 0, "1 passed"),
    "one_rank_fails": (
        "def test_it(world): assert world.rank != 1, 'rank one is wrong'",
        1,
        "rank one is wrong",
    ),
    "deadlock": (
        "def test_it(world):\n    if world.rank == 0: world.comm.recv(source=1)\n    world.barrier()",
        1,
        "no end within 6 s",
    ),
    "skips": ("def test_it(world): pytest.skip('not here')", 1, "skipped"),
}


@pytest.mark.parametrize("case", CASES)
def test_launcher_tells_the_truth(case: str, tmp_path: Path) -> None:
    body, code, told = CASES[case]
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "test_case.py").write_text(
        f"import pytest\n\n@pytest.mark.mpi(min_size=2, sizes=[2], timeout={6 if case == 'deadlock' else 60})\n"
        + body.replace("{n}", "2")
        + "\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:pytest_mpi\n")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=90)
    assert done.returncode == code, done.stdout
    assert told in done.stdout


def test_one_failure_among_many_is_told_of_that_one_alone(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    bodies = [
        "pass",
        "assert world.rank != 1, 'rank one is wrong'",
        "pass",
        "(shared_path / 'x').touch(exist_ok=False)",
    ]
    tests = [
        f"@pytest.mark.mpi(min_size=2, sizes=[2])\ndef test_{i}(world, shared_path):\n"
        f"    {body if 'touch' not in body else 'world.is_root and ' + body}\n"
        for i, body in enumerate([*bodies, bodies[-1]])
    ]
    (tmp_path / "test_case.py").write_text("import pytest\n\n" + "\n".join(tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:pytest_mpi\n")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=90)
    assert "1 failed, 4 passed" in done.stdout, done.stdout
    assert "rank 1 of 2 failed" in done.stdout


@pytest.mark.mpi(min_size=2)
def test_every_rank_runs_the_body(world, mpi_ranks: int) -> None:
    assert world.size == mpi_ranks
    assert sorted(world.allgather(world.rank)) == list(range(mpi_ranks))
