"""Checkpoints that are mixed, damaged, of another run or without numbers: refused in a line, and nothing is changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distadmm import radmm, sharing
from distadmm.files import read_json, read_npz, write_json, write_npz
from distadmm.run.claim import lock

FLAGS = [
    "--data",
    "tiny",
    "--topology",
    "er5",
    "--progress",
    "none",
    "--checkpoint-every",
    "2",
    "--iterations",
]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "runs" / "radmm-checkpoint"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs alike in all but their names, and one of them at an earlier iteration."""
    folder = tmp_path_factory.mktemp("runs")
    for name, iterations in (("a", 8), ("b", 8), ("early", 4)):
        assert radmm.main([*FLAGS, str(iterations), "--out", str(folder / name)]) == 0
    return folder


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _state(folder: Path) -> Path:
    (found,) = folder.glob("checkpoint/iteration-*/rank-00000.npz")
    return found


def _manifest(change: Callable[[dict], object]) -> Callable[[Path, Path], None]:
    def damage(run: Path, others: Path) -> None:
        path = run / "checkpoint" / "latest.json"
        content = read_json(path)
        change(content)
        write_json(path, content)

    return damage


def _flip(run: Path, others: Path) -> None:
    content = bytearray(_state(run).read_bytes())
    content[len(content) // 2] ^= 1
    _state(run).write_bytes(content)


def _of_another_release(run: Path, others: Path) -> None:
    """Files as they are, under a manifest without hashes."""
    _manifest(lambda m: [m.pop("run"), m.pop("sha256")])(run, others)


DAMAGES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "another iteration": (
        lambda run, others: shutil.copy(_state(others / "early"), _state(run)),
        "mixed with another",
    ),
    "another run": (lambda run, others: shutil.copy(_state(others / "b"), _state(run)), "mixed with another"),
    "a flipped bit": (_flip, "damaged or mixed"),
    "no file": (lambda run, others: _state(run).unlink(), "cannot read"),
    "another config": (lambda run, others: shutil.copy(others / "b" / "config.json", run), "different runs"),
    "an old config": (
        lambda run, others: write_json(
            run / "config.json", {k: v for k, v in read_json(run / "config.json").items() if k != "run"}
        ),
        "config.json is not of the run",
    ),
    "a flipped key": (_manifest(lambda m: m.update(sha257=m.pop("sha256"))), "damaged"),
    "a flipped iteration": (_manifest(lambda m: m.update(iteration=9)), "another run or iteration"),
    "an iteration that is none": (_manifest(lambda m: m.update(iteration="8")), "no manifest"),
    "no files": (_manifest(lambda m: m.update(files=[])), "no manifest"),
    "no list": (lambda run, others: (run / "checkpoint" / "latest.json").write_text("[1]"), "no manifest"),
    "hashes left out": (_of_another_release, "another run or iteration"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_not_proved_whole_is_refused_and_left_as_it_was(
    what: str, runs: Path, tmp_path: Path, capsys
) -> None:
    run = shutil.copytree(runs / "a", tmp_path / "run")
    damage, told = DAMAGES[what]
    damage(run, runs)
    before = files(run)
    assert radmm.main(["--resume", str(run), "--iterations", "10", "--progress", "none"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1), said.err
    assert told in said.err
    assert files(run) == before


def test_a_second_resume_is_refused_and_changes_nothing(runs: Path, tmp_path: Path, capsys) -> None:
    run = shutil.copytree(runs / "a", tmp_path / "run")
    held = lock(run)  # as the first one does until its end
    before = files(run)
    for words in (["--resume", str(run), "--iterations", "10"], [*FLAGS, "3", "--out", str(run), "--force"]):
        assert radmm.main([*words, "--progress", "none"]) == 2
        assert "is in use" in capsys.readouterr().err
    assert files(run) == before
    del held
    assert radmm.main(["--resume", str(run), "--iterations", "10", "--progress", "none"]) == 0
    assert read_json(run / "config.json")["run"] == read_json(runs / "a" / "config.json")["run"]


def test_a_checkpoint_of_an_earlier_release_is_read_and_said_to_prove_nothing(tmp_path: Path, capsys) -> None:
    run = shutil.copytree(FIXTURE, tmp_path / "run")
    assert radmm.main(["--resume", str(run), "--iterations", "8", "--progress", "none"]) == 0
    assert capsys.readouterr().err.count("without hashes") == 1
    assert "sha256" in read_json(run / "checkpoint" / "latest.json")
    assert radmm.main(["--resume", str(run), "--iterations", "10", "--progress", "none"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["radmm", "sharing"])
def test_a_state_without_numbers_does_not_take_the_place_of_a_good_one(
    kind: str, how: float, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distadmm.run import loop

    plain, run = loop.stepped, tmp_path / "run"

    def step(algorithm, k, state, place):
        found = plain(algorithm, k, state, place)
        if k < 6:
            return found
        if kind == "radmm":
            f = found.f.copy()
            f[3] = how
            return found._replace(f=f)
        name = next(name for name, value in found._asdict().items() if isinstance(value, dict) and value)
        parts = dict(getattr(found, name))
        parts[2] = np.full_like(parts[2], how)
        return found._replace(**{name: parts})

    monkeypatch.setattr(loop, "stepped", step)
    if kind == "radmm":
        assert radmm.main([*FLAGS, "9", "--observe", "1", "--out", str(run)]) == 1
        reason = json.loads((run / "summary.json").read_text())["reason"]
        assert (
            "after iteration 6 at 1 of the nodes (the first: 3; rank 0 (node 0, 1, 2, 3, 4) on host" in reason
        )
        assert "penalties" not in reason
        assert "--resume" in reason
    else:
        words = "--data tiny --split 8,12,10 --stop-tolerance 0 --observe none --checkpoint-every 2 --iterations 9"
        assert sharing.main([*words.split(), "--out", str(run)]) == 1
        assert "no finite numbers after iteration 6 on rank 0" in capsys.readouterr().out
    (kept,) = run.glob("checkpoint/iteration-*/rank-00000.npz")
    assert kept.parent.name == "iteration-00000004"
    assert all(np.isfinite(v).all() for v in read_npz(kept).values() if v.dtype.kind == "f")


def test_a_foreign_file_in_the_place_of_a_state_is_refused(runs: Path, tmp_path: Path, capsys) -> None:
    run = shutil.copytree(runs / "a", tmp_path / "run")
    write_npz(_state(run), {"nodes": np.arange(5)})
    assert radmm.main(["--resume", str(run), "--iterations", "10"]) == 2
    assert "damaged or mixed" in capsys.readouterr().err
