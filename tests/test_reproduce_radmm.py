"""The figures of the R-ADMM paper against independently computed curves, and their bookkeeping."""

from __future__ import annotations

import numpy as np
import pytest

from distadmm.papers import radmm, radmm_arms, radmm_figures
from tests.vector_files import BUNDLED, load_all

REFERENCE = load_all(BUNDLED)["fig12.json"]


def arm(figure: str, label: str) -> radmm_arms.Arm:
    return next(item for item, _ in radmm_arms.arms(figure, 1) if item.label == label)


@pytest.mark.parametrize(
    ("figure", "label", "key"),
    [
        ("1a", "ADMM, N=5", "admm"),
        ("1a", "R-ADMM gamma=0.5, N=5", "radmm_g0.5"),
        ("1b", "MR-ADMM 5", "fig1b_5"),
        ("1c", "MR-ADMM q=1.04", "fig1c_1.04"),
    ],
)
def test_a_curve_is_the_independent_one(figure: str, label: str, key: str) -> None:
    found = radmm_arms.trace((arm(figure, label), 0))
    expected = REFERENCE["5"][key]
    np.testing.assert_allclose(found.loss, expected["L"], atol=6e-9)  # the reference keeps eight digits
    assert found.error == pytest.approx(expected["E_final"], abs=1e-12)


def test_figure_2_point() -> None:
    found = radmm_arms.trace((arm("2", "0.22"), 0))
    assert found.error == pytest.approx(REFERENCE["5"]["fig2_rho0.22"]["E50"], abs=1e-12)


def test_privacy_is_matched_in_figure_5() -> None:
    """Every arm but MR-ADMM's spends the same by the paper's bound; MR-ADMM spends less."""
    for alpha, total in ((2, 22.82), (1, 11.88), (0.5, 6.42)):
        items = [item for item, _ in radmm_arms.arms("5", 1) if item.label.startswith(f"alpha={alpha:g} ")]
        bounds = {}
        for item in items:
            short = radmm_arms.Arm(**{**vars(item)})
            bounds[item.label] = radmm_arms.trace((short, 0)).bound if item.algorithm == "mradmm" else None
        assert radmm_arms.matched_bound(alpha) == pytest.approx(total, abs=0.006)
        (found,) = [bound for bound in bounds.values() if bound is not None]
        assert found < total


def test_the_command_writes_what_it_says(tmp_path, capsys) -> None:
    assert radmm.main(["--figure", "1c", "--out", str(tmp_path / "f")]) == 0
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        "figure-1c.csv",
        "figure-1c.svg",
        "figure-1c.md",
    }
    assert "Does not agree" in capsys.readouterr().out
    assert radmm.main(["--out", str(tmp_path / "g")]) == 2
    assert "--figure" in capsys.readouterr().err


def test_matched_alpha_gives_the_bound_it_was_matched_to() -> None:
    for item, _ in radmm_arms.arms("5", 1):
        if item.alpha and item.iterations == 10:
            assert radmm_arms.trace((item, 0)).bound == pytest.approx(
                radmm_arms.matched_bound(float(item.label.split("=")[1].split()[0])), rel=1e-12
            )


@pytest.mark.parametrize("wider", [False, True])
def test_the_text_of_figure_4_says_what_its_table_shows(wider: bool) -> None:
    """The range of two runs need not fall as that of ten does."""
    curves = []
    for alpha in (1, 2):
        for at, q in enumerate((1, 1.01, 1.05)):
            mean = np.full(51, 0.36 + (0.02 - 0.01 * at) / alpha)
            spread = np.full(51, 0.01 + (1 if wider else -1) * 0.002 * at)
            curves.append(radmm_figures.Curve(f"alpha={alpha} q={q:g}", 5, 2, mean, spread, 0.17, 12.0 - at))
    said = radmm_figures.text("4", curves)
    assert "Agrees" in said
    assert ("does not fall at alpha = 1" in said) is wider
    risen = [curve._replace(mean=-curve.mean) for curve in curves]
    assert "Does not agree: growing" in radmm_figures.text("4", risen)
