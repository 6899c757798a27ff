"""`history.csv`: one line a measurement, written whole before every checkpoint and at the end."""

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distadmm.errors import told
from distadmm.files import write_csv

FORMER = {"mean_model_gap": "gap"}  # what columns were called in 0.1


def write(
    folder: Path, columns: Sequence[str], history: Sequence[Any], began: int = 0, *, sync: bool = False
) -> None:
    """Write `history` after the lines that an earlier part of the run left, up to where this part began."""
    path = folder / "history.csv"
    lines = _earlier(path, began, columns) + [[_cell(value) for value in line] for line in history]
    if lines or path.is_file():
        write_csv(path, columns, lines, sync=sync)


def earlier(folder: Path | None, column: str, iteration: int) -> float:
    """What an earlier part of the run measured at `iteration`; NaN when nothing was."""
    if folder is None or not (folder / "history.csv").is_file():
        return math.nan
    lines = _lines(folder / "history.csv")
    found = [line for line in lines if int(line["iteration"]) == iteration]
    return float(_named(found[-1], column) or "nan") if found else math.nan


def require_readable(folder: Path) -> None:
    if (folder / "history.csv").is_file():
        _lines(folder / "history.csv")


def _earlier(path: Path, began: int, columns: Sequence[str]) -> list[list[Any]]:
    lines = _lines(path) if path.is_file() else []
    return [[_named(line, name) for name in columns] for line in lines if int(line[columns[0]]) <= began]


def _named(line: dict[str, str], column: str) -> str:
    return line.get(column) or line.get(FORMER.get(column, ""), "")


def read(folder: Path, kind: Any) -> list[Any]:
    """The lines of a run that is over, as they were measured."""
    path = folder / "history.csv"
    return (
        [kind(*(_value(_named(line, name)) for name in kind._fields)) for line in _lines(path)]
        if path.is_file()
        else []
    )


def _value(cell: str) -> Any:
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(cell or "nan")
    return cell


def _lines(path: Path) -> list[dict[str, str]]:
    import csv

    with told(
        f"{path} is not a history written by distadmm (REASON); restore it, or move it away",
        *(OSError, ValueError, TypeError, csv.Error),
    ):
        with open(path, newline="") as file:
            lines = list(csv.DictReader(file))
        for line in lines:
            int(line.get("iteration", ""))
    return lines


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return value
