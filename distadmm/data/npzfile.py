"""numpy archives with arrays X (rows by columns) and y."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distadmm.data.table import Array, Matrix
from distadmm.errors import InputError, require


class NpzFile:
    def __init__(self, path: Path, *, target: str | None = None, targetless: bool = False):
        self.path = path
        self.arrays = load_arrays(path)
        self.X = self._matrix()
        self.n_rows, width = self.X.shape
        names = self.arrays.get("feature_names")
        self.feature_names = (
            tuple(map(str, names)) if names is not None else tuple(f"x{j + 1}" for j in range(width))
        )
        require(
            len(self.feature_names) == width,
            f"{path}: {len(self.feature_names)} feature_names for {width} columns of X; needed: one each",
        )
        self.target = np.empty(self.n_rows, dtype=object) if targetless else self._array(target or "y")

    def _named(self, name: str) -> Array:
        if name not in self.arrays:
            held = ", ".join(self.arrays) or "nothing"
            raise InputError(f"{self.path} has no array {name!r}; it holds: {held}; needed: X and y")
        return self.arrays[name]

    def _array(self, name: str) -> Array:
        array = self._named(name)
        if array.shape != (self.n_rows,):
            raise InputError(
                f"{self.path}: {name} has shape {array.shape}, X has {self.n_rows} rows; needed: one entry a row"
            )
        return array

    def _matrix(self) -> Array:
        X = self._named("X")
        if X.ndim != 2 or X.dtype.kind not in "biuf" or 0 in X.shape:
            raise InputError(
                f"{self.path}: X has shape {X.shape} and type {X.dtype}; needed: numbers, rows by columns"
            )
        X = X.astype(float)
        if not np.isfinite(X).all():
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise InputError(f"{self.path}: X[{row}, {column}] is {X[row, column]}; needed: finite numbers")
        return X

    def place(self, row: int) -> str:
        return f"y[{row}]"

    def column(self, name: str) -> list[str]:
        return [str(value).strip() for value in self._array(name)]

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        return self.X[rows], self.target[rows]


def load_arrays(path: Path) -> dict[str, Array]:
    """All arrays of an archive; nothing in it is unpickled."""
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"no file {path}; give an existing .npz file") from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give a readable .npz file"
        ) from None
    except (ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile):
        raise InputError(
            f"{path} is no .npz file of plain arrays; write it with numpy.savez(FILE, X=X, y=y)"
        ) from None
