"""Privacy ledgers: what every node has released, in one run and in all.

python -m distadmm ledger show RUN            a table: releases, bounds, what is left, what it means
python -m distadmm ledger verify RUN          lines, witnesses, heads in the account; exit code 1 and what is wrong
python -m distadmm ledger merge RUN RUN ...   what runs cost together
python -m distadmm ledger certificate RUN ... a page for a data-protection officer: --out page.html
python -m distadmm ledger export RUN          events for dp-accounting, and the raw parameters
python -m distadmm ledger account [RUN]       what all runs spent on rows, and --limit, the most they may

RUN is a run directory, its ledger folder, or .jsonl files."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from distadmm.commands import ledger_account, ledger_merge, ledger_report
from distadmm.errors import DONE, FAILURE, require, sense_of
from distadmm.files import examples, write_json, write_text
from distadmm.flags import again, flag, parse, positional
from distadmm.privacy.ledger import check as ledger_check
from distadmm.privacy.ledger.account import Account
from distadmm.privacy.ledger.chain import tell_long
from distadmm.ranks.launch import command
from distadmm.ranks.world import World
from distadmm.run import groups, kinds
from distadmm.structs import struct

PROG = "distadmm ledger"


@struct
class Files:
    paths: tuple[str, ...] = positional("LEDGER", help="give a run directory, or .jsonl files")


@struct
class Show(Files):
    delta: float = flag(1e-5, help="delta of the (epsilon, delta) statements", above=0, below=1)
    records: int = flag(1, help="records of one person at one node (group privacy)", at_least=1)
    rows: int = flag(30, help="nodes to list; 0: all", at_least=0)
    json: bool = flag(False, help="print JSON instead of tables")


@struct
class Verify(Files):
    heads: str | None = flag(
        None, help="ledger heads, as the run printed them at its end: is this how it ended?"
    )
    account: str | None = again(groups.Budget, "account")


@struct
class Merge(Files):
    delta: float = flag(1e-5, help="delta of the (epsilon, delta) statement", above=0, below=1)
    disjoint: bool = flag(
        False, help="state that runs on different rows are about different people: they compose by maximum"
    )
    json: bool = flag(False, help="print JSON instead of text")


@struct
class Export(Files):
    out: str | None = flag(None, help="file to write (default: the terminal)")


@struct
class Certificate(Files):
    out: str = flag("certificate.html", help="page to write")
    delta: float = flag(1e-5, help="delta of the (epsilon, delta) statements", above=0, below=1)
    owner: str = flag(
        "not named", help="who answers for the runs: a name or an office, as it is to stand on the page"
    )
    account: str | None = again(groups.Budget, "account")


def read(argv: list[str]) -> Callable[[], int | None]:
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__, examples(PROG), sep="\n")
        raise SystemExit(DONE if argv else 2)
    verb = argv[0]
    if verb == "account":
        (asked,) = parse(f"{PROG} {verb}", ledger_account.__doc__ or "", [ledger_account.Asked], argv[1:])
        return partial(ledger_account.work, asked)
    require(verb in VERBS, f"unknown verb {verb!r}; choose one of: {', '.join((*VERBS, 'account'))}")
    (options,) = parse(f"{PROG} {verb}", __doc__ or "", [VERBS[verb][0]], argv[1:])
    files = [file for path in options.paths for file in _files(Path(path))]
    tell_long(files)
    return partial(_sensed, VERBS[verb][1], files, options)


def _sensed(
    verb: Callable[[Sequence[Path], Any], int | None], files: Sequence[Path], asked: Any
) -> int | None:
    """Lines that are sealed were not all written by this program: whoever seals anew may write anything."""
    with sense_of(" ".join(asked.paths)):
        return verb(files, asked)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    folder = path / "ledger" if (path / "ledger").is_dir() else path
    found = sorted(folder.rglob("*.jsonl"))  # scores that were given later have ledgers of their own
    if not found and kinds.find(path):
        kinds.opened(path, "ledger").refuse("but it holds no ledgers: nothing bounds what it released")
    require(found, f"{path} holds no ledgers; give a run directory with a ledger/ folder, or .jsonl files")
    return found


def work(verb: Callable[[], int | None], world: World) -> int:
    code = verb() if world.is_root else DONE
    return code or DONE


def show(files: Sequence[Path], asked: Any) -> None:
    report = ledger_report.shown(ledger_report.books_of(files), asked.delta, asked.records)
    print(json.dumps(report, indent=2) if asked.json else ledger_report.tables(report, asked.rows))


def verify(files: Sequence[Path], asked: Any) -> int:
    found = ledger_check.verified(files, Account(asked.account), heads=asked.heads)
    for line in found.notes:
        print(line)
    for fault in found.faults:
        print(f"{PROG}: {fault}", file=sys.stderr)
    if not found.faults:
        print(f"{len(found.notes)} ledger{'s' * (len(found.notes) > 1)} whole")
    return FAILURE if found.faults else DONE


def merge(files: Sequence[Path], asked: Any) -> None:
    report = ledger_merge.merged(ledger_report.books_of(files), asked.delta, disjoint=asked.disjoint)
    print(json.dumps(report, indent=2) if asked.json else ledger_merge.merged_text(report))


def certificate(files: Sequence[Path], asked: Any) -> None:
    from distadmm.commands import ledger_certificate

    today = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    text = ledger_certificate.page(files, Account(asked.account), asked.delta, asked.owner, today)
    write_text(Path(asked.out), text)
    print(f"wrote {asked.out}")


def export(files: Sequence[Path], asked: Any) -> None:
    content = ledger_report.exported(ledger_report.books_of(files))
    if asked.out is None:
        print(json.dumps(content, indent=2))
    else:
        write_json(Path(asked.out), content)


VERBS: dict[str, tuple[type, Callable[[Sequence[Path], Any], int | None]]] = {
    "show": (Show, show), "verify": (Verify, verify), "merge": (Merge, merge),
    "certificate": (Certificate, certificate), "export": (Export, export),
}  # fmt: skip


main = command(PROG, read, work)
