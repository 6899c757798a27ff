"""`python -m distadmm status`: how far a run is, from another shell; nothing is written or disturbed."""

import time

from distadmm.errors import require, sense_of
from distadmm.flags import flag_group, positional
from distadmm.privacy.ledger.shelves import read_all
from distadmm.ranks.launch import say
from distadmm.run import checkpoint, claim, ends, kinds

PROG = "distadmm status"


@flag_group("status")
class Status:
    runs: tuple[str, ...] = positional("RUN", help="run directories")


def told(path: str) -> list[tuple[str, str]]:
    """What the files of a run say of it at this moment."""
    found = kinds.find(path)
    require(found, f"{path} is no run directory (no config.json of a run); give what --out named")
    assert found is not None
    place = found.path / "checkpoint"
    saved = checkpoint.latest(place) if checkpoint.is_there(place) else None
    most = found.config.get("iterations")
    ledgers = sorted(found.path.glob("ledger/*.jsonl"))
    running = any(map(claim.in_use, (found.path, *ledgers)))
    going_on = f"python -m distadmm.{found.kind} --resume {found.path}"
    if found.summary is not None:
        ended = str(found.summary["ended"])
        resumable = saved is not None and ends.end_of(ended).value[2]
        state = f"ended: {ended}" + f"; to go on: {going_on}" * bool(resumable)
    elif running:
        state = "running: its directory is in use"
    elif saved is not None:
        state = f"stopped before its end; to go on: {going_on}"
    else:
        state = "stopped before its end, without a checkpoint, or not yet begun"
    what = ", ".join(dict.fromkeys(filter(None, (found.kind, found.config.get("algorithm")))))
    lines = [("run", f"{found.path} ({what})"), ("state", state)]
    done = (found.summary or {}).get("iterations", saved)
    if done is not None:
        goal = f" of {most}" if most and found.summary is None else ""
        lines.append(("iterations", f"{done}{goal}, saved"))
    chains = read_all(ledgers)
    releases = sum(entry["kind"] in ("release", "charge") for found in chains for entry in found.entries)
    if ledgers:
        ago = time.time() - max(p.stat().st_mtime for p in ledgers)
        lines.append(("ledgers", f"{len(chains)}, of {releases} releases; last written {ago:.0f} s ago"))
        lines.append(("what was spent", f"python -m distadmm ledger show {found.path}"))
    return lines


def shown(asked: Status) -> str:
    found = []
    for path in asked.runs:
        with sense_of(path):
            found.append("\n".join(f"{name:<16}{text}" for name, text in told(path)))
    return "\n\n".join(found)


main = say(PROG, __doc__, Status, shown)
