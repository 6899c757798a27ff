"""Drawing, set up once: no display, text kept as text, no date, the same bytes for the same numbers.

matplotlib is imported when something is drawn, and what cannot be drawn without it says so in one line.
"""

import io
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distadmm.errors import require
from distadmm.files import write_bytes

MISSING = "matplotlib is missing; pip install 'distadmm[plot]'"
_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def possible() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def demand(what: str = "figures") -> None:
    require(possible(), f"{what} cannot be drawn: {MISSING}")


def pyplot(salt: str = "distadmm") -> Any:
    """matplotlib's drawing functions; a `salt` a figure keeps the names in SVGs apart that share a page."""
    demand()
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9})
    matplotlib.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    )
    from matplotlib import pyplot as plt

    return plt


def drawn(figure: Any, form: str = "svg", **how: Any) -> bytes:
    """The figure as a file's content; it is closed."""
    content = io.BytesIO()
    figure.savefig(content, format=form, metadata=_UNDATED.get(form), **{"bbox_inches": "tight", **how})
    from matplotlib import pyplot as plt

    plt.close(figure)
    return content.getvalue()


def save(figure: Any, path: Path, **how: Any) -> None:
    write_bytes(path, drawn(figure, path.suffix[1:].lower(), **how))


def grouped(rows: Iterable[Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """Rows by the values of `keys`, in order of appearance."""
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return dict(found)
