"""Secure aggregation: the sum to the bit, nothing in a single message, and a stop when one is missing."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from distadmm import sharing
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.sharing.masks import Masked, agree, masked, unmasked
from distadmm.ranks.star import Star


@settings(deadline=None, max_examples=10)
@given(st.integers(2, 6), st.integers(0, 10_000), st.integers(0, 2**60))
def test_the_sum_is_that_of_the_fixed_point_vectors_to_the_bit(parties, seed, t):
    rng = np.random.default_rng(seed)
    members = agree(Star(parties=parties))
    values = {m: rng.integers(-(2**59), 2**59, 17) for m in members}
    packets = {m: masked(values[m].view(np.uint64), members[m], t) for m in members}
    exact = [sum(int(values[m][i]) for m in members) for i in range(17)]
    assert unmasked(packets, members, 17).tolist() == [float(value) for value in exact]


@pytest.mark.parametrize("curve", [True, False])
def test_both_ends_of_a_pair_agree_on_a_key_that_nobody_else_has(curve, monkeypatch):
    if not curve:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    members = agree(Star(parties=4))
    for m, member in members.items():
        assert sorted(member.keys) == [k for k in (1, 2, 3, 4) if k != m]
        for k in member.keys:
            assert member.keys[k] == members[k].keys[m]
    assert len({key for member in members.values() for key in member.keys.values()}) == 6
    assert agree(Star(parties=4))[1].keys[2] != members[1].keys[2]


def test_a_single_message_says_nothing_and_changes_every_round():
    collector = Masked(Star(parties=3), 20_000)
    vector = collector.fixed(np.full(20_000, 1.5))
    sent = [masked(vector, collector.members[2], t) for t in (0, 1)]
    for packet in sent:
        assert kstest(packet / 2.0**64, "uniform").pvalue > 1e-6
    assert not (sent[0] == sent[1]).any()
    difference = (sent[0] - sent[1]) / 2.0**64
    assert kstest(difference, "uniform").pvalue > 1e-6
    with pytest.raises(InputError, match="never entered twice"):
        masked(vector, collector.members[2], 1)


def test_a_party_that_drops_out_stops_the_run():
    collector = Masked(Star(parties=3), 4)
    vector = collector.fixed(np.ones(4))
    packets = {m: masked(vector, collector.members[m], 0) for m in (1, 3)}
    with pytest.raises(InputError, match="party 2 dropped out"):
        unmasked(packets, (1, 2, 3), 4)


def test_a_value_that_would_wrap_is_refused():
    collector = Masked(Star(parties=3), 2)
    for value in (1e9, np.nan, np.inf):
        with pytest.raises(InputError, match="fixed point"):
            collector.fixed(np.array([0.0, value]))


def test_masks_change_the_model_by_the_fixed_point_only(tmp_path, capsys):
    common = ["--parties", "3", "--theta", "bound", "--iterations", "20"]
    assert sharing.main([*common, "--out", str(tmp_path / "clear")]) == 0
    for name in ("one", "two"):
        assert sharing.main([*common, "--secure-aggregation", "--out", str(tmp_path / name)]) == 0
    clear, one, two = (
        read_npz(tmp_path / name / "models" / "party-2.npz")["x"] for name in ("clear", "one", "two")
    )
    np.testing.assert_allclose(one, clear, atol=1e-8)
    assert one.tobytes() == two.tobytes()  # other keys, other masks, the same sum
    assert not np.array_equal(one, clear)
    assert "no single one" in capsys.readouterr().out


def test_masks_are_honest_about_two_parties_and_about_noise(tmp_path, capsys):
    arguments = [
        "--secure-aggregation",
        "--mechanism",
        "s2",
        "--epsilon",
        "4",
        "--row-norm",
        "3",
        "--rounds",
        "2",
    ]
    assert sharing.main([*arguments, "--out", str(tmp_path / "r")]) == 0
    text = capsys.readouterr().out
    assert "no protection from the other" in text
    assert "save no noise" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--form", "gauss-seidel"], "by itself"),
        (["--form", "averaged"], "by itself"),
        (["--theta", "power"], "--theta power"),
        (["--algorithm", "sgd"], "--algorithm admm"),
        (["--epsilon", "1", "--row-norm", "3"], "is for vectors"),
    ],
)
def test_what_masks_cannot_go_with(arguments, expected, tmp_path, capsys):
    assert sharing.main(["--secure-aggregation", *arguments, "--out", str(tmp_path / "r")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert expected in error
    assert not list(tmp_path.iterdir())
