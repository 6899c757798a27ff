"""Which Python files that a run directory names may be run: who made the directory chose them.

A run that is started here signs its configuration and the files that it ran, under the key that this user keeps
beside the name of the data.  What is not signed so, or is another file by now, needs somebody's word: --run-code.
"""

import contextlib
import hmac
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distadmm.errors import InputError, require
from distadmm.files import read_bytes

WORD = "--run-code"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))


def named(config: Mapping[str, Any]) -> list[str]:
    """The Python files that a configuration names, as FILE.py or FILE.py:Name; nothing else is ever run of it."""
    found = [text for each in _texts(config) for text in (each, each.rpartition(":")[0])]
    return sorted({text for text in found if text.endswith(".py")})


def signature(config: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` keeps of the files that were run, for whoever goes on; empty where there were none."""
    files = [name for name in named(config) if Path(name).is_file()]
    if not files:
        return {}
    code = {name: _digest(Path(name)) for name in files}
    with contextlib.suppress(InputError):  # no place for a key: then nobody can vouch
        return {"code": code, "code_signed": _signed(config, code)}
    return {"code": code}


def require_vouched(place: Path, content: Mapping[str, Any], *, run_code: bool = False) -> None:
    """Refuse to run what the run directory's `config.json` names, unless this user ran that very file for it."""
    config = content.get("config")
    files = named(config) if isinstance(config, Mapping) else []
    if run_code or not files:
        return
    assert isinstance(config, Mapping)
    code, given = content.get("code"), str(content.get("code_signed", ""))
    known = isinstance(code, Mapping) and bool(given) and hmac.compare_digest(_signed(config, code), given)
    for name in files:
        path = Path(name)
        same = known and isinstance(code, Mapping) and path.is_file() and code.get(name) == _digest(path)
        changed = "it is not the file of that run any more" if known else "this user did not start it here"
        require(
            same,
            f"{place} names Python to be run, {name}, and {changed}; look at the file, and give {WORD} to run it",
        )


def _signed(config: Mapping[str, Any], code: Mapping[str, Any]) -> str:
    from distadmm.data.table import data_id, local_key

    content = json.dumps({"config": config, "code": code}, sort_keys=True, default=list)
    return data_id({"run.code": content}, local_key())


def _digest(path: Path) -> str:
    import hashlib

    return hashlib.sha256(read_bytes(path)).hexdigest()
