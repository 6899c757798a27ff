"""Five users, from a wheel in an environment of its own and an empty home; each job is the script a tutorial shows."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOME = HERE.parent.parent
LEFT_OUT = (".git", ".venv*", "runs", "*_cache", ".hypothesis", "*.egg-info", "build", "__pycache__")
SCRIPTS = sorted(HERE.glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_tutorial_shows_the_script_word_for_word(script: Path) -> None:
    page = HOME / "docs" / "tutorials" / f"{script.stem.replace('_', '-')}.md"
    assert f"```bash\n{script.read_text()}```\n" in page.read_text()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, installed where everything it needs is seen from the environment of the tests."""
    place = tmp_path_factory.mktemp("users")
    shutil.copytree(HOME, place / "tree", ignore=shutil.ignore_patterns(*LEFT_OUT))
    own, tests = place / "venv", Path(sys.prefix)
    subprocess.run([sys.executable, "-m", "venv", own], check=True)
    built = [str(own / "bin" / "pip"), "install", "-q", "--no-deps", str(place / "tree")]
    ran = subprocess.run(built, capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"no wheel can be built here: {ran.stderr[-300:]}")
    (packages,) = (own / "lib").glob("python*/site-packages")
    (packages / "tests.pth").write_text(str(next((tests / "lib").glob("python*/site-packages"))))
    for file in {*(tests / "bin").glob("*hydra*"), *(tests / "bin").glob("mpi*")}:
        (own / "bin" / file.name).symlink_to(file)  # the MPI of the tests
    found = subprocess.run(
        [own / "bin" / "python", "-c", "import distadmm; print(distadmm.__file__)"],
        capture_output=True, text=True, cwd=place, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert found.stdout.startswith(str(own)), found.stdout + found.stderr
    return own


@pytest.fixture
def play(environment: Path, tmp_path: Path):
    """What a script prints, run as its user would: nothing of the machine is known but PATH."""

    def run(name: str, limit: float = 900.0) -> str:
        (tmp_path / "tmp").mkdir()
        known = {
            "HOME": str(tmp_path),
            "PATH": f"{environment}/bin:/usr/bin:/bin",
            "TMPDIR": str(tmp_path / "tmp"),
        }
        libraries = sorted(
            (Path(sys.prefix) / "lib").glob("libmpi.so*"), key=lambda path: -path.stat().st_size
        )
        if libraries:
            known["MPI4PY_LIBMPI"] = str(libraries[0])
        words = ["bash", "-e", "-o", "pipefail", str(HERE / name)]
        ran = subprocess.run(words, cwd=tmp_path, env=known, capture_output=True, text=True, timeout=limit)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        assert "Traceback" not in ran.stderr
        return ran.stdout

    return run


def scores(path: Path) -> list[float]:
    with open(path) as file:
        return [float(row["score"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_student_compares_topologies(play, tmp_path: Path) -> None:
    said = play("topologies.sh")
    assert "ring" in said
    for figure in (tmp_path / "ring.pdf", *(tmp_path / "study").glob("*.pdf")):
        assert figure.read_bytes().startswith(b"%PDF")
    ranked = (tmp_path / "study" / "ranking.csv").read_text()
    assert all(f",8,{name}," in ranked for name in ("ring", "star", "complete"))
    assert "<svg" in (tmp_path / "networks.html").read_text()
    assert (tmp_path / "distadmm.bib").read_text().count("@") == 6


@pytest.mark.slow
def test_clinics_train_privately_and_score_new_rows(play, tmp_path: Path) -> None:
    said = play("own_data.sh")
    assert "4 ledgers whole" in said
    assert len(scores(tmp_path / "scores.csv")) == 5
    assert (tmp_path / "scores.csv").read_text().startswith("row,class,score,p(0),p(1)\n")
    model = json.loads((tmp_path / "model.json").read_text())
    assert "pulse=missing" in model["features"]
    page = (tmp_path / "certificate.html").read_text()
    assert "Data office" in page
    assert "1e-05" in page
    rows = (tmp_path / "clinic-0.csv").read_text().splitlines()
    assert not any(row in page for row in rows[1:50])


@pytest.mark.slow
def test_a_preempted_job_goes_on(play) -> None:
    said = play("cluster.sh")
    assert "exit code 143" in said
    assert "the same bits: True" in said


@pytest.mark.slow
def test_a_developer_adds_an_algorithm(play, tmp_path: Path) -> None:
    said = play("algorithm.sh")
    assert "broken" not in said
    assert "4 passed" in said
    assert "descent.py, complete:8, rate 2" in said


@pytest.mark.slow
def test_a_column_is_sanitised_before_training(play, tmp_path: Path) -> None:
    said = play("sanitise.sh")
    spent = re.search(r"are \(([\d.]+), 1e-05\)-DP for replacing one record", said)
    assert 1.9 < float(spent[1]) <= 2
    assert len(scores(tmp_path / "scores.csv")) == 2
