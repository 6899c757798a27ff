"""The ledger: what is written, when it is durable, what it adds up to, what it refuses."""

from __future__ import annotations

import math
import os
import stat
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import BudgetExhausted, InputError
from distadmm.privacy.accounting.cost import cost_of
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import (
    Gaussian,
    KNorm,
    Leakage,
    PostProcessing,
    Pure,
    Unbounded,
)
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger import file as ledger
from distadmm.privacy.ledger import rules as memory
from distadmm.privacy.ledger.file import Ledger, MemoryLedger
from distadmm.privacy.ledger.filter import PureFilter
from distadmm.privacy.ledger.tally import Tally

PERTURBED = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2)
LAPLACE = KNorm(1, 0.5, 1.0)
NORMAL = Gaussian(10.0)
HOW = {"adjacency": "replace", "mode": "secure", "run": "r"}


def in_memory(**other) -> MemoryLedger:
    return MemoryLedger(3, **{**HOW, **other})


def kinds(content: bytes) -> list[str]:
    found = chain.parse(content)
    assert found.fault is None
    return [entry["kind"] for entry in found.entries]


# -- entries ------------------------------------------------------------------------------------------


def test_an_entry_says_all_that_is_needed_to_price_it_again():
    book = in_memory(dataset="m", scope="record", source="os.urandom")
    book.charge(LAPLACE, iteration=4)
    entry = chain.parse(book.content).entries[-1]
    assert (entry["v"], entry["run"], entry["node"], entry["seq"], entry["k"]) == (1, "r", 3, 1, 4)
    assert entry["prev"] == chain.parse(book.content).entries[0]["h"]
    assert entry["mech"] == "k-norm"
    assert entry["params"] == {"dimension": 1, "alpha": 0.5, "shift": 1.0, "count": 1}
    assert (entry["adj"], entry["scope"], entry["dataset"]) == ("replace", "record", "m")
    assert entry["rng"] == {"mode": "secure", "source": "os.urandom"}
    assert entry["schedule"] is None
    assert entry["float_exact"] is False
    assert entry["pure_eps"] == LAPLACE.pure_epsilon("replace")
    np.testing.assert_array_equal([float(x) for x in entry["rdp"]], LAPLACE.rdp(book.tally.orders, "replace"))
    assert entry["h"] == book.head.hex()
    assert len(book.head) == 32


def test_releases_under_a_schedule_name_the_entry_that_paid():
    book = in_memory()
    paid = book.commit([replace(PERTURBED, count=2), replace(LAPLACE, count=1)])
    book.charge(PERTURBED, iteration=1)
    book.charge(LAPLACE, iteration=1)
    releases = chain.parse(book.content).entries[2:]
    assert [(e["kind"], e["of"], e["item"], e["k"]) for e in releases] == [
        ("release", paid.seq, 0, 1),
        ("release", paid.seq, 1, 1),
    ]
    assert book.tally.reserved == 1


def test_what_is_held_of_a_schedule_is_what_its_line_says(monkeypatch):
    """An event whose line loses something, as one of somebody's own may, is no tighter before it is read back."""
    whole = ObjectivePerturbation.to_json
    monkeypatch.setattr(ObjectivePerturbation, "to_json", lambda event: {**whole(event), "dimension": 9})
    book = in_memory()
    book.commit([replace(PERTURBED, count=2)])
    assert book.events == Tally.of(chain.parse(book.content).entries).events
    assert book.events == [replace(PERTURBED, count=2, dimension=9)]


def test_only_grid_noise_is_float_exact():
    book = in_memory()
    book.charge(DiscreteGaussian(100.0, 10.0), iteration=1)
    assert chain.parse(book.content).entries[-1]["float_exact"] is True


def test_file_and_memory_hold_the_same_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "now", lambda: "then")
    books = [in_memory(), Ledger(tmp_path, 3, **HOW)]
    for book in books:
        book.commit([replace(PERTURBED, count=2)])
        book.charge(PERTURBED, iteration=1)
        book.post(iteration=2)
        book.charge(NORMAL, iteration=3)
        book.expose("the raw gradient", iteration=4)
        book.close()
    assert books[0].content == books[1].content


events = st.sampled_from([PERTURBED, LAPLACE, NORMAL, Pure(0.1), Unbounded("open"), PostProcessing(1)])


@settings(deadline=None, max_examples=50)
@given(
    plan=st.lists(st.sampled_from([PERTURBED, LAPLACE, NORMAL]), max_size=4),
    script=st.lists(events, max_size=12),
)
def test_reading_the_lines_gives_the_state_that_writing_them_left(plan, script):
    book = in_memory(run=None)
    if plan:
        book.commit([replace(event, count=1 + i) for i, event in enumerate(plan)])
    for k, event in enumerate(script):
        if isinstance(event, PostProcessing) and book.tally.last_release is None:
            continue
        book.charge(event, iteration=k)
    found = chain.parse(book.content)
    assert found.fault is None
    assert found.head == book.head.hex()
    read = Tally.of(found.entries)
    for name in (
        "releases",
        "posts",
        "reserved",
        "committed_first",
        "last_release",
        "last_iteration",
        "events",
    ):
        assert getattr(read, name) == getattr(book.tally, name), name
    assert read.spent.pure == book.tally.spent.pure
    np.testing.assert_array_equal(read.spent.rdp, book.tally.spent.rdp)
    assert {p: s.left for p, s in read.places.items()} == {p: s.left for p, s in book.tally.places.items()}


@settings(deadline=None, max_examples=50)
@given(script=st.lists(st.sampled_from([PERTURBED, LAPLACE, Pure(0.1)]), min_size=1, max_size=30))
def test_sums_are_never_below_the_true_sum(script):
    book = in_memory()
    for k, event in enumerate(script):
        book.charge(event, iteration=k)
    from fractions import Fraction

    true = sum(Fraction(event.pure_epsilon("replace")) for event in script)
    assert Fraction(book.tally.spent.pure) >= true
    assert book.tally.spent.pure <= float(true) * (1 + 1e-12)


# -- durability ---------------------------------------------------------------------------------------


@pytest.fixture
def syncs(monkeypatch):
    """What `fdatasync` was called on, as the size that file then had."""
    calls = []
    monkeypatch.setattr(ledger, "_sync", lambda file: calls.append(os.fstat(file).st_size))
    return calls


def test_a_charge_is_synced_before_it_returns(tmp_path, syncs):
    book = Ledger(tmp_path, 0, **HOW)
    for k in range(3):
        book.charge(LAPLACE, iteration=k)
        assert syncs[-1] == len(book.content)
    assert len(syncs) == 4


def test_a_schedule_is_synced_once_and_its_releases_are_not(tmp_path, syncs):
    book = Ledger(tmp_path, 0, **HOW)
    book.commit([replace(LAPLACE, count=50)])
    assert syncs[-1] == len(book.content)
    before = len(syncs)
    for k in range(50):
        book.charge(LAPLACE, iteration=k)
        book.post(iteration=k)
    assert len(syncs) == before
    book.charge(LAPLACE, iteration=50)  # beyond the schedule
    assert len(syncs) == before + 1
    assert book.tally.spent.pure >= 51 * 0.5


def test_a_full_disk_stops_releases(tmp_path, monkeypatch):
    book = Ledger(tmp_path, 0, **HOW)
    book.commit([replace(LAPLACE, count=5)])

    def full(file, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InputError, match="No space left"):
        book.charge(LAPLACE, iteration=0)
    monkeypatch.undo()
    with pytest.raises(InputError, match="nothing more is released"):
        book.charge(LAPLACE, iteration=1)


def test_more_of_what_is_infinite_is_not_synced_again(tmp_path, syncs):
    book = Ledger(tmp_path, 0, **HOW)
    for k in range(20):
        book.expose("messages without noise", iteration=k)
    assert len(syncs) == 2
    assert kinds(book.content)[1:3] == ["charge", "release"]
    assert math.isinf(book.tally.spent.pure)
    assert book.tally.releases == 20


# -- what costs what ----------------------------------------------------------------------------------


def test_post_processing_costs_nothing_and_points_to_what_it_recycles():
    book = in_memory()
    with pytest.raises(InputError, match="charge a release first"):
        book.post(iteration=0)
    paid = book.charge(LAPLACE, iteration=1)
    with pytest.raises(InputError, match="charge a release first"):
        book.post(iteration=2, of=paid.seq + 1)
    spent = book.tally.spent
    book.post(iteration=2)
    book.charge(PostProcessing(paid.seq), iteration=3)
    entries = chain.parse(book.content).entries
    assert [e["of"] for e in entries if e["kind"] == "post"] == [paid.seq, paid.seq]
    assert book.tally.spent == spent


def test_what_cannot_be_priced_costs_infinity():
    class Novelty:
        mech = "novelty"

    book = in_memory()
    book.charge(Novelty(), iteration=1)
    entry = chain.parse(book.content).entries[-1]
    assert entry["mech"] == "unbounded"
    assert "Novelty" in entry["params"]["reason"]
    assert entry["pure_eps"] == "inf"
    assert math.isinf(book.tally.spent.pure)
    with pytest.raises(InputError, match="no proved price"):
        book.commit([Unbounded("anything")])


def test_leakage_is_listed_and_not_added():
    book = in_memory()
    book.charge(Leakage(0.3, "the label"), iteration=1)
    assert book.events == [Leakage(0.3, "the label")]
    assert (book.tally.releases, book.tally.spent.pure) == (0, 0.0)


def test_an_event_of_several_releases_draws_on_the_reservation():
    book = in_memory()
    book.commit([replace(LAPLACE, count=3)])
    spent = book.tally.spent
    book.charge(replace(LAPLACE, count=2), iteration=1)
    assert book.tally.spent == spent
    assert book.tally.reserved == 1


def test_an_event_of_several_releases_is_paid_for_as_a_whole_or_not_at_all():
    book = in_memory(budget=PureFilter(1.0))
    book.commit([replace(LAPLACE, count=1)])
    with pytest.raises(BudgetExhausted):
        book.charge(replace(LAPLACE, count=3), iteration=1)
    assert (book.tally.releases, book.tally.reserved) == (0, 1)


# -- statements ---------------------------------------------------------------------------------------


def test_three_kinds_of_statement_are_never_mixed():
    committed = in_memory()
    committed.commit([replace(LAPLACE, count=2)])
    committed.charge(LAPLACE, iteration=1)
    assert committed.statement_kind == "certificate"
    committed.charge(LAPLACE, iteration=2)
    committed.charge(LAPLACE, iteration=3)
    assert committed.statement_kind == "odometer"

    late = in_memory()
    late.charge(LAPLACE, iteration=1)
    late.commit([LAPLACE])
    assert late.statement_kind == "odometer"
    assert in_memory().statement_kind == "odometer"

    filtered = in_memory(budget=PureFilter(3.0))
    filtered.charge(LAPLACE, iteration=1)
    assert filtered.statement_kind == "certificate"

    seeded = in_memory(mode="simulation", budget=PureFilter(3.0))
    seeded.commit([LAPLACE])
    assert seeded.statement_kind == "simulation"

    exposed = in_memory()
    exposed.commit([LAPLACE])
    exposed.expose("raw", iteration=1)
    assert exposed.statement_kind == "odometer"


# -- budgets ------------------------------------------------------------------------------------------


def test_a_refused_release_leaves_nothing_spent():
    book = in_memory(budget=PureFilter(1.0))
    book.charge(LAPLACE, iteration=1)
    book.charge(LAPLACE, iteration=2)
    spent, released = book.tally.spent, book.tally.releases
    assert not book.affords([LAPLACE])
    with pytest.raises(BudgetExhausted, match="iteration 3") as refusal:
        book.charge(LAPLACE, iteration=3)
    assert refusal.value.code == 3
    assert (book.tally.spent, book.tally.releases) == (spent, released)
    assert kinds(book.content)[-1] == "refused"
    with pytest.raises(BudgetExhausted):
        book.commit([LAPLACE])
    with pytest.raises(BudgetExhausted):
        book.expose("raw", iteration=3)
    assert not book.affords([Pure(1e-6)])  # 0.5 + 0.5 is the whole budget
    book.post(iteration=3)


def test_what_is_reserved_is_spent_and_can_still_be_used():
    book = in_memory(budget=PureFilter(1.0))
    book.commit([replace(LAPLACE, count=2)])
    with pytest.raises(BudgetExhausted):
        book.charge(Pure(0.1), iteration=1)
    assert book.affords([LAPLACE, LAPLACE])
    assert not book.affords([replace(LAPLACE, count=3)])
    book.charge(LAPLACE, iteration=1)
    book.charge(LAPLACE, iteration=2)
    with pytest.raises(BudgetExhausted):
        book.charge(LAPLACE, iteration=3)


def test_equal_events_of_a_schedule_are_one_reservation():
    one_by_one, at_once = in_memory(), in_memory()
    one_by_one.commit([LAPLACE, PERTURBED, LAPLACE])
    at_once.commit([replace(LAPLACE, count=2), PERTURBED])
    assert one_by_one.tally.schedule == at_once.tally.schedule
    assert len(one_by_one.tally.places) == 2
    assert not in_memory(budget=PureFilter(9.0)).affords([Unbounded("x"), Unbounded("x")])


# -- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "needed"),
    [
        ({"adjacency": "neighbours"}, "there is no default"),
        ({"mode": "random"}, "simulation, secure"),
        ({"scope": "all"}, "record"),
    ],
)
def test_a_ledger_is_not_opened_with_less_than_it_must_know(wrong, needed):
    with pytest.raises(InputError, match=needed):
        in_memory(**wrong)


def test_adjacency_has_no_default():
    with pytest.raises(TypeError, match="adjacency"):
        MemoryLedger(0, mode="secure")


def test_a_schedule_for_another_adjacency_is_refused():
    with pytest.raises(InputError, match="'add-remove'"):
        in_memory().commit([LAPLACE], "add-remove")
    with pytest.raises(InputError, match="empty"):
        in_memory().commit([])


def test_one_ledger_one_writer(tmp_path):
    book = Ledger(tmp_path, 0, **HOW)
    with pytest.raises(InputError, match="exists"):
        Ledger(tmp_path, 0, **HOW)
    with pytest.raises(InputError, match="in use"):
        Ledger.resume(tmp_path, 0, mode="secure")
    book.close()
    Ledger.resume(tmp_path, 0, mode="secure").close()


def test_what_was_sent_is_for_its_owner_alone(tmp_path):
    book = Ledger(tmp_path, 0, **HOW)
    book.charge(LAPLACE, iteration=1)
    book.store_release(1, b"model")
    mode = stat.S_IMODE(os.stat(ledger.path_of(tmp_path, 0, "replay")).st_mode)
    assert mode == 0o600


def test_costs_of_a_schedule_are_those_of_its_releases():
    one_by_one = in_memory()
    for k in range(7):
        one_by_one.charge(PERTURBED, iteration=k)
    at_once = in_memory()
    at_once.commit([replace(PERTURBED, count=7)])
    together = cost_of([replace(PERTURBED, count=7)], at_once.tally.orders, "replace")
    np.testing.assert_allclose(one_by_one.tally.spent.rdp, at_once.tally.spent.rdp, rtol=1e-9)
    assert at_once.tally.spent.pure == together.pure
