"""Arrays of numpy as files: `.npz` with X and y, `.npy` with a column of targets; mapped, to read rows alone."""

import mmap
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.table import Array, Matrix, collected
from distadmm.errors import InputError, require
from distadmm.files import require_an_end, unreadable_arrays

_AT_ONCE = 1 << 19  # entries
_SMALL = 1 << 16  # bytes of an array that is read rather than mapped
_HEAD = struct.Struct("<26xHH")  # of a member of an archive: how long its name and its extra field are


class ArrayFile:
    """`X` and its target, an array that need not be in memory."""

    pieces: tuple[Any, ...] = ()  # nothing has to be looked for
    _kept: Any = slice(None)  # which columns are features

    def __init__(
        self,
        path: Path,
        *,
        target: str | None = None,
        targetless: bool = False,
        known: tuple[Any, ...] | None = None,
    ):
        """`known`: somebody has opened it already, and found it whole."""
        self.path = path
        self.X, self.feature_names = self._take(target, targetless, whole=known is not None)
        self.n_rows = len(self.X)
        self.target = np.empty(self.n_rows, dtype=object) if targetless else self._target(target)

    def _take(self, target: str | None, targetless: bool, *, whole: bool) -> tuple[Array, tuple[str, ...]]:
        self.arrays = _members(self.path, whole)
        X = self._matrix(self._named("X"), "X")
        names = self.arrays.get("feature_names")
        told = tuple(map(str, names)) if names is not None else _numbered(X)
        require(
            len(told) == X.shape[1],
            f"{self.path}: {len(told)} feature_names for {X.shape[1]} columns of X; needed: one each",
        )
        return X, told

    def _target(self, target: str | None) -> Array:
        return self._array(target or "y")

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
        require(
            array.dtype.kind not in "cV",
            f"{self.path}: {name} is of type {array.dtype}; needed: numbers or names of classes",
        )
        return array

    def _matrix(self, X: Array, name: str) -> Array:
        if X.ndim != 2 or X.dtype.kind not in "biuf" or 0 in X.shape:
            raise InputError(
                f"{self.path}: {name} has shape {X.shape} and type {X.dtype}; needed: numbers, rows by columns"
            )
        return X

    def place(self, row: int) -> str:
        return f"y[{row}]"

    def column(self, name: str) -> list[str]:
        return [str(value).strip() for value in self._array(name)]

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        return collected(self, rows)

    def blocks(self, rows: Array | None = None) -> Iterator[tuple[Array, Array, Array]]:
        """Places among `rows`, X and the target, some rows at a time, in the order of the file."""
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        order = np.argsort(rows, kind="stable")
        size = max(_AT_ONCE // self.X.shape[1], 1)
        for places in np.array_split(order, -(-len(order) // size) or 1):
            own = rows[places]
            X = np.asarray(self.X[own][:, self._kept], dtype=float)
            if not np.isfinite(X).all():
                row, column = np.argwhere(~np.isfinite(X))[0]
                where = f"{self.path}: X[{own[row]}, {np.arange(self.X.shape[1])[self._kept][column]}]"
                raise InputError(f"{where} is {X[row, column]}; needed: finite numbers")
            yield places, X, np.asarray(self.target[own])
            for array in (self.X, self.target):  # what was read counts no more as this process's memory
                if isinstance(array, np.memmap):
                    array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


class PlainArray(ArrayFile):
    """`.npy`: numbers, rows by columns x1, x2, ...; the target is the last of them, or `--target x3`."""

    def _take(self, target: str | None, targetless: bool, *, whole: bool) -> tuple[Array, tuple[str, ...]]:
        require_an_end(self.path)
        with unreadable_arrays(self.path, ".npy", "save"):
            X = self._matrix(np.load(self.path, mmap_mode="r", allow_pickle=False), "the array")
        names = _numbered(X)
        if targetless:
            return X, names
        require(
            target in (None, *names),
            f"{self.path} has no column {target!r}; its columns: x1 to {names[-1]}, the target the last of them",
        )
        require(len(names) > 1, f"{self.path} has no column but the target; needed: feature columns")
        self._at = names.index(target or names[-1])
        self._kept = np.delete(np.arange(len(names)), self._at)
        return X, tuple(names[j] for j in self._kept)

    def _target(self, target: str | None) -> Array:
        return self.X[:, self._at]


def _numbered(X: Array) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(1, X.shape[1] + 1))


def _members(path: Path, whole: bool) -> dict[str, Array]:
    """The arrays of an archive, mapped where not compressed; `whole`: their checksums are known to be right."""
    require_an_end(path)
    with unreadable_arrays(path), zipfile.ZipFile(path) as archive:
        found = {}
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                found[info.filename.removesuffix(".npy")] = _member(path, archive, info, whole)
        return found


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, whole: bool) -> Array:
    with archive.open(info) as packed:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size < _SMALL:
            return np.lib.format.read_array(packed, allow_pickle=False)  # type: ignore[no-any-return]
        while not whole and packed.read(1 << 20):  # its end is reached with the right checksum, or refused
            pass
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        file.seek(info.header_offset + _HEAD.size + sum(_HEAD.unpack(file.read(_HEAD.size))))
        version = np.lib.format.read_magic(file)
        form = np.lib.format
        read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        shape, fortran, kind = read(file)
        if kind.hasobject:
            raise ValueError("it holds objects")
        return np.memmap(path, kind, "r", file.tell(), shape, "F" if fortran else "C")
