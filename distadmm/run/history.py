"""`history.csv`: one line a measurement, written whole before every checkpoint and at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distadmm.files import write_csv
from distadmm.run.observe import COLUMNS, Measurement


def write(folder: Path, history: Sequence[Measurement], began: int = 0) -> None:
    """Write `history` after the lines that an earlier part of the run left, up to where this part began."""
    path = folder / "history.csv"
    lines = _earlier(path, began) + [[_cell(value) for value in line] for line in history]
    if lines or path.is_file():
        write_csv(path, COLUMNS, lines)


def gap_before(folder: Path | None, iteration: int) -> float:
    """The gap that an earlier part of the run measured at `iteration`; NaN when none did."""
    if folder is None:
        return math.nan
    column = COLUMNS.index("gap")
    lines = [line for line in _earlier(folder / "history.csv", iteration) if int(line[0]) == iteration]
    return float(lines[-1][column] or "nan") if lines else math.nan


def _earlier(path: Path, began: int) -> list[list[Any]]:
    if not path.is_file():
        return []
    import csv

    with open(path, newline="") as file:
        return [line for line in list(csv.reader(file))[1:] if int(line[0]) <= began]


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return value
