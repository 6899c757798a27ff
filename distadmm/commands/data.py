"""`python -m distadmm data`: a schema proposed from sample rows that you state to be public; tables not bundled."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from distadmm.data import options, schema, session
from distadmm.data.csvfile import toml_key
from distadmm.errors import require
from distadmm.files import write_text
from distadmm.flags import again, flag, flag_group, positional
from distadmm.ranks.launch import say

PROG = "distadmm data"


@flag_group("data describe")
class Describe:
    words: tuple[str, ...] = positional(
        "describe FILE", help="describe, and a CSV of sample rows; or add gisette", default=()
    )
    public: bool = flag(
        False, help="you state that these rows are public: that what is proposed may tell of them"
    )
    target: str | None = again(options.Rows, "target")
    from_: str | None = flag(None, help="gisette_scale, or an npz of MNIST fours and nines for a stand-in")
    test: str | None = flag(None, help="gisette_scale.t (default: beside the other)")
    licence: str = flag("not stated", help="of the files that are added; kept and shown with their hashes")
    out: str | None = flag(None, help="file to write (default: print)")

    def __post_init__(self) -> None:
        if self.words[:1] == ("add",):
            known = self.words[1:] == ("gisette",) and self.from_
            require(known, f"data {' '.join(self.words)}: what is added? Write: data add gisette --from FILE")
            return
        require(
            len(self.words) == 2 and self.words[0] == "describe",
            f"data {' '.join(self.words)}: what is to be done? Write: data describe FILE --public",
        )
        require(
            self.public,
            f"{self.words[1]}: bounds and domains read off private rows change with one record, and no epsilon holds "
            "with them; give a sample that may be published, and state so by --public",
        )


def described(asked: Describe) -> str:
    if asked.words[0] == "add":
        from distadmm.data import gisette

        known = gisette.add(Path(str(asked.from_)), Path(asked.test) if asked.test else None, asked.licence)
        said = [f"{name}: {value}" for name, value in known.items()]
        return "\n".join([*said, f"kept in {gisette.shelf()}"])
    text = propose(asked.words[1], asked.target)
    if asked.out:
        write_text(Path(asked.out), text)
    return asked.out or text.rstrip()


main = say(PROG, __doc__, Describe, described)


CATEGORIES = 50  # of a text column; more are free text, or names
COUNTED = 20  # rows from which on whole numbers without gaps or repetitions are those of the rows


def propose(path: str | Path, target: str | None = None) -> str:
    """The text of a schema: bounds of numbers, domains of texts, what missing cells may stand for; for people to mend.

    From private rows nothing may be proposed: with one record more the largest age, or the list of jobs, is another.
    """
    file, left = session.cell_file(Path(path), target=target), []
    columns = file.texts()
    gone = [mark for mark in schema.MARKS if any(mark in cells for cells in columns.values())]
    lines, said = [f"target = {_text(str(file.target))}"], []
    classes = set(columns.pop(str(file.target))) - {"", *gone}
    if len(classes) == 2 and not classes <= {"0", "1", "-1", "0.0", "1.0", "-1.0"}:  # these need no names
        lines.append(f"labels = {_list(sorted(classes))}  # negative, positive")
    for name, cells in columns.items():
        there = [cell for cell in cells if cell and cell not in gone]
        comma = next((cell for cell in there if "," in cell), "")
        require(
            not comma or not all(schema.is_number(cell.replace(",", ".")) for cell in there),
            f"{path}: column {name!r} holds numbers with a decimal comma, such as {comma!r}; write a point",
        )
        found = _column(name, there, lost=len(there) < len(cells))
        if found is None:
            left.append(name)
        else:
            said.append(f"{toml_key(name)} = {found}")
    if gone:
        lines.append(f"missing = {_list(gone)}  # read as empty cells")
    if left:
        why = f"one value, more than {CATEGORIES} texts, dates, or numbers of the rows"
        lines.append(f"ignore = {_list(left)}  # {why}")
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
        with suppress(ValueError):
            _ = [datetime.fromisoformat(cell) for cell in domain]
            return None  # dates alone
        named = schema.MISSING in domain
        filled = f"missing = {_text(max(domain, key=cells.count))}" if named else "missing_indicator = true"
        return f"{{ values = {_list(domain)}, {filled} }}" if lost else _list(domain)
    size = max(map(abs, values), default=0.0)
    if not all(map(math.isfinite, values)) or not 1e-300 < size < 1e300 or values[0] == values[-1]:
        return None
    apart = len(set(values)) == len(values) >= COUNTED and all(value.is_integer() for value in values)
    if apart and values[-1] - values[0] < 2 * len(values):  # each row has a number of its own
        return None
    low, high = min(-_outward(-values[0], size), 0.0), max(_outward(values[-1], size), 0.0)
    if values[0] > 0.5 * values[-1]:  # far from zero: beside the others it would hardly vary
        low = -_outward(-values[0], values[-1] - values[0])
    bounds = f"max = {_number(high)}" if low == 0 else f"min = {_number(low)}, max = {_number(high)}"
    middle = min(max(float(f"{values[len(values) // 2]:.3g}"), low), high)
    filled = f", missing = {_number(middle)}, missing_indicator = true" if lost else ""
    return f"{{ {bounds}{filled} }}"


def _outward(value: float, scale: float) -> float:
    """`value`, or a little more: a multiple of a tenth of the power of ten below `scale`."""
    step = 10.0 ** (math.floor(math.log10(scale)) - 1)
    return max(value, float(f"{math.ceil(value / step) * step:.12g}"))


def _number(value: float) -> str:
    """As people write it: 90, not 90.0."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    """A string of TOML, which is one of JSON but for a character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
