"""Prices that were worked out before on this machine, found again by all that they depend on.

The noise that a budget allows takes seconds to minutes to work out, and depends on public numbers alone: penalties,
weights, dimension, budget.  A run that is started again, or another one with these numbers, finds it here.

Invariants that guard privacy
-----------------------------
* A price stands under the hash of what it is of, of the code that made it, of the versions of numpy and scipy and of
  the host, so what is found is what would be worked out, to the bit.
* A file that is not as it was written, under its own name, by this user and with this machine's key, is passed over,
  and the price is worked out anew: a folder that somebody hands over changes no noise.
* Noise is chosen by what is found here; the costs that ledgers and accounts keep beside their events, and what a run
  says when it begins and ends, may be found here too.  `ledger show` and `certificate` price events anew, and never
  read here.
"""

import contextlib
import hmac
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from distadmm.data.table import local_key
from distadmm.errors import InputError
from distadmm.files import write_bytes
from distadmm.structs import text_of

T = TypeVar("T")
ENVIRONMENT = "DISTADMM_PRICES"  # another folder, or `off`
_MOST = 4096  # files, some 2 MB; beyond it the oldest half goes


class Kept:
    """The prices of one question, `asked` with everything but the items that they are of."""

    def __init__(self, question: str, *asked: Any):
        self._asked = question, asked

    def find(self, items: Iterable[T]) -> dict[T, Any]:
        """Of those items that are known, the price; lists as tuples."""
        folder = _folder()
        if folder is None or not folder.is_dir():
            return {}
        found: dict[T, Any] = {}
        with contextlib.suppress(InputError):  # no place for a key: nothing can be believed
            key = local_key()
            found = {item: _read(folder / self._name(item), key) for item in items}
        return {item: price for item, price in found.items() if price is not None}

    def one(self, item: T, function: Callable[[T], Any]) -> Any:
        """`function(item)`, found or worked out and kept."""
        found = self.find([item])
        if not found:
            found = {item: function(item)}
            self.keep(found)
        return found[item]

    def keep(self, prices: Mapping[Any, Any]) -> None:
        """Write them down, as far as there is a place for it."""
        folder = _folder()
        if folder is None or not prices:
            return
        # No room, or not ours: it is worked out anew next time.
        with contextlib.suppress(OSError, InputError):
            key = local_key()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for item, price in prices.items():
                text = json.dumps(price, default=lambda array: array.tolist()).encode()
                name = self._name(item)
                write_bytes(folder / name, b"%b %b\n" % (_digest(key, name, text), text), secret=True)
            _thin_out(folder)

    def _name(self, item: Any) -> str:
        return sha256(text_of((_made_by(), self._asked, item)).encode()).hexdigest()


def _folder() -> Path | None:
    named = os.environ.get(ENVIRONMENT)
    if named == "off":
        return None
    return Path(
        named or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "distadmm", "prices")
    ).expanduser()


def _digest(key: bytes, name: str, text: bytes) -> bytes:
    return hmac.digest(key, name.encode() + text, "sha256").hex().encode()


def _read(path: Path, key: bytes) -> Any:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None  # of a folder that others write to
            digest, _, text = file.read().rstrip(b"\n").partition(b" ")
    except OSError:
        return None
    return _tuples(json.loads(text)) if text and digest == _digest(key, path.name, text) else None


def _tuples(value: Any) -> Any:
    if type(value) is not list:
        return value
    return tuple(map(_tuples, value) if list in map(type, value) else value)


def _thin_out(folder: Path) -> None:
    files = list(folder.iterdir())
    if len(files) > _MOST:
        for path in sorted(files, key=lambda path: path.stat().st_mtime)[: _MOST // 2]:
            path.unlink(missing_ok=True)


@cache
def _made_by() -> tuple[str, ...]:
    """The code of all prices and of what chooses noise by them, and what its bits hang on."""
    package, scipy = Path(__file__).parents[2], find_spec("scipy")
    files = sorted(path for room in ("privacy", "methods") for path in (package / room).rglob("*.py"))
    if scipy is not None and scipy.origin is not None:
        # Not loaded: it takes longer than all the rest.
        files.append(Path(scipy.origin).with_name("version.py"))
    code = sha256()
    for path in files:
        code.update(path.read_bytes())
    return code.hexdigest(), sys.version, np.__version__, os.uname().nodename
