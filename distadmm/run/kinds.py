"""Of which programme a run directory is, and which commands have nothing to say of it.

A directory names its kind, and the version of its form, in config.json.  Those of version 0.1.0 did not: they are
known by what they hold, and their results are told here in the words of today's summary.json.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from distadmm.errors import InputError, require
from distadmm.files import read_json
from distadmm.run.vouch import require_vouched

SCHEMA = 1
KINDS = ("radmm", "sharing", "istdp", "ias", "funnel")
PLAYS = ("transcript", "audit")  # what these look at, they run again

_DESIGNS = "which designs a mapping and releases no row; ledgers are kept by the runs whose rows it sanitises"
_SILENT = "which sends no messages; what it found: python -m distadmm report"
_EXACT = (
    "which claims no epsilon: its leakage is an average, and exact; what it is: python -m distadmm report"
)
_MAPS = "which designs a mapping, and no model; python -m distadmm apply sanitises a column by it"
_APART = "whose parts stay with their parties; python -m distadmm predict scores by all of them"
_SCORES = "whose model scores rows: python -m distadmm predict"
# (command, kind): why the command has no meaning for such a run, and what to do instead
HOLES = {
    ("ledger", "ias"): _DESIGNS,
    ("ledger", "funnel"): _DESIGNS,
    ("transcript", "ias"): _SILENT,
    ("transcript", "funnel"): _SILENT,
    ("transcript", "istdp"): "which sends no messages: one process holds its rows; what it released: "
    "python -m distadmm ledger show",
    ("audit", "ias"): _EXACT,
    ("audit", "funnel"): _EXACT,
    **{(verb, kind): _MAPS for verb in ("predict", "export") for kind in ("ias", "funnel")},
    **{("apply", kind): _SCORES for kind in ("radmm", "istdp", "sharing")},
    ("export", "sharing"): _APART,
}
UNBOUNDED = "no noise was asked for"
REFUTED = "claimed by the paper, refuted"


class RunDirectory(NamedTuple):
    """What the files of one run say, whichever version wrote them."""

    path: Path
    kind: str
    config: dict[str, Any]  # flag -> value
    told: dict[str, Any]  # all of config.json
    summary: dict[str, Any] | None  # None while it has not ended

    @property
    def data_id(self) -> str:
        """The keyed name of its data; empty where nothing tells."""
        if "data_id" in self.told:
            return str(self.told["data_id"])
        for ledger in sorted(self.path.glob("ledger/*.jsonl")):
            from distadmm.privacy.ledger.shelves import first_of

            return str(first_of(ledger)["dataset"]).partition(",")[0]
        return ""

    def refuse(self, why: str) -> NoReturn:
        """One line that names the kind."""
        raise InputError(f"{self.path} is a run of {self.kind}, {why}")


def opened(path: str | Path, verb: str, *, run_code: bool = False) -> RunDirectory:
    """The run in `path`, for a command that has something to say of it; code that it names must be vouched for."""
    found = find(path)
    if found is None:
        raise InputError(
            f"{path} is no run directory (no config.json of a run); give what --out named, or its flags"
        )
    if (verb, found.kind) in HOLES:
        found.refuse(HOLES[verb, found.kind])
    if verb in PLAYS:
        require_vouched(found.path, found.told, run_code=run_code)
    return found


def find(path: str | Path) -> RunDirectory | None:
    """The run in `path`, None where there is none; one that this version cannot read is refused by name."""
    path = Path(path)
    place = next((path / name for name in ("config.json", "result.json") if (path / name).is_file()), None)
    content = read_json(place) if place else None
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        return None
    summary = None
    if "schema" in content or "kind" in content:
        require(
            content.get("schema") == SCHEMA,
            f"{path} is a run directory of schema {content.get('schema')}, this version reads {SCHEMA}; "
            "use the version that wrote it",
        )
        kind = content.get("kind")
        require(kind in KINDS, f"{path} is a run of {kind!r}, which is none of: {', '.join(KINDS)}")
        summary = _json(path / "summary.json")
        require(
            summary is None or (isinstance(summary, dict) and isinstance(summary.get("ended"), str)),
            f"{path / 'summary.json'} does not say how the run ended, and is damaged; restore it, or leave it out",
        )
    else:
        kind = _kind_of_old(content)
        if kind is None:
            return None
        summary = _OLD[kind](path, content)
    config = {name.rstrip("_"): value for name, value in content["config"].items()}
    return RunDirectory(path, str(kind), config, content, summary)


def _json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None


def _kind_of_old(content: dict[str, Any]) -> str | None:
    if {"graph", "data_id"} <= content.keys():
        return "radmm"
    config = content["config"]
    by_flags = "ias" if "u_size" in config else "funnel" if "fractions" in config else None
    return content.get("verb") or content.get("command") or by_flags


def _sharing(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    result, config = content.get("result"), content["config"]
    if result is None:
        return None
    private, printed = config["epsilon"] is not None, config["mechanism"] == "paper"
    ended = "converged" if result["converged"] and not private else "iterations"
    budgets = [config["epsilon"], config["epsilon_one"] if config["mechanism"] == "v2" else None]
    return {
        **result,
        "ended": "divergence" if result["failure"] else ended,
        # The schedule of each party was priced within its budget before it began.
        "epsilon": max(b for b in budgets if b is not None) if private and not printed else math.inf,
        "delta": config["delta"],
        "adjacency": {"zero": "add-remove"}.get(config.get("neighbours"), config.get("adjacency", "replace")),
        "statement": _statement(private or printed, printed, config["rng"] or "secure"),
    }


def _istdp(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    summary, config = _json(path / "summary.json"), content["config"]
    if summary is None:
        return None
    private, printed = config["epsilon"] is not None, config["form"] == "paper"
    epsilon = summary.get("epsilon", "infinite")
    return {
        **summary,
        "ended": "converged" if summary.get("converged") else "iterations",
        "epsilon": math.inf if epsilon == "infinite" else epsilon,
        "delta": config["delta"],
        "adjacency": config["adjacency"],
        "statement": _statement(private, printed, config["rng"]),
    }


def _statement(private: bool, printed: bool, rng: str) -> str:
    if printed or not private:
        return REFUTED if printed else UNBOUNDED
    return "simulation" if rng == "simulation" else "certificate"


def _designs(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    settled = content.get("settled", [point.get("converged", True) for point in content.get("points", [])])
    return {**content, "ended": "converged" if settled and all(settled) else "iterations"}


_OLD = {
    "radmm": lambda path, content: _json(path / "summary.json"),
    "sharing": _sharing,
    "istdp": _istdp,
    "ias": _designs,
    "funnel": _designs,
}
