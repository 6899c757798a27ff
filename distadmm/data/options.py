"""The flags that say which rows are read, and how: the same words in every programme that reads a table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.structs import struct


@flag_group("data")
class Rows:
    data: str = flag(
        "adult",
        help="the rows: a bundled table, or a file",
        note=": adult, tiny, a9a, CSV, Parquet, npz, npy, libsvm; radmm also 'shard-{rank}.csv', a file a node, istdp "
        "synthetic:ROWS[xCOLUMNS]",
    )
    target: str | None = flag(None, help="target column of a CSV (default: the last)")
    labels: tuple[str, ...] = flag(
        (),
        help="the classes of a file, the negative one first: no,yes (default: 0 or -1, 1; found without privacy)",
    )
    schema: str | None = flag(None, help="TOML file with what is public of a CSV's columns")
    features: int | None = flag(None, help="columns of a libsvm file; private runs need it", at_least=1)
    stated: tuple[str, ...] = flag(
        (),
        help="facts that you state to be public: bounds (of a9a), mappings (of --sanitise)",
    )
    test_fraction: float = flag(0.0, help="share of a file's rows kept for testing", at_least=0, below=1)
    sanitise: tuple[str, ...] = flag(
        (), help="COLUMN=mapping.npz,...: randomise columns by privacy mappings first"
    )

    def reading(self) -> dict[str, Any]:
        """How a user's file is to be read, as far as flags say so."""
        names = ("target", "labels", "schema", "features", "stated", "test_fraction", "test_data")
        return {name: value for name in names if (value := getattr(self, name, None))}


@struct
class MoreRows(Rows):
    test_data: str | None = flag(None, help="a file of test rows")


def one_table(given: Any, columns: Sequence[Any], needed: str, instead: str, bundled: Sequence[str]) -> None:
    """`--input`, `--rows` and `--data` exclude one another, and the last two need the flags that name columns."""
    sources = [name for name in ("input", "rows", "data") if getattr(given, name) is not None]
    require(len(sources) <= 1, f"--{' and --'.join(sources)} both give the problem; keep one")
    if given.rows or given.data:
        require(all(columns), f"--{sources[0]} needs {needed}")
    else:
        require(not any(columns), instead)
    file = rows_of(given, bundled)
    require(
        file or not given.schema,
        "--schema describes the columns of a file; give it by --data, or leave it out",
    )
    require(
        not file or given.rows or Path(file).is_file(),
        f"--data is {file!r}: no such file, and no bundled table (here: {', '.join(bundled)})",
    )


def rows_of(given: Any, bundled: Sequence[str]) -> str | None:
    """The file that `--rows`, or `--data`, names."""
    name: str | None = given.rows or given.data
    return None if name in bundled and not given.rows else name


def norms(text: str) -> tuple[float, ...] | None:
    """What `--row-norm` states: nothing for auto or none, one bound for all, or one a party."""
    if text in ("auto", "none"):
        return None
    try:
        bounds = tuple(float(part) for part in text.split(","))
    except ValueError:
        bounds = (math.nan,)
    require(
        all(1e-50 <= bound <= 1e50 for bound in bounds),
        f"--row-norm is {text!r}; needed: a number from 1e-50 to 1e50 (sharing: or one a party), none or auto",
    )
    return bounds
