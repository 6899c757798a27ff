"""Who holds what decides how nodes compose."""

import math
from dataclasses import replace

import pytest

from distadmm.errors import InputError
from distadmm.privacy.accounting import curves, gaussian, nodes, pld, profiles
from distadmm.privacy.accounting.accountant import (
    ADJACENCIES,
    DiscreteGaussian,
    Gaussian,
    KNorm,
    ObjectivePerturbation,
    Pure,
    Unbounded,
    combine,
    epsilon,
    r_o_r,
)
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian
from distadmm.privacy.accounting.trust import ANY, Trust
from distadmm.privacy.ledger import compose

DELTA = 1e-5
CHEAP = ObjectivePerturbation("gamma", 20, 0.5, 0.2, 0.25, 8.2, 20)
DEAR = replace(CHEAP, floor=0.5, count=30)
NODES = {"a": [CHEAP], "b": [DEAR], "c": [CHEAP]}


def test_who_shares_noise_with_others_holds_records_of_its_own():
    edge = PairwiseGaussian(2.0**12, 2.0**14, 2.0**10, (0.2, 0.5, 1.0), coalition=1)
    here, there = {"a": [edge], "b": [edge]}, {"a": [edge], "b": [CHEAP]}
    for across in ("parties", "unknown", "moving"):
        assert math.isinf(combine(here, "replace", DELTA, across).epsilon)
        assert math.isfinite(combine(there, "replace", DELTA, across).epsilon)
    twice = {"a": 2, "b": 2}
    assert math.isinf(combine(here, "replace", DELTA, "person", twice).epsilon)
    assert math.isinf(
        max(epsilon(n.spent, DELTA, "replace") for n in compose.blocks([group_of(edge)] * 2, "sum"))
    )


def group_of(event):
    return compose.Node(compose.spending([event], 2))


def test_a_group_keeps_who_may_collude():
    edge = PairwiseGaussian(2.0**12, 2.0**14, 2.0**10, (0.2, 0.5, 1.0), coalition=0, count=3)
    for event in (edge, edge.against(Trust(1))):
        of_two = event.group(2)
        assert of_two.gdp_mu("replace") == pytest.approx(2 * event.gdp_mu("replace"), rel=1e-12)
        assert of_two.against(ANY).gdp_mu("replace") == pytest.approx(
            2 * event.against(ANY).gdp_mu("replace"), rel=1e-12
        )


def test_a_record_at_one_node_costs_what_its_node_costs():
    for across in ("one-node", "feature"):
        found = combine(NODES, "replace", DELTA, across)
        assert found.nodes == ("b",)
        assert found.epsilon == epsilon([DEAR], DELTA, "replace")


def test_a_person_at_every_party_costs_all_of_them():
    for across in ("parties", "unknown"):
        found = combine(NODES, "replace", DELTA, across)
        assert found.epsilon == epsilon([CHEAP, DEAR, CHEAP], DELTA, "replace")
        assert found.epsilon > combine(NODES, "replace", DELTA, "one-node").epsilon
    both = combine({1: [Gaussian(3.0, 9)], 2: [Gaussian(4.0, 16)]}, "replace", DELTA, "parties")
    assert both.epsilon == pytest.approx(gaussian.epsilon(math.sqrt(2.0), DELTA), rel=1e-12)


def test_several_records_of_a_person():
    found = combine(NODES, "add-remove", DELTA, "person", {"a": 2, "c": 1})
    assert found.epsilon == epsilon([CHEAP.group(2), CHEAP], DELTA, "add-remove")
    one = combine(NODES, "add-remove", DELTA, "person", {"a": 1, "b": 0})
    assert one.epsilon == epsilon([CHEAP], DELTA, "add-remove")
    gaussians = {1: [Gaussian(6.0)], 2: [Gaussian(8.0)]}
    assert combine(gaussians, "replace", DELTA, "person", {1: 3, 2: 4}).epsilon == pytest.approx(
        gaussian.epsilon(math.sqrt(0.5), DELTA), rel=1e-12
    )


def test_a_record_that_moves_between_nodes():
    """Removed at one and added at the other; a record replaced where it is may cost more, and then counts."""
    alike = {1: [CHEAP], 2: [CHEAP]}
    here = epsilon([CHEAP], DELTA, "replace")
    assert combine(alike, "replace", DELTA, "moving").epsilon == here
    moved = nodes._moved((CHEAP,), (CHEAP,), DELTA)
    assert epsilon([CHEAP], DELTA, "add-remove") < moved < here
    assert moved <= combine(alike, "add-remove", DELTA, "parties").epsilon * (1 + 1e-9)
    # Without curvature a shift by w at two nodes is one by sqrt(2) w at one; replaced it is 2 w.
    flat = replace(CHEAP, noise="gaussian", scale=1.0, floor=1e12, count=1)
    both = nodes._moved((flat,), (flat,), DELTA)
    assert both == pytest.approx(gaussian.epsilon(math.sqrt(2.0) * flat.weight, DELTA), rel=1e-3)
    assert combine({1: [Unbounded("x")], 2: [CHEAP]}, "replace", DELTA, "moving").epsilon == math.inf
    assert nodes._moved((CHEAP,), (DEAR,), 0.0) == pytest.approx(
        CHEAP.pure_epsilon("add-remove") + DEAR.pure_epsilon("add-remove")
    )
    with pytest.raises(InputError, match="replace"):
        combine(alike, "add-remove", DELTA, "moving")


def test_there_is_no_default_where_it_matters():
    with pytest.raises(InputError, match="no default"):
        combine(NODES, "replace", DELTA)
    assert combine({"a": [CHEAP]}, "replace", DELTA).epsilon == epsilon([CHEAP], DELTA, "replace")
    for bad in (
        lambda: combine(NODES, "replace", DELTA, "whoever"),
        lambda: combine(NODES, "replace", DELTA, "person"),
        lambda: combine(NODES, "replace", DELTA, "one-node", {"a": 2}),
        lambda: combine(NODES, "replace", DELTA, "person", {"z": 2}),
        lambda: CHEAP.group(0),
    ):
        with pytest.raises(InputError):
            bad()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_groups_cost_k_times_the_pure_price(adjacency):
    for event in (CHEAP, KNorm(3, 1.0, 0.2, 4), Pure(0.1, 3)):
        three = event.group(3).pure_epsilon(adjacency)
        assert three == pytest.approx(3 * event.pure_epsilon(adjacency), rel=1e-12)
    assert Gaussian(6.0, 2).group(3) == Gaussian(2.0, 2)
    assert DiscreteGaussian(6.0, 2.0).group(3) == DiscreteGaussian(6.0, 6.0)
    assert CHEAP.group(1).pure_epsilon(adjacency) == pytest.approx(CHEAP.pure_epsilon(adjacency), rel=1e-12)


@pytest.mark.parametrize(("dimension", "scale"), [(2, 0.5), (20, 0.5), (105, 1.0)])
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_a_group_is_a_chain_of_single_records(noise, dimension, scale):
    """Five records one after the other, against the squares of powers that `group` is priced by."""
    event = replace(
        CHEAP, noise=noise, dimension=dimension, scale=scale if noise == "gamma" else 3.0, count=1
    )
    _, back = profiles.pairs_of(event, "add-remove")
    worse = curves.joined(back.right, back.right)  # in either direction
    found, prices = worse, []
    for k in (2, 3, 4, 5):
        step = curves.chained(worse, found)
        found = curves.joined(step, step)
        (group,) = profiles.pairs_of(event.group(k), "add-remove")
        prices.append([pld.epsilon([pld.Term(p, 20)], DELTA) for p in (found, group)])
        # That total variation is the same in either direction, the pair of one record knows and R does not.
        assert prices[-1][0] <= prices[-1][1] * (1 + 1e-3)
        assert prices[-1][1] <= prices[-1][0] * 1.15
    assert prices == sorted(prices)


def test_two_records_taken_away_are_one_replaced():
    """Both are R o R, and the claim for the replaced one is less: of the two taken away both pay for the Hessian."""
    pair = replace(CHEAP, noise="gaussian", scale=3.0).group(2)
    swapped = replace(pair, records=1)
    assert epsilon([pair], DELTA, "add-remove") == pytest.approx(
        r_o_r([swapped], DELTA, "replace"), rel=1e-12
    )
    assert epsilon([swapped], DELTA, "replace") < epsilon([pair], DELTA, "add-remove")
    assert CHEAP.group(2).group(3) == CHEAP.group(6)
    assert CHEAP.group(2).pure_epsilon("add-remove") > CHEAP.pure_epsilon("replace")


def test_groups_of_normal_noise_without_curvature_are_exact():
    flat = replace(CHEAP, noise="gaussian", scale=1.0, floor=1e12, count=5)
    for k in (1, 2, 5, 16):
        exact = gaussian.epsilon(math.sqrt(5) * k * flat.weight, DELTA)
        found = epsilon([flat.group(k)], DELTA, "add-remove")
        assert exact <= found <= exact * 1.005
    labels = replace(flat, logistic=True).group(3)
    assert epsilon([labels], DELTA, "label") == pytest.approx(
        gaussian.epsilon(math.sqrt(5) * 0.6, DELTA), rel=1e-9
    )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_large_groups_cost_no_more_than_their_pure_price(adjacency):
    spent = [epsilon([CHEAP.group(k)], DELTA, adjacency) for k in (1, 2, 4, 30, 1000)]
    assert spent == sorted(spent)
    assert spent[-1] <= CHEAP.group(1000).pure_epsilon(adjacency) * (1 + 1e-9)
