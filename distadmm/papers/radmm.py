"""Figures 1-5 of the R-ADMM paper on Adult: CSV, SVG, and a text that says what agrees and what does not."""

from pathlib import Path

from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.papers.command import reproduce
from distadmm.papers.panels import QUICK, publish
from distadmm.ranks.world import World
from distadmm.run.groups import Output

FIGURES = ("1a", "1b", "1c", "2", "3", "4", "5")


@flag_group("reproduce radmm")
class Options(Output):
    figure: str | None = flag(None, help="which: 1a, 1b, 1c, 2, 3, 4 or 5", choices=FIGURES)
    all: bool = flag(False, help="every figure")
    quick: bool = flag(False, help="two runs a private curve instead of ten, and said on the figure")
    runs: int | None = flag(None, help="runs a private curve (default: 10, with --quick 2)", at_least=1)

    def __post_init__(self) -> None:
        require(self.figure or self.all, f"give --figure NAME ({', '.join(FIGURES)}) or --all")

    @property
    def seeds(self) -> int:
        return self.runs or (2 if self.quick else 10)


def work(options: Options, world: World, folder: Path) -> None:
    from distadmm.papers import radmm_arms, radmm_figures

    for name in FIGURES if options.all else (str(options.figure),):
        parts = world.share_out(radmm_arms.trace, radmm_arms.arms(name, options.seeds, options.quick))
        if parts is not None:
            rows = [row for part in parts for row in part]
            note = QUICK if options.quick else ""
            publish(folder / f"figure-{name}", f"Figure {name}", radmm_figures.FIGURES[name], rows, note)


main = reproduce("radmm", __doc__, Options, work)
