"""Which private method to use: the forecast of `compare --forecast`, beside a plan."""

import math
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from shlex import quote
from typing import Any

from distadmm.algorithm import Defaults, find, names
from distadmm.commands import compare
from distadmm.errors import require
from distadmm.graphs.topology import load_changing
from distadmm.methods.forecasts import margin, ranked
from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of
from distadmm.privacy.accounting.statements import exactly
from distadmm.ranks.world import World


def methods() -> list[str]:
    """The private ones, R-ADMM for its kin: to price M-ADMM alone takes longer than all else."""
    private = [name for name in names() if find(name).private]
    return [name for name in private if name == "radmm" or find(name).cls.house != Defaults.house]


def asked(options: Any, rows: int, columns: int) -> list[str]:
    """The words of the comparison; no row is read, only how many there are."""
    if options.trust != "centre":
        colluding_of(options.trust, load_changing(options.topology).union.n)
    shared = ("epsilon", "delta", "adjacency", "topology", "trust", "weight", "rho")
    words = [f"--{name}={getattr(options, name)}" for name in shared]
    jobs = len(os.sched_getaffinity(0))
    words += [f"--rows={rows}", f"--columns={columns}", f"--jobs={jobs}", "--forecast"]
    words += [f"--algorithm={','.join(methods())}"]
    words += [f"--iterations={options.iterations}"] * bool(options.iterations)
    return words + [f"--public-rows={rows}"] * (options.adjacency in ("add-remove", "node"))


def lines(options: Any, words: list[str], world: World) -> list[str]:
    """All methods by their forecast, and how to run the first; on rank 0."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        request = compare.read([*words, f"--out={Path(folder) / 'runs'}"])
        code, made = compare.foretold(request, world)
    require(code < 128, "stopped by a signal before all methods were forecast; a part of them has no winner")
    order = ranked(made)
    if not order:
        return ["use         no method: none has a run under this budget; give a larger --epsilon"]
    shown = ", ".join(f"{one.of} {one.cell}" for one in order)
    refused = [one.of for one in made if math.isnan(one.excess)]
    by, name = margin(order), order[0].of
    own = f" --trust {options.trust}" if compare.has_trust(name) else ""
    assumed = f"it is forecast for --trust {options.trust}, and assumes that"
    if not own or options.trust == "any":
        assumed = "it trusts nobody"
    kept = ("weight", "rho", "data", "rows_per_node", "iterations")
    told = [(each.replace("_", "-"), getattr(options, each)) for each in kept]
    shown_as = {
        each: f"{value:g}" if isinstance(value, float) else value and quote(str(value))
        for each, value in told
    }
    given = "".join(f" --{each} {value}" for each, value in shown_as.items() if value is not None)
    given += f" --public-rows {request.options.rows}" * (options.adjacency in ("add-remove", "node"))
    return [
        f"methods     loss of the nodes' own models, {compare.FORECASTS} made-up tables: {shown} "
        "(of R-ADMM's kin itself alone; `compare` runs all)"
        + (f"; no run of {', '.join(refused)}" if refused else ""),
        f"use         {name}{': ' * bool(by)}{by}; {assumed}",
        f"            python -m distadmm.radmm --algorithm {name} --topology {quote(options.topology)} --epsilon "
        f"{exactly(options.epsilon)} --delta {exactly(options.delta)} --adjacency {options.adjacency}{own}{given}",
    ]
