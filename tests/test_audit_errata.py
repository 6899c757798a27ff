"""Counterexamples to what is sometimes taken for granted; docs/privacy.md names them, which is checked here."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from distadmm.methods.sharing import admm
from distadmm.problems.consensus import GeneralisedLinear
from distadmm.problems.losses import Logistic

ROOT = Path(__file__).resolve().parent.parent


def test_a_weight_that_counts_the_records_moves_further_than_one_record_may() -> None:
    """With C/|D| in place of a public C/B, one record more changes the weights of all others too."""
    n, C = 5, 5.0
    u, v = np.array([-0.1, np.sqrt(0.99)]), np.array([-0.1, -np.sqrt(0.99)])
    f = np.array([1e5, 0.0])  # every slope is at its bound
    with_u, with_both = np.tile(u, (n, 1)), np.concatenate([np.tile(u, (n, 1)), v[None]])

    def moved(divisor: int | None) -> float:
        one, more = (
            GeneralisedLinear(rows, np.ones(len(rows)), Logistic(), weight=C, divisor=divisor).grad(f)
            for rows in (with_u, with_both)
        )
        return float(np.linalg.norm(more - one))

    assert moved(n) <= C / n + 1e-9  # public B: at most w
    assert moved(None) > 1.6 * C / n


def test_exact_losses_at_released_iterates_give_a_record_away() -> None:
    """Thirty mean losses, all other records known: the remaining one follows to ten digits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 20)) / 5
    objective = GeneralisedLinear(X, np.ones(8), Logistic())
    models = rng.normal(size=(30, 20))
    curve = np.array([objective.data_loss(f) for f in models])
    known = Logistic().value(models @ X[1:].T, np.ones(1)).sum(axis=1)
    own = 8 * curve - known
    margin = -np.log(np.expm1(own))
    found = np.linalg.lstsq(models, margin, rcond=None)[0]
    np.testing.assert_allclose(found, X[0], atol=1e-10)


def test_the_first_vector_from_the_centre_holds_every_label() -> None:
    """y = l'(z) has the sign of minus the label, whatever the data are."""
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(50) < 0.4, 1.0, -1.0)
    y = Logistic().slope(np.full(50, admm.best_constant(Logistic(), labels)), labels)
    np.testing.assert_array_equal(-np.sign(y), labels)


@pytest.mark.parametrize(("n", "least"), [(100, 0.5), (1000, 0.05)])
def test_a_noise_level_computed_from_the_private_number_of_rows_gives_it_away(n: int, least: float) -> None:
    """sigma = c/n over 50 rounds of 200 numbers: the total variation between n and n + 1 rows, in closed form."""
    shape = 200 * 50 / 2
    ratio = ((n + 1) / n) ** 2
    cut = (
        shape * np.log(ratio) * ratio / (ratio - 1)
    )  # |b|^2/2 where the two densities meet, in units of the smaller
    apart = stats.gamma.cdf(cut, shape) - stats.gamma.cdf(cut / ratio, shape)
    assert least < apart < least + 0.1


def test_the_constant_of_theorem_3_1_is_not_below_what_is_claimed() -> None:
    """sqrt(2/pi) e^(8/9) is 1.94, so that the step to 1.25 in the proof does not hold."""
    assert np.sqrt(2 / np.pi) * np.exp(8 / 9) > 1.25


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "privacy.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) >= 12
    for path, test in named:
        assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{test}"
