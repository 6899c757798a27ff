"""`python -m distadmm ledger show|verify|merge|export`, as people use it."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from distadmm.commands import ledger as ledger_command
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.accountant import dp_event, rebuilt
from distadmm.privacy.accounting.events import (
    Gaussian,
    KNorm,
    Leakage,
    Pure,
    Unbounded,
    event_from_json,
)
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger import chain, compose, rules
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.file import Ledger, path_of
from distadmm.privacy.ledger.filter import PureFilter

LAPLACE = KNorm(1, 0.1, 1.0)
NORMAL = Gaussian(12.0)
DELTA = 1e-5


def run_of(
    folder,
    events,
    *,
    run="run1",
    node=0,
    mode="secure",
    scope="record",
    dataset="d",
    adjacency="replace",
    **other,
):
    """One node's ledger: a committed schedule, all of it released."""
    book = Ledger(
        folder / "ledger",
        node,
        adjacency=adjacency,
        mode=mode,
        run=run,
        scope=scope,
        dataset=dataset,
        **other,
    )
    book.commit(events)
    k = 0
    for event in events:
        for _ in range(event.releases):
            k += 1
            book.charge(event.single(), iteration=k)
    book.close()
    return folder


@pytest.fixture
def two_nodes(tmp_path):
    run_of(tmp_path, [replace(NORMAL, count=20)], node=0)
    return run_of(tmp_path, [replace(NORMAL, count=30)], node=1)


def call(capsys, *argv) -> tuple[int, str, str]:
    code = ledger_command.main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out, err


def data(capsys, *argv):
    code, out, err = call(capsys, *argv)
    assert (code, err) == (0, "")
    return json.loads(out)


# -- show ---------------------------------------------------------------------------------------------


def test_show_gives_each_node_its_bounds_and_all_of_them_the_largest(two_nodes, capsys):
    report = data(capsys, "show", two_nodes, "--json")
    (run,) = report["runs"]
    for node, count in zip(run["nodes"], (20, 30)):
        expected = accountant.epsilon([replace(NORMAL, count=count)], DELTA, "replace")
        assert node["epsilon"] == pytest.approx(expected)
        assert (node["releases"], node["to_come"], node["statement"]) == (count, 0, "certificate")
    assert run["together"]["epsilon"] == max(node["epsilon"] for node in run["nodes"])
    code, out, _ = call(capsys, "show", two_nodes)
    assert code == 0
    for words in (
        "one record replaced by another",
        "the node that costs most",
        "certificate",
        "Not covered:",
    ):
        assert words in out


def test_of_replaced_records_what_0_1_said_stands_beside(tmp_path, capsys):
    solves = [
        ObjectivePerturbation("gamma", 105, alpha, 1750 / 8000, 0.25, 8.2, 10, logistic=True)
        for alpha in (1.0, 1.5)
    ]
    for node, event in enumerate(solves):
        run_of(tmp_path, [event], node=node)
    total = data(capsys, "show", tmp_path, "--json")["runs"][0]["together"]
    assert total["epsilon"] == accountant.epsilon([solves[1]], DELTA, "replace")
    assert total["r_o_r"] == accountant.r_o_r([solves[1]], DELTA, "replace") > total["epsilon"]
    assert "by R o R" in call(capsys, "show", tmp_path)[1]
    run_of(tmp_path / "other", [NORMAL])
    assert "R o R" not in call(capsys, "show", tmp_path / "other")[1]


def test_a_person_at_every_node_costs_the_sum(tmp_path, capsys):
    for node in range(3):
        run_of(tmp_path, [replace(NORMAL, count=10)], node=node, scope="person")
    report = data(capsys, "show", tmp_path, "--json")
    expected = accountant.epsilon([replace(NORMAL, count=30)], DELTA, "replace")
    assert report["runs"][0]["together"]["epsilon"] == pytest.approx(expected)


def test_several_records_of_one_person_are_a_group(tmp_path, capsys):
    run_of(tmp_path, [replace(NORMAL, count=4)])
    (node,) = data(capsys, "show", tmp_path, "--records", 3, "--json")["runs"][0]["nodes"]
    assert node["epsilon"] == pytest.approx(accountant.epsilon([replace(NORMAL, count=36)], DELTA, "replace"))


def test_simulations_are_marked_wherever_they_are_shown(tmp_path, capsys):
    run_of(tmp_path, [LAPLACE], mode="simulation")
    assert "SIMULATION" in call(capsys, "show", tmp_path)[1]
    assert "SIMULATION" in call(capsys, "merge", tmp_path)[1]
    assert data(capsys, "export", tmp_path)["nodes"][0]["statement"] == "simulation"


VERIFIED = [
    "public-weight", "one-signed-slope", "public-rows", "fresh-noise", "data-free-schedule", "own-parameters",
    "free-domain", "curvature-floor", "certified-solve",
]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "replacing one record held by one node, against any coalition of other nodes"),
        ({"missing": 1}, "No guarantee, epsilon = infinity: not verified"),
        ({"mode": "simulation"}, "SIMULATION: noise from a seed guarantees nothing; epsilon = infinity."),
        ({"late": True}, "Spent so far; after a stop that depended on data this is no guarantee."),
    ],
)
def test_the_sentence_that_may_be_said_is_said(tmp_path, capsys, how, says):
    how = dict(how)
    perturbed = ObjectivePerturbation("gamma", 30, 0.5, 0.2, 0.25, 8.2, count=4, output_epsilon=1e-3)
    claim = {"scope": "radmm", "verified": VERIFIED[how.pop("missing", 0) :], "tolerance": 1e-10}
    late = how.pop("late", False)
    run_of(tmp_path, [perturbed], claim=claim, **how)
    if late:
        with Ledger.resume(tmp_path / "ledger", 0, mode="secure") as book:
            book.charge(perturbed.single(), iteration=9)
    assert says in call(capsys, "show", tmp_path)[1]


def test_nothing_is_said_that_nobody_claims(tmp_path, capsys):
    run_of(tmp_path, [LAPLACE])
    assert data(capsys, "show", tmp_path, "--json")["runs"][0]["sentence"] is None


def test_tight_bounds_of_schedules_are_for_committed_schedules(tmp_path, capsys):
    """The same releases, chosen one after the other: what only a committed schedule proves is not used."""
    perturbed = ObjectivePerturbation("gamma", 30, 0.5, 0.2, 0.25, 8.2, output_epsilon=1e-3)
    run_of(tmp_path / "a", [replace(perturbed, count=30)])
    with Ledger(tmp_path / "b", 0, adjacency="replace", mode="secure") as book:
        for k in range(30):
            book.charge(perturbed, iteration=k)
    committed, chosen = (
        data(capsys, "show", tmp_path / name, "--json")["runs"][0]["nodes"][0]["epsilon"] for name in "ab"
    )
    assert committed < chosen


def test_infinity_is_said_with_its_reason(tmp_path, capsys):
    book = Ledger(tmp_path, 0, adjacency="label", mode="secure")
    book.expose("step sizes depend on data", iteration=1)
    book.charge(Leakage(0.25, "the label"), iteration=1)
    book.close()
    _, out, _ = call(capsys, "show", tmp_path)
    assert "infinite" in out
    assert "epsilon is infinite: step sizes depend on data" in out
    assert "average leakage, not added: 0.25 nats about the label" in out
    assert "the label of one record flipped" in out
    assert "unbounded: nothing bounds what was released" in out
    assert "  unbounded: " in call(capsys, "merge", tmp_path)[1]
    assert "odometer" not in out


def test_budgets_torn_lines_and_refusals_are_shown(tmp_path, capsys):
    run_of(tmp_path, [replace(LAPLACE, count=4)], budget=PureFilter(1.0))
    path = path_of(tmp_path / "ledger", 0)
    path.write_bytes(path.read_bytes()[:-20])
    from distadmm.errors import BudgetExhausted

    with Ledger.resume(tmp_path / "ledger", 0, mode="secure") as book, pytest.raises(BudgetExhausted):
        book.charge(Pure(5.0), iteration=9)
    _, out, _ = call(capsys, "show", tmp_path)
    assert " 60%  certificate" in out
    assert "kept by a proved filter: epsilon = 1 (sum of pure epsilons)" in out
    assert "1 torn lines" in out
    assert "1 releases refused" in out


def test_long_tables_are_cut_unless_asked_for(tmp_path, capsys):
    for node in range(5):
        run_of(tmp_path, [LAPLACE], node=node)
    assert "... and 3 more nodes" in call(capsys, "show", tmp_path, "--rows", 2)[1]
    assert "more nodes" not in call(capsys, "show", tmp_path, "--rows", 0)[1]


def test_bounds_are_shown_rounded_up():
    from distadmm.commands.ledger_report import cell

    assert cell(1e-15) == "0.0001"
    assert cell(1.45671) == "1.4568"
    assert cell(0.5) == "0.5000"
    assert cell(math.inf) == "infinite"


# -- verify -------------------------------------------------------------------------------------------


def test_a_long_reading_is_announced_and_a_short_one_is_not(two_nodes, capsys, monkeypatch):
    from distadmm.privacy.ledger import chain

    assert call(capsys, "verify", two_nodes)[2] == ""
    monkeypatch.setattr(chain, "LONG", 100)
    code, _, err = call(capsys, "verify", two_nodes)
    assert code == 0
    assert re.fullmatch(r"reading \d+ MB of ledgers, which takes about \d+ s\n", err)


def test_verify_names_the_first_bad_line(two_nodes, capsys):
    code, out, err = call(capsys, "verify", two_nodes)
    assert (code, err) == (0, "")
    assert "2 ledgers whole" in out
    path = path_of(two_nodes / "ledger", 1)
    path.write_bytes(path.read_bytes().replace(b'"k":7', b'"k":8', 1))
    code, out, err = call(capsys, "verify", two_nodes)
    assert code == 1
    assert f"{path}, line 9: its contents do not match its hash" in err
    assert err.count("\n") == 1


def test_verify_sees_a_cut_tail_by_its_witness(two_nodes, capsys):
    path = path_of(two_nodes / "ledger", 0)
    lines = path.read_bytes().splitlines(keepends=True)
    books = Books.resume(two_nodes / "ledger", [1], [0], mode="secure")
    books.witness(np.frombuffer(bytes.fromhex(json.loads(lines[-2])["h"])).reshape(1, 4), 20)
    books.close()
    assert "1 witness" in call(capsys, "verify", path)[1]
    path.write_bytes(b"".join(lines[:-3]))
    code, _, err = call(capsys, "verify", two_nodes)
    assert code == 1
    assert "the rank of node 1 holds a head of iteration 20" in err


def test_verify_sees_a_message_without_its_entry(tmp_path, capsys):
    book = Ledger(tmp_path, 0, adjacency="replace", mode="secure")
    for k in range(2):
        book.charge(LAPLACE, iteration=k)
        book.store_release(k, b"x")
    book.let_go()
    path = path_of(tmp_path, 0)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    code, _, err = call(capsys, "verify", tmp_path)
    assert code == 1
    assert "message of iteration 1 was kept" in err


def test_verify_sees_more_releases_than_were_reserved(tmp_path, capsys):
    from distadmm.privacy.ledger import chain
    from distadmm.privacy.ledger.file import MemoryLedger

    book = MemoryLedger(0, adjacency="replace", mode="secure")
    book.commit([LAPLACE])
    for k in range(2):
        text = chain.canonical(
            {"v": 1, "run": book.run, "node": 0, "seq": book._seq, "prev": book.head.hex()}
            | {"kind": "release", "mech": "k-norm", "of": 1, "item": 0, "k": k}
        )
        book._append(text, sync=False)
    path_of(tmp_path, 0).write_bytes(book.content)
    code, _, err = call(capsys, "verify", tmp_path)
    assert code == 1
    assert "entry 3 is a release under a reservation that does not exist or is used up" in err


def test_verify_mentions_torn_tails_without_failing(tmp_path, capsys):
    run_of(tmp_path, [LAPLACE])
    path = path_of(tmp_path / "ledger", 0)
    path.write_bytes(path.read_bytes()[:-7])
    code, out, _ = call(capsys, "verify", tmp_path)
    assert code == 0
    assert "torn tail" in out
    Ledger.resume(tmp_path / "ledger", 0, mode="secure").close()
    assert "torn line 4 kept" in call(capsys, "verify", tmp_path)[1]


# -- merge --------------------------------------------------------------------------------------------


def test_runs_on_the_same_data_add_up(tmp_path, capsys):
    for run, count in (("a", 10), ("b", 15)):
        run_of(tmp_path / run, [replace(NORMAL, count=count)], run=run)
    (together,) = data(capsys, "merge", tmp_path / "a", tmp_path / "b", "--json")["blocks"]
    expected = accountant.epsilon([replace(NORMAL, count=25)], DELTA, "replace")
    assert together["epsilon"] == pytest.approx(expected)
    assert together["statement"] == "odometer"
    assert "runs add up" in call(capsys, "merge", tmp_path / "a", tmp_path / "b")[1]


def test_the_same_entries_count_once(tmp_path, capsys):
    """A copy of a ledger, and two continuations of one: what they share was released once."""
    run_of(tmp_path / "a", [replace(NORMAL, count=10)])
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    once = data(capsys, "merge", tmp_path / "a", "--json")["epsilon"]
    twice = data(capsys, "merge", tmp_path / "a", tmp_path / "copy", "--json")["epsilon"]
    assert twice == once
    for place, noise in (("a", 5.0), ("copy", 6.0)):
        with Ledger.resume(tmp_path / place / "ledger", 0, mode="secure") as book:
            book.charge(Gaussian(noise), iteration=11)
    both = data(capsys, "merge", tmp_path / "a", tmp_path / "copy", "--json")["epsilon"]
    events = [replace(NORMAL, count=10), Gaussian(5.0), Gaussian(6.0)]
    assert both == pytest.approx(accountant.epsilon(events, DELTA, "replace"))


def test_what_was_reserved_where_two_continuations_part_counts_for_each(tmp_path, capsys):
    """Of ten reserved releases four were made; each copy then made the other six, under noise of its own."""
    book = Ledger(tmp_path / "a" / "ledger", 0, adjacency="replace", mode="secure", run="r", scope="record")
    book.commit([replace(NORMAL, count=10)])
    for k in range(4):
        book.charge(NORMAL, iteration=k)
    book.close()
    for name in ("stale", "b"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
    for name in "ab":
        rules.process.cache_clear()  # as another process would have it
        with Ledger.resume(tmp_path / name / "ledger", 0, mode="secure") as again:
            for k in range(4, 10):
                again.charge(NORMAL, iteration=k)
    for order, count in ((("a", "stale"), 10), (("stale", "a"), 10), (("a", "stale", "b"), 16), ("b", 10)):
        (block,) = data(capsys, "merge", *(tmp_path / name for name in order), "--json")["blocks"]
        spent = [replace(NORMAL, count=count)]
        assert block["epsilon"] == pytest.approx(accountant.epsilon(spent, DELTA, "replace"))
        assert block["statement"] == ("odometer" if count > 10 else "certificate")
    assert "a ledger went on in two ways" in call(capsys, "merge", tmp_path / "a", tmp_path / "b")[1]
    (tmp_path / "b" / "ledger" / "node-0000.jsonl").rename(tmp_path / "a" / "ledger" / "copy.jsonl")
    (run,) = data(capsys, "show", tmp_path / "a", "--json")["runs"]
    assert run["together"]["epsilon"] >= block["epsilon"] * 1.2, "no copy stands for the other"


def test_a_record_may_sit_at_different_nodes_of_different_runs(tmp_path, capsys):
    """max within a run, sum over runs: the worst node of one run with the worst of the other."""
    for run in ("a", "b"):
        for node in range(2):
            run_of(
                tmp_path / run, [replace(NORMAL, count=10 * (1 + (node == (run == "a"))))], run=run, node=node
            )
    (together,) = data(capsys, "merge", tmp_path / "a", tmp_path / "b", "--json")["blocks"]
    expected = accountant.epsilon([replace(NORMAL, count=40)], DELTA, "replace")
    assert together["epsilon"] == pytest.approx(expected)


def test_many_different_nodes_are_bounded_from_above(monkeypatch):
    runs = [[compose.Node((Gaussian(10.0 + node),)) for node in range(4)] for _ in range(3)]
    exact = compose.over_runs(runs, "record", DELTA, "replace", True)
    monkeypatch.setattr(compose, "_COMBINATIONS", 1)
    bound = compose.over_runs(runs, "record", DELTA, "replace", True)
    assert exact <= bound <= 1.5 * exact


def test_runs_stay_apart_only_where_it_is_stated(tmp_path, capsys):
    """Names that differ say nothing: of other flags, another packing, another key the same rows have other names."""
    for name, dataset in (("a", "one"), ("b", "two"), ("c", "two"), ("d", None)):
        run_of(tmp_path / name, [LAPLACE], run=name, dataset=dataset)
    runs = [tmp_path / name for name in "abcd"]
    once, all_four = LAPLACE.pure_epsilon("replace"), data(capsys, "merge", *runs, "--json")
    assert all_four["epsilon"] == pytest.approx(4 * once, rel=1e-3)
    assert "all adds up: nobody has said" in call(capsys, "merge", *runs)[1]
    stated = data(capsys, "merge", *runs, "--disjoint", "--json")
    assert [len(block["runs"]) for block in stated["blocks"]] == [1, 2, 1]
    assert stated["epsilon"] == pytest.approx(2 * once, rel=1e-3)
    assert "no person is in two, as --disjoint states" in call(capsys, "merge", *runs, "--disjoint")[1]


# -- export -------------------------------------------------------------------------------------------


def test_export_is_priced_alike_by_dp_accounting(tmp_path, capsys):
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    run_of(tmp_path, [replace(NORMAL, count=20), KNorm(1, 0.1, 1.0)])
    out = tmp_path / "events.json"
    assert call(capsys, "export", tmp_path, "--out", out) == (0, "", "")
    (node,) = json.loads(out.read_text())["nodes"]
    theirs = PLDAccountant(accounting.NeighboringRelation.REPLACE_SPECIAL)
    theirs.compose(rebuilt(node["dp_event"]))
    events = [replace(NORMAL, count=20), KNorm(1, 0.1, 1.0)]
    assert theirs.get_epsilon(DELTA) == pytest.approx(accountant.epsilon(events, DELTA, "replace"), rel=0.02)
    assert [event["mech"] for event in node["events"]] == ["gaussian", "k-norm"]


def test_export_of_what_nobody_established_is_of_no_privacy(tmp_path, capsys):
    """As `show` says infinity of it, so must whoever prices what is exported."""
    for name, verified in (("whole", VERIFIED), ("missing", VERIFIED[1:])):
        claim = {"scope": "radmm", "verified": verified, "tolerance": 1e-10}
        run_of(tmp_path / name, [replace(NORMAL, count=2)], claim=claim)
        (node,) = json.loads(call(capsys, "export", tmp_path / name)[1])["nodes"]
        assert [event["mech"] for event in node["events"]] == ["gaussian", "unbounded"][
            : 1 + (name != "whole")
        ]
        assert node["statement"] == ("certificate" if name == "whole" else "unbounded")


def test_export_prices_nothing_that_dp_accounting_does_not_know():
    dp = pytest.importorskip("dp_accounting")
    perturbed = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2, count=3)
    composed = rebuilt(dp_event([perturbed, Unbounded("open"), Leakage(0.1, "x")]))
    assert composed.events == [dp.UnsupportedDpEvent(), dp.NonPrivateDpEvent(), dp.NoOpDpEvent()]
    assert math.isinf(_rdp(dp, [rebuilt(dp_event([Unbounded("open")]))]))


def _rdp(dp, events) -> float:
    from dp_accounting.rdp import RdpAccountant

    found = RdpAccountant()
    for event in events:
        found.compose(event)
    return found.get_epsilon(DELTA)


# -- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["explain", "x"], "choose one of: show, verify, merge, certificate, export"),
        (["show"], "give a run directory"),
        (["show", "NOWHERE"], "No such file"),
        (["show", "NOWHERE", "--delta", "2"], "between 0 and 1"),
        (["show", "NOWHERE", "--records", "0"], "1 or more"),
        (["show", "NOWHERE", "--colour", "red"], "unknown argument"),
        (["verify", "EMPTY"], "holds no ledgers"),
    ],
)
def test_bad_requests_are_one_line(tmp_path, capsys, argv, what):
    (tmp_path / "EMPTY").mkdir()
    argv = [str(tmp_path / word) if word.isupper() else word for word in argv]
    code, out, err = call(capsys, *argv)
    assert (code, out) == (2, "")
    assert what in err
    assert err.count("\n") == 1


def test_a_claim_of_a_later_version_is_refused_in_a_line(tmp_path, capsys):
    ledger = Ledger(
        tmp_path, 0, adjacency="replace", mode="secure", claim={"scope": "of tomorrow", "verified": []}
    )
    ledger.commit([KNorm(3, 1.0, 0.5)])
    ledger.close()
    code, _, err = call(capsys, "show", tmp_path)
    assert (code, "scope is 'of tomorrow'; choose one of" in err) == (2, True)
    code, out, _ = call(capsys, "merge", tmp_path)
    assert (code, "a claim unknown here: 'of tomorrow'; update distadmm" in out) == (0, True)


@pytest.mark.parametrize("value", [[], {}, "x"])
def test_an_entry_of_values_that_are_none_of_its_mechanism_has_no_bound(value):
    """Whoever writes a ledger's lines anew may write anything: it is told, and never a traceback."""
    lines = [NORMAL.to_json(), LAPLACE.to_json(), Unbounded("why", 1.0).to_json()]
    for line in lines:
        for name in line.keys() - {"mech", "reason"}:
            assert event_from_json({**line, name: value}).unbounded


@pytest.mark.parametrize("header", [{"scope": 1}, {"orders": None}, {"rng": {}}, {"claim": "x"}, {"rows": 1}])
def test_a_sealed_header_of_other_things_is_told_in_one_line(header, tmp_path, capsys):
    run_of(tmp_path, [LAPLACE])
    path = path_of(tmp_path / "ledger", 0)
    first = chain.read(path).entries[0]
    bare = {key: value for key, value in {**first, **header}.items() if key != "h"}
    path.write_bytes(chain.sealed(chain.canonical(bare))[0])
    for verb in ("show", "merge", "export"):
        code, out, err = call(capsys, verb, tmp_path)
        assert (code, out, len(err.splitlines())) == (2, "", 1) or (code, verb) == (0, "export")
        assert code == 0 or "holds something else than distadmm wrote there" in err


def test_a_faulty_ledger_is_not_shown(two_nodes, capsys):
    path = path_of(two_nodes / "ledger", 0)
    path.write_bytes(path.read_bytes().replace(b'"k":3', b'"k":1', 1))
    code, _, err = call(capsys, "show", two_nodes)
    assert code == 2
    assert "line 5" in err
    assert "ledger verify" in err


def test_parties_that_protect_different_things_are_shown_apart(tmp_path, capsys):
    """As in V2 of ADMM sharing: labels at one party, records at the others."""
    run_of(tmp_path / "a", [LAPLACE], run="v2", node=1, adjacency="label", scope="person")
    run_of(tmp_path / "a", [LAPLACE, NORMAL], run="v2", node=2, scope="person")
    runs = data(capsys, "show", tmp_path / "a", "--json")["runs"]
    assert [(run["adjacency"], run["apart"]) for run in runs] == [
        ("label", ["replace"]),
        ("replace", ["label"]),
    ]
    assert [run["together"]["epsilon"] for run in runs] == [run["nodes"][0]["epsilon"] for run in runs]
    _, out, _ = call(capsys, "show", tmp_path / "a")
    assert out.count("whom both touch pays both") == 2


def test_scores_given_later_are_shown_and_added(tmp_path, capsys):
    """`sharing predict` keeps ledgers of its own, below those of the training."""
    run_of(tmp_path / "a", [NORMAL], node=2, scope="person")
    run_of(tmp_path / "b", [NORMAL], run="scores", node=2, scope="person")
    (tmp_path / "b" / "ledger").rename(tmp_path / "a" / "ledger" / "scores")
    assert len(data(capsys, "show", tmp_path / "a", "--json")["runs"]) == 2
    (both,) = data(capsys, "merge", tmp_path / "a", "--json")["blocks"]
    assert both["epsilon"] == pytest.approx(accountant.epsilon([replace(NORMAL, count=2)], DELTA, "replace"))


def test_runs_whose_files_were_put_into_one_folder_are_still_two(tmp_path, capsys):
    """No node of one run stands for that of another: a record may be at both."""
    run_of(tmp_path, [NORMAL], run="a", node=0)
    run_of(tmp_path, [NORMAL], run="b", node=1)
    runs = data(capsys, "show", tmp_path, "--json")["runs"]
    assert [(run["run"], len(run["nodes"])) for run in runs] == [("a", 1), ("b", 1)]
    (both,) = data(capsys, "merge", tmp_path, "--json")["blocks"]
    assert both["epsilon"] == pytest.approx(accountant.epsilon([replace(NORMAL, count=2)], DELTA, "replace"))
    assert both["statement"] == "odometer"


def test_ledgers_for_different_changes_are_added_for_the_one_that_both_cover(tmp_path, capsys):
    run_of(tmp_path / "a", [LAPLACE], run="a", dataset="d")
    run_of(tmp_path / "b", [LAPLACE], run="b", dataset="d", adjacency="label")
    code, out, _ = call(capsys, "merge", tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "the label of one record flipped (label)" in out
    assert "for replace nothing bounds all of them: some claim nothing for it" in out


def test_no_words_is_help(capsys):
    assert call(capsys, "--help")[0] == 0
    code, out, _ = call(capsys)
    assert code == 2
    assert "verify" in out
