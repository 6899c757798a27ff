"""What is publicly known of a table, and by what: the one way by which anything of a table's form reaches a claim.

What is found in rows can change with one record, and with it what becomes of all others: two class names found as
{a, b} are {b, c} after one record went, and every label turns.  No epsilon holds for a run on such a fact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from distadmm.errors import require
from distadmm.structs import struct

ROWS, PUBLISHED = "rows", "published"  # found in these rows; stated, but found by others in rows like these
STATED = ("bounds", "mappings", "deal")  # what --stated may state where nothing here shows it


class Fact(NamedTuple):
    """`source`: flag, schema, header (of a file), convention, bundled, priced, published or rows."""

    value: Any
    source: str
    why: str = ""  # where rows had a say: what they decided, and the flag that states it instead


def mappings_of(columns: Iterable[str]) -> Fact:
    """What is known of the mappings that replaced these columns: nothing, unless somebody states it."""
    why = "a mapping of --sanitise may have been designed on these rows; --stated mappings states that it was not"
    names = tuple(columns)
    return Fact(names, ROWS, why) if names else Fact((), "flag")


@struct
class PublicFacts:
    classes: Fact  # their names, the order of which is that of y; empty where the target is a number
    columns: Fact  # number of columns
    bounds: Fact  # domains and bounds of the columns; None: they stand as they are
    norm: Fact  # bound on a row's norm; None: rows stay as long as they are
    mappings: Fact = Fact((), "flag")  # columns that mappings replaced, which were designed on some rows
    deal: Fact = Fact("iid", "flag")  # how rows of one table came to the nodes
    reader: Fact = Fact("", "flag")  # the file of a reader that is not this package's own

    @property
    def doubt(self) -> str:
        """Why nothing may be claimed; empty where every fact is public."""
        return "; ".join(f.why for f in self._all() if f.source in (ROWS, PUBLISHED))

    @property
    def without_reader(self) -> Self:
        """These facts, if the word of the reader is taken."""
        return replace(self, reader=Fact("", "flag"))

    def require_public(self, data: str) -> None:
        """Refuse, for a private run, what was found in the rows."""
        require(not self.doubt, f"--data {data}, which one record can change: {self.doubt}")

    def require_short_rows(self) -> None:
        """Refuse, for a private run, rows whose norm no flag bounds by 1."""
        require(
            self.norm.value is not None and self.norm.value <= 1,
            "privacy needs rows of norm at most 1, and whether they are is not read off them; leave out --no-clip",
        )

    def stating(self, names: Sequence[str]) -> Self:
        """These facts, those of `names` stated to be public by whoever asks for the run."""
        unknown = [name for name in names if name not in STATED]
        require(not unknown, f"--stated is {','.join(names)}; it states some of: {', '.join(STATED)}")
        return replace(self, **{name: getattr(self, name)._replace(source="flag", why="") for name in names})

    def stated_by(self, stated: Sequence[str], *, given_rows: bool) -> dict[str, str]:
        """By hypothesis, who states what no code sees in rows: that constants in them, or a number of them, are
        public."""
        sources = self.sources().values()
        known = "flag" if stated else next((s for s in ("schema", "bundled") if s in sources), "")
        by = dict.fromkeys(("public-weight", "public-divisor", "public-count"), "flag") if given_rows else {}
        return {**by, **({"public-rows": known} if known else {})}

    def _all(self) -> tuple[Fact, ...]:
        return self.classes, self.columns, self.bounds, self.norm, self.mappings, self.deal, self.reader

    def sources(self) -> dict[str, str]:
        """By what each fact is known, for a run's description."""
        names = ["classes", "columns", "bounds", "norm", "mappings", *["deal"] * (self.deal.value != "iid")]
        return {name: fact.source for name, fact in zip(names, self._all())}
