"""What a run directory names is not run because it names it: who made the directory wrote what its files say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import audit, transcript
from distadmm.errors import DONE, FAILURE, USAGE, InputError
from distadmm.files import read_json, write_json
from distadmm.ranks.world import World
from distadmm.run import checkpoint, vouch

EVIL = "from pathlib import Path\nPath({mark!r}).write_text('ran')\n"
LOSS = """
from distadmm.problems.losses import Logistic
class Mine(Logistic):
    pass
"""
RADMM = ["--data", "tiny", "--topology", "er5", "--iterations", "4", "--progress", "none"]
NOISE = ["--epsilon", "2", "--adjacency", "replace", "--rng", "simulation"]
STARTS: dict[str, tuple[Any, list[str]]] = {
    "radmm": (radmm, [*RADMM, *NOISE, "--eta", "20", "--checkpoint-every", "2"]),
    "sharing": (
        sharing,
        ["--data", "tiny", "--split", "15,15", "--iterations", "3", "--checkpoint-every", "2"],
    ),
    "istdp": (istdp, ["--data", "tiny", *NOISE, "--iterations", "3", "--checkpoint-every", "2"]),
}


def verbs(kind: str, run: Path) -> list[tuple[Any, list[str]]]:
    """Every command that makes something of a run directory by running it, or a part of it, again."""
    module = STARTS[kind][0]
    out = ["--out", f"{run}-seen", "--force"]
    found = [(module.main, ["--resume", str(run)]), (audit.main, [str(run), "--runs", "10", *out])]
    found.append((module.main, ["--config", str(run / "config.json"), *out]))
    return found + ([] if kind == "istdp" else [(transcript.main, [str(run), *out])])


@pytest.mark.parametrize("kind", STARTS)
def test_no_word_of_a_configuration_makes_anything_run_a_file(kind: str, tmp_path: Path, capsys: Any) -> None:
    """Every word of config.json in turn names a file; hash and signature are whatever its maker liked."""
    module, flags = STARTS[kind]
    run, mark = tmp_path / "run", tmp_path / "ran"
    assert module.main([*flags, "--out", str(run)]) == DONE
    (evil := tmp_path / "evil.py").write_text(EVIL.format(mark=str(mark)))
    honest = read_json(run / "config.json")
    code = {str(evil): vouch._digest(evil)}
    words = [w for w, v in honest["config"].items() if v is None or isinstance(v, (str, list))]
    assert {"loss", "data", "schema"} <= set(words)
    for word in words:
        for value in (str(evil), f"{evil}:Mine", [f"{evil}:Mine"]):
            told = {
                **honest,
                "config": {**honest["config"], word: value},
                "code": code,
                "code_signed": "00" * 32,
            }
            write_json(run / "config.json", told)
            for main, words_of_it in verbs(kind, run):
                assert main(words_of_it) == USAGE, (word, value)
                assert "--run-code" in capsys.readouterr().err
    assert not mark.exists()


@pytest.mark.parametrize("kind", STARTS)
def test_who_started_a_run_here_goes_on_with_its_code_and_with_no_other(
    kind: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    module, flags = STARTS[kind]
    run, own = tmp_path / "run", tmp_path / "own.py"
    own.write_text(LOSS)
    assert module.main([*flags, "--loss", f"{own}:Mine", "--out", str(run)]) == DONE
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for main, words in verbs(kind, run):
        code = main(words)
        assert code in (DONE, FAILURE, USAGE)
        assert "--run-code" not in capsys.readouterr().err

    def refused(why: str, of: Path = copy) -> None:
        for main, words in verbs(kind, of):
            assert main(words) == USAGE
            assert why in (said := capsys.readouterr().err), said

    own.write_text(LOSS + "\nprint('changed')\n")
    refused("not the file of that run any more")
    own.write_text(LOSS)
    told = read_json(copy / "config.json")
    write_json(copy / "config.json", {**told, "config": {**told["config"], "iterations": 5}})
    refused("did not start it here")  # the signature is of another configuration
    write_json(copy / "config.json", told)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody-else"))
    refused("did not start it here")
    with pytest.raises(InputError, match="--run-code"):
        vouch.require_vouched(copy, told)
    main, words = verbs(kind, copy)[0]
    assert main([*words, "--run-code"]) == DONE
    assert "run_code" not in json.loads((copy / "config.json").read_text())["config"]


@pytest.mark.parametrize("where", ["../../elsewhere", "/", "link"])
def test_a_checkpoint_is_read_from_its_own_directory_alone(where: str, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    module, flags = STARTS["radmm"]
    assert module.main([*flags, "--out", str(run)]) == DONE
    manifest = read_json(run / "checkpoint" / "latest.json")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(run / "checkpoint" / manifest["folder"], elsewhere)
    assert checkpoint.load(run / "checkpoint")
    if where == "link":
        (run / "checkpoint" / "link").symlink_to(elsewhere)
    place = str(elsewhere) if where == "/" else where
    write_json(run / "checkpoint" / "latest.json", {**manifest, "folder": place})
    with pytest.raises(InputError, match="not in that directory"):
        checkpoint.load(run / "checkpoint")
    assert module.main(["--resume", str(run), "--iterations", "6"]) == USAGE
    assert "not in that directory" in capsys.readouterr().err
    write_json(
        run / "checkpoint" / "latest.json", {**manifest, "files": [f"../../../{elsewhere.name}/x.npz"]}
    )
    with pytest.raises(InputError, match="not in that directory"):
        checkpoint.load(run / "checkpoint")


def test_a_checkpoint_is_of_the_ranks_that_answer_and_one_that_cannot_write_stops_all(tmp_path: Path) -> None:
    """`call` stands for five ranks, of which rank 3 is asleep; this one is rank 0."""
    folder, heard = tmp_path / "checkpoint", []

    def call(said: bytes, there: tuple[int, ...] = (0, 1, 2, 4)) -> dict[int, bytes]:
        heard.append(said)
        return {rank: said.replace(b"rank-00000", b"rank-%05d" % rank) for rank in there}

    kept = {"f": np.zeros(2)}
    assert checkpoint.save(folder, 4, kept, World(), call, run="r")
    files = json.loads((folder / "latest.json").read_text())["files"]
    assert files == [f"rank-{rank:05d}.npz" for rank in (0, 1, 2, 4)]
    # Who writes the manifest falls asleep: what the one before needs is not to be forgotten.
    assert not checkpoint.save(folder, 5, kept, World(), lambda said: call(said, (0, 1) if said else (1,)))
    full = json.dumps(["rank-00001.npz", "", "no room is left; make some"]).encode()
    with pytest.raises(InputError, match="no room is left"):
        checkpoint.save(folder, 6, kept, World(), lambda said: {0: said, 1: full})
    assert checkpoint.latest(folder) == 5
