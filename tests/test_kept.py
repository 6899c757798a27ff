"""Prices that an earlier run worked out: the same to the bit, never of other code, never of a damaged file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from distadmm.methods.consensus import sizing
from distadmm.privacy.accounting import kept
from distadmm.privacy.accounting.kept import Kept
from distadmm.radmm import PROGRAMME, configure
from distadmm.ranks.world import World

PRIVATE = {
    "epsilon": 2.0,
    "adjacency": "replace",
    "iterations": 4,
    "algorithm": "radmm",
    "topology": "ring:3",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(kept.ENVIRONMENT, str(tmp_path / "prices"))
    return tmp_path / "prices"


def test_what_is_kept_is_found_to_the_bit() -> None:
    prices = {(1.0, 2.0): 0.1 + 0.2, "inf": math.inf, 3: (np.array([math.pi, 5e-324]), 1)}
    Kept("price", 1e-5).keep(prices)
    assert Kept("price", 1e-5).find([*prices, 4]) == {**prices, 3: ((math.pi, 5e-324), 1)}
    assert not Kept("price", 1e-6).find(prices)
    assert not Kept("another", 1e-5).find(prices)


def test_a_price_of_other_code_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("price").keep({1: 2.0})
    monkeypatch.setattr(kept, "_made_by", lambda: ("other code",))
    assert not Kept("price").find([1])


@pytest.mark.parametrize("damage", [b"", b"0.5\n", b"[" * 5000, b"\xff\xfe", None])
def test_a_damaged_price_is_worked_out_anew(folder: Path, damage: bytes | None) -> None:
    Kept("price").keep({1: 2.0})
    (file,) = folder.iterdir()
    content = file.read_bytes()
    file.write_bytes(content.replace(b"2.0", b"1.0") if damage is None else damage)
    assert Kept("price").one(1, lambda item: 2.0 * item) == 2.0
    assert file.read_bytes() == content


def test_the_price_of_something_else_is_not_believed(folder: Path) -> None:
    """A file that was renamed, by whatever restored or mixed folders."""
    Kept("price").keep({1: 2.0})
    (of_one,) = folder.iterdir()
    Kept("price").keep({2: 4.0})
    (of_two,) = set(folder.iterdir()) - {of_one}
    of_two.write_bytes(of_one.read_bytes())
    assert Kept("price").find([1, 2]) == {1: 2.0}


def test_what_another_user_wrote_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("price").keep({1: 2.0})
    monkeypatch.setattr(kept.os, "geteuid", lambda: 1 + Path(__file__).stat().st_uid + 2**16)
    assert not Kept("price").find([1])


def test_what_another_machine_wrote_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that was handed over: its files may say of any noise that it is enough."""
    Kept("price").keep({1: 2.0})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert not Kept("price").find([1])
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))  # no place for a key
    assert Kept("price").one(1, lambda item: 3.0 * item) == 3.0


def test_without_a_place_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("off", str(tmp_path / "file")):
        monkeypatch.setenv(kept.ENVIRONMENT, place)
        Kept("price").keep({1: 2.0})
        assert not Kept("price").find([1])


def test_the_oldest_half_goes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(kept, "_MOST", 8)
    for item in range(20):
        Kept("price").keep({item: float(item)})
        assert len(list(folder.iterdir())) <= 8
    assert Kept("price").find([19]) == {19: 19.0}


def test_known_results_are_not_worked_out_again() -> None:
    asked: list[int] = []

    def square(item: int) -> int:
        asked.append(item)
        return item * item

    first = World().each_once(square, [1, 2, 1], Kept("square"))
    second = World().each_once(square, [3, 2, 1], Kept("square"))
    assert (first, second, asked) == ({1: 1, 2: 4}, {3: 9, 2: 4, 1: 1}, [1, 2, 3])
    assert list(second) == [3, 2, 1]


def test_noise_of_kept_prices_is_that_of_fresh_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def alphas() -> np.ndarray:
        plan = PROGRAMME.price(PROGRAMME.prepare(configure(**PRIVATE), World()))
        assert plan is not None
        return plan.recipe.alpha

    first = alphas()
    monkeypatch.setattr(sizing, "_alpha", None)  # asked for nothing that is known
    np.testing.assert_array_equal(alphas(), first)
    monkeypatch.undo()
    monkeypatch.setenv(kept.ENVIRONMENT, "off")
    np.testing.assert_array_equal(alphas(), first)
