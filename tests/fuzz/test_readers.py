"""Whatever is in a file that is read: no traceback, no hang, no file elsewhere, no code of it is run."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from distadmm.data.table import local_key
from distadmm.run import directory
from tests.fuzz import damage
from tests.fuzz.readers import READERS

A_FEW = 4  # inputs a reader in every run of the tests
CODES = {0, 1, 2, 3, 4}  # 1: what is verified is found wanting
PATIENCE = 60  # seconds of processor time, and ten times as many on the clock, for whatever the machine is at

_watched: list[str] = []  # what must not happen while an input is read; empty: nobody looks
_looking: list[Path] = []


def _audit(event: str, given: tuple[Any, ...]) -> None:
    """Of the interpreter itself: what is executed, and what is opened to be written."""
    if not _looking:
        return
    if event in ("os.system", "pickle.find_class", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        if event != "subprocess.Popen" or "distadmm" not in str(given[1]):  # a sweep starts its runs
            _watched.append(f"{event} {given}")
    elif event == "open" and isinstance(given[0], str | bytes | os.PathLike):
        path, flags = os.path.abspath(os.fsdecode(given[0])), given[2] if isinstance(given[2], int) else 0
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (
            writes
            and not path.startswith((str(_looking[0]), "/dev/", "/proc/"))
            and "__pycache__" not in path
        ):
            _watched.append(f"{event} {path}")


sys.addaudithook(_audit)


@contextlib.contextmanager
def looking(folder: Path) -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"no end within {PATIENCE} s of processor time, or {10 * PATIENCE} s")

    _watched.clear()
    _looking.append(folder)
    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, PATIENCE),
        signal.ITIMER_REAL: (signal.SIGALRM, 10 * PATIENCE),
    }
    before = {number: signal.signal(number, late) for number, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        _looking.clear()
    assert not _watched


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing of the user's own is read or written."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("DISTADMM_PRICES", "off")  # no reader writes, but what it starts may keep its prices
        patch.delenv("DISTADMM_ACCOUNT", raising=False)
        importlib.import_module("matplotlib.font_manager")  # looks for fonts, once
        local_key()  # made on first use, for all that follows
        yield folder


def _read(name: str, path: Path) -> None:
    """Read it, and look at what was said and done."""
    out, err = io.StringIO(), io.StringIO()
    with (
        looking(_top(path)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)  # a warning before the one line is a second line
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        codes = READERS[name].read(path)
    for code in codes if isinstance(codes, list) else [codes]:
        assert code in CODES, (code, err.getvalue())
    assert "Traceback" not in err.getvalue(), err.getvalue()
    assert not list(_top(path).rglob(damage.CANARY))
    assert not Path(damage.CANARY).exists()


def _top(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name.startswith("fuzz-"))


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_is_told_or_refused(
    name: str, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch
) -> None:
    soak = pytestconfig.getoption("--soak", 0)
    whole = tmp_path / "fuzz-0" / "whole"
    whole.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "fuzz-0")
    monkeypatch.setattr(directory, "Commit", str)  # nobody asks git
    path = READERS[name].made(whole)
    content = path.read_bytes()
    _again(path, whole, tmp_path / "kept")
    _read(name, path)  # as it is
    _again(path, tmp_path / "kept", whole)

    @settings(
        max_examples=-(-soak // len(READERS)) if soak else A_FEW,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate] if not soak else [Phase.generate, Phase.shrink],
    )
    @given(damage.of(path))
    def tried(damaged: bytes) -> None:
        _again(path, tmp_path / "kept", whole)
        path.write_bytes(damaged)
        _read(name, path)

    tried()
    path.write_bytes(content)


def _again(path: Path, source: Path, goal: Path) -> None:
    shutil.rmtree(goal, ignore_errors=True)
    shutil.copytree(source, goal)
