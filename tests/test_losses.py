"""One name is one loss in every programme, and a loss of the user's own is checked as it is loaded."""

from __future__ import annotations

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.errors import DONE, USAGE
from distadmm.problems.losses import LOSSES


@pytest.mark.parametrize("main", [radmm.main, sharing.main, istdp.main], ids=["radmm", "sharing", "istdp"])
@pytest.mark.parametrize("name", ["logistic", "huber", "smooth-hinge", "squared", "mine.py:Mine"])
def test_a_name_is_one_loss_in_every_programme(main, name: str, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from distadmm.problems.losses import HuberHinge\nclass Mine(HuberHinge):\n    width = 0.25\n"
    )
    quick = ["--iterations", "2", "--loss", name, "--data", "tiny", "--out", str(tmp_path / "run")]
    quick += ["--topology", "ring:3", "--progress", "none"] if main is radmm.main else []
    assert main(quick) == DONE, capsys.readouterr().err
    capsys.readouterr()


@pytest.mark.parametrize(
    ("main", "name", "told"),
    [
        (radmm.main, "hinge", "has a kink"),
        (istdp.main, "hinge", "choose smooth-hinge"),
        (sharing.main, "softmax", "use distadmm.radmm"),
        (istdp.main, "softmax", "use distadmm.radmm"),
        (
            istdp.main,
            "hunge",
            "choose one of: logistic, huber, smooth-hinge, squared, sigmoid, or FILE.py:Name",
        ),
        (
            sharing.main,
            "mine.py:Short",
            "lacks slope, labels; write: def slope(self, z, y): ...; labels = True",
        ),
        (radmm.main, "mine.py:Needy", "give all its fields defaults"),
        (istdp.main, "mine.py:Steep", "max_curvature is infinite"),
    ],
)
def test_what_a_programme_cannot_do_with_a_loss_is_refused_by_name(
    main, name: str, told: str, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "class Short:\n    max_slope = max_curvature = 1.0\n    one_signed = False\n"
        "    def value(self, z, y): ...\n    def curvature(self, z, y): ...\n"
        "class Needy:\n    def __init__(self, width): ...\n"
        "from distadmm.problems.losses import Logistic\n"
        "class Steep(Logistic):\n    max_curvature = float('inf')\n"
    )
    assert main(["--data", "tiny", "--loss", name]) == USAGE
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


def test_huber_and_smooth_hinge_are_one_curve_shifted() -> None:
    z, y = np.linspace(-3, 3, 101), np.ones(101)
    huber, smooth = LOSSES["huber"], LOSSES["smooth-hinge"]
    width = 0.5 * smooth.width
    np.testing.assert_allclose(smooth.value(z, y), type(huber)(width).value(z + width, y))
