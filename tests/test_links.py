"""How long iterations take on given links: the recursion, the closed forms beside it, and what is said of them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from distadmm import radmm
from distadmm.__main__ import main
from distadmm.commands import plan_time
from distadmm.commands.plan_time import size_of
from distadmm.graphs.topology import load
from distadmm.ranks.links import (
    HEADS,
    Links,
    Rate,
    Seconds,
    of_exchange,
    of_roll,
    of_sum,
    wall_clock,
    wall_clock_of_sums,
)
from distadmm.ranks.tree import spanning

WIDE = ["--latency", "40ms", "--bandwidth", "10Mbit/s"]


def links(text: str, **how: float) -> Links:
    graph = load(text)
    return Links(graph.indptr, graph.indices, **how)


def test_on_a_path_the_middle_waits_for_the_slower_side() -> None:
    path = Links(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]), np.array([1.0, 1.0, 5.0, 5.0]))
    assert wall_clock(path, 0.5, 100, 1) == 5.5
    assert wall_clock(path, 0.5, 100, 2) == 11.0
    slow = path._replace(per_byte=np.full(4, 0.01))
    assert wall_clock(slow, 0.5, 100, 2) == pytest.approx(11.0 + 2 * 0.01 * (100 + HEADS))
    down_from = {1: {1: None, 0: 1, 2: 1}, 0: {0: None, 1: 0, 2: 1}}  # root -> parents
    assert wall_clock_of_sums(path, down_from[1], 0.5, [100, 100]) == 2 * (0.5 + 5 + 5)
    assert wall_clock_of_sums(path, down_from[0], 0.5, [100]) == 0.5 + 2 * (6)
    assert wall_clock_of_sums(path, down_from[0], 0.5, [100], roll=True) == 0.5 + 2 * 6 + 2 * 5.0


@pytest.mark.parametrize(
    "graph", ["ring:20", "star:20", "complete:12", "er20", "regular:300:d=4", "torus4x5"]
)
@pytest.mark.parametrize("rate", [math.inf, 1.25e6, 1e5])
def test_the_recursion_and_the_closed_form_of_an_exchange_agree(graph: str, rate: float) -> None:
    where, n = links(graph, latency=0.04, rate=rate), load(graph).n
    most = int(load(graph).degrees.max())
    each = of_exchange(where, n, most, 0.002, 840)
    assert each == pytest.approx(0.042 + (0 if rate == math.inf else most * (840 + HEADS) / rate))
    assert wall_clock(where, 0.002, 840, 1000) == pytest.approx(1000 * each, rel=1e-6)


@pytest.mark.parametrize("graph", ["regular:1000:d=4", "er:1000:p=0.01"])
@pytest.mark.parametrize(("latency", "loss"), [(0.04, 0.01), (0.0, 0.001), (0.04, 0.0001)])
def test_with_lost_packets_the_closed_form_is_an_estimate(graph: str, latency: float, loss: float) -> None:
    where, degree = links(graph, latency=latency, loss=loss), float(load(graph).degrees.mean())
    each = of_exchange(where, 1000, degree, 0.002, 840)
    assert wall_clock(where, 0.002, 840, 200) / 200 == pytest.approx(each, rel=0.35)


@pytest.mark.parametrize("graph", ["ring:20", "star:20", "er20", "regular:300:d=4", "tree:40"])
@pytest.mark.parametrize(("message", "loss"), [(840, 0.0), (44520, 0.0), (840, 0.01)])
def test_the_closed_form_of_a_sum_is_near_what_its_tree_takes(graph: str, message: int, loss: float) -> None:
    topology, where = load(graph), links(graph, latency=0.04, rate=1.25e7, loss=loss)
    tree = spanning(topology.indptr, topology.indices, range(topology.n))
    found = wall_clock_of_sums(where, tree.parent, 0.002, 60 * [message]) / 60
    below = max(map(len, tree.children.values()))
    bound = of_sum(where, topology.n, tree.height[tree.root], below, 0.002, message)
    assert 0.75 * found <= bound <= 1.6 * found


@pytest.mark.parametrize(
    "family", ["ring:N", "star:N", "torus:N", "tree:N", "tree:N:b=3", "regular:N:d=3", "er:N:p=0.05"]
)
@pytest.mark.parametrize("n", [100, 1024])
def test_a_graph_that_is_not_made_has_the_degree_and_the_depth_of_one_that_is(family: str, n: int) -> None:
    side = math.isqrt(n)
    topology = load(family.replace("N", f"{side}x{side}" if "torus" in family else str(n), 1))
    tree = spanning(topology.indptr, topology.indices, range(n))
    said = size_of(family, n)
    assert abs(said.height - tree.height[tree.root]) <= 1
    most = topology.degrees.max()
    assert said.degree == most if "er" not in family.split(":") else abs(said.degree - most) <= 0.2 * most


def test_what_stays_on_a_machine_costs_nothing() -> None:
    graph = load("ring:6")
    whole = links("ring:6", latency=0.04, rate=1e4)
    together = whole._replace(machine=np.zeros(6, int))
    assert wall_clock(together, 0.25, 840, 4) == 1.0
    tree = spanning(graph.indptr, graph.indices, range(6))
    assert wall_clock_of_sums(together, tree.parent, 0.25, 4 * [840.0]) == 1.0


def test_one_rank_answers_the_roll_for_all() -> None:
    where = Links(np.zeros(1, int), np.zeros(0, int), 0.04, rate=1.25e6)
    assert of_roll(where, 1) == pytest.approx(0.08)
    assert of_roll(where, 10_000) > 90 * of_roll(where, 1000) / 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("40ms", 0.04), ("0.04", 0.04), (" 2 us", 2e-6), ("1e-3s", 1e-3)],
)
def test_seconds_know_their_units(text: str, value: float) -> None:
    assert Seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Mbit/s", 1.25e6),
        ("10Mbps", 1.25e6),
        ("10 mbit", 1.25e6),
        ("1.25MB/s", 1.25e6),
        ("1e6", 1e6),
        ("8kb/s", 1e3),
    ],
)
def test_rates_know_bits_from_bytes(text: str, value: float) -> None:
    assert Rate(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--latency", "40 minutes"], "needed: seconds, such as 0.04 or 40ms"),
        (["--latency", "-1ms"], "--latency"),
        (["--bandwidth", "fast"], "such as 1.25e6 or 10Mbit/s"),
        (["--bandwidth", "0Mbit/s"], "--bandwidth"),
        (["--packet-loss", "1"], "--packet-loss"),
        (["--topology", "ws:N"], "give one of them, or a graph"),
        (["--topology", "er:N"], "needs one of p=0.01 and degree=20"),
        (["--topology", "er:N:degree=3"], "to be connected: above log N"),
        (["--topology", "regular:N:k=3"], "k=3"),
        (["--machines", "3"], "--topology without N"),
        (["--topology", "ring:5", "--machines", "6"], "at most 5"),
        (["--algorithm", "sgd"], "no algorithm"),
    ],
)
def test_bad_questions_get_one_line(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "time", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert hint in said.err


def test_a_thousand_to_a_million_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "time", *WIDE, "--algorithm", "admm,masked,newton", "--compute", "5ms", "--rows", "20"]
    assert main([*words, "--columns", "12", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [line["nodes"] for line in said["lines"]] == [10**3, 10**4, 10**5, 10**6]
    each = 100 * (0.005 + 0.04 + 4 * (8 * 12 + HEADS) / 1.25e6)
    for line in said["lines"]:
        assert line["seconds"]["admm"] == pytest.approx(each)  # neighbours alone: as long for a million
    deep = [line["seconds"]["newton"] / line["height"] for line in said["lines"]]
    assert max(deep) < 1.1 * min(deep)  # as deep as the tree
    masked = [line["seconds"]["masked"] for line in said["lines"]]
    assert masked[2] > 50 * masked[1]  # one rank tells all of all
    assert main([*words, "--columns", "12"]) == 0
    table = capsys.readouterr().out
    assert "40 ms one way, 10 Mbit/s of each interface" in table
    assert "1,000,000" in table


@pytest.mark.parametrize("algorithm", ["admm", "newton"])
def test_what_is_planned_is_what_a_run_predicts(algorithm: str, tmp_path: Path) -> None:
    """Messages of a trial against those of a run: with slow links, compute is nothing."""
    flags = {"topology": "er5", "data": "tiny", "progress": "none", "observe": "none", "iterations": 20}
    run = radmm.solve(algorithm, **flags, latency="2s", bandwidth="1e4", out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (kept["latency"], kept["bandwidth"]) == (2.0, 1e4)
    count = run.summary["iterations"]
    network = {"latency": Seconds(2), "bandwidth": Rate(1e4), "topology": "er5"}
    asked = plan_time.Options(
        **network, algorithm=(algorithm,), iterations=count, columns=30, compute=Seconds(0)
    )  # fmt: skip
    trial = plan_time.trial(algorithm, asked)
    (line,) = plan_time.lines_of(asked, [trial])
    planned = line.seconds[algorithm] / trial.iterations
    assert planned == pytest.approx(run.summary["predicted_wan_seconds"] / count, rel=0.1)
