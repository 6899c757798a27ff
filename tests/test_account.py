"""The account of rows: entered before the first release, kept to its limits, and never below what was spent."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distadmm
from distadmm.commands import ledger as ledger_command
from distadmm.commands.ledger_report import cell
from distadmm.data.content import Content, of_matrix, smallest, sums_of_columns
from distadmm.data.table import Sparse
from distadmm.errors import BudgetExhausted, InputError
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.events import Gaussian, KNorm, Unbounded
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.accounting.trust import ANY, Trust
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.account import Account, Entered, Limit, Spender
from distadmm.privacy.ledger.file import Ledger
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.radmm import main as radmm
from distadmm.run.spending import spender

KEY = b"the owner's, carried between hosts"
DELTA = 1e-5
STEP = Gaussian(8.0)
SHARED = [
    PairwiseGaussian(1000.0, 4000.0, 100.0, (0.2, 0.4, 0.9), coalition=1),
    SharedDiscreteGaussian(2**20, 4, 300.0, "gradient", 3, 1, 5, 5, 0),
]  # what one other node makes of it, and all


def spent(
    run: str, events, *, node=0, names=("rows",), marks=(1,), adjacency="replace", scope="record", trust=ANY
):
    one = Spender(node, tuple(names), adjacency, scope, trust, tuple(events))
    return Entered(run, "", frozenset(marks), {node: one})


@pytest.fixture
def account(tmp_path) -> Account:
    account = Account()
    assert account.path.is_relative_to(os.environ["XDG_STATE_HOME"])
    return account


def call(capsys, *argv) -> tuple[int, str, str]:
    capsys.readouterr()
    code = ledger_command.main([str(word) for word in argv])
    return code, *capsys.readouterr()


# -- which rows are the same --------------------------------------------------------------------------

ROWS = [["39", "1.5", "a", "yes"], ["17", "0", "b", "no"], ["-2", "1e3", "a", "yes"]]


def of(rows, target=3, key=KEY) -> Content:
    return sums_of_columns(list(zip(*rows)), target, key).content(key)


def same(one: Content, other: Content) -> bool:
    return not set(one.names).isdisjoint(other.names)


def test_rows_keep_their_names_however_they_are_written():
    again = [[" 39.0 ", "15e-1", "a ", "yes"], ["17", "-0", "b", "no"], ["-2", "1000", "a", "yes"]]
    assert of(ROWS) == of(again) == of(again[::-1])
    assert same(of(ROWS, target=1), of(ROWS))  # another --target: the same cells
    renamed = [[*row[:3], {"yes": "1", "no": "0"}[row[3]]] for row in ROWS]
    assert same(of(renamed), of(ROWS))  # other names of the classes: the same features
    assert not same(of(ROWS[:2]), of(ROWS))
    assert not same(of(ROWS, key=b"another machine's"), of(ROWS))


def test_a_sparse_table_is_the_dense_one():
    X = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    y = np.array([1.0, -1.0, 1.0])
    assert same(of_matrix(X, y, KEY), of_matrix(Sparse.from_dense(X), y, KEY))
    assert not same(of_matrix(X[:, ::-1], y, KEY), of_matrix(X, y, KEY))


@settings(max_examples=25, deadline=None)
@given(pieces=st.integers(1, 12), seed=st.integers(0, 9))
def test_a_table_and_its_pieces_have_rows_in_common(pieces, seed):
    X = np.random.default_rng(seed).normal(size=(600, 3))
    parts = [of_matrix(part, None, KEY) for part in np.array_split(X, pieces)]
    whole = of_matrix(X, None, KEY)
    assert all(not whole.marks.isdisjoint(part.marks) for part in parts)
    assert not smallest(part.marks for part in parts).isdisjoint(whole.marks)
    assert of_matrix(X + 1, None, KEY).marks.isdisjoint(whole.marks)


# -- adding up ----------------------------------------------------------------------------------------


def test_runs_on_rows_in_common_add_up_and_others_do_not(account):
    account.enter(spent("a", [STEP.times(10)], marks=[1, 2]), DELTA)
    account.enter(spent("b", [STEP.times(5)], marks=[7]), DELTA)
    before, after = account.enter(spent("c", [STEP.times(15)], marks=[2, 3]), DELTA)
    assert [run.run for run in before.runs] == ["a"]
    assert after.epsilon == pytest.approx(accountant.epsilon([STEP.times(25)], DELTA, "replace"))
    # What has rows of both makes one table of them.
    before, after = account.enter(spent("d", [STEP], marks=[3, 7]), DELTA)
    assert [run.run for run in before.runs] == ["a", "b", "c"]
    assert after.epsilon == pytest.approx(accountant.epsilon([STEP.times(31)], DELTA, "replace"))


def test_who_releases_nothing_is_told_what_was_spent_and_enters_nothing(account):
    idle = lambda: Entered("b", "", frozenset([2]))  # noqa: E731
    assert account.enter(idle(), DELTA)[1].words == "nothing"
    account.enter(spent("a", [STEP], marks=[1, 2]), DELTA)
    before, after = account.enter(idle(), DELTA)
    assert [run.run for run in before.runs] == [run.run for run in after.runs] == ["a"]
    assert account.read().runs.keys() == {"a"}


def test_an_account_that_names_its_nodes_one_by_one_is_read(account):
    """As it was written before nodes that spend alike were told together."""
    run = spent("a", [STEP.times(4)], node=3, names=["x", "y"])
    run.add(Spender(1, (), "replace", "record", ANY, (STEP.times(4),)))
    run.add(Spender(2, ("z",), "replace", "record", Trust.parse("coalition:2"), (STEP,)))
    account.enter(run, DELTA)
    found = account.read().runs["a"]
    assert {node: s._replace(events=tuple(s.events)) for node, s in found.nodes.items()} == run.nodes
    old = Account(account.path.with_name("old"))
    lines, head = [], chain.GENESIS
    for line in account.path.read_bytes().splitlines():
        entry = {**chain.unsealed(line), "prev": head}
        del entry["h"]
        if "alike" in entry:
            assert len(entry["alike"]) == 2
            del entry["alike"]
            entry["kind"] = "run"
            entry["nodes"] = [
                [s.node, [*s.names], int(s.events == (STEP,)), s.adjacency, s.scope, str(s.trust)]
                for s in run.nodes.values()
            ]
        sealed, digest = chain.sealed(chain.canonical(entry))
        lines.append(sealed)
        head = digest.hex()
    old.path.write_bytes(b"".join(lines))
    again = old.read().runs["a"]
    assert (again.nodes, again.marks, again.where) == (found.nodes, found.marks, found.where)


def test_in_a_named_account_all_runs_are_about_the_same_rows(tmp_path, monkeypatch):
    shared = Account(tmp_path / "shared.jsonl")
    shared.enter(spent("a", [STEP], marks=[1]), DELTA)
    assert [run.run for run in shared.enter(spent("b", [STEP], marks=[2]), DELTA)[0].runs] == ["a"]
    monkeypatch.setenv("DISTADMM_ACCOUNT", str(shared.path))
    assert Account().read().runs.keys() == {"a", "b"}
    assert Account().key() == shared.key() != Account(tmp_path / "other.jsonl").key()
    assert oct(shared.path.stat().st_mode & 0o77) == "0o0"


def test_a_record_costs_most_at_one_node_or_at_all_that_have_its_rows(account):
    run = spent("a", [STEP.times(4)], node=0, names=["x"])
    run.add(Spender(1, ("y",), "replace", "record", ANY, (STEP.times(9),)))
    assert run.tight("replace", DELTA) == accountant.epsilon([STEP.times(9)], DELTA, "replace")
    run.add(Spender(2, ("x", "z"), "replace", "record", ANY, (STEP.times(7),)))
    together = accountant.epsilon([STEP.times(11)], DELTA, "replace")
    assert run.tight("replace", DELTA) == together
    _, after = account.enter(run, DELTA)
    assert after.epsilon == pytest.approx(together)


def test_changes_and_adversaries_compose_by_what_all_cover(account):
    account.enter(spent("a", [STEP], adjacency="add-remove", trust=Trust.parse("coalition:2")), DELTA)
    _, after = account.enter(spent("b", [STEP]), DELTA)
    assert (after.adjacency, str(after.trust)) == ("replace", "coalition:2")
    assert after.epsilon == pytest.approx(accountant.epsilon([Gaussian(4.0), STEP], DELTA, "replace"))


def test_a_run_that_claims_less_hides_nothing_of_those_that_claim_more(account):
    for name in "ab":
        _, before = account.enter(spent(name, [STEP]), DELTA)
    _, after = account.enter(spent("c", [Gaussian(40.0)], adjacency="label"), DELTA)
    assert after.adjacency == "label"
    told = before.words.partition(" at delta")[0]
    assert after.words.endswith(f"; for replace: no bound by 1 of these, {told} by the other 2")
    assert "for " not in before.words


@pytest.mark.parametrize("shared", SHARED)
def test_runs_for_the_same_adversaries_add_up_as_those_see_them(account, shared):
    """And not as all others would, who may know far more."""
    alone, everybody = (
        accountant.epsilon([event], DELTA, "replace") for event in (shared, shared.against(ANY))
    )
    assert everybody > 1.2 * alone
    for run in "ab":
        before, after = account.enter(spent(run, [shared], trust=Trust.parse("coalition:1")), DELTA)
    assert before.epsilon == pytest.approx(alone)
    assert after.epsilon == pytest.approx(accountant.epsilon([shared.times(2)], DELTA, "replace"))
    account.limit(Limit(after.epsilon * 1.001, DELTA, "replace", Trust.parse("coalition:1"), None))
    with pytest.raises(BudgetExhausted):
        account.enter(spent("c", [shared], trust=Trust.parse("coalition:1")), DELTA)
    account.limit(Limit(1e3, DELTA, "replace", Trust.parse("coalition:2"), None))
    with pytest.raises(BudgetExhausted, match="bounds nothing against"):
        account.enter(spent("c", [shared], trust=Trust.parse("coalition:1")), DELTA)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("trust", ["any", "coalition:1"])
def test_a_run_is_entered_as_the_adversaries_of_its_ledger_see_it(account, shared, trust):
    """And one whose ledger names none, as all others do."""
    ledger = MemoryLedger(0, adjacency="replace", mode="secure", trust=trust)
    account.enter(Entered("a", "", frozenset([1]), {0: spender(ledger, [shared])}), DELTA)
    (run,) = account.read().runs.values()
    expected = accountant.epsilon([shared.against(Trust.parse(trust))], DELTA, "replace")
    assert run.tight("replace", DELTA) == pytest.approx(expected)


def test_what_has_no_bound_is_never_counted_as_finite(account, capsys):
    account.enter(spent("a", [STEP]), DELTA)
    _, after = account.enter(spent("b", [STEP, Unbounded("no noise was asked for")]), DELTA)
    assert after.words.startswith("no bound: no noise was asked for (1 of 2 runs); epsilon at most")
    code, out, _ = call(capsys, "account", "--json")
    assert (code, json.loads(out)["tables"][0]["epsilon"]) == (0, float("inf"))
    account.limit(Limit(1000.0, DELTA, "replace", ANY, None))
    with pytest.raises(BudgetExhausted, match="no noise was asked for"):
        account.enter(spent("c", [STEP]), DELTA)


# -- limits -------------------------------------------------------------------------------------------


def test_a_limit_refuses_what_would_exceed_it_and_enters_nothing(account):
    each = accountant.epsilon([STEP.times(4)], DELTA, "replace")
    account.limit(Limit(1.6 * each, DELTA, "replace", ANY, None))
    account.enter(spent("a", [STEP.times(4)]), DELTA)
    content = account.path.read_bytes()
    with pytest.raises(BudgetExhausted, match=r"allows epsilon .* by 1 run are spent: epsilon would be"):
        account.enter(spent("b", [STEP.times(12)]), DELTA)
    assert account.path.read_bytes() == content
    account.enter(spent("other rows", [STEP.times(4)], marks=[5]), DELTA)
    account.enter(spent("a", [STEP.times(4)]), DELTA)  # the same run, taken up again


def test_a_schedule_that_fits_by_its_tight_price_alone_is_the_only_one(account):
    tight = accountant.epsilon([STEP.times(4)], DELTA, "replace")
    account.limit(Limit(tight, DELTA, "replace", ANY, None))
    account.enter(spent("a", [STEP.times(4)]), DELTA)
    with pytest.raises(BudgetExhausted):
        account.enter(spent("b", [Gaussian(1e6)]), DELTA)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.floats(0.3, 6))
def test_what_a_limit_admits_is_below_it(tmp_path_factory, counts, most):
    account = Account(tmp_path_factory.mktemp("a") / "account.jsonl")
    account.limit(Limit(most, DELTA, "replace", ANY, None))
    admitted = 0
    for number, count in enumerate(counts):
        try:
            account.enter(spent(str(number), [STEP.times(count)]), DELTA)
            admitted += count
        except BudgetExhausted:
            pass
    assert not admitted or accountant.epsilon([STEP.times(admitted)], DELTA, "replace") <= most


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"adjacency": "label"}, "adjacency label bounds nothing"),
        ({"trust": Trust.parse("centre")}, "bounds nothing"),
    ],
)
def test_a_limit_is_about_its_change_and_its_adversaries(account, other, why):
    account.limit(Limit(50.0, DELTA, "replace", ANY, None))
    account.enter(spent("a", [STEP]), DELTA)
    with pytest.raises(BudgetExhausted, match=why):
        account.enter(spent("b", [STEP], **other), DELTA)


def test_limits_are_set_raised_and_taken_back(account, capsys):
    account.enter(spent("a", [STEP]), DELTA)
    assert call(capsys, "account", "--limit", "0.5")[0] == 2
    assert call(capsys, "account", "--limit", "zero", "--adjacency", "replace")[0] == 2
    code, out, _ = call(capsys, "account", "--limit", "0.01", "--adjacency", "replace")
    assert code == 0
    assert "exceeded" in out
    with pytest.raises(BudgetExhausted):
        account.enter(spent("b", [STEP]), DELTA)
    assert "kept" in call(capsys, "account", "--limit", "5", "--adjacency", "replace")[1]
    account.enter(spent("b", [STEP]), DELTA)
    assert "limit" not in call(capsys, "account", "--limit", "off")[1]
    assert "no run that this account knows" in call(capsys, "account", "unknown")[2]


# -- whatever happens ---------------------------------------------------------------------------------


def _many(number: int) -> None:
    account = Account()  # which remembers what it read, between what the others write
    for k in range(5):
        account.enter(spent(f"{number}-{k}", [STEP]), DELTA)


def test_concurrent_runs_are_all_counted(account):
    jobs = [multiprocessing.get_context("fork").Process(target=_many, args=(number,)) for number in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0] * 4
    assert len(account.read().runs) == 20


def test_two_continuations_of_one_run_both_count(account):
    account.enter(spent("a", [STEP.times(3)]), DELTA)
    for _ in range(2):  # from copies of its directory
        account.enter(spent("a", [STEP.times(3)]), DELTA)
        account.enter(spent("a", [STEP]), DELTA, more=True)
    (only,) = account.read().runs.values()
    assert only.nodes[0].events == (STEP.times(5),)


def test_a_run_that_added_releases_is_told_by_what_adaptive_choice_keeps(account, capsys):
    step = KNorm(3, 1.0, 0.5)
    account.enter(spent("a", [step.times(40)]), DELTA)
    committed = account.read().runs["a"].tight("replace", DELTA)
    assert committed == accountant.epsilon([step.times(40)], DELTA, "replace")
    account.enter(spent("a", [step.times(40)]), DELTA)  # taken up again, nothing added
    assert account.read().runs["a"].committed
    account.enter(spent("a", [step.times(40)]), DELTA, more=True)
    run, both = account.read().runs["a"], [step.times(80)]
    proved = accountant.adaptive_epsilon(both, DELTA, "replace")
    assert accountant.epsilon(both, DELTA, "replace") < proved == run.tight("replace", DELTA)
    assert f"run a: epsilon {cell(proved)} " in call(capsys, "account", "--delta", DELTA)[1]


def test_a_limit_admits_no_later_release_by_the_price_of_a_schedule(account):
    step = KNorm(3, 1.0, 0.5)
    both = accountant.epsilon([step.times(80)], DELTA, "replace")
    account.limit(Limit(both, DELTA, "replace", ANY, None))
    account.enter(spent("a", [step.times(40)]), DELTA)
    with pytest.raises(BudgetExhausted):
        account.enter(spent("a", [step.times(40)]), DELTA, more=True)
    account.enter(spent("b", [step.times(80)], marks=[5]), DELTA)  # committed at once


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 1))
def test_a_torn_line_was_no_entry_and_nothing_before_it_is_lost(tmp_path_factory, share):
    account = Account(tmp_path_factory.mktemp("a") / "account.jsonl")
    account.enter(spent("a", [STEP]), DELTA)
    whole = account.path.read_bytes()
    account.enter(spent("b", [STEP.times(2)]), DELTA)
    both = account.path.read_bytes()
    account.path.write_bytes(both[: len(whole) + int(share * (len(both) - len(whole)))])
    account.enter(spent("c", [STEP.times(4)]), DELTA)
    runs = account.read().runs
    assert {"a", "c"} <= runs.keys()
    before, _ = account.enter(spent("d", [STEP]), DELTA)
    assert [run.run for run in before.runs] == [*runs]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_heads_go_behind_whatever_was_written_meanwhile(account, meanwhile):
    account.enter(spent("a", [STEP]), DELTA)
    if meanwhile:
        Account().enter(spent("b", [STEP], marks=(2,)), DELTA)
    account.heads("a", {0: "ab" * 32})
    state = Account().read()  # whole: each line holds the hash of the one before
    assert [*state.runs] == ["a", "b"][: 1 + meanwhile]
    assert state.runs["a"].heads == {0: "ab" * 32}


def test_heads_are_refused_behind_an_entry_that_was_edited(account):
    account.enter(spent("a", [STEP]), DELTA)
    account.path.write_text(account.path.read_text().replace('"of":"a"', '"of":"b"'))
    with pytest.raises(InputError, match="edited"):
        account.heads("a", {0: "ab" * 32})


def test_an_account_that_was_edited_or_cannot_be_written_is_refused(account, tmp_path):
    account.enter(spent("a", [STEP.times(40)]), DELTA)
    account.path.write_bytes(account.path.read_bytes().replace(b'"count":40', b'"count":4'))
    with pytest.raises(InputError, match="it was edited; restore it"):
        account.enter(spent("b", [STEP]), DELTA)
    for keeps_nothing in (tmp_path, "/dev/null", "/dev/zero"):
        with pytest.raises(InputError, match=r"would keep nothing.*--account FILE"):
            Account(keeps_nothing).enter(spent("b", [STEP]), DELTA)
        with pytest.raises(InputError, match="would keep nothing"):
            Account(keeps_nothing).read()


def held(account: Account) -> dict:
    return {name: (run.nodes, run.began, run.marks, run.heads) for name, run in account.read().runs.items()}


def test_what_was_read_before_is_not_parsed_again(account, monkeypatch):
    parsed, parse = {}, chain.parse

    def noted(content, path, after=None):
        parsed[reader] = parsed.get(reader, 0) + len(content)
        return parse(content, path, after)

    monkeypatch.setattr(chain, "parse", noted)
    one, two = Account(), Account()
    for at in range(4):
        reader = one
        one.enter(spent("a", [STEP]), DELTA, more=True)
        reader = two
        two.enter(spent(f"b{at}", [Gaussian(9.0)]), DELTA)
    two_held = held(two)
    reader = one
    assert held(one) == two_held
    assert parsed[one] == parsed[two] == account.path.stat().st_size
    reader = None
    assert held(account) == two_held  # as who reads it for the first time


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: b"".join(lines).replace(b'"count":7', b'"count":1'), "line 2: .* it was edited"),
        (lambda lines: b"".join([lines[0], *lines[2:]]), "lines are missing or moved"),
        (lambda lines: b"".join(lines)[:-1].replace(b'"b"', b'"c"'), "line 3: .* it was edited"),
    ],
)
def test_a_change_of_what_was_read_before_is_noticed(account, change, why):
    account.enter(spent("a", [STEP.times(7)]), DELTA)
    account.enter(spent("b", [STEP.times(2)]), DELTA)
    account.read()
    account.path.write_bytes(change(account.path.read_bytes().splitlines(keepends=True)))
    with pytest.raises(InputError, match=why):
        account.enter(spent("a", [STEP]), DELTA, more=True)


def test_an_account_that_was_put_back_or_cut_is_read_from_its_start(account):
    account.enter(spent("a", [STEP]), DELTA)
    before = account.path.read_bytes()
    account.enter(spent("b", [STEP.times(2)]), DELTA)
    account.read()
    account.path.write_bytes(before)  # an older copy: as any process finds it
    account.enter(spent("a", [STEP]), DELTA, more=True)
    assert held(account) == held(Account())
    assert account.read().runs.keys() == {"a"}
    account.path.unlink()
    assert account.read().runs == {}


def test_what_a_limit_refused_is_not_remembered_as_spent(account):
    account.limit(Limit(1.0, DELTA, "replace", ANY, None))
    account.enter(spent("a", [Gaussian(100.0)]), DELTA)
    for _ in range(2):
        with pytest.raises(BudgetExhausted):
            account.enter(spent("a", [STEP.times(90)]), DELTA, more=True)
    assert account.read().runs["a"].nodes[0].events == (Gaussian(100.0),)
    account.enter(spent("a", [Gaussian(100.0)]), DELTA, more=True)


# -- runs ---------------------------------------------------------------------------------------------

SHORT = ("--iterations", "4", "--progress", "none", "--observe", "none")
PRIVATE = ("--epsilon", "1", "--adjacency", "replace", *SHORT)


def table(path: Path, rows=60, seed=0, labels=("0", "1"), ends="\n") -> Path:
    rng = np.random.default_rng(seed)
    lines = ["a,b,c,z,y"]
    for row in rng.normal(size=(rows, 3)):
        lines.append(
            ",".join([*(f"{cell:.6f}" for cell in row), str(int(row[1] > 0)), labels[int(row[0] > 0)]])
        )
    content = (ends.join(lines) + ends).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def merged(capsys, *runs) -> dict:
    code, out, err = call(capsys, "merge", *runs, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def private_run(out: Path, data, *more) -> Path:
    assert (
        radmm(["--data", str(data), "--topology", "ring:4", "--out", str(out), *PRIVATE, *map(str, more)])
        == 0
    )
    return out


def test_the_same_rows_under_other_names_add_up_and_are_known(tmp_path, capsys):
    """Other names of the classes, packing, line ends: one table for the account, and one run more in a merge."""
    first = private_run(tmp_path / "r0", table(tmp_path / "t.csv"))
    one = merged(capsys, first)["epsilon"]
    others = [
        private_run(tmp_path / "r1", table(tmp_path / "u.csv", labels=("no", "yes")), "--labels", "no,yes"),
        private_run(tmp_path / "r2", table(tmp_path / "t.csv.gz")),
        private_run(tmp_path / "r3", table(tmp_path / "v.csv", ends="\r\n")),
    ]
    assert "earlier on these rows" in capsys.readouterr().err
    for other in others:
        both = merged(capsys, first, other)
        assert len(both["blocks"]) == 1
        assert both["blocks"][0]["same_rows"] == 4
        assert both["epsilon"] > 1.3 * one
    assert len(Account().read().tables()) == 1


@pytest.mark.parametrize(
    "what", ["another key", "another target", "one shard changed", "whole against shards"]
)
def test_rows_that_are_not_known_to_be_the_same_add_up_too(tmp_path, capsys, monkeypatch, what):
    text = table(tmp_path / "t.csv").read_text().splitlines()
    for node in range(4):
        (tmp_path / f"s-{node}.csv").write_text("\n".join([text[0], *text[1 + node :: 4]]) + "\n")
    shards = tmp_path / "s-{rank}.csv"
    first = private_run(tmp_path / "r0", shards if what == "one shard changed" else tmp_path / "t.csv")
    more = ()
    if what == "another key":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    if what == "another target":
        more = ("--target", "z")
    if what == "one shard changed":
        (tmp_path / "s-2.csv").write_text("\n".join([text[0], *text[3::4][:-1], "9,9,9,1,1"]) + "\n")
    second = private_run(tmp_path / "r1", tmp_path / "t.csv" if "key" in what or more else shards, *more)
    one, both = merged(capsys, first), merged(capsys, first, second)
    assert len(both["blocks"]) == 1
    assert both["epsilon"] > 1.3 * one["epsilon"]
    assert len(Account().read().tables()) == (2 if what == "another key" else 1)


def test_one_file_given_to_four_nodes_adds_up(tmp_path, capsys):
    for node in range(4):
        table(tmp_path / f"s-{node}.csv", ends="\r\n" if node == 2 else "\n")
    run = private_run(tmp_path / "r", tmp_path / "s-{rank}.csv")
    said = capsys.readouterr().out
    shown = json.loads(call(capsys, "show", run, "--json")[1])["runs"][0]
    each = max(node["epsilon"] for node in shown["nodes"])
    assert shown["together"]["epsilon"] > 1.5 * each
    assert merged(capsys, run)["epsilon"] == shown["together"]["epsilon"]
    assert f"epsilon {rounded_up(shown['together']['epsilon'])}" in said
    assert "several nodes hold the same rows" in said
    assert "resumed" not in said
    assert "nodes 0, 1, 2, 3 hold the same rows" in call(capsys, "show", run)[1]


def test_a_run_shows_what_it_merges_to(tmp_path, capsys):
    """Whole, in two pieces as two hosts hold them, and beside a copy of itself."""
    run = private_run(tmp_path / "r", table(tmp_path / "t.csv"))
    shown = json.loads(call(capsys, "show", run, "--json")[1])["runs"][0]["together"]["epsilon"]
    for node in range(4):
        piece = tmp_path / f"host-{node % 2}" / "ledger"
        piece.mkdir(parents=True, exist_ok=True)
        name = f"node-{node:04d}.jsonl"
        (piece / name).write_bytes((run / "ledger" / name).read_bytes())
    pieces = [tmp_path / "host-0", tmp_path / "host-1"]
    for runs in ([run], pieces, [run, *pieces]):
        found = merged(capsys, *runs)
        assert (found["epsilon"], found["blocks"][0]["statement"]) == (shown, "certificate")


def test_a_run_over_the_limit_is_refused_before_anything_leaves(tmp_path, capsys):
    data = table(tmp_path / "t.csv")
    private_run(tmp_path / "a", data)
    assert call(capsys, "account", tmp_path / "a", "--limit", "1.2", "--adjacency", "replace")[0] == 0
    arguments = ["--data", str(data), "--topology", "ring:4", "--out", str(tmp_path / "b"), *PRIVATE]
    assert radmm(arguments) == 3
    assert "allows epsilon 1.2" in capsys.readouterr().err
    assert not any(entry["kind"] == "commit" for entry in _entries(tmp_path / "b"))
    assert len(Account().read().runs) == 1
    private_run(
        tmp_path / "b", table(tmp_path / "v.csv", seed=2), "--force"
    )  # of nothing spent nothing is kept
    assert not list(tmp_path.glob("b.spent-*"))
    # Nor one without noise, which has no bound.
    assert radmm(["--data", str(data), "--topology", "ring:4", "--out", str(tmp_path / "c"), *SHORT]) == 3
    # Rows of others are no concern of this limit, and a simulation of these neither.
    private_run(tmp_path / "d", table(tmp_path / "u.csv", seed=1))
    private_run(tmp_path / "e", data, "--rng", "simulation")
    assert "not entered: a simulation protects nobody" in capsys.readouterr().out


def _entries(run: Path) -> list[dict]:
    return [json.loads(line) for file in run.glob("ledger/*.jsonl") for line in file.read_text().splitlines()]


def test_what_a_budget_of_its_own_refuses_is_not_counted(tmp_path):
    data = table(tmp_path / "t.csv")
    asked = ["--data", str(data), "--topology", "ring:4", "--out", str(tmp_path / "a"), *PRIVATE]
    assert radmm([*asked, "--budget-epsilon", "0.1"]) == 3
    assert not Account().read().runs


def test_what_rests_on_what_nobody_established_is_infinite(tmp_path, capsys):
    from distadmm.privacy.accounting.scopes import SCOPES, Hypothesis, claim
    from distadmm.run.spending import spender

    names = SCOPES["istdp"].hypotheses
    for place, by in (("code", "code"), ("declared", "declared"), ("nobody", None)):
        last = [Hypothesis(names[-1], by)] if by else []
        said = claim("istdp", [*names[:-1], *last])
        with Ledger(tmp_path / place / "ledger", 0, adjacency="replace", mode="secure", claim=said) as ledger:
            ledger.commit([STEP.times(3)])
            one = spender(ledger, ledger.events)
        finite = by == "code"
        assert any(event.unbounded for event in one.events) is not finite
        assert np.isfinite(merged(capsys, tmp_path / place)["epsilon"]) == finite


def test_solve_enters_what_it_spends(capsys):
    for _ in range(2):
        distadmm.solve("radmm", data="tiny", topology="ring:4", epsilon=1, adjacency="replace", iterations=4)
    assert "earlier on these rows epsilon" in capsys.readouterr().err
    (runs,) = Account().read().tables()
    assert len(runs) == 2
    distadmm.solve("radmm", data="tiny", topology="ring:4", iterations=2)
    assert len(Account().read().runs) == 2  # of a public table without noise nothing is claimed


def test_an_earlier_run_alone_is_said_to_cost_what_it_did(capsys):
    """Its curve alone says more; with a second run, which may have been chosen by the first, it stands."""
    flags = {"data": "tiny", "topology": "ring:4", "adjacency": "replace", "epsilon": 8, "iterations": 6}
    first = distadmm.solve("gossip", **flags).summary["epsilon"]
    (runs,) = Account().read().tables()
    spent = {event for spender in runs[0].nodes.values() for event in spender.events}
    curve, both = (
        max(
            accountant.adaptive_epsilon([event.times(k * event.releases)], DELTA, "replace")
            for event in spent
        )
        for k in (1, 2)
    )
    capsys.readouterr()
    distadmm.solve("gossip", **flags)
    told = [float(part.split()[0]) for part in capsys.readouterr().err.split("epsilon at most ")[1:]]
    assert first <= told[0] <= first + 1e-4 < curve
    assert both <= told[1] <= both + 1e-4
    distadmm.solve("gossip", **flags)
    assert f"earlier on these rows epsilon at most {told[1]:.4f}" in capsys.readouterr().err


def test_all_programmes_enter_the_same_table(tmp_path, capsys):
    from distadmm.istdp import main as istdp
    from distadmm.sharing import main as sharing

    data = table(tmp_path / "t.csv")
    private_run(tmp_path / "a", data)
    asked = ["--data", str(data), "--epsilon", "1", "--adjacency", "replace", "--progress", "none"]
    assert istdp([*asked, "--iterations", "3", "--out", str(tmp_path / "b")]) == 0
    assert sharing([*asked, "--mechanism", "s2", "--rounds", "2", "--out", str(tmp_path / "c")]) == 0
    (runs,) = Account().read().tables()
    assert [Path(run.where).name for run in runs] == ["a", "b", "c"]
    assert all(run.heads for run in runs)
    for name in "abc":
        assert call(capsys, "verify", tmp_path / name)[0] == 0
    # Both parties have a row of each person, so one run of S2 merges to the sum that `show` says.
    shown = json.loads(call(capsys, "show", tmp_path / "c", "--json")[1])["runs"][0]
    assert shown["together"]["epsilon"] > 1.4 * shown["nodes"][0]["epsilon"]
    assert merged(capsys, tmp_path / "c")["epsilon"] == shown["together"]["epsilon"]


def test_scores_given_later_are_entered_with_the_rows_of_the_training(tmp_path):
    from distadmm.sharing import main as sharing

    data = table(tmp_path / "t.csv")
    arguments = ["--data", str(data), "--epsilon", "1", "--out", str(tmp_path / "a"), "--observe", "none"]
    assert sharing(arguments) == 0
    for _ in range(2):
        new = ["--data", str(data), "--release", "noise:1", "--scores", str(tmp_path / "s.csv")]
        assert sharing(["predict", str(tmp_path / "a"), *new]) == 0
    (runs,) = Account().read().tables()
    assert [run.run for run in runs] == [runs[0].run, f"{runs[0].run} scores"]
    assert [event.releases for event in runs[1].nodes[2].events] == [2]


def test_a_resumed_run_is_entered_once(tmp_path):
    data = table(tmp_path / "t.csv")
    out = private_run(tmp_path / "a", data, "--checkpoint-every", "2", "--budget-epsilon", "5")
    (before,) = Account().read().runs.values()
    assert radmm(["--resume", str(out), "--iterations", "8"]) == 0
    (after,) = Account().read().runs.values()
    assert before.run == after.run
    releases = [sum(e.releases for e in run.nodes[0].events) for run in (before, after)]
    assert releases == [2, 4]
    spent = [e.releases for e in Ledger.resume(out / "ledger", 0, mode="secure").events]
    assert sum(spent) == releases[1]


@pytest.mark.parametrize("algorithm", ["radmm", "admm", "newton"])  # the second exposes what tunes it, too
def test_what_has_no_bound_is_entered_once_and_not_by_every_node_again(algorithm, tmp_path):
    flags = ["--data", str(table(tmp_path / "t.csv")), "--target", "y", "--topology", "ring:3", *SHORT]
    assert radmm([*flags, "--algorithm", algorithm, "--out", str(tmp_path / "run")]) == 0
    lines = [json.loads(line) for line in Account().path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["open", "alike", "heads"]
    (run,) = Account().read().runs.values()
    assert all(event.unbounded for spender in run.nodes.values() for event in spender.events)


def test_a_killed_run_is_counted(tmp_path):
    """The account is written before the first message is: whatever a killed run sent, it is in there."""
    data = table(tmp_path / "t.csv")
    command = [sys.executable, "-m", "distadmm.radmm", "--data", str(data), "--topology", "ring:4"]
    command += [
        "--out",
        str(tmp_path / "a"),
        "--epsilon",
        "1",
        "--adjacency",
        "replace",
        "--iterations",
        "400",
    ]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and job.poll() is None:
            if any(entry["kind"] == "release" for entry in _entries(tmp_path / "a")):
                break
            time.sleep(0.02)
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    (run,) = Account().read().runs.values()
    released = sum(entry["kind"] == "release" for entry in _entries(tmp_path / "a")) / 4
    assert 0 < released <= sum(event.releases for event in run.nodes[0].events)


# -- heads --------------------------------------------------------------------------------------------


def test_nodes_of_another_run_do_not_stand_for_those_that_are_missing(tmp_path, capsys):
    first, second = (private_run(tmp_path / name, table(tmp_path / "t.csv")) for name in "ab")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for node in range(4):
        name = f"node-{node:04d}.jsonl"
        (mixed / name).write_bytes(((first, second)[node % 2] / "ledger" / name).read_bytes())
    capsys.readouterr()
    code, _, err = call(capsys, "verify", mixed)
    assert code == 1
    assert err.count("there is no ledger of node") == 4
    for node in range(4):
        (mixed / f"first-{node}.jsonl").write_bytes(
            (first / "ledger" / f"node-{node:04d}.jsonl").read_bytes()
        )
        (mixed / f"node-{node:04d}.jsonl").write_bytes(
            (second / "ledger" / f"node-{node:04d}.jsonl").read_bytes()
        )
    assert call(capsys, "verify", mixed)[0] == 0


@pytest.mark.parametrize(("name", "value"), [("adj", "label"), ("trust", "centre"), ("scope", "person")])
def test_a_ledger_that_was_opened_for_another_claim_is_not_that_of_the_run(name, value, tmp_path, capsys):
    """Of a run that was killed the account has no heads, and who writes a ledger anew seals it anew."""
    run = private_run(tmp_path / "a", table(tmp_path / "t.csv"))
    kept = Account().path.read_bytes().splitlines(keepends=True)
    Account().path.write_bytes(b"".join(line for line in kept if b'"kind":"heads"' not in line))
    for beside in [*run.glob("ledger/*.witness"), *run.glob("ledger/*.replay")]:
        beside.unlink()
    assert call(capsys, "verify", run)[0] == 0
    path = run / "ledger" / "node-0001.jsonl"
    lines, prev = [], chain.GENESIS
    for entry in chain.read(path).entries:
        opens = {name: value} if entry["kind"] == "open" else {}
        bare = {key: v for key, v in {**entry, **opens, "prev": prev}.items() if key != "h"}
        line, digest = chain.sealed(chain.canonical(bare))
        lines.append(line)
        prev = digest.hex()
    path.write_bytes(b"".join(lines))
    code, _, err = call(capsys, "verify", run)
    assert code == 1
    assert "this one was written anew" in err


def test_of_two_copies_that_are_taken_up_at_once_one_goes_on(tmp_path):
    path = tmp_path / "account.jsonl"
    Account(path).heads("r", {0: "aa", 1: "bb"})
    first, second = (
        dict(Account(path).read().runs["r"].heads) for _ in range(2)
    )  # both read, then both write
    Account(path).heads("r", {0: "ac"}, first)
    with pytest.raises(InputError, match="another copy of this run was taken up at the same moment"):
        Account(path).heads("r", {0: "ad"}, second)
    Account(path).heads("r", {1: "bc"}, second)  # a rank of its own rows
    assert Account(path).read().runs["r"].heads == {0: "ac", 1: "bc"}


def test_what_is_cut_from_a_folder_is_missed_by_the_account(tmp_path, capsys):
    run = private_run(tmp_path / "a", table(tmp_path / "t.csv"))
    (told,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ledger heads")]
    heads = told.split()[2].rstrip(",")
    assert call(capsys, "verify", run, "--heads", heads)[0] == 0
    folder = run / "ledger"
    kept = {path: path.read_bytes() for path in folder.iterdir()}

    def refused(said: str, *more: str) -> None:
        code, _, err = call(capsys, "verify", run, *more)
        assert code == 1
        assert said in err
        for path, content in kept.items():
            path.write_bytes(content)

    (folder / "node-0002.jsonl").unlink()
    refused("there is no ledger of node 2, and the account knows it: it was deleted")
    (folder / "node-0003.jsonl").write_bytes(kept[folder / "node-0001.jsonl"])
    refused("it is the ledger of node 1: that of this node was replaced")
    for path, content in kept.items():  # the tail, and all that could tell of it
        if path.suffix == ".jsonl":
            path.write_bytes(b"".join(content.splitlines(keepends=True)[:-3]))
        else:
            path.unlink()
    refused("the account holds a head that is not in it")
    Account().path.unlink()
    assert call(capsys, "verify", run)[0] == 0
    for path, content in kept.items():
        path.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    refused("the run did not end like this", "--heads", heads)
