"""The flags of a run that are not the algorithm's own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from distadmm.algorithm import names, spelled
from distadmm.data.options import MoreRows
from distadmm.errors import require
from distadmm.flags import again, fields_of, flag, flag_group, table_of
from distadmm.ranks.links import Rate, Seconds
from distadmm.run.groups import ADJACENCIES, Budget, Run, Shared
from distadmm.structs import struct

MECHANISMS = ("objective", "output")


@flag_group("problem")
class Problem(MoreRows):
    """What is minimised, over which rows, on which graph."""

    topology: str = flag("er20", help="a graph file, the name of a bundled one, or a spec such as ring:20")
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, squared, softmax")
    weight: float = flag(1750.0, help="C: weight of each node's mean loss", at_least=1e-50, at_most=1e50)
    rho: float = flag(
        0.22,
        help="rho: weight of the ridge |f|^2/2, shared by the nodes (rho/N each)",
        at_least=0,
        at_most=1e50,
    )
    clip: bool = flag(True, help="scale rows longer than 1 down to norm 1")
    intercept: bool = again(Shared, "intercept", note=", inside the norm bound")
    deal: str = flag(
        "iid",
        help="how the rows of one table come to the nodes: iid, blocks (of a file as it stands), quantity:ALPHA or "
        "label:ALPHA (Dirichlet shares), column:NAME, or published (a bundled table as published, whatever the "
        "seeds)",
        absent="published",
    )
    data_seed: int | None = flag(
        None, help="seed of the deal (default: --seed); 0 deals a bundled table as published", at_least=0
    )
    rows_per_node: int | None = flag(None, help="use only the first so many rows of each node", at_least=1)
    tolerance: float = flag(
        1e-10, help="primal solves end at a gradient no longer than this", above=0, below=1
    )


@struct
class Loop(Run):
    """How long to run, what to watch, what to keep."""

    iterations: int = again(Shared, "iterations", default=100, at_least=0, note="; an R-ADMM pair is two")
    stop_tolerance: float | None = again(Shared, "stop_tolerance", note=": primal and dual, both")
    start: float = flag(
        0.0,
        help="f_i(0): normal numbers of this standard deviation, of --seed and the node alone, so public; 0: zeros",
        at_least=0,
    )

    def __post_init__(self) -> None:
        Run.__post_init__(self)
        require(
            not (self.stop_tolerance and self.observe == "none"),
            "--stop-tolerance needs measurements; leave out --observe none",
        )


@flag_group("network")
class Links:
    """What may go wrong on the network, and how slow it is."""

    message_loss: float = flag(
        0.0, help="probability that a message is lost; the last one received stands in", at_least=0, below=1
    )
    drop_out: str | None = flag(
        None,
        help="LEAVE:RETURN, probabilities that a node drops out and returns, an iteration; "
        "with --algorithm masked LEAVE:0, for good",
    )
    latency: Seconds | None = flag(
        None,
        help="one way, in seconds or with a unit: 0.04 or 40ms; with it the time on a wide-area network is predicted, "
        "a machine for each node",
        at_least=0,
    )
    bandwidth: Rate | None = flag(
        None,
        help="of each machine's interface, each way: bytes a second, or 10Mbit/s; for that prediction",
        above=0,
    )
    packet_loss: float = flag(
        0.0, help="probability that a packet is lost and sent again; for that prediction", at_least=0, below=1
    )

    def __post_init__(self) -> None:
        if self.drop_out is not None:
            from distadmm.ranks.conditions import parse_drop_out

            parse_drop_out(self.drop_out)


@struct
class Privacy(Budget):
    """What noise the releases carry, and what they may cost."""

    adjacency: str | None = again(
        Budget,
        "adjacency",
        choices=(*ADJACENCIES, "node"),
        note="; no default; with gossip and masked also node: all its rows",
    )
    noise: str | None = flag(
        None,
        help="law of the noise; gamma: of its length, in any direction (default: gamma once --epsilon or --alpha is "
        "given)",
        choices=("gamma", "gaussian"),
    )
    mechanism: str = again(
        Shared, "mechanism", default="objective", choices=MECHANISMS, note=": where the noise goes"
    )
    alpha: str | None = flag(
        None, help="noise parameter: rate of gamma noise, 1/sigma of gaussian; a number, 'node' or a table"
    )
    alpha_growth: str = flag("1", help="growth of alpha a solve: a number, 'node' or a table")
    public_rows: int | None = again(Shared, "public_rows")
    form: str = again(Shared, "form", was=None, note="; sound: certified solves with output noise")
    output_epsilon: float = flag(
        1e-3,
        help="epsilon a solve spends on the noise that covers its inexactness",
        at_least=1e-50,
        at_most=1e15,
    )
    budget_epsilon: float | None = flag(
        None, help="stop all ranks (exit code 3) before this would be overspent", above=0
    )
    budget_delta: float | None = flag(
        None, help="delta of the budget (default: --delta)", at_least=0, below=1
    )

    assume: str | None = flag(
        None,
        help="FILE.py,... of yours that is to be believed: an algorithm, a loss, a reader of data; what it would cost "
        "is said as well, as conditional",
    )

    tables: ClassVar[dict[str, str]] = {"alpha": "alpha", "alpha_growth": "alpha_q"}

    def __post_init__(self) -> None:
        require(
            not (self.epsilon and self.alpha), "--epsilon chooses alpha; give one of --epsilon and --alpha"
        )
        if not self.wanted:
            require(self.noise is None, f"--noise {self.noise} needs its strength: give --epsilon or --alpha")
            return
        require(
            self.adjacency is not None,
            "--adjacency is needed: what one record may do matters, so there is no default; "
            f"choose one of {', '.join(ADJACENCIES)} (docs/privacy.md says which)",
        )
        require(
            self.adjacency != "add-remove" or self.public_rows is not None,
            "--adjacency add-remove needs --public-rows B: a record's weight C/B must not depend on how many there are",
        )

    @property
    def wanted(self) -> bool:
        return self.epsilon is not None or self.alpha is not None

    @property
    def kind(self) -> str:
        """gamma or gaussian."""
        return self.noise or "gamma"


def check_assumed(privacy: Any, strangers: dict[str, str]) -> None:
    """What may be asked of code that is not this package's own: its files, by the flags that name them."""
    files, flags = ",".join(dict.fromkeys(strangers.values())), " and ".join(strangers)
    require(
        privacy.assume is None or (strangers and {*privacy.assume.split(",")} == {*strangers.values()}),
        f"--assume is {privacy.assume!r}; needed: {files}, all the code whose word is to be taken, as {flags} names it"
        if files
        else "--assume: all code of this run is this package's own, and its word is not needed; leave it out",
    )
    require(
        getattr(privacy, "budget_epsilon", None) is None or not files,
        f"--budget-epsilon with unchecked code {files}: no budget admits what has no bound; leave it out",
    )


@flag_group("algorithm")
class Choice:
    """The flag that decides which other flags there are."""

    algorithm: str = again(Shared, "algorithm")

    def __post_init__(self) -> None:
        self.__dict__["algorithm"] = spelled(self.algorithm, names())


@struct
class Config:
    """Everything that a run depends on; each part's fields are flags."""

    choice: Choice
    problem: Problem
    loop: Loop
    links: Links
    privacy: Privacy
    algorithm: Any  # the frozen dataclass that `choice.algorithm` names

    @property
    def name(self) -> str:
        return self.choice.algorithm

    @property
    def run(self) -> Loop:
        return self.loop

    @property
    def exact(self) -> bool:
        """Whether losses of the rows are computed: without noise, or where that is asked for all the same."""
        return self.loop.observe_all or not self.privacy.wanted

    def table(self) -> dict[str, Any]:
        return table_of(self.choice, self.problem, self.loop, self.links, self.privacy, self.algorithm)

    def replace(self, **changes: Any) -> Config:
        """A copy in which the fields named have other values, whichever part they belong to."""
        parts = {}
        for key in ("choice", "problem", "loop", "links", "privacy", "algorithm"):
            part = getattr(self, key)
            own = {name: value for name, value in changes.items() if name in fields_of(type(part))}
            parts[key] = dataclasses.replace(part, **own) if own else part
        return Config(**parts)
