"""Figures 1-8 and Table I of Jin and Lai's paper: CSV, SVG, and a text that says what agrees and what does not.

python -m distadmm reproduce ias --figure 8
"""

from functools import partial
from pathlib import Path

from distadmm.flags import flag, flag_group
from distadmm.papers.command import PAPERS, reproduce
from distadmm.papers.ias_figures import FIGURES as DRAWN
from distadmm.papers.ias_runs import FIGURES, RUNS, Item, items
from distadmm.papers.panels import QUICK, Row, publish
from distadmm.ranks.world import World
from distadmm.run.groups import Output


@flag_group("reproduce ias")
class Options(Output):
    figure: str = flag("all", choices=("all", *FIGURES), help="which figure, or table1")
    quick: bool = flag(False, help="fewer starts, steps and betas: to see that it works")


def work(options: Options, world: World, folder: Path) -> None:
    for name in FIGURES if options.figure == "all" else (options.figure,):
        parts = world.share_out(partial(_run, name), items(name, options.quick))
        if parts is not None:
            rows = [row for part in parts for row in part]
            title = "Table I" if name == "table1" else f"Figure {name}"
            stem, note = folder / title.lower().replace(" ", "-"), QUICK if options.quick else ""
            publish(stem, f"{title} of {PAPERS['ias']}", DRAWN[name], rows, note)


def _run(name: str, item: Item) -> list[Row]:
    return RUNS[name](*item)


main = reproduce("ias", __doc__, Options, work)
