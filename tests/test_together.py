"""What the symbols of several sanitised columns say together: the bounds against the joint law, and every ledger."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import istdp, radmm, sharing
from distadmm.data.adult.domains import DOMAINS
from distadmm.data.mapping import Mapping, named_mappings
from distadmm.data.together import together
from distadmm.errors import InputError


def information(joint: np.ndarray) -> float:
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / product[there])).sum())


def pushed(law: np.ndarray, mappings: list[Mapping]) -> tuple[np.ndarray, np.ndarray]:
    """From p(s, y1, ..., ym): the joint laws of (y1..ym, u1..um) and of (s, u1..um), as matrices."""
    both = law.sum(0)
    both = both.reshape(both.shape + (1,) * len(mappings))  # an axis for each column's symbols
    for at, mapping in enumerate(mappings):
        shape = [1] * (2 * len(mappings))
        shape[at], shape[len(mappings) + at] = mapping.matrix.shape
        both = both * mapping.matrix.reshape(shape)
    private = law
    for mapping in mappings:  # the first column's axis goes, its symbol's comes last
        private = np.tensordot(private, mapping.matrix, axes=(1, 0))
    return both.reshape(law[0].size, -1), private.reshape(len(law), -1)


def designed(law: np.ndarray, matrices: list[np.ndarray]) -> list[Mapping]:
    """Mappings whose P_Y and P_{S|Y} are those of this joint law."""
    found = []
    for at, matrix in enumerate(matrices):
        others = tuple(axis for axis in range(1, law.ndim) if axis != at + 1)
        joint = law.sum(others)
        found.append(Mapping(matrix, prior=joint.sum(0), posterior=joint / joint.sum(0)))
    return found


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([0.05, 0.3, 2.0]))
def test_the_bounds_hold_for_columns_that_depend_on_one_another(seed: int, m: int, weight: float) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, m)
    law = rng.dirichlet(np.full(3 * int(np.prod(sizes)), weight)).reshape(3, *sizes) + 1e-9
    law /= law.sum()
    matrices = [rng.dirichlet(np.full(rng.integers(1, 5), weight), size=n) for n in sizes]
    mappings = designed(law, matrices)
    said = together({f"c{at}": mapping for at, mapping in enumerate(mappings)})
    columns, private = pushed(law, mappings)
    assert information(columns) <= said.nats + 1e-9
    likelihood = columns / columns.sum(1, keepdims=True)
    assert np.log(likelihood.max(0).sum()) <= said.maximal + 1e-9
    assert len(said.inference) == m
    for bound in said.inference.values():
        assert information(private) <= bound + 1e-9


def test_what_single_columns_say_of_s_is_no_bound_together() -> None:
    """S is the exclusive or of two fair bits: neither symbol says anything of S, both together say all of it."""
    law = np.zeros((2, 2, 2))
    for a in range(2):
        for b in range(2):
            law[a ^ b, a, b] = 0.25
    mappings = designed(law, [np.eye(2), np.eye(2)])
    alone = [mapping.leakage().inference for mapping in mappings]
    said = together({"a": mappings[0], "b": mappings[1]})
    _, private = pushed(law, mappings)
    assert sum(alone) == pytest.approx(0, abs=1e-12)  # type: ignore[arg-type]
    assert information(private) == pytest.approx(np.log(2))
    assert said.inference == pytest.approx({"a": np.log(2), "b": np.log(2)})  # met, so it cannot be less
    assert said.nats == pytest.approx(2 * np.log(2))
    assert "however these columns depend" in said.text()


def test_equal_columns_through_exact_copies_are_counted_twice_at_most() -> None:
    law = np.einsum("s,ab->sab", [0.5, 0.5], np.diag([0.25, 0.75]))
    mappings = designed(law, [np.eye(2), np.eye(2)])
    columns, _ = pushed(law, mappings)
    assert information(columns) <= together({"a": mappings[0], "b": mappings[1]}).nats


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    words = []
    for column, keep in (("relationship", 0.7), ("race", 0.4)):
        domain = tuple(DOMAINS[column])
        matrix = np.full((len(domain), len(domain)), (1 - keep) / len(domain)) + keep * np.eye(len(domain))
        Mapping(matrix, values=domain, column=column).save(tmp_path / f"{column}.npz")
        words.append(f"{column}={tmp_path / f'{column}.npz'}")
    return words[0], words[1]


def leaks(path: Path) -> list[dict[str, Any]]:
    entries = map(json.loads, path.read_text().splitlines())
    return [entry["params"] for entry in entries if entry.get("mech") == "leakage"]


def listed(folder: Path, number: int) -> list[dict[str, Any]]:
    return leaks(folder / "ledger" / f"node-{number:04d}.jsonl")


def check(found: list[dict[str, Any]], pair: tuple[str, str]) -> None:
    said = together(named_mappings(pair))
    assert [one["nats"] for one in found][:2] == pytest.approx(
        [mapping.leakage().nats for mapping in named_mappings(pair).values()]
    )
    assert len(found) == 3
    assert found[2]["nats"] == pytest.approx(said.nats)
    assert found[2]["what"].startswith("relationship, race by all their symbols together, at most")


def test_the_ledger_of_each_node_lists_the_set(pair: tuple[str, str], tmp_path: Path) -> None:
    radmm.solve(
        "radmm", data="adult", topology="er5", rows_per_node=60, weight=50.0, eta="2", iterations=2, alpha="3",
        adjacency="replace", rng="simulation", progress="none", sanitise=pair, stated=("mappings",),
        out=tmp_path / "run",
    )  # fmt: skip
    check(listed(tmp_path / "run", 3), pair)


def test_a_party_lists_the_set_of_its_own_columns(pair: tuple[str, str], tmp_path: Path) -> None:
    words = ["--data", "adult", "--iterations", "2", "--observe", "none", "--sanitise", ",".join(pair)]
    assert sharing.main([*words, "--split", "20,85", "--out", str(tmp_path / "two")]) == 0
    assert listed(tmp_path / "two", 1) == []
    check(listed(tmp_path / "two", 2), pair)


@pytest.mark.parametrize("form", [[], ["--form", "paper", "--lambda", "0.01"]])
def test_istdp_sanitises_and_lists(form: list[str], pair: tuple[str, str], tmp_path: Path) -> None:
    words = ["--data", "adult", "--sanitise", ",".join(pair), "--stated", "mappings", "--iterations", "3"]
    words += ["--epsilon", "2", "--adjacency", "replace", "--rng", "simulation", "--progress", "none", *form]
    assert istdp.main([*words, "--out", str(tmp_path / "run")]) == 0
    check(listed(tmp_path / "run", 0), pair)
    described = json.loads((tmp_path / "run" / "model.json").read_text())
    assert "relationship~0" in described["features"]
    assert "relationship=Husband" not in described["features"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert float(summary["epsilon"]) == pytest.approx(
        math.inf if form else 2.0, rel=1e-4
    )  # nats never move an epsilon


def test_istdp_without_stated_mappings_claims_nothing(pair: tuple[str, str], tmp_path: Path, capsys) -> None:
    words = ["--data", "adult", "--sanitise", pair[0], "--epsilon", "2", "--adjacency", "replace"]
    assert istdp.main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "--stated mappings" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "synthetic:100x5", "--sanitise", "x0={}"], "made up rows have no categorical columns"),
        (
            ["--data", "adult", "--sanitise", "relationship={}", "--epsilon", "1", "--adjacency", "add-remove",
             "--public-rows", "40000"],
            "add-remove",
        ),
    ],
)  # fmt: skip
def test_istdp_refuses(words: list[str], told: str, pair: tuple[str, str], tmp_path: Path, capsys) -> None:
    path = pair[0].partition("=")[2]
    assert istdp.main([*(word.format(path) for word in words), "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown


def test_a_column_has_one_mapping(pair: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="twice"):
        named_mappings((pair[0], pair[0]))
