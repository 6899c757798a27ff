"""Attempts to make a ledger say less than was spent, where parts of the package meet."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm, sharing
from distadmm.audit import bounds
from distadmm.commands import audit
from distadmm.commands import ledger as ledger_command
from distadmm.data.mapping import Mapping, entropy, replace
from distadmm.errors import InputError
from distadmm.privacy.accounting import accountant, gaussian
from distadmm.privacy.accounting.events import Leakage, event_from_json
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.tally import Tally

DELTA = 1e-5
FLAGS: dict[str, Any] = {
    "weight": 20.0, "rho": 1.0, "eta": "0.5", "iterations": 6, "progress": "none", "observe": "none",
    "rng": "simulation", "delta": DELTA,
}  # fmt: skip


def entries(run: Path, node: int) -> list[dict[str, Any]]:
    return chain.read(run / "ledger" / f"node-{node:04d}.jsonl").entries


def events(run: Path, node: int) -> list[Any]:
    return Tally.of(entries(run, node)).events


def shards(folder: Path, rows: Sequence[int], *, names: bool = False) -> str:
    """One file a node, the same rows whatever their number; the pattern."""
    folder.mkdir(exist_ok=True)
    for node, n in enumerate(rows):
        rng = np.random.default_rng(node)
        X, town = rng.normal(size=(60, 3)), rng.choice(["north", "south", "west"], 60)
        y = np.where(rng.random(60) < 0.5, "no", "yes")
        lines = [
            ",".join([*map(repr, map(float, x)), *([t] if names else []), c]) for x, t, c in zip(X, town, y)
        ]
        head = "a,b,c," + ("town," if names else "") + "y"
        (folder / f"s-{node}.csv").write_text("\n".join([head, *lines[:n]]) + "\n")
    return str(folder / "s-{rank}.csv")


# -- sanitised columns -------------------------------------------------------------------------------------

COIN = Mapping(np.array([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]]), ("north", "south", "west"))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 40), st.data())
def test_another_record_changes_one_symbol_and_one_less_changes_others(seed: int, n: int, data: Any) -> None:
    """Under `replace` the others keep their symbols, to who knows the seed as well; under add-remove they do not."""
    codes = np.random.default_rng(seed).integers(0, 3, n)
    at = data.draw(st.integers(0, n - 1))
    other = codes.copy()
    other[at] = (codes[at] + 1) % 3
    one, two = (replace(COIN, c, COIN.values, "town", seed).codes for c in (codes, other))
    assert np.delete(one == two, at).all()


def test_a_seed_gives_others_another_symbol_when_a_record_goes() -> None:
    codes = np.zeros(200, dtype=int)
    whole, less = (replace(COIN, c, COIN.values, "town", 7).codes for c in (codes, codes[1:]))
    assert np.mean(whole[1:] != less) > 0.3  # so that the price of one record is not the price of this


def test_a_file_that_is_dealt_out_is_not_sanitised_under_add_remove(tmp_path: Path, capsys: Any) -> None:
    mapping = tmp_path / "town.npz"
    COIN.save(mapping)
    shards(tmp_path / "in", [60], names=True)
    schema = tmp_path / "town.toml"
    span = "{ min = -9, max = 9 }"
    lines = [
        'target = "y"',
        'labels = ["no", "yes"]',
        "[columns]",
        f"a = {span}",
        f"b = {span}",
        f"c = {span}",
    ]
    schema.write_text("\n".join([*lines, 'town = ["north", "south", "west"]']) + "\n")
    words = (
        f"--data {tmp_path}/in/s-0.csv --schema {schema} --topology ring:3 --sanitise town={mapping}".split()
    )
    more = "--alpha 1 --public-rows 20 --rng simulation --observe none --progress none --iterations 2"
    words += more.split()
    assert radmm.main([*words, "--adjacency", "add-remove", "--out", str(tmp_path / "never")]) == 2
    told = capsys.readouterr().err
    assert "--sanitise with --adjacency add-remove" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "never").exists()
    assert radmm.main([*words, "--adjacency", "replace", "--out", str(tmp_path / "kept")]) == 0
    shards(tmp_path / "own", [60, 60, 60], names=True)
    words[1] = str(tmp_path / "own" / "s-{rank}.csv")
    assert radmm.main([*words, "--adjacency", "add-remove", "--out", str(tmp_path / "own-run")]) == 0


@pytest.mark.parametrize("prior", [[1 - 2e-9, 1e-9, 1e-9], [1 / 3, 1 / 3, 1 / 3]])
def test_a_mapping_made_for_another_column_cannot_hide_what_it_tells(prior: list[float]) -> None:
    """The identity, with a P_Y in its file of which it tells nothing."""
    told = Mapping(np.eye(3), ("a", "b", "c"), np.array(prior)).release("town")
    event = Leakage(*told)
    most = float(event.what.partition("at most ")[2].split()[0])
    assert most >= math.log(3) >= entropy(np.array([0.2, 0.3, 0.5]))
    assert event.free  # listed, and in no epsilon


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 5))
def test_what_is_said_for_any_distribution_is_above_every_distribution(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, designed, found = (
        rng.dirichlet(np.ones(m) / 3, n),
        rng.dirichlet(np.ones(n)),
        rng.dirichlet(np.ones(n)),
    )
    values = tuple("abcde"[:n])
    most = float(Mapping(matrix, values, designed).release("x").what.partition("at most ")[2].split()[0])
    assert Mapping(matrix, values, found).leakage().nats <= most + 1e-12


# -- alpha of each node's own ------------------------------------------------------------------------------

ALPHAS = {"Oslo": 0.3, "Delft": 1.0, "Lyon": 4.0, "Graz": 2.0}


def network(path: Path, alphas: dict[str, Any]) -> str:
    nodes = "".join(
        f'<node id="{name}">' + (f'<data key="a">{value}</data>' if value is not None else "") + "</node>"
        for name, value in alphas.items()
    )
    names = list(alphas)
    edges = "".join(f'<edge source="{a}" target="{b}"/>' for a, b in zip(names, names[1:] + names[:1]))
    key = '<key id="a" for="node" attr.name="alpha" attr.type="double"/>'
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'{key}<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>'
    )
    return str(path)


@pytest.mark.parametrize("order", [list(ALPHAS), sorted(ALPHAS, reverse=True)])
def test_a_run_is_priced_by_the_node_with_the_least_noise(order: list[str], tmp_path: Path) -> None:
    graph = network(tmp_path / "g.graphml", {name: ALPHAS[name] for name in order})
    run = radmm.solve(
        "radmm", **{**FLAGS, "alpha": "node", "adjacency": "replace", "data": "tiny", "topology": graph},
        out=tmp_path / "run",
    )  # fmt: skip
    found = {i: events(tmp_path / "run", i) for i in range(4)}
    assert {i: {event.scale for event in some} for i, some in found.items()} == {
        i: {ALPHAS[name]} for i, name in enumerate(order)
    }
    prices = [accountant.epsilon(found[i], DELTA, "replace") for i in range(4)]
    assert run.epsilon == pytest.approx(max(prices), rel=1e-9)
    assert int(np.argmax(prices)) == order.index("Lyon")


def test_noise_of_another_nodes_alpha_is_caught(tmp_path: Path, monkeypatch: Any) -> None:
    """The ledger of a node with much noise, and the noise of one with little."""
    from distadmm.privacy.noise.protected import Protected

    graph = network(tmp_path / "g.graphml", ALPHAS)
    config = radmm.configure(
        "radmm", **{**FLAGS, "alpha": "node", "adjacency": "replace", "data": "tiny", "topology": graph}
    )
    assert not audit.white_box(config).refuted
    draw = Protected.draw

    def swapped(self: Protected, *given: Any) -> Any:
        drawn = draw(self, *given)
        drawn[:] = drawn[::-1].copy()
        return drawn

    monkeypatch.setattr(Protected, "draw", swapped)
    assert {f.kind for f in audit.white_box(config).findings} >= {"scale"}


@pytest.mark.parametrize("bad", [0.0, -1.0, "nan", "inf", None])
def test_a_node_without_a_noise_of_its_own_is_refused(bad: Any, tmp_path: Path) -> None:
    graph = network(tmp_path / "g.graphml", {**ALPHAS, "Lyon": bad})
    with pytest.raises(InputError, match="alpha"):
        radmm.solve(
            "radmm", **{**FLAGS, "alpha": "node", "adjacency": "replace", "data": "tiny", "topology": graph},
            out=tmp_path / "run",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


# -- Python estimators -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adjacency", "rounds"), [("replace", 1), ("replace", 3), ("add-remove", 1)])
def test_coefficients_of_neighbouring_tables_are_no_further_apart_than_claimed(
    adjacency: str, rounds: int, tmp_path: Path
) -> None:
    """As a black box: fits of two tables, their first coefficients as scores; secret noise."""
    pytest.importorskip("sklearn")
    from distadmm.estimators import ISTDPClassifier

    n, runs = 12, 60
    X, y = np.zeros((n, 2)), np.tile([0, 1], n // 2)
    X[0, 0] = 1e3  # clipped, or it would decide alone
    other = (X[1:], y[1:]) if adjacency == "add-remove" else (np.concatenate([-X[:1], X[1:]]), y)

    numbers = count()

    def fitted(rows: Any, labels: Any) -> Any:
        model = ISTDPClassifier(
            30.0, DELTA, adjacency=adjacency, divisor=n if adjacency == "add-remove" else None, lam=0.0,
            fit_intercept=False, max_iter=rounds, steps="fixed",
            account=str(tmp_path / f"{next(numbers)}.jsonl"),
        )  # fmt: skip
        return model.fit(rows, labels, classes=(0, 1))

    scores = [np.array([fitted(*table).coef_[0] for _ in range(runs)]) for table in ((X, y), other)]
    last = fitted(X, y)
    assert sum(event.releases for event in last.ledger_.events) == rounds
    assert last.epsilon_ == pytest.approx(accountant.epsilon(last.ledger_.events, DELTA, adjacency))
    claim = bounds.claim_of(last.ledger_.events, adjacency, "ledger")  # type: ignore[arg-type]
    for level in (bounds.trade_off, bounds.lower_bound):
        assert not level(claim, *scores, delta=DELTA, confidence=1 - 1e-6).refuted
    if rounds == 1:  # and these scores do tell the tables apart
        assert bounds.trade_off(bounds.gaussian_claim(0.05, "nothing backs it"), *scores, delta=DELTA).refuted


def test_an_estimator_says_what_each_fit_cost_and_a_seed_guarantees_nothing() -> None:
    pytest.importorskip("sklearn")
    from distadmm.estimators import ISTDPClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.tile([0, 1], 20)
    model = ISTDPClassifier(1.0, DELTA, adjacency="replace", max_iter=3, lam=0.0)
    model.fit(X, y, classes=(0, 1))
    first = model.ledger_, model.coef_
    model.fit(X, y, classes=(0, 1))
    assert model.ledger_ is not first[0]
    assert model.ledger_.run != first[0].run
    assert not np.any(model.coef_ == first[1])
    together = [*first[0].events, *model.ledger_.events]
    assert accountant.epsilon(together, DELTA, "replace") > 1.3
    model.set_params(epsilon=1e-9)  # says nothing of a fit that is over
    assert 0.9 < model.epsilon_ <= 1.0
    assert "(1.0000, 1e-05)-DP" in model.statement_
    seeded = ISTDPClassifier(1.0, DELTA, adjacency="replace", max_iter=3, random_state=0).fit(
        X, y, classes=(0, 1)
    )
    assert seeded.ledger_.statement_kind == "simulation"
    assert "SIMULATION" in seeded.statement_.upper()
    unnamed = ISTDPClassifier(1.0, DELTA, adjacency="replace", max_iter=3).fit(X, y)
    assert unnamed.epsilon_ == math.inf
    assert any(event.unbounded for event in unnamed.ledger_.events)


# -- one file a node, records that come and go -------------------------------------------------------------


def test_nothing_that_is_written_tells_how_many_records_a_shard_has(tmp_path: Path, capsys: Any) -> None:
    told, written, reserved = [], [], []
    for name, rows in (("whole", [40, 40, 40]), ("less", [40, 39, 40])):
        pattern = shards(tmp_path / name, rows)
        words = [
            *(
                "--data",
                pattern,
                "--target",
                "y",
                "--labels",
                "no,yes",
                "--topology",
                "ring:3",
                "--epsilon",
                "1",
            ),
            *("--adjacency", "add-remove", "--public-rows", "40", "--iterations", "4", "--rng", "simulation"),
            *("--observe", "none", "--progress", "none", "--out", str(tmp_path / name / "run")),
        ]
        assert radmm.main(words) == 0
        out = capsys.readouterr().out
        told.append([line for line in out.splitlines() if not line.startswith(("time", "run directory"))])
        run = tmp_path / name / "run"
        content = json.loads((run / "config.json").read_text())
        for key in ("run", "data_id", "config", "t", "started"):
            content.pop(key, None)
        written.append(json.dumps(content, sort_keys=True).replace(str(tmp_path / name), ""))
        reserved.append([events(run, i) for i in range(3)])
    assert told[0] == told[1]
    assert written[0] == written[1]
    assert reserved[0] == reserved[1]


def test_a_record_of_one_shard_moves_no_other_nodes_objective(tmp_path: Path) -> None:
    """All of what a record costs stands in its own node's ledger; so nodes compose by the largest."""
    from distadmm.ranks.world import World
    from distadmm.run.setup import prepare

    slopes = []
    for name, rows in (("whole", [40, 40, 40]), ("less", [40, 39, 40])):
        config = radmm.configure(
            "radmm", **{**FLAGS, "alpha": "1", "adjacency": "add-remove", "public_rows": 40, "topology": "ring:3"},
            data=shards(tmp_path / name, rows), target="y", labels=("no", "yes"),
        )  # fmt: skip
        problem = prepare(config, World()).node.problem
        f = np.random.default_rng(0).normal(size=(3, problem.dimension))
        slopes.append(problem.gradients(f))
    moved = np.linalg.norm(slopes[0] - slopes[1], axis=1)
    assert moved[0] == moved[2] == 0.0
    assert 0 < moved[1] <= 20.0 / 40 * (1 + 1e-12)


# -- moments and scores ------------------------------------------------------------------------------------


def test_scores_add_to_what_the_training_cost(tmp_path: Path, capsys: Any) -> None:
    """However often they are asked for, and the noise is never the same."""
    words = "--data tiny --split 15,15 --epsilon 1 --row-norm 3 --mechanism v1 --observe none --progress none"
    run = tmp_path / "run"
    assert sharing.main([*words.split(), "--out", str(run)]) == 0
    told = []
    for asked in range(3):
        out = tmp_path / f"{asked}.csv"
        given = ["predict", str(run), "--data", "tiny", "--release", "noise:0.5", "--scores", str(out)]
        assert sharing.main(given) == 0
        told.append(np.genfromtxt(out, delimiter=",", names=True)["score"])
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert not np.any(told[one] == told[two])
    scores = Tally.of(chain.read(run / "ledger" / "scores" / "node-0002.jsonl").entries)
    assert scores.releases == 3
    capsys.readouterr()
    assert ledger_command.main(["merge", str(run), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)
    least = math.hypot(gaussian.mu_at(0.99, DELTA), math.sqrt(3) * gaussian.mu_at(0.49, DELTA))
    everything = accountant.epsilon([*events(run, 2), *scores.events], DELTA, "replace")
    assert together["epsilon"] >= everything * (1 - 1e-9) >= gaussian.epsilon(least, DELTA)


def test_scores_without_noise_make_the_ledger_say_infinity(tmp_path: Path, capsys: Any) -> None:
    words = "--data tiny --split 15,15 --epsilon 1 --row-norm 3 --mechanism v1 --observe none --progress none"
    run = tmp_path / "run"
    assert sharing.main([*words.split(), "--out", str(run)]) == 0
    given = ["predict", str(run), "--data", "tiny", "--scores", str(tmp_path / "s.csv")]
    assert sharing.main([*given, "--release", "round:0.5"]) == 0
    found = [
        event_from_json({"mech": entry["mech"], **entry["params"]})
        for entry in chain.read(run / "ledger" / "scores" / "node-0002.jsonl").entries
        if entry["kind"] == "charge"
    ]
    assert any(event.unbounded for event in found)
    capsys.readouterr()
    assert ledger_command.main(["merge", str(run), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert together["epsilon"] in (None, "inf", "infinite", math.inf)
