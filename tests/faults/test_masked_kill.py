"""A masked run that is killed at random moments, and taken up each time, until it ends: nothing is sent twice."""

import hashlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.files import read_npz
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.ledger import chain
from distadmm.privacy.noise.masks import Member
from distadmm.privacy.noise.mechanism import Noise
from distadmm.ranks.world import World
from distadmm.run import shell

FLAGS = [
    *("--algorithm", "masked", "--anyway", "--data", "tiny", "--topology", "er5", "--epsilon", "8", "--progress"),
    *("none", "--adjacency", "replace", "--trust", "coalition:2", "--observe", "none", "--checkpoint-every", "2"),
]  # fmt: skip
BUDGET = gaussian.mu_at(8.0, 1e-5) ** 2


def live(out: Path, seen: Path, resumed: bool) -> int:
    """One life of a run, in a process of its own; each vector and each share of noise is written down first."""
    log = os.open(seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    masked, draw = Member.masked, Noise.draw

    def sent(self: Member, values: Any) -> Any:
        u = masked(self, values)
        os.write(log, f"u {self.id} {self.session.hex()} {self.r} {hashlib.sha256(u).hexdigest()}\n".encode())
        return u

    def drawn(self: Noise, event: Any, **more: Any) -> Any:
        share = draw(self, event, **more)
        os.write(
            log,
            f"n {more['at']} {event.session} {event.round} {hashlib.sha256(share).hexdigest()}\n".encode(),
        )
        return share

    Member.masked, Noise.draw = sent, drawn  # type: ignore[method-assign]
    words = (
        ["--resume", str(out), "--progress", "none"] if resumed else [*FLAGS, "--out", str(out), "--force"]
    )
    return shell.work(radmm.PROGRAMME, radmm.PROGRAMME.read(words), World())


def killed(out: Path, seen: Path, resumed: bool, after: float) -> bool:
    """Whether a life was ended; else it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = live(out, seen, resumed)
        finally:
            os._exit(code)
    end = time.monotonic() + after
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def lines(seen: Path, kind: str) -> list[list[str]]:
    return [line.split()[1:] for line in seen.read_text().splitlines() if line.startswith(kind)]


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_no_round_is_sent_twice_and_no_noise_is_used_again(kills: int, tmp_path: Path) -> None:
    chance, done, runs = random.Random(kills), 0, 0
    began = time.monotonic()
    assert not killed(tmp_path / "whole", tmp_path / "seen", False, 600.0)
    whole = time.monotonic() - began  # of a life: a fast machine is killed sooner
    while done < kills:
        runs += 1
        out, seen = tmp_path / f"run-{runs}", tmp_path / f"seen-{runs}"
        ended = False
        while not ended:
            resumed = (out / "checkpoint" / "latest.json").exists()
            if not resumed:
                seen.unlink(missing_ok=True)  # begun anew: another run, whose ledger is another one
            limit = chance.uniform(0.1, 1.0) * whole if done < kills else 600.0
            ended = not killed(out, seen, resumed, limit)
            done += not ended
            if not seen.exists() or not (out / "ledger").exists():
                continue
            vectors = lines(seen, "u")
            assert len({tuple(v[:3]) for v in vectors}) == len(vectors)
            shares = [n[3] for n in lines(seen, "n")]
            assert len(set(shares)) == len(shares)
            for node in range(5):
                if not (ledger := out / "ledger" / f"node-{node:04d}.jsonl").exists():
                    assert not vectors  # killed while it opened its ledgers
                    continue
                paid = [e for e in chain.read(ledger).entries if e["kind"] == "charge"]
                known = {(e["params"]["session"], e["params"]["round"]) for e in paid}
                assert {(s, int(r)) for i, s, r, _ in vectors if int(i) == node} <= known
                assert sum(e["mu2"] for e in paid) <= BUDGET
        assert np.isfinite(read_npz(out / "models.npz")["models"]).all()
    assert done >= kills
