"""What is built, what it says of itself, and what the package shows of itself."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import distadmm
from distadmm import files
from distadmm.commands import cite
from distadmm.errors import DONE

HOME = Path(__file__).parent.parent
SITE = "https://example.org/distadmm"


def for_an_index(site: str) -> str:
    where = importlib.util.spec_from_file_location("distadmm_setup", HOME / "setup.py")
    assert where is not None
    assert where.loader is not None
    setup = importlib.util.module_from_spec(where)
    where.loader.exec_module(setup)
    return setup.for_an_index((HOME / "README.md").read_text(), site)


def test_on_a_page_of_an_index_no_link_is_relative() -> None:
    for site in ("", SITE):
        links = re.findall(r"\]\(([^)\s]+)\)", for_an_index(site))
        assert [link for link in links if "://" not in link] == []
    absolute = [link for link in links if link.startswith(SITE)]
    assert len(absolute) > 10
    files = [HOME / link.removeprefix(SITE + "/").partition("#")[0] for link in absolute]
    assert [file for file in files if not file.exists()] == []


def test_the_package_shows_its_stable_names_alone() -> None:
    page = (HOME / "docs" / "developing.md").read_text().split("## Names that stay")[1]
    for name in set(dir(distadmm)) - {"__version__"}:
        assert f"`{name}`" in page or f"`distadmm.{name}`" in page, name
        assert getattr(distadmm, name) is not None


def test_what_is_to_be_cited_stands_in_both_files(capsys) -> None:
    assert cite.main([]) == DONE
    entries = [
        dict(re.findall(r"(\w+)\s*= \{(.*)\}", text)) for text in capsys.readouterr().out.split("\n\n")
    ]
    cff = (HOME / "CITATION.cff").read_text()
    parts = cff.split("  - type: article")
    assert len(entries) == len(parts) == 6
    for entry, part in zip(entries, parts):
        assert entry["title"] == re.search(r'title: "(.*)"', part)[1]
        assert entry.get("year") == ((found := re.search(r"year: (\d+)", part)) and found[1])
        families = re.findall(r"family-names: (\S+), given-names: ([^}]+)", part)
        assert not families or entry["author"] == " and ".join(", ".join(both) for both in families)
        assert entry.get("doi") == ((found := re.search(r"doi: (\S+)", part)) and found[1])
    assert entries[0]["version"] == re.search(r"^version: (\S+)", cff, re.M)[1] == distadmm.__version__


def test_a_file_of_arrays_holds_them_alone_under_every_numpy(tmp_path: Path) -> None:
    place = tmp_path / "a.npz"
    files.write_npz(place, {"f": np.ones((2, 3)), "k": np.int64(3)})
    assert {name: array.shape for name, array in files.read_npz(place).items()} == {"f": (2, 3), "k": ()}
    with pytest.raises(ValueError, match="pickle"):
        files.write_npz(place, {"f": np.array([{}])})


@pytest.mark.slow
def test_a_used_tree_builds_what_a_fresh_one_does(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    kept = shutil.ignore_patterns(".git", ".venv*", "runs", "*_cache", ".hypothesis", "*.egg-info", "build")
    shutil.copytree(HOME, tree, ignore=kept)
    for place in ("distadmm/data", "distadmm/data/adult", "docs/examples", "tests"):
        cache = tree / place / "__pycache__"
        cache.mkdir(exist_ok=True)
        (cache / "table.cpython-311.pyc").write_bytes(b"old")
    (tree / "build" / "lib" / "distadmm").mkdir(parents=True)
    (tree / "build" / "lib" / "distadmm" / "gone.py").write_text("")
    # Each of the two sets sys.argv anew.
    build = "import sys; from setuptools import build_meta as b; o = sys.argv[1]; b.build_sdist(o); b.build_wheel(o)"
    tool = [sys.executable, "-m", "venv", str(tmp_path / "tool")]
    subprocess.run(tool, check=True)
    python = str(tmp_path / "tool" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "setuptools>=77"], check=True)
    out.mkdir()
    subprocess.run([python, "-c", build, str(out)], cwd=tree, check=True, capture_output=True)

    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
        (metadata,) = [file.read(name).decode() for name in inside if name.endswith("/METADATA")]
    modules = {str(path.relative_to(HOME)) for path in (HOME / "distadmm").rglob("*.py")}
    # Behind a link, which rglob does not follow: what made the networks lies beside them.
    modules |= {f"distadmm/data/topologies/{path.name}" for path in (HOME / "topologies").glob("*.py")}
    assert {name for name in inside if name.endswith(".py")} == modules
    assert not [name for name in inside if "__pycache__" in name or name.endswith(".pyc")]
    assert "distadmm/data/citation.bib" in inside
    assert "](docs/" not in metadata
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    needed = ["README.md", "CITATION.cff", "docs/algorithms.md", "docs/examples/gradient_tracking.py"]
    assert {
        *needed,
        "tests/test_packaging.py",
        "launch/quickstart",
        "topologies/er20.edges",
        ".ci/run",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
