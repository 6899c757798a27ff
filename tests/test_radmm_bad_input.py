"""Numbers that are not finite, or do not stay so, are told before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distadmm import radmm, sharing
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import LOSSES


@pytest.mark.parametrize(
    "words",
    [
        "--gamma inf",
        "--dual-step inf",
        "--eta-growth inf",
        "--alpha 1 --adjacency replace --alpha-growth inf",
    ],
)
def test_infinite_parameters_are_one_line_and_exit_code_2(words: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert radmm.main(["--data", "tiny", "--out", str(out), *words.split()]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert "finite" in captured.err
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [
        "--algorithm gossip --epsilon 1e40",
        "--algorithm admm --epsilon 1e300",
        "--algorithm gossip --epsilon 1 --gradient-clip 1e-300",
        "--algorithm gossip --epsilon 1 --gradient-clip 1e300",
        "--algorithm gossip --epsilon 1 --weight 1e-320",
        "--algorithm gossip --epsilon 1 --delta 1e-320",
        "--algorithm admm --epsilon 1 --weight 1e300",
        "--algorithm admm --alpha 1 --eta 1 --rho 1e300",
    ],
)
def test_numbers_that_no_price_or_noise_is_made_of_are_one_line_and_exit_code_2(
    words: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "run"
    shared = ["--data", "tiny", "--adjacency", "replace", "--rng", "simulation", "--out", str(out)]
    assert radmm.main([*shared, *words.split()]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    name = words.split()[-2]
    assert f"{name} is 1e" in said[0]
    assert "; needed: " in said[0]
    assert not out.exists()


@pytest.mark.parametrize(
    "words", ["--row-norm 1e-300", "--row-norm 1e300", "--radius 1e-300", "--radius 1e300", "--pull 1e300"]
)
def test_the_same_of_vectors_under_noise(words: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    shared = [
        "--data",
        "tiny",
        "--mechanism",
        "s2",
        "--epsilon",
        "1",
        "--rng",
        "simulation",
        "--out",
        str(out),
    ]
    assert sharing.main([*shared, *words.split()]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "; needed: " in said[0]
    assert not out.exists()


def test_a_solve_whose_hessian_has_no_inverse_stays_where_it_is() -> None:
    """Rows that leave a direction out, and neither ridge nor penalty."""
    for rows, nodes in ((3, 1), (3, 3), (9_000, 1)):
        X = np.tile([[0.6, 0.8, 0.0]], (rows, 1))
        each = [GeneralisedLinear(X.copy(), np.ones(rows), LOSSES["logistic"]) for _ in range(nodes)]
        problem, start = Problem(each), np.ones((nodes, 3))
        f = problem.argmin(np.tile([[1.0, -2.0, 1.0]], (nodes, 1)), np.zeros((nodes, 1)), start)
        assert np.array_equal(f, start)
        assert np.all(problem.residual > 1)
