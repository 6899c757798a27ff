"""What a reader of runs side by side must know before believing the table."""

import glob
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from distadmm.commands.report_kinds import KINDS
from distadmm.commands.report_runs import SEEDS, Group, Trace
from distadmm.errors import require
from distadmm.privacy.accounting.statements import exactly


def warnings(found: Sequence[Group]) -> list[str]:
    traces = [trace for group in found for trace in group.traces]
    said, kind = [], KINDS[traces[0].kind]
    apart = [name for name, _ in found[0].settings if name in kind.objective]
    if len({trace.nodes for trace in traces}) > 1:
        apart.append("number of nodes")
    if apart:
        own = "a gap is relative to the optimum of its own run"
        means = own if kind.gaps else "compare errors, not objectives"
        said.append(f"the objectives differ ({', '.join(apart)}): {means}")
    if "tune" in dict(found[0].settings):
        said.append("some of these runs tuned themselves and some did not; --no-tune compares like with like")
    unfinished = [trace.folder.name for trace in traces if trace.summary is None]
    if unfinished:
        said.append(
            f"unfinished, shown up to the last checkpoint: {', '.join(unfinished)}; what they spent: "
            "python -m distadmm ledger show RUN"
        )
    said += _of_privacy(traces)
    if any(_copies(group) for group in found):
        said.append("runs of one setting and one seed are counted as different runs")
    same = [group.label or "all" for group in found if _equal_bits(group)]
    if same:
        said.append(
            f"runs that differ in their seeds came out with equal bits ({', '.join(same)}): no replicates, their range "
            "says nothing; let --data-seed deal the rows anew (--deal iid), or draw other graphs"
        )
    return said


def _of_privacy(traces: Sequence[Trace]) -> list[str]:
    """Whose bounds the epsilons are, and what they leave out."""
    said = []
    private = [trace for trace in traces if math.isfinite(trace.epsilon)]
    for delta, adjacency, whose in dict.fromkeys(map(_terms, private)):
        said.append(
            f"epsilon at delta {exactly(delta)} for {adjacency}, of the {KINDS[traces[0].kind].whose}: {whose}; "
            "what it assumes: python -m distadmm ledger show RUN"
        )
    if looked_at := sum(trace.looked_at for trace in traces):
        said.append(
            f"no epsilon covers the exact figures of private rows that --observe all computed, of {looked_at} of the "
            f"{len(traces)} runs: objectives, losses, gaps, errors of held-out rows, and their curves"
        )
    said += dict.fromkeys(trace.statement for trace in traces if trace.in_short != trace.statement)
    if any(trace.statement == "simulation" for trace in traces):
        repeats = "simulation: noise that a seed repeats protects nobody"
        said.append(f"{repeats}; its epsilon is what real noise would spend")
    places = [(t.folder.parent, f"{glob.escape(t.folder.name)}.spent-*") for t in traces]
    aside = ", ".join(sorted(path.name for parent, like in places for path in parent.glob(like)))
    if aside:
        said.append(f"runs that were replaced have spent as well, and are not shown: {aside}")
    return said


def add_up(traces: Sequence[Trace]) -> list[str]:
    """Said of runs of any kind on the same data."""
    real = Counter(t.data_id for t in traces if t.data_id and t.statement not in ("", "simulation"))
    if max(real.values(), default=0) < 2 or not any(math.isfinite(trace.epsilon) for trace in traces):
        return []
    together = [t.epsilon for t in traces if real[t.data_id] > 1 and t.statement != "simulation"]
    bare = sum(map(math.isinf, together))
    said = [f"these have no bound, for {bare} of them {'has' if bare == 1 else 'have'} none"] * bool(bare)
    if sum(map(math.isfinite, together)) > 1:
        more = "have spent more than any row says; python -m distadmm ledger merge RUN RUN ..."
        said.append(f"{'those that have one' if bare else 'these'} {more}")
    return [f"runs on the same data add up: together {'; '.join(said)}"] if said else []


def _terms(trace: Trace) -> tuple[float, str, str]:
    """delta, adjacency, and whose bound it is."""
    config, summary = trace.config, trace.summary or {}
    whose = "derived for this project, not peer-reviewed"
    if config.get("mechanism") == "output" and config.get("noise") == "gaussian":
        whose = "published bound for Gaussian noise"
    known = {**config, **summary}
    missing = [name for name in ("delta", "adjacency") if known.get(name) is None]
    require(
        not missing,
        f"{trace.folder}: its configuration lacks {missing[:1]}, so it is damaged; leave this run out",
    )
    return float(known["delta"]), str(known["adjacency"]), whose


def _copies(group: Group) -> bool:
    """Whether the seeds of a run occur twice; secret noise differs all the same."""
    if group.traces[0].config.get("rng") == "secure":
        return False
    seeds = [tuple(str(trace.config.get(name)) for name in SEEDS) for trace in group.traces]
    return len(set(seeds)) < len(seeds)


def _equal_bits(group: Group) -> bool:
    """Whether runs with different seeds measured the same, to the bit, at every moment."""
    curves: dict[bytes, set[tuple[Any, ...]]] = {}
    for trace in group.traces:
        measured = [values for name, values in sorted(trace.history.items()) if "second" not in name]
        if measured and len(measured[0]) > 2:
            bits = np.stack(measured).tobytes()
            curves.setdefault(bits, set()).add(tuple(trace.config.get(name) for name in SEEDS))
    return any(len(seeds) > 1 for seeds in curves.values())
