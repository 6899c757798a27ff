"""Private distributed ADMM over real message passing.

python -m distadmm VERB ...            (each verb has its own --help)
mpiexec -n 20 python -m distadmm.radmm
"""

from distadmm.flags import entering
from distadmm.ranks.launch import reader_left

entering(__name__)

import importlib
import sys
from collections.abc import Sequence

from distadmm import __version__
from distadmm.errors import DONE, EXIT_CODES, USAGE
from distadmm.files import examples

# verb: (module with main(argv), what it does)
VERBS = {
    "radmm": ("distadmm.radmm", "decentralised consensus on a graph: ADMM, M-ADMM, R-ADMM, MR-ADMM"),
    "sharing": ("distadmm.sharing", "ADMM sharing over vertically split features"),
    "ias": ("distadmm.ias", "privacy mapping for inference as a service"),
    "funnel": ("distadmm.funnel", "privacy funnel"),
    "istdp": ("distadmm.istdp", "private iterative thresholding"),
    "data": ("distadmm.commands.data", "a schema from a sample of public rows; tables that are not bundled"),
    "topology": ("distadmm.commands.topology", "facts and drawings of networks"),
    "check": ("distadmm.commands.check", "convergence conditions and predicted rates, before running"),
    "plan": ("distadmm.commands.plan", "noise, penalty and iterations for a privacy budget, before running"),
    "account": ("distadmm.commands.account", "what a mechanism costs, without running it"),
    "ledger": (
        "distadmm.commands.ledger",
        "show, verify, merge and export privacy ledgers; the account of rows",
    ),
    "keys": ("distadmm.commands.keys", "signing keys of nodes, for --peer-keys of a masked run"),
    "audit": ("distadmm.commands.audit", "attack a mechanism and bound its epsilon from below"),
    "sweep": ("distadmm.commands.sweep", "a grid of runs in one command, which goes on where it stopped"),
    "study": ("distadmm.commands.study", "what a network costs: families, sizes, seeds and budgets, ranked"),
    "compare": (
        "distadmm.commands.compare",
        "every private method under one budget: what it spends, what nodes get",
    ),
    "status": ("distadmm.commands.status", "how far a run is, from another shell"),
    "predict": ("distadmm.commands.predict", "scores of new rows by a finished run's model"),
    "export": ("distadmm.commands.export", "a finished run's model as one JSON or one Python file"),
    "apply": ("distadmm.commands.apply", "a column of new rows sanitised by a mapping of ias or funnel"),
    "report": ("distadmm.commands.report", "runs side by side: a table, and a page with their curves"),
    "transcript": ("distadmm.commands.transcript", "what each neighbour and each coalition saw of a run"),
    "faults": (
        "distadmm.commands.faults",
        "real runs meet faults: nothing hangs, nothing is lost, no bit is other",
    ),
    "cite": ("distadmm.commands.cite", "BibTeX of the package and of the five papers"),
    "reproduce": ("distadmm.papers.command", "figures of the papers, with what agrees and what does not"),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(page())
        return DONE if words else USAGE
    if "--version" in words[:2]:
        print(f"distadmm {__version__}")
        return DONE
    if words[0] == "list":
        print(listing())
        return DONE
    if words[0] not in VERBS:
        import difflib

        near = difflib.get_close_matches(words[0], VERBS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        print(f"distadmm: no verb {words[0]!r}; {hint}known: list, {', '.join(VERBS)}", file=sys.stderr)
        return USAGE
    return importlib.import_module(VERBS[words[0]][0]).main(words[1:])


def page() -> str:
    lines = [f"  {'list':<11} algorithms, data sets and networks that come with the package"]
    lines += [f"  {verb:<11} {VERBS[verb][1]}" for verb in VERBS]
    paragraphs = ["\n".join(["verbs:", *lines]), f"Exit codes: {EXIT_CODES}.", examples("distadmm")]
    return "\n\n".join([(__doc__ or "").strip(), *paragraphs])


def listing() -> str:
    """What `--algorithm`, `--data` and `--topology` know by name."""
    from distadmm.algorithm import find, names
    from distadmm.data.source import BUNDLED
    from distadmm.graphs.topology import GENERATORS, bundled

    lines = ["algorithms (--algorithm):"]
    width = max(map(len, names()))
    for name in names():
        entry = find(name)
        text = (entry.cls.__doc__ or "").strip().splitlines()[0]
        notes = ["private form"] * entry.private + ["recycles"] * (entry.phases == 2)
        lines.append(f"  {name:<{width}}  {text}" + f" [{', '.join(notes)}]" * bool(notes))
    lines += ["data (--data):", f"  {', '.join(BUNDLED)}, or a file of yours"]
    lines += ["networks (--topology):", f"  {', '.join(bundled())}", f"  generators: {', '.join(GENERATORS)}"]
    return "\n".join(lines)


def run() -> int:
    """The command `distadmm`, and `python -m distadmm`."""
    entering("__main__")
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_left()


if __name__ == "__main__":
    raise SystemExit(run())
