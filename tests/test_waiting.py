"""How ranks wait: what is chosen where."""

from __future__ import annotations

import os
import threading
import time

import pytest

from distadmm.ranks import waiting
from distadmm.ranks.launch import _ahead

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
    ("ranks", "own", "launchers", "chosen"),
    [
        (1, {0, 5}, {0, 5}, None),
        (2, {0, 5}, {0, 5}, None),
        (3, {0, 5}, {0, 5}, "1"),
        (16, {3}, set(range(16)), None),  # each rank is tied to a core of its own
        (17, {3}, set(range(16)), "1"),
    ],
)
def test_auto_yields_where_ranks_outnumber_cores(
    monkeypatch: pytest.MonkeyPatch, ranks: int, own: set[int], launchers: set[int], chosen: str | None
) -> None:
    monkeypatch.setenv("MPI_LOCALNRANKS", str(ranks))
    cores = {0: own, os.getppid(): launchers}
    monkeypatch.setattr(os, "sched_getaffinity", cores.__getitem__, raising=False)
    waiting.choose_waiting("auto")
    assert os.environ.get(NAME) == chosen


def test_auto_counts_the_hosts_cores_where_it_cannot_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv("MPI_LOCALNRANKS", "4")
    waiting.choose_waiting("auto")
    assert NAME not in os.environ
    monkeypatch.setenv("MPI_LOCALNRANKS", "5")
    waiting.choose_waiting("auto")
    assert os.environ[NAME] == "1"


@pytest.mark.parametrize(
    ("argv", "mode"),
    [
        ([], "auto"),
        (["--yield", "spin"], "spin"),
        (["--out", "x", "--yield=yield"], "yield"),
        (["--yield"], "auto"),
    ],
)
def test_the_flag_is_read_ahead(argv: list[str], mode: str) -> None:
    assert _ahead(argv) == (mode, None)


def test_a_configuration_file_is_read_ahead(tmp_path) -> None:
    (tmp_path / "run.toml").write_text('yield = "spin"\nstall_timeout = 7\n')
    assert _ahead(["--config", str(tmp_path / "run.toml")]) == ("spin", 7.0)
    assert _ahead(["--config", str(tmp_path / "run.toml"), "--yield", "yield"]) == ("yield", 7.0)
    assert _ahead(["--config", str(tmp_path / "absent.toml")]) == ("auto", None)


def test_a_pipe_is_waited_for_until_it_is_read() -> None:
    read, write = os.pipe()
    try:
        os.write(write, b"the reason")
        reader = threading.Timer(0.05, os.read, (read, 100))
        reader.start()
        waiting.until_read(write, limit=30.0)
        assert waiting._unread(write) == 0
        reader.join()
        os.write(write, b"nobody reads this")
        began = time.monotonic()
        waiting.until_read(write, limit=0.05)
        assert time.monotonic() - began >= 0.05
        assert waiting._unread(write) == len(b"nobody reads this")
    finally:
        os.close(read)
        os.close(write)


def test_a_file_is_not_waited_for(tmp_path) -> None:
    with open(tmp_path / "log", "w+b") as file:
        file.write(b"kept")
        file.flush()
        assert waiting._unread(file.fileno()) == 0
