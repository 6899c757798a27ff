"""Frozen dataclasses whose methods are written once instead of once for every class.

`dataclass(frozen=True)` composes, compiles and keeps six methods for each class it meets, which takes about half a
millisecond.  What every rank loads before its first iteration holds dozens of such classes, and twenty ranks may
share two cores.  A `struct` has the same fields, the same behaviour and the same place in `dataclasses` (`fields`,
`replace` and `asdict` take it), and shares its methods with all others.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """A frozen dataclass, compared and hashed by the values of its fields; only structs may inherit from it."""
    return _assembled(cls, (_init, _repr, _eq, _hash, _setattr, _delattr))


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable_struct(cls: type[T]) -> type[T]:
    """A dataclass that may change, so it is compared by identity."""
    return _assembled(cls, (_init, _repr))


def _assembled(cls: Any, methods: tuple[Callable[..., Any], ...]) -> Any:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, `dataclass` works out the signature for it
    made = dataclass(init=False, repr=False, eq=False)(cls)
    made._struct_fields = {f.name: _default(f) for f in fields(made)}
    made._struct_checks = tuple((f.name, f.metadata["check"]) for f in fields(made) if "check" in f.metadata)
    made._struct_values = staticmethod(_values(tuple(made._struct_fields)))
    made._struct_text = f"{made.__qualname__}({', '.join(f'{name}=%r' for name in made._struct_fields)})"
    made.__signature__ = _Signature()
    for method in methods:
        name = f"__{method.__name__[1:]}__"
        if name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _default(of: Field) -> Callable[[], Any] | None:
    """What makes the field's value where none is given; None: it must be given."""
    if of.default_factory is not MISSING:
        return of.default_factory
    default = of.default
    return None if default is MISSING else lambda: default


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _init(self: Any, *args: Any, **given: Any) -> None:
    defaults, name = self._struct_fields, type(self).__name__
    if len(args) > len(defaults):
        raise TypeError(f"{name} has {len(defaults)} fields, but {len(args)} values were given")
    values = dict(zip(defaults, args))
    twice = values.keys() & given.keys()
    unknown = given.keys() - defaults.keys()
    if twice or unknown:
        what = "more than one value for" if twice else "no field"
        raise TypeError(f"{name} has {what} {', '.join(sorted(twice or unknown))}")
    place = self.__dict__
    for key, default in defaults.items():
        if key in values:
            place[key] = values[key]
        elif key in given:
            place[key] = given[key]
        elif default is not None:
            place[key] = default()
        else:
            raise TypeError(f"{name} needs a value for {key}")
    for name, check in self._struct_checks:  # the limits of flags
        check(name, place[name])
    checked = getattr(self, "__post_init__", None)
    if checked is not None:
        checked()


def text_of(value: Any) -> str:
    """`repr(value)`, refused where other values have it too: by this text things are told apart."""
    text = repr(value)
    if "array(" in text or " at 0x" in text:
        raise RuntimeError(
            "an array's text leaves out digits and entries, an object's all it holds: give its hash"
        )
    return text


def _repr(self: Any) -> str:
    return str(self._struct_text % self._struct_values(self))


def _eq(self: Any, other: Any) -> bool:
    if type(other) is not type(self):
        return NotImplemented
    return bool(self._struct_values(self) == self._struct_values(other))


def _hash(self: Any) -> int:
    return hash(self._struct_values(self))


def _setattr(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Signature:
    """The constructor's signature, for help() and editors, made when somebody asks."""

    def __get__(self, instance: Any, owner: type) -> Any:
        asked = []
        for f in fields(owner):  # type: ignore[arg-type]
            made = f.default_factory is not MISSING
            default = ... if made else Parameter.empty if f.default is MISSING else f.default
            kind = Parameter.POSITIONAL_OR_KEYWORD
            asked.append(Parameter(f.name, kind, default=default, annotation=f.type))
        return Signature(asked)
