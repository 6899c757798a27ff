"""A mapping as an object: what it draws, what it says it leaks, and what it is after a trip to a file."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import Mapping
from distadmm.errors import InputError
from distadmm.privacy.accounting.events import Leakage


def random_mapping(seed: int, n: int = 4, k: int = 3) -> Mapping:
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.ones(2), size=n).T
    return Mapping(
        rng.dirichlet(np.ones(k), size=n),
        tuple(f"v{i}" for i in range(n)),
        rng.dirichlet(np.ones(n)),
        "col",
        posterior,
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_a_file_gives_back_the_same_bits(tmp_path_factory, seed, n, k):
    mapping, folder = random_mapping(seed, n, k), tmp_path_factory.mktemp("m")
    for suffix in ("npz", "csv"):
        mapping.save(folder / f"m.{suffix}")
        again = Mapping.load(folder / f"m.{suffix}")
        assert (again.matrix == mapping.matrix).all()
        assert (again.prior == mapping.prior).all()
        assert again.values == mapping.values
        assert np.abs(again.matrix.sum(1) - 1).max() <= 1e-12
    assert (Mapping.load(folder / "m.npz").posterior == mapping.posterior).all()
    assert Mapping.load(folder / "m.npz").column == "col"


def test_symbols_come_with_their_probabilities():
    mapping, n = random_mapping(1), 40_000
    column = np.arange(n) % 4
    symbols = mapping.apply(column, np.random.default_rng(2))
    assert symbols.shape == (n,)
    for y in range(4):
        counted = np.bincount(symbols[column == y], minlength=3) / (n / 4)
        error = np.sqrt(mapping.matrix[y] * (1 - mapping.matrix[y]) / (n / 4))
        assert (np.abs(counted - mapping.matrix[y]) < 5 * error + 1e-12).all()


def test_codes_and_names_mean_the_same_rows():
    mapping = random_mapping(3)
    codes = np.array([0, 3, 1, 1, 2, 0])
    names = [mapping.values[code] for code in codes]
    drawn = [
        mapping.apply(column, np.random.default_rng(5)) for column in (codes, names, np.array(names, object))
    ]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] == drawn[2]).all()


def test_a_certain_mapping_draws_without_chance():
    mapping = Mapping(np.eye(5)[[3, 1, 4, 0, 2]])
    assert (mapping.apply(np.arange(5), np.random.default_rng(0)) == [3, 1, 4, 0, 2]).all()


def test_symbols_of_probability_zero_are_never_drawn():
    mapping = Mapping(np.array([[0.0, 1.0, 0.0]]))
    edges = type("Edges", (), {"random": lambda self, n: np.tile([0.0, 1 - 2**-53], n // 2)})()
    assert (mapping.apply(np.zeros(6, int), edges) == 1).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_the_leakage_report_agrees_with_the_definitions(seed):
    mapping = random_mapping(seed)
    P, p = mapping.matrix, mapping.prior
    a = p @ P
    nats = sum(p[y] * P[y, u] * np.log(P[y, u] / a[u]) for y in range(4) for u in range(3))
    s = mapping.posterior @ p
    joint = (mapping.posterior * p) @ P
    inference = sum(joint[i, u] * np.log(joint[i, u] / (s[i] * a[u])) for i in range(2) for u in range(3))
    found = mapping.leakage()
    assert found.nats == pytest.approx(nats, abs=1e-12)
    assert found.inference == pytest.approx(inference, abs=1e-12)
    # Each measure bounds the next: on average over P_Y, over any guess, over any pair of values.
    assert found.nats <= found.maximal + 1e-12
    assert found.maximal <= found.local_epsilon + 1e-12
    assert found.nats <= found.entropy + 1e-12
    assert found.inference <= found.inference_before + 1e-12


def test_the_extremes_of_leakage():
    prior = np.array([0.5, 0.3, 0.2])
    identity = Mapping(np.eye(3), prior=prior).leakage()
    assert identity.nats == pytest.approx(identity.entropy)
    assert identity.maximal == pytest.approx(np.log(3))
    assert identity.local_epsilon == np.inf
    constant = Mapping(np.full((3, 2), 0.5), prior=prior).leakage()
    assert (constant.nats, constant.maximal, constant.local_epsilon) == pytest.approx((0, 0, 0), abs=1e-15)
    response = Mapping(np.where(np.eye(2), 0.75, 0.25)).leakage()  # randomised response
    assert response.local_epsilon == pytest.approx(np.log(3))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_compacting_is_postprocessing(seed):
    mapping = random_mapping(seed, 5, 4)
    with_unused = Mapping(
        np.hstack([mapping.matrix * (1 - 3e-12), np.full((5, 3), 1e-12)]), mapping.values, mapping.prior
    )
    compact = with_unused.compact()
    assert compact.n_outputs == 4
    a = compact.prior @ compact.matrix
    assert (np.diff(a) <= 0).all()
    assert np.abs(compact.matrix.sum(1) - 1).max() <= 1e-12
    assert compact.leakage().nats <= with_unused.leakage().nats + 1e-15
    assert compact.leakage().nats == pytest.approx(mapping.leakage().nats, abs=1e-9)


def test_symbols_drawn_by_a_known_seed_say_more_than_their_nats():
    """Why the ledger says to whom: randomised response leaks 0.13 nats; beside its seed, ln 2 in half the rows."""
    mapping = Mapping(np.where(np.eye(2), 0.75, 0.25))
    of_zero, of_one = (mapping.apply(np.full(4000, y), np.random.default_rng(5)) for y in (0, 1))
    known = np.mean(of_zero != of_one) * np.log(2)  # there the symbol gives the value away
    assert known > 2.5 * mapping.leakage().nats
    assert "--seed" in mapping.release("c", seeded=True).what
    assert "--seed" not in mapping.release("c").what


def test_the_event_for_the_ledger_is_information_not_privacy():
    mapping = random_mapping(7)
    event = Leakage(*mapping.release("education"))
    assert event.nats == mapping.leakage().nats
    assert "education" in event.what
    assert event.to_json()["mech"] == "leakage"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([[0.5, 0.4]],), "sums to 0.9"),
        (([[1.2, -0.2]],), "negative"),
        (([[np.nan, 1.0]],), "NaN"),
        (([0.5, 0.5],), "shape"),
        (([[1.0]], ("a", "b")), "2 values"),
        (([[1.0], [1.0]], ("a", "a")), "same value"),
        (([[1.0], [1.0]], (), [0.2, 0.2]), "sums to 0.4"),
        (([[1.0], [1.0]], (), [1.0]), "shape"),
    ],
)
def test_what_is_not_a_mapping_is_refused_in_one_line(arguments, told):
    with pytest.raises(InputError, match=told) as caught:
        Mapping(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (["v0", "elsewhere"], "elsewhere"),
        ([0, 4], "code"),
        ([-1], "code"),
        ([0.5], "float64"),
        ([[0]], "shape"),
    ],
)
def test_columns_it_does_not_know_are_refused(column, told):
    with pytest.raises(InputError, match=told):
        random_mapping(0).apply(column, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("m.csv", "value,u0\na,0.5\n", "sums to 0.5"),
        ("m.csv", "value,u0\na,much\n", "much"),
        ("m.csv", "value,u0,u1\na,1\n", "cells"),
        ("m.csv", "u0,u1\n0,1\n", "needed the columns"),
        ("m.csv", "value,u0\n", "no rows"),
        ("m.npz", "not a file of arrays", "m.npz"),
        ("m.txt", "", "neither"),
    ],
)
def test_files_that_hold_no_mapping(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        Mapping.load(tmp_path / name)


def test_files_that_are_not_there(tmp_path):
    for name in ("absent.npz", "absent.csv"):
        with pytest.raises(InputError, match="absent"):
            Mapping.load(tmp_path / name)
    with pytest.raises(InputError, match="neither"):
        random_mapping(0).save(tmp_path / "m.json")


def test_a_csv_without_a_prior_is_uniform(tmp_path):
    (tmp_path / "m.csv").write_text("value,u0,u1\nyes,0.75,0.25\nno,0.25,0.75\n")
    mapping = Mapping.load(tmp_path / "m.csv")
    assert (mapping.prior == 0.5).all()
    assert mapping.values == ("yes", "no")
