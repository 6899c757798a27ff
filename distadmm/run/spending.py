"""How a run meets the account of its rows: entered before its first release, its ledgers' heads kept when it ends.

Of rows that one process may see rank 0 keeps the account; where each node has a file of its own, each rank keeps that
of its own nodes, which on other hosts is another file and on this one the same.  A simulation is not entered: seeded
noise protects nobody, so there is nothing to count, and the run says so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from distadmm.errors import require
from distadmm.privacy.accounting.events import Event, Unbounded
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.schedules import Schedule
from distadmm.privacy.ledger.tally import doubt

if TYPE_CHECKING:
    from distadmm.data.content import Contents
    from distadmm.privacy.ledger.account import Account, Spender, Standing
    from distadmm.ranks.world import World
    from distadmm.run.running import Running

_FEW = 8  # nodes that spend differently, up to which an earlier run is priced as it was committed
NOT_ENTERED = ("account", "not entered: a simulation protects nobody, so nothing counts as spent")


def spender(ledger: MemoryLedger, spent: Iterable[Event]) -> Spender:
    """What was `spent` by a ledger or is about to be; what nobody established has no bound."""
    from distadmm.privacy.ledger.account import Spender

    tally = ledger.tally
    events = [event.against(tally.trust) for event in spent if not event.free]
    if why := doubt(tally, events):
        events.append(Unbounded(why))
    whose = ledger.node, ledger.rows, tally.adjacency, tally.header["scope"], tally.trust
    return Spender(*whose, tuple(events))


def require_rows_of_their_own(world: World, contents: Contents) -> None:
    """A record at two nodes that share noise moves both at once: further than what both are charged adds up to."""
    holders: dict[str, list[int]] = {}
    for part in world.allgather(contents.names):
        for node, names in part.items():
            for name in names:
                holders.setdefault(name, []).append(node)
    same = next((sorted(nodes) for nodes in holders.values() if len(nodes) > 1), None)
    require(
        same is None,
        f"nodes {same} hold the same rows, each of which would move what both release under noise that they share, and "
        "that is not what is charged; give each row to one node",
    )


def enter(
    run: Running,
    account: str | None,
    ledgers: Sequence[MemoryLedger],
    schedules: Sequence[Schedule],
    marks: frozenset[int],
    delta: float,
    *,
    owners: bool = False,
    say: Callable[[str], None] | None = None,
) -> None:
    """Write down what this run is about to release, before it does, and say what was spent on its rows; every rank.

    `owners`: each rank has rows of its own.  A run that goes on is entered with what it has spent already.  One that is
    refused leaves its directory to the next.
    """
    from distadmm.data.content import smallest
    from distadmm.privacy.ledger.account import Account, Entered, Spender

    with _let_go_on_failure(ledgers):
        book = Account(account)

        def write(spenders: Iterable[Spender], marks: frozenset[int]) -> tuple[Standing, Standing]:
            return book.enter(Entered(run.name, _place(run), marks, {s.node: s for s in spenders}), delta)

        # Ledgers that read alike and plan alike are looked at once.
        known: dict[tuple[int, int], int] = {}
        kinds, first = list[int](), list[tuple[MemoryLedger, Schedule]]()
        for ledger, schedule in zip(ledgers, schedules):
            kinds.append(known.setdefault((id(ledger.tally), id(schedule)), len(known)))
            if len(known) > len(first):
                first.append((ledger, schedule))
        whole = [schedule.entered(one.events) for one, schedule in first]
        spend = [spender(one, events)[2:] for (one, _), events in zip(first, whole)]
        mine = (
            [Spender(ledger.node, ledger.rows, *spend[kind]) for ledger, kind in zip(ledgers, kinds)],
            marks,
        )
        if run.resumed:
            _take_over(run, book, ledgers, owners)
        purse = Purse(book, run.name, _place(run), delta)
        for ledger in ledgers:
            ledger.account = purse
        kept = all(one.affords(schedule.to_come(one.events)) for one, schedule in first)
        if not all(run.world.allgather(kept)):
            return  # the run's own budget refuses the schedule, so nothing of it is going to be spent
        if owners:
            with run.world.together():
                written = write(*mine) if ledgers else None
            # A rank 0 that releases nothing says what the others have entered by now.
            with run.world.together():
                found = (written or write(*mine)) if run.world.is_root else None
        else:
            parts = run.world.gather(mine) or []
            told: list[tuple[Standing, Standing]] = []

            def write_all() -> None:
                spenders = (spender for some, _ in parts for spender in some)
                told.append(write(spenders, smallest(marks for _, marks in parts)))

            run.world.on_root(write_all)
            found = told[0] if told else None
        run.account = book
        lost = [any(event.unbounded for event in events) for events in whole]
        purse.lose(each.node for each, kind in zip(mine[0], kinds) if lost[kind])
        if found is not None and found[0].runs:
            before, after = _tight(found[0], delta), found[1]
            run.earlier = before.words
            line = f"account: earlier on these rows {before.words}; with this run {after.words}"
            say(line) if say else print(line, file=sys.stderr, flush=True)


def _tight(before: Standing, delta: float) -> Standing:
    """One run alone costs what its committed schedule costs, and not what its curve says, which runs add up by."""
    from distadmm.privacy.accounting.kept import Kept

    if before.unbounded or len(before.runs) != 1:
        return before
    (run,), adjacency = before.runs, before.adjacency
    blocks = tuple(sorted(run.blocks(adjacency), key=repr))
    if len(blocks) > _FEW:
        return before
    known = Kept("earlier", delta, adjacency)
    alone = known.one((run.committed, blocks), lambda _: run.tight(adjacency, delta))
    return before._replace(epsilon=min(before.epsilon, alone))


@contextlib.contextmanager
def _let_go_on_failure(ledgers: Sequence[MemoryLedger]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for ledger in ledgers:
            ledger.let_go()
        raise


def require_latest(
    run: Running, account: str | None, ledgers: Sequence[MemoryLedger], *, owners: bool = False
) -> None:
    """Refuse an old copy of a run before anything is written of it; `enter` looks again, for another may be faster."""
    from distadmm.privacy.ledger.account import Account

    with _let_go_on_failure(ledgers):
        _require_latest(run, Account(account), ledgers, owners)


def _require_latest(
    run: Running, book: Account, ledgers: Sequence[MemoryLedger], owners: bool
) -> Mapping[int, str]:
    """Refuse an old copy of a run: what its ledgers lack was released, and would be forgotten.

    What the account knows of it.
    """
    read = lambda: getattr(book.read().runs.get(run.name), "heads", {})  # noqa: E731
    known: Mapping[int, str] = read() if owners else run.world.on_root(read)
    with run.world.together():
        for ledger in ledgers:
            head = known.get(ledger.node)
            require(
                head is None or bytes.fromhex(head) in ledger.holds(),
                f"the ledger of node {ledger.node} is an old copy: the account {book.path} knows an entry of it that "
                "it lacks, so something was released since; restore the latest one, or start a new run",
            )
    return known


def _take_over(run: Running, book: Account, ledgers: Sequence[MemoryLedger], owners: bool) -> None:
    """From here on every other copy is an old one."""
    known = _require_latest(run, book, ledgers, owners)
    with run.world.together():
        _keep_heads(run, book, ledgers, owners, known)


def _keep_heads(
    run: Running,
    book: Account,
    ledgers: Iterable[MemoryLedger],
    owners: bool,
    known: Mapping[int, str] | None = None,
) -> dict[int, str]:
    """The last entry of each ledger, into the account; those of all ranks, on rank 0."""
    mine = {ledger.node: ledger.head.hex() for ledger in ledgers}
    parts = run.world.gather(mine) or []
    heads = mine if len(parts) == 1 else {node: head for part in parts for node, head in part.items()}
    if owners:
        book.heads(run.name, mine, known)
    elif run.world.is_root:
        book.heads(run.name, heads, known)
    return heads


def _place(run: Running) -> str:
    return "" if run.folder is None else str(run.folder.resolve())


class Purse:
    """What a ledger asks before it charges more than was entered."""

    def __init__(self, account: Account, run: str, where: str, delta: float, rows_of: str = ""):
        """`rows_of`: the run whose rows these are."""
        self.account, self.run, self.where, self.delta, self.rows_of = account, run, where, delta, rows_of
        self._lost = bytearray()  # by node: whether something stands there that has no bound

    def __call__(self, ledger: MemoryLedger, event: Event) -> None:
        self.all([ledger], event)

    def all(self, ledgers: Sequence[MemoryLedger], event: Event) -> None:
        """The same of ledgers that are about to charge one thing each; to what has no bound nothing adds."""
        from distadmm.privacy.ledger.account import Entered

        if event.unbounded:
            ledgers = [each for each in ledgers if not any(self._lost[each.node : each.node + 1])]
        if not ledgers:
            return
        more = {ledger.node: spender(ledger, [event]) for ledger in ledgers}
        self.account.enter(
            Entered(self.run, self.where, frozenset(), more), self.delta, more=True, rows_of=self.rows_of
        )
        if event.unbounded:
            self.lose(more)

    def lose(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._lost.extend(bytes(max(node + 1 - len(self._lost), 0)))
            self._lost[node] = 1


def leave(
    run: Running, ledgers: Iterable[MemoryLedger], *, owners: bool = False, seeded: bool = False
) -> list[tuple[str, str]]:
    """Keep the heads of the closed ledgers in the account; the rows for the closing table, on rank 0; every rank."""
    if run.account is None:
        return [NOT_ENTERED] if seeded else []
    heads = _keep_heads(run, run.account, ledgers, owners)
    if not run.world.is_root:
        return []
    from distadmm.privacy.ledger.check import heads_digest

    rows = [("ledger heads", f"{heads_digest(heads)}, of {len(heads)} ledgers; kept in the account")]
    return [("spent earlier", run.earlier), *rows] if run.earlier else rows
