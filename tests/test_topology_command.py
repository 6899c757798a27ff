"""python -m distadmm topology: the table, the list, the picture, and its exit codes."""

import json
import re
import sys

import numpy as np
import pytest

from distadmm.commands.topology import main
from distadmm.graphs import draw
from distadmm.graphs.topology import bundled, facts, load


def test_the_table_shows_the_facts(capsys):
    assert main(["er20"]) == 0
    table = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    found = facts(load("er20"))
    assert (int(table["nodes"]), int(table["edges"]), int(table["diameter"])) == (20, 36, found.diameter)
    assert float(table["mu"].split()[0]) == pytest.approx(found.mu, rel=1e-5)
    assert table["bipartite"] == "no"
    assert table["messages an iteration"] == "72"


def test_json_holds_the_facts_and_the_placement(capsys):
    assert main(["torus:4x5", "--json", "--ranks", "4"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["nodes"] == 20
    assert content["mu"] == facts(load("torus:4x5")).mu
    assert sorted(content["rank"]) == sorted(i // 5 for i in range(20))


def test_the_list_names_all_networks_and_generators(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in bundled():
        assert re.search(rf"^{name} ", text, re.M)
    for usage in ("ring:N", "er:N:p=0.3:seed=1", "seq:A,B,...", "links:p="):
        assert usage in text
    assert main(["list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in content["bundled"]} == set(bundled())


def test_attributes_and_changing_networks_are_described(capsys):
    assert main(["sites6"]) == 0
    assert "eta 0.5..2" in capsys.readouterr().out
    assert main(["seq:path:4,ring:4"]) == 0
    assert re.search(r"edges in a step\s+3\.5 on average", capsys.readouterr().out)


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_a_picture_is_the_same_each_time(tmp_path, capsys, ending):
    first, again = tmp_path / f"a{ending}", tmp_path / f"b{ending}"
    assert main(["karate", "--draw", str(first), "--ranks", "3"]) == 0
    assert main(["karate", "--draw", str(again), "--ranks", "3"]) == 0
    assert first.stat().st_size > 1000
    if ending != ".pdf":  # which carries its date
        assert first.read_bytes() == again.read_bytes()


def test_a_picture_has_every_name(tmp_path, capsys):
    assert main(["florentine", "--draw", str(tmp_path / "f.svg")]) == 0
    picture = (tmp_path / "f.svg").read_text()
    assert all(name in picture for name in load("florentine").names)


def test_a_picture_names_its_ranks_and_nodes_do_not_hide_each_other(tmp_path, capsys):
    for ranks, named in ((3, True), (1, False), (9, False)):  # nine ranks share six colours
        assert main(["karate", "--draw", str(tmp_path / "k.svg"), "--ranks", str(ranks)]) == 0
        assert (">rank 2<" in (tmp_path / "k.svg").read_text()) == named, ranks
        assert ("rank 0" in (tmp_path / "k.svg").read_text()) == named, ranks
    network = load("barbell:12:8")
    place = draw.placed(network)
    figure, axes = draw.figures.pyplot().subplots(figsize=(6, 6))
    axes.set_position((0, 0, 1, 1))
    draw.draw_on(axes, network, place)
    axes.apply_aspect()
    points = 72 / figure.dpi * axes.transData.transform(place)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 999 * np.eye(network.n)
    assert axes.collections[-1].get_sizes()[0] ** 0.5 <= apart.min() < 17  # points: nodes would be 17 wide


@pytest.mark.parametrize("spec", ["ring:12", "grid:4x4", "path:9", "complete:5", "star:12", "er20"])
def test_a_layout_keeps_all_nodes_apart_and_edges_short(spec):
    network = load(spec)
    place = draw.layout(network)
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    joined = np.linalg.norm(place[network.edges[:, 0]] - place[network.edges[:, 1]], axis=1)
    assert (apart + 9 * np.eye(network.n)).min() > 0.1
    assert joined.mean() < apart[apart > 0].mean() or spec == "complete:5"


@pytest.mark.parametrize("spec", ["ring:16", "complete:8"])
def test_what_is_alike_all_around_is_drawn_as_a_circle(spec):
    place = draw.layout(load(spec))
    radius = np.linalg.norm(place - place.mean(axis=0), axis=1)
    assert radius.std() < 0.01 * radius.mean()


@pytest.mark.parametrize(
    "arguments",
    [
        *[[], ["--json"], ["absent"], ["er20", "more"], ["er20", "--ranks", "0"], ["er20", "--ranks", "21"]],
        *[
            ["er20", "--draw", "x.bmp"],
            ["er20", "--draw", "no/such/folder/x.svg"],
            ["ring:2000", "--draw", "x.svg"],
        ],
        *[["list", "--draw", "x.svg"], ["er20", "--jsn"], ["seq:ring:3,absent"]],
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["er20", "--draw", str(tmp_path / "x.svg")]) == 2
    assert "distadmm[plot]" in capsys.readouterr().err


def test_help_is_shown(capsys):
    assert main(["--help"]) == 0
    assert "--draw" in capsys.readouterr().out
