"""What is publicly known of the columns of a CSV file: domains and bounds, never computed from rows.

A schema is a small TOML file (`--schema`):

    target = "income"
    labels = ["<=50K", ">50K"]        # negative, positive
    missing = ["?", ""]               # such a category is a block of zeros
    ignore = ["id"]
    [columns]
    age = { max = 90 }                # divided by max
    temperature = { min = 30, max = 45 }  # moved to [0, 1]
    workclass = ["Private", "State-gov"]  # one column a category
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.errors import InputError, require


class Number(NamedTuple):
    """A numeric column, moved from [low, high] to [0, 1]; as it stands when no bounds are known."""

    name: str
    low: float = 0.0
    high: float | None = None


class Category(NamedTuple):
    """A text column, one 0/1 column for each value of its domain."""

    name: str
    domain: tuple[str, ...]

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

    @property
    def feature_names(self) -> tuple[str, ...]:
        names: list[str] = []
        for column in self.columns:
            names += column.labels if isinstance(column, Category) else (column.name,)
        return tuple(names)

    def as_json(self) -> dict[str, Any]:
        """The keys of the TOML file, and its columns in their order."""
        columns = [
            {"name": c.name, "domain": list(c.domain)}
            if isinstance(c, Category)
            else {"name": c.name, "min": c.low, "max": c.high}
            for c in self.columns
        ]
        return {
            "columns": columns,
            "target": self.target,
            "labels": list(self.labels),
            "missing": sorted(self.missing),
            "ignore": list(self.ignore),
        }

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> "Schema":
        """What `as_json` gave."""
        columns = tuple(
            Category(c["name"], tuple(c["domain"]))
            if "domain" in c
            else Number(c["name"], c["min"], c["max"])
            for c in told["columns"]
        )
        return cls(
            columns, told["target"], tuple(told["labels"]), frozenset(told["missing"]), tuple(told["ignore"])
        )

    def match(self, header: Sequence[str], target: str, path: Path) -> None:
        """Every column of the file is described, and every described column is there."""
        described = {column.name for column in self.columns} | set(self.ignore) | ({target} - {""})
        for name in described - set(header) - set(self.ignore):
            raise InputError(
                f"{path} has no column {name!r} of the --schema; its columns: {', '.join(header)}"
            )
        for name in header:
            if name not in described:
                raise InputError(
                    f"{path}: the --schema says nothing of column {name!r}; "
                    "describe it, or add it to ignore = [...]"
                )


_KEYS = ("target", "labels", "missing", "ignore", "columns")


def read_schema(path: str | Path) -> Schema:
    import tomllib

    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read --schema {path}: {error.strerror}; give a TOML file") from None
    except ValueError as error:
        raise InputError(f"--schema {path} is not TOML: {error}; see docs/data.md for an example") from None
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
    if isinstance(what, list):
        domain = tuple(str(value) for value in what)
        require(
            len(domain) >= 2 and len(set(domain)) == len(domain),
            f"{where}: the domain is {what!r}; needed: two or more different values",
        )
        return Category(name, domain)
    if isinstance(what, dict) and set(what) <= {"min", "max"} and "max" in what:
        low, high = what.get("min", 0), what["max"]
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (low, high)) and low < high:
            return Number(name, float(low), float(high))
    raise InputError(
        f"{where} is {what!r}; needed: {{ max = NUMBER }}, {{ min = NUMBER, max = NUMBER }} with min < max, "
        "or a list of categories"
    )
