"""The faults that there are, the programmes they are done to, and how one of them follows from its seed."""

import random
from collections.abc import Sequence
from typing import NamedTuple

_GRAPH = "--data tiny --topology er5 --iterations 12 --checkpoint-every 3 --observe 4 --progress none"
_NOISE = "--epsilon 4 --adjacency replace --rng simulation"
_SECRET = "--epsilon 4 --adjacency replace --rng secure"
_SHARING = "--data tiny --split 8,12,10 --iterations 8 --checkpoint-every 2 --observe none --progress none"


class Case(NamedTuple):
    programme: str
    flags: str
    iterations: int = 12
    repeats: bool = True  # the same seed gives the same bits
    as_before: bool = True  # also after a resume, which begins no new session with noise of its own
    ranks: int = 3  # of a life under a launcher


CASES = {
    "admm": Case("radmm", f"--algorithm admm {_GRAPH}"),
    "radmm": Case("radmm", f"--algorithm radmm {_GRAPH} {_NOISE}"),
    "radmm, secret noise": Case("radmm", f"--algorithm radmm {_GRAPH} {_SECRET}", repeats=False),
    "masked": Case(
        "radmm",
        f"--algorithm masked --anyway --trust coalition:2 --min-roster 3 {_GRAPH} {_NOISE}",
        as_before=False,
    ),
    "gossip": Case("radmm", f"--algorithm gossip {_GRAPH} {_NOISE}"),
    "tracking": Case("radmm", f"--algorithm tracking {_GRAPH} {_NOISE}"),
    "accelerated": Case("radmm", f"--algorithm accelerated {_GRAPH} {_NOISE}"),
    "preconditioned": Case("radmm", f"--algorithm preconditioned {_GRAPH} {_NOISE}"),
    "fixed-point": Case("radmm", f"--algorithm fixed-point {_GRAPH} {_NOISE}"),
    "newton": Case("radmm", f"--algorithm newton {_GRAPH} --iterations 6", 6),  # it has converged after eight
    "sharing": Case("sharing", _SHARING, 8),
    "sharing, s2": Case(
        "sharing", f"{_SHARING} --mechanism s2 --row-norm 3 --lambda 30 --rounds 9 {_NOISE}", 8
    ),
    "istdp": Case(
        "istdp",
        "--data synthetic:99x5 --iterations 12 --checkpoint-every 3 --progress none --epsilon 1 --adjacency replace "
        "--rng simulation",
        ranks=1,
    ),
    "sweep": Case(
        "commands.sweep",
        "--data tiny --topology er5 --iterations 40 --checkpoint-every 5 --seed 0 1",
        ranks=0,
    ),
}

EARLY = ("start-up", "reading", "pricing", "set-up")
ALL = (*EARLY, "solving", "iterating", "iterating", "iterating", "iterating", "writing", "leaving")
FILES = ("torn", "flipped", "swapped", "foreign", "missing")
MAKE = "distadmm.commands.sweep:Runs.make"


class Kind(NamedTuple):
    name: str
    fault: str  # for `meet`; empty: it is done from outside
    codes: tuple[int, ...]  # with which a life may end that met it
    where: tuple[str, ...] = ALL
    rank: str = "any"  # or first, other
    alone: bool = True  # also to a run of one rank
    raises: bool = False  # a traceback is what is to be seen


def _killed(number: int) -> tuple[int, ...]:
    """A launcher makes of a killed rank what it likes: MPICH n, Open MPI 128 + n, Intel MPI 255; alone it is -n."""
    return (number, 128 + number, 255, -number)


def _told(number: int) -> tuple[int, ...]:
    """While results are written they are written.  A launcher also hands it to ranks that Python is only being loaded
    on: they die of it, which the launcher tells by n; Open MPI's says 1."""
    return (128 + number, 0)


KINDS = (
    Kind("SIGKILL a rank", "SIGKILL", _killed(9), rank="other"),
    Kind("SIGKILL rank 0", "SIGKILL", _killed(9), rank="first"),
    Kind("SIGKILL all ranks", "all:SIGKILL", _killed(9), alone=False),
    Kind("SIGKILL the launcher", "launcher:SIGKILL", (-9,), alone=False),
    Kind("SIGKILL its proxy", "proxy:SIGKILL", (9, 137, 255, -9, 1, 7, 143), alone=False),
    Kind("SIGSTOP", "SIGSTOP", (75,), alone=False),
    Kind("SIGTERM to a rank", "SIGTERM", _told(15)),
    Kind("SIGUSR1 to a rank", "SIGUSR1", _told(10)),
    Kind("SIGINT to a rank", "SIGINT", _told(2)),
    Kind("SIGTERM to the launcher", "launcher:SIGTERM", (*_told(15), 15, 1), alone=False),
    Kind("SIGUSR1 to the launcher", "launcher:SIGUSR1", (*_told(10), 10), alone=False),
    Kind("SIGINT to the launcher", "launcher:SIGINT", (*_told(2), 2, 1), alone=False),
    Kind("disk full", "full", (2, 0), ("set-up", "solving", "iterating", "iterating", "writing")),
    Kind("read-only", "read-only", (2, 0), ("solving", "iterating", "iterating", "writing")),
    Kind("clock jumps", "clock", (0,)),
    # 0: where the next step makes that field anew, and nothing is lost.
    Kind("NaN", "nan", (1, 0), ("iterating",)),
    Kind("raises", "RuntimeError", (1,), raises=True),
    Kind("segmentation fault", "SIGSEGV", _killed(11)),
    Kind("slow rank", "slow", (0,), ("iterating",)),
    Kind("busy rank", "busy", (0,)),
    Kind("cut cable", "cable", (75,), ("iterating",), alone=False),
    Kind("two resumes at once", "", (0,)),
    *(Kind(f"{how} file", "", (0, 2)) for how in FILES),
)
OF_A_SWEEP = (
    Kind("SIGKILL the launcher", "soon:{delay}:SIGKILL", (-9, 0), (MAKE,)),
    Kind("SIGKILL a rank", "soon:{delay}:child:SIGKILL", (1, 0), (MAKE,)),
    Kind("SIGTERM to the launcher", "soon:{delay}:SIGTERM", (143, 0), (MAKE,)),
    Kind("SIGUSR1 to the launcher", "soon:{delay}:SIGUSR1", (138, 0), (MAKE,)),
    Kind("SIGTERM to a rank", "soon:{delay}:child:SIGTERM", (143, 0), (MAKE,)),
    Kind("two resumes at once", "", (0, 1, 2)),
    *(Kind(f"{how} file", "", (0, 1, 2)) for how in FILES),
)


class Fault(NamedTuple):
    seed: int
    case: str
    kind: Kind
    ranks: int
    rank: str
    fault: str
    where: str
    call: int
    resume_on: int
    draw: int  # for what else is left to chance

    @property
    def words(self) -> str:
        if not self.kind.fault:
            return f"{self.kind.name}, {self.case}"
        met = f"{self.kind.name} ({self.fault}), {self.case} on {self.ranks or 1}"
        where = "a run of it" if self.where == MAKE else f"{self.where} {self.call}"
        return f"{met}, rank {self.rank}, at {where}"


def pairs(
    cables: bool, ranks: bool, kind: str | None = None, programme: str | None = None
) -> list[tuple[str, Kind]]:
    """Every kind with every programme that can meet it here, in a fixed order without runs of one kind."""
    found = []
    for name, case in CASES.items():
        for each in OF_A_SWEEP if name == "sweep" else KINDS:
            possible = each.alone or (case.ranks > 1 and ranks)
            possible &= each.fault != "cable" or cables
            if possible and kind in (None, each.name) and programme in (None, name):
                found.append((name, each))
    random.Random("an order").shuffle(found)
    return found


def fault_of(seed: int, among: Sequence[tuple[str, Kind]], *, ranks: bool) -> Fault:
    """The fault of a seed: faults of seeds in a row go through all pairs before one comes again."""
    chance = random.Random(f"fault {seed}")
    name, kind = among[seed % len(among)]
    case = CASES[name]
    many = case.ranks if case.ranks > 1 and ranks else 1
    on = many if not kind.alone or chance.random() < 0.25 else 1
    where = chance.choice(kind.where)
    met_by = {"first": 0, "any": chance.randrange(on), "other": chance.randrange(1, on) if on > 1 else 0}
    call = chance.randint(1, case.iterations) if where == "iterating" else 1
    if where == MAKE:
        call = chance.randint(1, 2)
    more = {
        "full": chance.choice([0, 100, 1000, 3000]),
        "clock": chance.choice([-86400, -3600, 3600, 10**8]),
        "slow": 0.05,
        "busy": chance.choice([0.3, 1.0]),
    }
    detail = f"{kind.fault}:{more[kind.fault]}" if kind.fault in more else kind.fault
    detail = detail.format(delay=round(chance.uniform(0.2, 1.2), 2))
    again = many if on > 1 and chance.random() < 0.4 else 1
    rank = str(met_by[kind.rank])
    return Fault(seed, name, kind, on, rank, detail, where, call, again, chance.getrandbits(60))
