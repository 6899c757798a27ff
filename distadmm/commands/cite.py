"""`python -m distadmm cite`: BibTeX of the package and of the five papers it goes back to."""

from collections.abc import Sequence
from pathlib import Path

import distadmm
from distadmm.ranks.launch import say

PROG = "distadmm cite"
ENTRIES = Path(distadmm.__file__).parent / "data" / "citation.bib"


def main(argv: Sequence[str] | None = None) -> int:
    return say(PROG, __doc__, None, lambda _: ENTRIES.read_text().rstrip(), argv)
