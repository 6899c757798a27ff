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
    before = [line for line in written(folder) if int(line[columns[0]]) <= began]
    lines = [[_named(line, name) for name in columns] for line in before]
    lines += [[_cell(value) for value in line] for line in history]
    if lines or (folder / "history.csv").is_file():
        write_csv(folder / "history.csv", columns, lines, sync=sync)


def earlier(folder: Path | None, column: str, iteration: int) -> float:
    """What an earlier part of the run measured at `iteration`; NaN when nothing was."""
    found = [line for line in written(folder) if int(line["iteration"]) == iteration] if folder else []
    return float(_named(found[-1], column) or "nan") if found else math.nan


def _named(line: dict[str, str], column: str) -> str:
    return line.get(column) or line.get(FORMER.get(column, ""), "")


def read(folder: Path, kind: Any) -> list[Any]:
    """The lines of a run that is over, as they were measured."""
    return [kind(*(_value(_named(line, name)) for name in kind._fields)) for line in written(folder)]


def _value(cell: str) -> Any:
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(cell or "nan")
    return cell


def written(folder: Path) -> list[dict[str, str]]:
    """The lines as they stand, none where there is no file; refused where it is no history."""
    import csv

    path = folder / "history.csv"
    if not path.is_file():
        return []
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
