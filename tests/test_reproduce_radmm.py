"""The figures of the R-ADMM paper against independently computed curves, and their bookkeeping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distadmm.papers import radmm
from tests.vector_files import BUNDLED, load_all

REFERENCE = load_all(BUNDLED)["fig12.json"]


def arm(figure: str, label: str, tag: str = "") -> radmm.Arm:
    found = next(a for a in radmm.ARMS[figure]() if a.label.startswith(label) and a.tag in ("", tag))
    return replace(found, iterations=min(found.iterations, 50))


@pytest.mark.parametrize(
    ("figure", "label", "key"),
    [
        ("1a", "ADMM", "admm"),
        ("1a", "R-ADMM, gamma = 0.5", "radmm_g0.5"),
        ("1b", "MR-ADMM 5", "fig1b_5"),
        ("1c", "MR-ADMM, q = 1.04", "fig1c_1.04"),
    ],
)
def test_a_curve_is_the_independent_one(figure: str, label: str, key: str) -> None:
    found = radmm.trace((arm(figure, label, "N = 5"), 0))
    expected = REFERENCE["5"][key]
    # the reference keeps eight digits
    np.testing.assert_allclose([row["L"] for row in found], expected["L"], atol=6e-9)
    assert found[-1]["test_error_at_end"] == pytest.approx(expected["E_final"], abs=1e-12)


def test_figure_2_point() -> None:
    found = radmm.trace((arm("2", "0.22"), 0))
    assert found[-1]["test_error_at_end"] == pytest.approx(REFERENCE["5"]["fig2_rho0.22"]["E50"], abs=1e-12)


def test_privacy_is_matched_in_figure_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arm but MR-ADMM's spends the same by the paper's bound; MR-ADMM spends less."""
    made = [a for a in radmm.ARMS["5"]() if a.tag]
    for alpha, total in ((2, 22.82), (1, 11.88), (0.5, 6.42)):
        for item in (a for a in made if a.tag == f"alpha = {alpha:g}"):
            found = radmm.published(item, item.alpha or (alpha,) * 5).max()
            if item.algorithm == "mradmm":
                assert found < total - 0.05
            else:
                assert found == pytest.approx(total, abs=0.006)


def test_what_is_spent_grows_and_ends_at_the_total() -> None:
    item = replace(arm("5", "R-ADMM, eta = 2, K = 10", "alpha = 2"), iterations=4)
    rows = radmm.trace((item, 0))
    P, epsilon = (np.array([row[name] for row in rows]) for name in ("P_published", "epsilon_tight"))
    assert P[0] == epsilon[0] == 0
    assert (np.diff(P) >= 0).all()
    assert (epsilon[1:] < P[1:]).all()
    assert P[-1] == pytest.approx(radmm.published(item, item.alpha).max(), rel=1e-12)
    assert all(np.isnan(row["P_published"]) for row in radmm.trace((item, 1)))  # told of one seed


def test_the_command_writes_what_it_says(tmp_path, capsys, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    kept = [a for a in radmm.ARMS["1c"]() if "1.0" not in a.label or "1.05" in a.label]
    short = [replace(a, iterations=min(a.iterations, 16)) for a in kept]
    monkeypatch.setitem(radmm.ARMS, "1c", lambda: short)
    assert radmm.main(["--figure", "1c", "--quick", "--out", str(tmp_path / "f")]) == 0
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        "figure-1c.csv",
        "figure-1c.svg",
        "figure-1c.md",
    }
    assert "does not agree" in capsys.readouterr().out
    assert "--quick" in (tmp_path / "f" / "figure-1c.svg").read_text()
    assert radmm.main(["--out", str(tmp_path / "g")]) == 2
    assert "--figure" in capsys.readouterr().err
