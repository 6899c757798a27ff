"""The figures of the privacy funnel paper: files, their numbers, and an honest text."""

import csv

import pytest

from distadmm import funnel
from distadmm.methods.funnel import drs
from distadmm.papers import funnel as reproduce
from distadmm.ranks.world import World


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(drs, "BETAS", drs.BETAS[[0, -1]])
    return ["--points", "4", "--starts", "3", "--repeats", "1"]


def test_figure_one(tmp_path, capsys, quick):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    assert reproduce.main(["--figure", "1", "--out", str(out), *quick]) == 0
    with open(out / "figure1.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["problem"] for row in rows} == set(reproduce.FIGURES["1"])
    assert {row["method"] for row in rows} == {"lp", "aem", "greedy", "drs"}
    best = {(row["problem"], row["R"]): float(row["I_SY"]) for row in rows if row["method"] == "lp"}
    for row in rows:
        assert float(row["I_SY"]) >= best[row["problem"], row["R"]] - 1e-8
        assert float(row["lower_bound"]) <= best[row["problem"], row["R"]] + 1e-9
    joint = funnel.problem("synthetic-unif")
    last = [row for row in rows if row["problem"] == "synthetic-unif" and row["method"] == "aem"][-1]
    assert float(last["I_SY"]) == pytest.approx(joint.ISX)
    assert "<svg" in (out / "figure1.svg").read_text()
    words = (out / "funnel.md").read_text()
    assert "NaN in iteration 1" in words
    assert words in capsys.readouterr().out


def test_figures_need_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reproduce.figures, "possible", lambda: False)
    assert reproduce.main(["--figure", "1", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "distadmm[plot]" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.mpi(min_size=2, sizes=[2])
def test_same_files_on_two_ranks(mpi_ranks, world, shared_path, quick):
    """The whole command on ranks; rank 0 repeats it alone, by hand, and compares."""
    out = shared_path / "shared"
    assert reproduce.main(["--figure", "1", "--out", str(out), *quick]) == 0
    if world.is_root:
        options = reproduce.Options(figure="1", points=4, starts=3, repeats=1)
        alone = [reproduce.panel(name, options, World()) for name in reproduce.FIGURES["1"]]
        (shared_path / "alone").mkdir()
        reproduce._write(shared_path / "alone", {"1": alone})
        for name in ("figure1.csv", "figure1.svg", "funnel.md"):
            assert (out / name).read_bytes() == (shared_path / "alone" / name).read_bytes()
