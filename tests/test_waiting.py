"""How ranks wait: what is chosen where, and that real load is seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from distadmm import waiting
from distadmm.cli import _waiting

NAME = "MPIR_CVAR_ENABLE_HEAVY_YIELD"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*waiting._YIELDING, *waiting._LOCAL_RANKS):
        monkeypatch.delenv(name, raising=False)
    kept = dict(os.environ)
    yield
    for name in waiting._YIELDING:
        os.environ.pop(name, None)
    os.environ.update(kept)


@pytest.mark.parametrize(("mode", "value"), [("spin", "0"), ("yield", "1")])
def test_a_stated_mode_is_set(mode: str, value: str) -> None:
    waiting.choose_waiting(mode)
    assert os.environ[NAME] == value


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "0")
    waiting.choose_waiting("yield")
    assert os.environ[NAME] == "0"


@pytest.mark.parametrize(
    ("ranks", "foreign", "chosen"), [(1, True, None), (4096, False, None), (4096, True, "1")]
)
def test_auto_yields_to_foreign_load_on_crowded_cores_alone(
    monkeypatch: pytest.MonkeyPatch, ranks: int, foreign: bool, chosen: str | None
) -> None:
    monkeypatch.setenv("MPI_LOCALNRANKS", str(ranks))
    monkeypatch.setattr(waiting, "foreign_load", lambda: foreign)
    waiting.choose_waiting("auto")
    assert os.environ.get(NAME) == chosen


def test_a_busy_process_of_somebody_else_is_seen() -> None:
    # A grandchild: its parent is the shell, as a stranger's is not ours.
    loop = f"{sys.executable} -c 'while True: pass' & echo $!; wait"
    shell = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    try:
        seen = any(pid in waiting._runnable() for _ in range(1000))
        assert seen
        assert waiting.foreign_load() or not os.path.exists(f"/proc/{pid}")
    finally:
        os.kill(pid, signal.SIGKILL)
        shell.wait()
    assert pid not in waiting._runnable()


def test_our_own_ranks_are_not_foreign() -> None:
    # A child of the same parent as the process that looks, which is what another rank is.
    look = "import distadmm.waiting as w; print(sorted(w._runnable()))"
    spin = f"{sys.executable} -c 'while True: pass'"
    script = f"{spin} & s=$!; sleep 0.3; {sys.executable} -c '{look}'; echo $s; kill -9 $s"
    out = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert int(out[1]) not in eval(out[0])


@pytest.mark.parametrize(
    ("argv", "mode"),
    [
        ([], "auto"),
        (["--yield", "spin"], "spin"),
        (["--out", "x", "--yield=yield"], "yield"),
        (["--yield"], ""),
    ],
)
def test_the_flag_is_read_ahead(argv: list[str], mode: str) -> None:
    assert _waiting(argv) == mode


def test_a_configuration_file_is_read_ahead(tmp_path) -> None:
    (tmp_path / "run.toml").write_text('yield = "spin"\n')
    assert _waiting(["--config", str(tmp_path / "run.toml")]) == "spin"
    assert _waiting(["--config", str(tmp_path / "run.toml"), "--yield", "yield"]) == "yield"
    assert _waiting(["--config", str(tmp_path / "absent.toml")]) == "auto"
