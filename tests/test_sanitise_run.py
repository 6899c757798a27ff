"""A sanitised column in a private run: same bits on ranks, listed in the ledger, never added to epsilon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.commands import ledger
from distadmm.data.adult.domains import DOMAINS
from distadmm.data.mapping import Mapping
from distadmm.errors import USAGE, InputError
from distadmm.ranks.world import World
from distadmm.run.shell import in_process

FLAGS: dict[str, Any] = {
    "data": "adult", "topology": "er5", "rows_per_node": 300, "weight": 50.0, "eta": "2", "iterations": 4,
    "alpha": "3", "adjacency": "replace", "rng": "simulation", "progress": "none",
}  # fmt: skip


def mapping_file(folder: Path, keep: float = 0.7) -> Path:
    n = len(DOMAINS["relationship"])
    matrix = np.full((n, n), (1 - keep) / n) + keep * np.eye(n)
    path = folder / "relationship.npz"
    Mapping(matrix, values=tuple(DOMAINS["relationship"]), column="relationship").save(path)
    return path


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_same_bits_on_ranks(world: World, shared_path: Path) -> None:
    path = world.on_root(lambda: str(mapping_file(shared_path)))

    def models(where: World) -> Any:
        config = radmm.configure("radmm", **FLAGS, sanitise=(f"relationship={path}",))
        return in_process(radmm.PROGRAMME, config, where).models

    together = models(world)
    if world.is_root:
        np.testing.assert_array_equal(together, models(World()))


def test_the_ledger_lists_the_nats_and_epsilon_is_unmoved(tmp_path: Path) -> None:
    path = mapping_file(tmp_path)
    plain = radmm.solve("radmm", **FLAGS, out=tmp_path / "plain")
    flags = {**FLAGS, "sanitise": (f"relationship={path}",), "stated": ("mappings",)}
    washed = radmm.solve("radmm", **flags, out=tmp_path / "washed")
    assert washed.epsilon == plain.epsilon
    lines = (tmp_path / "washed" / "ledger" / "node-0001.jsonl").read_text().splitlines()
    (leak,) = [entry for entry in map(json.loads, lines) if entry.get("mech") == "leakage"]
    assert leak["params"]["nats"] == pytest.approx(Mapping.load(path).leakage().nats)
    assert leak["params"]["what"].endswith("to those who do not know --seed")
    assert not np.array_equal(plain.models, washed.models)


def test_a_sanitised_run_keeps_its_certificate(tmp_path: Path) -> None:
    path = mapping_file(tmp_path)
    run = radmm.solve(
        "radmm",
        **{**FLAGS, "rng": "secure", "stated": ("mappings",)},
        sanitise=(f"relationship={path}",),
        out=tmp_path / "run",
    )
    assert run.statement == "certificate"
    kinds = [
        json.loads(line)["kind"]
        for line in (tmp_path / "run/ledger/node-0000.jsonl").read_text().splitlines()
    ]
    assert kinds[:2] == ["open", "commit"]


def test_masked_sums_list_the_nats_as_well(tmp_path: Path, capsys: Any) -> None:
    words = {
        "epsilon": 8.0,
        "trust": "coalition:2",
        "rng": "secure",
        "iterations": 2,
        "stated": ("mappings",),
    }
    flags = {key: value for key, value in FLAGS.items() if key not in ("alpha", "eta")} | words
    path = mapping_file(tmp_path)
    run = radmm.solve(
        "masked", **flags, anyway=True, sanitise=(f"relationship={path}",), out=tmp_path / "run"
    )
    assert (run.epsilon, run.statement) == (8.0, "certificate")
    lines = (tmp_path / "run" / "ledger" / "node-0001.jsonl").read_text().splitlines()
    charged = [entry["mech"] for entry in map(json.loads, lines) if entry["kind"] == "charge"]
    assert charged == ["leakage", *["shared-discrete-gaussian"] * 2]
    assert ledger.main(["show", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "Everything that any 2 of the 5 nodes" in shown
    assert "No guarantee" not in shown


def test_a_mapping_is_applied_by_the_names_of_its_values(tmp_path: Path) -> None:
    """Rows in another order, named: the same symbols for the same people."""
    domain = tuple(DOMAINS["relationship"])
    matrix = np.random.default_rng(0).dirichlet(np.ones(3), size=len(domain))
    order = np.random.default_rng(1).permutation(len(domain))
    Mapping(matrix, values=domain).save(tmp_path / "straight.npz")
    Mapping(matrix[order], values=tuple(np.array(domain)[order])).save(tmp_path / "shuffled.npz")
    flags = {**FLAGS, "alpha": None, "adjacency": None}
    one, two = (
        radmm.solve("admm", **flags, sanitise=(f"relationship={tmp_path / name}.npz",)).models
        for name in ("straight", "shuffled")
    )
    np.testing.assert_array_equal(one, two)
    Mapping(matrix, values=("a", "b", "c", "d", "e", "f")).save(tmp_path / "other.npz")
    with pytest.raises(InputError, match="design it on this column"):
        radmm.solve("admm", **flags, sanitise=(f"relationship={tmp_path / 'other.npz'}",))


def test_an_identity_mapping_changes_nothing_but_the_number_of_columns(tmp_path: Path) -> None:
    path = mapping_file(tmp_path, keep=1.0)
    plain = radmm.solve("admm", **{**FLAGS, "alpha": None, "adjacency": None})
    same = radmm.solve(
        "admm", **{**FLAGS, "alpha": None, "adjacency": None}, sanitise=(f"relationship={path}",)
    )
    np.testing.assert_allclose(same.models, plain.models, atol=1e-12)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("relationship", "COLUMN=mapping"),
        ("relationship=nowhere.npz", "nowhere.npz"),
        ("colour={path}", "colour"),
    ],
)
def test_bad_mappings(what: str, told: str, tmp_path: Path, capsys, monkeypatch) -> None:
    path = mapping_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["--data", "adult", "--iterations", "2", "--sanitise", what.replace("{path}", str(path))]
    assert radmm.main(words) == USAGE
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
    assert not (tmp_path / "runs").exists()
