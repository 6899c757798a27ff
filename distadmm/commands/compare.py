"""Every private method under one budget, on one graph, against one trust: what each spends, and what its nodes get.

python -m distadmm compare --topology ring:16 --data adult --epsilon 0.25 --adjacency replace --trust coalition:1
python -m distadmm compare ... --forecast        on made-up tables alone: nothing is spent, methods are ranked
python -m distadmm compare ... --algorithm mine.py

A row a method: every registered one that has a private form, and files of yours; names given by --algorithm take their
place.  Losses are those of the nodes' own models on public test rows.  Each method also runs on made-up tables of the
same number of rows and columns, numbers and categories in turn: what it loses there is its forecast, which reads
nothing.  Constants are chosen by rules that read public facts; nothing is tuned on private rows, and every run on them
is charged to their account like any other.
The same command goes on where it stopped; other flags go to the runs.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, find, names
from distadmm.commands import grid, report, sweep
from distadmm.commands.shape import ShapeOfNodes, shape
from distadmm.data import synthetic
from distadmm.errors import require
from distadmm.files import read_json, write_npz
from distadmm.flags import fields_of, flag, flag_group, parse
from distadmm.graphs.topology import load_changing
from distadmm.methods.forecasts import Forecast, cell, interval, margin, ranked
from distadmm.privacy.accounting.statements import READINGS, exactly, rounded_up
from distadmm.privacy.accounting.trust import TOLD, Trust
from distadmm.ranks.launch import command
from distadmm.ranks.world import World
from distadmm.run.groups import ADJACENCIES

PROG = "distadmm compare"
FORECASTS = 4  # runs of each method, each on a made-up table of its own
LARGEST = 5e7  # numbers in a table that is made up
_TEST_ROWS = 5000
_OF_ROWS = {  # flags that say which rows and how they are read: made-up rows have none
    *("account", "rng", "test-data", "target", "labels", "schema", "features", "stated", "sanitise"),
    "test-fraction",
}


@flag_group("compare")
class Options(ShapeOfNodes, sweep.Jobs):
    data: str | None = flag(None, help="the rows; with --forecast their shape alone is looked at")
    adjacency: str = flag(
        help="what one record may do; node: all rows of a node", choices=(*ADJACENCIES, "node")
    )
    trust: str = flag(help="against whom: any (all other nodes collude), coalition:C or centre")
    seeds: int = flag(5, help="runs of each method", at_least=1)
    algorithm: tuple[str, ...] = flag((), help="files of yours, which stand beside all; or names of methods")
    forecast: bool = flag(False, help="rank by runs on made-up tables, spend nothing, and stop")
    out: str | None = flag(None, help="folder of the runs (default: runs/compare-DATA-TOPOLOGY-EPSILON-...)")

    def __post_init__(self) -> None:
        Trust.parse(self.trust)
        require(
            self.data or (self.forecast and self.rows and self.columns),
            "rows are needed: give --data, or with --forecast alone --rows and --columns",
        )
        known = {Path(name).stem for name in self.methods}
        require(
            len(known) == len(self.methods),
            f"--algorithm {', '.join(self.algorithm)}: two methods of one name; rename the file",
        )

    @property
    def folder(self) -> Path:
        """The same for the same question: the same command goes on where it stopped, and another one beside it."""
        asked = (
            Path(self.data or "made-up").stem,
            self.topology,
            f"{self.epsilon:g}",
            self.adjacency,
            self.trust,
        )
        return Path(self.out or f"runs/compare-{'-'.join(map(grid.plain, asked))}")

    @property
    def methods(self) -> list[str]:
        """All that have a private form, or those named; and files."""
        named = [name for name in self.algorithm if not name.endswith(".py")]
        files = [name for name in self.algorithm if name.endswith(".py")]
        return (named or [name for name in names() if find(name).private]) + files


class Request(NamedTuple):
    options: Options
    runs: sweep.Request | None  # on the rows themselves; None: forecasts alone
    forecasts: sweep.Request
    size: tuple[int, int]  # of the tables that are made up for these


def read(argv: Sequence[str]) -> Request:
    if not argv or {"-h", "--help"} & set(argv):
        parse(PROG, __doc__ or "", [Options], ["--help"])
    flags = grid.from_words(argv, PROG)
    files = ",".join(word.partition("=")[2] for word in flags.pop("algorithm", []))
    for name, values in flags.items():
        require(
            len(values) == 1, f"--{name} has {len(values)} values; compare varies methods and seeds alone"
        )
        require(
            name not in {*sweep.OWN_BUSINESS, "seed"},
            f"--{name} is not for compare, which makes and resumes its runs itself; --seeds N gives each method N runs",
        )
    own = [word for name in fields_of(Options) for word in flags.pop(name.replace("_", "-"), [])]
    (options,) = parse(PROG, __doc__ or "", [Options], [*own, *([f"--algorithm={files}"] if files else [])])
    rest, out = {name: values[0] for name, values in flags.items()}, options.folder
    of_shape = [word for name, word in rest.items() if name not in _OF_ROWS]
    made_of = size(options)
    made_up = [{**table, "rng": "simulation"} for table in tables(options, made_of)]
    forecasts = _request(options, of_shape, out / "made-up", made_up)
    if options.forecast:
        return Request(options, None, forecasts, made_of)
    rows = [{"data": options.data}] * options.seeds
    return Request(options, _request(options, rest.values(), out, rows), forecasts, made_of)


def _request(
    options: Options, rest: Sequence[str] | Any, out: Path, seeds: Sequence[Mapping[str, Any]]
) -> sweep.Request:
    """The runs of all methods, one on the rows of each seed; the first of each is checked as the run itself would."""
    points, secret = [], 0
    for method in options.methods:
        shared = {name: getattr(options, name) for name in ("topology", "epsilon", "delta", "adjacency")}
        own = {"trust": options.trust} if has_trust(method) else {}
        flags: dict[str, Any] = {"algorithm": method, **shared, **own, "observe": "none"}
        if "rng" not in seeds[0] and options.rows_per_node:  # made-up rows are as few already
            flags["rows-per-node"] = options.rows_per_node
        for seed, rows in enumerate(seeds):
            words = (*(f"--{name}={value}" for name, value in {**flags, **rows}.items()), *rest)
            points.append(grid.Point(f"{Path(method).stem}_s{seed}", (*words, f"--seed={seed}")))
        secret += len(seeds) * sweep.spends("radmm", sweep.checked("radmm", points[-1].words))
    kept = {name: getattr(options, name) for name in fields_of(sweep.Jobs)}
    return sweep.Request(sweep.Options(out=str(out), **kept), points, secret)


def has_trust(method: str) -> bool:
    """Whether it is told whom to trust; others trust nobody."""
    return "trust" in fields_of(find(method).cls)


class Line(NamedTuple):
    """One method, over its runs."""

    name: str
    runs: list[dict[str, Any]]  # the summary of each; empty of one that did not come to its end

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [one for one in self.runs if one]

    def of(self, figure: str) -> Array:
        """A figure by run: NaN of one that did not come to its end, infinite of one that has none, having diverged."""
        told = [one.get(figure) if one else math.nan for one in self.runs]
        return np.array([math.inf if value is None else value for value in told])

    def mean(self, figure: str) -> float:
        return interval(self.of(figure))[0]

    def cell(self, figure: str, show: str = "{:.4f}", unit: float = 1.0) -> str:
        return cell(self.of(figure), show, unit)

    @property
    def loss(self) -> Forecast:
        """Of the nodes' own models, by table that was made up, or by run on the rows."""
        return Forecast(self.name, self.of("test_loss"), "whole runs", above="")

    def spent(self, trust: str) -> str:
        """By the run that has spent most."""
        return rounded_up(max(float(s["epsilons"].get(trust, math.inf)) for s in self.summaries))

    @property
    def mechanism(self) -> str:
        one = self.summaries[0]
        return f"{one['iterations']} iterations; {one['choice'] or one['note'] or 'as given'}; {one['statement']}"


def work(request: Request, world: World) -> int:
    options, runs, made_up, _ = request
    print("forecasts, by runs on made-up tables: they read no row and spend nothing", flush=True)
    code, forecasts = foretold(request, world)
    if runs is not None and code < 128:
        print(f"\nruns on {options.data}", flush=True)
        code = sweep.work(runs, world, lambda out, folders: [])
    lines = _lines(options, made_up if runs is None else runs)
    which = f"{FORECASTS} made-up tables" if runs is None else f"{options.seeds} seeds"
    print("\n".join(["", *told(options, which, lines, forecasts)]))
    return code


def foretold(request: Request, world: World) -> tuple[int, list[Forecast]]:
    """The forecast of each method, by whole runs on made-up tables, and how these ended."""
    options, made_up = request.options, request.forecasts
    make_up(tables(options, request.size), *request.size)
    code = sweep.work(made_up, world, lambda out, folders: [])
    return code, [line.loss for line in _lines(options, made_up)]


def size(options: Options) -> tuple[int, int]:
    """Rows of all nodes together, and columns; public numbers."""
    rows, columns = shape(options)
    rows *= load_changing(options.topology).union.n
    require(
        rows * columns <= LARGEST,
        f"{rows} rows of {columns} columns are more than are made up to forecast by ({LARGEST:g} numbers); give "
        "--forecast --rows --columns with a part of them",
    )
    return rows, columns


def tables(options: Options, size: tuple[int, int]) -> list[dict[str, Path]]:
    """Made-up rows and test rows of each forecast, by the flags that name them."""
    folder, ends = options.folder / "made-up", [f"{size[0]}x{size[1]}-{s}" for s in range(FORECASTS)]
    return [{"data": folder / f"rows-{end}.npz", "test-data": folder / f"test-{end}.npz"} for end in ends]


def make_up(tables: Sequence[Mapping[str, Path]], rows: int, columns: int) -> None:
    for run, paths in enumerate(tables):
        X, y = synthetic.any_table(rows + _TEST_ROWS, columns, run)
        for path, part in zip(paths.values(), (slice(_TEST_ROWS, None), slice(_TEST_ROWS))):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_npz(path, {"X": X[part], "y": y[part]})


def _lines(options: Options, request: sweep.Request) -> list[Line]:
    """What the runs of each method came to, as far as they are finished."""
    out, found = Path(request.options.out), []
    for name in (Path(method).stem for method in options.methods):
        folders = [point.folder(out) for point in request.points if point.name.rpartition("_s")[0] == name]
        runs = [read_json(f / "summary.json") if sweep.is_finished(f) else {} for f in folders]
        found.append(Line(name, runs))
    return found


def told(options: Options, which: str, lines: Sequence[Line], forecasts: list[Forecast]) -> list[str]:
    """The table, the least loss first, and what it says."""
    forecast, of = {one.of: one.cell for one in forecasts}, {line.name: line for line in lines}
    measured = ranked([line.loss for line in lines])
    shown = [of[one.of] for one in measured]
    columns = {
        "method": [line.name for line in shown],
        **{f"eps {trust}": [line.spent(trust) for line in shown] for trust in TOLD},
        "loss": [line.cell("test_loss") for line in shown],
        "worst": [line.cell("worst_test_loss") for line in shown],
        "error %": [line.cell("test_error", "{:.2f}", 100) for line in shown],
        "worst %": [line.cell("worst_test_error", "{:.2f}", 100) for line in shown],
        "messages": [f"{line.mean('messages'):.0f}" for line in shown],
        "MB": [f"{line.mean('bytes') / 1e6:.2f}" for line in shown],
        "WAN s": [line.cell("predicted_wan_seconds", "{:.1f}") for line in shown],
        "forecast": [forecast[line.name] for line in shown],
    }
    if set(columns["WAN s"]) <= {"-"}:
        del columns["WAN s"]
    said = [
        f"epsilon {exactly(options.epsilon)} at delta {exactly(options.delta)} ({options.adjacency}) on "
        f"{options.topology}, trust {options.trust}; {which}, mean ±95 %; losses and errors of the nodes' own models",
        *report.aligned(list(columns), [list(row) for row in zip(*columns.values())]),
        "",
        "eps T: epsilon of the same run against T: all other nodes together (any), any C of them (coalition:C), a "
        "reader who holds no node (centre)",
        *(f"{line.name}: {line.mechanism}" for line in shown),
    ]
    simulated = any(one["statement"] == "simulation" for line in lines for one in line.summaries)
    said += [READINGS["simulation"]] * (simulated and not options.forecast)
    missing = [line.name for line in lines if not line.summaries]
    said += [f"no run of {', '.join(missing)}; why stands above"] if missing else []
    said += _winner("forecast", ranked(forecasts))
    return said if options.forecast else said + _winner("measured", measured)


def _winner(what: str, order: list[Forecast]) -> list[str]:
    by = margin(order)
    return [f"{what}: {order[0].of}, {by.replace('its', 'whose', 1)}"] if by else []


main = command(PROG, read, work)
