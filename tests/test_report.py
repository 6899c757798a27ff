"""Runs side by side: the numbers of the table from the files themselves, the page, and what is refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
import subprocess
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import funnel, radmm
from distadmm.commands import report, report_figures, report_notes, report_page, report_runs

TINY = ["--data", "tiny", "--weight", "20", "--progress", "none"]


def run(out: Path, *flags: str) -> Path:
    assert radmm.main([*TINY, "--out", str(out), *flags]) == 0
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Three networks without noise, and one network with noise of three seeds at two budgets."""
    top = tmp_path_factory.mktemp("runs")
    for topology in ("ring:5", "complete:5", "star:5"):
        flags = ("--algorithm", "admm", "--topology", topology, "--iterations", "40")
        run(top / "plain" / topology.replace(":", ""), *flags)
    for epsilon in ("20", "4"):
        for seed in ("0", "1", "2"):
            noise = ("--epsilon", epsilon, "--adjacency", "replace", "--rng", "simulation", "--seed", seed)
            noise = (*noise, "--observe", "all")
            run(top / "noisy" / f"e{epsilon}s{seed}", "--topology", "ring:5", "--iterations", "20", *noise)
    return top


def lines_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def reported(capsys, *argv: Any) -> tuple[int, list[dict[str, str]], str, str]:
    """Exit code, the table by row and column, all that was printed, and what was said of errors."""
    capsys.readouterr()
    code = report.main([str(word) for word in argv])
    out, err = capsys.readouterr()
    lines = out.strip("\n").split("\n")
    heads = re.split(r"\s{2,}", lines[0].strip())
    rows = [dict(zip(heads, re.split(r"\s{2,}", line.strip()))) for line in lines[1:] if "  " in line]
    for line in lines:  # what all rows would say stands below them
        if line.startswith("in every row: "):
            same = [one.split(" = ", 1) for one in line[14:].split("; ")]
            rows = [row | dict(same) for row in rows]
    return code, rows, out, err


def test_the_table_says_when_each_network_got_where_and_for_how_many_bytes(runs: Path, capsys) -> None:
    code, rows, out, _ = reported(capsys, runs / "plain", "--out", "none", "--gaps", "1e-3,1e-5")
    assert code == 0
    assert [row["setting"] for row in rows[:3]] == ["complete:5", "ring:5", "star:5"]
    assert "note:" not in out
    for row in rows[:3]:
        lines = lines_of(runs / "plain" / row["setting"].replace(":", ""))
        summary = json.loads((runs / "plain" / row["setting"].replace(":", "") / "summary.json").read_text())
        for gap, name in ((1e-3, "0.001"), (1e-5, "1e-05")):
            first = next(line for line in lines if float(line["mean_model_gap"]) <= gap)
            assert row[f"to gap {name}"] == first["iteration"]
            assert float(row[f"MB to gap {name}"]) == pytest.approx(float(first["bytes"]) / 1e6, rel=0.05)
        assert float(row["gap of mean"]) == pytest.approx(summary["mean_model_gap"], rel=0.01, abs=1e-15)
        assert float(row["test error %"]) == pytest.approx(100 * summary["test_error"], abs=0.005)
        assert row["epsilon"] == "inf"
        assert row["statement"] == "no noise was asked for"


def test_seeds_are_one_row_with_their_median_and_range(runs: Path, capsys) -> None:
    code, rows, out, _ = reported(capsys, runs / "noisy", "--out", "none")
    assert code == 0
    assert [row["setting"] for row in rows[:2]] == ["epsilon 4", "epsilon 20"]  # numbers by size
    assert {row["runs"] for row in rows[:2]} == {"3"}
    for row, epsilon in zip(rows, ("4", "20")):
        gaps = [
            float(lines_of(runs / "noisy" / f"e{epsilon}s{seed}")[-1]["mean_model_gap"]) for seed in range(3)
        ]
        middle, low, high = (f"{v:.2e}" for v in (statistics.median(gaps), min(gaps), max(gaps)))
        assert row["gap of mean"] == f"{middle} [{low}, {high}]"
        spent = [float(lines_of(runs / "noisy" / f"e{epsilon}s{seed}")[-1]["epsilon"]) for seed in range(3)]
        assert statistics.median(spent) <= float(row["epsilon"]) <= float(epsilon)  # shown rounded up
        assert row["statement"] == "simulation"
    assert "note: simulation: noise that a seed repeats protects nobody" in out
    assert "epsilon at delta 1e-05 for replace" in out
    assert "not peer-reviewed" in out
    assert "add up" not in out  # nothing real was released


def test_real_runs_on_the_same_data_add_up(runs: Path, tmp_path: Path, capsys) -> None:
    budget = ("--topology", "ring:5", "--iterations", "4", "--epsilon", "20", "--adjacency", "replace")
    gaussian = ("--mechanism", "output", "--noise", "gaussian")
    one = run(tmp_path / "one", *budget, *gaussian)
    _, _, out, _ = reported(capsys, one, runs / "noisy" / "e4s0", "--out", "none")
    assert "published bound for Gaussian noise" in out
    assert "add up" not in out
    _, _, out, _ = reported(capsys, one, runs / "plain" / "ring5", "--out", "none")
    assert "together these have no bound, for 1 of them has none" in out
    assert "more than any row says" not in out
    other = run(tmp_path / "other", *budget, *gaussian)
    _, _, out, _ = reported(capsys, one, other, "--out", "none")
    assert "together these have spent more than any row says" in out
    _, _, out, _ = reported(capsys, one, other, runs / "plain" / "ring5", "--out", "none")
    assert "1 of them has none; those that have one have spent more than any row says" in out


def test_nothing_at_all_is_a_number_and_a_problem_that_rows_replace_is_none(tmp_path: Path, capsys) -> None:
    for name, flags in (
        ("own", ("--data", "adult", "--private", "income", "--public", "education")),
        ("built", ()),
    ):
        assert funnel.main([*flags, "--fractions", "0.3", "--out", str(tmp_path / name)]) == 0
    _, rows, _, _ = reported(capsys, tmp_path, "--out", "none")
    assert rows[0]["I(S;Y)"] == rows[0]["proven lower"] == "0.00000000"
    assert ["problem" in row["setting"] for row in rows[:2]] == [False, True]
    for name, tabled in (("own", True), ("built", False)):  # a column of nothing is left out
        told = report.sections([report_runs.read(tmp_path / name)])
        assert (">data</th>" in report_page.page(report.MARK, told)) == tabled


def test_a_long_statement_is_a_note_and_the_cell_its_beginning(runs: Path) -> None:
    trace = report_runs.read(runs / "noisy" / "e4s0")
    long = f"claimed by the paper, refuted: {'so it is, ' * 12}as was said"
    one = report.sections([replace(trace, summary={**trace.summary, "statement": long})])[0]
    assert one.rows[0][one.header.index("statement")] == "claimed by the paper, refuted"
    assert long in one.notes


def test_a_gap_that_some_seeds_reach_says_how_many(runs: Path, capsys) -> None:
    first = [
        min(float(line["mean_model_gap"]) for line in lines_of(runs / "noisy" / f"e20s{s}")) for s in range(3)
    ]
    between = sorted(first)[1]
    _, rows, _, _ = reported(capsys, runs / "noisy", "--out", "none", "--gaps", repr(between))
    assert rows[1][f"to gap {between:g}"].endswith("(2 of 3)")


def test_what_sets_runs_apart_is_named_and_nothing_else(runs: Path, tmp_path: Path) -> None:
    slow = run(
        tmp_path / "slow", "--algorithm", "radmm", "--topology", "ring:5", "--eta", "8", "--gamma", "1"
    )
    found = report_runs.groups(
        [report_runs.read(folder) for folder in (slow, runs / "plain" / "ring5", runs / "noisy" / "e4s0")]
    )
    assert (
        [group.label for group in found]
        == [
            "admm",
            "radmm, gamma 0.5, epsilon 4",
            "radmm, eta 8, gamma 1",
        ]
    )  # the iterations are a column, and what is chosen by itself goes without saying where the rest tells runs apart
    plain = report_runs.read(runs / "plain" / "ring5")
    short = replace(plain, config={**plain.config, "iterations": 20})
    labels = [group.label for group in report_runs.groups([plain, short])]
    assert labels == ["iterations 20", "iterations 40"]  # where nothing else does, they tell them apart
    assert dict(report_runs.common(found))["topology"] == "ring:5"
    assert "epsilon" not in dict(report_runs.common(found))


def test_an_algorithm_of_ones_own_is_named_without_its_folders(runs: Path) -> None:
    plain = report_runs.read(runs / "plain" / "ring5")
    at = [
        replace(plain, config={**plain.config, "algorithm": path}) for path in ("/a/b/mine.py", "/a/b/his.py")
    ]
    assert [group.label for group in report_runs.groups(at)] == ["his.py", "mine.py"]
    assert report_runs.groups(at[:1])[0].label == "mine.py on ring:5"
    other = replace(plain, config={**plain.config, "algorithm": "/c/mine.py"})
    assert {group.label for group in report_runs.groups([at[0], other])} == {"/a/b/mine.py", "/c/mine.py"}


def test_a_run_that_leaves_unset_what_others_set_has_a_name(runs: Path, tmp_path: Path) -> None:
    same = ["--algorithm", "radmm", "--topology", "ring:5", "--iterations", "20", "--observe", "none"]
    plain = run(tmp_path / "plain", *same)
    private = run(
        tmp_path / "private", *same, "--epsilon", "4", "--adjacency", "replace", "--rng", "simulation"
    )
    found = report_runs.groups([report_runs.read(folder) for folder in (plain, private)])
    assert {group.label for group in found} == {"epsilon 4", "without epsilon"}


def test_different_objectives_are_told(runs: Path, tmp_path: Path, capsys) -> None:
    heavy = run(tmp_path / "heavy", "--algorithm", "admm", "--topology", "ring:4", "--rho", "3")
    _, _, out, _ = reported(capsys, heavy, runs / "plain" / "ring5", "--out", "none")
    assert "the objectives differ (rho, number of nodes)" in out
    _, _, out, _ = reported(capsys, runs / "plain", "--out", "none")
    assert "objectives differ" not in out


def test_an_unfinished_run_is_shown_as_far_as_it_came(runs: Path, tmp_path: Path, capsys) -> None:
    half = run(tmp_path / "half", "--algorithm", "admm", "--topology", "ring:5", "--iterations", "7")
    (half / "summary.json").unlink()
    code, rows, out, _ = reported(capsys, half, runs / "plain" / "star5", "--out", "none")
    assert code == 0
    row = next(row for row in rows if "ring" in row["setting"])
    assert (row["iterations"], row["epsilon"]) == ("7", "-")
    assert "unfinished, shown up to the last checkpoint: half" in out


def test_a_run_nobody_observed_has_dashes(tmp_path: Path, capsys) -> None:
    blind = run(tmp_path / "blind", "--algorithm", "admm", "--topology", "ring:5", "--observe", "none")
    code, rows, _, _ = reported(capsys, blind, "--out", tmp_path / "page.html")
    assert code == 0
    assert rows[0]["setting"] == "admm on ring:5"
    assert "gap of mean" not in rows[0]
    assert (tmp_path / "page.html").read_text().count("<svg") == 1  # what its edges carried


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.links += [
            value
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not value.startswith("#")
        ]


def test_the_page_stands_alone_and_is_the_same_each_time(runs: Path, tmp_path: Path, capsys) -> None:
    page = tmp_path / "report.html"
    assert reported(capsys, runs / "noisy", "--out", page)[0] == 0
    text = page.read_text()
    tags = _Tags()
    tags.feed(text)
    assert not tags.links
    assert "script" not in tags.names
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.S)
    assert len(drawings) == 6  # gap, loss and error over iterations, gap over bytes, loss over epsilon, edges
    names: set[str] = set()
    for drawing in drawings:
        root = ET.fromstring(drawing)
        assert root.get("role") == "img"
        title, told = root[0], root[1]
        assert title.text
        assert told.text
        assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (
            title.get("id"),
            told.get("id"),
        )
        mine = {each.get("id") for each in root.iter() if each.get("id")}
        assert not mine & names  # every name of the page once
        names |= mine
    assert all("epsilon 20" in drawing for drawing in drawings[:4])
    assert text.count("<figure>") == text.count("<figcaption>") == 6
    assert {"main", "header", "caption"} <= set(tags.names)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert str(runs / "noisy" / "e4s2") in text
    assert text.count(">iterations</th>") == 1  # said of all runs, by the table and by their settings
    assert reported(capsys, runs / "noisy", "--out", page)[0] == 0  # a report is replaced
    assert page.read_text() == text


@pytest.mark.parametrize("ending", [".pdf", ".svg", ".csv", ".json", ".md"])
def test_what_is_written_is_what_the_ending_says(ending: str, runs: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / f"x{ending}"
    for _ in range(2):  # a report is replaced
        assert reported(capsys, runs / "plain", "--out", out)[0] == 0
    content = out.read_bytes()
    if ending == ".pdf":
        assert content.startswith(b"%PDF")
        assert b"/FontFile2" in content
        assert float(re.search(rb"MediaBox \[ 0 0 ([\d.]+)", content)[1]) == pytest.approx(3.4 * 72)
    elif ending == ".svg":
        assert ET.fromstring(content).get("width") == "244.8pt"
    elif ending == ".md":
        assert "| setting | MB to gap 0.001 | to gap 1e-06 |" in content.decode()
        assert "In every row: iterations = 40" in content.decode()
    else:
        lines = list(csv.DictReader(content.decode().splitlines())) if ending == ".csv" else []
        lines = lines or json.loads(content)["kinds"][0]["runs"]
        assert len(lines) == 3
        for line in lines:
            summary = json.loads((Path(line["directory"]) / "summary.json").read_text())
            assert float(line["test_loss"]) == summary["test_loss"]
            assert int(float(line["bytes"])) == summary["bytes"]
    other = tmp_path / f"thesis{ending}"
    other.write_text("chapter one")
    assert reported(capsys, runs / "plain", "--out", other)[0] == 2
    assert other.read_text() == "chapter one"


def test_edges_carry_what_the_run_sent_and_a_tree_uses_its_own(runs: Path, tmp_path: Path) -> None:
    newton = run(tmp_path / "newton", "--algorithm", "newton", "--topology", "er5", "--iterations", "3")
    for folder, used in ((runs / "plain" / "ring5", 10), (newton, 8)):
        with np.load(folder / "traffic.npz") as kept:
            assert kept["bytes"].sum() == json.loads((folder / "summary.json").read_text())["bytes"]
            assert (
                kept["bytes"] > 0
            ).sum() == used  # directed: all of a ring, of er5 a tree's 4 edges both ways
            assert len(set(zip(kept["sender"].tolist(), kept["receiver"].tolist()))) == len(kept["bytes"])


def test_methods_that_load_a_network_alike_share_its_picture(tmp_path: Path, capsys) -> None:
    short = ("--topology", "er5", "--iterations", "3", "--observe", "none")
    made = [run(tmp_path / name, "--algorithm", name, *short) for name in ("admm", "gossip", "newton")]
    assert reported(capsys, *made, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert {*re.findall(r">bytes on the edges: ([^<.]*)<", page)} == {"admm, gossip on er5", "newton on er5"}
    for folder in made:
        sent = 1e-6 * json.loads((folder / "summary.json").read_text())["bytes"]
        assert re.search(rf"{folder.name} [^;]* MB, {sent:.3g} in all", page)


def test_a_browser_shows_the_page_without_a_sideways_scroll(runs: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    assert (
        report.main([str(runs), "--out", str(tmp_path / "page.html")]) == 2
    )  # of folders of folders nothing
    assert report.main([str(runs / "plain"), str(runs / "noisy"), "--out", str(tmp_path / "page.html")]) == 0
    (tmp_path / "frame.html").write_text(
        "<iframe src=page.html style='width:390px;height:800px;border:0'></iframe><p id=w></p><script>"
        "onload=()=>{const d=document.querySelector('iframe').contentDocument.documentElement;"
        "w.textContent='WIDTH '+d.scrollWidth}</script>"
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={tmp_path}/b",
    ]
    shown = subprocess.run(
        [browser, *flags, "--virtual-time-budget=5000", "--dump-dom", f"file://{tmp_path}/frame.html"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r"WIDTH (\d+)", shown.stdout)
    if found is None:
        pytest.skip(f"Chromium does not start here: {shown.stderr[-200:]}")
    assert int(found[1]) <= 390


def test_iterations_are_counted_in_whole_numbers(runs: Path) -> None:
    found = report_runs.groups([report_runs.read(runs / "plain" / "star5")])
    for picture in report_figures.pictures(found):
        figure, axis = report_page.plotting.pyplot().subplots()
        picture.draw(axis)
        if picture.title.endswith("over iteration"):
            axis.set_xlim(0, 20)  # where steps of 2.5 would do
            assert all(place == int(place) for place in axis.get_xticks())
        report_page.plotting.pyplot().close(figure)


def test_a_difference_of_rounding_is_not_drawn_as_one(runs: Path) -> None:
    one = report_runs.read(runs / "plain" / "ring5")
    wrong = one.history["test_error"]
    near = 0.25 * (1 + 1e-14 * np.arange(len(wrong)))
    found = report_runs.groups(
        [replace(one, history={**one.history, "test_error": near, "worst_test_error": near})]
    )
    (picture,) = [p for p in report_figures.pictures(found) if p.title.startswith("test error")]
    axis = report_page.plotting.pyplot().subplots()[1]
    picture.draw(axis)
    low, high = axis.get_ylim()
    assert low < 24 < 26 < high


def test_no_label_is_cut_at_the_edge_of_a_column(runs: Path, tmp_path: Path, monkeypatch) -> None:
    one, name = report_runs.read(runs / "plain" / "ring5"), "a name " + "of many words " * 8
    named = [replace(one, config={**one.config, "topology": f"{name} {at}"}) for at in range(2)]
    kept = []
    monkeypatch.setattr(report_figures, "save_for_paper", lambda figure, *given: kept.append(figure))
    found = report_figures.pictures(report_runs.groups(named))
    report_figures.for_paper([one for one in found if one.legend], tmp_path / "x.pdf", "")
    kept[0].canvas.draw()
    for axis in kept[0].axes:
        assert axis.get_legend().get_window_extent().x1 <= kept[0].bbox.x1


def test_names_are_text_and_not_markup(runs: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a<b>&c.edgelist"
    odd.write_text("".join(f"{i} {(i + 1) % 5}\n" for i in range(5)))
    folder = run(tmp_path / "odd<i>", "--algorithm", "admm", "--topology", str(odd), "--iterations", "3")
    told = report.sections([report_runs.read(folder), report_runs.read(runs / "plain" / "star5")])
    text = report_page.page(report.MARK, told)
    assert "a<b>" not in text
    assert "odd<i>" not in text
    assert "a&lt;b&gt;&amp;c" in text


def test_without_matplotlib_the_page_says_why_it_has_no_curves(runs: Path, monkeypatch) -> None:
    monkeypatch.setattr(report_page.plotting, "possible", lambda: False)
    (said,) = report_page.figures(report_runs.groups([report_runs.read(runs / "plain" / "star5")]))
    assert "pip install 'distadmm[plot]'" in said


def test_a_file_that_is_no_report_is_kept(runs: Path, tmp_path: Path, capsys) -> None:
    page = tmp_path / "thesis.html"
    page.write_text("<p>chapter one</p>")
    code, _, out, err = reported(capsys, runs / "plain", "--out", page)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "exists and is no report" in err
    assert page.read_text() == "<p>chapter one</p>"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "no run is named"),
        (["{missing}"], "is no directory"),
        (["{empty}"], "holds no run"),
        (["{broken}"], "is not a history written by distadmm"),
        (["{plain}", "--gaps", "0"], "--gaps is 0.0"),
        (["{plain}", "--gaps", ","], "--gaps is empty"),
        (["{plain}", "--out", "{empty}"], "is no file"),
        (["{plain}", "--out", "{missing}/page.html"], "cannot write"),
        (["{plain}", "--colour", "red"], "unknown argument '--colour'"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], told: str, runs: Path, tmp_path: Path, capsys) -> None:
    places = {name: tmp_path / name for name in ("missing", "empty", "broken")}
    places["empty"].mkdir()
    if "{broken}" in argv:
        run(places["broken"], "--algorithm", "admm", "--topology", "ring:5", "--iterations", "3")
        (places["broken"] / "history.csv").write_text("iteration,gap\n1,a\n")
    words = [word.format(plain=runs / "plain", **places) for word in argv]
    code, _, _, err = reported(capsys, *words)
    assert code == 2
    assert err.count("\n") == 1
    assert told in err
    assert not list(tmp_path.glob("**/*.part"))


def test_a_run_that_was_replaced_is_named_and_not_compared(tmp_path: Path, capsys) -> None:
    noise = ["--topology", "ring:5", "--iterations", "4", "--alpha", "9", "--adjacency", "replace"]
    for _ in range(2):
        run(tmp_path / "runs" / "one", *noise, "--force")
    code, rows, out, _ = reported(capsys, tmp_path / "runs", "--out", "none")
    assert code == 0
    assert "runs" not in rows[0]
    assert "not shown: one.spent-1" in out
    code, rows, _, _ = reported(capsys, tmp_path / "runs" / "one.spent-1", "--out", "none")  # asked for
    assert (code, rows[0]["setting"]) == (0, "radmm on ring:5")


@pytest.mark.parametrize("spent", [1.23441, 1.9993, 0.0100001, 12.3412, 0.0])
def test_a_loss_is_never_shown_below_what_was_spent(spent: float) -> None:
    nothing = defaultdict(lambda: np.array([]))
    trace = report_runs.Trace(
        Path("run"), "radmm", {}, "", 1, {"epsilon": spent, "statement": "", "ended": ""}, nothing, {}
    )
    heads, (row,) = report.table([report_runs.Group((("epsilon", "4"),), (trace,))], ())
    assert spent <= float(row[heads.index("epsilon")]) <= 1.001 * spent


def test_every_row_says_whether_it_tuned_itself_and_like_is_compared_with_like(tmp_path: Path) -> None:
    changing = "links:p=0.8:seed=1:ring:5"
    for name, topology, flags in (
        ("a", "ring:5", ()),
        ("b", changing, ("--no-tune",)),
        ("c", "ring:5", ("--no-tune",)),
    ):
        run(tmp_path / name, "--algorithm", "admm", "--topology", topology, "--iterations", "5", *flags)
    traces = {name: report_runs.read(tmp_path / name) for name in "abc"}
    found = report_runs.groups([traces["a"], traces["b"]])
    assert [dict(group.settings)["tune"] for group in found] == ["no", "yes"]
    assert any("--no-tune compares like with like" in line for line in report_notes.warnings(found))
    alike = report_runs.groups([traces["b"], traces["c"]])
    assert all("tune" not in dict(group.settings) for group in alike)
    assert not any("--no-tune" in line for line in report_notes.warnings(alike))


def test_runs_with_and_without_noise_are_never_one_row(runs: Path) -> None:
    plain, noisy = runs / "plain" / "ring5", [runs / "noisy" / f"e4s{seed}" for seed in range(3)]
    traces = [report_runs.read(folder) for folder in (plain, *noisy)]
    alike = [replace(t, config={**t.config, "algorithm": "admm", "iterations": 20}) for t in traces]
    found = report_runs.groups(alike)
    assert sorted(len(group.traces) for group in found) == [1, 3]
    assert {dict(group.settings)["epsilon"] for group in found} == {"none", "4"}


def test_a_caption_says_no_less_than_was_spent_and_equal_budgets_lie_beside_one_another(runs: Path) -> None:
    traces = [report_runs.read(runs / "noisy" / f"e4s{seed}") for seed in range(3)]
    traces = [
        replace(t, summary={**t.summary, "epsilon": 3.99791 + 1e-6 * at}) for at, t in enumerate(traces)
    ]
    picture = next(p for p in report_figures.pictures(report_runs.groups(traces)) if "against eps" in p.title)
    assert " at 3.998" in picture.text
    axis = report_page.plotting.pyplot().subplots()[1]
    picture.draw(axis)
    assert axis.get_xlim()[0] < 3.5 < 4.5 < axis.get_xlim()[1]
    assert [line.get_color() for line in axis.lines] == 2 * [report_figures.ink(0)["color"]]


def test_a_run_alone_has_no_figure_of_one_point(runs: Path) -> None:
    alone = report_runs.groups([report_runs.read(runs / "noisy" / "e4s0")])
    assert not any("against epsilon" in picture.title for picture in report_figures.pictures(alone))


def test_epsilons_that_are_no_numbers_are_refused_in_one_line(runs: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(runs / "noisy" / "e4s0", tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    for damaged in ({"any": [[]]}, [4.0], {"any": "much"}):
        path.write_text(json.dumps({**json.loads(path.read_text()), "epsilons": damaged}))
        code, _, _, err = reported(capsys, tmp_path / "run", "--out", str(tmp_path / "x.html"))
        assert (code, err.count("\n")) == (2, 1)
        assert "holds something else than distadmm wrote there" in err


@pytest.mark.parametrize(("others", "drawn"), [(2.0003, False), (1.2, True)])
def test_trusts_are_drawn_where_they_differ(others: float, drawn: bool, runs: Path) -> None:
    trace = report_runs.read(runs / "noisy" / "e4s0")
    trace = replace(trace, summary={**trace.summary, "epsilons": {"any": 2.0004, "centre": others}})
    found = [p for p in report_figures.pictures(report_runs.groups([trace])) if "by trust" in p.title]
    assert len(found) == drawn
    asked = replace(trace, summary={**trace.summary, "trust": "coalition:7", "epsilon": 1.5})
    found = [p for p in report_figures.pictures(report_runs.groups([asked])) if "by trust" in p.title]
    assert "coalition:7 1.5" in found[0].text


def test_trusts_of_near_epsilons_and_settings_of_equal_ones_are_drawn_apart(runs: Path) -> None:
    one = report_runs.read(runs / "noisy" / "e4s0")
    near = {"any": 4.57, "coalition:1": 0.88, "centre": 0.8799}
    of = lambda rho: replace(  # noqa: E731
        one, config={**one.config, "rho": rho}, summary={**one.summary, "trust": "any", "epsilons": near}
    )
    found = report_figures.pictures(report_runs.groups([of(0.1), of(0.2)]))
    (picture,) = [p for p in found if "by trust" in p.title]
    axis = report_page.plotting.pyplot().subplots()[1]
    picture.draw(axis)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["centre", "coalition:1", "any"]
    marks = [line.get_ydata() for line in axis.lines if line.get_label() in ("rho 0.1", "rho 0.2")]
    assert len({round(y, 3) for row in marks for y in row}) == 2 * 3
    assert sorted(round(y) for row in marks for y in row) == [0, 0, 1, 1, 2, 2]


def test_settings_that_are_missing_are_a_question_mark(runs: Path) -> None:
    trace = report_runs.read(runs / "noisy" / "e4s0")
    cut = {name: value for name, value in trace.config.items() if name not in ("algorithm", "topology")}
    (group,) = report_runs.groups([replace(trace, config=cut)])
    assert group.label == "? on ?"


def test_seeds_of_a_damaged_configuration_are_compared_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        radmm.solve("admm", data="tiny", topology="ring:3", iterations=2, out=folder)
        config = json.loads((folder / "config.json").read_text())
        config["config"]["seed"] = [0]
        (folder / "config.json").write_text(json.dumps(config))
    assert report.main([*map(str, folders), "--out", str(tmp_path / "page.html")]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err
