"""The figures of the paper, made again in their quick form: files, bits, and statements that must hold."""

import csv

import numpy as np
import pytest

from distadmm.papers import ias as command
from distadmm.papers.command import fill
from distadmm.papers.ias import FIGURES, RUNS, items
from distadmm.papers.ias_figures import FIGURES as DRAWN
from distadmm.ranks.world import World

QUICKEST = ("1", "2", "4", "8")


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures")
    for name in QUICKEST:
        figure(name, out, World())
    return out


def figure(name, out, world):
    fill(out, command.figures, command.Options(figure=name, quick=True), world)


def test_every_figure_leaves_three_files(made):
    out = made
    for name in QUICKEST:
        stem = f"figure-{name}"
        assert (out / f"{stem}.csv").stat().st_size > 100
        assert (out / f"{stem}.svg").read_text().count("<path") > 5
        told = (out / f"{stem}.md").read_text()
        for owed in ("Stand-in", "The paper:", "Here:", "--quick"):
            assert owed in told


def test_the_printed_sign_leaves_the_constraint_violated(made):
    rows = read(made / "figure-2.csv")
    last = {(row["beta"], row["sign"]): row for row in rows if row["step"] == "40"}
    assert float(last["0.6", "as printed"]["delta_l1"]) > 0.9
    assert float(last["0.6", "corrected"]["delta_l1"]) < 0.01


def test_f_grows_with_the_alphabet_up_to_the_proved_bound(made):
    rows = read(made / "figure-8.csv")
    for beta in ("0.2", "0.6", "2.0"):
        part = [row for row in rows if row["beta"] == beta]
        F = np.array([float(row["F"]) for row in part])
        assert (np.diff(F) >= -1e-9).all()
        assert float(part[-1]["upper_bound"]) == pytest.approx(F[-1], abs=1e-6)
        assert F[0] == pytest.approx(0, abs=1e-12)
    assert F.max() == pytest.approx(0, abs=1e-9)  # at beta 2


@pytest.mark.parametrize("beta", [2.0, 0.6])
def test_no_method_of_table_1_beats_the_optimum(beta):
    rows = [row for method in ("gba", "GA euclidean") for row in RUNS["table1"](beta, method, 0.05, 200)]
    for row in rows:
        assert row["F"] <= row["optimum"] + 1e-9
        if beta == 2.0:
            assert abs(row["optimum"]) < 1e-9
    of_algorithm = {**rows[0], "method": "Algorithm 1"}
    told = DRAWN["table1"].text("Table I", [of_algorithm, *rows])
    assert "below -0.2 at steps of 0.05 to 0.15" in told
    assert "does not agree" in told


def test_every_figure_has_something_to_run():
    for name in FIGURES:
        assert len(items(name, quick=True)) <= len(items(name, quick=False))
        assert name in RUNS


def test_the_command_refuses_a_figure_it_does_not_know(capsys):
    assert command.main(["--figure", "9"]) == 2
    assert "choose one of: all, 1, 2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.mpi(min_size=2, sizes=[3])
def test_the_same_files_on_any_number_of_ranks(world, shared_path):
    figure("4", shared_path, world)
    if world.is_root:
        names = [path.name for path in shared_path.glob("figure-4.*")]
        assert len(names) == 3
        (shared_path / "alone").mkdir()
        figure("4", shared_path / "alone", World())
        for name in names:
            assert (shared_path / name).read_bytes() == (shared_path / "alone" / name).read_bytes()
