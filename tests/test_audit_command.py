"""The audit command: verdicts, files, exit codes, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.commands import audit
from distadmm.files import read_npz
from distadmm.privacy.noise.protected import Protected
from distadmm.ranks.world import World
from tests.common import SMALL

FLAGS = {**SMALL, "iterations": 4, "alpha": "1", "adjacency": "label"}
FEW = ["--runs", "40", "--audit-columns", "2"]


def words(values: dict[str, Any]) -> list[str]:
    return [text for key, value in values.items() for text in ("--" + key.replace("_", "-"), str(value))]


def test_a_sound_run_is_not_refuted_and_the_report_has_it_all(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "audit"
    seeded = [*words(FLAGS), "--rng", "simulation"]
    assert audit.main([*seeded, *FEW, "--confidence", "0.999", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert told.count("NOT REFUTED") == 3
    assert "SIMULATION" in told
    assert "proves no guarantee" in told
    report = json.loads((out / "audit.json").read_text())
    assert not report["refuted"]
    assert [level["level"] for level in report["levels"]] == [0, 1, 2]
    for level in report["levels"]:
        assert {"claim", "claimed_epsilon", "lower_bound", "confidence", "runs", "verdict"} <= set(level)
    assert report["levels"][2]["lower_bound"] <= report["levels"][2]["claimed_epsilon"]
    scores = read_npz(out / "scores.npz")
    assert scores["D"].shape == scores["D2"].shape == (40,)
    assert (out / "audit.png").stat().st_size > 10_000


def test_a_refuted_claim_is_exit_code_one(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    draw = Protected.draw
    monkeypatch.setattr(Protected, "draw", lambda self, *given: 0.25 * draw(self, *given))
    assert audit.main([*words(FLAGS), "--level", "0", "--out", str(tmp_path / "audit")]) == 1
    assert "REFUTED" in capsys.readouterr().out
    report = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert {finding["kind"] for finding in report["levels"][0]["findings"]} >= {"inexact"}


@pytest.mark.parametrize("subject", ["sharing-printed", "istdp-printed"])
def test_the_printed_mechanisms_are_refuted_with_thirty_transcripts(
    subject: str, tmp_path: Path, capsys: Any
) -> None:
    assert audit.main([subject, "--runs", "30", "--out", str(tmp_path / "audit")]) == 1
    assert capsys.readouterr().out.count(" REFUTED") == 2


@pytest.mark.parametrize("arguments", [["istdp"], ["sharing"], ["sharing", "--mechanism", "s2"]])
def test_the_sound_mechanisms_stand(arguments: list[str], tmp_path: Path, capsys: Any) -> None:
    given = [*arguments, "--runs", "40", "--confidence", "0.999999", "--iterations", "3", "--rows", "10"]
    assert audit.main([*given, "--out", str(tmp_path / "audit")]) == 0
    assert capsys.readouterr().out.count("NOT REFUTED") == 3


def test_a_finished_secure_run_is_audited_from_its_own_bytes(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    radmm.solve("radmm", **FLAGS, out=out)
    assert audit.main([str(out), "--out", str(tmp_path / "audit")]) == 0
    told = capsys.readouterr().out
    assert "NOT REFUTED (10 releases" in told
    assert "SIMULATION" not in told


def test_a_finished_run_with_too_little_noise_is_refuted_by_its_own_bytes(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """No tap, no seed: messages, ledgers and data are enough."""
    out = tmp_path / "run"
    draw = Protected.draw
    with monkeypatch.context() as cheating:
        cheating.setattr(Protected, "draw", lambda self, *given: 0.25 * draw(self, *given))
        radmm.solve("radmm", **FLAGS, out=out)
    assert audit.main([str(out), "--out", str(tmp_path / "audit")]) == 1


def test_what_claims_nothing_is_said_to_claim_nothing(tmp_path: Path, capsys: Any) -> None:
    given = [*words(FLAGS), *FEW, "--form", "paper", "--out", str(tmp_path / "audit")]
    assert audit.main(given) == 0
    told = capsys.readouterr().out
    assert told.count("NOTHING IS CLAIMED") == 3
    assert "published bound holds for exact minimisers only" in told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nothing-like-it"], "nothing to audit"),
        (words({k: v for k, v in FLAGS.items() if k not in ("alpha", "adjacency")}), "no claim"),
        ([*words(FLAGS), "--runs", "3"], "--runs"),
        ([*words(FLAGS), "--canary", "yellow"], "--canary"),
        ([*words({**FLAGS, "mechanism": "output"}), *FEW, "--level", "1"], "--level 0"),
        (
            [*words({**FLAGS, "adjacency": "add-remove", "public_rows": 20}), *FEW, "--canary", "label"],
            "label",
        ),
        (["istdp", "--epsilon", "-1"], "--epsilon"),
        (["istdp-printed", "--level", "0"], "--level 1"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], part: str, capsys: Any, tmp_path: Path) -> None:
    assert audit.main([*arguments, "--out", str(tmp_path / "never")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert part in told[0]
    assert not (tmp_path / "never").exists()


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_the_scores_are_the_same_bits_on_any_number_of_ranks(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(audit, "_BATCH", 10)
    config = radmm.configure("radmm", **FLAGS, rng="simulation")
    options = audit.Options(runs=25, audit_columns=2)
    together = audit.attack(config, options, world)
    if world.is_root:
        alone = audit.attack(config, options)
        np.testing.assert_array_equal(together.here, alone.here)
        np.testing.assert_array_equal(together.there, alone.there)
