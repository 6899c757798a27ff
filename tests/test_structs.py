"""A struct behaves as the frozen dataclass of the same fields does."""

import copy
import dataclasses
import inspect
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.flags import build, flag
from distadmm.structs import mutable_struct, struct, text_of


@struct
class Shared:
    """A point."""

    x: int
    y: float = 2.0
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("x is below zero")


@dataclasses.dataclass(frozen=True)
class Generated:
    """A point."""

    x: int
    y: float = 2.0
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("x is below zero")


@struct
class Wider(Shared):
    z: int = 3


@struct
class Keyed:
    name: str
    count: int = 1


@mutable_struct
class Counter:
    n: int = 0


values = st.tuples(st.integers(0, 9), st.floats(0, 1), st.lists(st.integers(), max_size=2))


@settings(deadline=None, max_examples=50)
@given(values, values)
def test_it_compares_shows_and_copies_as_a_dataclass(a, b):
    ours, theirs = [Shared(*v) for v in (a, b)], [Generated(*v) for v in (a, b)]
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])
    assert repr(ours[0]).replace("Shared", "Generated") == repr(theirs[0])
    assert dataclasses.asdict(ours[0]) == dataclasses.asdict(theirs[0])
    assert dataclasses.replace(ours[0], x=3).y == ours[0].y
    assert pickle.loads(pickle.dumps(ours[0])) == copy.deepcopy(ours[0]) == ours[0]


def test_defaults_are_made_anew_for_each():
    assert Shared(1).tags is not Shared(1).tags
    assert Shared(1) == Shared(x=1, y=2.0, tags=[])
    assert Wider(1, z=5) == Wider(1, 2.0, [], 5)
    assert Wider(1) != Shared(1)


def test_equal_ones_have_equal_hashes():
    assert len({Keyed("a"), Keyed("a", 1), Keyed("a", 2), Keyed("b")}) == 3


@pytest.mark.parametrize(
    ("arguments", "keywords", "said"),
    [
        ((), {}, "needs a value for x"),
        ((1, 2, 3, 4), {}, "has 3 fields, but 4 values"),
        ((1,), {"x": 2}, "more than one value for x"),
        ((1,), {"w": 2}, "no field w"),
    ],
)
def test_wrong_arguments_are_named(arguments, keywords, said):
    with pytest.raises(TypeError, match=said):
        Shared(*arguments, **keywords)
    with pytest.raises(TypeError):
        Generated(*arguments, **keywords)


def test_it_is_frozen_and_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Shared(1).x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Shared(1).x
    with pytest.raises(ValueError, match="below zero"):
        Shared(-1)


def test_a_mutable_one_changes_and_is_itself_alone():
    one = Counter()
    one.n += 1
    assert one.n == 1
    assert one != Counter(1)
    assert one == one


def test_its_signature_is_the_dataclass_one():
    ours = inspect.signature(Shared).parameters
    theirs = inspect.signature(Generated).parameters
    assert [(p.name, p.kind) for p in ours.values()] == [(p.name, p.kind) for p in theirs.values()]
    assert ours["y"].default == theirs["y"].default


@struct
class Flags:
    rate: float = flag(0.5, help="", above=0)
    shares: tuple[float, ...] = flag((), help="", at_least=0, at_most=1)
    size: int | None = flag(None, help="", at_least=2)
    last: float = flag(0.0, help="", below=1)
    word: str | None = flag(None, help="", choices=("a", "b"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 0.0}, "--rate is 0.0; needed: a finite number above zero"),
        ({"rate": float("nan")}, "--rate is nan; needed: a finite number above zero"),
        ({"rate": float("inf")}, "--rate is inf; needed: a finite number above zero"),
        ({"shares": (0.0, 1.0, 1.5)}, "--shares is 1.5; needed: from 0 to at most 1"),
        ({"size": 1}, "--size is 1; needed: 2 or more"),
        ({"last": 1.0}, "--last is 1.0; needed: below 1"),
        ({"word": "c"}, "--word is 'c'; choose one of: a, b"),
    ],
)
def test_the_limits_of_a_flag_hold_from_the_command_line_and_from_python(values, said) -> None:
    for make in (
        lambda: Flags(**values),
        lambda: build([Flags], values),
        lambda: dataclasses.replace(Flags(), **values),
    ):
        with pytest.raises(InputError) as refused:
            make()
        assert str(refused.value) == said


def test_a_text_that_other_values_have_too_tells_nothing_apart():
    assert text_of((Shared(1, 0.1), "x")) == "(Shared(x=1, y=0.1, tags=[]), 'x')"
    for value in (np.linspace(0, 1, 3), Shared(1, tags=[np.zeros(9)]), object(), Shared(1, tags=[object()])):
        with pytest.raises(RuntimeError, match="give its hash"):
            text_of(value)
