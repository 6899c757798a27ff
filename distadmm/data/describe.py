"""A schema proposed from a sample of rows that somebody states to be public, as the text of its TOML file.

From private rows nothing may be proposed: with one record more the largest age, or the list of jobs, is another.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from distadmm.data.schema import MARKS, MISSING
from distadmm.data.session import cell_file
from distadmm.errors import require

CATEGORIES = 50  # of a text column; more are free text, or names


def propose(path: str | Path, target: str | None = None) -> str:
    """Bounds of numbers, domains of texts, what missing cells may stand for; to be read, and mended, by people."""
    file, left = cell_file(Path(path), target=target), []
    columns = file.texts()
    gone = [mark for mark in MARKS if any(mark in cells for cells in columns.values())]
    lines, said = [f"target = {_text(str(file.target))}"], []
    classes = _classes(set(columns.pop(str(file.target))) - {"", *gone})
    if classes:
        lines.append(f"labels = {_list(classes)}  # negative, positive")
    for name, cells in columns.items():
        there = [cell for cell in cells if cell and cell not in gone]
        found = _column(name, there, lost=len(there) < len(cells))
        if found is None:
            left.append(name)
        else:
            said.append(f"{_text(name)} = {found}")
    if gone:
        lines.append(f"missing = {_list(gone)}  # read as empty cells")
    if left:
        lines.append(f"ignore = {_list(left)}  # one value only, or more than {CATEGORIES} texts")
    require(said, f"{path} has no column but the target that a schema can describe: {', '.join(left)}")
    head = f"# Proposed from {file.n_rows} rows stated to be public; check each line against what is known anyway."
    return "\n".join([head, *lines, "", "[columns]", *said]) + "\n"


def _column(name: str, cells: Sequence[str], *, lost: bool) -> str | None:
    """What is proposed for a column by the cells that are there; None: nothing can be learnt from it."""
    try:
        values = sorted(map(float, cells))
    except ValueError:
        domain = sorted(set(cells))
        if len(domain) < 2 or len(domain) > CATEGORIES:
            return None
        named = MISSING in domain
        filled = f"missing = {_text(max(domain, key=cells.count))}" if named else "missing_indicator = true"
        return f"{{ values = {_list(domain)}, {filled} }}" if lost else _list(domain)
    size = max(map(abs, values), default=0.0)
    if not all(map(math.isfinite, values)) or not 1e-300 < size < 1e300 or values[0] == values[-1]:
        return None
    low, high = min(-_outward(-values[0], size), 0.0), max(_outward(values[-1], size), 0.0)
    if values[0] > 0.5 * values[-1]:  # far from zero: beside the others it would hardly vary
        low = -_outward(-values[0], values[-1] - values[0])
    bounds = f"max = {high!r}" if low == 0 else f"min = {low!r}, max = {high!r}"
    middle = float(f"{values[len(values) // 2]:.3g}")
    filled = f", missing = {min(max(middle, low), high)!r}, missing_indicator = true" if lost else ""
    return f"{{ {bounds}{filled} }}"


def _outward(value: float, scale: float) -> float:
    """`value`, or a little more: a multiple of a tenth of the power of ten below `scale`."""
    step = 10.0 ** (math.floor(math.log10(scale)) - 1)
    return max(value, float(f"{math.ceil(value / step) * step:.12g}"))


def _classes(found: set[str]) -> list[str]:
    """Two classes of a text target in sorted order; those of 0 and 1 need no names."""
    return sorted(found) if len(found) == 2 and not found <= {"0", "1", "-1", "0.0", "1.0", "-1.0"} else []


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    """A string of TOML, which is one of JSON but for a character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
