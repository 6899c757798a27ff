"""The directory of a run: what is written, when, and the small table at the end."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distadmm.errors import require
from distadmm.files import read_json, write_json, write_npz
from distadmm.methods.consensus.sizing import events_of
from distadmm.privacy.accounting.statements import loss_in_words, planned_loss
from distadmm.privacy.noise.release import HEAD_BYTES
from distadmm.run import checkpoint
from distadmm.run.claim import claim_directory
from distadmm.run.history import gap_before
from distadmm.run.history import write as write_history
from distadmm.run.loop import DIVERGED, Run, error_rate
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.privacy.noise.protected import Recipe

_COUNTS = ("rows", "test_rows", "rows_dropped", "duplicates")


def start(prepared: Prepared, commit: Commit | None = None) -> Path | None:
    """Make the run directory, or check the one that is resumed; write `config.json` before anything runs."""
    config, world = prepared.config, prepared.world
    ids = None if prepared.source.pooled_allowed else _data_ids(prepared)

    def make() -> tuple[str, str, str]:
        data_id = ids or _data_id(prepared)
        if config.loop.resume is not None:
            folder = Path(config.loop.resume)
            checkpoint.latest(folder / "checkpoint")  # refused before a file is touched
            _same_inputs(read_json(folder / "config.json"), prepared, data_id)
        else:
            name = Path(config.name).name.removesuffix(".py")  # also of an algorithm that is a file elsewhere
            folder = claim_directory(config.loop.out, name, force=config.loop.force)
        write_json(folder / "config.json", _configuration(prepared, data_id, commit or Commit()))
        return str(folder), data_id if isinstance(data_id, str) else _together(data_id), os.urandom(8).hex()

    made, prepared.data_id, prepared.run = world.on_root(make)
    return Path(made)


def _data_id(prepared: Prepared) -> str:
    """The keyed name of a whole table."""
    from distadmm.data.source import BUNDLED
    from distadmm.data.table import local_key

    bundled = prepared.config.problem.data in BUNDLED
    return prepared.source.data_id(None if bundled else local_key())


def _data_ids(prepared: Prepared) -> dict[str, str]:
    """The keyed name of each node's own file."""
    from distadmm.data.files import PatternSource
    from distadmm.data.table import local_key

    source, world = prepared.source, prepared.world
    assert isinstance(source, PatternSource)
    with world.together():
        mine = source.node_ids(local_key())
    return {str(node): name for part in world.allgather(mine) for node, name in sorted(part.items())}


def _together(ids: dict[str, str]) -> str:
    """One name for the files of all nodes; theirs are keyed already."""
    from hashlib import sha256

    return sha256("".join(f"{node}:{name}\n" for node, name in sorted(ids.items())).encode()).hexdigest()


def _same_inputs(before: dict[str, Any], prepared: Prepared, data_id: Any) -> None:
    place = prepared.config.loop.resume
    require(
        before["data_id"] == data_id, f"--resume {place}: the data are not those of the run; restore them"
    )
    old, new = before["graph"]["fingerprint"], prepared.description["graph"]["fingerprint"]
    require(
        old == new, f"--resume {place}: the network {prepared.config.problem.topology} is not that of the run"
    )


def _configuration(prepared: Prepared, data_id: Any, commit: Commit) -> dict[str, Any]:
    table, description = prepared.config.table(), prepared.description
    # Where records come and go, how many there are is private.
    hidden = _COUNTS if prepared.config.privacy.adjacency == "add-remove" else ()
    data = {k: v for k, v in description["data"].items() if k not in hidden}
    return {
        "config": {k: v for k, v in table.items() if k not in ("resume", "force", "dry_run")},
        "data_id": data_id,
        **description,
        "data": data,
        "ranks": prepared.world.size,
        "versions": versions(prepared.world, commit),
    }


def versions(world: Any, commit: Commit) -> dict[str, str]:
    found = {name: _version(name) for name in ("distadmm", "numpy", "scipy", "networkx", "mpi4py")}
    import platform

    found["python"] = platform.python_version()
    if world.comm is not None:
        found["mpi"] = world.library
    found["commit"] = str(commit)
    return found


def _version(name: str) -> str:
    """Read off the name of the package's metadata folder: importlib.metadata takes 10 ms, and all ranks wait."""
    for place in filter(os.path.isdir, sys.path):
        for entry in os.listdir(place):
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{name}-").removesuffix(".dist-info")
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class Commit:
    """The commit of the checkout that is running; asked for early, so that git works while the ranks start."""

    def __init__(self) -> None:
        home = Path(__file__).resolve().parents[2]
        self._git: Any = None
        if (home / ".git").exists():
            import subprocess

            command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=12"]
            with contextlib.suppress(OSError):
                self._git = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )

    def __str__(self) -> str:
        """Empty for an installed package."""
        if self._git is None:
            return ""
        import subprocess

        try:
            said, _ = self._git.communicate(timeout=5)
            return said.strip() if self._git.returncode == 0 else ""
        except subprocess.TimeoutExpired:
            self._git.kill()
            return ""


def finish(prepared: Prepared, run: Run, folder: Path | None) -> Run:
    """Sum up, and write history, models and summary (rank 0)."""
    if run.models is None:
        return run
    run.path = folder
    test = prepared.source.test() if run.ended != DIVERGED else None
    wrong = None if test is None else error_rate(run.model, *test)
    gap = run.history[-1].gap if run.history else gap_before(folder, run.iterations)
    run.summary = {
        "algorithm": prepared.config.name,
        "ended": run.ended,
        "iterations": run.iterations,
        "nodes": len(run.models),
        "ranks": prepared.world.size,
        "gap": None if math.isnan(gap) else gap,
        "pooled_allowed": prepared.source.pooled_allowed,
        "test_rows": 0 if test is None else len(test[1]),
        "test_error": None if wrong is None or math.isnan(wrong) else wrong,
        "epsilon": run.epsilon,
        "delta": prepared.config.privacy.delta,
        "published_epsilon": run.published_epsilon,
        "adjacency": prepared.config.privacy.adjacency,
        "statement": run.statement,
        "reason": run.reason,
        "note": "; ".join(filter(None, (_note(prepared), _beyond(prepared, run)))),
        "not_covered": _not_covered(prepared, run),
        "penalty": prepared.description.get("penalty"),
        "messages": run.messages,
        "bytes": run.bytes,
        "lost": run.lost,
        "seconds": run.seconds,
        "predicted_wan_seconds": _on_a_wide_area_network(prepared, run),
    }
    if folder is not None:
        write_history(folder, run.history, run.began)
        write_npz(folder / "models.npz", {"models": run.models, "mean": run.model})
        write_json(folder / "summary.json", {k: _plain(v) for k, v in run.summary.items()})
    return run


def _note(prepared: Prepared) -> str:
    """What the reader must know of the fixed point; empty when it is the optimum."""
    if prepared.config.algorithm.claims_optimum(prepared.node):
        return ""
    return (
        "penalties differ between nodes and each dual takes its own step (--dual-step own): the nodes agree on the "
        "optimum of sum O_i/eta_i, not of sum O_i"
    )


def _not_covered(prepared: Prepared, run: Run) -> str:
    """What of the results is computed from private rows without noise; empty where nothing else is claimed."""
    if not math.isfinite(run.epsilon):
        return ""
    exact = ["the gap and history.csv (--observe none leaves them out)"] if run.history else []
    if prepared.config.problem.test_fraction:
        exact.append("the test error")
    return " and ".join(exact)


def _beyond(prepared: Prepared, run: Run) -> str:
    """A resume with more iterations spends more than --epsilon, by which the noise of each was chosen."""
    asked = prepared.config.privacy.epsilon
    if asked is None or not math.isfinite(run.epsilon) or run.epsilon <= asked:
        return ""
    return (
        f"more than --epsilon {asked:g} is spent: it was for the iterations first asked for, and the resumed run made "
        "more; --budget-epsilon stops a run, resumed or not"
    )


def _on_a_wide_area_network(prepared: Prepared, run: Run) -> float | None:
    """Predicted time with a machine for each node and the given delays; compute as measured here."""
    made = run.iterations - run.began
    if prepared.delays is None or not made:
        return None
    problem = prepared.node.problem
    compute = problem.seconds / (len(problem.objectives) * made)
    from distadmm.ranks.conditions import wall_clock

    return wall_clock(prepared.delays, compute, 8 * problem.dimension, run.iterations)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plan(prepared: Prepared, recipe: Recipe | None) -> str:
    """What `--dry-run` prints."""
    config, node, world = prepared.config, prepared.node, prepared.world
    graph, data = prepared.description["graph"], prepared.description["data"]
    n, d = graph["nodes"], node.problem.dimension
    rows = [o.rows for o in node.problem.objectives if hasattr(o, "rows")]
    rows = [count for some in world.allgather(rows) for count in some]
    shards = f"{min(rows)} to {max(rows)} rows a node" if rows else "rows a node unknown"
    size = 8 * d + (0 if recipe is None else HEAD_BYTES)
    messages = 2 * graph["edges"] * (config.loop.iterations + 1)
    lines = [f"{key} = {value}" for key, value in config.table().items()]
    lines += [
        "",
        f"network    {graph['topology']}: {n} nodes, {graph['edges']} edges, degrees "
        f"{graph['degrees'][0]} to {graph['degrees'][2]} (mean {graph['degrees'][1]:.2f}), on {world.size} rank(s)",
        f"data       {data['name']}: {data['rows']} rows, {data['features']} columns, {shards}, "
        f"{data['test_rows']} test rows; licence: {data['licence']}",
        f"messages   {messages} of {size} bytes: {messages * size / 1e6:.1f} MB in all, one a directed edge and "
        "iteration, and one to begin with",
        f"privacy    {_planned_loss(prepared, recipe)}",
    ]
    if "penalty" in prepared.description:
        lines.append(f"penalty    eta {prepared.description['penalty']:.4g}, chosen for the budget")
    return "\n".join(lines)


def _planned_loss(prepared: Prepared, recipe: Recipe | None) -> str:
    """What the whole schedule would cost, before anything is drawn."""
    delta = prepared.config.privacy.delta
    if recipe is None or recipe.unverified:
        why = "no noise was asked for (--epsilon, --adjacency)" if recipe is None else recipe.unverified
        return planned_loss(math.inf, delta, "", math.inf, 0, why)

    from distadmm.privacy.accounting import accountant

    config, node = prepared.config, prepared.node
    releases = config.algorithm.releases(node, config.loop.iterations)
    worst = published = 0.0
    for i in range(node.network.n_local):
        events = events_of(recipe, releases, i)
        worst = max(worst, accountant.epsilon(events, delta, recipe.adjacency))
        published = max(published, accountant.published_epsilon(events, recipe.adjacency))
    worst, published = max(prepared.world.allgather((worst, published)))
    return planned_loss(worst, delta, recipe.adjacency, published, len(releases))


def table(run: Run) -> str:
    """The small table at the end of a run."""
    s = run.summary
    if s["ended"] == DIVERGED:
        gap = "none: the run diverged"
    elif s["gap"] is not None:
        gap = f"{s['gap']:.3e}"
    elif run.optimum == 0:
        gap = "none: the optimum is zero, or as good as zero, and a gap is relative to it"
    elif s["pooled_allowed"]:
        gap = "not measured (--observe none, or the run ended before its first measurement)"
    else:
        gap = "unknown: each node holds its own rows, and the centralised optimum needs all of them"
    if s["test_error"] is not None:
        error = f"{100 * s['test_error']:.2f} %"
    elif s["ended"] == DIVERGED:
        error = "none"
    else:
        error = "none: the target is a number, not one of two classes" if s["test_rows"] else "no test rows"
    rows = [
        ("algorithm", f"{s['algorithm']}, {s['nodes']} nodes on {s['ranks']} rank(s)"),
        ("iterations", f"{s['iterations']} (ended by: {s['ended']})"),
        ("objective gap", gap),
        ("test error", error),
        ("privacy loss", loss_in_words(s)),
        ("sent", f"{s['bytes'] / 1e6:.2f} MB in {s['messages']} messages"),
        ("time", f"{s['seconds']:.2f} s of iterations"),
    ]
    if s["penalty"] is not None:
        rows.insert(4, ("penalty", f"eta {s['penalty']:.4g}, chosen for the budget"))
    if s["not_covered"]:
        rows.append(("not covered", f"exact figures of private rows: {s['not_covered']}"))
    if s["note"]:
        rows.append(("note", s["note"]))
    if s["lost"]:
        rows.insert(-1, ("lost", f"{s['lost']} messages"))
    if s["predicted_wan_seconds"] is not None:
        rows.append(("on a WAN", f"{s['predicted_wan_seconds']:.2f} s predicted, a machine for each node"))
    if s["reason"]:
        rows.insert(2, ("", s["reason"]))
    if run.path is not None:
        rows.append(("run directory", str(run.path)))
    return "\n".join(f"{name:<14} {value}" for name, value in rows)
