"""Adult as published (two bz2 files) and the same rows re-coded in 22 bytes each (`adult.npy`).

Reading 1 MB of codes takes milliseconds where unpacking and splitting text takes half a second on every rank;
a test compares the two.  After a change of RECORD: `python -m distadmm.data.adult.raw` writes the file anew
and prints the hash to put below.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from distadmm.data.adult.domains import ATTRIBUTES, DOMAINS, MAXIMA, MISSING, RECORD

Array = np.ndarray

HERE = Path(__file__).parent
PUBLISHED = {  # sha256 of the unpacked files
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
}
TRAINING_ROWS, TEST_ROWS = 32_561, 16_281
RECODED = "679732527a47ea121bf51725293eee5e8ff793a9315c92c8f1830eb9dc62f6b9"


def published(name: str) -> bytes:
    """One of the published files, unpacked."""
    import bz2

    return bz2.decompress((HERE / f"{name}.bz2").read_bytes())


def parse(text: str) -> Array:
    """The rows of `adult.data` or `adult.test` as RECORDs; their comment and blank lines are passed over."""
    cells = [line.rstrip(".").split(", ") for line in text.splitlines()]
    columns = list(zip(*(row for row in cells if len(row) == len(ATTRIBUTES) + 1)))
    records = np.empty(len(columns[0]), RECORD)
    for name, column in zip(ATTRIBUTES, columns):
        if name in DOMAINS:
            code = {category: number for number, category in enumerate(DOMAINS[name])} | {"?": MISSING}
            records[name] = [code[cell] for cell in column]
        else:
            records[name] = np.array(column, dtype=int)
    records["income"] = [{"<=50K": 0, ">50K": 1}[cell] for cell in columns[-1]]
    return records


def parse_published() -> Array:
    """All 48,842 rows from the published text."""
    return np.concatenate([parse(published(name).decode()) for name in ("adult.data", "adult.test")])


def records() -> Array:
    """All 48,842 rows as RECORDs, `adult.data` first."""
    content = (HERE / "adult.npy").read_bytes()
    if hashlib.sha256(content).hexdigest() != RECODED:
        raise RuntimeError(f"{HERE / 'adult.npy'} is not the file this version was released with; reinstall")
    return np.load(io.BytesIO(content), allow_pickle=False)


def main() -> None:
    rows = parse_published()
    assert all(rows[name].max() <= MAXIMA[name] for name in MAXIMA)
    np.save(HERE / "adult.npy", rows)
    print(hashlib.sha256((HERE / "adult.npy").read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
