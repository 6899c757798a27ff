"""`python -m distadmm cite`: BibTeX of the package and of the five papers it goes back to."""

from pathlib import Path

import distadmm
from distadmm.ranks.launch import say

PROG = "distadmm cite"
ENTRIES = Path(distadmm.__file__).parent / "data" / "citation.bib"


main = say(PROG, __doc__, None, lambda _: ENTRIES.read_text().rstrip())
