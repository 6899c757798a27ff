"""The penalty flags that the whole family shares, and the dual step that keeps it right.

A dual step of each node's own makes sum_i lambda_i drift from zero, and the nodes then agree on the optimum
of sum_i O_i/eta_i, not of sum_i O_i.  Where penalties differ between nodes, the duals therefore take one
common step theta (the smallest penalty) unless `--dual-step own` asks for the paper's literal form.

Penalties eta_i(k) and noise parameters alpha_i(k) are constant, tabled, or grow to a cap:

    eta_i(k) = min(eta_i q_i^k, cap_i),   k = 1, 2, ... counting the iterations that read data

A penalty that grows without bound freezes every node where it stands, short of the optimum; therefore growth
stops at `cap` (by default ten times the start, which the growth rates of the paper's figures do not reach in
fifty iterations).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Facts, Node
from distadmm.errors import InputError, require, told
from distadmm.flags import flag
from distadmm.methods.consensus import smoothing
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.privacy.accounting.schedule import MOST_DIFFERENT, Stretches
from distadmm.structs import struct

DEFAULT_CAP = 10.0  # times the start


@struct
class Growing:
    start: Array  # one entry a node, as a column
    growth: Array
    cap: Array

    def __call__(self, k: int) -> Array:
        with np.errstate(over="ignore"):  # beyond the cap
            return np.minimum(self.start * self.growth ** float(k), self.cap)

    def first(self, solves: int, nodes: Array) -> Array:
        """Those of `nodes` in the first solves, a row each: the bits of one after the other."""
        each = _powers(self.growth.tobytes(), solves)[:, nodes]
        return np.minimum(self.start[nodes].T * each, self.cap[nodes].T)

    def latest(self, k: int) -> float:
        """The first solve whose values are those of the k-th."""
        return min(k, self.still)

    @cached_property
    def still(self) -> float:
        """From which k on nothing changes any more."""
        grows = self.growth > 1
        if not grows.any():
            return 1
        start, growth, cap = (each[grows] for each in (self.start, self.growth, self.cap))
        return 1 + float(np.ceil(np.max(np.log(cap / start) / np.log(growth))))

    @property
    def uniform(self) -> bool:
        """Whether all nodes have the same value at every k."""
        return bool(np.ptp(self.start) == 0 and np.ptp(self.growth) == 0)


@lru_cache(maxsize=1)
def _powers(growth: bytes, solves: int) -> Array:
    """q^k of all nodes, a row for each k: many penalties are tried that grow alike."""
    q = np.frombuffer(growth)
    with np.errstate(over="ignore"):  # beyond the cap
        return np.array([q ** float(k) for k in range(1, solves + 1)]).reshape(solves, len(q))


@struct
class Tabled:
    """Row k-1 holds the values of the k-th solve, one entry a node."""

    rows: Array

    def __call__(self, k: int) -> Array:
        if k > len(self.rows):
            raise InputError(
                f"the schedule's table ends after {len(self.rows)} solves and solve {k} was reached; "
                "give one value a solve, or fewer --iterations"
            )
        return self.rows[k - 1][:, None]

    def first(self, solves: int, nodes: Array) -> Array:
        return self.rows[:solves, nodes]

    def latest(self, k: int) -> float:
        return k  # one beyond the table is refused

    @property
    def still(self) -> float:
        return len(self.rows)

    @property
    def uniform(self) -> bool:
        return bool(np.all(np.ptp(self.rows, axis=1) == 0))


Schedule = Growing | Tabled


class Weights(NamedTuple):
    """What a solve and its dual step are weighted by: columns, one row a node of this rank."""

    eta: Array
    quadratic: Array  # 2 eta_i V_i
    dual: Array  # theta/2


def schedule(
    values: Array, growth: Array | float = 1.0, cap: float | None = None, *, name: str = "--eta"
) -> Schedule:
    """The schedule of all nodes: `values` has one entry a node, or one row a solve of one entry a node."""
    values = np.asarray(values, dtype=float)
    require(
        np.all(np.isfinite(values)) and np.all(values > 0),
        f"{name} has the value {values.min():g}; needed: above 0",
    )
    if values.ndim == 2:
        require(
            np.all(np.diff(values, axis=0) >= 0),
            f"{name} decreases between solves; needed: values that never do",
        )
        return Tabled(values)
    start = values.reshape(-1, 1)
    growth = np.broadcast_to(np.asarray(growth, dtype=float).reshape(-1, 1), start.shape)
    require(
        np.all(np.isfinite(growth)) and np.all(growth >= 1),
        f"{name}-growth is {growth.min() if not growth.min() >= 1 else growth.max():g}; needed: a finite number, "
        "1 or more (penalties never decrease)",
    )
    limit = start * DEFAULT_CAP if cap is None else np.full_like(start, float(cap))
    require(
        np.all(limit >= start), f"{name}-cap {limit.min():g} is below the start {start.max():g}; raise it"
    )
    return Growing(start, growth, limit)


@dataclass(frozen=True)
class Penalties:
    flags_title = "algorithm"

    eta: str = flag(
        "auto",
        help="penalty: a number, 'auto' (from the graph and public constants, and --epsilon), 'node' or a table",
    )
    eta_growth: str = flag("auto", help="growth q of eta_i q_i^k a solve: a number, 'node' or a table file")
    eta_cap: float | None = flag(
        None, help="no penalty grows beyond this (default: ten times its start)", above=0
    )
    dual_step: str = flag(
        "common", help="dual step: 'common' to all nodes, 'own' eta_i (the paper's), or a number"
    )
    average: str = flag(
        "auto",
        help="a node ends with its models' mean, in which the t-th solve weighs t^S: a number S, 'last' (no mean) or "
        "'auto' (chosen with the penalty, for --epsilon; else last)",
    )
    mixing: str = flag(
        "auto",
        help="rounds after the last iteration in which nodes average with neighbours: a number, or 'auto'",
    )

    # Per-node parameters that a file may give instead of one number: flag -> the node attribute it reads.
    phases: ClassVar[int] = 1  # iterations a solve
    repeats: ClassVar[bool] = True
    tables: ClassVar[dict[str, str]] = {"eta": "eta", "eta_growth": "q"}

    def __post_init__(self) -> None:
        smoothing.asked(self.average, self.mixing)
        if self.dual_step not in ("common", "own"):
            step = as_number(self.dual_step, "--dual-step", "'common', 'own' or a number")
            require(0 < step < np.inf, f"--dual-step is {step:g}; needed: a finite number above zero")

    def check(self, node: Node, iterations: int) -> None:
        """Refuse what cannot be run before anything is."""
        require(
            node.network.conditions is None or not self.smoothing(node).rounds,
            "--mixing assumes a network that stays as it is; leave it out, or the network's imperfections",
        )
        solves = -(-iterations // self.phases)
        if solves:
            self.whole_schedule(node)(solves)

    @property
    def spectrum(self) -> bool:
        return self.eta == "auto"

    @property
    def proximal(self) -> float:
        """gamma of the iterations that recycle."""
        return 0.0

    def releases(self, node: Node, iterations: int) -> Stretches:
        """Every iteration that will read the data; none of it depends on data."""
        solves = -(-iterations // self.phases)
        whole = node.recall("schedule", 0, lambda: self.whole_schedule(node))
        whole(max(solves, 1))  # refused where a table ends before
        grown = min(whole.still, solves)
        require(
            grown <= MOST_DIFFERENT,
            f"penalties still grow after {MOST_DIFFERENT:g} solves, and each is priced apart; give fewer --iterations, "
            "a larger --eta-growth or a lower --eta-cap",
        )
        rows = 2 * whole.first(int(grown), node.network.nodes) * node.degree[:, 0]
        parts = [(1, quadratic, self.noise_factor(quadratic)) for quadratic in rows[:, :, None]]
        if parts:
            parts[-1] = (1 + solves - len(parts), *parts[-1][1:])
        return Stretches(parts, self.phases)

    def noise_factor(self, quadratic: Array) -> Array | float:
        """What the linear term multiplies the noise by."""
        return 1.0

    def smoothing(self, node: Node) -> Smoothing:
        """What is done after the last solve: as asked, or as chosen with the penalty."""
        asked, chosen = smoothing.asked(self.average, self.mixing), node.table.get("smoothing")
        if chosen is None:
            return asked
        power = None if np.isnan(chosen[0]) else float(chosen[0])
        return Smoothing(
            power if self.average == "auto" else asked.power,
            int(chosen[1]) if self.mixing == "auto" else asked.rounds,
        )

    def averaged(self, t: int, mean: Array, f: Array, node: Node) -> Array:
        """The mean of the models after t solves, the last of which left f."""
        power = node.recall("smoothing", 0, lambda: self.smoothing(node)).power
        return smoothing.averaged(power, t, mean, f)

    def finish(self, k: int, st: Any, node: Node) -> Any:
        """The models that the nodes keep after iteration k, the last."""
        if not hasattr(st, "mean"):  # --tune
            return st
        power, rounds = self.smoothing(node)
        f = st.f if power is None or k < self.phases else st.mean
        return st._replace(f=smoothing.mixed(rounds, k, f, node)) if k else st

    def whole_schedule(self, node: Node) -> Schedule:
        """Penalties of all nodes of the network; they depend on no data, so every rank knows them."""
        eta = node.table["eta"]
        if eta is None:
            eta = np.full(node.facts.n_nodes, default_penalty(node.facts))
        growth = node.table["eta_growth"]
        return schedule(eta, 1.0 if growth is None else growth, self.eta_cap)

    def weights(self, k: int, node: Node) -> Weights:
        """Those of the k-th solve."""
        whole = node.recall("schedule", 0, lambda: self.whole_schedule(node))

        def make() -> Weights:
            everyone = whole(k)
            eta = theta = everyone[node.network.nodes]
            if self.dual_step != "own":
                common = everyone.min() if self.dual_step == "common" else float(self.dual_step)
                theta = np.full_like(eta, common)
            return Weights(eta, 2 * eta * node.degree, theta / 2)

        return node.recall("weights", whole.latest(k), make)

    def penalty(self, k: int, node: Node) -> Array:
        """eta_i at the k-th solve, as a column."""
        return self.weights(k, node).eta

    def claims_optimum(self, node: Node) -> bool:
        """Whether the fixed point is the optimum of the whole network's problem."""
        if node.table["eta"] is None and node.table["eta_growth"] is None:
            return True
        return self.whole_schedule(node).uniform or self.dual_step != "own"


def as_number(text: str, option: str, needed: str) -> float:
    with told(f"{option} is {text!r}; needed: {needed}", ValueError):
        return float(text)


def default_penalty(facts: Facts) -> float:
    """A penalty from the graph and public constants alone, for rows of norm at most one.

    Over-relaxed consensus is fastest where the edge metric is theta*/V times the geometric mean of the
    least and the largest curvature of an objective: sqrt(r (r + C c1)), with ridge r, weight C, l'' <= c1,
    and theta* = 1/sqrt(1 - mu^2).  Plain ADMM wants the square root of theta*.  An edge of the metric M
    is a penalty M/2.
    """
    curvature = np.sqrt(facts.ridge * (facts.ridge + facts.weight * facts.max_curvature))
    if not np.isfinite(curvature) or curvature == 0.0:
        return 1.0
    relaxation = (1.0 - facts.mu**2) ** -0.25 if facts.mu < 1 else 1.0
    return float(0.35 * relaxation * curvature / np.mean(facts.degrees))
