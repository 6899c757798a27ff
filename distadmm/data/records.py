"""The records of a text file, plain or packed: found in one pass, read piece by piece, so that nobody holds the file.

A record is a line that is not blank; in CSV files a quoted cell may hold line breaks, so there a record may be several.
"""

from __future__ import annotations

import csv
import importlib
import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.table import Array
from distadmm.errors import InputError, require
from distadmm.files import require_an_end

PIECE = 1 << 20  # bytes of a piece
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
_MARK = b"\xef\xbb\xbf"  # with which some programs begin UTF-8
_END = "\x1fend\x1f"  # stands behind a piece: parsed as a record of its own where no quoted cell is open

Found = Sequence[bytes] | Sequence[list[str]]  # lines as they stand, or the cells of records with quotes


class Piece(NamedTuple):
    """Some records that follow one another; offsets count bytes of the unpacked file."""

    start: int
    size: int
    first: int  # number of its first record, from 0
    line: int  # number of its first line, from 1
    quoted: bool


class Records:
    """`quotes`: cells may stand in quotes (CSV); `comments`: what follows # is none of the file's (libsvm).

    `known`: the pieces, where somebody has looked for them already.
    """

    def __init__(
        self,
        path: Path,
        *,
        quotes: bool = False,
        comments: bool = False,
        known: tuple[Piece, ...] | None = None,
    ):
        self.path, self.quotes, self.comments = path, quotes, comments
        self.delimiter = ""
        if quotes:
            with _Unpacked(path) as file:
                head = b""
                while not head.strip():
                    head = file.readline()
                    require(head, f"{path} is empty; needed: a table with at least one row")
            self.delimiter = max(",;\t", key=head.decode("utf-8", "replace").count)
        self.pieces = tuple(self._look()) if known is None else known
        self._firsts = [piece.first for piece in self.pieces]
        self.count = self.pieces[-1].first  # the last piece is empty, and stands behind the others

    # -- in which pieces the records stand --------------------------------------------------------------

    def _look(self) -> Iterator[Piece]:
        start, first, line, rest, content = 0, 0, 1, b"", False
        with _Unpacked(self.path) as file:
            last = False
            while not last:
                more = file.read(max(PIECE, len(rest)))  # twice as much where a quoted cell does not end
                last, raw = not more, rest + more
                if start == 0 and raw.startswith(_MARK):
                    start, raw = len(_MARK), raw[len(_MARK) :]
                content = content or bool(raw.strip())
                cut = len(raw) if last else raw.rfind(b"\n") + 1
                piece = Piece(start, cut, first, line, self.quotes and b'"' in raw[:cut])
                found = self._records(piece, raw[:cut], last)
                if found is None or not cut:
                    rest = raw
                    continue
                yield piece
                start, first, line = start + cut, first + len(found), line + _ends(raw[:cut])
                rest = raw[cut:]
        require(content, f"{self.path} is empty; needed: a table with at least one row")
        yield Piece(start, 0, first, line, False)

    def _records(self, piece: Piece, raw: bytes, last: bool = True) -> Found | None:
        """The records of a piece; None where its last one goes on behind it, and it is not the `last`."""
        if piece.quoted:
            parsed = self._parsed(piece, raw, last)
            return None if parsed is None else [row for row, _ in parsed]
        lines = raw.splitlines()
        if self.comments and b"#" in raw:
            lines = [line.partition(b"#")[0] for line in lines]
        return [line for line in lines if line and not line.isspace()]

    def _parsed(self, piece: Piece, raw: bytes, last: bool) -> list[tuple[list[str], int]] | None:
        """The cells of each record, and the number of its last line within the piece."""
        text = self.text(raw, piece.line)
        text += ("" if text.endswith(("\n", "\r")) else "\n") + f"{_END}\n"
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, skipinitialspace=True)
        try:
            rows = [(row, reader.line_num) for row in reader]
        except csv.Error as error:
            where = f"{self.path} line {piece.line - 1 + reader.line_num}"
            raise InputError(f"{where}: {error}; is a quote left open? Mend that line") from None
        if rows[-1][0] == [_END]:
            return [(row, line) for row, line in rows[:-1] if any(cell.strip() for cell in row)]
        begins = piece.line + (rows[-2][1] if len(rows) > 1 else 0)
        require(not last, f"{self.path} line {begins}: a quote opens that nothing closes; mend that line")
        return None

    def text(self, raw: bytes, line: int | None, numbers: Array | None = None) -> str:
        """These bytes, which begin on this line, or are lines of the records `numbers`."""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            before = _ends(raw[: error.start])
            place = self.line(int(numbers[before])) if numbers is not None else before + (line or 1)
            raise InputError(f"{self.path} line {place} is not UTF-8 text; save the file as UTF-8") from None

    # -- reading them -------------------------------------------------------------------------------------

    def batches(self, rows: Array | None = None, size: int = PIECE) -> Iterator[tuple[Array, Array, Found]]:
        """Records by number in the file's order, some `size` bytes at once: places in `rows`, numbers, records.

        Pieces without any of them are passed over; a packed file is unpacked up to the last.
        """
        rows = np.arange(self.count) if rows is None else np.asarray(rows)
        order = np.argsort(rows, kind="stable")
        numbers = rows[order]
        edges = np.searchsorted(numbers, self._firsts).tolist()
        held: list[Any] = []
        begin = weight = 0
        quoted = False
        with _Unpacked(self.path) as file:
            for piece, low, high in zip(self.pieces, edges, edges[1:]):
                if low == high:
                    continue
                if held and (quoted != piece.quoted or weight >= size):
                    yield order[begin:low], numbers[begin:low], held
                    held, weight, begin = [], 0, low
                quoted = piece.quoted
                file.seek(piece.start)
                found = self._records(piece, file.read(piece.size)) or []
                wanted = (numbers[low:high] - piece.first).tolist()
                require(wanted[-1] < len(found), f"{self.path} was changed while it was read; start again")
                held += found if len(wanted) == len(found) else [found[i] for i in wanted]
                weight += piece.size * len(wanted) // len(found)
        if held:
            yield order[begin:], numbers[begin:], held

    def cells(self, numbers: Array, found: Found) -> list[list[str]]:
        if isinstance(found[0], list):
            return found  # type: ignore[return-value]
        lines = self.text(b"\n".join(found), None, numbers).split("\n")  # type: ignore[arg-type]
        return [line.split(self.delimiter) for line in lines]

    def line(self, number: int) -> int:
        """The line on which the record of this number ends."""
        piece = self.pieces[bisect_right(self._firsts, number) - 1]
        with _Unpacked(self.path) as file:
            file.seek(piece.start)
            raw = file.read(piece.size)
        at = number - piece.first
        if piece.quoted:
            return piece.line - 1 + (self._parsed(piece, raw, True) or [])[at][1]
        kept = [i for i, one in enumerate(raw.splitlines()) if self._records(piece, one)]
        return piece.line + kept[at]


def _ends(raw: bytes) -> int:
    return raw.count(b"\n") or raw.count(b"\r")


class _Unpacked:
    """A file to be read forwards, whose errors are told in one line."""

    def __init__(self, path: Path):
        require_an_end(path)
        self.path = path

    def __enter__(self) -> _Unpacked:
        packer = PACKED.get(self.path.suffix.lower())
        opened = importlib.import_module(packer).open if packer else open
        self._file = self._told(lambda: opened(self.path, "rb"))
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        return self._told(lambda: self._file.read(size))  # type: ignore[no-any-return]

    def readline(self) -> bytes:
        return self._told(self._file.readline)  # type: ignore[no-any-return]

    def seek(self, start: int) -> None:
        self._told(lambda: self._file.seek(start))

    def _told(self, call: Any) -> Any:
        try:
            return call()
        except FileNotFoundError:
            raise InputError(f"no file {self.path}; give an existing file") from None
        except OSError as error:
            if error.strerror is None:  # gzip's own
                raise self._damaged(error) from None
            raise InputError(f"cannot read {self.path}: {error.strerror}; give a readable file") from None
        except Exception as error:  # each packer has an error of its own for a damaged file
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"cannot unpack {self.path}: {error}; the file is damaged or has the wrong suffix")
