"""Seals: only what was released leaves without a charge."""

import math

import numpy as np
import pytest

from distadmm.errors import BudgetExhausted
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.ledger.filter import PureFilter
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.seal import Guard, digest


def rows(n=3):
    return np.arange(float(n * 4)).reshape(n, 4)


@pytest.fixture
def charged():
    return []


@pytest.fixture
def guard(charged):
    return Guard([5, 6, 7], lambda at, reason, round: charged.append((at, reason, round)))


def test_a_sealed_message_leaves_once_and_only_as_it_was_sealed(guard, charged):
    F = rows()
    guard.seal(1, F, [Gaussian(1.0)] * 3)
    guard("row", F)
    assert charged == []
    guard("row", F)
    assert [at for at, _, _ in charged] == [0, 1, 2]
    assert "once more" in charged[0][1]


def test_only_the_node_whose_row_was_altered_is_charged(guard, charged):
    F = rows()
    guard.seal(4, F)
    F[1, 2] = np.nextafter(F[1, 2], np.inf)
    guard("row", F)
    assert [(at, k) for at, _, k in charged] == [(1, 4)]
    assert "altered" in charged[0][1]


def test_the_sign_of_zero_and_the_shape_are_part_of_what_was_sealed(guard, charged):
    F = np.zeros((3, 4))
    guard.seal(1, F)
    guard("row", -F)
    assert len(charged) == 3
    guard.seal(2, F)
    guard("row", F[:, :2])
    assert len(charged) == 6


@pytest.mark.parametrize("kind", ["row", "score"])
def test_a_message_before_the_first_release_or_of_another_kind_is_charged(guard, charged, kind):
    if kind == "score":
        guard.seal(1, rows())
    guard(kind, rows())
    assert len(charged) == 3
    assert "no release covers" in charged[0][1]


def test_a_permit_lets_one_message_through_and_an_open_one_all_of_them(guard, charged):
    guard.permit(2, "recycled")
    guard("row", rows())
    assert charged == []
    guard("row", rows())
    assert len(charged) == 3
    charged.clear()
    guard.permit(3, "open")
    for _ in range(5):
        guard("row", rows())
    assert charged == []


def test_a_seal_names_its_message_and_a_foreign_one_does_not_serve(guard, charged):
    F = rows()
    guard.seal(3, F, [Gaussian(2.0)] * 3, uses=2)
    mine = guard.seals()
    assert [(s.node, s.round, s.digest, s.uses) for s in mine] == [
        (node, 3, digest(row), 2) for node, row in zip([5, 6, 7], F)
    ]
    assert mine[0][3:7] == (Gaussian(2.0), digest(F[0]), "<f8", (4,))
    guard("row", F, mine)
    assert charged == []
    guard("row", F, [seal._replace(round=9) for seal in mine])
    assert len(charged) == 3


def test_the_ledger_is_unbounded_at_that_moment_and_a_budget_keeps_the_message_in():
    ledger = MemoryLedger(adjacency="replace", mode="simulation")
    guard = Guard([0], lambda at, reason, k: ledger.expose(reason, iteration=k))
    guard("row", rows(1))
    assert math.isinf(ledger.tally.spent.pure)
    assert ledger.tally.spent.unbounded
    strict = MemoryLedger(adjacency="replace", mode="simulation", budget=PureFilter(1.0))
    guard = Guard([0], lambda at, reason, k: strict.expose(reason, iteration=k))
    with pytest.raises(BudgetExhausted):
        guard("row", rows(1))
