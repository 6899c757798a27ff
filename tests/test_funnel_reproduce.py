"""The figures of the privacy funnel paper: files, their numbers, and an honest text."""

import csv

import pytest

from distadmm import funnel
from distadmm.graphs import figures
from distadmm.papers import funnel as reproduce
from distadmm.papers.command import fill
from distadmm.ranks.world import World


def test_figure_one(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    assert reproduce.main(["--figure", "1", "--out", str(out), "--quick"]) == 0
    with open(out / "figure-1.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["problem"] for row in rows} == set(reproduce.PROBLEMS["1"])
    assert {row["method"] for row in rows} == {
        "lp",
        "aem",
        "greedy",
        "drs",
        "dc",
        reproduce.ENDS,
        reproduce.DC_ENDS,
    }
    best = {(row["problem"], row["R"]): float(row["I_SY"]) for row in rows if row["method"] == "lp"}
    for row in rows:
        if row["method"] in (reproduce.ENDS, reproduce.DC_ENDS) or row["reached"] == "False":
            continue
        assert float(row["I_SY"]) >= best[row["problem"], row["R"]] - 1e-8
        assert float(row["lower_bound"]) <= best[row["problem"], row["R"]] + 1e-9
    joint = funnel.problem("synthetic-unif")
    last = [row for row in rows if row["problem"] == "synthetic-unif" and row["method"] == "aem"][-1]
    assert float(last["I_SY"]) == pytest.approx(joint.ISX)
    assert "<svg" in (out / "figure-1.svg").read_text()
    words = (out / "figure-1.md").read_text()
    assert "NaN in iteration 1" in words
    assert words in capsys.readouterr().out


def test_figures_need_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, "possible", lambda: False)
    assert reproduce.main(["--figure", "1", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "distadmm[plot]" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.mpi(min_size=2, sizes=[2])
def test_same_files_on_two_ranks(mpi_ranks, world, shared_path):
    """The whole command on ranks; rank 0 repeats it alone, by hand, and compares."""
    out = shared_path / "shared"
    assert reproduce.main(["--figure", "1", "--out", str(out), "--quick"]) == 0
    if world.is_root:
        (shared_path / "alone").mkdir()
        options = reproduce.Options(figure="1", quick=True)
        fill(shared_path / "alone", reproduce.figures, options, World())
        for name in ("figure-1.csv", "figure-1.svg", "figure-1.md"):
            assert (out / name).read_bytes() == (shared_path / "alone" / name).read_bytes()
