"""Figures 1-5 of the R-ADMM paper on Adult: CSV, SVG, and a text that says what agrees and what does not."""

from collections.abc import Sequence
from pathlib import Path

from distadmm.errors import require
from distadmm.flags import flag
from distadmm.papers.command import keep, reproduce, say
from distadmm.ranks.world import World
from distadmm.run.groups import Output
from distadmm.structs import struct

FIGURES = ("1a", "1b", "1c", "2", "3", "4", "5")


@struct
class Options(Output):
    flags_title = "reproduce radmm"

    figure: str | None = flag(None, help="which: 1a, 1b, 1c, 2, 3, 4 or 5", choices=FIGURES)
    all: bool = flag(False, help="every figure")
    quick: bool = flag(False, help="two runs a private curve instead of ten")
    runs: int | None = flag(None, help="runs a private curve (default: 10, with --quick 2)", at_least=1)

    def __post_init__(self) -> None:
        require(self.figure or self.all, f"give --figure NAME ({', '.join(FIGURES)}) or --all")

    @property
    def seeds(self) -> int:
        return self.runs or (2 if self.quick else 10)


def work(options: Options, world: World, folder: Path) -> None:
    from distadmm.papers.radmm_arms import arms, trace
    from distadmm.papers.radmm_figures import drawn, summarise, text

    for figure in FIGURES if options.all else (str(options.figure),):
        items = arms(figure, options.seeds)
        traces = world.share_out(trace, items)
        if traces is None:
            continue
        rows = [
            {
                "curve": arm.label, "algorithm": arm.algorithm, "nodes": arm.nodes, "seed": seed, "t": t, "L": loss,
                "test_error_at_end": traced.error, "P_published": traced.bound,
            }
            for (arm, seed), traced in zip(items, traces)
            for t, loss in enumerate(traced.loss)
        ]  # fmt: skip
        curves = summarise([(arm, found) for (arm, _), found in zip(items, traces)])
        keep(folder / f"figure-{figure}", rows, drawn(figure, curves))
        say(folder / f"figure-{figure}.md", text(figure, curves))


def main(argv: Sequence[str] | None = None) -> int:
    return reproduce("radmm", __doc__, Options, work, argv)
