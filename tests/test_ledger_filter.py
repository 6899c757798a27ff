"""Budgets: which filter guards which plan, and that none lets more through than it proves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import BudgetExhausted, InputError
from distadmm.privacy.accounting import accountant, gaussian
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import (
    Gaussian,
    KNorm,
    Pure,
    Unbounded,
)
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.accounting.rdp import ORDERS, rdp_to_epsilon
from distadmm.privacy.ledger.file import MemoryLedger
from distadmm.privacy.ledger.filter import (
    GaussianFilter,
    PureFilter,
    RenyiFilter,
    ScheduleFilter,
    budget,
    filter_from_json,
)

PERTURBED = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2, count=50)
ADJACENCY = "replace"


def book(guard, **other) -> MemoryLedger:
    return MemoryLedger(0, adjacency=ADJACENCY, mode="secure", budget=guard, **other)


def spend(ledger: MemoryLedger, event, most: int = 10_000) -> int:
    """How often `event` is let through."""
    for k in range(most):
        try:
            ledger.charge(event, iteration=k)
        except BudgetExhausted:
            return k
    return most


def test_the_filter_fits_the_plan():
    def of(*events, delta=1e-5, epsilon=5.0):
        return type(budget(epsilon, delta, events, adjacency=ADJACENCY))

    assert of(PERTURBED, delta=0.0) is PureFilter
    assert of(Gaussian(5.0), Gaussian(7.0, count=3)) is GaussianFilter
    assert of(Gaussian(5.0), Pure(0.1)) is RenyiFilter
    assert of(DiscreteGaussian(50.0, 5.0)) is RenyiFilter  # not exactly Gaussian
    assert of(PERTURBED) is RenyiFilter
    assert of() is RenyiFilter
    assert of(Unbounded("open")) is RenyiFilter


@pytest.mark.parametrize(
    "guard",
    [
        PureFilter(2.0),
        GaussianFilter(1.0, 1e-5, 0.27),
        budget(1.0, 1e-6, [DiscreteGaussian(50.0, 5.0)], adjacency=ADJACENCY),
        ScheduleFilter(1.0, 1e-5, "ab"),
    ],
)
def test_filters_survive_their_file(guard):
    back = filter_from_json(book(guard).tally.header["budget"])
    assert type(back) is type(guard)
    assert back.to_json() == guard.to_json()
    assert back.describe() == guard.describe()


def test_unknown_filters_are_refused():
    with pytest.raises(InputError, match="known: pure"):
        filter_from_json({"filter": "minimum over orders", "epsilon": 1.0})


@settings(deadline=None, max_examples=30)
@given(epsilon=st.floats(0.2, 8), delta=st.sampled_from([1e-9, 1e-5, 1e-2]), noise=st.floats(3, 40))
def test_gaussian_filter_is_exact(epsilon, delta, noise):
    event = Gaussian(noise)
    count = spend(book(budget(epsilon, delta, [event], adjacency=ADJACENCY)), event, most=400)
    assert count == 0 or gaussian.epsilon(np.sqrt(count) / noise, delta) <= epsilon * (1 + 1e-8)
    assert count == 400 or gaussian.epsilon(np.sqrt(count + 1) / noise, delta) > epsilon


@settings(deadline=None, max_examples=30)
@given(
    epsilon=st.floats(0.5, 8),
    script=st.lists(
        st.sampled_from([Gaussian(3.0), Gaussian(20.0), Pure(0.3), Pure(0.02), DiscreteGaussian(40.0, 10.0)]),
        min_size=1,
        max_size=60,
    ),
)
def test_renyi_filter_never_lets_more_through_than_its_epsilon(epsilon, script):
    """Whatever is asked for, in whatever order, refused or not."""
    guard = budget(epsilon, 1e-5, [Gaussian(10.0), Pure(0.1)], adjacency=ADJACENCY)
    ledger = book(guard)
    for k, event in enumerate(script):
        try:
            ledger.charge(event, iteration=k)
        except BudgetExhausted:
            assert not ledger.affords([event])
    assert rdp_to_epsilon(ledger.tally.spent.rdp, 1e-5) <= epsilon * (1 + 1e-8)


def test_the_order_of_a_renyi_filter_is_fixed_beforehand():
    """At another order the sum would still convert to less than epsilon: that is no reason to go on."""
    epsilon, delta = 2.0, 1e-5
    guard = budget(epsilon, delta, [Pure(1.9)], adjacency=ADJACENCY)
    assert np.isfinite(guard.curve).sum() == 1
    ledger = book(guard)
    count = spend(ledger, Pure(0.1))
    one_more = ledger.tally.spent.rdp * (count + 1) / count
    assert rdp_to_epsilon(one_more, delta) < epsilon


def test_a_plan_within_budget_by_its_tight_price_alone_is_let_through_alone():
    tight = accountant.epsilon([PERTURBED], 1e-5, ADJACENCY)
    loose = rdp_to_epsilon(PERTURBED.rdp(ORDERS, ADJACENCY), 1e-5)
    assert tight < loose
    guard = budget((tight + loose) / 2, 1e-5, [PERTURBED], adjacency=ADJACENCY)
    assert isinstance(guard, ScheduleFilter)
    ledger = book(guard)
    with pytest.raises(BudgetExhausted):
        ledger.charge(PERTURBED.single(), iteration=0)
    ledger.commit([PERTURBED.single()] * 50)
    assert spend(ledger, PERTURBED.single()) == 50
    with pytest.raises(BudgetExhausted):
        ledger.commit([PERTURBED])
    shorter = book(guard)
    with pytest.raises(BudgetExhausted):
        shorter.commit([replace(PERTURBED, count=49)])
    assert ledger.statement_kind == "certificate"


def test_the_plan_itself_passes_its_own_budget():
    for event, delta in [(PERTURBED, 1e-5), (PERTURBED, 0.0), (Gaussian(9.69, count=50), 1e-5)]:
        if delta:
            epsilon = accountant.epsilon([event], delta, ADJACENCY)
        else:
            epsilon = event.pure_epsilon(ADJACENCY)
        ledger = book(budget(epsilon, delta, [event], adjacency=ADJACENCY))
        ledger.commit([event])
        assert ledger.budget.used(ledger.tally.spent) == pytest.approx(1.0, abs=1e-6)
        with pytest.raises(BudgetExhausted, match="100"):
            ledger.charge(Pure(0.01), iteration=1)


def test_ten_tenths_are_a_whole():
    assert spend(book(PureFilter(1.0)), Pure(0.1)) == 10


@pytest.mark.parametrize(
    ("epsilon", "delta", "what"),
    [
        (0.0, 1e-5, "epsilon"),
        (float("nan"), 1e-5, "epsilon"),
        (float("inf"), 0.0, "epsilon"),
        (1.0, 1.0, "delta"),
    ],
)
def test_impossible_budgets_are_refused(epsilon, delta, what):
    with pytest.raises(InputError, match=f"--budget-{what}"):
        budget(epsilon, delta, [Gaussian(1.0)], adjacency=ADJACENCY)


def test_a_budget_on_disk_is_enforced_after_a_restart(tmp_path):
    from distadmm.privacy.ledger.file import Ledger

    ledger = Ledger(tmp_path, 0, adjacency=ADJACENCY, mode="secure", budget=PureFilter(1.0))
    ledger.charge(KNorm(1, 0.6, 1.0), iteration=1)
    ledger.close()
    again = Ledger.resume(tmp_path, 0, mode="secure")
    with pytest.raises(BudgetExhausted, match=r"60\.0% is spent"):
        again.charge(KNorm(1, 0.6, 1.0), iteration=2)
