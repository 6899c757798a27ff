"""Figures of the papers, made again: python -m distadmm reproduce {radmm,sharing,ias,funnel,istdp} ...

mpiexec -n 4 python -m distadmm reproduce PAPER ...     shared out to the ranks, the same bits
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distadmm.errors import DONE, USAGE
from distadmm.files import examples
from distadmm.graphs.figures import demand
from distadmm.papers import panels
from distadmm.ranks.launch import told_if_long, with_flags
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory

# File, title, and rows in parts, which rank 0 has.
Made = tuple[str, str, panels.Figure, Iterable[list[panels.Row]] | None]
PAPERS = {
    "radmm": "X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM",
    "sharing": "Y. Hu, P. Liu, L. Kong, D. Niu: Learning Privately over Distributed Features",
    "ias": "Y. Jin, L. Lai: Optimal Accuracy-Privacy Trade-off of Inference as Service",
    "funnel": "L. Chen et al.: An Expectation-Maximization Relaxed Method for Privacy Funnel",
    "istdp": "W. Yuan, D. Peng: Iterative shrinkage-thresholding with differential privacy",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in PAPERS:
        return importlib.import_module(f"distadmm.papers.{words[0]}").main(words[1:])
    if not words or words[0] in ("-h", "--help"):
        titles = "\n".join(f"  {name:<8} {title}" for name, title in PAPERS.items())
        print(__doc__, f"{titles}\n\n{examples('reproduce')}", sep="\n")
        return DONE if words else USAGE
    print(f"distadmm reproduce: no paper {words[0]!r}; known: {', '.join(PAPERS)}", file=sys.stderr)
    return USAGE


def reproduce(
    paper: str, doc: str | None, options: type, figures: Callable[[Any, World], Iterator[Made]]
) -> Callable[..., int]:
    """The command of one paper: its flags are read, a directory is claimed, and its figures are published there."""

    prog = f"distadmm reproduce {paper}"

    def begin(given: Any, world: World) -> int:
        world.on_root(demand)
        folder = world.on_root(lambda: claim_directory(given.out, f"reproduce-{paper}", force=given.force))
        with told_if_long(prog, "making figures; what each shows is told when it is made", world.is_root):
            fill(folder, figures, given, world)
        if world.is_root:
            print(f"written to {folder}")
        return DONE

    return with_flags(prog, doc, options, begin)


def fill(folder: Path, figures: Callable[[Any, World], Iterator[Made]], given: Any, world: World) -> None:
    """Called by all ranks, which share out the work; rank 0 has the rows."""
    for stem, title, figure, parts in figures(given, world):
        if world.is_root:
            rows = [row for part in parts or () for row in part]
            panels.publish(folder / stem, title, figure, rows, panels.QUICK if given.quick else "")


def table(head: Iterable[str], lines: Iterable[Iterable[Any]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    names = list(head)
    yield _cells(names)
    yield "|" + "---|" * len(names)
    yield from map(_cells, lines)


def _cells(line: Iterable[Any]) -> str:
    return "| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in line) + " |"
