"""What a network costs: families x sizes x graph seeds x data seeds x epsilon in one command.

python -m distadmm study topology --families ring er:p=0.3 star --sizes 16 32 --epsilon 1 4 --adjacency replace
python -m distadmm study topology --quick      one size, one epsilon, two seeds, half the iterations: a sketch
python -m distadmm study topology ... --algorithm radmm admm --no-tune     other flags go to all runs

A family is a generator without its size (`topology list`), a bundled network or a file.  Every run without noise tells
the iterations and the bytes to a gap, every run of an epsilon the loss of the nodes' own models on public test rows.
Into --out go the runs, study.csv (a line a run), ranking.csv, study.md and figures as PDF and SVG.  The same command
goes on where it stopped.  Noise is seeded and protects nobody (--rng secure: noise that does, and that spends).
"""

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from distadmm import radmm
from distadmm.commands import check, grid, study_numbers, study_report, sweep
from distadmm.errors import InputError, require, sense_of
from distadmm.files import finite, read_json, write_json
from distadmm.flags import again, fields_of, flag, flag_group, option, parse, positional
from distadmm.graphs import figures
from distadmm.graphs.facts import facts
from distadmm.graphs.topology import GENERATORS, load
from distadmm.methods.consensus.admm import ADMM
from distadmm.methods.consensus.penalty import Penalties
from distadmm.methods.consensus.rate import Setting, linear_rate
from distadmm.ranks.launch import command
from distadmm.ranks.world import World
from distadmm.run.config import Privacy
from distadmm.run.groups import ADJACENCIES
from distadmm.run.setup import prepare

PROG = "distadmm study"
FAMILIES = ("ring", "grid", "er:p=0.3", "ws", "ba", "regular", "star", "complete")
PREDICTED = "predicted.json"
_VARIED = ("topology", "seed", "data-seed")


@flag_group("study")
class Options(sweep.Jobs):
    what: str = positional("SUBJECT", help="what is studied: topology")
    families: tuple[str, ...] = flag(FAMILIES, help="networks, by generator (er:p=0.3), name or file")
    sizes: tuple[int, ...] = flag((16,), help="numbers of nodes", at_least=2)
    graph_seeds: tuple[int, ...] = flag((0, 1, 2), help="draws of each random network", at_least=0)
    data_seeds: tuple[int, ...] = flag(
        (0, 1, 2), help="deals of the rows, the same on all networks", at_least=0
    )
    epsilon: tuple[float, ...] = flag(
        (), help="budgets of the private runs (default: none are made)", above=0
    )
    adjacency: str | None = flag(None, help="what one record may do", choices=ADJACENCIES)
    algorithm: tuple[str, ...] = flag(("radmm",), help="names or files; each is ranked by itself")
    iterations: int = flag(100, help="of each run", at_least=2)
    gap: float = flag(1e-2, help="relative gap of the mean model to look for the first iteration at", above=0)
    quick: bool = flag(False, help="the first size, the first epsilon, two seeds, half the iterations")
    out: str = again(sweep.Options, "out", default="runs/study")
    list_: bool = again(sweep.Options, "list_")
    point: int | None = again(sweep.Options, "point", note="; tables and figures come of the whole command")

    def __post_init__(self) -> None:
        require(self.what == "topology", f"study {self.what!r} is not known; write: study topology")
        for name in ("families", "sizes", "graph_seeds", "data_seeds", "algorithm"):
            require(getattr(self, name), f"--{name.replace('_', '-')} is empty; give at least one value")
        require(
            not self.epsilon or self.adjacency,
            "--epsilon needs --adjacency: what one record may do matters, so there is no default: "
            f"choose one of {', '.join(ADJACENCIES)}",
        )


class Case(NamedTuple):
    """One run: what it is of, and the flags that make it."""

    family: str
    size: int
    topology: str
    graph_seed: int | None  # None: the network is not random
    data_seed: int
    algorithm: str
    epsilon: float | None
    point: grid.Point


class Request(NamedTuple):
    options: Options
    cases: list[Case]
    runs: sweep.Request


def network(family: str, size: int, seed: int | None) -> str:
    """The network of a family with so many nodes, as --topology takes it."""
    name, *more = family.split(":")
    if name not in GENERATORS:
        return family
    if name in ("grid", "torus"):
        side = max(a for a in range(1, math.isqrt(size) + 1) if size % a == 0)
        shape = f"{side}x{size // side}"
    elif name == "hypercube":
        require(size & (size - 1) == 0, f"hypercube has 2^D nodes, not {size}; give such --sizes")
        shape = str(size.bit_length() - 1)
    else:
        shape = f"{size // 2}:{size % 2}" if name == "barbell" else str(size)
    return ":".join([name, shape, *more, *([] if seed is None else [f"seed={seed}"])])


def _random(family: str) -> bool:
    name = family.partition(":")[0]
    return name in GENERATORS and "seed" in inspect.signature(GENERATORS[name]).parameters


def read(argv: Sequence[str]) -> Request:
    what, rest = argv[:1], argv[1:]
    if not argv or {"-h", "--help"} & set(argv):
        parse(PROG, __doc__ or "", [Options], ["--help"] if argv else [])
    flags = grid.from_words(rest, PROG)
    own = []
    for name, words in ((name, flags.pop(option(name)[2:], [])) for name in fields_of(Options)):
        several = isinstance(fields_of(Options)[name][0].default, tuple)
        given = [word.partition("=")[2] for word in words]
        own += [f"{option(name)}={','.join(given)}"] if several and words else words
    (options,) = parse(PROG, __doc__ or "", [Options], [*what, *own])
    for name, values in flags.items():
        require(
            name not in _VARIED, f"--{name} is what a study varies; give --families, --sizes or --data-seeds"
        )
        require(name not in sweep.OWN_BUSINESS, f"--{name} is not for a study, which makes its runs itself")
        require(
            len(values) == 1, f"--{name} has {len(values)} values; a study varies networks, seeds and epsilon"
        )
    shared = {name: values[0] for name, values in flags.items()}
    if options.quick:
        first = {name: getattr(options, name)[:1] for name in ("sizes", "epsilon")}
        first |= {name: getattr(options, name)[:2] for name in ("graph_seeds", "data_seeds")}
        options = replace(options, iterations=max(options.iterations // 2, 2), **first)
    cases = list(_cases(options, shared))
    _check(cases)
    private = [sweep.checked("radmm", case.point.words) for case in _one_each(cases) if case.epsilon]
    secret = sum(sweep.spends("radmm", flags) for flags in private)
    kept = ("out", "ranks", "jobs", "launcher", "list_", "point")
    asked = sweep.Options(**{name: getattr(options, name) for name in kept})
    return Request(options, cases, sweep.request(asked, [case.point for case in cases], 2 * secret))


def _cases(options: Options, shared: dict[str, str]) -> Iterator[Case]:
    """All combinations; in a sketch the n-th graph goes with the n-th deal alone."""
    sizes = {f: options.sizes if f.split(":")[0] in GENERATORS else (0,) for f in options.families}
    families = [(family, size) for family in options.families for size in sizes[family]]
    noisy = {name.replace("_", "-") for name in fields_of(Privacy)}  # flags that are for private runs
    for (family, size), algorithm in product(families, options.algorithm):
        seeds = list(product(options.graph_seeds if _random(family) else (None,), options.data_seeds))
        if options.quick and _random(family):
            seeds = list(zip(options.graph_seeds, options.data_seeds))
        for (graph_seed, data_seed), epsilon in product(seeds, (None, *options.epsilon)):
            topology = network(family, size, graph_seed)
            noise = {} if epsilon is None else {"epsilon": epsilon, "adjacency": options.adjacency}
            seeded = {} if epsilon is None or "rng" in shared else {"rng": "simulation"}
            seen = {} if epsilon is None or "observe" in shared else {"observe": "none"}
            told = {"algorithm": algorithm, "topology": topology, "iterations": options.iterations}
            told |= {**noise, **seeded, **seen, "seed": data_seed}
            fitting = [word for name, word in shared.items() if epsilon is not None or name not in noisy]
            words = (*(f"--{name}={value}" for name, value in told.items()), *fitting)
            name = f"{algorithm}_{topology}_d{data_seed}" + ("" if epsilon is None else f"_eps{epsilon:g}")
            point = grid.Point(grid.plain(name), words)
            yield Case(family, size, topology, graph_seed, data_seed, algorithm, epsilon, point)


def _one_each(cases: Sequence[Case]) -> list[Case]:
    """One case of each algorithm and budget: the networks and the seeds change no other flag."""
    return list({(case.algorithm, case.epsilon): case for case in reversed(cases)}.values())


def _check(cases: Sequence[Case]) -> None:
    """Whatever a run would refuse, before the first one."""
    for case in _one_each(cases):
        sweep.checked("radmm", case.point.words)
    for topology in dict.fromkeys(case.topology for case in cases):
        load(topology)
    names = [case.point.name for case in cases]
    twice = {name for name in names if names.count(name) > 1}
    require(
        not twice, f"two runs would be called {next(iter(sorted(twice)), '')}; give each family and seed once"
    )


def work(request: Request, world: World) -> int:
    options, cases, runs = request
    part = options.list_ or options.point is not None
    if not part:
        figures.demand("the figures of a study")
    code = sweep.work(runs, world, lambda out, folders: [])
    if part:
        return code
    out = Path(options.out)
    finished = [case for case in cases if sweep.is_finished(case.point.folder(out))]
    if code < 128 and finished:
        known = {topology: facts(load(topology)) for topology in {case.topology for case in finished}}
        rates = _predictions(options, finished)
        lines = [study_numbers.line(case, known[case.topology], options, rates) for case in finished]
        print("\n".join(["", *study_report.written(out, lines, options)]))
    return code


def _predictions(options: Options, cases: Sequence[Case]) -> dict[str, float | None]:
    """What `check` predicts for each network with the first deal of the rows, in a sketch of the first graphs alone.

    Kept, for it takes a while.
    """
    path = Path(options.out) / PREDICTED
    found: dict[str, float | None] = {}
    with sense_of(path):
        if path.exists():
            found = {name: rate and float(rate) for name, rate in read_json(path).items()}
    for case in cases:
        name = f"{case.algorithm} {case.topology}"
        wanted = not options.quick or case.graph_seed in (None, options.graph_seeds[0])
        if case.epsilon is None and wanted and name not in found:
            found[name] = finite(predicted_rate(case.point.words, case.topology))
            write_json(path, found)
    return found


def predicted_rate(words: Sequence[str], topology: str) -> float:
    """The factor an iteration by `check`'s spectrum at the optimum of these rows; NaN where it does not apply."""
    config: Any = radmm.PROGRAMME.read(list(words))
    if config.problem.loss not in ("logistic", "squared") or not isinstance(config.algorithm, Penalties):
        return math.nan
    node, algorithm = prepare(config, World()).node, config.algorithm
    if node.network.conditions is not None or (isinstance(algorithm, ADMM) and algorithm.tuned(node)):
        return math.nan
    solve = -(-config.loop.iterations // algorithm.phases)
    weights = algorithm.weights(solve, node)
    penalties = [step[:, 0] for step in (weights.eta, 2 * weights.dual)]
    pairs = algorithm.phases == 2
    setting = Setting(penalties[0], penalties[1], algorithm.proximal if pairs else None)
    try:
        (hessians,), _ = check.at_optimum(node.problem.objectives, "the rows")
    except InputError:  # a direction without curvature
        return math.nan
    return linear_rate(load(topology), hessians, setting) ** (0.5 if pairs else 1.0)


main = command(PROG, read, work)
