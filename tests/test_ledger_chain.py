"""What can be done to a ledger's file, and that it shows: edits, lost lines, torn and cut tails."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.privacy.accounting.events import KNorm
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger import file as ledger
from distadmm.privacy.ledger import rules as memory
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.file import Ledger, MemoryLedger, path_of
from distadmm.privacy.ledger.witness import Sighting, Witness, all_sightings, sightings

LAPLACE = KNorm(1, 0.5, 1.0)
HOW = {"adjacency": "replace", "mode": "secure", "run": "r"}


def written() -> list[bytes]:
    book = MemoryLedger(0, **HOW)
    book.commit([replace(LAPLACE, count=3)])
    for k in range(3):
        book.charge(LAPLACE, iteration=k)
    book.charge(LAPLACE, iteration=3)
    book.post(iteration=4)
    book.close()
    return book.content.splitlines(keepends=True)


LINES = written()


def kill(*books: Ledger) -> None:
    """What the end of a process leaves: files as they are, and nobody who has them open."""
    for book in books:
        book.let_go()


# -- the chain ----------------------------------------------------------------------------------------


def test_an_untouched_file_has_no_fault():
    found = chain.parse(b"".join(LINES))
    assert found.fault is None
    assert len(found.entries) == len(LINES)


@settings(deadline=None, max_examples=50)
@given(
    line=st.integers(0, len(LINES) - 1), where=st.floats(0, 1, exclude_max=True), other=st.integers(33, 126)
)
def test_an_edited_character_is_found_at_its_line(line, where, other):
    lines = list(LINES)
    at = int(where * (len(lines[line]) - 1))  # not the newline
    if lines[line][at] == other:
        return
    lines[line] = lines[line][:at] + bytes([other]) + lines[line][at + 1 :]
    found = chain.parse(b"".join(lines))
    assert found.fault is not None
    assert found.fault.line == line + 1
    assert len(found.entries) == line


def test_a_digit_is_edited_and_its_hash_recomputed():
    import json

    lines = list(LINES)
    entry = json.loads(lines[2])
    del entry["h"]
    entry["k"] = 17
    lines[2] = chain.sealed(chain.canonical(entry))[0]
    fault = chain.parse(b"".join(lines)).fault
    assert fault is not None
    assert fault.line == 4
    assert "line before it" in fault.reason


@pytest.mark.parametrize("line", range(len(LINES) - 1))
def test_a_removed_line_is_found(line):
    fault = chain.parse(b"".join(LINES[:line] + LINES[line + 1 :])).fault
    assert fault is not None
    assert fault.line == line + 1
    assert "missing or moved" in fault.reason


@settings(deadline=None, max_examples=50)
@given(order=st.permutations(range(len(LINES))))
def test_moved_lines_are_found(order):
    fault = chain.parse(b"".join(LINES[i] for i in order)).fault
    first = next((at for at, i in enumerate(order) if at != i), None)
    assert (fault.line - 1 if fault else None) == first


def test_a_repeated_line_is_found():
    assert chain.parse(b"".join([*LINES[:3], LINES[2], *LINES[3:]])).fault.line == 4


def test_spaces_and_repeated_keys_are_edits():
    line = LINES[2]
    for edited in (line.replace(b'"k":0', b'"k": 0'), line.replace(b'"k":0', b'"k":9,"k":0')):
        assert edited != line
        assert chain.parse(b"".join([*LINES[:2], edited])).fault.line == 3


def test_numbers_survive_to_the_last_bit():
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, float("inf")]
    import json

    back = [float(x) for x in json.loads(chain.canonical({"x": np.array(numbers)}))["x"]]
    assert back == numbers


# -- torn tails ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(share=st.floats(0, 1, exclude_max=True), kept=st.integers(2, len(LINES) - 1))
def test_a_torn_tail_is_kept_as_evidence_and_the_chain_goes_on(tmp_path_factory, share, kept):
    folder = tmp_path_factory.mktemp("torn")
    whole, last = b"".join(LINES[:kept]), LINES[kept]
    fragment = last[: 1 + int(share * (len(last) - 1))]
    path_of(folder, 0).write_bytes(whole + fragment)
    tally = Ledger.resume(folder, 0, mode="secure").tally
    found = chain.read(path_of(folder, 0))
    assert found.fault is None
    assert whole + fragment == path_of(folder, 0).read_bytes()[: len(whole + fragment)]
    complete = len(fragment) >= len(last) - 1  # only the newline is missing
    assert [e["kind"] for e in found.entries[kept:]][-2:] == (
        [chain.parse(b"".join(LINES)).entries[kept]["kind"], "resume"] if complete else ["torn", "resume"]
    )
    releases = sum(e["kind"] in ("release", "charge") for e in found.entries)
    assert tally.releases + tally.torn == releases + (not complete)


def test_a_tail_torn_twice_goes_on_too(tmp_path):
    path = path_of(tmp_path, 0)
    path.write_bytes(b"".join(LINES[:3]) + LINES[3][:40])
    Ledger.resume(tmp_path, 0, mode="secure").close()
    with open(path, "ab") as file:
        file.write(LINES[4][:70])
    book = Ledger.resume(tmp_path, 0, mode="secure")
    assert book.tally.torn == 2
    assert chain.read(path).fault is None


def test_a_ledger_without_a_whole_entry_released_nothing(tmp_path):
    path_of(tmp_path, 0).write_bytes(LINES[0][:50])
    with pytest.raises(InputError, match="nothing was released"):
        Ledger.resume(tmp_path, 0, mode="secure")


def test_a_faulty_ledger_is_not_taken_up_again(tmp_path):
    path = path_of(tmp_path, 0)
    content = b"".join(LINES).replace(b'"k":1', b'"k":7')
    path.write_bytes(content)
    with pytest.raises(InputError, match="line 4: its contents do not match"):
        Ledger.resume(tmp_path, 0, mode="secure")
    assert path.read_bytes() == content


# -- crashes of the machine ---------------------------------------------------------------------------


def crash(folder, monkeypatch, *, charges: int, closed: bool = False, reboot: bool = True) -> Ledger:
    book = Ledger(folder, 0, **HOW)
    book.commit([replace(LAPLACE, count=10)])
    for k in range(charges):
        book.charge(LAPLACE, iteration=k)
    if closed:
        book.close()
    kill(book)
    if reboot:
        for module in (ledger, memory):
            monkeypatch.setattr(module, "boot_id", lambda: "another boot")
    return Ledger.resume(folder, 0, mode="secure")


def test_a_killed_process_loses_nothing(tmp_path, monkeypatch):
    book = crash(tmp_path, monkeypatch, charges=4, reboot=False)
    assert (book.tally.reserved, book.tally.forfeited) == (6, 0)
    assert book.statement_kind == "certificate"


def test_a_power_cut_forfeits_what_may_have_been_used(tmp_path, monkeypatch):
    book = crash(tmp_path, monkeypatch, charges=4)
    assert (book.tally.reserved, book.tally.forfeited) == (0, 6)
    spent = book.tally.spent.pure
    book.charge(LAPLACE, iteration=4)
    assert book.tally.spent.pure >= spent + 0.5
    assert book.statement_kind == "odometer"


def test_after_a_clean_end_nothing_is_in_doubt(tmp_path, monkeypatch):
    assert crash(tmp_path, monkeypatch, charges=4, closed=True).tally.reserved == 6


def test_a_machine_that_cannot_name_its_boot_is_not_trusted(tmp_path, monkeypatch):
    for module in (ledger, memory):
        monkeypatch.setattr(module, "boot_id", lambda: None)
    assert crash(tmp_path, monkeypatch, charges=4, reboot=False).tally.forfeited == 6


# -- witnesses ----------------------------------------------------------------------------------------


def two_neighbours(folder):
    """Nodes 0 and 1, of two ranks, exchange five messages; each rank keeps the other's heads."""
    one, two = (Books.open(folder, [node], [1 - node], **HOW) for node in (0, 1))
    a, b = one.ledgers[0], two.ledgers[0]
    for book in (a, b):
        book.commit([replace(LAPLACE, count=5)])
    for k in range(5):
        for book in (a, b):
            book.charge(LAPLACE, iteration=k)
        one.witness(two.heads.view(float), k)
        two.witness(one.heads.view(float), k)
    return a, b


def test_a_cut_tail_is_refused_and_the_neighbour_named(tmp_path):
    a, b = two_neighbours(tmp_path)
    kill(a, b)
    path = path_of(tmp_path, 0)
    lines = path.read_bytes().splitlines(keepends=True)
    cut = b"".join(lines[:-2])
    path.write_bytes(cut)
    assert chain.read(path).fault is None  # the chain alone does not see it
    with pytest.raises(
        InputError, match=r"ends at iteration 2, but the rank of node 1 holds a head of iteration 4"
    ):
        Ledger.resume(tmp_path, 0, mode="secure")
    assert path.read_bytes() == cut
    Ledger.resume(tmp_path, 1, mode="secure").close()
    path.write_bytes(b"".join(lines))
    Ledger.resume(tmp_path, 0, mode="secure").close()


def test_a_rewritten_ledger_is_refused(tmp_path):
    """Not cut but written anew with the same number of entries: the hashes cannot be the same."""
    kill(*two_neighbours(tmp_path))
    forged = MemoryLedger(0, adjacency="replace", mode="secure", run="forged")
    for k in range(5):
        forged.charge(LAPLACE, iteration=k)
    path_of(tmp_path, 0).write_bytes(forged.content)
    with pytest.raises(InputError, match="the rank of node 1 holds a head"):
        Ledger.resume(tmp_path, 0, mode="secure")


def test_witness_files_keep_the_latest_head_of_each(tmp_path):
    one = Witness(tmp_path / "node-0004.witness", [9, 2])
    heads = np.random.default_rng(1).integers(0, 256, (3, 2, 32)).astype(np.uint8)
    for k in range(3):
        one.note_all(heads[k].view(float), k)
    one.close()
    assert sightings(one.path) == [
        Sighting("node 4", n, 2, heads[2, i].tobytes()) for i, n in enumerate((9, 2))
    ]  # fmt: skip


def test_one_write_keeps_the_heads_of_all_neighbours(tmp_path):
    heads = np.random.default_rng(0).integers(0, 256, (3, 32)).astype(np.uint8)
    one = Witness(tmp_path / "nodes-0000.witness", [7, 3, 5])
    assert sightings(one.path) == []
    one.note_all(heads.view(float), 11)
    one.close()
    assert {s.observer for s in sightings(one.path)} == {"the rank of node 0"}
    expected = {n: heads[i].tobytes() for i, n in enumerate((7, 3, 5))}
    assert {s.node: s.head for s in sightings(one.path)} == expected
    again = Witness(one.path, [5, 1])
    again.note_all(heads[:2].view(float), 12)
    again.close()
    assert {s.node: (s.iteration, s.head) for s in sightings(one.path)} == {
        7: (11, expected[7]),
        3: (11, expected[3]),
        5: (12, heads[0].tobytes()),
        1: (12, heads[1].tobytes()),
    }


# -- what was sent ------------------------------------------------------------------------------------


def test_what_was_sent_is_sent_again_to_the_byte(tmp_path):
    book = Ledger(tmp_path, 0, **HOW)
    book.commit([replace(LAPLACE, count=5)])
    for k in range(4):
        book.charge(LAPLACE, iteration=k)
        if k < 3:
            book.store_release(k, bytes([k]) * 40)
    kill(book)
    book = Ledger.resume(tmp_path, 0, mode="secure")
    assert [book.stored(k) for k in range(5)] == [bytes([k]) * 40 for k in range(3)] + [None, None]
    before = book.tally.releases
    book.charge(LAPLACE, iteration=3)  # charged before the crash, never sent: a new charge
    assert book.tally.releases == before + 1
    book.checkpoint(3)
    kill(book)
    book = Ledger.resume(tmp_path, 0, mode="secure")
    assert [book.stored(k) for k in range(5)] == [None] * 5


def test_a_checkpoint_does_not_forget_what_came_after_it(tmp_path):
    book = Ledger(tmp_path, 0, **HOW)
    for k in range(3):
        book.charge(LAPLACE, iteration=k)
        book.store_release(k, b"x")
    book.checkpoint(1)
    kill(book)
    assert Ledger.resume(tmp_path, 0, mode="secure").stored(2) == b"x"


def test_a_store_that_knows_more_than_its_ledger_shows_a_cut(tmp_path):
    book = Ledger(tmp_path, 0, **HOW)
    book.commit([replace(LAPLACE, count=5)])
    for k in range(3):
        book.charge(LAPLACE, iteration=k)
        book.store_release(k, b"x")
    kill(book)
    path = path_of(tmp_path, 0)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match="its own store of sent messages"):
        Ledger.resume(tmp_path, 0, mode="secure")


def test_a_kept_message_whose_line_was_torn_is_not_sent_again(tmp_path):
    """Charged and kept, not yet sent when the crash tore its line: fresh noise, and no alarm later on."""
    book = Ledger(tmp_path, 0, **HOW)
    book.commit([replace(LAPLACE, count=5)])
    for k in range(2):
        book.charge(LAPLACE, iteration=k)
        book.store_release(k, b"x")
    kill(book)
    path = path_of(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):
        book = Ledger.resume(tmp_path, 0, mode="secure")
        assert (book.stored(0), book.stored(1)) == (b"x", None)
        kill(book)


def test_torn_and_damaged_records_are_not_replayed(tmp_path):
    path = tmp_path / "a.replay"
    store = replay.Replay(path)
    for k in range(3):
        store.store(4, k, bytes(32), b"payload")
    store.close()
    content = path.read_bytes()
    assert set(replay.read(path)) == {(4, 0), (4, 1), (4, 2)}
    path.write_bytes(content[:-3])
    assert set(replay.read(path)) == {(4, 0), (4, 1)}
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    path.write_bytes(bytes(damaged))
    assert set(replay.read(path)) == {(4, 0), (4, 2)}
    assert replay.read(tmp_path / "none.replay") == {}


@pytest.mark.parametrize("payload", [b"s", b"sent", b"sentsent" * 9, bytes(50)])
def test_records_behind_a_torn_one_are_found(tmp_path, payload):
    """A kill cuts a write short at any byte, and the next process writes on behind it."""
    path = tmp_path / "a.replay"
    store = replay.Replay(path)
    store.store(0, 1, bytes(32), payload)
    first = path.read_bytes()
    for cut in range(len(first)):
        path.write_bytes(first + first[:cut])
        store = replay.Replay(path)
        for k in (2, 3):
            store.store(0, k, bytes(32), payload)
        store.close()
        assert replay.read(path) == {(0, k): replay.Sent(bytes(32), payload) for k in (1, 2, 3)}


def test_what_cannot_be_kept_is_not_sent():
    store = replay.Replay("/dev/full")
    with pytest.raises(InputError, match="cannot keep what is to be sent in /dev/full: No space left"):
        store.store(0, 1, bytes(32), b"payload")
    store.close()


def test_heads_that_find_no_room_are_told(tmp_path, monkeypatch):
    """A disk that fills up takes part of a write, and says so only when it is asked for the rest."""
    pwrite, room = os.pwrite, [50, 50, 92]

    def partly(file, content, at):
        if not room:
            raise OSError(28, "No space left on device")
        return pwrite(file, content[: room.pop(0)], at)

    seen = Witness(tmp_path / "a.witness", range(3))
    heads = np.frombuffer(random.Random(1).randbytes(96)).reshape(3, 4)
    monkeypatch.setattr(os, "pwrite", partly)
    seen.note_all(heads, 7)
    with pytest.raises(InputError, match=r"cannot keep the heads of neighbours in .*: No space left"):
        seen.note_all(heads, 8)
    monkeypatch.undo()
    seen.close()
    found = [(s.node, s.iteration, s.head) for s in sightings(tmp_path / "a.witness")]
    assert found == [(node, 7, head.tobytes()) for node, head in enumerate(heads)]


def test_memory_ledgers_replay_too():
    book = MemoryLedger(0, **HOW)
    book.charge(LAPLACE, iteration=1)
    book.store_release(1, b"a")
    assert book.stored(1) == b"a"
    book.checkpoint(1)
    assert book.stored(1) is None


# -- many nodes a rank --------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [3, 5])
def test_a_rank_locks_its_ledgers_however_many_they_are(tmp_path, monkeypatch, nodes):
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", 4)
    books = Books.open(tmp_path, range(nodes), adjacency="replace", mode="secure")
    with pytest.raises(InputError, match="in use"):
        Books.resume(tmp_path, range(nodes), mode="secure")
    books.close()
    books = Books.resume(tmp_path, range(nodes), mode="secure")
    with pytest.raises(InputError, match="in use"):
        Books.resume(tmp_path, range(nodes), mode="secure")
    books.close()


def test_books_of_a_rank_resume_on_any_ranks(tmp_path):
    plans = [[replace(LAPLACE, count=4)]] * 3
    first = Books.open(tmp_path, [0, 1, 2], [9], **HOW)
    first.commit(plans)
    rows = np.random.default_rng(1).normal(size=(4, 3, 2))
    for k in range(3):
        for book in first.ledgers:
            book.charge(LAPLACE, iteration=k)
        first.store(k, rows[k])
        first.witness(np.full((1, 32), k, dtype=np.uint8).view(float), k)
    assert first.heads.tobytes() == b"".join(book.head for book in first.ledgers)
    kill(*first.ledgers)
    left, right = (Books.resume(tmp_path, nodes, mode="secure") for nodes in ([0], [1, 2]))
    for books, mine in ((left, [0]), (right, [1, 2])):
        for k in range(3):
            np.testing.assert_array_equal(books.stored(k, 2).rows, rows[k][mine])
            assert books.stored(k, 2).known.all()
        assert books.stored(3, 2) is None
        books.post(iteration=3)
        books.checkpoint(3)
        books.close()
    assert [s.node for s in all_sightings(tmp_path)] == [9]
    with pytest.raises(InputError, match="2 schedules for 1 nodes"):
        left.commit(plans[:2])


def test_a_row_that_is_not_known_is_marked(tmp_path):
    books = Books.open(tmp_path, [0, 1], **HOW)
    for book in books.ledgers:
        book.charge(LAPLACE, iteration=0)
    books.ledgers[1].store_release(0, np.ones(2).tobytes())
    kill(*books.ledgers)
    sent = replay.read_all(tmp_path)
    assert set(sent) == {(1, 0)}
    books = Books.resume(tmp_path, [0, 1], mode="secure")
    found = books.stored(0, 2)
    assert found.known.tolist() == [False, True]
    np.testing.assert_array_equal(found.rows[1], [1.0, 1.0])


# -- resuming with other settings ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"mode": "simulation"}, "rng mode"),
        ({"adjacency": "label"}, "adjacency"),
        ({"dataset": "b"}, "dataset"),
    ],
)
def test_a_ledger_goes_on_as_it_began(tmp_path, other, what):
    Ledger(tmp_path, 0, dataset="a", **HOW).close()
    with pytest.raises(InputError, match=what):
        Ledger.resume(tmp_path, 0, **{"mode": "secure", **other})


def test_a_number_that_no_ledger_writes_is_an_edit() -> None:
    """Bare NaN and Infinity, which Python's JSON reads."""
    for bare in (b"NaN", b"-Infinity"):
        edited = LINES[1].replace(b'"seq":1', b'"seq":' + bare, 1)
        assert edited != LINES[1]
        fault = chain.parse(LINES[0] + edited).fault
        assert fault is not None
        assert "edited" in str(fault)
