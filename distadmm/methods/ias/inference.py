"""The inference problem: a parameter S, data Y of a finite alphabet, and the table that joins them."""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from distadmm.data.joint import Array, Table, checked_cells, read_inferred
from distadmm.data.mapping import check_distribution
from distadmm.errors import InputError, require, told


@dataclass(frozen=True, eq=False)
class Inference:
    """P_S and P_{Y|S}; everything else follows.  Natural logarithms throughout."""

    P_S: Array
    P_YgS: Array  # one row per s
    values: tuple[str, ...] = ()  # names of the symbols of Y
    name: str = ""

    def __post_init__(self) -> None:
        P_S, P_YgS = check_distribution(self.P_S, "P_S"), check_distribution(self.P_YgS, "P_YgS")
        require(P_S.ndim == 1, f"P_S has shape {P_S.shape}; needed one number per s")
        require(
            P_YgS.ndim == 2 and len(P_YgS) == len(P_S),
            f"P_YgS has shape {P_YgS.shape}; needed {len(P_S)} rows, one per s",
        )
        require(len(P_S) >= 2, "P_S has one symbol; needed at least 2: with one there is nothing to infer")
        for p, what in ((P_S, "S"), (P_S @ P_YgS, "Y")):
            zero = np.flatnonzero(p == 0)
            require(
                not zero.size, f"symbol {zero[:1]} of {what} has probability zero; leave it out of the table"
            )
        object.__setattr__(self, "P_S", P_S)
        object.__setattr__(self, "P_YgS", P_YgS)
        values = tuple(self.values) or tuple(f"y{y}" for y in range(P_YgS.shape[1]))
        require(
            len(values) == P_YgS.shape[1], f"{len(values)} values are named for {P_YgS.shape[1]} symbols of Y"
        )
        require(len(set(values)) == len(values), "two symbols of Y have the same name; name each once")
        object.__setattr__(self, "values", values)

    @cached_property
    def joint(self) -> Array:
        """p(s, y)."""
        return self.P_S[:, None] * self.P_YgS

    @cached_property
    def P_Y(self) -> Array:
        return self.joint.sum(0)

    @cached_property
    def A(self) -> Array:
        """P_{S|Y}, one column per y."""
        return self.joint / self.P_Y

    @cached_property
    def I_SY(self) -> float:
        """I(S;Y), what a server could learn of S from Y itself."""
        ratio = np.divide(self.A, self.P_S[:, None], out=np.ones_like(self.A), where=self.A > 0)
        return float((self.joint * np.log(ratio)).sum())

    @cached_property
    def rho_m2(self) -> float:
        """The squared maximal correlation of S and Y."""
        singular = np.linalg.svd(self.joint / np.sqrt(np.outer(self.P_S, self.P_Y)), compute_uv=False)
        return float(singular[1] ** 2)


def from_joint(joint: Array, values: tuple[str, ...] = (), name: str = "") -> Inference:
    """From p(s,y), or from counts (whole numbers), one row per s."""
    joint = checked_cells(joint, "a row per s")
    total = joint.sum()
    counts = total > 0 and np.array_equal(joint, np.round(joint))
    require(
        counts or abs(total - 1) <= 1e-9,
        f"the joint table sums to {total:.12g}; needed probabilities that sum to 1, or whole counts",
    )
    joint = joint / total
    P_S = joint.sum(1)
    empty = np.flatnonzero(P_S == 0)
    require(not empty.size, f"symbol {empty[:1]} of S has probability zero; leave its row out")
    return Inference(P_S, joint / P_S[:, None], values, name)


def from_file(path: str) -> Inference:
    """The problem that a file of P_S and P_YgS, or of a joint table, holds."""
    P_S, P_YgS, values, name = (found := read_inferred(path))[1:]
    with told(f"{path}: REASON", InputError):
        if found.joint is not None:
            return from_joint(found.joint, values, name)
        return Inference(P_S, P_YgS, values, name)


def from_counts(table: Table, smooth: float = 0.0) -> Inference:
    """From counted rows, with so many pseudo-counts in each cell."""
    counts = table.cells + smooth
    empty = [name for name, count in zip(table.public, counts.sum(0)) if count == 0]
    require(
        not empty,
        f"no row has {table.column} = {', '.join(empty)}, a symbol of probability zero; leave it out of the domain, "
        "or give --smooth 0.5 pseudo-counts a cell",
    )
    return from_joint(counts / counts.sum(), table.public, table.column)


def counts_of(path: str) -> Table | None:
    """The counts that a file of a joint table holds; None where it holds probabilities."""
    found = read_inferred(path).joint
    if found is None or found.sum() <= 1 or not np.array_equal(found, np.round(found)):
        return None
    return Table(found, (), (), path, "", int(found.sum()))


def stand_in(name: str) -> Inference:
    """Stand-ins for the conditional distribution of the paper's Fig. 1, which is drawn but not printed.

    `gauss`: bells of width 1.2 at 1.5, 4.5 and 7.5; `sharp`: the same of width 0.6; `binom`:
    binomial(9, p) for p = 0.2, 0.5, 0.8.  P_S is uniform on three symbols and |Y| = 10.
    """
    if name == "binom":
        p, y = np.array([[0.2], [0.5], [0.8]]), np.arange(10)
        weights = np.array([comb(9, k) for k in y]) * p**y * (1 - p) ** (9 - y)
        return Inference(np.full(3, 1 / 3), weights / weights.sum(1, keepdims=True), name=name)
    require(name in ("gauss", "sharp"), f"no stand-in {name!r}; choose one of: gauss, sharp, binom")
    return bells(10, 1.2 if name == "gauss" else 0.6, name)


def bells(n: int, width: float, name: str) -> Inference:
    """Those of `gauss` and `sharp`, stretched to |Y| = n."""
    scale = (n - 1) / 9
    centres, width = scale * np.array([[1.5], [4.5], [7.5]]), width * scale
    weights = np.exp(-((np.arange(n) - centres) ** 2) / (2 * width**2))
    return Inference(np.full(3, 1 / 3), weights / weights.sum(1, keepdims=True), name=name)
