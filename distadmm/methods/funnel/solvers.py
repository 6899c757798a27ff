"""Every method behind one interface: pieces of work that can be dealt out, and channels that come back.

A piece depends on the problem, the seed and its own number alone, so the result has the same bits whatever the
number of ranks that share the pieces out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.funnel import aem, dc, drs, greedy, nlp, starts, submodular
from distadmm.methods.funnel.model import Array, Joint, informations
from distadmm.run.groups import Shared

METHODS = ("lp", "aem", "aem-adaptive", "drs", "dc", "greedy", "submodular", "nlp")
EVERY = -1  # a piece that serves all R
FEASIBLE = 1e-9  # nats by which a baseline's channel may miss R and still be used


@flag_group("effort")
class Effort:
    """How long and how often; every number is a bound on work, none is a time."""

    symbols: int | None = flag(None, help="|Y| of all methods but lp, greedy, submodular (default: |X| + 1)")
    restarts: int = again(
        Shared,
        "restarts",
        default=30,
        note=" of aem and aem-adaptive, a third of them for nlp",
        was={"starts": {}},
    )
    iterations: int | None = again(Shared, "iterations", note=" (default: 500 aem, 3000 drs, 300 dc and nlp)")
    stop_tolerance: float = again(
        Shared, "stop_tolerance", default=1e-11, above=None, at_least=0, was={"tol": {}},
        note=": aem rests when I(S;Y) falls by no more in three iterations running",
    )  # fmt: skip
    repeats: int = flag(4, help="runs of lp, with other random starts", at_least=1)
    programs: int = flag(60, help="linear programs in each run of lp", at_least=1, was={"rounds": {}})
    seed: int = 0  # of all random choices; of a command, that of the run

    def alphabet(self, joint: Joint) -> int:
        """N; fewer symbols than X has may not be able to tell R."""
        N = joint.M + 1 if self.symbols is None else self.symbols
        require(
            N >= joint.M,
            f"--symbols is {N}; needed: at least |X| = {joint.M}, for a start with I(X;Y) >= R "
            f"(|X| + 1 = {joint.M + 1} symbols always suffice for the optimum)",
        )
        return N


DEFAULT = Effort()


class Piece(NamedTuple):
    rate: int  # which R, or EVERY
    number: int


class Channel(NamedTuple):
    v: Array
    leak: float
    told: float
    iterations: int
    converged: bool


def pieces(joint: Joint, method: str, rates: int, effort: Effort) -> list[Piece]:
    """The work of a method for a number of R."""
    grids = {"drs": drs.VARIANTS, "dc": dc.BETAS, "submodular": submodular.MULTIPLIERS}
    if method in grids:
        return [Piece(EVERY, k) for k in range(len(grids[method]))]
    if method in ("aem", "aem-adaptive"):
        count = -(-effort.restarts // starts.block_size(joint, effort.alphabet(joint)))
    else:
        count = {"lp": effort.repeats, "greedy": 1, "nlp": -(-effort.restarts // 3)}[method]
    return [Piece(rate, k) for rate in range(rates) for k in range(count)]


def check(joint: Joint, method: str, effort: Effort) -> None:
    """Refuse what a method cannot do, before any work."""
    require(method in METHODS, f"no method {method!r}; there are: {', '.join(METHODS)}")
    N = effort.alphabet(joint)
    if method == "nlp":
        require(
            joint.M * N <= nlp.LARGEST,
            f"nlp handles at most {nlp.LARGEST} unknowns and this problem has {joint.M * N}; use lp",
        )


def channels(joint: Joint, method: str, R: float, number: int, effort: Effort) -> list[Channel]:
    """What one piece of a method other than lp finds; R is not used by the methods that serve all R."""
    N = effort.alphabet(joint)
    if method in ("aem", "aem-adaptive"):
        size = starts.block_size(joint, N)
        block = range(number * size, min((number + 1) * size, effort.restarts))
        most = effort.iterations or 500
        first = starts.feasible(joint, R, N, effort.seed, block)
        ends = starts.run(joint, first, R, most, effort.stop_tolerance, method != "aem")
        found = zip(aem.channels(joint, ends.state), ends.converged)
        return [_channel(joint, v, ends.iterations, bool(done)) for v, done in found]
    if method in ("drs", "dc"):
        by, most = (drs, 3000) if method == "drs" else (dc, 300)
        ended, n, near = by.end_points(joint, N, effort.seed, number, effort.iterations or most)
        return [_channel(joint, v, n, bool(done)) for v, done in zip(ended, near)]
    if method == "nlp":
        v, n, done = nlp.run(joint, R, N, effort.seed, number, effort.iterations or 300)
        return [_channel(joint, v, n, done)]
    if method == "submodular":
        v = submodular.cluster(joint, float(submodular.MULTIPLIERS[number]))
    else:
        v = greedy.cluster(joint, R)
    return [_channel(joint, v, joint.M - v.shape[1], True)]


def _channel(joint: Joint, v: Array, iterations: int, converged: bool) -> Channel:
    return Channel(v, *informations(joint, v), iterations, converged)


def best(found: Sequence[Channel], R: float) -> Channel | None:
    """The channel that leaks least among those that tell enough."""
    enough = [channel for channel in found if channel.told >= R - FEASIBLE]
    return min(enough, key=lambda channel: channel.leak, default=None)


def tidy(joint: Joint, v: Array) -> Array:
    """The channel without symbols that are never sent, the likeliest first; rows sum to one."""
    r = joint.p @ v
    order = np.argsort(-r, kind="stable")
    v = v[:, order[r[order] > 0]]
    return v / v.sum(axis=1, keepdims=True)
