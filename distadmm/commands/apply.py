"""`python -m distadmm apply`: a column of new rows, sanitised by the mapping that a run of ias or funnel designed.

Each row's symbol is drawn afresh from the system's randomness; `--seed` repeats draws, and then who knows the seed may
undo part of what they hide.  A model that was trained with --sanitise COLUMN=... scores the file as it is written.
"""

from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.mapping import Mapping, generator, symbol_names
from distadmm.data.session import cell_file
from distadmm.errors import require, sense_of
from distadmm.files import require_another, write_csv
from distadmm.flags import flag, flag_group, positional
from distadmm.privacy.noise.sources import Secure
from distadmm.ranks.launch import say
from distadmm.run import kinds, model

PROG = "distadmm apply"


class _Unrepeatable:
    """Uniform numbers of the system's randomness."""

    def random(self, count: int) -> np.ndarray:
        return (Secure().at(0, 0, 0).words(count) >> np.uint64(11)) * 2.0**-53  # type: ignore[attr-defined]


@flag_group("apply")
class Apply:
    run: str = positional(
        "RUN", help="directory of a finished run of ias or funnel, or one of its mapping files"
    )
    data: str = flag("", help="CSV with the rows to sanitise")
    column: str | None = flag(
        None, help="the column to replace (default: the one the mapping was designed for)"
    )
    mapping: str | None = flag(None, help="which mapping of the run, by the name of its file without .npz")
    out: str = flag("sanitised.csv", help="file to write: the rows with the column's symbols in its place")
    seed: int | None = flag(None, help="repeat the draws; hides nothing from who knows it")

    def __post_init__(self) -> None:
        require(self.data, "no rows to sanitise; give them by --data FILE")
        require_another(self.out, self.data)


def chosen(asked: Apply) -> Mapping:
    if Path(asked.run).is_file():
        return Mapping.load(asked.run)
    described = model.read(kinds.opened(asked.run, "apply").path)
    with sense_of(described.path):
        files = {stem: file for stem, (file, _) in described.told["arrays"].items()}
    known = ", ".join(files)
    require(
        asked.mapping in files or (asked.mapping is None and len(files) == 1),
        f"{asked.run} has the mappings {known}; choose one by --mapping",
    )
    return Mapping.load(described.path.parent / files[asked.mapping or next(iter(files))])


def applied(asked: Apply) -> str:
    mapping = chosen(asked)
    column = asked.column or mapping.column
    require(column, "the mapping does not name its column; give it by --column")
    table = cell_file(Path(asked.data), targetless=True)
    cells = table.column(column)
    rng: Any = _Unrepeatable() if asked.seed is None else generator(asked.seed, column, 0)
    symbols = symbol_names(column, mapping.n_outputs)
    drawn = mapping.apply(np.array(cells, dtype=object).astype(str), rng)
    columns = table.texts()
    columns[column] = [symbols[symbol] for symbol in drawn]
    write_csv(Path(asked.out), table.header, list(zip(*columns.values())))
    what = f"{len(drawn)} rows with {column} as one of {mapping.n_outputs} symbols: {asked.out}"
    return f"{what}\n{mapping.leakage().text()}"


main = say(PROG, __doc__, Apply, applied)
