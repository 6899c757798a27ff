"""What the centre, each party and each coalition saw of a run of ADMM sharing.

The run is made again in this process, with a tap on its messages: noise that a seed repeats is the same noise.  Its
models must come out as the run left them, or nothing is said.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from distadmm import sharing
from distadmm.errors import require
from distadmm.files import read_npz
from distadmm.ranks.star import Array, Star
from distadmm.ranks.world import World
from distadmm.run.kinds import UNBOUNDED, RunDirectory
from distadmm.run.running import unwritten

CENTRE = 0  # among the members of a coalition


class Message(NamedTuple):
    """One packet, as its receiver read it."""

    kind: str  # vector, control: the penalty and whether to go on
    party: int
    up: bool  # to the centre, or from it
    value: Array


def tap(star: Star) -> list[Message]:
    """Every message of the protocol from now on."""
    heard: list[Message] = []
    deal, up = star.deal, star.up

    def dealing(*given: Any, **more: Any) -> dict[int, Array]:
        received = deal(*given, **more)
        heard.extend(Message(star._kind, m, False, value) for m, value in received.items())
        return received

    def rising(*given: Any, **more: Any) -> dict[int, Array] | None:
        received = up(*given, **more)
        heard.extend(Message(star._kind, m, True, value) for m, value in (received or {}).items())
        return received

    star.deal, star.up = dealing, rising  # type: ignore[method-assign]
    return heard


def of_run(run: RunDirectory) -> tuple[list[Message], int, bool]:
    """The messages of a run, its number of parties, and whether its noise was a simulation."""
    if run.summary is None or str(run.summary["ended"]) not in ("iterations", "converged", "divergence"):
        run.refuse("which did not come to its end; let it go on, or make it again")
    programme = sharing.PROGRAMME
    quiet = ["--observe", "none", "--progress", "none", "--run-code"]  # who opened `run` saw to that
    options = programme.read(["--config", str(run.path / "config.json"), *quiet])
    if options.privacy.noise == "secure" and options.privacy.guarded:
        seen = "what its parties sent is seen in a run with --rng simulation"
        run.refuse(f"whose secret noise cannot be drawn again; {seen}")
    prepared = programme.prepare(options, World())
    price = programme.price(prepared)
    heard = tap(prepared.star)
    with TemporaryDirectory() as folder:
        outcome = programme.solve(prepared, price, replace(unwritten(options.run), folder=Path(folder)))
    for name, arrays in outcome.arrays.items():
        if name.startswith("models/"):
            kept = read_npz(run.path / name)
            for key, value in arrays.items():
                same = value.dtype.kind != "f" or np.allclose(value, kept[key], rtol=1e-6, atol=1e-9)
                require(
                    same,
                    f"{run.path} is a run of sharing whose {name} comes out differently when it is made again: "
                    "the data or the version are not those of the run",
                )
    protocol = [message for message in heard if message.kind != "observer"]
    return protocol, prepared.star.parties, run.summary["statement"] != UNBOUNDED


def seen_by(messages: Sequence[Message], members: Sequence[int]) -> dict[str, Array]:
    """What these members (0: the centre) sent and were sent, as named arrays; one row a message of one width."""
    found: dict[str, list[Array]] = {}
    for message in messages:
        m = message.party
        sender, receiver = (m, CENTRE) if message.up else (CENTRE, m)
        if receiver in members or sender in members:
            seen = "from" if receiver in members else "own"
            way = f"party-{m:04d}" if message.up else f"centre-to-{m:04d}"
            kind = "" if message.kind == "vector" else f"-{message.kind}"
            found.setdefault(f"{seen}-{way}{kind}", []).append(message.value)
    named: dict[str, Array] = {}
    for name, rows in found.items():
        alike = len({row.shape for row in rows}) == 1
        each = {f"{name}-message-{number}": row for number, row in enumerate(rows)}
        named |= {name: np.stack(rows)} if alike else each
    return named


def counts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    found: dict[tuple[str, bool], list[int]] = {}
    for message in messages:
        found.setdefault((message.kind, message.up), []).append(message.value.size)
    return [
        {"kind": kind, "way": "up" if up else "down", "messages": len(sizes), "numbers": sum(sizes)}
        for (kind, up), sizes in sorted(found.items())
    ]
