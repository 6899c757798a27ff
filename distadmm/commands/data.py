"""`python -m distadmm data`: a schema proposed from sample rows that you state to be public; tables not bundled."""

from collections.abc import Sequence
from pathlib import Path

from distadmm.data.describe import propose
from distadmm.data.options import Rows
from distadmm.errors import require
from distadmm.files import write_text
from distadmm.flags import again, flag, flag_group, positional
from distadmm.ranks.launch import say

PROG = "distadmm data"


@flag_group("data describe")
class Describe:
    words: tuple[str, ...] = positional(
        "describe FILE", help="describe, and a CSV of sample rows; or add gisette", default=()
    )
    public: bool = flag(
        False, help="you state that these rows are public: that what is proposed may tell of them"
    )
    target: str | None = again(Rows, "target")
    from_: str | None = flag(None, help="gisette_scale, or an npz of MNIST fours and nines for a stand-in")
    test: str | None = flag(None, help="gisette_scale.t (default: beside the other)")
    licence: str = flag("not stated", help="of the files that are added; kept and shown with their hashes")
    out: str | None = flag(None, help="file to write (default: print)")

    def __post_init__(self) -> None:
        if self.words[:1] == ("add",):
            known = self.words[1:] == ("gisette",) and self.from_
            require(known, f"data {' '.join(self.words)}: what is added? Write: data add gisette --from FILE")
            return
        require(
            len(self.words) == 2 and self.words[0] == "describe",
            f"data {' '.join(self.words)}: what is to be done? Write: data describe FILE --public",
        )
        require(
            self.public,
            f"{self.words[1]}: bounds and domains read off private rows change with one record, and no epsilon holds "
            "with them; give a sample that may be published, and state so by --public",
        )


def described(asked: Describe) -> str:
    if asked.words[0] == "add":
        from distadmm.data import gisette

        known = gisette.add(Path(str(asked.from_)), Path(asked.test) if asked.test else None, asked.licence)
        return "\n".join(
            [*(f"{name}: {value}" for name, value in known.items()), f"kept in {gisette.shelf()}"]
        )
    text = propose(asked.words[1], asked.target)
    if asked.out:
        write_text(Path(asked.out), text)
    return asked.out or text.rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    return say(PROG, __doc__, Describe, described, argv)
