"""How long iterations take on given links: the one model of time, for every prediction.

A place is a node, or a rank that hosts several.  In iteration k place i computes, sends its messages, and waits for
those of its neighbours; what it sends and what it hears shares its machine's interface, of `rate` bytes a second each
way, in which a message of `size` bytes takes up `on_wire(size)`:

    t_i(k)    = done_i(k-1) + compute_i
    left_i(k) = max(left_i(k-1), t_i(k)) + out_i/rate                              its messages are through
    done_i(k) = max( t_i(k),
                     max_j ( left_j(k) + delay_ji + late_ji(k) ),                  the last one has come,
                     max(in_i(k-1), min_j ( t_j(k) + delay_ji )) + in_i/rate )     and is through the receiver's
    delay_ji  = latency_ji + on_wire(size)/rate_ji

late is 0, or what it takes until a lost packet is sent again: where the next iteration's message follows on the same
connection, that iteration and a round trip (the one that follows is acknowledged, and RACK, RFC 8985, takes what was
sent before it for lost at once); else 0.2 s (Linux; RFC 6298 would have 1 s) and a round trip.  A machine's interface
begins when the first of its places is done.

Where all places are alike and have D neighbours, an iteration takes

    compute + latency + D on_wire(size)/rate + g late                              `of_exchange`

and a sum over a tree of height h, whose nodes have at most D below them, up and down again

    compute + 2 h (latency (1 + 2 w) + D on_wire(size)/rate) + ...                 `of_sum`

with w round trips until TCP's window is open, which between sums closes again (of iterations it stays open); a masked
sum ends with a call of all ranks by the first one besides, 2 latency and (N - 1) letters of 9 N bytes: `of_roll`.

Not in it: other congestion control (BBR spreads a message over time), bits that share a link with other people's, and
what MPI itself takes beside `compute`.  benchmarks/links.py compares it with real links.
"""

from __future__ import annotations  # an annotation would load numpy.random on every rank

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np

Array = np.ndarray
SEGMENT, HEADS = 1448, 80  # bytes of a message in one packet, and what Ethernet, IP, TCP and MPI add to each
RESEND = 0.2  # seconds, and a round trip: Linux's least time until a lost packet is sent again
# Packets that TCP sends before it hears anything (RFC 6928); twice as many in each round trip after.
WINDOW = 10
_HERE, _KNOWN = 30, 9  # bytes of a letter of the roll, and of each rank in the answer
_MOST_STEPS, _MOST_WORK = 400, 4e7  # iterations that are followed one by one, and directed edges times these


class _Measure(float):
    """A number, or a text of a number and a unit."""

    needed: ClassVar[str]
    units: ClassVar[Mapping[str, float]]

    def __new__(cls, value: Any) -> _Measure:
        try:
            return super().__new__(cls, value)
        except ValueError:
            found = re.fullmatch(r"\s*([-+.\de]*[.\d])\s*([a-zA-Z/]+)\s*", str(value))
            if found is None or found[2] not in cls.units:
                raise
            return super().__new__(cls, float(found[1]) * cls.units[found[2]])


class Seconds(_Measure):
    """0.04, 40ms, 2us, 3s."""

    needed = "seconds, such as 0.04 or 40ms"
    units: ClassVar[Mapping[str, float]] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


_LARGE = {"": 1.0, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "g": 1e9, "G": 1e9}
_SMALL = {"B": 1, "bit": 8, "b": 8}  # how many of them are a byte


class Rate(_Measure):
    """Bytes a second: 1.25e6, 10Mbit/s, 10Mbps, 1.25MB/s."""

    needed = "bytes a second, such as 1.25e6 or 10Mbit/s"
    units: ClassVar[Mapping[str, float]] = {
        f"{large}{small}{each}": _LARGE[large] / _SMALL[small]
        for large, small, each in product(_LARGE, _SMALL, ("", "/s", "ps"))
    }


class Links(NamedTuple):
    """The links between places; whom place i hears from: indices[indptr[i]:indptr[i + 1]]."""

    indptr: Array
    indices: Array
    latency: Array | float = 0.0  # seconds, of each of `indices`
    per_byte: Array | float = 0.0  # seconds a byte of the link itself, beside the interfaces
    rate: float = math.inf  # bytes a second of each machine's interface, each way
    loss: float = 0.0  # probability that a packet is lost
    rows: Array | float = 1.0  # of how many nodes a message holds the rows
    machine: Array | None = None  # of each place; None: one each

    @property
    def senders(self) -> Array:
        return self.indices

    @property
    def receivers(self) -> Array:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @property
    def far(self) -> Array:
        """Which links lead to another machine; the others take no time."""
        if self.machine is None:
            return np.ones(len(self.indices), bool)
        return np.asarray(self.machine[self.senders] != self.machine[self.receivers])


def on_wire(size: Array | float) -> Any:
    """Bytes that a message of so many takes up."""
    return size + HEADS * packets(size)


def packets(size: Array | float) -> Any:
    return np.maximum(1.0, np.ceil(np.asarray(size) / SEGMENT))


def slow_start(size: float) -> int:
    """Round trips besides, until a connection that has rested has let all packets of a message out."""
    return max(0, math.ceil(math.log2(float(packets(size)) / WINDOW + 1)) - 1)


def late_chance(links: Links, size: Array | float) -> Array:
    """Probability that one of a message's last packets is lost: of one before them those behind it tell at once."""
    return np.asarray(1 - (1 - links.loss) ** np.minimum(packets(size), 3))


def resend_between(links: Links, else_takes: float) -> Any:
    """The same where the next iteration's message follows, after `else_takes` and the way of what it waits for."""
    return np.minimum(resend(links.latency), else_takes + 3 * np.asarray(links.latency))


def resend(latency: Array | float) -> Any:
    """Seconds until a lost packet is sent again."""
    return RESEND + 2 * np.asarray(latency)


def wall_clock(
    links: Links, compute: Array | float, message: float, iterations: int, exchanges: int = 1, seed: int = 0
) -> float:
    """Seconds until the last place has done its iterations, with messages of so many bytes a row.

    Many iterations are followed for a while only, and the rest take what the later half of these took.  Few of them
    that lose packets take, in the mean, as long as so many of many.
    """
    steps = iterations * exchanges
    most = max(40, min(_MOST_STEPS, int(_MOST_WORK / max(1, len(links.indices)))))
    followed = most if links.loss and steps else min(steps, most)
    ends = _followed(links, np.asarray(compute) / exchanges, message, followed, np.random.default_rng(seed))
    if steps < followed:
        return float(ends[-1]) * steps / followed
    half = followed // 2
    each = (ends[-1] - ends[half - 1]) / (followed - half) if half else 0.0
    return float(ends[-1] + (steps - followed) * each) if steps else 0.0


def _followed(
    links: Links, compute: Array, message: float, steps: int, rng: np.random.Generator
) -> list[float]:
    """When each of so many exchanges is over, by the recursion above."""
    n, senders, receivers, far = len(links.indptr) - 1, links.senders, links.receivers, links.far
    hears = np.flatnonzero(np.diff(links.indptr))  # the places with a neighbour elsewhere
    first = links.indptr[hears]
    machine = np.arange(n) if links.machine is None else links.machine
    machines = int(machine.max(initial=0)) + 1
    size = message * np.broadcast_to(links.rows, senders.shape)
    wire = np.where(far, on_wire(size), 0.0)
    delay = np.where(far, links.latency + wire * links.per_byte, 0.0)
    out = np.bincount(machine[senders], wire, machines) / links.rate
    into = np.bincount(machine[receivers], wire, machines) / links.rate
    lost = np.where(far, late_chance(links, size), 0.0) if links.loss else None
    wait = resend_between(links, float(np.max(compute)) + float(np.max(out, initial=0.0)))
    share = 1 / np.bincount(machine, minlength=machines)  # of the place that is done last
    done, left, came, ends = np.zeros(n), np.zeros(machines), np.zeros(machines), []
    for _ in range(steps):
        t = done + compute
        first_done, last_done = np.full(machines, np.inf), np.full(machines, -np.inf)
        np.minimum.at(first_done, machine, t)
        np.maximum.at(last_done, machine, t)
        left = np.maximum(np.maximum(left, first_done) + out, last_done + out * share)
        arrive = np.where(far, left[machine[senders]], t[senders]) + delay
        if lost is not None:
            arrive = arrive + wait * _times_lost(lost, rng)
        begin = np.full(machines, np.inf)
        np.minimum.at(begin, machine[receivers][far], (t[senders] + delay)[far])
        came = np.where(np.isfinite(begin), np.maximum(came, begin) + into, came)
        done = t.copy()
        if len(hears):
            done[hears] = np.maximum(t[hears], np.maximum.reduceat(arrive, first))
            heard = np.bincount(receivers, far, n) > 0
            done[heard] = np.maximum(done[heard], came[machine[heard]])
        ends.append(float(done.max()))
    return ends


def _times_lost(lost: Array, rng: np.random.Generator) -> Array:
    """How many waits each message suffers: one for its first loss, twice as many for each further one."""
    times = rng.geometric(np.maximum(1e-300, 1 - lost)) - 1
    return 2.0 ** np.minimum(times, 30) - 1


def wall_clock_of_sums(
    links: Links, parent: Mapping[int, int | None], compute: float, messages: Sequence[float], roll: bool = False
) -> float:  # fmt: skip
    """The same of sums over a tree, parents before children: up, when all below have come; then down.

    `messages`: bytes of each sum; with `roll` each one ends with a call of the roll.
    """
    machine = list(range(len(links.indptr) - 1)) if links.machine is None else links.machine.tolist()
    pairs = list(zip(links.senders.tolist(), links.receivers.tolist()))
    rng, total, known = np.random.default_rng(0), 0.0, dict[float, float]()
    for message in messages:
        wire, lost = float(on_wire(message)), late_chance(links, message)
        if message not in known or links.loss:
            late = iter(_times_lost(np.broadcast_to(lost, 2 * len(parent)), rng).tolist())
            once = np.asarray(links.latency) * (1 + 2 * slow_start(message)) + wire * np.asarray(
                links.per_byte
            )
            delay = dict(zip(pairs, np.broadcast_to(once, len(pairs)).tolist()))
            known[message] = _one_sum(parent, delay, machine, compute, wire / links.rate, late)
        total += known[message]
    return total + len(messages) * roll * of_roll(links, len(set(machine)))


def _one_sum(
    parent: Mapping[int, int | None], delay: Mapping[Any, float], machine: list[int], compute: float, takes: float,
    late: Any,
) -> float:  # fmt: skip
    """Seconds of one sum; what goes to or from one machine passes its interface one after the other."""
    ready = dict.fromkeys(parent, compute)
    free: dict[tuple[str, int], float] = {}

    def sent(i: int, j: int, at: float) -> float:
        if machine[i] == machine[j]:
            return at
        out, into = ("out", machine[i]), ("in", machine[j])
        left = free[out] = max(free.get(out, 0.0), at) + takes
        there = left + delay[i, j] + next(late, 0.0) * float(resend(delay[i, j]))
        came = free[into] = max(free.get(into, 0.0) + takes, there)
        return came

    for i, above in reversed(list(parent.items())):
        if above is not None:
            ready[above] = max(ready[above], sent(i, above, ready[i]))
    free.clear()
    heard: dict[int, float] = {}
    for i, above in parent.items():
        heard[i] = ready[i] if above is None else sent(above, i, heard[above])
    return max(heard.values())


def of_exchange(links: Links, places: float, degree: float, compute: float, message: float) -> float:
    """Seconds of an iteration where `places` places are alike and none has more than `degree` neighbours."""
    latency, takes = float(np.max(links.latency)), degree * float(on_wire(message)) / links.rate
    late = _share_late(late_chance(links, message), degree, places * degree)
    return compute + latency + takes + late * float(resend_between(links, compute + takes))


def of_sum(
    links: Links, places: float, height: float, below: float, compute: float, message: float, roll: bool = False
) -> float:  # fmt: skip
    """Seconds of a sum over a tree of this height in which no node has more than `below` below it."""
    latency, lost = float(np.max(links.latency)), float(late_chance(links, message))
    late, m = 0.0, 1
    while lost and m <= height:  # the worst way up has m losses or more
        ways = math.log(places) + math.lgamma(height + 1) - math.lgamma(m + 1) - math.lgamma(height - m + 1)
        some = -math.expm1(-math.exp(min(50.0, ways + m * math.log(lost))))
        late, m = late + some, m + 1
        if some < 1e-9:
            break
    hop = latency * (1 + 2 * slow_start(message)) + below * float(on_wire(message)) / links.rate
    whole = compute + 2 * (height * hop + late * float(resend(latency)))
    return whole + (of_roll(links, places) if roll else 0.0)


def of_roll(links: Links, places: float) -> float:
    """Seconds of a call (ranks/roll.py): the first rank hears of all that are there, and tells all of them who is."""
    here, who = float(on_wire(_HERE)), float(on_wire(_KNOWN * places))
    latency, calls = float(np.max(links.latency, initial=0.0)), max(0.0, places - 1)
    lost = [-math.expm1(calls * math.log1p(-float(late_chance(links, n)))) for n in (_HERE, _KNOWN * places)]
    return 2 * latency + calls * (here + who) / links.rate + sum(lost) * float(resend(latency))


def _share_late(lost: Any, degree: float, messages: float) -> float:
    """g: of many iterations, the share in which the last message on the slowest way through the network was lost.

    There are D^K ways through K iterations; those with a share g of losses are none where KL(g || lost) > log D.
    """
    p, most = float(lost), math.log(max(1.0, degree))
    if p <= 0:
        return 0.0
    low, high = p, 1.0
    for _ in range(60 if -math.log(p) > most else 0):
        g = (low + high) / 2
        far = g * math.log(g / p) + ((1 - g) * math.log((1 - g) / (1 - p)) if g < 1 else 0.0)
        low, high = (g, high) if far < most else (low, g)
    return float(min(high, -math.expm1(messages * math.log1p(-p))))
