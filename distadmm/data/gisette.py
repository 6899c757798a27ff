"""GISETTE from the user's own files, and a stand-in of the same shape made from MNIST's fours and nines.

GISETTE (feature selection challenge of NIPS 2003) has 5,000 columns: pixels of the middle top part of the digit,
products of pairs of them, and as many probes, columns that say nothing.  Its files are not bundled.  The
stand-in follows that public description; it is another table, and results on it are results on a stand-in.
"""

import hashlib
import os
from pathlib import Path

import numpy as np

from distadmm.data.formats import LibsvmFile
from distadmm.data.table import Array, Matrix, Table
from distadmm.errors import InputError, require, sense_of
from distadmm.files import read_json, read_npz, write_bytes, write_json

COLUMNS = 5_000
REAL = 2_500  # the other half are probes
TRAINING = 6_000  # of 7,000 rows, half of them fours; so is the rest
LARGEST = 999  # values are whole numbers from 0
SEED = 2003_07_01
MIDDLE_TOP = (slice(3, 19), slice(5, 23))  # rows and columns of the 28 x 28 image
INKED = 0.02  # share of the images in which a pixel that serves as a column is not blank


def load_gisette(training: str | Path, test: str | Path) -> tuple[Table, Table]:
    """The user's `gisette_scale` and `gisette_scale.t`, in libsvm format, possibly compressed."""

    def table(path: str | Path) -> Table:
        X, y = LibsvmFile(Path(path), features=COLUMNS).read()
        require(set(np.unique(y)) <= {-1.0, 1.0}, f"{path}: labels other than -1 and +1; give gisette_scale")
        return _table(X, y, "gisette", str(path))

    return table(training), table(test)


def shelf() -> Path:
    """Where `data add gisette` keeps a user's files."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "distadmm" / "gisette"


def add(path: Path, test: Path | None, licence: str) -> dict[str, str]:
    """Files of GISETTE, or images for the stand-in, kept after they could be read; what is known of them."""
    if path.suffix == ".npz":
        tables, files = build_standin(path), [path]
    else:
        test = test or path.with_name(path.name.replace("gisette_scale", "gisette_scale.t", 1))
        require(test != path, f"{path}: its test rows are not known; give them by --test FILE")
        tables, files = load_gisette(path, test), [path, test]
        rows = tuple(len(table.y) for table in tables)
        require(
            rows == (TRAINING, 1_000),
            f"{path} and {test} have {rows} rows; needed: those of gisette_scale, 6000 and 1000",
        )
    held = [file.read_bytes() for file in files]
    known = {
        f"sha256 of {file.name}": hashlib.sha256(content).hexdigest() for file, content in zip(files, held)
    }
    known = {"name": tables[0].name, "licence": licence, **known}
    shelf().mkdir(parents=True, exist_ok=True)
    for file, content in zip(files, held):
        write_bytes(shelf() / file.name, content)
    write_json(shelf() / "source.json", known)
    return known


def added() -> tuple[Path, ...]:
    """What `add` kept: training and test, or the images of the stand-in; empty if nothing.  Refused if it changed."""
    told = shelf() / "source.json"
    if not told.exists():
        return ()
    with sense_of(told):
        mark, known = "sha256 of ", read_json(told)
        sums = {k.removeprefix(mark): v for k, v in known.items() if k.startswith(mark)}
    for name, digest in sums.items():
        file = shelf() / name
        kept = file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        require(kept, f"{file} is not what was added; say `data add gisette --from FILE` again")
    return tuple(shelf() / name for name in sums)


def build_standin(path: str | Path) -> tuple[Table, Table]:
    """6,000 training and 1,000 test rows from an archive with `img` (n x 28 x 28, 0..255) and `digit` (4, 9).

    Every column is moved linearly to [-1, 1] by its range on the training rows, as LIBSVM's gisette_scale is.
    """
    arrays = read_npz(Path(path))
    require(
        {"img", "digit"} <= set(arrays), f"{path} holds {', '.join(arrays)}; needed: arrays img and digit"
    )
    img, digit = arrays["img"], arrays["digit"]
    each = {label: np.flatnonzero(digit == label) for label in (4, 9)}
    if img.size != 784 * len(digit) or any(len(rows) < 3_500 for rows in each.values()):
        raise InputError(
            f"{path}: img is {img.shape}; needed: 28 x 28 images of 3,500 fours and as many nines"
        )
    rng = np.random.default_rng(SEED)
    rows = np.concatenate([rows[:3_500] for rows in each.values()])
    values = _values(img.reshape(-1, 28, 28)[rows].astype(float) / 255.0, rng)
    positive = np.arange(7_000) < 3_500
    halves = [rng.permutation(np.flatnonzero(positive == side)) for side in (True, False)]
    parts = [rng.permutation(np.concatenate([h[:3_000] for h in halves]))]
    parts.append(rng.permutation(np.concatenate([h[3_000:] for h in halves])))
    low, high = values[parts[0]].min(axis=0), values[parts[0]].max(axis=0)
    X = 2.0 * (values - low) / np.where(high > low, high - low, 1.0) - 1.0
    y = np.where(positive, 1.0, -1.0)
    training, test = (
        _table(X[part], y[part], "gisette stand-in", f"{path}: fours and nines of MNIST") for part in parts
    )
    return training, test


def _values(images: Array, rng: np.random.Generator) -> Array:
    """Whole numbers 0..999: pixels, products of pairs of pixels, and columns of them with the rows shuffled."""
    region = images[:, MIDDLE_TOP[0], MIDDLE_TOP[1]].reshape(len(images), -1)
    pixels = region[:, (region > 0).mean(axis=0) > INKED]
    n, width = pixels.shape
    left, right = (rng.integers(width, size=REAL - width) for _ in range(2))
    real = np.hstack([pixels, pixels[:, left] * pixels[:, right]])
    probes = real[:, rng.permutation(REAL)]
    for column in range(REAL):
        probes[:, column] = probes[rng.permutation(n), column]
    return np.rint(LARGEST * np.hstack([real, probes])[:, rng.permutation(COLUMNS)])


def _table(X: Matrix, y: Array, name: str, source: str) -> Table:
    return Table(X, y, tuple(f"x{j + 1}" for j in range(COLUMNS)), name, "see its source", source)
