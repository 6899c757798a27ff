"""Adult as published (two bz2 files), the same rows re-coded in 22 bytes each, and the order they are dealt in.

A rank picks its rows out of `adult.npy` in less than a millisecond where unpacking and splitting text takes half a
second, and `dealt.npy` spares it the work of drawing the permutation; tests compare both with what they stand
for.  After a change of RECORD: `python -m distadmm.data.adult.raw` writes them anew and prints the hashes to put
below.
"""

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
DEALT = "f9610cbd978f5d8a8a645dcde251011070e8665915e81f0d42bfcaadf4cd45a9"
PERMUTATION = 20191  # seed of the order


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


def complete_rows(records: Array) -> Array:
    """Numbers of the records without a missing value."""
    known = np.ones(len(records), bool)
    for name in DOMAINS:
        known &= records[name] != MISSING
    return np.flatnonzero(known)


def permuted(records: Array) -> Array:
    """Numbers of the complete records in the order in which they are dealt to the nodes."""
    numbers = complete_rows(records)
    return numbers[np.random.default_rng(PERMUTATION).permutation(len(numbers))]


def rows(numbers: Array) -> Array:
    """These of the 48,842 rows, `adult.data` first, as RECORDs; no other row is read."""
    return np.load(HERE / "adult.npy", mmap_mode="r", allow_pickle=False)[numbers]


def dealt() -> Array:
    """Numbers of the 45,222 complete rows in the order in which they are dealt to the nodes."""
    return np.load(HERE / "dealt.npy", allow_pickle=False).astype(np.int64)


def records() -> Array:
    """All 48,842 rows, checked against their hash."""
    check()
    return np.load(HERE / "adult.npy", allow_pickle=False)


def check() -> None:
    """Refuse files that are not those of this version."""
    for name, digest in (("adult.npy", RECODED), ("dealt.npy", DEALT)):
        if _digest(name) != digest:
            raise RuntimeError(f"{HERE / name} is not the file this version was released with; reinstall")


def _digest(name: str) -> str:
    import hashlib

    return hashlib.sha256((HERE / name).read_bytes()).hexdigest()


def main() -> None:
    whole = parse_published()
    assert all(whole[name].max() <= MAXIMA[name] for name in MAXIMA)
    np.save(HERE / "adult.npy", whole)
    np.save(HERE / "dealt.npy", permuted(whole).astype(np.uint16))
    for name in ("adult.npy", "dealt.npy"):
        print(name, _digest(name))


if __name__ == "__main__":
    main()
