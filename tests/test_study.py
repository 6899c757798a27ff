"""A study of networks: which runs it makes, what it says of them, and what its figures are."""

from __future__ import annotations

import csv
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from distadmm.commands import check, report_runs, study, study_numbers
from distadmm.commands.study_numbers import Pooled
from distadmm.errors import DONE, USAGE
from distadmm.graphs.topology import facts, load

TINY = ["topology", "--data", "tiny", "--weight", "20", "--sizes", "6", "--iterations", "12"]
FAMILIES = ["--families", "ring", "er:p=0.5"]
WIDE = 3.4 * 72


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("study") / "runs"
    words = [*TINY, *FAMILIES, "--epsilon", "5", "--adjacency", "replace", "--gap", "0.05", "--out", str(out)]
    words += ["--graph-seeds", "1", "--data-seeds", "0"]
    assert study.main(words) == DONE
    return out, words


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_line_a_run_says_what_the_run_itself_says(made: tuple[Path, list[str]]) -> None:
    out, _ = made
    lines = rows(out / "study.csv")
    assert len(lines) == 4  # (ring, a random graph) x (without noise, epsilon 5)
    assert {line["graph_seed"] for line in lines} == {"", "1"}
    for line in lines:
        trace, known = report_runs.read(out / line["directory"]), facts(load(line["topology"]))
        assert float(line["connectivity"]) == known.algebraic_connectivity
        assert int(line["edges"]) == known.edges
        assert float(line["test_loss"]) == trace.summary["test_loss"]
        history = rows(out / line["directory"] / "history.csv") if not line["asked_epsilon"] else []
        if history:
            first = next(each for each in history if float(each["mean_model_gap"]) <= 0.05)
            assert float(line["iterations_to_gap"]) == int(first["iteration"])
            assert float(line["megabytes_to_gap"]) == pytest.approx(int(first["bytes"]) / 1e6)
            assert 0 < float(line["measured_rate"]) < 1
        else:
            assert (line["statement"], line["iterations_to_gap"]) == ("simulation", "")
            assert float(line["epsilon"]) <= 5
    assert "SIMULATION: noise from a seed guarantees nothing" in (out / "study.md").read_text()


def test_the_same_command_makes_nothing_anew_and_the_same_files(made: tuple[Path, list[str]], capsys) -> None:
    out, words = made
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert study.main(words) == DONE
    said = capsys.readouterr().out
    assert said.count("finished before") == 4
    assert before == {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert {
        "against.pdf",
        "against.svg",
        "ranking.pdf",
        "rates.svg",
        "study.md",
        "ranking.csv",
    } <= before.keys()
    by = {(row["measure"], row["network"]): row for row in rows(out / "ranking.csv")}
    assert len(by) == 3 * 2
    losses = {n: float(by["test loss at epsilon 5", n]["mean"]) for n in ("ring", "er:p=0.5")}
    assert by["test loss at epsilon 5", min(losses, key=losses.__getitem__)]["rank"] == "1"
    assert "test loss at epsilon 5" in said


def test_figures_fit_a_column_and_bring_their_fonts(made: tuple[Path, list[str]]) -> None:
    for path in made[0].glob("*.pdf"):
        box = re.search(rb"MediaBox \[ 0 0 ([\d.]+)", path.read_bytes())
        assert box
        assert float(box[1]) == pytest.approx(WIDE)
        assert b"/FontFile2" in path.read_bytes()
    for path in made[0].glob("*.svg"):
        text = path.read_text()
        assert re.search(r'<svg [^>]*width="([\d.]+)pt"', text)[1] == f"{WIDE:g}"
        assert "<text" not in text  # letters are drawn


def test_a_network_that_never_came_to_the_gap_is_in_the_ranking(
    made: tuple[Path, list[str]], tmp_path: Path
) -> None:
    out, words = made
    shutil.copytree(out, tmp_path / "runs")
    last = [
        t.last("mean_model_gap")
        for f in report_runs.find([out])
        if not math.isfinite((t := report_runs.read(f)).epsilon)
    ]
    changed = {"0.05": f"{sum(last) / len(last):.6g}", str(out): str(tmp_path / "runs")}
    assert len(last) == 2
    assert study.main([changed.get(word, word) for word in words]) == DONE
    assert (tmp_path / "runs" / "ranking.svg").read_text().count(
        "not reached -->"
    ) == 2  # of each measure once


def test_a_sketch_is_no_more_than_two_runs_of_each_family() -> None:
    words = [*TINY, *FAMILIES, "--epsilon", "5", "9", "--adjacency", "replace", "--data-seeds", "0", "1"]
    words += ["--graph-seeds", "0", "1"]
    cases = study.read([*words, "--quick"]).cases
    for family in ("ring", "er:p=0.5"):
        mine = [case for case in cases if case.family == family]
        assert len(mine) == 4
        assert sum(int(re.search(r"--iterations=(\d+)", " ".join(c.point.words))[1]) for c in mine) == 2 * 12
    assert len(study.read(words).cases) == (2 + 4) * 3


@pytest.mark.parametrize(
    "family", ["ring", "star", "grid", "torus", "hypercube", "barbell", "tree:b=3", "ws:k=4:p=0.1"]
)
def test_every_family_has_the_size_asked_for(family: str) -> None:
    assert load(study.network(family, 16, 1 if family.startswith("ws") else None)).n == 16


def test_the_predicted_rate_is_that_of_check() -> None:
    flags = {"topology": "ring:5", "data": "tiny", "weight": 20.0, "eta": "0.8"}
    words = [*(f"--{name}={value}" for name, value in flags.items()), "--deal=published"]
    wanted = check.check(check.Options(**flags)).rates
    assert study.predicted_rate([*words, "--algorithm=admm"], "ring:5") == pytest.approx(
        wanted["admm"], abs=1e-12
    )
    assert study.predicted_rate([*words, "--algorithm=radmm"], "ring:5") ** 2 == pytest.approx(
        wanted["radmm"]
    )
    tuned = study.predicted_rate(["--topology=ring:5", "--data=tiny", "--algorithm=admm"], "ring:5")
    assert math.isnan(tuned)  # the spectrum is that of given penalties


def pooled(family: str, values: dict) -> Pooled:
    return Pooled(family, 5, values, [])


def test_intervals_of_one_factor_are_students_and_of_two_are_wider() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=5)
    low, high = stats.t.interval(0.95, 4, x.mean(), stats.sem(x))
    for seeds in ([(None, s) for s in range(5)], [(s, s) for s in range(5)]):
        one = pooled("a", dict(zip(seeds, x)))
        assert one.mean - one.half == pytest.approx(low)
        assert one.mean + one.half == pytest.approx(high)
    crossed = pooled("a", {(g, d): x[d] + y for d in range(5) for g, y in enumerate(rng.normal(size=3))})
    assert crossed.half > (high - low) / 2
    assert math.isnan(pooled("a", {(None, 0): 1.0}).half)


def test_what_a_deal_does_to_all_networks_does_not_blur_their_ranks() -> None:
    deal = [0.0, 10.0, 20.0, 30.0]
    near = {"b": 1.0, "a": 0.0, "c": 1.001}
    made = [
        pooled(
            name, {(None, d): value + own + 0.01 * (d % 2) * (name == "c") for d, value in enumerate(deal)}
        )
        for name, own in near.items()
    ]
    ranked = study_numbers.ranking(made)
    assert [(r.pooled.family, r.rank, r.lowest, r.highest) for r in ranked] == [
        ("a", 1, 1, 1), ("b", 2, 2, 3), ("c", 3, 2, 3),
    ]  # fmt: skip
    assert ranked[0].pooled.half > 10  # which alone would tell nothing apart
    late = pooled("d", {(None, d): math.inf for d in range(4)})
    assert study_numbers.ranking([late, *made])[-1].lowest == 4  # what none of its runs reached comes last


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["graphs"], "write: study topology"),
        (["topology", "--epsilon", "1"], "--epsilon needs --adjacency"),
        (["topology", "--seed", "1"], "--seed is what a study varies"),
        (["topology", "--rho", "1", "2"], "--rho has 2 values"),
        (["topology", "--families", "hypercube", "--sizes", "10"], "hypercube has 2^D nodes, not 10"),
        (["topology", "--families", "rign"], "no network 'rign'; did you mean ring?"),
        (["topology", "--sizes", "1"], "--sizes is 1"),
        (["topology", "--families", "ring", "ring"], "give each family and seed once"),
        (["topology", "--iteratoins", "3"], "did you mean --iterations?"),
    ],
)
def test_bad_studies_are_refused_before_anything_runs(words, told, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert study.main(words) == USAGE
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1), shown
    assert told in shown.err
    assert not Path("runs").exists()
