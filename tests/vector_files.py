"""Reference-vector files: JSON, plain or compressed, with the inputs beside the expected values."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

BUNDLED = Path(__file__).with_name("vectors")


def folder(config: Any) -> Path:
    """Where to look: `--vectors PLACE`, a folder or one file, or the files kept beside the tests."""
    return Path(config.getoption("--vectors", default=None) or BUNDLED)


def load_all(place: Path) -> dict[str, Any]:
    """Every JSON file of the folder, or the one that it is, by name."""
    found = {}
    for path in [place] if place.is_file() else sorted([*place.glob("*.json"), *place.glob("*.json.xz")]):
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        found[path.name.removesuffix(".xz")] = json.loads(content)
    return found
