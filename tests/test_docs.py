"""Links of README and docs lead somewhere, and files they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent
PAGES = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md")), HOME / "benchmarks" / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_relative_links_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_modules_that_commands_name_exist(page: Path) -> None:
    named = set(re.findall(r"python -m (distadmm(?:\.\w+)*)", page.read_text()))
    for name in named:
        path = HOME / Path(*name.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name


def test_no_machine_path_or_host_is_named() -> None:
    for page in PAGES:
        text = page.read_text()
        assert not re.search(r"(^|[\s\"'(`])/(work|root|opt/v)/", text), page
        assert "pypi-more" not in text
