"""Names of the last release work at their old places and warn; what the pages show is where they are now."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from distadmm import MOVED
from tests.test_docs import PAGES

WARNS = "-Wignore", "-Walways::FutureWarning"
# As README, docs and docstrings of 0.1.0 showed them.
SHOWN = [
    "from distadmm import audit, radmm; audit.white_box",
    "from distadmm.check import Options, check",
    "from distadmm.data import open_source; open_source('tiny')",
    "from distadmm.data.vertical import align_parties, split_columns",
    "from distadmm.methods.consensus_rate import Setting, linear_rate",
    "from distadmm.privacy import accountant as a; a.epsilon",
    "from distadmm.privacy.events import KNorm",
    "from distadmm.privacy.ledger import Ledger; Ledger.resume",
    "from distadmm.privacy.mechanism import Noise, Secure",
    "from distadmm.topology import blocks, cut, facts, load, load_changing",
]


def run(code: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_every_old_name_stands_for_something() -> None:
    for place in MOVED.values():
        home, _, name = place.partition(":")
        found = importlib.import_module(home)
        assert not name or hasattr(found, name), place


@pytest.mark.parametrize("line", SHOWN)
def test_what_the_last_release_showed_works_and_warns(line: str) -> None:
    assert "the old name goes with the next release" in run(line, *WARNS)


def test_the_pages_show_no_old_name() -> None:
    """Their imports are run; of a name that is used as `module.name` at once, the name as well."""
    lines = []
    for page in PAGES:
        for block in re.findall(r"```(?:python|pycon)\n(.*?)```", page.read_text(), re.DOTALL):
            imports = re.findall(r"^(?:>>> )?((?:from|import) distadmm.*)$", block, re.MULTILINE)
            lines += imports
            for name in re.findall(r"\b(?:import|as) (\w+)$|, (\w+)$", "\n".join(imports), re.MULTILINE):
                word = "".join(name)
                lines += [f"{word}.{of}" for of in re.findall(rf"(?<![.\w]){word}\.(\w+)\(", block)]
    assert len(lines) > 20
    run("\n".join(dict.fromkeys(lines)), "-Werror::FutureWarning")
