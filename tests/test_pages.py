"""What README and docs ask a reader to type does what they say; the light pages always, all of them with --long."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import page_names
from tests.pages import BLOCK, HOME, PAGES, blocks, commands, script, snippets

LIGHT = ("topologies.md", "accounting.md")
LIMIT = 1800.0


def _named(page: Path) -> str:
    return str(page.relative_to(HOME))


def _all(what) -> list:
    marks = {True: (), False: pytest.mark.slow}
    return [pytest.param(p, id=_named(p), marks=marks[p.name in LIGHT]) for p in PAGES if what(p)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder in a checkout, with files of theirs."""
    for name in ("docs", "launch", "topologies", "benchmarks", "tests", "distadmm", "pyproject.toml"):
        (tmp_path / name).symlink_to(HOME / name)
    page_names.files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(HOME))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("page", _all(commands))
def test_commands_end_as_the_page_says(page: Path, desk: Path) -> None:
    ran = subprocess.run(["bash", "-c", script(page)], capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert ran.stdout.count("line ") >= len(commands(page))


@pytest.mark.parametrize("page", _all(snippets))
def test_python_runs_and_shows_what_the_page_shows(page: Path, desk: Path) -> None:
    names = page_names.names(page.name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    for block in snippets(page):
        if block.text.startswith(">>> "):
            test = doctest.DocTestParser().get_doctest(block.text, names, _named(page), None, block.line)
            runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
            told: list[str] = []
            runner.run(test, out=told.append, clear_globs=False)
            assert not runner.failures, "".join(told)
            names = test.globs
        else:
            text = "\n" * block.line + page_names.with_a_run(block.text)
            exec(compile(text, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_what_is_not_run_has_a_reason(page: Path) -> None:
    for match in BLOCK.finditer(page.read_text()):
        mark = match["mark"] or ""
        assert not mark or mark.startswith(("not run: ", "exit code ")), mark
        assert not mark.startswith("not run:") or len(mark) > 20, mark
    for block in blocks(page):
        placeholders = "RUN" in block.text.split() or " ... " in block.text
        assert block.unrun or not block.commands or not placeholders, f"line {block.line}: {block.text}"
