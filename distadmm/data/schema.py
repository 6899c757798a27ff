"""What is publicly known of the columns of a CSV file: domains and bounds, never computed from rows.

A schema is a small TOML file (`--schema`), whose lines docs/data.md shows.  A missing cell is an empty one, or one that
`missing` lists: in a plain list of categories a block of zeros, in numbers refused unless their column says what it
stands for.
"""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.errors import InputError, require, told
from distadmm.files import held, read_bytes


class Number(NamedTuple):
    """A numeric column, moved from [low, high] to [0, 1]; as it stands when no bounds are known."""

    name: str
    low: float = 0.0
    high: float | None = None
    missing: float | None = None  # what a missing cell stands for
    indicator: bool = False  # one more column, 1 where the cell is missing

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}=missing") if self.indicator else (self.name,)


class Category(NamedTuple):
    """A text column, one 0/1 column for each value of its domain."""

    name: str
    domain: tuple[str, ...]
    missing: str | None = None  # the value of the domain that a missing cell stands for

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={value}" for value in self.domain)


@dataclass(frozen=True)
class Schema:
    columns: tuple[Number | Category, ...]
    target: str | None = None
    labels: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    ignore: tuple[str, ...] = ()
    # A model was trained with it: new rows have to keep to it.
    trained: bool = field(default=False, repr=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(label for column in self.columns for label in column.labels)

    def lacks(self, cell: str) -> bool:
        """Whether this text stands for a missing cell."""
        return not cell or cell in self.missing

    def as_json(self) -> dict[str, Any]:
        """The keys of the TOML file, and its columns in their order."""
        columns = []
        for c in self.columns:
            form = {"domain": list(c.domain)} if isinstance(c, Category) else {"min": c.low, "max": c.high}
            rest = {} if c.missing is None else {"missing": c.missing}
            extra = {"missing_indicator": True} if isinstance(c, Number) and c.indicator else {}
            columns.append({"name": c.name, **form, **rest, **extra})
        return {
            "columns": columns,
            "target": self.target,
            "labels": list(self.labels),
            "missing": sorted(self.missing),
            "ignore": list(self.ignore),
        }

    def of_new_rows(self, header: Sequence[str]) -> "Schema":
        """For a file with these columns, which may have a target and more of them."""
        known = {column.name for column in self.columns}
        ignore = tuple(name for name in header if name not in known)
        return replace(self, target=None, ignore=ignore, trained=True)

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> "Schema":
        """What `as_json` gave."""
        columns = tuple(
            Category(c["name"], tuple(c["domain"]), c.get("missing"))
            if "domain" in c
            else Number(c["name"], c["min"], c["max"], c.get("missing"), c.get("missing_indicator", False))
            for c in told["columns"]
        )
        return cls(
            columns, told["target"], tuple(told["labels"]), frozenset(told["missing"]), tuple(told["ignore"])
        )

    def match(self, header: Sequence[str], target: str, path: Path) -> None:
        """Every column of the file is described, and every described column is there."""
        described = {column.name for column in self.columns} | set(self.ignore) | ({target} - {""})
        for name in sorted(described - set(header) - set(self.ignore)):
            raise InputError(f"{path} has no column {name!r} of the --schema; {instead(name, header)}")
        for name in header:
            if name not in described:
                raise InputError(
                    f"{path}: the --schema says nothing of column {name!r}; "
                    "describe it, or add it to ignore = [...]"
                )


def instead(name: str, header: Sequence[str]) -> str:
    """What a table has that lacks this column, and what may have been meant."""
    near = difflib.get_close_matches(name, header, n=1)
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    numbers = "; its first line has to name them" if any(map(is_number, header)) else ""
    return f"{f'did you mean {near[0]!r}? ' if near else ''}its columns: {shown}{numbers}"


MISSING = "missing"  # what a category of missing cells is called
# Often written for a missing cell.
MARKS = ("?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "-")
_KEYS = ("target", "labels", "missing", "ignore", "columns")


def read_schema(path: str | Path) -> Schema:
    import tomllib

    content: Any = held(path)
    broken = f"--schema {path} is not TOML: REASON; see docs/data.md for an example"
    with (
        told(f"cannot read --schema {path}: REASON; give a TOML file"),
        told(broken, ValueError, RecursionError),
    ):
        content = content or tomllib.loads(read_bytes(path).decode())
    for key in content:
        require(key in _KEYS, f"--schema {path}: unknown key {key!r}; known: {', '.join(_KEYS)}")
    columns = content.get("columns", {})
    require(
        isinstance(columns, dict) and columns,
        f"--schema {path} has no [columns]; needed: a line for each column, as in age = {{ max = 90 }}",
    )
    target = content.get("target")
    require(
        target is None or isinstance(target, str), f"--schema {path}: target is {target!r}; needed: a name"
    )
    return Schema(
        tuple(_column(name, what, path) for name, what in columns.items()),
        target,
        _texts(content, "labels", path),
        frozenset(_texts(content, "missing", path)),
        _texts(content, "ignore", path),
    )


def _texts(content: dict[str, Any], key: str, path: str | Path) -> tuple[str, ...]:
    value = content.get(key, [])
    require(
        isinstance(value, list), f"--schema {path}: {key} is {value!r}; needed: a list, as in {key} = [...]"
    )
    return tuple(str(item) for item in value)


def _column(name: str, what: Any, path: str | Path) -> Number | Category:
    where = f"--schema {path}, column {name!r}"
    form = {"values": what} if isinstance(what, list) else what
    known = {"values"} if isinstance(form, dict) and "values" in form else {"min", "max"}
    if isinstance(form, dict) and {*form} <= known | {"missing", "missing_indicator"}:
        filled, indicator = form.get("missing"), form.get("missing_indicator", False)
        require(
            isinstance(indicator, bool), f"{where}: missing_indicator is {indicator!r}; needed: true or false"
        )
        if isinstance(form.get("values"), list):
            return _category(name, form["values"], filled, indicator, where)
        low, high = form.get("min", 0), form.get("max", math.nan)
        if _number(low) and _number(high) and low < high:
            require(
                filled is not None or not indicator, f"{where} has missing_indicator; add missing = NUMBER"
            )
            require(
                filled is None or (_number(filled) and low <= filled <= high),
                f"{where}: missing is {filled!r}; needed: a number from {low:g} to {high:g}, known without the rows",
            )
            return Number(name, float(low), float(high), None if filled is None else float(filled), indicator)
    raise InputError(
        f"{where} is {what!r}; needed: {{ max = NUMBER }}, {{ min = NUMBER, max = NUMBER }} with min < max, a list of "
        "categories or { values = [...] }; to a table add missing = VALUE, missing_indicator = true"
    )


def _category(name: str, values: list[Any], filled: Any, indicator: bool, where: str) -> Category:
    domain = tuple(str(value) for value in values)
    require(
        len(domain) >= 2 and len(set(domain)) == len(domain),
        f"{where}: the domain is {values!r}; needed: two or more different values",
    )
    if not indicator:
        require(
            filled is None or str(filled) in domain,
            f"{where}: missing is {filled!r}; needed: one of its values, or missing_indicator = true",
        )
        return Category(name, domain, None if filled is None else str(filled))
    require(
        filled is None and MISSING not in domain,
        f"{where}: missing_indicator makes a category {MISSING!r}; needed: no missing = VALUE beside it, and no value "
        "of that name",
    )
    return Category(name, (*domain, MISSING), MISSING)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
