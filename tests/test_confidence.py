"""Bounds from n rows: they hold of the true law as often as they say, whatever the mapping was designed on."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, xlogy

from distadmm import funnel, ias
from distadmm.data import joint as tables
from distadmm.errors import InputError
from distadmm.methods.confidence import Ball, ball_of, curved, linear, radius
from distadmm.methods.ias.measures import MEASURES, Measure, own

CHI2 = own("chi2", lambda t: (t - 1) ** 2, lambda t: 2 * (t - 1), lambda t: 2 + 0 * t)


def information(joint: np.ndarray) -> float:
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / product[there])).sum())


def leakage(p: np.ndarray, P: np.ndarray, f: Measure) -> float:
    v = np.maximum(P, 1e-12)
    return float((p[:, None] * v * f.f((p @ v) / v)).sum())


def kl(p: np.ndarray, q: np.ndarray) -> float:
    there = p > 0
    return float((p[there] * np.log(p[there] / q[there])).sum())


def random_law(rng: np.random.Generator, K: int, M: int, weight: float = 0.5) -> np.ndarray:
    law = rng.dirichlet(np.full(K * M, weight)).reshape(K, M) + 1e-9
    return law / law.sum()


def inside(rng: np.random.Generator, p: np.ndarray, eps: float) -> np.ndarray:
    """A law near the edge of the ball, in a random direction; often with mass on cells that no row has."""
    other = rng.dirichlet(np.full(p.size, rng.choice([0.05, 0.5, 5.0])))
    low, high = 0.0, 1.0 - 1e-9
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(p, (1 - middle) * p + middle * other) <= eps else (low, middle)
    return (1 - low) * p + low * other


@pytest.mark.parametrize("n", [1, 3, 30, 1000])
def test_the_moment_behind_the_radius_holds(n: int) -> None:
    """E exp(lam n kl(j/n||p)) <= 1/(1 - lam) for binomial j: the step of the proof of (1) that all cells repeat."""
    j = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    best = xlogy(j, j / n) + xlogy(n - j, (n - j) / n)
    for lam in np.linspace(0.05, 0.98, 12):
        for p in (*np.logspace(-6, -1, 25), *np.linspace(0.1, 0.5, 17)):
            moment = np.exp(ways + lam * best + (1 - lam) * (j * np.log(p) + (n - j) * np.log1p(-p))).sum()
            assert moment <= 1 / (1 - lam)


def test_the_radius_is_where_the_tail_is_delta() -> None:
    for cells, n, delta in ((2, 10, 0.05), (32, 1000, 0.025), (1600, 32561, 0.01)):
        x, k = radius(cells, n, delta) * n, cells - 1
        assert -x + k * (1 + np.log(x / k)) == pytest.approx(np.log(delta), rel=1e-5)
    assert radius(1, 10, 0.05) == 0


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([20, 300, 20_000]), st.booleans())
def test_every_law_of_the_ball_is_within_the_bounds(seed: int, n: int, clear: bool) -> None:
    """Two routes: the bounds by duality, and laws of the ball tried at random."""
    rng = np.random.default_rng(seed)
    K, M, U = rng.integers(2, 4), rng.integers(2, 5), rng.integers(1, 5)
    counts = rng.multinomial(n, random_law(rng, K, M).ravel()).reshape(K, M)
    ball = Ball(counts, 0.95, (int(K), int(M)))
    P = rng.dirichlet(np.full(U, 0.1 if clear else 2.0), size=M)
    f = [*MEASURES.values(), CHI2][rng.integers(5)]
    found = ball.bounds(P, f)
    for _ in range(40):
        law = inside(rng, ball.law.ravel(), ball.eps).reshape(K, M)
        assert found.I_SU.low - 1e-9 <= information(law @ P) <= found.I_SU.high + 1e-9 or (
            kl(ball.law.sum(0), law.sum(0)) > ball.eps_of(1)
            or kl(ball.law.sum(1), law.sum(1)) > ball.eps_of(0)
        )
        p = inside(rng, ball.law.sum(0), ball.eps_of(1))
        assert found.I_YU.low - 1e-9 <= information(p[:, None] * P) <= found.I_YU.high + 1e-9
        assert found.E is not None
        assert found.E.low - 1e-7 <= leakage(p, P, f) <= found.E.high + 1e-7


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 0.02, 0.5]))
@example(2000, 0.5)  # a cell at the branch point of Lambert's function
def test_suprema_over_the_ball_are_not_exceeded(seed: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    p = rng.multinomial(30, rng.dirichlet(np.full(6, 0.5))) / 30
    q, a = 0.9 * rng.dirichlet(np.ones(6)) + 0.1 / 6, rng.standard_normal(6)
    most, bent = linear(p, a, eps), curved(p, a, q, eps)
    reached = []
    for _ in range(100):
        law = inside(rng, p, eps)
        reached.append(law @ a)
        assert law @ a <= most + 1e-9
        assert law @ a + kl(law, q) <= bent + 1e-9
    assert linear(p, a, 0.0) == pytest.approx(p @ a)


def designed(counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A mapping that overfits its rows: symbols are clusters of the empirical P(s|y), chosen for these counts."""
    posterior = (counts[0] + 1e-9) / (counts.sum(0) + 2e-9)
    group = np.searchsorted(np.quantile(posterior, [0.33, 0.67]), posterior)
    return 0.9 * np.eye(3)[group] + 0.1 * rng.dirichlet(np.ones(3), size=len(group))


@pytest.mark.parametrize(
    ("confidence", "runs"),
    [(0.95, 10), *(pytest.param(level, 100, marks=pytest.mark.slow) for level in (0.5, 0.95))],
)
@pytest.mark.parametrize("n", [40, 2000])
def test_simulated_rows_are_covered(confidence: float, runs: int, n: int) -> None:
    """Different true laws, each with rows of its own and a mapping designed on those; S independent of Y in a third."""
    rng = np.random.default_rng(7)
    missed, widths = 0, []
    for run in range(runs):
        law = random_law(rng, 2, 6)
        if run % 3 == 0:
            law = np.outer(law.sum(1), law.sum(0))
        counts = rng.multinomial(n, law.ravel()).reshape(2, 6)
        P = designed(counts, rng)
        found = Ball(counts, confidence, (2, 6)).bounds(P, MEASURES["js"])
        true = (
            information(law @ P),
            information(law.sum(0)[:, None] * P),
            leakage(law.sum(0), P, MEASURES["js"]),
        )
        each = zip((found.I_SU, found.I_YU, found.E), true)
        widths.append((found.I_SU.high - found.I_SU.low, found.I_YU.high - found.I_YU.low))
        missed += any(not one.low - 1e-9 <= value <= one.high + 1e-9 for one, value in each if one)
    assert missed <= (1 - confidence) * runs
    if n == 2000:  # and they say something: nothing at all is known within log 2 and log 3
        assert (np.mean(widths, axis=0) < (0.3 * math.log(2), 0.2 * math.log(3))).all()


def test_bounds_close_as_rows_are_added() -> None:
    law = random_law(np.random.default_rng(3), 3, 5)
    P = np.random.default_rng(4).dirichlet(np.ones(3), size=5)
    widths = []
    for n in (10**3, 10**5, 10**7):
        found = Ball(np.round(law * n), 0.95, (3, 5)).bounds(P, MEASURES["lc"])
        widths.append([one.high - one.low for one in (found.I_SU, found.I_YU, found.E) if one])
    for wide, narrow in pairwise(widths):
        assert all(b < 0.25 * a for a, b in zip(wide, narrow))


# -- users' jobs ------------------------------------------------------------------------------------------------


def rows(path: Path, n: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    job = rng.choice(["cook", "clerk", "nurse", "pilot"], n, p=[0.4, 0.3, 0.2, 0.1])
    ill = np.where(rng.random(n) < np.where(job == "nurse", 0.7, 0.2), "yes", "no")
    path.write_text("ill,job\n" + "\n".join(map(",".join, zip(ill, job))) + "\n")
    return str(path)


SCHEMA = '[columns]\nill = ["no", "yes"]\njob = ["clerk", "cook", "judge", "nurse", "pilot"]\n'


def test_ias_says_what_holds_of_the_true_law(tmp_path: Path, capsys) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    words = ["--rows", rows(tmp_path / "r.csv", 4000), "--infer", "ill", "--column", "job", "--beta", "0.05"]
    words += ["--schema", str(tmp_path / "s.toml"), "--confidence", "0.95", "--out", str(tmp_path / "run")]
    assert ias.main(words) == 0
    shown = capsys.readouterr().out
    assert (
        "with probability 0.95 all of this holds of the law that the 4000 rows are independent draws of"
        in shown
    )
    assert "2 x 5 cells" in shown  # a judge could have come
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    sure = summary["confidence"]
    assert sure["I_SU"][0] <= summary["I_SU"] <= sure["I_SU"][1]
    assert sure["E_d"][0] <= summary["E_d"] <= sure["E_d"][1]
    assert sure["cells"] == [2, 5]


def test_every_point_of_a_sweep_is_bounded(tmp_path: Path, capsys) -> None:
    words = [
        "sweep",
        "--rows",
        rows(tmp_path / "r.csv", 4000),
        "--infer",
        "ill",
        "--column",
        "job",
        "--betas",
        "0.02,0.1",
    ]
    words += ["--confidence", "0.9", "--alphabets", "2,4", "--restarts", "4", "--no-certify"]
    assert ias.main([*words, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("I(S;U) in [") == 2
    for point in json.loads((tmp_path / "run" / "summary.json").read_text())["points"]:
        low, high = point["confidence"]["I_SU"]
        assert low <= point["I_SU"] <= high


def test_the_funnel_promises_its_rate(tmp_path: Path, capsys) -> None:
    words = [
        "--rows",
        rows(tmp_path / "r.csv", 20_000),
        "--private",
        "ill",
        "--public",
        "job",
        "--confidence",
        "0.9",
    ]
    words += ["--alphabets", "2,4", "--repeats", "1"]
    assert funnel.main([*words, "--rates", "1.0,1.1", "--out", str(tmp_path / "run")]) == 0
    points = json.loads((tmp_path / "run" / "summary.json").read_text())["points"]
    for R, point in zip((1.0, 1.1), points):
        assert point["confidence"]["I_YU"][0] >= R == point["confidence"]["R"]
        assert point["confidence"]["promised"]
        assert point["R"] < R + 0.05
        assert point["confidence"]["I_SU"][1] >= point["I_SY"]
    # Nothing can promise as much as the rows themselves seem to hold.
    joint = funnel.from_joint(np.loadtxt(_table(tmp_path), delimiter=","))
    words += ["--rates", repr(joint.HX), "--strict", "--out", str(tmp_path / "all")]
    assert funnel.main(words) == 4
    assert not json.loads((tmp_path / "all" / "summary.json").read_text())["points"][0]["confidence"][
        "promised"
    ]
    assert "NOT PROMISED, too few rows" in capsys.readouterr().out


def _table(folder: Path) -> Path:
    table = tables.from_rows(folder / "r.csv", ("ill",), ("job",))
    np.savetxt(folder / "t.csv", table.cells, delimiter=",")
    return folder / "t.csv"


NAMED = ["--infer", "ill", "--column", "job", "--rows", "{}"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*NAMED, "--confidence", "0.9"], "--alphabets"),
        ([*NAMED, "--confidence", "0.9", "--alphabets", "2,3"], "already"),
        ([*NAMED, "--confidence", "0.9", "--alphabets", "2"], "two numbers"),
        ([*NAMED, "--alphabets", "2,4"], "is for --confidence"),
        (["--problem", "gauss", "--confidence", "0.9"], "counted rows"),
        (["--input", "{}.csv", "--confidence", "0.9"], "--alphabets"),
        (["--input", "{}.csv", "--confidence", "0.9", "--alphabets", "2,3"], "already"),
        (["--problem", "gauss", "--confidence", "1"], "between 0 and 1"),
    ],
)
def test_bad_input(words: list[str], told: str, tmp_path: Path, capsys) -> None:
    path = rows(tmp_path / "r.csv", 200)
    # Counts hold the values that rows have: that there are no others, they do not say.
    (tmp_path / "r.csv.csv").write_text(",a,b,c,d\nno,9,8,7,6\nyes,1,2,3,4\n")
    assert ias.main([*(word.format(path) for word in words), "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
    assert not (tmp_path / "run").exists()


def test_values_that_no_row_has_are_counted(tmp_path: Path) -> None:
    """Left out of the channel, but not of the radius."""
    table = tables.heart(("sex", "death"), ("anaemia", "diabetes"))
    assert ball_of(table, 0.9).cells == (4, 4)  # type: ignore[union-attr]
    gone = tables.adult(("income",), ("workclass",))  # nobody has never worked
    assert gone.observed().cells.shape[1] < gone.cells.shape[1]
    assert ball_of(gone.observed(), 0.9).cells == gone.cells.shape  # type: ignore[union-attr]
    whole, left = (ball_of(each, 0.9) for each in (gone, gone.observed()))
    assert whole is not None
    assert left is not None
    assert whole.eps_of(0) < whole.eps
    assert left.eps_of(0) == left.eps  # of S among those whose Y occurs the ball of P_S does not speak
    assert left.eps_of(1) < left.eps
    with pytest.raises(InputError, match="counted rows"):
        ball_of(tables.problem("synthetic-unif"), 0.9)


def test_the_law_of_those_whose_values_occur_is_covered() -> None:
    """S decides whether Y is a value that hardly anybody has; where none of the rows has it, S is seen askew."""
    rng, missed, left_out = np.random.default_rng(5), 0, 0
    law = np.array([[0.30, 0.19, 0.0001], [0.25, 0.16, 0.0999]])
    law /= law.sum()
    for _ in range(8):
        counts = rng.multinomial(8, law.ravel()).reshape(2, 3)
        there = counts.sum(0) > 0
        P = rng.dirichlet(np.ones(2), size=3)[there]
        ball = Ball(counts[:, there], 0.8, (2, 3))
        spoken = law[:, there] / law[:, there].sum()
        found = ball.bounds(P)
        left_out += not there.all()
        missed += not found.I_SU.low - 1e-9 <= information(spoken @ P) <= found.I_SU.high + 1e-9
    assert left_out > 1
    assert missed <= 0.2 * 8


def test_rows_that_bound_nothing_say_so_and_how_many_would() -> None:
    law = np.array([[0.3, 0.1, 0.05, 0.05], [0.05, 0.1, 0.15, 0.2]])
    found = Ball(np.round(40 * law), 0.95, (2, 4)).bounds(np.eye(4))
    assert (0.0, pytest.approx(math.log(2))) == found.I_SU
    assert found.enough is not None
    assert 40 < found.enough < 1000
    assert any("40 rows say nothing of I(S;U)" in line for line in found.lines())
    assert found.summary()["rows_that_would_bound_I_SU"] == found.enough
    more = Ball(np.round(found.enough * law), 0.95, (2, 4)).bounds(np.eye(4))
    assert more.enough is None
    assert "every law" not in more.text()
    assert more.I_SU.high < math.log(2)
    assert (
        Ball(np.round(40 * law), 0.95, (2, 4)).bounds(np.ones((4, 1))).enough is None
    )  # says nothing, and is known to
