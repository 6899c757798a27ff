"""`check sharing|istdp|funnel|ias` and the sample sizes of R-ADMM: what is claimed, what holds, what was measured."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from distadmm.commands import check, check_papers
from distadmm.commands.check_report import samples
from distadmm.errors import DONE, USAGE
from distadmm.methods.funnel.options import Data
from distadmm.methods.funnel.starts import feasible, iterate


def _told(capsys, *words: str) -> str:
    assert check.main(list(words)) == DONE
    return capsys.readouterr().out


def test_assumption_1_of_sharing_holds_or_fails_by_the_numbers(capsys) -> None:
    said = _told(capsys, "sharing", "--data", "tiny", "--loss", "sigmoid", "--measured", "25")
    assert re.search(r"2b  x-modulus >= 2 sigma_max +FAILS", said)
    assert re.search(r"2c  rho gamma > 2 L\^2 and rho >= L +holds", said)
    fell, of = map(int, re.search(r"fell in (\d+) of (\d+); V took at most ([\d.]+) %", said).groups()[:2])
    assert fell == of == 25
    assert 0 < float(re.search(r"V took at most ([\d.]+) %", said)[1]) <= 100
    heavy = _told(
        capsys, "sharing", "--data", "tiny", "--lambda", "1e5", "--penalty-rho", "0.1", "--measured", "3"
    )
    assert re.search(r"2b  x-modulus >= 2 sigma_max +holds", heavy)
    assert re.search(r"2c  rho gamma > 2 L\^2 and rho >= L +FAILS", heavy)
    assert "none: it needs" in heavy
    paper = _told(capsys, "sharing", "--data", "tiny", "--form", "paper", "--reg", "mcp", "--measured", "3")
    assert re.search(r"4   regulariser smooth or convex +FAILS  folded: weakly convex", paper)
    assert re.search(r"theta = 1\.9\d+ of at most 2: 1 \+ tau = 1 >= .* FAILS; alone above rho", paper)


@pytest.mark.parametrize("reg", ["l2", "scad:3.7"])
def test_of_a_loss_with_a_kink_no_rho_is_asked_for(reg: str, capsys) -> None:
    said = _told(capsys, "sharing", "--data", "tiny", "--loss", "hinge", "--reg", reg, "--measured", "3")
    assert "inf" not in said
    assert re.search(r"1   smooth loss, full column rank +FAILS  ranks .*; the loss has a kink", said)
    assert re.search(r"2c  .*FAILS  whatever rho: at the kink l' jumps", said)
    assert "none: it needs a smooth loss, whatever rho and tau are" in said


def test_the_line_search_of_istdp_keeps_its_bound_without_noise_alone(capsys) -> None:
    said = _told(capsys, "istdp", "--data", "tiny", "--measured", "40")
    bound = int(re.search(r"m_k <= (\d+) halvings", said)[1])
    rows = re.findall(r"^ +([\d.]+) +(\d+) +(\d+) of 40 +([\d.]+)", said, flags=re.M)
    assert [float(sigma) for sigma, *_ in rows] == [0.0, 0.01, 1.0]
    assert float(rows[0][3]) > 1  # accepted, though the proof of Theorem 3.4 needs alpha L < 1
    assert int(rows[0][1]) <= bound
    assert int(rows[0][2]) == 0
    assert int(rows[2][2]) > 5  # sigma = 1: about half of the iterations accept nothing


def test_the_descent_of_aem_is_the_sum_of_four_divergences(capsys) -> None:
    said = _told(capsys, "funnel", "--problem", "heart", "--fractions", "0.3,0.8", "--measured", "15")
    rows = re.findall(r"^ +(0\.\d+) +(\S+) +(\S+) +(\d+) +(\S+) +(\S+)$", said, flags=re.M)
    assert len(rows) == 2
    for _, off, general, _, fell, rose in rows:
        assert max(float(off), float(general)) < 1e-10
        assert float(fell) > 1e-3  # of something that is not zero
        assert float(rose) < 1e-12


def test_the_relaxed_objective_is_what_the_channel_leaks() -> None:
    """At q of the channel itself it is I(S;Y) less H(S|X): the sum has p(s|x) where the entropy of S given X is."""
    joint = Data(problem="heart").load()[0]
    state = next(iterate(joint, feasible(joint, 1.5, joint.M, 1, range(1)), 1.5))
    u = np.exp(state.logu[0])
    relaxed = check_papers._relaxed(joint, u, u.sum(axis=0), check_papers._posterior(joint, u))
    pushed = joint.S @ u
    given = float(np.sum(pushed * np.log(pushed / u.sum(axis=0))))  # -H(S|Y)
    assert relaxed == pytest.approx(given, abs=1e-12)
    assert relaxed + joint.HS == pytest.approx(float(state.leak[0]), abs=1e-12)


def test_the_multiplier_of_ias_is_tried_with_both_signs(capsys) -> None:
    said = _told(capsys, "ias", "--problem", "binom", "--measured", "20")
    assert "(19) as printed: " in said
    assert "Refuted" in said
    fell = re.search(r"F fell in (\d+) of 20 steps, (\S+) to (\S+)", said)
    assert int(fell[1]) == 0
    assert float(fell[3]) > float(fell[2])
    assert "beta_loc" in said


def test_rows_a_node_grow_as_the_theorems_say() -> None:
    def rows(line: str) -> float:
        return float(re.search(r"([\d.e+]+) rows", line)[1])

    asked = check.Options(excess=0.05, alpha=1e9, columns=10)
    plain, noisy = (line for line in samples(asked, 5) if "rows a node" in line)
    assert rows(plain) == pytest.approx(100 * math.log(20) / 0.05**2, rel=1e-3)
    assert rows(noisy) == pytest.approx(
        2 * rows(plain), rel=1e-3
    )  # no noise to speak of: the paper's own remark
    quarter = samples(check.Options(excess=0.025, alpha=1e9, columns=10), 5)
    assert rows(quarter[3]) == pytest.approx(4 * rows(plain), rel=1e-3)
    none = samples(check.Options(excess=0.05, alpha=2.0, columns=200), 5)[4]
    least = float(re.search(r"tau above ([\d.e+]+)", none)[1])
    assert "none: no number of rows" in none
    assert "rows a node" in samples(check.Options(excess=1.01 * least, alpha=2.0, columns=200), 5)[4]
    assert samples(check.Options(), 5) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["masked"], "check masked: no such programme; choose one of: sharing, istdp, funnel, ias"),
        (["sharing", "--data", "tiny", "--algorithm", "sgd"], "has no penalty to check"),
        (
            ["sharing", "--data", "tiny", "--loss", "sigmoid", "--penalty-rho", "0.05"],
            "more than L = 0.09623",
        ),
        (["istdp", "--data", "nowhere.csv"], "nowhere.csv"),
        (["--alpha", "3"], "give --excess and --columns too"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str, capsys) -> None:
    assert check.main(words) == USAGE
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
