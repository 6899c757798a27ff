"""Decentralised consensus on a graph: ADMM, M-ADMM, R-ADMM, MR-ADMM, Newton over a tree, and algorithms of your own."""

from __future__ import annotations

from distadmm.flags import started

if __name__ == "__main__":  # one BLAS thread a rank, before numpy is loaded
    raise SystemExit(started("distadmm.radmm"))

import importlib
import math
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from distadmm.algorithm import Array, Defaults, Node, find, names
from distadmm.errors import InputError, require
from distadmm.files import holding
from distadmm.flags import build, fields_of, unknown_flag, value_of
from distadmm.privacy.accounting.statements import loss_in_words
from distadmm.privacy.accounting.trust import TOLD, Trust
from distadmm.problems.losses import link_of
from distadmm.ranks.world import World, connect
from distadmm.run import ends, model, shell, shown
from distadmm.run.config import Choice, Config, Links, Loop, Privacy, Problem
from distadmm.run.observe import Measurement, Observer, OwnFigures, optimum, own_figures
from distadmm.run.running import Running, give_back, iterating
from distadmm.run.setup import Prepared, data_ids, loss_of, prepare
from distadmm.structs import mutable_struct

if TYPE_CHECKING:
    from distadmm.methods.consensus.private import Plan

_COUNTS = ("rows", "test_rows", "rows_dropped", "duplicates")


@mutable_struct
class Run(shown.Shown, shell.Outcome):
    """A finished run; on ranks other than 0 only `ended` and `iterations` are known."""

    config: Config | None = None
    models: Array | None = None  # one row a node
    optimum: float | None = None  # of the pooled problem; None where no process may see all rows
    reason: str = ""  # in words, where `ended` is not enough
    seconds: float = 0.0  # of protocol time, that before a resume included
    # Spent, by the node that has spent most; where `statement` is "simulation", what secret noise would spend.
    epsilon: float = float("inf")
    published_epsilon: float = float("inf")  # the same by the paper's bound
    epsilons: dict[str, float] = field(default_factory=dict)  # the same as fewer or more others collude
    statement: str = "no noise was asked for"  # certificate, odometer, simulation, or why there is no bound
    sentence: str = ""  # what may be said of its privacy, as its ledgers say it
    messages: int = 0  # of the protocol, all nodes together
    bytes: int = 0
    lost: int = 0  # messages that did not arrive
    told: dict[str, Any] = field(default_factory=dict)  # figures of the algorithm's own, for the summary
    history: list[Measurement] = field(default_factory=list)
    network: Any = None  # its graph, where it is known

    @property
    def model(self) -> Array:
        """The mean of the nodes' models."""
        assert self.models is not None
        return self.models.mean(axis=0)  # type: ignore[no-any-return]

    def column(self, name: str) -> Array:
        """One column of the history, as an array."""
        return np.array([getattr(line, name) for line in self.history])

    def __repr__(self) -> str:
        return shell.closing_words(self)


class Consensus(shell.Programme):
    kind, prog, listens, form = "radmm", "distadmm.radmm", True, Config

    def read(self, argv: Sequence[str]) -> Config:
        try:
            return super().read(argv)  # type: ignore[no-any-return]
        except InputError as error:
            flag, message = unknown_flag(str(error)), str(error)
            having = [name for name in names() if flag.replace("-", "_") in fields_of(find(name).cls)]
            if having:  # it is one of other algorithms
                chosen = value_of(argv, "--algorithm") or Choice().algorithm
                message = f"--algorithm {chosen} has no --{flag}; it is a flag of {', '.join(having)}"
            raise InputError(message) from None

    def description(self) -> str:
        return (
            f"{__doc__}\n\nalgorithms: {', '.join(names())}; their flags differ: --algorithm NAME --help\n"
            "start on 20 ranks:   mpiexec -n 20 python -m distadmm.radmm\n"
            "start on one:        python -m distadmm.radmm"
        )

    def groups(self, asked: dict[str, Any]) -> list[type]:
        return [Choice, Problem, Loop, Links, Privacy, find(asked.get("algorithm", Choice().algorithm)).cls]

    def title(self, options: Config) -> str:
        return Path(options.name).name.removesuffix(".py")  # also of an algorithm that is a file elsewhere

    def prepare(self, options: Config, world: World) -> Prepared:
        return prepare(options, world)

    def price(self, prepared: Prepared) -> Plan | None:
        if not prepared.config.privacy.wanted:
            with prepared.world.together():
                require(
                    not getattr(prepared.config.algorithm, "evaluate", None),
                    "--evaluate pays for an evaluation under noise; add --epsilon and --adjacency, or leave it out",
                )
                require(
                    not getattr(prepared.config.algorithm, "by_distance", False),
                    "--by-distance says what noise hides; add --epsilon and --adjacency, or leave it out",
                )
            return None
        return _house(prepared.config, "private").plan_of(prepared)  # type: ignore[no-any-return]

    def outlook(self, prepared: Prepared, price: Plan | None) -> str:
        return _house(prepared.config, "words").outlook(prepared, price)  # type: ignore[no-any-return]

    def describe(self, prepared: Prepared, price: Plan | None) -> dict[str, Any]:
        # Where records come and go, how many there are is private.
        hidden = _COUNTS if prepared.config.privacy.adjacency in ("add-remove", "node") else ()
        data = {k: v for k, v in prepared.description["data"].items() if k not in hidden}
        described = {"data_id": data_ids(prepared), **prepared.description, "data": data}
        return (
            described if price is None or price.penalty is None else {**described, "penalty": price.penalty}
        )

    def solve(self, prepared: Prepared, price: Plan | None, run: Running) -> Run:
        private = _house(prepared.config if price else None, "private")
        node = private.armed(prepared, price, run)
        release: Any = node.release
        try:
            outcome = execute(prepared, node, run)
        except BaseException:
            # A release and its guard know each other: a collector of garbage would come later.
            for ledger in release.books.ledgers if release.books else ():
                ledger.let_go()
            raise
        spent = private.settle(prepared, node)
        if spent is not None:
            outcome.epsilon, outcome.published_epsilon, outcome.statement = spent
            from distadmm.methods.consensus.worth import said_of

            outcome.epsilons = _by_trust(prepared, node, outcome.epsilon)
            outcome.sentence = said_of(node, prepared.config.privacy.delta)
        if spent is not None or run.account is not None:
            from distadmm.run.spending import leave

            owners, seeded = not prepared.source.pooled_allowed, prepared.config.privacy.rng != "secure"
            outcome.closing = leave(run, release.books.ledgers, owners=owners, seeded=seeded)
        outcome.said = _house(prepared.config, "words").said(prepared, price, node, outcome)
        return _summed_up(prepared, price, outcome, run)


PROGRAMME = Consensus()


def _by_trust(prepared: Prepared, node: Node, epsilon: float) -> dict[str, float]:
    """What was spent as others see it; `epsilon` where nothing depends on them.  Called by every rank."""
    from distadmm.privacy.accounting.kept import Kept

    release, privacy, world = cast(Any, node.release), prepared.config.privacy, prepared.world
    if hasattr(release, "against"):  # whose epsilon is that of what may be spent
        return {name: release.against(Trust.parse(name)) for name in TOLD}

    def price(events: tuple[Any, ...]) -> float:  # imported where it is worked out: one rank of a host
        from distadmm.privacy.accounting import accountant

        worth = accountant.epsilon if committed else accountant.adaptive_epsilon
        return worth(list(events), privacy.delta, cast(Any, privacy.adjacency))

    spent = {tuple(ledger.events) for ledger in release.books.ledgers} if math.isfinite(epsilon) else set()
    seen = {
        name: {tuple(event.against(Trust.parse(name)) for event in events) for events in spent}
        for name in TOLD
    }
    differs = {name for some in world.allgather([n for n in TOLD if seen[n] != spent]) for name in some}
    if not differs:
        return dict.fromkeys(TOLD, epsilon)
    committed = all(world.allgather(release.committed))
    kept = Kept("epsilon" if committed else "adaptive_epsilon", privacy.delta, privacy.adjacency)
    prices = world.each_once(
        price, [events for name in TOLD if name in differs for events in seen[name]], kept
    )
    here = {name: max((prices[events] for events in seen[name]), default=0.0) for name in differs}
    everywhere = world.allgather(here)
    return {name: max(one[name] for one in everywhere) if name in differs else epsilon for name in TOLD}


def _house(config: Config | None, module: str) -> Any:
    """`private` or `words` of the algorithm's own house; None: where runs without noise are at home."""
    house = Defaults.house if config is None else config.algorithm.house
    return importlib.import_module(f"{house}.{module}")


def execute(prepared: Prepared, node: Node, run: Running) -> Run:
    """Iterate to the end, or until a signal is heard, and gather what rank 0 keeps."""
    from distadmm.run.loop import Course, Loop

    config, flags = prepared.config, prepared.config.loop
    observer = Observer(node, prepared.world, prepared.test, loss=loss_of(config), exact=config.exact)
    course = Course(flags.iterations, flags.observe_every, flags.stop_tolerance, config.algorithm.phases)
    loop = Loop(config.algorithm, node, observer, run, course)
    with iterating(node.network.n_local):
        k, state = loop.go()
    found = Run(loop.ended, k, loop.began, observer.columns, loop.history, config=config)
    found.seconds, found.reason = loop.seconds, loop.reason
    found.strict = flags.strict and flags.stop_tolerance is not None
    found.told = config.algorithm.told(k, state, node)
    models = observer.gather(state.f)
    found.messages, found.bytes, found.lost = observer.traffic()
    carried = observer.on_edges()
    found.arrays = {} if carried is None else {"traffic.npz": carried}
    if prepared.world.broadcast(models is not None and not np.isfinite(np.vdot(models, models))):
        found.ended = ends.End.DIVERGED.word
    if found.ended == ends.End.DIVERGED.word:
        found.reason = _divergence(loop.history, observer, run) or loop.reason
    best = None
    if prepared.source.pooled_allowed and flags.observe_every and config.exact and not prepared.world.gone:
        best = optimum(node, observer)[1]
        at_means = observer.at_means()
    node.close()
    node.problem.forget()
    give_back(node.network.n_local)
    if models is None:
        return found
    found.models, found.optimum = models, best
    if best:  # a gap relative to nothing is none
        gaps = [float(value) / best - 1.0 for value in at_means]
        found.history = [line._replace(mean_model_gap=gap) for line, gap in zip(loop.history, gaps)]
    return found


def _divergence(history: list[Measurement], observer: Observer, run: Running) -> str:
    """Whose fault it is that there are no numbers any more: the penalties', where models grew; else a step's."""
    here = observer.world.gather((observer.world.dog.name, observer.node.members.tolist())) or []
    grown = [line.consensus_error for line in history if math.isfinite(line.consensus_error)]
    if observer.spoilt is None or max(grown, default=0.0) > 1e6 * max([1.0, *grown[:1]]):
        return (
            "the models are too large or no longer finite: with these penalties, on this network, it diverges"
        )
    k, nodes = observer.spoilt
    hosts = [name for name, members in here if {*members} & {*nodes}]
    return (
        f"no finite numbers after iteration {k} at {len(nodes)} of the nodes (the first: {nodes[0]}; {hosts[0]}), "
        "though models had not grown: a step of theirs failed, look at their rows and files"
        + (f"; what was saved before stays, {run.going_on}" if run.flags.checkpoint_every else "")
    )


def _summed_up(prepared: Prepared, plan: Plan | None, run: Run, running: Running) -> Run:
    """Summary, models and closing table, on rank 0."""
    words = _house(prepared.config, "words")
    if run.models is None:
        return run
    from distadmm.methods.consensus import words as consensus
    from distadmm.run.history import earlier

    test = prepared.test() if run.ended != ends.End.DIVERGED.word else None
    own = mean = OwnFigures()  # what public test rows say of the nodes' models, and of the mean of these
    if test is not None:
        own, mean = (own_figures(f, test, loss_of(prepared.config)) for f in (run.models, run.model[None]))
    last = run.history[-1] if run.history else None
    gap = earlier(running.folder, "mean_model_gap", run.iterations) if last is None else last.mean_model_gap
    measured = {"mean_model_gap": gap, **own._asdict(), "mean_model_test_error": mean.test_error}
    measured["mean_model_test_loss"] = mean.test_loss
    run.summary = {
        "algorithm": prepared.config.name,
        **{name: getattr(run, name) for name in shown.SUMMED_UP},
        "nodes": len(run.models),
        "ranks": prepared.world.size,
        **{name: None if math.isnan(figure) else figure for name, figure in measured.items()},
        "pooled_allowed": prepared.source.pooled_allowed,
        "observed": "all" if prepared.config.exact else "public",
        "hidden_test": bool(prepared.config.problem.test_fraction) and not prepared.config.exact,
        "test_rows": 0 if test is None else len(test[1]),
        "delta": prepared.config.privacy.delta,
        "adjacency": prepared.config.privacy.adjacency,
        "trust": getattr(plan, "trust", None)
        or str(getattr(prepared.config.algorithm, "trust", None) or "any"),
        "note": "; ".join(filter(None, (words.note(prepared, plan), words.beyond(prepared, run)))),
        "not_covered": words.not_covered(prepared, run),
        "penalty": None if plan is None else plan.penalty,
        "choice": "" if plan is None or plan.choice is None else plan.choice.words,
        "tuned": consensus.tuned(prepared),
        "predicted_wan_seconds": words.on_a_wide_area_network(prepared, run),
        **run.told,
    }
    run.arrays["models.npz"] = {"models": run.models, "mean": run.model}
    run.closing = [*words.closing(run.summary, run.optimum), *run.closing]
    run.descriptions = {model.FILE: _described(prepared, run)}
    return run


def _described(prepared: Prepared, run: Run) -> dict[str, Any]:
    source, loss = prepared.source, prepared.config.problem.loss
    return {
        "algorithm": prepared.config.name,
        "features": list(source.feature_names[: -1 if source.intercept else None]),
        "encoding": source.encoding(),
        "row_norm": source.clip,
        "intercept": "inside" if source.intercept else None,
        "classes": list(source.classes),
        "loss": loss,
        "link": link_of(loss, loss_of(prepared.config)),
        "nodes": run.summary["nodes"],
        "arrays": {"coefficients": ["models.npz", "mean"], "each node's": ["models.npz", "models"]},
        **model.privacy(run.summary, run.sentence or loss_in_words(run.summary)),
    }


main = partial(shell.main, PROGRAMME)


def configure(algorithm: str = "radmm", **flags: Any) -> Config:
    """A configuration from keyword arguments named as the flags are."""
    classes = PROGRAMME.groups({"algorithm": algorithm})
    known = {name for cls in classes for name in fields_of(cls)}
    flags = {key if key in known else key.rstrip("_"): value for key, value in flags.items()}
    values = {k: str(v) if isinstance(v, Path) else v for k, v in {"algorithm": algorithm, **flags}.items()}
    return Config(*build(classes, values, source="solve"))


def solve(
    network: Any = None,
    rows: Any = None,
    /,
    *,
    out: str | Path | None = None,
    mpi: bool = False,
    **flags: Any,
) -> Run:
    """Run in this process, which hosts all nodes; keyword arguments are the command's flags.

    solve("admm", data="adult", topology="ring:20")             texts, as the command has them
    solve("ring:20", data="adult", algorithm="admm")            the same
    solve(graph, (X, y), algorithm="admm")                      a networkx graph; arrays
    solve(graph, frame, target="income", schema={...})          a DataFrame, and what is public of its columns
    solve("ring:4", [frame, frame, (X, y), frame])              rows of one node each, in the nodes' order

    `test_data` takes rows likewise.  Nothing is written unless `out` names a run directory.  `mpi`: all ranks of an
    mpiexec call this together, and share the nodes.
    """
    named = (
        "algorithm" if isinstance(network, str) and rows is None and "algorithm" not in flags else "topology"
    )
    for name, value in ((named, network), ("data", rows)):
        require(value is None or name not in flags, f"{name} is given twice, by its place and by its name")
        flags |= {} if value is None else {name: value}
    flags.setdefault("progress", "none")
    with holding(flags, ("topology", "data", "test_data", "schema")) as texts:
        config = configure(**texts, **({} if out is None else {"out": str(out)}))
        run = shell.in_process(PROGRAMME, config, connect() if mpi else None, keep=out is not None)
        assert isinstance(run, Run)
        from distadmm.graphs.topology import load_changing

        run.network = load_changing(config.problem.topology).union if run.models is not None else None
    return run
