"""Every help page ends with two examples, and all of them work, one after the other, beside a reader's files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distadmm import __main__, files
from distadmm.commands.ledger import VERBS as LEDGER
from distadmm.papers.command import PAPERS
from distadmm.testing import __main__ as contract
from tests.page_names import NEW

LINES = (Path(files.__file__).parent / "data" / "examples.txt").read_text().splitlines()
PAGES = [[], *([verb] for verb in __main__.VERBS), ["sharing", "predict"]]
PAGES += [*(["ledger", verb] for verb in LEDGER), *(["reproduce", paper] for paper in PAPERS)]


@pytest.mark.parametrize("verb", PAGES, ids=lambda verb: "-".join(verb) or "distadmm")
def test_a_help_page_ends_with_two_examples(verb: list[str], capsys) -> None:
    with contextlib.suppress(SystemExit):
        assert __main__.main([*verb, "--help"]) == 0
    name = " ".join(verb) or "distadmm"
    kept = [line.removeprefix(f"{name}: ") for line in LINES if line.startswith(f"{name}: ")]
    shown = capsys.readouterr().out.rstrip().splitlines()[-3:]
    assert shown == ["examples:", *(f"  {line}" for line in kept)]
    assert len(kept) == 2
    own = f"distadmm.{name}" if f"distadmm.{name}" in kept[0] else f"distadmm {name}"
    assert all(own in line or verb in ([], ["reproduce"], ["ledger"]) for line in kept)


@pytest.mark.parametrize(
    ("word", "said"), [("--help", "testing gossip --momentum 0.5"), ("--version", "distadmm ")]
)
def test_the_contracts_say_how_they_are_called(word: str, said: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        contract.read([word])
    shown = capsys.readouterr().out.splitlines()
    assert left.value.code == 0
    assert said in shown[-1]


@pytest.mark.slow
def test_the_examples_work(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((240, 4)).round(3)
    target = (rows @ [1.0, 2.0, -1.0, -2.0] > 0).astype(int)
    header = "a,b,c,d"
    lines = [",".join(map(str, row)) for row in rows.tolist()]
    (tmp_path / "mine.csv").write_text("\n".join([header + ",label", *map("{},{}".format, lines, target)]))
    (tmp_path / "new.csv").write_text("\n".join([header, *lines[:5]]))
    (tmp_path / "people.csv").write_text(NEW)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    done = set()
    for line in LINES:
        command = line.partition(": ")[2]
        if command in done:
            continue
        done.add(command)
        ran = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=home, capture_output=True, text=True, timeout=900
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-1500:]}\n{ran.stderr[-1500:]}"
