"""What each node and each coalition saw, from stored bytes and by running again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.audit.play import elsewhere
from distadmm.commands import transcript
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.privacy.ledger.replay import read_all
from tests.common import SMALL

PRIVATE: dict[str, Any] = {**SMALL, "alpha": "1", "adjacency": "label"}


def words(values: dict[str, Any]) -> list[str]:
    return [text for key, value in values.items() for text in ("--" + key.replace("_", "-"), str(value))]


def test_the_messages_of_a_simulated_run_are_those_of_its_twin_from_stored_bytes(tmp_path: Path) -> None:
    """Two ways to the same transcript: a tap on the messages, and the bytes that the run kept."""
    out = tmp_path / "run"
    radmm.solve("radmm", **PRIVATE, rng="simulation", seed=7, out=out)
    stored = transcript.of_run(out)
    again = transcript.of_flags(radmm.configure("radmm", **PRIVATE, seed=7))
    assert stored.simulated
    assert len(stored.messages) == len(again.messages) == 7
    for one, two in zip(stored.messages, again.messages):
        assert one.iteration == two.iteration
        np.testing.assert_array_equal(one.rows, two.rows)


def test_a_secure_run_is_read_from_its_bytes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = radmm.solve("mradmm", **PRIVATE, out=out)
    found = transcript.of_run(out)
    assert not found.simulated
    np.testing.assert_array_equal(found.messages[-1].rows, run.models)
    kept = read_all(out / "ledger")
    for message in found.messages[1::2]:
        for i in range(5):
            assert kept[i, message.iteration].payload == message.rows[i].tobytes()


def test_a_node_sees_its_neighbours_and_nobody_else(tmp_path: Path) -> None:
    found = transcript.of_flags(radmm.configure("radmm", **PRIVATE))
    network = found.prepared.node.network
    transcript.write(found, tmp_path)
    for i in range(5):
        around = network.indices[network.indptr[i] : network.indptr[i + 1]].tolist()
        seen = read_npz(tmp_path / f"node-{i:04d}.npz")
        assert sorted(key for key in seen if key.startswith("from")) == [f"from-{j:04d}" for j in around]
        for j in around:
            np.testing.assert_array_equal(seen[f"from-{j:04d}"], [m.rows[j] for m in found.messages])
    index = json.loads((tmp_path / "index.json").read_text())
    assert "SIMULATION" in index["watermark"]
    assert [line["kind"] for line in index["exchanges"][:3]] == ["start", "solve", "recycle"]


def test_a_coalition_around_a_node_has_its_perturbed_gradients_and_no_more() -> None:
    """grad O(f) + b, which it works out from messages alone, is what the data leave behind."""
    found = transcript.of_flags(radmm.configure("radmm", **PRIVATE))
    network, recording = found.prepared.node.network, found.recording
    assert recording is not None
    victim = 4
    around = network.indices[network.indptr[victim] : network.indptr[victim + 1]].tolist()
    seen = found.view(around)
    assert victim in seen.gradients
    assert all(
        set(network.indices[network.indptr[i] : network.indptr[i + 1]]) <= set(around) for i in seen.gradients
    )
    objective = found.prepared.node.problem.objectives[victim]
    for row, k in zip(seen.gradients[victim], sorted(found.solves)):
        noise, error = recording.noise[victim, k], recording.output[victim, k]
        f = recording.sealed[k][victim] - error
        np.testing.assert_allclose(row, objective.grad(f) + noise, atol=1e-3)
    assert found.view(around[:1]).gradients == {}


def test_rows_of_one_neighbour_alone_make_no_transcript() -> None:
    tuned = {key: value for key, value in SMALL.items() if key != "eta"}
    with pytest.raises(InputError, match="give --no-tune"):
        transcript.of_flags(radmm.configure("admm", **tuned, message_loss=0.4))
    found = transcript.of_flags(radmm.configure("admm", **tuned, message_loss=0.4, tune=False))
    assert found.messages


def test_lost_messages_are_not_seen() -> None:
    found = transcript.of_flags(radmm.configure("radmm", **{**PRIVATE, "iterations": 20}, message_loss=0.4))
    network = found.prepared.node.network
    assert network.conditions is not None
    missing = total = 0
    for i in range(5):
        for slot in range(network.indptr[i], network.indptr[i + 1]):
            rows = found.view([i]).rows[int(network.indices[slot])]
            there = [network.conditions.at(k).received[network.slots[slot]] for k in range(1, 21)]
            np.testing.assert_array_equal(~np.isnan(rows[1:]).any(axis=1), there)
            missing, total = missing + there.count(False), total + 20
    assert 0.2 < missing / total < 0.6


def test_a_run_without_noise_gives_its_gradients_away() -> None:
    tuned = {key: value for key, value in SMALL.items() if key != "eta"}
    found = transcript.of_flags(radmm.configure("admm", **tuned))
    assert found.recording is None
    assert (
        found.messages[0].rows.shape[1] != found.messages[1].rows.shape[1]
    )  # a metric of the data, to begin with
    network = found.prepared.node.network
    seen = found.view(network.indices[network.indptr[4] : network.indptr[5]].tolist())
    assert (4, 0) in seen.others
    f = np.stack([m.rows[4] for m in found.messages[1:]])
    gradients = np.stack([found.prepared.node.problem.objectives[4].grad(row) for row in f])
    np.testing.assert_allclose(seen.gradients[4], gradients, atol=1e-8)


def test_other_data_have_the_same_public_constants() -> None:
    objective = transcript.prepare(
        radmm.configure("radmm", **SMALL), transcript.World()
    ).node.problem.objectives[0]
    other = elsewhere(objective)
    assert (other.scale, other.ridge, other.rows, other.dimension) == (
        objective.scale,
        objective.ridge,
        objective.rows,
        objective.dimension,
    )
    f = np.ones(objective.dimension)
    assert not np.allclose(other.grad(f), objective.grad(f))


def test_the_command_writes_views_and_says_what_they_are(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "views"
    arguments = [*words(PRIVATE), "--algorithm", "radmm", "--collude", "1+3,0+2", "--out", str(out)]
    assert transcript.main(arguments) == 0
    told = capsys.readouterr().out
    assert "SIMULATION" in told
    assert sorted(p.name for p in out.glob("*.npz"))[:2] == [
        "coalition-0000-0002.npz",
        "coalition-0001-0003.npz",
    ]
    index = json.loads((out / "index.json").read_text())
    assert len(index["views"]) == 7
    assert transcript.main(arguments) == 2  # the directory is not empty
    assert transcript.main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["no-such-run"], "no run directory"),
        ([*words(PRIVATE), "--collude", "1+9"], "from 0 to 4"),
        ([*words(PRIVATE), "--collude", "x"], "--collude"),
        ([*words(PRIVATE), "--colude", "1"], "did you mean"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], part: str, capsys: Any, tmp_path: Path) -> None:
    assert transcript.main([*arguments, "--out", str(tmp_path / "never")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert part in told[0]
    assert not (tmp_path / "never").exists()


def test_a_run_that_forgot_its_messages_is_refused(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    radmm.solve("radmm", **PRIVATE, checkpoint_every=4, out=out)
    assert transcript.main([str(out), "--out", str(tmp_path / "views")]) == 2
    assert "checkpoint" in capsys.readouterr().err


def test_a_summary_of_fewer_than_no_iterations_is_refused(tmp_path: Path) -> None:
    radmm.solve("radmm", **PRIVATE, rng="simulation", out=tmp_path / "run")
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "iterations": -1}))
    with pytest.raises(InputError, match="tells of -1 iterations"):
        transcript.of_run(tmp_path / "run")
