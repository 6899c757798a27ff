"""Many ledgers in one file of their rank: the chains of a file each, whatever is done, and nothing charged is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import BudgetExhausted, InputError
from distadmm.privacy.accounting.events import Gaussian, Pure
from distadmm.privacy.ledger import file as files
from distadmm.privacy.ledger import shelves
from distadmm.privacy.ledger.account import Account
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.check import verified
from distadmm.privacy.ledger.filter import PureFilter
from distadmm.privacy.ledger.tally import Tally

HOW: dict[str, Any] = {"adjacency": "replace", "mode": "secure"}
ONE = Pure(0.125)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", 2)


def opened(folder: Path | None, nodes: Any, neighbours: Any = (), **more: Any) -> Books:
    return Books.open(folder, nodes, neighbours, run="a run", **{**HOW, **more})


def chains(folder: Path) -> dict[int, Any]:
    return {found.entries[0]["node"]: found for found in shelves.read_all(sorted(folder.glob("*.jsonl")))}


def told(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What entries say, whatever file they are in and when they were written."""
    beside = ("h", "prev", "v", "with", "t", "boot")
    return [{key: value for key, value in entry.items() if key not in beside} for entry in entries]


def used(books: Books, moves: list[tuple[str, int]]) -> None:
    """Some life of the ledgers of four nodes."""
    plans = [[ONE.times(3)], [ONE.times(3)], [ONE.times(3)], [Gaussian(2.0)]]
    committed = released = False
    for k, (move, at) in enumerate(moves, 1):
        if move == "commit" and not committed:
            books.commit(plans)
            committed = True
        elif move == "expose":
            books.expose("no noise", iteration=k)
            released = True
        elif move == "post" and released:
            books.post(iteration=k)
        elif move == "charge":
            books.ledgers[at].charge(ONE, iteration=k)
        elif move == "charge each":
            books.charge([ONE, ONE, None if at == 2 else ONE, Gaussian(2.0)], iteration=k)
        elif move == "expose one":
            books.ledgers[at].expose("missed", iteration=k)
    books.close()


@pytest.mark.parametrize("mode", ["secure", "simulation"])
def test_force_keeps_spent_secret_noise(tmp_path, mode) -> None:
    from distadmm.privacy.ledger.chain import has_secret_noise

    books = opened(tmp_path, range(3), mode=mode)
    path = tmp_path / "nodes-0000.jsonl"
    assert not has_secret_noise(path)  # nothing was reserved
    books.commit([[ONE]] * 3)
    books.ledgers.let_go()
    assert has_secret_noise(path) == (mode == "secure")
    books = Books.resume(tmp_path, range(3), mode=mode)
    books.expose("missed", iteration=1)
    books.close()
    assert has_secret_noise(tmp_path / "nodes-0000-1.jsonl") == (mode == "secure")


def test_what_all_nodes_send_is_one_line_and_an_entry_of_each_chain(tmp_path) -> None:
    books = opened(tmp_path, [0, 1, 2, 5, 6])
    path, heads = tmp_path / "nodes-0000.jsonl", []
    books.expose("no noise", iteration=1)
    lines = len(path.read_bytes().splitlines())
    for k in (2, 3):
        books.expose("no noise", iteration=k)
        heads.append([ledger.head for ledger in books.ledgers])
    assert len(path.read_bytes().splitlines()) == lines + 3  # and the text of releases
    books.ledgers[3].charge(ONE, iteration=4)
    books.post(iteration=4)  # they no longer read alike: node 5 has a line of its own
    heads.append([ledger.head for ledger in books.ledgers])
    books.ledgers.let_go()
    np.testing.assert_array_equal(books.heads, np.frombuffer(b"".join(heads[-1]), np.uint8).reshape(5, 32))
    found = chains(tmp_path)
    for at, (node, each) in enumerate(sorted(found.items())):
        assert each.fault is None
        known = {bytes.fromhex(entry["h"]) for entry in each.entries}
        assert len(known) == len(each.entries) == 5 + (node == 5)
        assert known >= {some[at] for some in heads}
        assert each.head == heads[-1][at].hex()
    again = [Books.resume(tmp_path, part, mode="secure") for part in ([0, 5], [1, 2, 6])]
    for part in again:
        part.expose("no noise", iteration=5)
        part.close()
    assert not verified(sorted(tmp_path.glob("*.jsonl")), Account(tmp_path / "account")).faults
    assert {Tally.of(each.entries).releases for each in chains(tmp_path).values()} == {4, 5}


@pytest.mark.parametrize("lines", [0, 1])
def test_a_file_of_many_that_was_emptied_is_not_whole(tmp_path, lines) -> None:
    """Also where the text is left that entries share, or a part of it; one beside others is what a kill may leave."""
    books = opened(tmp_path, range(3))
    books.expose("no noise", iteration=1)
    books.close()
    path, account = tmp_path / "nodes-0000.jsonl", Account(tmp_path / "account")
    kept = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "nodes-0000-1.jsonl").touch()
    assert not verified(sorted(tmp_path.glob("*.jsonl")), account).faults
    (tmp_path / "nodes-0000-1.jsonl").unlink()
    for left in (b"".join(kept[:lines]), b"".join(kept[:lines]) + kept[lines][:-20]):
        path.write_bytes(left)
        assert [fault for fault in verified([path], account).faults if "no whole entry" in fault]


@pytest.mark.parametrize("how", ["flip", "drop", "twice", "swap", "other nodes"])
@pytest.mark.parametrize("at", range(1, 5))
def test_an_edit_of_a_line_for_all_is_found(tmp_path, how, at) -> None:
    books = opened(tmp_path, range(3))
    for k in range(1, 6):
        books.expose("no noise", iteration=k)
    books.close()
    path = tmp_path / "nodes-0000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    of_all = [i for i, line in enumerate(lines) if b'"v":3' in line and b'"kind":"text"' not in line]
    assert len(of_all) == 6
    i = of_all[at]
    if how == "flip":
        lines[i] = lines[i].replace(b'"k":%d' % (at + 1), b'"k":9')
    elif how == "drop":
        del lines[i]
    elif how == "twice":
        lines.insert(i, lines[i])
    elif how == "swap":
        lines[i - 1 : i + 1] = lines[i - 1 : i + 1][::-1]
    else:  # sealed anew: all that a forger can do without the lines behind it
        from distadmm.privacy.ledger import chain

        entry = {**chain.unsealed(lines[i][:-1]), "nodes": [[0, 1]]}
        del entry["h"]
        lines[i] = chain.sealed(chain.canonical(entry))[0]
    path.write_bytes(b"".join(lines))
    assert verified([path], Account(tmp_path / "account")).faults
    with pytest.raises(InputError, match="line"):
        Books.resume(tmp_path, range(3), mode="secure")


ANY = st.integers(0, 10**6)  # of a file whose length depends on the clock
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["commit", "expose", "post", "charge", "charge each", "expose one"]),
        st.integers(0, 3),
    ),
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(MOVES)
def test_ledgers_of_one_file_say_what_ledgers_of_a_file_each_say(tmp_path_factory, moves) -> None:
    together, apart = tmp_path_factory.mktemp("together"), tmp_path_factory.mktemp("apart")
    rows = {1: ("a", "b"), 2: ("c",)}
    used(opened(together, range(4), rows=rows), moves)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distadmm.privacy.ledger.books._FILES", 200)
        used(opened(apart, range(4), rows=rows), moves)
    assert [path.name for path in together.glob("*.jsonl")] == ["nodes-0000.jsonl"]
    one, other = chains(together), chains(apart)
    assert sorted(one) == sorted(other) == [0, 1, 2, 3]
    for node in other:
        assert one[node].fault is None
        assert told(one[node].entries) == told(other[node].entries)
        mine, its = Tally.of(one[node].entries), Tally.of(other[node].entries)
        assert (mine.events, mine.releases, mine.posts, mine.closed) == (
            its.events, its.releases, its.posts, its.closed,
        )  # fmt: skip
        np.testing.assert_array_equal(mine.spent.rdp, its.spent.rdp)
    assert not verified(sorted(together.glob("*.jsonl")), Account(together / "account")).faults


def test_what_all_release_under_their_schedules_is_one_line(tmp_path) -> None:
    books = opened(tmp_path, range(4))
    books.commit([[ONE.times(3)]] * 4)
    lines = len((tmp_path / "nodes-0000.jsonl").read_bytes().splitlines())
    for k in (1, 2, 3):
        books.charge([ONE] * 4, iteration=k)
    assert len((tmp_path / "nodes-0000.jsonl").read_bytes().splitlines()) == lines + 4  # and their text
    spent = books.ledgers[0].tally.spent
    books.charge([None, ONE, None, None], iteration=4)  # of which nothing is left
    assert books.ledgers[0].tally.spent is spent
    assert [len(ledger.tally.events) for ledger in books.ledgers] == [1, 2, 1, 1]
    assert [ledger.tally.releases for ledger in books.different] == [3, 4]


def test_one_sync_a_phase(tmp_path, monkeypatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(files, "_sync", lambda file: synced.append(os.fstat(file).st_size))
    books = opened(tmp_path, range(50))
    books.commit([[ONE.times(2)]] * 50)
    books.expose("no noise", iteration=1)
    books.close()
    size = (tmp_path / "nodes-0000.jsonl").stat().st_size
    assert len(synced) == 4
    assert synced[-1] == size  # all that was written is on disk


def test_a_refused_schedule_is_refused_in_the_words_of_a_node(tmp_path) -> None:
    books = opened(tmp_path, range(3), budgets=[PureFilter(0.2)] * 3)
    with pytest.raises(BudgetExhausted, match="node 0, the committed schedule: pure would overspend"):
        books.commit([[ONE.times(2)]] * 3)
    books.ledgers[2].charge(ONE, iteration=1)
    books.close()
    kinds = {node: [entry["kind"] for entry in found.entries] for node, found in chains(tmp_path).items()}
    assert kinds == {0: ["open", "refused", "close"], 1: ["open", "close"], 2: ["open", "charge", "close"]}


def test_a_budget_of_a_few_is_theirs_alone(tmp_path) -> None:
    books = opened(tmp_path, range(4), budgets=[PureFilter(0.2), None, PureFilter(0.2), PureFilter(1.0)])
    assert [ledger.affords([ONE.times(2)]) for ledger in books.ledgers] == [False, True, False, True]


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_ledgers_are_taken_up_on_any_ranks(tmp_path, ranks) -> None:
    first = [opened(tmp_path, range(3), [3]), opened(tmp_path, range(3, 6), [2])]
    for books in first:
        books.commit([[ONE.times(4)]] * 3)
        for ledger in books.ledgers:
            ledger.charge(ONE, iteration=1)
        books.store(1, np.full((3, 2), float(books.nodes[0])))
    heads = {ledger.node: ledger.head for books in first for ledger in books.ledgers}
    del books
    while first:
        first.pop().ledgers.let_go()
    parts = [range(6)[rank * 6 // ranks : (rank + 1) * 6 // ranks] for rank in range(ranks)]
    again = [Books.resume(tmp_path, part, source="", mode="secure") for part in parts]
    for books in again:
        assert books.stored(1, 2).rows[:, 0].tolist() == [0.0 if node < 3 else 3.0 for node in books.nodes]
        for ledger in books.ledgers:
            assert heads[ledger.node] in ledger.holds()
            ledger.charge(ONE, iteration=2)
        books.close()
    found = chains(tmp_path)
    for node in range(6):
        assert [entry["kind"] for entry in found[node].entries] == [
            "open", "commit", "release", "resume", "release", "close",
        ]  # fmt: skip
    assert not verified(sorted(tmp_path.glob("*.jsonl")), Account(tmp_path / "account")).faults


def test_ledgers_of_a_file_each_go_on_in_one_of_their_rank(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("distadmm.privacy.ledger.books._FILES", 200)
        before = opened(tmp_path, range(4))
        before.commit([[ONE.times(2)]] * 4)
        before.close()
    again = Books.resume(tmp_path, range(4), mode="secure")
    again.ledgers[3].charge(ONE, iteration=1)
    again.close()
    found = chains(tmp_path)
    assert {node: Tally.of(each.entries).releases for node, each in found.items()} == {0: 0, 1: 0, 2: 0, 3: 1}
    assert not verified(sorted(tmp_path.glob("*.jsonl")), Account(tmp_path / "account")).faults


@pytest.mark.parametrize("many", [2, 200])
def test_a_chain_is_read_to_its_end_whichever_of_its_files_is_given(tmp_path, monkeypatch, many) -> None:
    """Else `ledger show` of its first file would say less than was spent."""
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", many)
    opened(tmp_path, range(3)).close()
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", 2)
    for k in (1, 2):
        books = Books.resume(tmp_path, range(3), mode="secure")
        books.ledgers[1].charge(ONE, iteration=k)
        books.close()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == (3 if many == 2 else 5)
    for path in files:
        found = shelves.read_all([path])
        nodes = [each.entries[0]["node"] for each in found]
        assert nodes == ([int(path.stem[-1])] if path.stem.startswith("node-") else [0, 1, 2])
        spent = {node: Tally.of(each.entries).spent.pure for node, each in zip(nodes, found)}
        assert spent == {node: 2 * ONE.epsilon * (node == 1) for node in nodes}


def test_a_copy_of_an_older_ledger_beside_it_is_not_taken_up_in_its_place(tmp_path, monkeypatch) -> None:
    """A backup that somebody left in the folder has fewer entries, and so less that was spent."""
    with monkeypatch.context() as patch:
        patch.setattr("distadmm.privacy.ledger.books._FILES", 200)
        before = opened(tmp_path, range(4))
        before.close()
        (tmp_path / "old copy.jsonl").write_bytes((tmp_path / "node-0002.jsonl").read_bytes())
        again = Books.resume(tmp_path, range(4), mode="secure")
        again.commit([[ONE.times(2)]] * 4)
        again.close()
    files = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    with pytest.raises(
        InputError, match=r"old copy\.jsonl, line 1: is of node 2, of which .*node-0002\.jsonl"
    ):
        Books.resume(tmp_path, range(4), mode="secure")
    assert {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == files
    (tmp_path / "old copy.jsonl").unlink()
    taken = Books.resume(tmp_path, range(4), mode="secure")
    assert [ledger.tally.spent.pure for ledger in taken.ledgers] == [2 * ONE.epsilon] * 4
    taken.close()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_file_loses_nothing_that_was_committed(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("torn")
    books = opened(folder, range(3))
    books.commit([[ONE.times(3)]] * 3)
    path = folder / "nodes-0000.jsonl"
    kept = path.stat().st_size
    for ledger in books.ledgers:
        ledger.charge(ONE, iteration=1)
    books.ledgers.let_go()
    whole = path.read_bytes()
    cut = kept + data.draw(ANY) % (len(whole) + 1 - kept)
    path.write_bytes(whole[:cut])
    again = Books.resume(folder, range(3), mode="secure")
    torn = not whole[:cut].endswith(b"\n") and cut not in (len(whole) - 1,)
    for ledger in again.ledgers:
        assert ledger.tally.spent.pure >= 3 * ONE.epsilon
    left = [ledger.tally.reserved for ledger in again.ledgers]
    again.close()
    assert max(left) <= 3
    found = verified(sorted(folder.glob("*.jsonl")), Account(folder / "account"))
    assert not found.faults
    if torn and not _whole(whole[:cut]):
        assert left == [0, 0, 0]  # what may have been used unseen is given up
        assert all("torn line" in note for note in found.notes)


def _whole(content: bytes) -> bool:
    from distadmm.privacy.ledger import chain

    return isinstance(chain.unsealed(content.split(b"\n")[-1]), dict)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_an_edit_is_found(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("edited")
    books = opened(folder, range(3))
    books.commit([[ONE.times(2)]] * 3)
    books.ledgers[1].charge(ONE, iteration=1)
    books.close()
    path = folder / "nodes-0000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = data.draw(ANY) % len(lines)
    how = data.draw(st.sampled_from(["flip", "drop", "twice"]))
    if how == "flip":
        place = data.draw(ANY) % (len(lines[at]) - 1)
        lines[at] = lines[at][:place] + bytes([lines[at][place] ^ 1]) + lines[at][place + 1 :]
    elif how == "drop":
        last = {2: 0, 1: 1, 0: 2}
        del lines[at]
        if at >= len(lines) - len(last) + 1:
            return  # the last line of a chain: a lost tail, which the heads elsewhere tell
    else:
        lines.insert(at, lines[at])
    path.write_bytes(b"".join(lines))
    faults = verified([path], Account(folder / "account")).faults
    twice_said = how == "twice" and lines[at].startswith(b'{"kind":"text"')
    assert bool(faults) != twice_said  # a text that is said twice says nothing else
    # The last line of node 2 became that of a node which nobody takes up.
    lost_tail = at >= len(lines) - 3 and b'"node":3' in lines[at]
    if faults and not lost_tail:
        with pytest.raises(InputError, match="line"):
            Books.resume(folder, range(3), mode="secure")
