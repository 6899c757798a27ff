"""Level 0: sound runs of every registered private algorithm stand; each way of cheating is caught."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from distadmm import radmm
from distadmm.algorithm import find, names
from distadmm.audit import noises as level_zero
from distadmm.audit import report
from distadmm.audit.noises import LEVEL, Noise, Verdict, judge
from distadmm.commands import audit
from distadmm.methods.consensus.recycled import RADMM
from distadmm.privacy.accounting.events import Gaussian, KNorm
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger.rules import MemoryLedger, Receipt
from distadmm.privacy.noise.protected import Protected
from distadmm.problems.consensus import Problem
from distadmm.run.config import Config
from tests.common import SMALL

FLAGS = {**SMALL, "alpha": "1", "adjacency": "label"}
PRIVATE = [name for name in names() if find(name).cls.releases]  # masked sums have tests of their own


def config(name: str = "radmm", **flags: Any) -> Config:
    return radmm.configure(name, **{**FLAGS, **flags})


def kinds(verdict: Verdict) -> set[str]:
    return {finding.kind for finding in verdict.findings}


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize("name", PRIVATE)
def test_every_private_algorithm_releases_what_its_ledgers_say(name: str, noise: str) -> None:
    verdict = audit.white_box(config(name, noise=noise))
    assert verdict.findings == []
    assert verdict.releases == 5 * 6 // find(name).phases
    assert verdict.unclaimed == 0


@pytest.mark.parametrize("name", ["madmm", "radmm"])
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_output_noise_is_recovered_from_the_noise_off_minimiser(name: str, noise: str) -> None:
    verdict = audit.white_box(config(name, noise=noise, mechanism="output", adjacency="replace"))
    assert verdict.findings == []
    assert verdict.releases > 0


@pytest.mark.parametrize(
    ("flags", "claims"),
    [
        ({"loss": "huber"}, True),
        ({"loss": "softmax", "mechanism": "output"}, True),
        ({"loss": "squared"}, False),
    ],
)
def test_other_losses_are_audited_or_claim_nothing(flags: dict[str, str], claims: bool) -> None:
    verdict = audit.white_box(config(adjacency="replace", **flags))
    assert verdict.findings == []
    assert (verdict.releases, verdict.unclaimed) == ((15, 0) if claims else (0, 15))


def test_imperfect_networks_are_audited_alike() -> None:
    verdict = audit.white_box(config(message_loss=0.2, drop_out="0.1:0.5", iterations=12))
    assert verdict.findings == []
    assert verdict.releases == 30


def test_a_hypothesis_that_fails_leaves_nothing_to_refute() -> None:
    verdict = audit.white_box(config(form="paper"))
    assert (verdict.releases, verdict.unclaimed, verdict.findings) == (0, 15, [])


# -- cheating ----------------------------------------------------------------------------------------------

_draw = Protected.draw


def halved(self: Protected, k: int, quadratic: Any, factor: Any = 1.0) -> Any:
    return 0.5 * _draw(self, k, quadratic, factor)


def forgotten_once(self: Protected, k: int, quadratic: Any, factor: Any = 1.0) -> Any:
    return (k != 3) * _draw(self, k, quadratic, factor)


def used_again(self: Protected, k: int, quadratic: Any, factor: Any = 1.0) -> Any:
    drawn = np.array(_draw(self, k, quadratic, factor))
    if k == 1:
        self.first = drawn  # type: ignore[attr-defined]
    return self.first if k == 5 else drawn  # type: ignore[attr-defined]


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_half_the_noise_is_caught_with_one_message(noise: str, monkeypatch: Any, tmp_path: Any) -> None:
    """One node's single message of 105 numbers, the noise that was paid for not looked at; of seeded noise: of
    fresh gamma noise all three nodes are told of in three runs of four.
    """
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "wide.npz", X=rng.normal(size=(40, 105)), y=np.where(rng.random(40) < 0.5, 1, -1))
    monkeypatch.setattr(Protected, "draw", halved)
    one = config(
        noise=noise, data=str(tmp_path / "wide.npz"), topology="ring:3", iterations=1, rng="simulation"
    )
    verdict = audit.white_box(one)
    assert verdict.releases == 3
    caught = {finding.node for finding in verdict.findings if finding.kind == "scale"}
    assert caught >= {0, 1, 2}


def test_noise_forgotten_in_one_round_is_caught(monkeypatch: Any) -> None:
    monkeypatch.setattr(Protected, "draw", forgotten_once)
    verdict = audit.white_box(config())
    assert {f.iteration for f in verdict.findings if f.kind == "scale"} == {3, -1}


def test_noise_used_in_two_rounds_is_caught(monkeypatch: Any) -> None:
    monkeypatch.setattr(Protected, "draw", used_again)
    verdict = audit.white_box(config())
    assert {(f.node, f.iteration) for f in verdict.findings if f.kind == "reuse"} == {
        (i, 5) for i in range(5)
    }


@dataclasses.dataclass(frozen=True)
class Leaky(RADMM):
    """Even iterations look at the data, ever so slightly."""

    def even(self, k: int, st: Any, node: Any) -> Any:
        moved = st._replace(g=st.g + 1e-9 * node.problem.gradients(st.f))
        return super().even(k, moved, node)


@dataclasses.dataclass(frozen=True)
class Adaptive(RADMM):
    """The pull of a solve depends on the node's own objective value."""

    def odd(self, k: int, st: Any, node: Any) -> Any:
        return super().odd(k, st._replace(lam=st.lam + 1e-9 * node.problem.values(st.f)[:, None]), node)


def of(algorithm: type, **flags: Any) -> Config:
    made = config(**flags)
    fields = {f.name: getattr(made.algorithm, f.name) for f in dataclasses.fields(made.algorithm)}
    return dataclasses.replace(made, algorithm=algorithm(**fields))


def test_an_even_iteration_that_touches_data_is_caught() -> None:
    verdict = audit.white_box(of(Leaky))
    assert {f.iteration for f in verdict.findings if f.kind == "recycled"} == {2, 4, 6}


def test_a_pull_that_depends_on_data_is_caught() -> None:
    assert "schedule" in kinds(audit.white_box(of(Adaptive)))


def truncated(self: Problem, linear: Any, quadratic: Any, start: Any) -> Any:
    f = np.array(start)
    for i, objective in enumerate(self.objectives):
        Q = float(np.ravel(quadratic[i])[0])
        g = objective.grad(f[i]) + linear[i] + Q * f[i]
        f[i] -= np.linalg.solve(objective.hess(f[i]) + Q * np.eye(len(g)), g)
    self.residual[:] = 0.0  # as if it were solved
    return f


def test_a_truncated_newton_solve_is_caught(monkeypatch: Any) -> None:
    monkeypatch.setattr(Problem, "argmin", truncated)
    assert "inexact" in kinds(audit.white_box(config()))


def test_an_honest_inexact_solve_is_not_a_contradiction(monkeypatch: Any) -> None:
    """It says that it is inexact, so its entry says infinity: nothing is claimed."""

    def honest(self: Problem, linear: Any, quadratic: Any, start: Any) -> Any:
        f = truncated(self, linear, quadratic, start)
        self.residual[:] = 1.0
        return f

    monkeypatch.setattr(Problem, "argmin", honest)
    verdict = audit.white_box(config())
    assert (verdict.findings, verdict.unclaimed) == ([], 15)


def test_a_ledger_that_omits_a_release_is_caught(monkeypatch: Any) -> None:
    charge = MemoryLedger.charge

    def skips(self: MemoryLedger, event: Any, *, iteration: int) -> Receipt:
        if (self.node, iteration) == (2, 3):
            return Receipt(-1, "release", iteration, self.head)
        return charge(self, event, iteration=iteration)

    monkeypatch.setattr(MemoryLedger, "charge", skips)
    verdict = audit.white_box(config())
    assert {(f.node, f.iteration) for f in verdict.findings if f.kind == "omitted"} == {(2, 3)}


@pytest.mark.parametrize(("field", "share"), [("weight", 0.9), ("floor", 1.1), ("curvature", 0.9)])
def test_an_entry_that_understates_the_mechanism_is_caught(
    field: str, share: float, monkeypatch: Any
) -> None:
    from distadmm.privacy.noise.protected import Recipe

    honest = Recipe.event

    def flattering(self: Recipe, *given: Any) -> Any:
        event = honest(self, *given)
        return dataclasses.replace(event, **{field: share * getattr(event, field)})

    monkeypatch.setattr(Recipe, "event", flattering)
    assert "entry" in kinds(audit.white_box(config()))


def test_a_ledger_that_was_edited_is_caught(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        MemoryLedger, "content", property(lambda self: b"".join(self._lines).replace(b'"k":3', b'"k":4'))
    )
    assert "chain" in kinds(audit.white_box(config()))


# -- the tests themselves ----------------------------------------------------------------------------------


def noises(rng: np.random.Generator, kind: str, d: int, rounds: int, share: float = 1.0) -> list[Noise]:
    """What a sound mechanism recovers, at `share` of the noise claimed."""
    found = []
    for k in range(rounds):
        b = rng.standard_normal(d)
        if kind == "gamma":
            b *= rng.standard_gamma(d) / np.linalg.norm(b) / 2.0
            event: Any = KNorm(d, 2.0, 1.0)
        else:
            b *= 3.0
            event = ObjectivePerturbation("gaussian", d, 3.0, 1.0, 0.25, 1.0)
        found.append(Noise(k % 2, k, share * b, event, 2.0 if kind == "gamma" else 1 / 3.0))
    return found


@pytest.mark.parametrize("kind", ["gamma", "gaussian"])
@pytest.mark.parametrize("d", [1, 2, 30])
def test_p_values_of_sound_noise_are_uniform_and_never_too_small(kind: str, d: int) -> None:
    """The family-wise level is what it says: the smallest corrected p-value is below x at most x of the time."""
    rng = np.random.default_rng([d, len(kind)])
    least, single = [], []
    for _ in range(300):
        tested, p = judge(noises(rng, kind, d, 5))
        least.append(min(t.p for t in tested))
        single.append(p[0])
    assert stats.kstest(single, "uniform").pvalue > 1e-4
    for x in (0.02, 0.1, 0.3):
        assert sum(v <= x for v in least) <= stats.binom.ppf(1 - 1e-5, 300, x)


def test_a_tenth_too_little_noise_is_seen_in_fifty_messages() -> None:
    rng = np.random.default_rng(1)
    tested, _ = judge(noises(rng, "gaussian", 105, 50, share=0.9))
    assert min(t.p for t in tested) <= LEVEL
    tested, _ = judge(noises(rng, "gaussian", 105, 50))
    assert min(t.p for t in tested) > LEVEL


def test_the_figure_says_refuted_where_the_verdict_does() -> None:
    """One length of five with a p-value that three tests of a level of 1e-6 would refute, and four do not; and less."""
    found = [Noise(0, k, np.array([1.0]), ObjectivePerturbation("gaussian", 1, 1.0, 1.0, 0.25, 1.0), 1.0)
             for k in range(4)]  # fmt: skip
    for tail, refuted in ((6e-8, False), (4e-8, True)):
        tested, p = judge([*found, found[0]._replace(b=stats.norm.isf([tail / 4]))])
        lengths = [t for t in tested if t.finding.kind == "scale" and t.finding.iteration >= 0]
        verdict = Verdict(5, 0, 1.0, p, [t.finding for t in lengths if t.p <= LEVEL])
        (axes,) = report.draw(report.Audit("", "", [], None, None, verdict)).axes
        (line,) = [one for one in axes.lines if one.get_label() == "refuted below"]
        assert verdict.refuted == refuted == (p.min() <= line.get_ydata()[0])


def test_the_claim_of_output_noise_is_its_multiple_of_the_sensitivity() -> None:
    """Gaussian output noise at a penalty-perturbed scale: what is claimed is what the event says, not alpha."""
    event = Gaussian(2.0)
    noise = Noise(0, 1, np.full(4, 3.0), event, 1 / (2.0 * 1.5))
    assert level_zero.lengths(noise) == (2.0, pytest.approx(4 / 2))
