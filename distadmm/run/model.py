"""`model.json`: what a finished run found, and all that is needed to score new rows with it.

A description lies beside its arrays, so that neither travels: one for a model that all nodes agree on, and for sharing
one a party, written by the rank that hosts it, with a `model.json` that names the parts.  It holds

    kind, features        of which programme; the names of the columns, one a coefficient
    encoding, row_norm    how a row of raw data becomes these columns; what a longer row is shortened to first, or null
    intercept             "inside": a last column of ones, within the row norm; "outside": beyond it; "apart": a part
                          of its own; null
    classes, loss, link   what the target calls its classes, in the order of -1, +1 (empty: a number)
    nodes, parts          how many took part; the other descriptions
    arrays                role -> [file, name]: coefficients (means to take off each column first), each node's, ...
    epsilon, delta, adjacency, trust, statement, sentence       what was said of its privacy when the run ended

and nothing of private rows besides its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import InputError, require, sense_of
from distadmm.files import read_json, read_npz, write_json

Array = np.ndarray
FILE, SCHEMA = "model.json", 1
BLANK: dict[str, Any] = {
    "algorithm": None, "features": [], "encoding": None, "row_norm": None, "intercept": None, "classes": [],
    "loss": None, "link": None, "nodes": 1, "parts": [], "arrays": {},
}  # fmt: skip
PRIVACY = ("epsilon", "delta", "adjacency", "trust", "statement", "sentence")


class Model(NamedTuple):
    path: Path  # of its description
    told: dict[str, Any]
    held: Mapping[str, Mapping[str, Array]] | None = None  # its files, where none was written

    @property
    def arrays(self) -> dict[str, Array]:
        """By role."""
        files = self.held or {
            file: read_npz(self.path.parent / file) for file, _ in self.told["arrays"].values()
        }
        with sense_of(self.path):
            return {role: files[file][name] for role, (file, name) in self.told["arrays"].items()}

    @property
    def parts(self) -> list[Model]:
        """Of those whose files are here."""
        return [read(path) for name in self.told["parts"] if (path := self.path.parent / name).is_file()]


def privacy(summary: Mapping[str, Any], sentence: str) -> dict[str, Any]:
    """What a model says of the privacy of the run that made it; nothing where the rows had none to lose."""
    return {name: {"trust": "any", **summary, "sentence": sentence}.get(name) for name in PRIVACY}


def write(folder: Path, kind: str, told: Mapping[str, Any], name: str = FILE) -> None:
    whole = {"schema": SCHEMA, "kind": kind, **BLANK, **told}
    write_json(folder / name, {key: str(v) if v == math.inf else v for key, v in whole.items()}, secret=True)


def _whole(told: Mapping[str, Any]) -> bool:
    """Whether it says in which files its arrays and parts are."""
    arrays, parts = told.get("arrays"), told.get("parts")
    if not isinstance(arrays, dict) or not isinstance(parts, list):
        return False
    places = [name for each in arrays.values() for name in (each if isinstance(each, list) else [None])]
    return len(places) == 2 * len(arrays) and all(isinstance(name, str) for name in [*places, *parts])


def read(path: Path) -> Model:
    """The model of a run directory, or one that `path` names; of version 0.1 there are arrays alone."""
    path = path / FILE if path.is_dir() else path
    if path.is_file():
        told = read_json(path)
        require(
            isinstance(told, dict) and told.get("schema") == SCHEMA and _whole(told),
            f"{path} is no description of a model that this version reads; give what it wrote itself",
        )
        return Model(path, told)
    if not path.with_suffix(".npz").is_file():
        raise InputError(
            f"no model in {path.parent}: {path.name} is missing; give the directory of a finished run"
        )
    old = {"x": "coefficients", "mean": "means", "intercept": "intercept"}
    found = read_npz(path.with_suffix(".npz"))
    arrays = {role: [f"{path.stem}.npz", name] for name, role in old.items() if name in found}
    return Model(path, {**BLANK, "arrays": arrays, "features": found.get("names", np.array([])).tolist()})
