"""From what a file calls the classes to -1/+1, to class numbers, or to real targets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distadmm.data.table import Array
from distadmm.errors import InputError, require

TASKS = ("binary", "multiclass", "regression")
_FAMILIAR = ((-1.0, 1.0), (0.0, 1.0))  # these need no look at the column as a whole


def _numbers(values: Sequence[Any] | Array) -> Array | None:
    try:
        return np.asarray(values, dtype=float)
    except ValueError:
        return None


def shown(values: Sequence[Any], limit: int = 5) -> str:
    texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in values[:limit]]
    return ", ".join(texts) + (", ..." if len(values) > limit else "")


def _distinct(values: Array, where: str, line: Any) -> list[Any]:
    numbers = _numbers(values)
    if numbers is not None:
        return [float(v) for v in np.unique(numbers)]
    _refuse_empty(values, where, line)
    return sorted({str(v).strip() for v in values})


def _refuse_empty(values: Array, where: str, line: Any) -> None:
    empty = [i for i, value in enumerate(values) if not str(value).strip()]
    if empty:
        others = f", as {len(empty) - 1} more are" * (len(empty) > 1)
        said = f", {line(empty[0])}: the cell is empty{others}" if line else " has an empty cell"
        raise InputError(f"{where}{said}; leave out rows without a target, or fill it in")


def conventional(values: Array, task: str, where: str, line: Any = None) -> Array:
    """The target cells with -1 for 0, where no class may be learnt from them: 1 is positive, -1 or 0 negative.

    Neither a private run nor a node that sees only its own file takes the classes from the rows: with another
    record, or at another node, they would be others.
    """
    require(
        task == "binary", f"{where}: the classes are not taken from these rows; state them: --labels A,B,C"
    )
    found = _distinct(values, where, line)
    require(
        any(set(found) <= set(pair) for pair in _FAMILIAR),
        f"{where} holds {shown(found)}; what two classes are called is not learnt from private rows or from one "
        "node's file: write -1 and 1 (or 0 and 1), or give --labels NEGATIVE,POSITIVE",
    )
    return np.where(np.asarray(values, dtype=float) == 1.0, 1.0, -1.0)


def find_classes(values: Array, task: str, where: str, count: int, line: Any = None) -> tuple[Any, ...]:
    """The classes of the target of every one of `count` rows in the order of y; empty for regression."""
    if task == "regression":
        return ()
    found = _distinct(values, where, line)
    if task == "binary":
        for pair in _FAMILIAR:
            if set(found) == set(pair):
                return pair
    if len(found) < 2:
        needed = "two classes" if task == "binary" else "two classes or more"
        raise InputError(f"{where} holds one class only ({shown(found)}); needed: {needed}; check --target")
    if task == "binary":
        if len(found) > 2:
            raise InputError(
                f"{where} holds {len(found)} distinct values ({shown(found)}); a binary target has two: "
                "check --target, or choose a loss for several classes (--loss softmax, radmm alone) or for numbers "
                "(--loss squared)"
            )
        return tuple(found)
    if len(found) > max(100, count // 10):
        raise InputError(
            f"{where} holds {len(found)} distinct values in {count} rows ({shown(found)}); these are "
            "no classes: check --target, or give --loss squared"
        )
    return tuple(found)


def given_classes(labels: Sequence[str], task: str) -> tuple[Any, ...]:
    """The classes as the user lists them with --labels."""
    if task == "regression":
        raise InputError("--labels is for classes; a regression target has none; leave it out")
    numbers = _numbers(list(labels))
    classes = tuple(labels) if numbers is None else tuple(float(v) for v in numbers)
    if len(set(classes)) < len(classes) or len(classes) < 2 or (task == "binary" and len(classes) != 2):
        needed = "two different labels" if task == "binary" else "two or more different labels"
        raise InputError(f"--labels is {','.join(labels)}; needed: {needed}, as in --labels no,yes")
    return classes


def to_targets(values: Array, classes: tuple[Any, ...], task: str, where: str, line: Any = None) -> Array:
    """y: -1/+1, class numbers 0, 1, ..., or the numbers themselves; `line(i)` says where row i stands."""
    place = line or (lambda i: f"row {i + 1}")
    numbers = _numbers(values)
    if numbers is None:
        _refuse_empty(values, where, place)
    if task == "regression":
        if numbers is None:
            bad = next(i for i, v in enumerate(values) if _numbers([v]) is None)
            raise InputError(
                f"{where}, {place(bad)}: {values[bad]!r} is not a number, as a regression target is; "
                "check --target"
            )
        _refuse_infinite(numbers, where, place)
        return numbers
    if classes and isinstance(classes[0], str):
        truths = {"0": "False", "1": "True"} if {*classes} == {"False", "True"} else {}  # of a DataFrame
        values = np.array([truths.get(text, text) for text in (str(v).strip() for v in values)], dtype=object)
    elif numbers is not None:
        _refuse_infinite(numbers, where, place)
        values = numbers
    else:  # texts among numbers
        values = np.array(
            [value if _numbers([value]) is None else float(value) for value in values], dtype=object
        )
    y = np.full(len(values), -1, dtype=np.int64)
    for number, name in enumerate(classes):
        y[values == name] = number
    if (y < 0).any():
        bad = int(np.argmax(y < 0))
        found = repr(values[bad]) if isinstance(values[bad], str) else shown([values[bad]])
        raise InputError(
            f"{where}, {place(bad)}: {found} is none of the classes {shown(classes)}; "
            "mend the file, or give --labels"
        )
    return 2.0 * y - 1.0 if task == "binary" else y


def _refuse_infinite(numbers: Array, where: str, place: Any) -> None:
    if not np.isfinite(numbers).all():
        bad = int(np.argmin(np.isfinite(numbers)))
        raise InputError(f"{where}, {place(bad)}: the target is {numbers[bad]}; remove or fill in that row")
