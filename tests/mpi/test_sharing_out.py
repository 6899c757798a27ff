"""Work dealt out to the ranks: the same answers on any number of them, equal items once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.methods.consensus import private as protect
from distadmm.privacy.accounting import rdp
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.ranks.launcher import on_one_host
from distadmm.ranks.waiting import cores
from distadmm.ranks.world import World
from distadmm.run.running import unwritten
from distadmm.run.setup import prepare


@pytest.mark.mpi(min_size=1, sizes=[1, 2, 5])
def test_results_come_in_the_order_of_the_items_from_ranks_that_have_a_core(world: World) -> None:
    found = world.share_out(lambda item: (item * item, world.rank), range(11))
    if not world.is_root:
        assert found is None
        return
    assert [square for square, _ in found] == [item * item for item in range(11)]
    workers = min(world.size, cores()) if on_one_host() else world.size
    assert {rank for _, rank in found} == set(range(workers))


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_items_that_a_text_does_not_tell_apart_are_refused(world: World) -> None:
    with pytest.raises(RuntimeError, match="give its hash"):
        world.each_once(str, [object()])


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_equal_items_of_different_ranks_are_worked_on_once(world: World) -> None:
    worked = []

    def work(item: int) -> int:
        worked.append(item)
        return item + 100

    found = world.each_once(work, [7, world.rank, 7])
    mine = [7, *(range(world.size) if world.is_root else [world.rank])]  # rank 0 has those of all
    assert found == {item: item + 100 for item in mine}
    assert list(found) == mine
    assert sum(world.allgather(len(worked))) == world.size + 1


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_over_several_hosts_a_rank_believes_nobody(world: World, monkeypatch) -> None:
    monkeypatch.setattr("distadmm.ranks.world.on_one_host", lambda: False)
    worked = []
    found = world.each_once(lambda item: worked.append(item) or -item, [7, world.rank, 7])
    assert worked == list(dict.fromkeys([7, world.rank]))
    assert found == {7: -7, world.rank: -world.rank}


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_noise_and_prices_are_the_same_on_one_host_and_on_several(world: World, monkeypatch) -> None:
    together = armed(world)
    monkeypatch.setattr("distadmm.ranks.world.on_one_host", lambda: False)
    rdp._learnt.clear()
    rdp._single.cache_clear()
    alone = armed(world)
    np.testing.assert_array_equal(together[0], alone[0])
    np.testing.assert_array_equal(together[1], alone[1])
    assert together[2] == alone[2]


def armed(world: World) -> tuple[np.ndarray, list[np.ndarray], float]:
    """The noise of this rank's nodes, what their ledgers say is spent, and what is said of all."""
    flags = {"data": "tiny", "weight": 20.0, "topology": "star:4", "epsilon": 4.0, "adjacency": "replace"}
    config = radmm.configure("mradmm", **flags, iterations=6, rng="simulation", progress="none")
    prepared = prepare(config, world)
    plan = protect.plan_of(prepared)
    release = protect.armed(prepared, plan, unwritten(config.run, world)).release
    spent = [ledger.tally.spent.rdp for ledger in release.books.ledgers]
    return plan.recipe.alpha, spent, release.epsilon


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_bad_input_found_by_one_rank_ends_the_work_of_all(world: World) -> None:
    def fail(item: int) -> int:
        raise InputError(f"no price for {item}")

    with pytest.raises(InputError, match="no price for 0"):
        world.share_out(fail, range(20))


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_a_curve_learnt_from_another_rank_is_the_one_computed_here(world: World, monkeypatch) -> None:
    events = [ObjectivePerturbation("gamma", 7, 1.1 + 0.1 * i, 0.2, 0.25, 5.0) for i in range(3)]
    prices = world.each_once(lambda event: event.rdp(rdp.ORDERS, "replace"), events)
    rdp._single.cache_clear()
    own = [event.rdp(rdp.ORDERS, "replace") for event in events]
    np.testing.assert_array_equal(own, [prices[event] for event in events])
    rdp._single.cache_clear()
    rdp.learn(prices, rdp.ORDERS, "replace")
    monkeypatch.setattr(ObjectivePerturbation, "renyi", lambda *_: pytest.fail("computed again"))
    try:
        np.testing.assert_array_equal(own, [event.rdp(rdp.ORDERS, "replace") for event in events])
        twice = rdp.curve(replace(events[0], count=2), rdp.ORDERS, "replace")
        np.testing.assert_array_equal(twice, 2 * own[0])
    finally:
        rdp._learnt.clear()
        rdp._single.cache_clear()
