"""Ask of an algorithm what every algorithm has to keep:

python -m distadmm.testing mine.py --rate 0.2
mpiexec -n 5 python -m distadmm.testing mine.py --rate 0.2
"""

from distadmm.flags import entering

entering(__name__)

import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distadmm import __version__
from distadmm.errors import DONE, FAILURE, require
from distadmm.files import examples
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.testing import contracts

PROG = "distadmm.testing"
USAGE = f"""usage: python -m {PROG} FILE.py|NAME [--flag value ...]

Ask of an algorithm, with flags of its own, what every algorithm has to keep: the same bits on any number of ranks,
exact resume, one release for each step that reads data, nothing on the wire but the stated messages."""


def read(words: list[str]) -> tuple[str, dict[str, str]]:
    if words[:1] in (["-h"], ["--help"], ["--version"]):
        print(f"distadmm {__version__}" if words == ["--version"] else f"{USAGE}\n\n{examples(PROG)}")
        raise SystemExit(DONE)
    require(words and not words[0].startswith("-"), "which algorithm? a name, or FILE.py; then its flags")
    require(len(words) % 2, f"{words[-1]!r} stands alone; needed: --flag value")
    keys = [word.removeprefix("--").replace("-", "_") for word in words[1::2]]
    return words[0], dict(zip(keys, words[2::2]))


def work(asked: tuple[str, dict[str, str]], world: World) -> int:
    name, flags = asked
    with tempfile.TemporaryDirectory() as place:
        folder = Path(world.broadcast(place))
        found = {
            "same_bits": _verdict(world, lambda: contracts.same_bits(name, world, **flags)),
            "exact_resume": _verdict(world, lambda: contracts.exact_resume(name, world, folder, **flags)),
        }
        world.barrier()
    for contract in contracts.ALONE:
        found[contract.__name__] = _verdict(world, lambda of=contract: world.is_root and of(name, **flags))  # type: ignore[misc]
    if world.is_root:
        for what, broken in found.items():
            print(f"{'broken' if broken else 'kept':<7} {what.replace('_', ' ')}{broken and ': '}{broken}")
    return FAILURE if any(found.values()) else DONE


def _verdict(world: World, contract: Callable[[], Any]) -> str:
    """What is broken, as rank 0 finds it; empty where nothing is."""
    broken = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the tables of the runs
            contract()
    except AssertionError as error:
        broken = str(error)
    return world.broadcast(broken)


if __name__ == "__main__":
    raise SystemExit(launch(PROG, read, work))
