"""What can be wrong with a file: strategies that make a damaged one of a whole one."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

CANARY = "canary"  # a file that appears where code of an input was run
PYTHON = f"__import__('pathlib').Path('{CANARY}').touch()"


class Payload:
    """What a pickle makes when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {CANARY}",)


NUMBERS = (
    *(
        "",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-1e999",
        "1e-999",
        "0",
        "-0",
        "-1",
        "1e19",
        "9" * 400,
        "0x10",
        "1_000",
    ),
    *(
        "1,5",
        "１",
        "٣",
        "true",
        "None",
        "1e",
        "--1",
        "1.5.2",
        "2147483648",
        "9223372036854775808",
        "5e-324",
        "[1]",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\ufeff",
        "é",
        "\ud800",
        "a" * 5000,
        "../../elsewhere",
        "/dev/zero",
        "~",
        "%s%n",
        "{0.__class__}",
    ),
    *(
        PYTHON,
        f"$(touch {CANARY})",
        f"`touch {CANARY}`",
        "=cmd|'/c calc'!A1",
        "\r",
        "\n\n",
        "#",
        "'",
        '"',
        '"""',
    ),
)
BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\x1a",
    b"\n",
    b",",
    b'"',
    b"{",
    b"[",
    b"PK\x03\x04",
    b"\x93NUMPY",
)


@st.composite
def cut_or_changed(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes lost, flipped, put in, said twice."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        size = len(found)
        at, end = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
        how = draw(st.sampled_from(("cut", "flip", "drop", "insert", "twice", "few", "end")))
        if how == "cut":
            del found[at:]
        elif how == "flip" and at < size:
            found[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "drop":
            del found[at : min(end, at + 40)]
        elif how == "insert":
            found[at:at] = draw(st.sampled_from(BYTES) | st.binary(max_size=12))
        elif how == "twice":
            found[at:at] = found[at : min(end, at + 200)]
        elif how == "few":
            found[at : min(end, at + 12)] = draw(st.sampled_from(NUMBERS + TEXTS)).encode(
                errors="surrogatepass"
            )
        elif how == "end":
            found += draw(st.sampled_from(BYTES))
    return bytes(found)


@st.composite
def other_words(draw: st.DrawFn, content: bytes) -> bytes:
    """One to three of its words, or lines, in place of which stands something else."""
    text = content.decode(errors="replace")
    for _ in range(draw(st.integers(1, 3))):
        by = draw(st.sampled_from((None, "\n", ",", '"')))
        parts = text.split(by)
        if parts:
            at = draw(st.integers(0, len(parts) - 1))
            parts[at] = draw(st.sampled_from(NUMBERS + TEXTS))
            text = (by or " ").join(parts)
    return text.encode(errors="surrogatepass")


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.sampled_from(NUMBERS + TEXTS)
)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS[:8]), inner, max_size=3)
    ),
)


def _places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in items for place in _places(value, (*path, key)))]


@st.composite
def other_tree(draw: st.DrawFn, content: bytes) -> bytes:
    """A part of a JSON document is something else, is missing, or has another name."""
    tree = json.loads(content)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(_places(tree)))
        how, value = draw(st.sampled_from(("other", "other", "gone", "renamed"))), draw(_ANYTHING)
        if not place:
            tree = value if how == "other" else tree
            continue
        owner = tree
        for key in place[:-1]:
            owner = owner[key]
        if how == "other":
            owner[place[-1]] = value
        elif how == "gone":
            del owner[place[-1]]
        elif isinstance(owner, dict):
            owner[str(place[-1])[::-1]] = owner.pop(place[-1])
        if not isinstance(tree, dict | list):
            break
    return json.dumps(tree).encode(errors="surrogatepass")


@st.composite
def _array(draw: st.DrawFn, like: np.ndarray) -> np.ndarray:
    how = draw(st.sampled_from(("kind", "shape", "value", "object", "empty")))
    if how == "object":
        return np.array([Payload()], dtype=object)
    if how == "empty":
        return np.empty(draw(st.sampled_from(((0,), (0, 3), (3, 0), ()))), like.dtype)
    if how == "kind":
        kind = draw(st.sampled_from(("f4", "i1", "u8", "?", "c16", "U3", "S3", "M8[s]", "V4", "f2", ">f8")))
        return np.zeros(like.shape, kind)
    if how == "shape":
        shape = draw(st.lists(st.integers(0, 3), max_size=6))
        return np.zeros(shape, like.dtype)
    changed = like.copy().reshape(-1)
    if len(changed) and like.dtype.kind in "fi":
        values = (np.nan, np.inf, -np.inf, 1e300, -1.0, 0.5) if like.dtype.kind == "f" else (-1, 2**31, 2**62)
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.sampled_from(values))
    return changed.reshape(like.shape)


@st.composite
def other_arrays(draw: st.DrawFn, content: bytes) -> bytes:
    """An archive of arrays of which one is another, is missing, or would run code if it were unpickled."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    name = draw(st.sampled_from(sorted(arrays)))
    if draw(st.booleans()):
        arrays[name] = draw(_array(arrays[name]))
    else:
        arrays[draw(st.sampled_from(("X", "y", "extra", "a" * 300)))] = arrays.pop(name)
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


@st.composite
def other_array(draw: st.DrawFn, content: bytes) -> bytes:
    out = io.BytesIO()
    np.save(out, draw(_array(np.load(io.BytesIO(content)))), allow_pickle=True)
    return out.getvalue()


def of(path: Path) -> st.SearchStrategy[bytes]:
    """Damaged contents for a file that is whole; its suffix says what it holds."""
    content = path.read_bytes()
    found = [cut_or_changed(content), cut_or_changed(content), st.binary(max_size=200)]
    if path.suffix == ".npz":
        found += [other_arrays(content)] * 3
    elif path.suffix == ".npy":
        found += [other_array(content)] * 3
    else:
        found += [other_words(content)] * 2
    if path.suffix in (".json", ".jsonl"):
        first = content.splitlines()[0] + b"\n" if path.suffix == ".jsonl" else b""
        rest = content[len(first) :] if path.suffix == ".jsonl" else content
        if path.suffix == ".json":
            found += [other_tree(rest)] * 3
        else:
            found.append(other_tree(first).map(lambda head: head + b"\n" + rest))
    return st.one_of(found)
