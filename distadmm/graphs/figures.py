"""Drawing, set up once: no display, text kept as text, no date, the same bytes for the same numbers.

matplotlib is imported when something is drawn, and what cannot be drawn without it says so in one line.
"""

import io
import math
from collections import defaultdict
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distadmm.errors import require
from distadmm.files import write_bytes

MISSING = "matplotlib is missing; pip install 'distadmm[plot]'"
COLUMN = 3.4  # inches, the width of a column of a two-column paper
# Dark on white and apart in grey; what shares a colour differs in its dashes and its mark.
INKS = ("#111111", "#1b62a5", "#b84300", "#00734d", "#8b3d8f", "#7a6000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKS = "os^Dv<>pP*X"
_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def possible() -> bool:
    return find_spec("matplotlib") is not None


def demand(what: str = "figures") -> None:
    require(possible(), f"{what} cannot be drawn: {MISSING}")


def pyplot() -> Any:
    demand()
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "distadmm", "font.size": 9})
    matplotlib.rcParams.update({"pdf.fonttype": 42, "ps.fonttype": 42})  # whole fonts, which journals ask for
    matplotlib.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    )
    from matplotlib import pyplot as plt

    return plt


def apart(panels: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure for a notebook, and its axes: it shows itself, and leaves the user's matplotlib as it is."""
    demand()
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            return drawn(self, "png", dpi=110)

    figure = Shown(figsize=(width * panels, height), layout="constrained")
    axes = [figure.add_subplot(1, panels, 1 + i) for i in range(panels)]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
    return figure, axes


def ink(at: int) -> dict[str, Any]:
    """How the at-th line is told from the others, in black and white as well."""
    return {
        "color": INKS[at % len(INKS)],
        "ls": DASHES[at % len(DASHES)],
        "marker": MARKS[at % len(MARKS)],
        "mfc": "white" if at % 2 else INKS[at % len(INKS)],
    }


def column(rows: int = 1, columns: int = 1, height: float = 2.2, **how: Any) -> tuple[Any, Any]:
    """A figure as wide as a column of a paper, and its axes as a table of `rows` and `columns`."""
    plt = pyplot()
    plt.rcParams["font.size"] = 7
    return plt.subplots(rows, columns, figsize=(COLUMN, height), squeeze=False, layout="constrained", **how)


def in_plain_numbers(*axes: Any) -> None:
    """Of logarithmic axes (`xaxis`, `yaxis`) a few marks, written out, so that they fit a small panel."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    for axis in axes:
        low, high = sorted(axis.get_view_interval())
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        marks = [m * 10.0**e for e in powers for m in (1, 2, 5) if low <= m * 10.0**e <= high]
        few = marks[:: -(-len(marks) // 4)] if marks else []
        axis.set_major_locator(FixedLocator(few) if len(few) > 1 else MaxNLocator(2))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:g}"))


def logarithmic(axes: Any, side: str) -> None:
    """A logarithmic `side` ("x" or "y") of what is drawn, with numbers written out where powers of ten would be few."""
    getattr(axes, f"set_{side}scale")("log")
    low, high = getattr(axes, f"get_{side}lim")()
    if high < 100 * low:
        in_plain_numbers(getattr(axes, f"{side}axis"))


def save_for_paper(figure: Any, path: Path, mark: str = "") -> None:
    """PDF or SVG of exactly the size it has, that needs no fonts where it is read; `mark` is kept in the file."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "path"}):
        noted = {"Keywords": mark} if path.suffix == ".pdf" else {"Description": mark}
        metadata = {**_UNDATED[path.suffix[1:].lower()], **(noted if mark else {})}
        save(figure, path, bbox_inches=None, metadata=metadata)


def drawn(figure: Any, form: str = "svg", **how: Any) -> bytes:
    """The figure as a file's content; it is closed."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):  # names of files may be any bytes, and no font has half a character
        text.set_text(text.get_text().encode(errors="replace").decode())
    content = io.BytesIO()
    figure.savefig(content, format=form, **{"metadata": _UNDATED.get(form), "bbox_inches": "tight", **how})
    from matplotlib import pyplot as plt

    plt.close(figure)
    return content.getvalue()


def inline(figure: Any, salt: str) -> str:
    """The figure as an SVG element within a page, whose names no other figure has."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        text = drawn(figure).decode()
    return text[text.index("<svg") :]


def save(figure: Any, path: Path, **how: Any) -> None:
    write_bytes(path, drawn(figure, path.suffix[1:].lower(), **how))


def grouped(rows: Iterable[Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """Rows by the values of `keys`, in order of appearance."""
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return dict(found)
