"""Private methods side by side: what each spends against whom, what its nodes get, and what was forecast."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import distadmm
from distadmm import radmm
from distadmm.algorithm import find
from distadmm.commands import compare, report
from distadmm.commands.compare import Line, Options
from distadmm.data import synthetic
from distadmm.errors import DONE, USAGE
from distadmm.methods import forecasts
from distadmm.methods.forecasts import Forecast
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.accounting.masked_statements import shares_of
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.accounting.trust import TOLD
from distadmm.ranks.world import World

ASKED = ["--topology", "ring:8", "--epsilon", "2", "--adjacency", "replace", "--trust", "coalition:1"]
TINY = [*ASKED, "--data", "tiny", "--rng", "simulation", "--seeds", "1", "--latency", "0.01"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Two methods on rows of 30 columns, one run each and one on made-up rows."""
    out = tmp_path_factory.mktemp("compare") / "runs"
    words = [*TINY, "--algorithm", "radmm", "masked", "--iterations", "10", "--out", str(out), "--jobs", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "FORECASTS", 1)
        patch.setattr(compare, "_TEST_ROWS", 200)
        assert compare.main(words) == DONE
    return out, words


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "FORECASTS", 1)
    monkeypatch.setattr(compare, "_TEST_ROWS", 200)


def table_of(said: str) -> dict[str, dict[str, str]]:
    """The rows of a table by their first cell; columns are two blanks apart."""
    lines = said.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("method"))
    split = lambda line: [cell.strip() for cell in line.split("  ") if cell.strip()]  # noqa: E731
    rows = [split(line) for line in lines[first + 1 : lines.index("", first)]]
    return {row[0]: dict(zip(split(lines[first]), row)) for row in rows}


@pytest.mark.usefixtures("quick")
def test_a_row_a_method_with_its_epsilon_under_each_trust(made: tuple[Path, list[str]], capsys: Any) -> None:
    out, words = made
    assert compare.main(words) == DONE  # goes on where it stopped: nothing is left to do
    said = capsys.readouterr().out
    assert said.count("finished before") == 4
    assert "SIMULATION: noise from a seed guarantees nothing" in said.splitlines()
    rows = table_of(said)
    assert set(rows) == {"radmm", "masked"}
    summaries = {name: json.loads((out / f"{name}_s0/summary.json").read_text()) for name in rows}
    for name, row in rows.items():
        assert float(row["loss"]) == pytest.approx(summaries[name]["test_loss"], abs=1e-4)
        assert float(row["worst"]) == pytest.approx(summaries[name]["worst_test_loss"], abs=1e-4)
        assert int(row["messages"]) == summaries[name]["messages"]
        assert float(row["WAN s"]) == pytest.approx(summaries[name]["predicted_wan_seconds"], abs=0.06)
        made_up = json.loads((out / f"made-up/{name}_s0/summary.json").read_text())
        assert float(row["forecast"]) == pytest.approx(made_up["test_loss"], abs=1e-4)
    spent = [float(rows["masked"][f"eps {trust}"]) for trust in TOLD]
    assert spent == sorted(spent, reverse=True)
    assert spent[0] > 1.5 * spent[2] > 1.5 * spent[3]
    assert spent[2] == pytest.approx(2.0, abs=2e-3)  # what was asked for, under the trust that was asked for
    assert len({rows["radmm"][f"eps {trust}"] for trust in TOLD}) == 1  # trusts nobody
    best = min(rows, key=lambda name: float(rows[name]["loss"]))
    assert f"measured: {best}, whose loss is lower by" in said
    least = min(rows, key=lambda name: float(rows[name]["forecast"]))
    assert f"forecast: {least}, whose loss is lower by" in said


def test_report_draws_loss_over_epsilon_and_epsilon_by_trust(
    made: tuple[Path, list[str]], tmp_path: Path
) -> None:
    assert report.main([str(made[0]), "--out", str(tmp_path / "page.html")]) == DONE
    page = (tmp_path / "page.html").read_text()
    assert "epsilon by trust" in page
    assert "test loss of the nodes" in page
    assert "made-up" not in page  # forecasts are no runs of the rows


@pytest.mark.usefixtures("quick")
def test_a_forecast_spends_nothing_and_needs_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("DISTADMM_ACCOUNT", str(tmp_path / "account.json"))
    out = tmp_path / "runs"
    words = [
        *ASKED,
        "--rows",
        "60",
        "--columns",
        "5",
        "--forecast",
        "--algorithm",
        "radmm",
        "--out",
        str(out),
    ]
    assert compare.main([*words, "--iterations", "4"]) == DONE
    said = capsys.readouterr().out
    row = table_of(said)["radmm"]
    assert row["loss"] == row["forecast"]
    assert "measured" not in said
    assert [path.name for path in out.iterdir()] == ["made-up"]
    assert not (tmp_path / "account.json").exists()


def test_what_is_registered_with_a_private_form_takes_part() -> None:
    options = {"epsilon": 1.0, "adjacency": "replace", "trust": "any", "data": "tiny"}
    methods = Options(**options).methods
    assert {"radmm", "admm", "masked"} <= set(methods)
    assert not {"newton"} & set(methods)
    assert all(find(name).private for name in methods)

    @distadmm.register("compared-here")
    @dataclass(frozen=True)
    class Mine:
        def init(self, node): ...
        def step(self, k, st, node): ...
        def releases(self, node, iterations): ...

    assert Options(**options).methods == [*methods, "compared-here"]
    assert Options(**options, algorithm=("also-here.py",)).methods == [
        *methods,
        "compared-here",
        "also-here.py",
    ]
    assert Options(**options, algorithm=("radmm", "also-here.py")).methods == ["radmm", "also-here.py"]


def test_each_question_has_a_folder_of_its_own() -> None:
    asked = {"epsilon": 1.0, "adjacency": "replace", "trust": "coalition:1", "data": "rows/tiny.csv"}
    assert str(Options(**asked).folder) == "runs/compare-tiny-er20-1-replace-coalition-1"
    others = [
        {**asked, **other}
        for other in ({"epsilon": 0.5}, {"trust": "any"}, {"topology": "ring:16"}, {"data": "adult"})
    ]
    assert len({Options(**one).folder for one in (asked, *others)}) == 5
    assert Options(**asked, out="elsewhere").folder == Path("elsewhere")


def test_the_interval_is_that_of_students_t() -> None:
    values = [0.31, 0.35, 0.33, 0.36]
    mean, half = forecasts.interval(np.array(values))
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert math.isnan(forecasts.interval(np.array([0.3]))[1])
    assert Line("a", [{"test_loss": None}]).cell("test_loss") == "-"


def test_what_all_runs_share_tells_no_methods_apart_and_hides_no_difference() -> None:
    """Tables differ by more than methods do; each run of one is set against the other's on the same table."""

    def ranked(second: list[float]) -> list[Forecast]:
        return [Forecast(name, np.array(losses)) for name, losses in (("a", [0.2, 0.4, 0.6]), ("b", second))]

    assert forecasts.margin(ranked([0.22, 0.42, 0.61])).endswith("than b's")
    assert "lower by 0.0167 ±0.0143" in forecasts.margin(ranked([0.22, 0.42, 0.61]))
    assert "which does not tell them apart" in forecasts.margin(ranked([0.15, 0.5, 0.6]))
    assert forecasts.margin(ranked([0.25, 0.4, 0.6])[:1]) == ""


def test_methods_are_set_against_each_other_on_the_same_tables_alone() -> None:
    """A run that is missing shifts no other's partner, and one that diverged is no loss of nothing."""
    best = Line("a", [{}, *({"test_loss": loss} for loss in (0.4, 0.6, 0.8))])
    second = Line("b", [{"test_loss": loss} for loss in (0.9, 0.41, 0.61, 0.82)])
    assert "lower by 0.0133" in forecasts.margin([best.loss, second.loss])
    assert best.cell("test_loss") == "0.6000 ±0.4968 (3 of 4)"
    diverged = Line("c", [{"test_loss": 0.01}, *[{"test_loss": None}] * 3])
    assert [one.of for one in forecasts.ranked([diverged.loss, second.loss, best.loss])] == ["a", "b", "c"]
    assert forecasts.margin([best.loss, Line("d", [{"test_loss": 0.5}, {}, {}, {}]).loss]) == ""
    assert best.loss.cell == best.cell("test_loss")


def test_tables_to_forecast_by_are_of_numbers_and_of_categories() -> None:
    for columns in (5, 21, 40):
        for run in range(4):
            X, y = synthetic.any_table(500, columns, run)
            assert X.shape == (500, columns)
            assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-12
            assert 0.1 < np.mean(y > 0) < 0.5
    numbers, cases = (synthetic.any_table(500, 21, run)[0] for run in (0, 1))
    assert len(np.unique(numbers)) > 1000
    assert len(np.unique(cases)) == 2
    assert not np.array_equal(numbers, synthetic.any_table(500, 21, 2)[0])


def test_every_private_run_tells_what_others_make_of_its_epsilon() -> None:
    flags = {
        "data": "tiny",
        "topology": "ring:8",
        "epsilon": 2.0,
        "adjacency": "replace",
        "rng": "simulation",
    }
    run = distadmm.solve("masked", **flags, trust="coalition:2", observe="none")
    told, config = run.summary["epsilons"], run.config
    assert list(told) == list(TOLD)
    facts = {"mu": 0.0, "nodes": 8, "coalition": 2, "least": 7, "mask_degree": 0}
    shares = shares_of({**facts, "mu": mu_at(2.0, config.privacy.delta)}, config.privacy.delta)
    assert [told[name] for name in TOLD] == pytest.approx(
        [shares[7], shares[2], shares[1], shares[0]], rel=1e-3
    )
    run = distadmm.solve("radmm", **flags, iterations=4, observe="none")
    assert set(run.summary["epsilons"].values()) == {run.epsilon}
    assert not distadmm.solve("radmm", data="tiny", topology="ring:4", iterations=2).summary["epsilons"]


def test_a_node_whose_noise_is_its_own_counts_beside_those_that_share_theirs() -> None:
    """The worst node is told, also where what others share is worth less to fewer colluders."""
    shared = SharedDiscreteGaussian(
        share_variance_grid=4**9, shares=6, sensitivity_grid=2000.0, kind="gradient", dimension=3, coalition=2, nodes=8,
        least=8, mask_degree=0,
    )  # fmt: skip
    own = Gaussian(1.0 / shared.gdp_mu("replace"))
    books = SimpleNamespace(ledgers=[SimpleNamespace(events=[each]) for each in (shared, own)])
    config = SimpleNamespace(privacy=SimpleNamespace(delta=1e-5, adjacency="replace"))
    prepared = SimpleNamespace(config=config, world=World())
    node = SimpleNamespace(release=SimpleNamespace(books=books, committed=True))
    epsilon = accountant.epsilon([own], 1e-5, "replace")
    told = radmm._by_trust(prepared, node, epsilon)  # type: ignore[arg-type]
    assert told["any"] > 1.5 * epsilon
    assert [told[name] for name in TOLD[1:]] == pytest.approx([epsilon] * 3)
    assert set(radmm._by_trust(prepared, node, math.inf).values()) == {math.inf}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trust", "some"], "trust is 'some'; choose any, coalition:C"),
        (["--epsilon", "1", "2"], "--epsilon has 2 values; compare varies methods and seeds alone"),
        (["--seed", "3"], "--seed is not for compare"),
        (["--resume", "x"], "--resume is not for compare"),
        (["--adjacency", "twice"], "--adjacency is 'twice'; choose one of"),
        (["--eta", "3"], "--algorithm masked has no --eta"),
        (["--algorithm", "nobody"], "no algorithm 'nobody'"),
        (["--algorithm", "masked", "elsewhere/masked.py"], "two methods of one name"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--nonsense", "1"], "--nonsense"),
        (["--data", "shard-{rank}.csv"], "--rows and --columns"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path, monkeypatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    kept = [w for at in range(0, len(TINY), 2) if TINY[at] != words[0] for w in TINY[at : at + 2]]
    assert compare.main([*kept, *words]) == USAGE
    found = capsys.readouterr()
    assert said in found.err
    assert len(found.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_rows_are_needed_and_not_too_many(tmp_path: Path, monkeypatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert compare.main(ASKED) == USAGE
    assert "give --data, or with --forecast alone --rows and --columns" in capsys.readouterr().err
    assert compare.main([*ASKED, "--forecast", "--rows", "1000000", "--columns", "1000"]) == USAGE
    assert "are more than are made up to forecast by" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
