"""What each node and each coalition saw of a run, as files.

python -m distadmm transcript RUN [--collude 1+2,3+4]    from the bytes that a run kept
python -m distadmm transcript --algorithm radmm ...      by running again, in simulation, with a tap on the messages
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from distadmm import radmm
from distadmm.audit import gossip_views, masked_views, play, star
from distadmm.audit.play import Message, Recording, Solve
from distadmm.audit.views import View, arrays, coalition, view
from distadmm.errors import DONE, InputError, require, sense_of
from distadmm.files import read_json, write_json, write_npz
from distadmm.flags import fields_of, flag, flag_group, nearest, parse, unknown_flag
from distadmm.methods.consensus import private as protect
from distadmm.privacy.ledger import replay, shelves
from distadmm.privacy.noise.sources import Array, Simulation
from distadmm.ranks.launch import command
from distadmm.ranks.world import World
from distadmm.run import claim, kinds
from distadmm.run.config import Choice, Config, Links, Loop, Privacy, Problem
from distadmm.run.setup import Prepared, prepare

PROG = "distadmm transcript"
GOSSIP = "distadmm.methods.gossip"
WATERMARK = "SIMULATION: noise that a seed repeats; these messages protect nobody"


@flag_group("transcript")
class Coalitions:
    collude: tuple[str, ...] = flag(
        (), help="sets of nodes (sharing: parties, 0 the centre) that pool what they saw: 1+2,3+4+5"
    )


@dataclass
class Transcript:
    """Every message of a run, and what the solves asked for; one process hosts all nodes."""

    prepared: Prepared
    source: str  # where the messages come from
    simulated: bool
    messages: list[Message]
    solves: dict[int, Solve]
    recording: Recording | None  # None without noise
    shown: gossip_views.Shown | None = None  # of noisy gradients

    def view(self, members: Sequence[int]) -> View:
        """What `members` have when they pool it."""
        return view(members, self.prepared.node.network, self.messages, self.solves)


def configuration_of(folder: str | Path, verb: str = "transcript", *, run_code: bool = False) -> Config:
    """The configuration of a run directory of the consensus family, for one of the commands of `kinds`."""
    known = kinds.opened(folder, verb, run_code=run_code)
    table: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in known.config.items()}
    return radmm.configure(**{**table, "out": None})


def of_run(folder: str | Path, verb: str = "transcript", *, run_code: bool = False) -> Transcript:
    """The messages of a finished run: the stored bytes where noise cannot be drawn again."""
    folder = Path(folder)
    config = configuration_of(folder, verb, run_code=run_code)
    if not config.privacy.wanted:
        return of_flags(config)
    if config.algorithm.house == GOSSIP:
        return _of_gossip(config, folder)
    prepared = prepare(config, World())
    plan = protect.plan_of(prepared)
    assert plan is not None
    prepared = replace(prepared, node=plan.node)
    recording = stored(folder, prepared)
    asked = play.twin(config.algorithm, prepared.node, recording)
    simulated, source = recording.entries[0][0]["rng"]["mode"] == "simulation", f"bytes kept by {folder}"
    return Transcript(prepared, source, simulated, asked.messages, asked.solves, recording)


def _of_gossip(config: Config, folder: Path | None) -> Transcript:
    made = gossip_views.of_config(config, folder)
    source = "run again in simulation" if folder is None else f"bytes kept by {folder}"
    simulated = folder is None or config.privacy.rng == "simulation"
    return Transcript(made.prepared, source, simulated, made.messages, {}, None, made)


def stored(folder: Path, prepared: Prepared) -> Recording:
    """The sealed rows and the ledgers of a run directory."""
    node, phases = prepared.node, prepared.description["phases"]
    kept = replay.read_all(folder / "ledger")
    summary, made = folder / "summary.json", 0
    with sense_of(summary):
        if summary.is_file():
            made = int(read_json(summary)["iterations"])
            require(made >= 0, f"{summary} tells of {made} iterations; needed: 0 or more")
    iterations = made or max((k for _, k in kept), default=0)
    sealed = {}
    for k in range(1, iterations + 1, phases):
        rows = [kept.get((int(i), k)) for i in node.network.nodes]
        if any(row is None for row in rows):
            raise InputError(
                f"{folder} keeps no bytes of iteration {k}: a checkpoint forgets what was sent before it; "
                "run without --checkpoint-every, or let flags run it again in simulation"
            )
        sealed[k] = np.stack([np.frombuffer(row.payload) for row in rows if row is not None])
    recording = Recording(iterations, sealed, None, [])
    for found in shelves.of_nodes(folder / "ledger", node.network.nodes.tolist()).values():
        play.take_entries(recording, found)
    return recording


def of_flags(config: Config) -> Transcript:
    """Run `config` in this process, its noise repeatable, with every message kept."""
    require(
        not config.algorithm.tree,
        f"--algorithm {config.name} sums over a tree, and a transcript is of exchanges; give another one",
    )
    if config.privacy.wanted and config.algorithm.house == GOSSIP:
        return _of_gossip(config, None)
    if config.privacy.wanted:
        config = config.replace(rng="simulation")
    prepared = prepare(config, World())
    algorithm, iterations = config.algorithm, config.loop.iterations
    plan = protect.plan_of(prepared)
    if plan is None:
        asked, messages = _bare(prepared, iterations)
        return Transcript(prepared, "run again without noise", False, messages, asked, None)
    prepared = replace(prepared, node=plan.node)
    run = iterations, Simulation(config.loop.seed), prepared.description["phases"]
    recording = play.record(algorithm, plan.node, plan.recipe, *run)
    assert recording.messages is not None
    solves = play.twin(algorithm, plan.node, recording).solves
    return Transcript(prepared, "run again in simulation", True, recording.messages, solves, recording)


def _bare(prepared: Prepared, iterations: int) -> tuple[dict[int, Solve], list[Message]]:
    """A run without noise: its own steps tell what the solves ask for."""
    problem = prepared.node.problem.anew()
    asked: dict[int, Solve] = {}
    argmin, n, now = problem.argmin, prepared.node.network.n_local, [0]

    class Clock(play.Unprotected):
        def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> float:
            now[0] = k
            return 0.0

    def noting(linear: Array, quadratic: Array, start: Array) -> Array:
        f = argmin(linear, quadratic, start)
        terms = np.array(linear), np.array(quadratic, dtype=float), np.ones((n, 1))
        asked[now[0]] = Solve(*terms, np.array(f))
        return f

    problem.argmin = noting  # type: ignore[method-assign]
    node = play.fresh(prepared.node, problem=problem, release=Clock())
    _, messages = play.run_through(prepared.config.algorithm, node, iterations)
    return asked, messages


def write(found: Transcript, folder: Path, coalitions: Sequence[Sequence[int]] = ()) -> dict[str, Any]:
    """One file a node, one a coalition, and an index of them; the index."""
    network, phases = found.prepared.node.network, found.prepared.description["phases"]
    width = found.prepared.node.problem.dimension
    lines = []
    for members in [[i] for i in range(network.n_local)] + [list(c) for c in coalitions]:
        seen = found.view(members)
        stem = "node" if len(members) == 1 else "coalition"
        name = "-".join([stem, *(f"{m:04d}" for m in members)]) + ".npz"
        write_npz(folder / name, arrays(seen))
        sees = {"sees": list(seen.rows), "surrounds": list(seen.gradients)}
        lines.append({"file": name, "members": seen.members, **sees})
    head = ", and 32 bytes: the head of the sender's ledger" if found.recording else ""
    steps = [(m.iteration, _kind(m.iteration, phases, found), m.rows.shape[1]) for m in found.messages]
    index: dict[str, Any] = {
        "source": found.source,
        "watermark": WATERMARK if found.simulated else "",
        "nodes": network.n_local,
        "width": width,
        "message": f"one row of doubles{head}",
        "exchanges": [dict(zip(("iteration", "kind", "width"), step)) for step in steps],
        "solves": sorted(found.solves),
        "views": lines,
    }
    if (shown := found.shown) is not None:  # what the adversary of the run's trust has, whom `audit` plays
        whom = shown.adversary()
        write_npz(folder / "adversary.npz", shown.arrays(whom))
        index["adversary"] = {"file": "adversary.npz", "trust": shown.trust, "members": list(whom)}
        if shown.plan.recipe.pairwise:
            index["adversary"]["edges"] = "known" if shown.repeatable else "not kept"
    write_json(folder / "index.json", index)
    return index


def _kind(iteration: int, phases: int, found: Transcript) -> str:
    if iteration == 0:
        return "start"
    if found.solves and iteration > max(found.solves) + phases - 1:
        return "mixing"
    return "recycle" if phases == 2 and iteration % 2 == 0 else "solve"


def read(argv: Sequence[str]) -> dict[str, Any]:
    words = list(argv)
    folder = words.pop(0) if words and not words[0].startswith("-") else None
    own = {name.rstrip("_") for name in fields_of(Coalitions)}
    mine, rest = split_words(words, own)
    (options,) = parse(PROG, __doc__ or "", [Coalitions], mine) if mine else (Coalitions(),)
    if folder is None:
        if not rest or {"-h", "--help"} & set(rest):
            parse(PROG, __doc__ or "", [Coalitions, Choice, Problem, Loop, Links, Privacy], [*rest, "--help"])
        try:
            table = radmm.PROGRAMME.read(rest).table()
        except InputError as error:
            near = nearest(unknown_flag(str(error)), own)
            hint = InputError(f"{str(error).partition(';')[0]}; did you mean --{near}?")
            raise (hint if near else error) from None
        return {"folder": None, "collude": options.collude, "run_code": False, "table": table}
    known = parse(PROG, __doc__ or "", [Loop], rest)[0]
    table = {"out": known.out, "force": known.force}
    return {"folder": folder, "collude": options.collude, "run_code": known.run_code, "table": table}


def split_words(words: Sequence[str], own: set[str]) -> tuple[list[str], list[str]]:
    """The words of flags named in `own`, and the others."""
    mine: list[str] = []
    rest: list[str] = []
    into = rest
    for word in words:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_").removeprefix("no_")
            into = mine if name in own else rest
        into.append(word)
    return mine, rest


def work(asked: dict[str, Any], world: World) -> int:
    def alone() -> str:
        if asked["folder"] is not None:
            run = kinds.opened(asked["folder"], "transcript", run_code=asked["run_code"])
            if run.kind == "sharing":
                return _of_star(run, **asked["table"], collude=asked["collude"])
            if run.config.get("algorithm") == "masked":
                config = configuration_of(run.path, run_code=asked["run_code"])
                return _of_masked(config, run.path, **asked["table"], collude=asked["collude"])
        elif asked["table"].get("algorithm") == "masked":
            of = {name: asked["table"][name] for name in ("out", "force")}
            return _of_masked(radmm.configure(**asked["table"]), None, **of, collude=asked["collude"])
        if asked["folder"] is None:
            found = of_flags(radmm.configure(**asked["table"]))
        else:
            found = of_run(asked["folder"], run_code=asked["run_code"])
        sets = [coalition(text, found.prepared.node.network.n_local) for text in asked["collude"]]
        folder = claim.claim_directory(asked["table"]["out"], "transcript", force=asked["table"]["force"])
        return _table(write(found, folder, sets), folder)

    words = world.on_root(alone)
    if world.is_root:
        print(words)
    return DONE


def _of_star(run: kinds.RunDirectory, out: str | None, force: bool, collude: Sequence[str]) -> str:
    """A run of sharing: one file for the centre (member 0), one a party, one a coalition, and an index of them."""
    messages, parties, simulated = star.of_run(run)
    sets = [[m] for m in range(parties + 1)] + [coalition(text, parties + 1) for text in collude]
    folder = claim.claim_directory(out, "transcript", force=force)
    names = []
    for members in sets:
        stem = "coalition" if len(members) > 1 else "party" if members[0] else "centre"
        names.append("-".join([stem, *(f"{m:04d}" for m in members if m or len(members) > 1)]) + ".npz")
        write_npz(folder / names[-1], star.seen_by(messages, members))
    watermark = WATERMARK if simulated else ""
    index = {
        "source": f"{run.path}, made again",
        "watermark": watermark,
        "parties": parties,
        "messages": star.counts(messages),
        "views": [{"file": name, "members": list(members)} for name, members in zip(names, sets)],
    }
    write_json(folder / "index.json", index)
    lines = [f"from         {index['source']}" + (f" ({watermark})" if watermark else "")]
    for line in star.counts(messages):
        lines.append("messages     {messages} {kind} {way}, {numbers} numbers".format(**line))
    lines.append(f"views        {len(names)} files: {', '.join(names)}")
    return "\n".join([*lines, f"written to   {folder}"])


def _of_masked(config: Config, run: Path | None, out: str | None, force: bool, collude: Sequence[str]) -> str:
    made = masked_views.of_config(config, run)
    sets = [coalition(text, made.plan.rule.nodes) for text in collude]
    folder = claim.claim_directory(out, "transcript", force=force)
    return "\n".join(masked_views.write(made, folder, sets, f"{run or 'flags'}, made again ({WATERMARK})"))


def _table(index: dict[str, Any], folder: Path) -> str:
    views = index["views"]
    surrounded = [(v["file"], v["surrounds"]) for v in views if v["surrounds"]]
    size = f"{len(index['exchanges'])} exchanges of {index['nodes']} rows of {8 * index['width']} bytes"
    source = index["source"] + (f" ({index['watermark']})" if index["watermark"] else "")
    more = " and one a coalition" if len(views) > index["nodes"] else ""
    rows = [("messages", size), ("from", source), ("views", f"{len(views)} files, one a node{more}")]
    for file, nodes in surrounded:
        what = f"holds the perturbed gradients of node(s) {', '.join(map(str, nodes))}"
        rows.append(("surrounded", f"{file} {what}"))
    if (who := index.get("adversary")) is not None:
        nodes = f"; nodes {', '.join(map(str, who['members']))} collude" if who["members"] else ""
        shared = f", what their edges share is {who['edges']}" if nodes else ""
        seen = f"{who['file']}: all that travels and is released, trust {who['trust']}"
        rows.append(("adversary", f"{seen}{nodes}{shared}"))
    rows.append(("written to", str(folder)))
    return "\n".join(f"{name:<12} {value}" for name, value in rows)


main = command(PROG, read, work)
