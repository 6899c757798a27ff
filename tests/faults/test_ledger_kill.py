"""Two hundred kills: the ledger never has fewer entries than messages were seen.

A node in its own process charges, draws, keeps and sends, as fast as it can, until SIGKILL ends it at a
random moment; the test is its neighbour.  After every second kill the last line loses a random part of its
end, as a crash may leave it; after every third, the store of what was sent ends in part of a record, as a
kill leaves it that cuts a write at the end of a page.  Then the node takes the ledger up again from a checkpoint.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import sys
import time
from dataclasses import replace

import pytest

from distadmm.errors import InputError
from distadmm.privacy.accounting.events import Pure
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.file import Ledger, path_of
from distadmm.privacy.ledger.witness import Sighting

SOME, MANY = 40, 200
KILLS_A_LEDGER = 10
RELEASES = 1500  # in a schedule: some ledgers use it up
EVENT = Pure(0.01)
MESSAGE = struct.Struct("<q32s16s")  # iteration, head, payload: less than a pipe takes in one go
RECORD = 80  # bytes of a record that keeps a payload
HOW = {"adjacency": "replace", "mode": "secure"}


def node(folder, pipe: int, kind: int, since: int) -> None:
    """One life of a node: replay what was sent since the checkpoint, then release without end."""
    path = path_of(folder, 0)
    if path.exists():
        book = Ledger.resume(folder, 0, mode="secure", seen=[])
    else:
        book = Ledger(folder, 0, **HOW)
    if kind == 0 and not book.events:
        book.commit([replace(EVENT, count=RELEASES)])
    k = since
    while True:
        k += 1
        payload = book.stored(k)
        if payload is None:
            book.charge(EVENT, iteration=k)
            payload = os.urandom(16)  # fresh noise
            book.store_release(k, payload)
        os.write(pipe, MESSAGE.pack(k, book.head, payload))


def live(folder, kind: int, since: int, delay: float, from_the_start: bool) -> list[tuple[int, bytes, bytes]]:
    """Start a node, kill it `delay` seconds after its start or its first message; the messages that had left."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            node(folder, writing, kind, since)
        except BaseException as error:
            print(f"the node failed: {error!r}", file=sys.stderr)
        finally:
            os._exit(1)
    os.close(writing)
    received = b""
    try:
        select.select([reading], [], [], 0.0 if from_the_start else 30.0)
        end = time.monotonic() + delay
        while (left := end - time.monotonic()) > 0:
            if select.select([reading], [], [], left)[0]:
                received += os.read(reading, 1 << 16)
                time.sleep(0.001)  # let it fill
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the node ended by itself"
    while more := os.read(reading, 1 << 16):
        received += more
    os.close(reading)
    assert len(received) % MESSAGE.size == 0
    return list(MESSAGE.iter_unpack(received))


def tear(path, chance: random.Random) -> bytes:
    """Cut the last line at a random byte; what was cut off."""
    content = path.read_bytes()
    last = content[:-1].rfind(b"\n") + 1
    if last == 0:  # only the opening line: a ledger that never was
        return b""
    at = chance.randrange(last + 1, len(content) - 1)
    os.truncate(path, at)
    return content[at:]


def cut_before(path, head: bytes) -> bytes:
    """Cut the ledger before the line of the entry `head`; what was cut off."""
    content = path.read_bytes()
    at = content.rfind(b"\n", 0, content.index(b'"h":"' + head.hex().encode())) + 1
    os.truncate(path, at)
    return content[at:]


def fray(path, chance: random.Random) -> None:
    """Part of one more record in the store of what was sent: killed while it wrote it."""
    record = path.read_bytes()[:RECORD]
    with open(path, "ab") as file:
        file.write(record[: chance.randrange(1, RECORD)])


def restore(path, cut: bytes) -> None:
    with open(path, "ab") as file:
        file.write(cut)


def lacks(path, heads: list[Sighting]) -> bool:
    holds = {bytes.fromhex(entry["h"]) for entry in chain.read(path).entries}
    return any(sighting.head not in holds for sighting in heads)


def refuse(folder, heads: list[Sighting]) -> None:
    with pytest.raises(InputError, match="node 1 holds a head"):
        Ledger.resume(folder, 0, mode="secure", seen=heads)


def intents(path) -> int:
    """Releases on record, torn lines among them."""
    found = chain.read(path)
    assert found.fault is None
    paid = sum(entry["kind"] in ("release", "charge") for entry in found.entries)
    return paid + len(found.fragments) + bool(found.torn)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kills", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_kill_lets_anything_out_uncharged(tmp_path, kills):
    chance = random.Random(20191)
    messages = refused = torn = frayed = replayed = 0
    for life in range(kills):
        if life % KILLS_A_LEDGER == 0:
            folder = tmp_path / str(life)
            path = path_of(folder, 0)
            kind = life // KILLS_A_LEDGER % 2  # a schedule, else every release synced
            seen: dict[int, tuple[bytes, bytes]] = {}  # iteration -> latest head and payload
            sent: set[tuple[int, bytes]] = set()
            since = 0
        delay, from_the_start = chance.uniform(0.0, 0.006), life % 5 == 4
        for k, head, payload in live(folder, kind, since, delay, from_the_start):
            assert k not in seen or seen[k][1] == payload, "a release was sent again with other noise"
            replayed += k in seen
            seen[k] = (head, payload)
            sent.add((k, payload))
        if not path.exists():
            assert not sent
            continue
        messages = max(messages, len(sent))
        assert intents(path) >= len(sent)
        heads = [Sighting("node 1", 0, k, head) for k, (head, _) in seen.items()]
        if life % 2 and (cut := tear(path, chance)):
            torn += 1
            assert intents(path) >= len(sent)
            if lacks(path, heads):
                # The line that was torn had been used: the neighbour knows, and nothing goes on without it.
                refuse(folder, heads)
                restore(path, cut)
        if life % 3 == 1 and sent:
            fray(path_of(folder, 0, "replay"), chance)
            frayed += 1
        if life % KILLS_A_LEDGER == KILLS_A_LEDGER - 1 and seen:
            cut = cut_before(path, seen[max(seen)][0])
            refuse(folder, heads)
            refused += 1
            restore(path, cut)
        if chain.read(path).entries:
            book = Ledger.resume(folder, 0, mode="secure", seen=heads)
            book.let_go()
        else:
            assert not sent
            path.unlink()
        since = max(since, max(seen, default=0) - chance.randrange(40))  # the latest checkpoint
    assert torn >= kills * 0.4
    assert frayed >= kills * 0.2
    assert refused >= kills // KILLS_A_LEDGER // 2
    assert replayed
    assert messages > kills
