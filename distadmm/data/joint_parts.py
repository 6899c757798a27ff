"""Reading an inference problem: JSON, npz, a CSV table of S against Y, or the rows of a data set."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError, require
from distadmm.files import read_json, read_npz
from distadmm.methods.ias.inference import Inference

Array = np.ndarray


def read_problem(path: str | Path) -> Inference:
    """P_S and P_YgS (JSON or npz), or a joint table p(s,y) or counts (npz `joint`, or CSV)."""
    path = Path(path)
    if path.suffix == ".json":
        content = read_json(path)
        require(isinstance(content, dict), f"{path} is not an object with P_S and P_YgS")
    elif path.suffix == ".npz":
        content = dict(read_npz(path))
    elif path.suffix == ".csv":
        content = _read_table(path)
    else:
        raise InputError(f"{path} is not .json, .npz or .csv; give the table in one of these")
    values = tuple(str(value) for value in content.get("values", ()))
    try:
        if "joint" in content:
            return from_joint(_numbers(content["joint"], "joint"), values, path.stem)
        missing = [name for name in ("P_S", "P_YgS") if name not in content]
        require(not missing, f"no {' and no '.join(missing)} in it; needed: P_S and P_YgS, or joint")
        return Inference(
            _numbers(content["P_S"], "P_S"), _numbers(content["P_YgS"], "P_YgS"), values, path.stem
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _numbers(content: Any, name: str) -> Array:
    try:
        return np.asarray(content, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} is not a table of numbers with rows of one length") from None


def from_joint(joint: Array, values: tuple[str, ...] = (), name: str = "") -> Inference:
    """From p(s,y), or from counts (whole numbers), one row per s."""
    require(joint.ndim == 2 and joint.size, f"the joint table has shape {joint.shape}; needed a row per s")
    require(np.isfinite(joint).all(), "the joint table has a NaN or infinite entry; give finite numbers")
    require((joint >= 0).all(), f"the joint table has the negative entry {joint.min():.6g}; needed >= 0")
    total = joint.sum()
    counts = total > 0 and np.array_equal(joint, np.round(joint))
    require(
        counts or abs(total - 1) <= 1e-9,
        f"the joint table sums to {total:.12g}; needed probabilities that sum to 1, or whole counts",
    )
    joint = joint / total
    P_S = joint.sum(1)
    empty = np.flatnonzero(P_S == 0)
    require(not empty.size, f"symbol {empty[:1]} of S has probability zero; leave its row out")
    return Inference(P_S, joint / P_S[:, None], values, name)


def _read_csv(path: Path) -> list[list[str]]:
    try:
        with open(path, newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; give a CSV file") from None
    require(len(rows) >= 2, f"{path} has {len(rows)} lines; needed a header and rows")
    for number, row in enumerate(rows, 1):
        require(
            len(row) == len(rows[0]),
            f"line {number} of {path} has {len(row)} cells; needed {len(rows[0])}, as in the header",
        )
    return rows


def _read_table(path: Path) -> dict[str, Any]:
    """Header: a corner cell and the names of the y's; each line: the name of an s and its numbers."""
    rows = _read_csv(path)
    try:
        joint = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    except ValueError as error:
        raise InputError(
            f"{path}: {error}; needed numbers after the first cell of a line; for rows of data say "
            "--infer COLUMN --column COLUMN"
        ) from None
    return {"joint": joint, "values": rows[0][1:]}


def from_rows(path: str | Path, infer: str, column: str, smooth: float = 0.0) -> Inference:
    """The joint frequencies of two columns of a CSV file with a header: S = `infer`, Y = `column`."""
    rows = _read_csv(Path(path))
    head = [cell.strip() for cell in rows[0]]
    for name in (infer, column):
        require(name in head, f"{path} has no column {name!r}; it has: {', '.join(head)}")
    s, y = ([row[head.index(name)].strip() for row in rows[1:]] for name in (infer, column))
    s_names, s_code = np.unique(s, return_inverse=True)
    y_names, y_code = np.unique(y, return_inverse=True)
    return _counted(s_code, y_code, len(s_names), tuple(y_names.tolist()), infer, column, smooth)


def adult(infer: str, column: str, smooth: float = 0.0) -> Inference:
    """Two columns of the bundled Adult's training rows; the values in the order of their documentation."""
    from distadmm.data.adult.domains import DOMAINS
    from distadmm.data.adult.table import adult_columns, split

    domains = {**DOMAINS, "income": ("<=50K", ">50K")}
    for name in (infer, column):
        require(name in domains, f"adult has no categorical column {name!r}; it has: {', '.join(domains)}")
    training, columns = split()[0], adult_columns()
    s, y = columns[infer][training], columns[column][training]
    return _counted(s, y, len(domains[infer]), domains[column], infer, column, smooth)


def _counted(
    s: Array, y: Array, n_s: int, values: tuple[str, ...], infer: str, column: str, smooth: float
) -> Inference:
    require(infer != column, f"--infer and --column are both {infer!r}; name two columns")
    counts = np.zeros((n_s, len(values)))
    np.add.at(counts, (s, y), 1)
    counts += smooth
    empty = [name for name, count in zip(values, counts.sum(0)) if count == 0]
    require(
        not empty,
        f"no row has {column} = {', '.join(empty)}, a symbol of probability zero; leave it out of the domain, "
        "or give --smooth 0.5 pseudo-counts a cell",
    )
    return from_joint(counts / counts.sum(), values, column)
