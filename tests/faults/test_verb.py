"""`python -m distadmm faults`: a seeded handful holds, and each kind of bug that is planted is found."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm.commands import faults
from distadmm.files import read_json
from distadmm.methods.gossip.release import Gradients
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger import file as ledgers
from distadmm.run import checkpoint, directory, loop
from distadmm.testing.faults import judge, kinds, tap
from distadmm.testing.faults.kinds import Fault
from distadmm.testing.faults.lives import Life
from distadmm.testing.faults.trial import ANEW, QUIET, RESUMED, Stage, Verdict, damage, trial

KIND = {kind.name: kind for kind in kinds.KINDS}


def fault(name: str, case: str = "radmm", where: str = "iterating", call: int = 8, draw: int = 0) -> Fault:
    kind = KIND[name]
    return Fault(0, case, kind, 1, "0", kind.fault, where, call, 1, draw)


@pytest.fixture
def tried(tmp_path: Path) -> Callable[..., Verdict]:
    stage = Stage(tmp_path, 400)

    def go(*words: Any, limit: float = 400, **more: Any) -> Verdict:
        stage.limit = limit
        return trial(stage, fault(*words, **more))

    return go


def test_a_handful_holds(tmp_path: Path) -> None:
    """Runs of one rank, of all programmes; those under a launcher have their tests beside this one."""
    seed, count = 0, 10
    alone = [(name, kind) for name, kind in kinds.pairs(False, False) if name != "sweep"]
    verdicts = []
    for number in range(count):
        chosen = kinds.fault_of(seed + number, alone, ranks=False)
        verdicts.append(trial(Stage(tmp_path / str(number), 400), chosen))
    assert not [(verdict.fault.words, verdict.wrong) for verdict in verdicts if verdict.wrong]


@pytest.mark.parametrize(
    "met",
    [
        fault("SIGINT to a rank", where="start-up", call=1),
        fault("NaN", call=7),  # a model that is recycled next, and from which the solve after that begins
        fault("NaN", "sharing, s2", call=9),  # after its last round, whose models nobody measures
        fault("read-only", "admm", where="solving", call=1),
        fault("swapped file", "tracking", draw=530223369094688075)._replace(resume_on=3),  # ledgers
        fault(
            "flipped file", "sharing, s2", draw=666858740321125296
        ),  # history.csv, behind ledgers that are whole
        fault("disk full", "admm", where="solving", call=1)._replace(fault="full:1000", ranks=3),
        pytest.param(
            fault("SIGINT to the launcher", "sharing", where="leaving", call=1)._replace(ranks=3, rank="2"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda met: met.words,
)
def test_what_was_found_once_holds(met: Fault, tmp_path: Path) -> None:
    """No Ctrl-C is lost or leaves a rank halfway, a refusal changes nothing, a full disk is told and not waited for."""
    assert not trial(Stage(tmp_path, 400), met).wrong


@pytest.mark.slow
def test_forty_faults_hold_and_are_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["--count", "40", "--seed", "300", "--jobs", "2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    with open(tmp_path / "faults.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(line["seed"]) for line in lines] == list(range(300, 340))
    table = json.loads((tmp_path / "faults.json").read_text())
    assert sum(told["faults"] for told in table["kind"].values()) == 40
    assert sum(told["faults"] for told in table["programme"].values()) == 40
    assert all(name in said for name in table["kind"])


def test_a_fault_follows_from_its_seed() -> None:
    among = kinds.pairs(True, True)
    again = kinds.pairs(True, True)
    first = [kinds.fault_of(seed, among, ranks=True) for seed in range(len(among))]
    assert first == [kinds.fault_of(seed, again, ranks=True) for seed in range(len(among))]
    assert {(each.case, each.kind.name) for each in first} == {(name, kind.name) for name, kind in among}


def test_what_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["--programme", "rademm"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "programmes: admm, radmm" in said


# -- bugs that are planted, each found ---------------------------------------------------------------------


def test_a_ledger_that_is_written_after_the_message_is_found(tried, monkeypatch) -> None:
    """As by a process that keeps its lines back, to write several at once."""
    late: list[tuple[Any, bytes]] = []
    write = ledgers.Ledger._write

    def lazy(self: Any, line: bytes, sync: bool) -> None:
        late.append((self, line))
        if len(late) > 30:
            for book, kept in late:
                write(book, kept, False)
            late.clear()

    monkeypatch.setattr(ledgers.Ledger, "_write", lazy)
    assert "uncharged" in tried("SIGKILL rank 0").wrong


def test_other_noise_for_what_was_sent_already_is_found(tried, monkeypatch) -> None:
    """What was sent is not looked up, each process draws its own, and the second time is not paid for."""
    charge, noised = ledgers.Ledger.charge, Gradients._noised

    def once(self: Any, event: Any, **more: Any) -> Any:
        paid = [entry for entry in chain.read(self.path).entries if entry["kind"] == "release"]
        known = more.get("iteration") in [entry["k"] for entry in paid]
        return None if known else charge(self, event, **more)

    monkeypatch.setattr(replay, "read_all", lambda folder: {})
    monkeypatch.setattr(ledgers.Ledger, "charge", once)
    monkeypatch.setattr(Gradients, "_noised", lambda *given: noised(*given) + os.getpid() * 1e-9)
    assert "twice" in tried("SIGKILL rank 0", "gossip").wrong


def test_a_checkpoint_that_is_mixed_is_found(tried, tmp_path: Path, monkeypatch) -> None:
    """No hash, no name and no iteration is looked at: what is read is believed."""

    def load(folder: Path) -> list[dict[str, np.ndarray]]:
        manifest = read_json(folder / "latest.json")
        parts = [checkpoint.read_npz(folder / manifest["folder"] / name) for name in manifest["files"]]
        return [{name: value for name, value in part.items() if name != "of"} for part in parts]

    monkeypatch.setattr(checkpoint, "load", load)
    monkeypatch.setattr(directory, "_require_heads", lambda folder, heads: None)
    monkeypatch.setattr(Gradients, "recall", lambda self, memory: None)
    stage = Stage(tmp_path / "which", 400)
    killed, foreign = stage.killed("gossip"), stage.reference("gossip", 1)
    for draw in range(100):  # which file is damaged is left to chance
        name = damage(
            shutil.copytree(killed, stage.fresh()), foreign, fault("foreign file", "gossip", draw=draw)
        )
        if name.startswith("checkpoint/iteration"):
            break
    assert "bits" in tried("foreign file", "gossip", draw=draw).wrong


def test_a_state_that_a_resume_changes_is_found(tried, monkeypatch) -> None:
    plain = checkpoint.load

    def load(folder: Path) -> list[dict[str, np.ndarray]]:
        return [{**part, "state.lam": part["state.lam"] + 1e-9} for part in plain(folder)]

    monkeypatch.setattr(checkpoint, "load", load)
    assert "bits" in tried("SIGKILL rank 0").wrong


def test_a_hang_is_found(tried, monkeypatch) -> None:
    monkeypatch.setattr(loop.Loop, "_reason_to_stop", lambda *_: time.sleep(100) or "")
    assert "hang" in tried("SIGTERM to a rank", "admm", limit=2).wrong


def test_a_refusal_that_leaves_its_mark_is_found(tried, monkeypatch) -> None:
    """The lock comes first, but config.json is written before the checkpoint is looked at."""
    whole = directory._whole

    def marked(folder: Path, described: dict[str, Any], **more: Any) -> str:
        with open(folder / "config.json", "a") as file:
            file.write("\n")
        return whole(folder, described, **more)

    monkeypatch.setattr(directory, "_whole", marked)
    found: dict[str, str] = {}
    for draw in range(6):
        found |= tried("flipped file", "gossip", draw=draw).wrong
    assert "lost" in found, found


def test_a_signal_that_is_not_heard_and_a_code_of_another_cause_are_found() -> None:
    told = (128 + signal.SIGTERM,)
    assert judge.ended(Life(1, "x: ended"), told).keys() == {"code"}
    assert judge.ended(Life(143, "x: ended", orphans=2), told).keys() == {"orphan"}
    assert judge.ended(Life(2, "Traceback\nx: y"), (2,)).keys() == {"words"}
    assert judge.ended(Life(2, "no"), (2,)).keys() == {"words"}
    assert not judge.ended(Life(143, "x: ended"), told)


def test_what_is_honest_is_not_accused(tried) -> None:
    """The same trials without a bug; before the first checkpoint a run is started again."""
    assert tried("SIGKILL rank 0") == Verdict(fault("SIGKILL rank 0"), RESUMED, {})
    assert tried("SIGKILL rank 0", call=2).outcome == ANEW
    assert not tried("SIGKILL rank 0", "radmm, secret noise").wrong


def test_of_two_lives_the_one_that_had_the_lock_first_is_judged_first(tmp_path: Path) -> None:
    """The second to be started may be the first to go on: what it sends again was paid then, not later."""
    late, soon, refused = (tmp_path / name for name in ("1", "2", "3"))
    late.write_text('[3, "", "b", 2]\n')
    soon.write_text('[3, "", "a", 1]\n[3, "", "b", 2]\n')
    os.utime(soon, (1, 1))
    turns = [tap.read(path) for path in tap.in_turn((late, soon, refused))]
    assert not judge.sent(turns, tmp_path)
    assert judge.sent(turns[::-1], tmp_path).keys() == {"uncharged"}


def test_a_tap_reads_ledgers_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    lines = [
        {"node": 0, "kind": "open"},
        {"node": 0, "kind": "commit", "events": []},
        {"node": 0, "kind": "release", "k": 1},
        {"node": 1, "kind": "charge", "k": 0, "mech": "unbounded"},
        {"node": 2, "kind": "charge", "k": 3, "params": {"session": "ab", "round": 2}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "node-0000.jsonl").write_text(text + '{"node": 0, "kind": "rele')
    found = tap.entries(tmp_path)
    assert [tap.noted(found[0], key) for key in ("1", "2", "")] == [1, 0, 1]
    assert tap.noted(found[1], "7") == tap.UNBOUNDED
    assert [tap.noted(found[2], key) for key in ("ab/2", "ab/3")] == [1, 0]


SECRET = "--epsilon 8 --adjacency replace --rng secure"


@pytest.mark.parametrize(
    ("programme", "flags"),
    [
        ("radmm", f"--data tiny --topology er5 --iterations 12 {SECRET}"),
        (
            "sharing",
            "--data tiny --split 8,12,10 --mechanism s2 --row-norm 3 --lambda 30 --rounds 9 --iterations 8 "
            "--epsilon 8 --adjacency replace",
        ),
        ("istdp", "--data synthetic:99x5 --iterations 12 --epsilon 1 --adjacency replace"),
    ],
)
def test_an_old_copy_is_refused_before_anything_is_written_of_it(
    programme: str, flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = f"{flags} --checkpoint-every 3 --progress none"
    monkeypatch.setitem(kinds.CASES, "secret", kinds.Case(programme, whole, 9))
    stage = Stage(tmp_path, 400)
    killed = stage.killed("secret")
    one, other = (shutil.copytree(killed, tmp_path / name) for name in ("one", "other"))
    lives = []
    for folder in (one, other):
        before = judge.content(folder)
        words = ["--resume", str(folder), "--progress", "none"]
        lives.append(stage.alone(kinds.CASES["secret"], words, QUIET, tmp_path / f"{folder.name}.tap"))
    assert lives[0].code == 0, lives[0].said
    assert lives[1].code == 2
    assert "is an old copy" in lives[1].said
    assert judge.content(other) == before
