"""Noise is paid for before it is drawn, has the scale that was paid for, and is nobody else's."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import BudgetExhausted, InputError
from distadmm.privacy.accounting.events import (
    Gaussian,
    KNorm,
    Pure,
)
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger import file as ledger_module
from distadmm.privacy.ledger.file import Ledger, MemoryLedger
from distadmm.privacy.ledger.filter import PureFilter
from distadmm.privacy.noise import sources as randomness
from distadmm.privacy.noise.mechanism import GridQuery, Noise, Secure, Simulation, grid_of, source_of

PERTURBED = ObjectivePerturbation("gamma", 4, 2.0, 0.2, 0.25, 8.2, output_epsilon=1e-3)
LAPLACE = KNorm(3, 0.5, 1.0)


def simulated(nodes=(0,), seed=7, **other) -> Noise:
    books = [MemoryLedger(n, adjacency="replace", mode="simulation", **other) for n in nodes]
    return Noise(books, Simulation(seed))


def secured(**other) -> Noise:
    return Noise(MemoryLedger(0, adjacency="replace", mode="secure", **other), Secure())


# -- the order of things ------------------------------------------------------------------------------


def test_the_ledger_is_on_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    happened = []
    write, at = os.write, Secure.at
    monkeypatch.setattr(os, "write", lambda file, line: happened.append("write") or write(file, line))
    monkeypatch.setattr(ledger_module, "_sync", lambda file: happened.append("sync"))
    monkeypatch.setattr(Secure, "at", lambda self, *where: happened.append("draw") or at(self, *where))
    book = Ledger(tmp_path, 0, adjacency="replace", mode="secure")
    noise = Noise(book, Secure())
    happened.clear()
    noise.draw(LAPLACE, iteration=1)
    assert happened == ["write", "sync", "draw"]
    happened.clear()
    book.commit([replace(LAPLACE, count=2)])
    assert happened == ["write", "sync"]
    happened.clear()
    noise.draw(LAPLACE, iteration=2)
    assert happened == ["write", "draw"]


def test_nothing_is_drawn_when_the_budget_refuses(monkeypatch):
    noise = secured(budget=PureFilter(0.6))
    noise.draw(LAPLACE, iteration=1)
    monkeypatch.setattr(Secure, "at", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExhausted):
        noise.draw(LAPLACE, iteration=2)


def test_nothing_is_charged_when_the_request_is_wrong():
    noise = secured()
    before = noise.ledgers[0].content
    for event, how, what in [
        (Gaussian(2.0), {}, "sensitivity"),
        (Gaussian(2.0), {"shape": 3}, "sensitivity"),
        (LAPLACE, {"shape": 3}, "give neither"),
        (replace(LAPLACE, count=2), {}, "one by one"),
        (Pure(0.1), {}, "no noise is known"),
    ]:
        with pytest.raises(InputError, match=what):
            noise.draw(event, iteration=1, **how)
    assert noise.ledgers[0].content == before


@pytest.mark.parametrize("make", [simulated, secured])
def test_a_charge_pays_for_one_draw(make):
    noise = make()
    noise.draw(LAPLACE, iteration=1)
    spent = noise.ledgers[0].tally.spent
    with pytest.raises(RuntimeError, match="twice"):
        noise.draw(LAPLACE, iteration=1)
    assert noise.ledgers[0].tally.spent is spent
    first = noise.draw(LAPLACE, iteration=2)
    assert not np.array_equal(first, noise.draw(LAPLACE, iteration=2, query=1))


def test_what_is_paid_ahead_is_drawn_once():
    noise, charged = simulated((0, 1)), []

    def charge(events, *, iteration):
        for ledger, event in zip(noise.ledgers, events):
            if event is not None:
                charged.append(ledger.charge(event, iteration=iteration))

    noise.pay([LAPLACE, None], charge, iteration=1)
    first, spent = noise.draw(LAPLACE, iteration=1, at=0), noise.ledgers[0].tally.spent
    np.testing.assert_array_equal(first, simulated().draw(LAPLACE, iteration=1))
    for again in (
        lambda: noise.draw(LAPLACE, iteration=1),
        lambda: noise.pay([LAPLACE] * 2, charge, iteration=1),
    ):
        with pytest.raises(RuntimeError, match="twice"):
            again()
    assert len(charged) == 1
    assert noise.ledgers[0].tally.spent is spent
    noise.draw(LAPLACE, iteration=1, at=1)  # was not paid
    noise.pay([LAPLACE] * 2, charge, iteration=2)
    noise.draw(replace(LAPLACE, alpha=1.0), iteration=2)  # was not either
    assert [ledger.tally.releases for ledger in noise.ledgers] == [3, 2]


def test_output_noise_needs_a_charge_that_covers_it():
    noise = simulated()
    with pytest.raises(RuntimeError, match="does not cover"):
        noise.output(1e-8)
    noise.draw(LAPLACE, iteration=1)
    with pytest.raises(RuntimeError, match="does not cover"):
        noise.output(1e-8)
    noise.draw(PERTURBED, iteration=2)
    with pytest.raises(InputError, match="tolerance"):
        noise.output(0.0)
    assert noise.output(1e-8).shape == (4,)
    with pytest.raises(RuntimeError, match="does not cover"):
        noise.output(1e-8)


# -- secure and simulation ----------------------------------------------------------------------------


def test_modes_are_not_mixed():
    with pytest.raises(InputError, match="secure noise, the source gives simulation"):
        Noise(MemoryLedger(0, adjacency="replace", mode="secure"), Simulation(1))
    with pytest.raises(InputError, match="simulation noise, the source gives secure"):
        Noise(MemoryLedger(0, adjacency="replace", mode="simulation"), Secure())


def test_secure_noise_takes_no_seed():
    with pytest.raises(InputError, match="drop --seed"):
        source_of("secure", 0)
    with pytest.raises(InputError, match="needs --seed"):
        source_of("simulation")
    with pytest.raises(InputError, match="choose secure or simulation"):
        source_of("random", 1)
    with pytest.raises(InputError, match="seed is -1"):
        Simulation(-1)
    assert source_of("secure").mode == "secure"
    assert source_of("simulation", 3).mode == "simulation"


def test_without_randomgen_secure_noise_comes_from_the_system(monkeypatch):
    monkeypatch.setattr(randomness, "_randomgen_is_there", lambda: False)
    assert Secure().name == "os.urandom"
    with pytest.raises(InputError, match="pip install"):
        Secure("aes")
    with pytest.raises(InputError, match="choose auto"):
        Secure("mersenne")


def test_the_faster_generator_takes_over_after_the_draws_that_are_not_worth_loading_it():
    pytest.importorskip("randomgen")
    code = (
        "import sys\n"
        "import numpy\n"
        "own = set(sys.modules)\n"  # numpy 1 loads its generators at once
        "from distadmm.privacy.noise.sources import Secure, _FEW\n"
        "source = Secure()\n"
        "early = [source.at(0, 1, k).words(4).tobytes() for k in range(_FEW)]\n"
        "assert not {'randomgen', 'numpy.random'} & set(sys.modules) - own\n"
        "late = [source.at(0, 1, _FEW + k).words(4).tobytes() for k in range(_FEW)]\n"
        "assert 'randomgen' in sys.modules\n"
        "assert len({*early, *late}) == 2 * _FEW\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Secure().name == "os.urandom, after 100 draws AES-128 counter, keyed by the system"


SOURCES = ["aes", "urandom", "auto"]


@pytest.mark.parametrize("source", SOURCES)
def test_secure_noise_is_never_the_same(source):
    if source == "aes":
        pytest.importorskip("randomgen")
    drawn = [Secure(source).at(0, 1, 1).words(4).tobytes() for _ in range(50)]
    assert len(set(drawn)) == 50
    one = Secure(source)
    assert one.at(0, 1, 1).words(4).tobytes() != one.at(0, 1, 1).words(4).tobytes()


def test_secure_sources_cannot_be_copied():
    source = Secure()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="would repeat its noise"):
            copied(source)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("source", SOURCES)
def test_a_fork_does_not_draw_what_its_parent_draws(source):
    if source == "aes":
        pytest.importorskip("randomgen")
    one = Secure(source)
    one.at(0, 1, 1).words(2)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, one.at(0, 1, 2).words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 64) != one.at(0, 1, 2).words(4).tobytes()
    os.close(reading)
    os.close(writing)


def test_secure_noise_keeps_no_seed_in_the_ledger():
    noise = secured(source=Secure().name)
    noise.draw(LAPLACE, iteration=1)
    assert b"seed" not in noise.ledgers[0].content


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**64),
    nodes=st.lists(st.integers(0, 2000), min_size=2, max_size=6, unique=True),
    iteration=st.integers(0, 2**40),
)
def test_simulation_noise_belongs_to_its_node(seed, nodes, iteration):
    """The same row on one rank with all nodes, on ranks of one node, and in any order of drawing."""

    def rows(noise, iteration):
        return np.stack([noise.draw(PERTURBED, iteration=iteration, at=i) for i in range(len(nodes))])

    together = rows(simulated(nodes, seed), iteration)
    backwards = simulated(nodes[::-1], seed)
    rows(backwards, iteration + 1)
    apart = rows(backwards, iteration)
    np.testing.assert_array_equal(together, apart[::-1])
    alone = simulated(nodes[-1:], seed).draw(PERTURBED, iteration=iteration)
    np.testing.assert_array_equal(together[-1], alone)
    assert len(np.unique(together)) == together.size


def test_streams_of_other_addresses_and_seeds_do_not_meet():
    words = {
        Simulation(seed).at(node, purpose, iteration).words(8).tobytes()
        for seed in (0, 1)
        for node in range(4)
        for purpose in range(1, 4)
        for iteration in range(4)
    }
    assert len(words) == 2 * 4 * 3 * 4


def test_philox_is_the_published_one():
    """Moving the one generator about gives what a new generator at that counter gives."""
    source = Simulation(5)
    for _ in range(3):
        source.at(9, 2, 4).standard_normal(7)
    key = np.random.SeedSequence(5).generate_state(2, np.uint64)
    new = np.random.Philox(key=key, counter=np.array([0, 4, 9, 2], dtype=np.uint64))
    np.testing.assert_array_equal(source.at(9, 2, 4).words(9), new.random_raw(9))


# -- grids --------------------------------------------------------------------------------------------


def test_a_grid_release_is_a_multiple_of_the_grid_near_the_value():
    grid = GridQuery(sigma=3.0, sensitivity=1.0, dimension=50, spacing=2.0**-10)
    assert (grid.event.sigma_grid, grid.event.dimension) == (3072.0, 50)
    assert 1024 + 50**0.5 <= grid.event.sensitivity_grid <= (1024 + 50**0.5) * (1 + 1e-14)
    value = np.random.default_rng(0).normal(size=(5, 10))
    released = simulated().on_grid(value, grid, iteration=1)
    steps = released / grid.spacing
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert released.shape == value.shape
    assert 1.5 < np.std(released - value) < 5


@settings(deadline=None, max_examples=50)
@given(
    values=st.lists(st.floats(-50, 50), min_size=2, max_size=40),
    seed=st.integers(0, 1000),
    bits=st.integers(0, 30),
)
def test_rounding_moves_neighbours_apart_by_no_more_than_is_charged(values, seed, bits):
    v = np.array(values)
    step = np.random.default_rng(seed).normal(size=len(v))
    other = v + step / np.linalg.norm(step)
    spacing = 2.0**-bits
    moved = np.linalg.norm(np.rint(v / spacing) - np.rint(other / spacing))
    grid = GridQuery(sigma=1.0, sensitivity=1.0 + 1e-12, dimension=len(v), spacing=spacing)
    assert moved <= grid.event.sensitivity_grid


@pytest.mark.parametrize("sigma", [1e-8, 0.37, 1.0, 1234.5])
def test_the_grid_is_a_fine_power_of_two(sigma):
    spacing = grid_of(sigma)
    assert np.frexp(spacing)[0] == 0.5
    assert 2**20 <= sigma / spacing < 2**21


def test_bad_grids_and_values_are_refused():
    with pytest.raises(InputError, match="power of two"):
        GridQuery(1.0, 1.0, 3, 0.3)
    with pytest.raises(InputError, match="sigma"):
        grid_of(0.0)
    noise = simulated()
    grid = GridQuery(1.0, 1.0, 3, 2.0**-20)
    for bad in (np.array([1.0, np.nan, 2.0]), np.array([1e300, 0, 0])):
        with pytest.raises(InputError, match="clip it first"):
            noise.on_grid(bad, grid, iteration=1)
    with pytest.raises(InputError, match="2 values"):
        noise.on_grid(np.zeros(2), grid, iteration=1)
    assert noise.ledgers[0].tally.releases == 0


def test_core_noise_needs_nothing_but_numpy():
    """randomgen and scipy are for secure mode; importing the module must not need them."""
    code = (
        "import sys; import distadmm.privacy.noise.mechanism as m; m.Simulation(1); "
        "print(sorted({'scipy', 'randomgen', 'mpi4py'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
