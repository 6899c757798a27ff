"""Figures 1-5 of the R-ADMM paper on Adult: CSV, SVG, and a text that says what agrees and what does not."""

from __future__ import annotations

from distadmm.flags import entering
from distadmm.graphs.figures import demand

entering(__name__)

from collections.abc import Sequence
from pathlib import Path

from distadmm.errors import DONE, require
from distadmm.files import write_csv, write_text
from distadmm.flags import flag, parse
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.structs import struct

FIGURES = ("1a", "1b", "1c", "2", "3", "4", "5")
PROG = "distadmm.papers.radmm"


@struct
class Options:
    flags_title = "reproduce radmm"

    figure: str | None = flag(None, help="which: 1a, 1b, 1c, 2, 3, 4 or 5", choices=FIGURES)
    all: bool = flag(False, help="every figure")
    quick: bool = flag(False, help="two runs a private curve instead of ten")
    runs: int | None = flag(None, help="runs a private curve (default: 10, with --quick 2)", at_least=1)
    out: str | None = flag(None, help="directory (default: runs/reproduce-radmm-<date>-<time>)")
    force: bool = flag(False, help="replace a directory that is not empty")

    def __post_init__(self) -> None:
        require(self.figure or self.all, f"give --figure NAME ({', '.join(FIGURES)}) or --all")

    @property
    def seeds(self) -> int:
        return self.runs or (2 if self.quick else 10)


def main(argv: Sequence[str] | None = None) -> int:
    return launch(PROG, lambda words: parse(PROG, __doc__ or "", [Options], words)[0], work, argv)


def work(options: Options, world: World) -> int:
    from distadmm.papers.radmm_arms import arms, trace

    world.on_root(demand)
    folder = Path(
        world.on_root(lambda: str(claim_directory(options.out, "reproduce-radmm", force=options.force)))
    )
    for figure in FIGURES if options.all else (str(options.figure),):
        items = arms(figure, options.seeds)
        traces = world.share_out(trace, items)
        if traces is not None:
            _write(folder, figure, [(arm, seed, found) for (arm, seed), found in zip(items, traces)])
    return DONE


def _write(folder: Path, figure: str, found: list) -> None:
    from distadmm.papers import radmm_figures, radmm_text

    rows = [
        (arm.label, arm.algorithm, arm.nodes, seed, t, loss, traced.error, traced.bound)
        for arm, seed, traced in found
        for t, loss in enumerate(traced.loss)
    ]
    header = ("curve", "algorithm", "nodes", "seed", "t", "L", "test_error_at_end", "P_published")
    write_csv(folder / f"figure-{figure}.csv", header, rows)
    curves = radmm_text.summarise(found)
    radmm_figures.draw(figure, curves, folder / f"figure-{figure}.svg")
    text = radmm_text.text(figure, curves)
    write_text(folder / f"figure-{figure}.md", text)
    print(text)
    print(f"written to {folder}\n", flush=True)


if __name__ == "__main__":
    from distadmm.papers.radmm import main as run

    raise SystemExit(run())
