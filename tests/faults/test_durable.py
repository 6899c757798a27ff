"""Who holds a run directory, and what of it is on disk when the power goes."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.files import lock_file
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.ledger import file as ledgers
from distadmm.privacy.ledger.shelf import Shelf
from distadmm.run import claim

TINY = [
    "--data",
    "tiny",
    "--topology",
    "er5",
    "--iterations",
    "4",
    "--checkpoint-every",
    "2",
    "--progress",
    "none",
]
NOISE = ["--epsilon", "4", "--adjacency", "replace", "--rng", "simulation", "--observe", "2"]


def test_of_many_that_begin_at_once_in_one_directory_one_does(tmp_path: Path, monkeypatch) -> None:
    """Nobody empties what another has begun: the lock comes before the look."""
    monkeypatch.setattr(claim, "lock_file", partial(lock_file, patience=0.05))
    for number in range(20):
        out, begun, refused = tmp_path / str(number), [], []

        def begin(out: Path = out, begun: list = begun, refused: list = refused) -> None:
            held: list[claim.Lock] = []
            try:
                claim.claim_directory(out, "run", force=True, held=held)
                (out / f"config-{threading.get_ident()}.json").write_text("{}")
                begun.append(held)
            except InputError as refusal:
                refused.append(str(refusal))

        every = [threading.Thread(target=begin) for _ in range(6)]
        for each in every:
            each.start()
        for each in every:
            each.join()
        assert len(begun) == 1
        assert all("in use" in words for words in refused)
        assert len(list(out.glob("config-*.json"))) == 1
        begun.clear()
        assert not (out / claim.LOCK).exists()


def test_a_look_at_a_lock_refuses_nobody(tmp_path: Path) -> None:
    """As `status` takes one, from another process, at the moment at which a run begins."""
    (tmp_path / claim.LOCK).touch()
    look = open(tmp_path / claim.LOCK, "rb")  # noqa: SIM115
    assert lock_file(look.fileno(), shared=True)
    threading.Timer(0.2, look.close).start()
    began = time.monotonic()
    assert claim.lock(tmp_path).held
    assert time.monotonic() - began >= 0.1


def test_a_lock_whose_name_was_taken_away_is_no_lock(tmp_path: Path, monkeypatch) -> None:
    """Who waited for a run that ended holds a file that nobody finds: another one is made."""
    first = claim.lock(tmp_path)
    waits: list[claim.Lock] = []
    waiting = threading.Thread(target=lambda: waits.append(claim.lock(tmp_path)))
    waiting.start()
    time.sleep(0.1)
    del first
    waiting.join()
    assert claim.in_use(tmp_path)
    monkeypatch.setattr(claim, "lock_file", partial(lock_file, patience=0.05))
    with pytest.raises(InputError, match="in use"):
        claim.lock(tmp_path)


def test_after_a_sync_that_failed_nothing_more_is_charged(tmp_path: Path, monkeypatch) -> None:
    """The next one may succeed and bring nothing back that the disk has lost."""
    ledger = ledgers.Ledger(tmp_path, 0, adjacency="replace", mode="simulation")
    sync = ledgers._sync

    def fails(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ledgers, "_sync", fails)
    with pytest.raises(InputError, match="Input/output error"):
        ledger.checkpoint(0)
    monkeypatch.setattr(ledgers, "_sync", sync)
    with pytest.raises(InputError, match="nothing more is released"):
        ledger.charge(Gaussian(1.0), iteration=1)


def test_a_shelf_that_could_not_write_keeps_nothing_back(tmp_path: Path, monkeypatch) -> None:
    shelf = Shelf(tmp_path, [0, 1])
    shelf.each(lambda ledger, _: ledger.begin(adjacency="replace", mode="simulation"))
    with monkeypatch.context() as full:
        full.setattr(ledgers.chain, "write_all", _no_room)
        with pytest.raises(InputError, match="No space"):
            shelf.each(lambda ledger, _: ledger.charge(Gaussian(1.0), iteration=1))
    with pytest.raises(InputError, match="nothing more is released"):
        shelf[0].charge(Gaussian(1.0), iteration=2)


def _no_room(handle: int, content: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_what_a_run_needs_to_go_on_is_synced_with_the_folders_it_lies_in(tmp_path: Path, monkeypatch) -> None:
    synced: set[str] = set()
    monkeypatch.chdir(tmp_path)

    def noting(sync, handle: int) -> None:
        sync(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        synced.add(path.replace(f".{os.getpid()}.part", "").replace("/.", "/"))

    monkeypatch.setattr(os, "fsync", partial(noting, os.fsync))
    monkeypatch.setattr(ledgers, "_sync", partial(noting, ledgers._sync))
    assert radmm.main([*TINY, *NOISE, "--out", "all/run"]) == 0
    run = tmp_path / "all" / "run"
    needed = [
        run / "config.json",
        run / "history.csv",
        *run.glob("checkpoint/**/*"),
        *run.glob("ledger/*.jsonl"),
    ]
    assert len(needed) == 10
    assert {str(path) for path in (*needed, tmp_path, run.parent, run)} <= synced
