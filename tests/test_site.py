"""The site of README and docs: every page has its place, every name of the interface a docstring."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent
NAMES = re.findall(r"^::: (\S+)$", (HOME / "docs" / "reference.md").read_text(), re.M)


def site():
    where = importlib.util.spec_from_file_location("distadmm_site", HOME / "docs" / "site.py")
    made = importlib.util.module_from_spec(where)
    where.loader.exec_module(made)
    return made


def test_every_page_has_its_place() -> None:
    placed = re.findall(r"(?:- |: )(\S+\.md)$", (HOME / "mkdocs.yml").read_text(), re.M)
    pages = {str(page.relative_to(HOME / "docs")) for page in (HOME / "docs").rglob("*.md")}
    assert len(placed) == len(set(placed))
    assert set(placed) == pages | set(site().ALSO.values())


def test_every_name_of_the_interface_is_described() -> None:
    described = site().described
    for name in NAMES:
        text = described(name)
        assert text.startswith(f"### `{name.replace(':', '.')}`")
        assert "0x" not in text
        assert len(text.splitlines()) > 3, name
    assert "\n    solve(graph, (X, y), " in described("distadmm:solve")
    assert all(
        f"- `{name}(" in described("distadmm:Run") for name in ("predict", "to_pandas", "plot", "load")
    )
    fit = described("distadmm.estimators:ConsensusClassifier")
    assert "**Parameters**\n\n- `topology`: a networkx graph" in fit


def test_links_lead_to_files_for_a_site_has_no_folders() -> None:
    pages = [HOME / name for name in site().ALSO] + list((HOME / "docs").rglob("*.md"))
    for page in pages:
        for _, link in site().LINK.findall(page.read_text()):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install -e '.[docs]'")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    ran = subprocess.run(build, cwd=HOME, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    page = (tmp_path / "site" / "reference" / "index.html").read_text()
    assert "keyword arguments are the command" in page
    assert all(
        (tmp_path / "site" / place / "index.html").exists()
        for place in ("tutorials/own-data", "check", "changelog")
    )
