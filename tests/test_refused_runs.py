"""A run that is refused leaves nothing behind; one that has released anything, or was there before, stays."""

from pathlib import Path

import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import ledger

SMALL = ["--topology", "ring:5", "--data", "tiny", "--iterations", "4"]
PRIVATE = ["--epsilon", "1", "--adjacency", "replace"]
REFUSED = {
    "radmm": (radmm, [*SMALL, *PRIVATE]),
    "istdp": (istdp, [*PRIVATE, "--data", "tiny", "--iterations", "4"]),
    "sharing": (sharing, ["--data", "tiny", "--epsilon", "1"]),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("out", [None, "new", "there"])
def test_a_refused_run_leaves_nothing(name, out, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTADMM_ACCOUNT", str(tmp_path / "account"))
    assert ledger.main(["account", "--limit", "0.1", "--adjacency", "replace"]) == 0
    (tmp_path / "there").mkdir()
    before = sorted(tmp_path.rglob("*"))
    programme, words = REFUSED[name]
    capsys.readouterr()
    assert programme.main([*words, *(["--out", out] if out else [])]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert [path for path in sorted(tmp_path.rglob("*")) if "account" not in path.name] == [
        path for path in before if "account" not in path.name
    ]


def test_a_schedule_beyond_the_budget_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert radmm.main([*SMALL, *PRIVATE, "--budget-epsilon", "0.5", "--out", str(out)]) == 3
    assert not out.exists()


def test_what_was_released_stays(tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"
    words = [*SMALL, *PRIVATE, "--rng", "simulation", "--checkpoint-every", "2", "--out", str(out)]
    assert radmm.main(words) == 0
    (out / "ledger" / "node-0000.jsonl").write_bytes(b"")
    assert radmm.main(["--resume", str(out), "--iterations", "6", "--progress", "none"]) == 2
    assert (out / "summary.json").exists()
    assert (out / "checkpoint" / "latest.json").exists()
