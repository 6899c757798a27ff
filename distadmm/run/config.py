"""The flags of a run that are not the algorithm's own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from distadmm.errors import require
from distadmm.flags import fields_of, flag
from distadmm.structs import struct

ADJACENCIES = ("add-remove", "replace", "label")
MECHANISMS = ("objective", "output")
FORMS = ("sound", "paper")
RNGS = ("secure", "simulation")


@struct
class Problem:
    """What is minimised, over which rows, on which graph."""

    flags_title = "problem"

    data: str = flag(
        "adult", help="adult, tiny, a9a, a file (CSV, npz, libsvm), or 'shard-{rank}.csv': one file a node"
    )
    target: str | None = flag(None, help="target column of a CSV (default: the last)")
    topology: str = flag("er20", help="a graph file, the name of a bundled one, or a spec such as ring:20")
    loss: str = flag(
        "logistic",
        help="logistic, huber, smooth-hinge, squared, softmax, or FILE.py:Name with a loss of yours",
    )
    weight: float = flag(1750.0, help="C: weight of each node's mean loss", above=0)
    rho: float = flag(
        0.22, help="rho: weight of the ridge |f|^2/2, shared by the nodes (rho/N each)", at_least=0
    )
    clip: bool = flag(True, help="scale rows longer than 1 down to norm 1")
    intercept: bool = flag(False, help="add a constant column, inside the norm bound")
    labels: tuple[str, ...] = flag(
        (), help="the two (or more) classes of a file, the negative one first: no,yes"
    )
    schema: str | None = flag(None, help="TOML file with the public domains and bounds of a CSV's columns")
    features: int | None = flag(None, help="columns of a libsvm file")
    test_fraction: float = flag(
        0.0, help="share of a data file's rows kept for the test error", at_least=0, below=1
    )
    test_data: str | None = flag(None, help="a file of test rows")
    sanitise: tuple[str, ...] = flag(
        (), help="COLUMN=mapping.npz,...: randomise columns by privacy mappings first"
    )
    rows_per_node: int | None = flag(None, help="use only the first so many rows of each node", at_least=1)
    tolerance: float = flag(
        1e-10, help="primal solves end at a gradient no longer than this", above=0, below=1
    )


@struct
class Loop:
    """How long to run, what to watch, what to keep."""

    flags_title = "run"

    iterations: int = flag(100, help="iterations to run (an R-ADMM pair is two)", at_least=0)
    seed: int = flag(0, help="seed of all random choices that are not secret", at_least=0)
    stop_tolerance: float | None = flag(None, help="stop when both residuals fall below this", above=0)
    time_limit: float | None = flag(
        None, help="stop after so many seconds (state saved if checkpoints are on)", above=0
    )
    strict: bool = flag(False, help="exit with code 4 when --stop-tolerance is not reached")
    observe: str = flag("1", help="measure every so many iterations, or none; changes no bit of the result")
    out: str | None = flag(None, help="run directory (default: runs/<algorithm>-<date>-<time>)")
    force: bool = flag(
        False, help="replace a run directory that is not empty; one that has spent privacy is kept beside it"
    )
    checkpoint_every: int | None = flag(None, help="save the state every so many iterations", at_least=1)
    resume: str | None = flag(None, help="go on from the last checkpoint of this run directory")
    dry_run: bool = flag(False, help="print what would be run, and its traffic, and stop")
    progress: str = flag("auto", help="bar, lines, none, or auto", choices=("auto", "bar", "lines", "none"))
    yield_: str = flag(
        "auto",
        help="how ranks wait: spin, yield, or auto (yield where there are more ranks than cores)",
        choices=("auto", "spin", "yield"),
    )
    stall_timeout: float = flag(
        600.0, help="end the job when no rank moves for so many seconds; 0: never", at_least=0
    )

    def __post_init__(self) -> None:
        require(
            self.observe == "none" or (self.observe.isdigit() and int(self.observe) > 0),
            f"--observe is {self.observe!r}; needed: none, or a whole number of iterations",
        )
        require(
            not (self.stop_tolerance and self.observe == "none"),
            "--stop-tolerance needs measurements; leave out --observe none",
        )

    @property
    def observe_every(self) -> int:
        """Iterations between measurements; 0 for none."""
        return 0 if self.observe == "none" else int(self.observe)


@struct
class Links:
    """What may go wrong on the network, and how slow it is."""

    flags_title = "network"

    message_loss: float = flag(
        0.0, help="probability that a message is lost; the last one received stands in", at_least=0, below=1
    )
    drop_out: str | None = flag(
        None, help="LEAVE:RETURN, probabilities that a node drops out and returns, an iteration"
    )
    latency: float | None = flag(
        None, help="seconds a message takes; predicts the time on a wide-area network", at_least=0
    )
    bandwidth: float | None = flag(None, help="bytes a second of each link, for the same prediction", above=0)

    def __post_init__(self) -> None:
        if self.drop_out is not None:
            from distadmm.ranks.conditions import parse_drop_out

            parse_drop_out(self.drop_out)


@struct
class Privacy:
    """What noise the releases carry, and what they may cost."""

    flags_title = "privacy"

    noise: str | None = flag(
        None,
        help="gamma or gaussian (default: gamma once --epsilon or --alpha is given)",
        choices=("gamma", "gaussian"),
    )
    mechanism: str = flag("objective", help="where the noise goes: objective or output", choices=MECHANISMS)
    alpha: str | None = flag(
        None, help="noise parameter: rate of gamma noise, 1/sigma of gaussian; a number, 'node' or a table"
    )
    alpha_growth: str = flag("1", help="growth of alpha a solve: a number, 'node' or a table")
    epsilon: float | None = flag(None, help="choose alpha so that the whole run spends at most this", above=0)
    delta: float = flag(1e-5, help="delta of all (epsilon, delta) statements", above=0, below=1)
    adjacency: str | None = flag(
        None, help="what one record may do: add-remove, replace or label; no default", choices=ADJACENCIES
    )
    public_rows: int | None = flag(
        None, help="public divisor of the loss in place of a node's row count (add-remove)", at_least=1
    )
    form: str = flag(
        "sound", help="sound: certified solves with output noise; paper: as printed", choices=FORMS
    )
    output_epsilon: float = flag(
        1e-3, help="epsilon a solve spends on the noise that covers its inexactness", above=0
    )
    rng: str = flag(
        "secure",
        help="secure noise, or a simulation that --seed repeats and that guarantees nothing",
        choices=RNGS,
    )
    budget_epsilon: float | None = flag(
        None, help="stop all ranks (exit code 3) before this would be overspent", above=0
    )
    budget_delta: float | None = flag(
        None, help="delta of the budget (default: --delta)", at_least=0, below=1
    )

    tables: ClassVar[dict[str, str]] = {"alpha": "alpha", "alpha_growth": "alpha_q"}

    def __post_init__(self) -> None:
        require(
            not (self.epsilon and self.alpha), "--epsilon chooses alpha; give one of --epsilon and --alpha"
        )
        if not self.wanted:
            require(
                self.noise is None,
                f"--noise {self.noise} needs its strength: give --epsilon or --alpha",
            )
            return
        require(
            self.adjacency is not None,
            "--adjacency is None; what one record may do matters, so there is no default: "
            f"choose one of {', '.join(ADJACENCIES)}",
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


@struct
class Choice:
    """The flag that decides which other flags there are."""

    flags_title = "algorithm"

    algorithm: str = flag(
        "radmm", help="a name (see: python -m distadmm list) or a file of yours ending in .py"
    )


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

    def table(self) -> dict[str, Any]:
        """Flag name -> value, as `config.json` keeps it and `--config` reads it."""
        parts = (self.choice, self.problem, self.loop, self.links, self.privacy, self.algorithm)
        return {name.rstrip("_"): getattr(part, name) for part in parts for name in fields_of(type(part))}

    def replace(self, **changes: Any) -> Config:
        """A copy in which the fields named have other values, whichever part they belong to."""
        parts = {}
        for key in ("choice", "problem", "loop", "links", "privacy", "algorithm"):
            part = getattr(self, key)
            own = {name: value for name, value in changes.items() if name in fields_of(type(part))}
            parts[key] = dataclasses.replace(part, **own) if own else part
        return Config(**parts)


# These may differ between a run and its continuation: none of them changes what an iteration computes.
FREE_ON_RESUME = frozenset(
    {
        *("iterations", "stop_tolerance", "time_limit", "strict", "stall_timeout", "observe", "progress"),
        *("yield", "out", "force", "checkpoint_every", "resume", "dry_run"),
    }
)
