"""Figures 2-8 and Table I of Jin and Lai's paper: CSV, SVG, and a text that says what agrees and what does not.

python -m distadmm reproduce ias --figure 8
mpiexec -n 4 python -m distadmm.papers.ias --figure all       shared out to the ranks, the same bits
"""

from distadmm.flags import entering

entering(__name__)

from collections.abc import Sequence
from pathlib import Path

from distadmm.errors import DONE, require
from distadmm.files import write_csv, write_text
from distadmm.flags import flag, parse
from distadmm.papers.ias_runs import FIGURES, RUNS, Item, Row, items
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.structs import struct

PROG = "distadmm.papers.ias"


@struct
class Options:
    flags_title = "reproduce ias"
    figure: str = flag("all", choices=("all", *FIGURES), help="which figure, or table1")
    quick: bool = flag(False, help="fewer starts, steps and betas: to see that it works")
    out: str | None = flag(None, help="directory (default: runs/reproduce-ias-<date>-<time>)")
    force: bool = flag(False, help="replace a directory that is not empty")


def figures(
    names: Sequence[str], out: str | Path, quick: bool = False, world: World | None = None
) -> dict[str, str]:
    """Make the figures `names` in the directory `out`; their texts, on rank 0."""
    from distadmm.graphs.figures import demand
    from distadmm.papers.ias_figures import draw
    from distadmm.papers.ias_text import text

    world = world or World()
    unknown = [name for name in names if name not in FIGURES]
    require(not unknown, f"no figure {unknown[:1]}; choose from: {', '.join(FIGURES)}")
    world.on_root(demand)
    texts: dict[str, str] = {}
    for name in names:

        def run(item: Item, name: str = name) -> list[Row]:
            return RUNS[name](*item)

        parts = world.share_out(run, items(name, quick))
        if parts is None:
            continue
        rows = [row for part in parts for row in part]
        stem = name if name == "table1" else f"figure-{name}"
        texts[name] = text(name, rows)
        write_csv(Path(out) / f"{stem}.csv", list(rows[0]), (list(row.values()) for row in rows))
        draw(name, rows, Path(out) / f"{stem}.svg")
        write_text(Path(out) / f"{stem}.txt", texts[name])
    return texts


def work(options: Options, world: World) -> int:
    folder = Path(
        world.on_root(lambda: str(claim_directory(options.out, "reproduce-ias", force=options.force)))
    )
    names = FIGURES if options.figure == "all" else (options.figure,)
    for told in figures(names, folder, options.quick, world).values():
        print(told)
    if world.is_root:
        print(f"written to {folder}")
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    return launch(PROG, lambda words: parse(PROG, __doc__ or "", [Options], words)[0], work, argv)


if __name__ == "__main__":
    from distadmm.papers.ias import main as run

    raise SystemExit(run())
