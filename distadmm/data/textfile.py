"""The lines of a text file, plain or compressed, with their numbers."""

from __future__ import annotations

from pathlib import Path

from distadmm.errors import InputError, require

COMPRESSED = (".gz", ".bz2", ".xz")


def kind(path: Path) -> str:
    """The suffix that says how a file is read: of `rows.csv.gz` it is `.csv`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked."""
    try:
        if path.suffix.lower() == ".gz":
            import gzip

            content = gzip.decompress(path.read_bytes())
        elif path.suffix.lower() == ".bz2":
            import bz2

            content = bz2.decompress(path.read_bytes())
        elif path.suffix.lower() == ".xz":
            import lzma

            content = lzma.decompress(path.read_bytes())
        else:
            content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no file {path}; give an existing file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a readable file") from None
    except Exception as error:  # each packer has an error of its own for a damaged file
        raise InputError(
            f"cannot unpack {path}: {error}; the file is damaged or has the wrong suffix"
        ) from None
    require(content.strip(), f"{path} is empty; needed: a table with at least one row")
    return content


def read_text(path: Path) -> str:
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text; save the file as UTF-8") from None


def numbered_lines(lines: list[str]) -> tuple[list[str], list[int]]:
    """The lines that are not blank, and the number of each in the file."""
    numbers = [number for number, line in enumerate(lines, 1) if line and not line.isspace()]
    return [lines[number - 1] for number in numbers], numbers
