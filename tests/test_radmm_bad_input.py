"""Numbers that are not finite, or do not stay so, are told before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from distadmm import radmm


@pytest.mark.parametrize(
    "words",
    [
        "--gamma inf",
        "--dual-step inf",
        "--eta-growth inf",
        "--alpha 1 --adjacency replace --alpha-growth inf",
    ],
)
def test_infinite_parameters_are_one_line_and_exit_code_2(words: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert radmm.main(["--data", "tiny", "--out", str(out), *words.split()]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert "finite" in captured.err
    assert not out.exists()
