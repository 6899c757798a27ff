"""A mechanism of one's own is one file, this one: it is priced, kept, read, merged, grouped and spoken of."""

import json
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from distadmm.commands import ledger as ledger_command
from distadmm.errors import DONE
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.events import (
    Adjacency,
    Event,
    Gaussian,
    check_adjacency,
    event_from_json,
    positive,
)
from distadmm.privacy.accounting.nodes import combine
from distadmm.privacy.accounting.scopes import claim
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.file import Ledger, path_of
from distadmm.privacy.noise.mechanism import Noise, Simulation
from distadmm.structs import struct

DELTA = 1e-5
ISTDP = claim(
    "istdp", ["clipped-examples", "public-divisor", "data-free-steps", "fresh-noise", "data-free-schedule"]
)


@struct
class Laplace(Event):
    """Each of `dimension` answers with Laplace noise of this scale; one record moves them by at most 1 (l1).

    Proof: the density's logarithm is 1/scale-Lipschitz in the l1 norm.
    """

    scale: float
    dimension: int = 1
    count: int = 1
    records: int = 1
    mech: ClassVar[str] = "toy-laplace"
    version: ClassVar[int] = 3
    law: ClassVar[str] = "laplace"
    hypotheses: ClassVar[tuple[str, ...]] = ("public-rows",)

    def __post_init__(self) -> None:
        positive(self, "scale")

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.count * self.records / self.scale

    def group(self, records: int) -> Event:
        return replace(self, records=self.records * records)

    def sample(self, stream, shape=None, sensitivity=None):
        sign = np.sign(stream.standard_normal(self.dimension))
        return sign * stream.standard_gamma(1.0, self.dimension) * self.scale


@struct
class Shared(Event):
    """Gaussian noise that all parties add a share of: who collude know theirs and take it off."""

    parties: int
    noise_multiplier: float
    mech: ClassVar[str] = "toy-shared"

    def against(self, trust: Trust) -> Event:
        honest = self.parties - min(max(trust.colluding, 0), self.parties - 1)
        return Gaussian(self.noise_multiplier * math.sqrt(honest / self.parties))


STEPS = Laplace(10.0, 4, count=6)


def test_it_is_priced_by_every_route():
    bounds = accountant.bounds([STEPS], DELTA, "replace")
    assert bounds.pure == pytest.approx(0.6)
    pure = accountant.bounds([accountant.Pure(0.1, 6)], DELTA, "replace")
    assert bounds == pytest.approx(tuple(pure))  # all that is known of it is its pure epsilon
    assert bounds.pld < bounds.pure
    assert accountant.epsilon([STEPS, Gaussian(5.0)], DELTA, "replace") > bounds.best


def test_it_is_grouped_and_composed_over_nodes():
    assert combine({0: [STEPS]}, "replace", 0.0, "person", {0: 3}).epsilon == pytest.approx(1.8)
    both = combine({0: [STEPS], 1: [STEPS]}, "replace", 0.0, "parties").epsilon
    assert both == pytest.approx(1.2)


def test_its_noise_is_drawn_through_the_ledger(tmp_path):
    ledger = Ledger(tmp_path, 0, adjacency="replace", mode="simulation")
    noise = Noise(ledger, Simulation(1)).draw(STEPS.single(), iteration=1)
    assert noise.shape == (4,)
    assert ledger.tally.spent.pure == pytest.approx(0.1)


VERIFIED = claim("istdp", [*ISTDP["verified"], "public-rows"])


def test_it_is_kept_read_merged_and_spoken_of(tmp_path, capsys):
    for name, said in (("a", ISTDP), ("b", VERIFIED), ("c", VERIFIED)):
        header = {"adjacency": "replace", "mode": "secure", "scope": "record", "dataset": "d"}
        ledger = Ledger(tmp_path / name / "ledger", 0, **header, claim=said)
        ledger.commit([STEPS])
        for k in range(6):
            ledger.charge(STEPS.single(), iteration=k)
        ledger.close()
    entries = chain.read(path_of(tmp_path / "a" / "ledger", 0)).entries
    (line,) = entries[1]["events"]
    assert (line["mech"], line["version"]) == ("toy-laplace", 3)
    assert event_from_json(line) == STEPS
    assert ledger_command.main(["show", str(tmp_path / "a"), "--json"]) == DONE
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert float(run["together"]["epsilon"]) == float("inf")
    # Its own hypothesis is none that this claim has verified.
    assert "not verified: each row depends on its own record" in run["sentence"]
    for both, bound in (("ab", math.inf), ("bc", 1.2 + 1e-9)):
        assert ledger_command.main(["merge", *(str(tmp_path / name) for name in both), "--json"]) == DONE
        (block,) = json.loads(capsys.readouterr().out)["blocks"]
        assert accountant.epsilon([STEPS], DELTA, "replace") < float(block["epsilon"]) <= bound
    assert block["epsilon"] > 0.6


@pytest.mark.parametrize("change", [{"version": 4}, {"mech": "toy-cauchy"}, {"colour": "red"}])
def test_a_ledger_of_an_event_that_nobody_knows_is_unbounded(tmp_path, change, capsys):
    """Whatever cost stands beside it, and also when its schedule was reserved."""
    ledger = Ledger(tmp_path / "ledger", 0, adjacency="replace", mode="secure", scope="record", claim=ISTDP)
    ledger.commit([STEPS])
    for k in range(6):
        ledger.charge(STEPS.single(), iteration=k)
    ledger.close()
    path = path_of(tmp_path / "ledger", 0)
    entries = chain.read(path).entries
    entries[1]["events"][0] |= change
    head, lines = chain.GENESIS, []
    for entry in entries:
        body = {key: value for key, value in entry.items() if key != "h"} | {"prev": head}
        line, digest = chain.sealed(chain.canonical(body))
        lines.append(line)
        head = digest.hex()
    path.write_bytes(b"".join(lines))
    assert ledger_command.main(["verify", str(tmp_path)]) == DONE
    capsys.readouterr()
    assert ledger_command.main(["show", str(tmp_path), "--json"]) == DONE
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["together"]["epsilon"] in (math.inf, "inf", None)
    assert run["statement"] == "odometer"
    assert "No guarantee, epsilon = infinity" in run["sentence"]
    again = Ledger.resume(tmp_path / "ledger", 0, mode="secure")
    assert again.tally.spent.unbounded


def test_a_price_may_depend_on_who_colludes(tmp_path):
    event = Shared(4, 8.0)
    table = event.prices("replace", others=3)
    assert [round(1 / cost.mu2) for cost in table] == [64, 48, 32, 16]
    assert event.price("replace").mu2 == table[-1].mu2  # nothing said: all others
    assert event.price("replace", Trust.parse("coalition:1")).mu2 == table[1].mu2
    for node, trust in enumerate(("any", "coalition:1", "centre")):
        ledger = Ledger(tmp_path, node, adjacency="replace", mode="secure", trust=trust)
        ledger.charge(event, iteration=0)
        assert ledger.tally.spent.mu2 == event.price("replace", Trust.parse(trust)).mu2
        assert accountant.epsilon(ledger.events, DELTA, "replace") < math.inf
