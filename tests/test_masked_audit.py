"""Audits of masked sums: sound runs stand, and bugs that are planted in the running product are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.audit import bounds, coalition, masked, masked_views
from distadmm.audit.draws import Draws
from distadmm.commands import audit as command
from distadmm.commands import transcript as transcript_command
from distadmm.errors import InputError
from distadmm.files import read_json, read_npz
from distadmm.methods.masked import private, rows
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.noise import masks
from distadmm.privacy.noise.mechanism import Noise
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

RUN: dict[str, Any] = {
    "data": "tiny", "topology": "ring:4", "epsilon": 8.0, "adjacency": "replace", "trust": "coalition:1",
    "rng": "simulation", "anyway": True, "evaluate": 2.0,
}  # fmt: skip
SECRET = Draws("secure", 0)  # whose key agreement is fast


def found(draws: Draws = SECRET, **change: Any) -> set[str]:
    """Kinds of findings."""
    return {
        finding.kind
        for finding in masked.white_box(radmm.configure("masked", **{**RUN, **change}), draws).findings
    }


@pytest.mark.parametrize("change", [{}, {"trust": "any"}, {"adjacency": "add-remove", "public_rows": 114}])
def test_a_sound_run_stands(change: dict[str, Any]) -> None:
    verdict = masked.white_box(radmm.configure("masked", **{**RUN, **change}), SECRET)
    assert not verdict.findings
    assert verdict.releases in (15 * 4, 16 * 4)


def half(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SharedDiscreteGaussian.sample

    def halved(self: Any, *given: Any) -> np.ndarray:
        return sample(replace(self, share_variance_grid=self.share_variance_grid // 4), *given)

    monkeypatch.setattr(SharedDiscreteGaussian, "sample", halved)


def for_the_whole_roster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rule, "honest", lambda self, roster: roster)


def for_nobody_who_colludes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "colluding_of", lambda text, nodes: 0)


def of_the_kind_and_not_of_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[Any, np.ndarray] = {}
    draw = Noise.draw

    def kept(self: Any, event: Any, *, iteration: int, at: int = 0, **more: Any) -> np.ndarray:
        share = draw(self, event, iteration=iteration, at=at, **more)
        return drawn.setdefault((at, event.kind, event.share_variance_grid), share)

    monkeypatch.setattr(Noise, "draw", kept)


def of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "KINDS", dict.fromkeys(masks.KINDS, 0))


def without_their_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_shortened", lambda values, limit: values)


def before_their_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Rows.__init__

    def long(self: Any, X: np.ndarray, *given: Any) -> None:
        init(self, X, *given)
        self.x = self._cut(X)  # phi is shortened all the same

    monkeypatch.setattr(Rows, "__init__", long)


def without_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(self: Any, scale: np.ndarray, rho: float, w: np.ndarray, plain: bool = False) -> np.ndarray:
        phi = self._phi(scale, rho)
        u = rows.slope_of(self.rule, phi @ w, self.targets) - self.rule.centre * self.at_zero
        return self._whole((phi.T @ self._cut(u)).ravel())

    monkeypatch.setattr(Rows, "later", later)


def of_losses_that_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "losses_of", lambda rule, z, y: (z[:, 0] <= 0, z[:, 0] ** 2))
    monkeypatch.setattr(
        rows.np, "clip", lambda values, *limits, **more: np.minimum(np.maximum(values, -1e6), 1e6)
    )


PLANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (half, "scale"), (for_the_whole_roster, "entry"), (for_nobody_who_colludes, "entry"),
    (of_the_kind_and_not_of_the_round, "reuse"), (of_any_kind, "masks"), (without_their_cut, "entry"),
    (before_their_cut, "entry"), (without_a_cap, "entry"),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_bug_is_caught(plant: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert kind in found()


def test_losses_that_are_not_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    of_losses_that_are_not_cut(monkeypatch)
    verdict = masked.white_box(radmm.configure("masked", **RUN), SECRET)
    assert any("evaluation" in finding.text for finding in verdict.findings)


def test_benign_rows_do_not_show_that_the_cut_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the audit makes rows of its own: those of the table are short already."""
    without_their_cut(monkeypatch)
    config = radmm.configure("masked", **RUN)
    plan = private.plan_of(prepare(config, World()))
    assert plan is not None
    X, y = prepare(config, World()).node.problem.objectives[0].records()
    tapped = masked.record(config, SECRET).rounds[0]
    moved = [rows_sum(Rows(X[i : i + 1], y[i : i + 1], plan.rule, plan.rule.bits), tapped.ask, tapped.learner)
             for i in range(len(X))]  # fmt: skip
    worst = max(np.linalg.norm(one.astype(float) - two) for one in moved for two in moved)
    assert worst < tapped.events[0].sensitivity_grid


# -- a finished run, and coalitions -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited") / "run"
    radmm.solve("masked", out=folder, **RUN)
    return folder


def test_the_ledgers_of_a_finished_run_are_priced_again(run: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["--level", "0", "--out", str(tmp_path / "audit")]
    assert command.main([str(run), *words]) == 0
    assert "NOT REFUTED (64 releases" in capsys.readouterr().out
    config = radmm.configure("masked", **RUN)
    made = masked.record(config, SECRET)
    dearer = config.replace(trust="coalition:2")  # what was claimed to somebody else
    assert {f.kind for f in masked._of_ledgers(dearer, made, run)} == {"entry", "price"}
    assert not masked._of_ledgers(config, made, run)


def attacked(monkeypatch: pytest.MonkeyPatch | None, runs: int, **change: Any) -> bounds.Outcome:
    config = radmm.configure("masked", **{**RUN, "evaluate": None, "epsilon": 4.0, **change})
    plan = private.plan_of(prepare(config, World()))
    assert plan is not None
    sound = coalition.small(plan, 2)
    events = list(sound.schedule.candidates)
    if monkeypatch is not None:
        half(monkeypatch)
    sides, _ = coalition.attack(sound, runs, Draws("simulation", 0))
    claim = bounds.claim_of(events, config.privacy.adjacency, "")  # type: ignore[arg-type]
    return bounds.trade_off(claim, *sides, delta=1e-5, confidence=0.95)


def test_what_a_coalition_sees_is_within_the_claim_and_near_it() -> None:
    config = radmm.configure("masked", **{**RUN, "evaluate": None, "epsilon": 4.0})
    plan = private.plan_of(prepare(config, World()))
    assert plan is not None
    sides, events = coalition.attack(coalition.small(plan, 2), 60, Draws("simulation", 0))
    mu2 = sum(event.gdp_mu("replace") ** 2 for event in events)
    apart, spread = sides[1].mean() - sides[0].mean(), math.sqrt(2 * mu2 / 60)
    assert 0.4 * mu2 < apart < mu2 + 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"trust": "any"}, {"adjacency": "add-remove", "public_rows": 114}])
def test_halved_noise_is_refuted_by_what_a_coalition_sees(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not attacked(None, 400, **change).refuted
    assert attacked(monkeypatch, 400, **change).refuted


# -- transcripts ------------------------------------------------------------------------------------------


def test_views_hold_what_travelled(run: Path, tmp_path: Path, capsys: Any) -> None:
    """Every vector up the tree is the sum of what its children sent and the node's own; who colludes knows no more."""
    out = tmp_path / "seen"
    assert transcript_command.main([str(run), "--collude", "0+2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"16 rounds, {read_json(run / 'summary.json')['messages']} messages" in shown
    index = read_json(out / "index.json")
    assert [line["kind"] for line in index["rounds"]][:2] == ["squares", "curvature"]
    alone = [read_npz(out / f"node-{i:04d}.npz") for i in range(4)]
    pair = read_npz(out / "coalition-0000-0002.npz")
    made = masked.record(radmm.configure("masked", **RUN), Draws("simulation", 0))
    for r, tapped in enumerate(made.rounds):
        own = [alone[i][f"round-{r:02d}-own-{i:04d}"] for i in range(4)]
        total = alone[3][f"round-{r:02d}-total"]
        np.testing.assert_array_equal(np.sum(own, axis=0, dtype=np.uint64), total)
        for child, parent in tapped.parents.items():
            if parent is not None:
                sent = alone[parent][f"round-{r:02d}-from-{child:04d}"]
                below = [
                    alone[child][name] for name in alone[child] if name.startswith(f"round-{r:02d}-from")
                ]
                np.testing.assert_array_equal(
                    sent, own[child] + np.sum([0 * total, *below], axis=0, dtype=np.uint64)
                )
        others = [1, 3]
        left = (tapped.values[others] + tapped.shares[others]).sum(axis=0)
        np.testing.assert_array_equal(pair[f"round-{r:02d}-others"], left)
        assert not any(name.endswith("others") for name in alone[0])


def test_what_cannot_be_seen_again_is_refused(tmp_path: Path) -> None:
    secret = radmm.configure("masked", **{**RUN, "rng": "secure"})
    with pytest.raises(InputError, match="cannot be drawn again"):
        masked_views.of_config(secret, tmp_path)
    with pytest.raises(InputError, match="add --epsilon"):
        masked_views.of_config(radmm.configure("masked", data="tiny"), None)
