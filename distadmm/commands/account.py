"""What a mechanism costs, before anything is run: epsilon at delta by every bound that is proved for it.

Without flags it is the setting of the R-ADMM paper's experiments.

python -m distadmm account --mechanism gaussian --sigma 10    Gaussian objective perturbation
python -m distadmm account --mechanism gamma --epsilon 2 --adjacency replace --count 25
                                                              the largest alpha that spends at most 2
python -m distadmm account --mechanism masked --nodes 20 --trust coalition:5 --epsilon 1 --adjacency replace
                                                              masked sums, against other numbers of colluders

gamma, gaussian                 objective perturbation: linear noise in the objective (private ADMM, R-ADMM)
output-gamma, output-gaussian   noise on the released minimiser
k-norm, gaussian-query          noise on any query of stated l2 sensitivity
discrete-gaussian               the same on an integer grid
pure                            any epsilon-DP mechanism
masked                          sums under pairwise masks, within a budget for one number of colluders"""

import json as json_
import math
import textwrap
from dataclasses import asdict
from typing import Any

from distadmm.errors import require
from distadmm.files import finite
from distadmm.flags import again, flag, flag_group, option
from distadmm.privacy.accounting import accountant, gaussian
from distadmm.privacy.accounting.accountant import ADJACENCIES
from distadmm.privacy.accounting.events import Adjacency, Event, Gaussian
from distadmm.privacy.accounting.schedule import MOST_PRICED
from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of, least_roster
from distadmm.privacy.accounting.shared_discrete_gaussian import table as shares_of
from distadmm.privacy.accounting.statements import EXACT, NOT_COVERED, exactly, held, rounded_up
from distadmm.privacy.accounting.trust import ANY, Trust
from distadmm.ranks.launch import say
from distadmm.run.groups import Shared

PROG = "distadmm account"

# Which flags a mechanism takes, with the value when the flag is not given; the numbers are the R-ADMM paper's.
_PROBLEM = {"C": 1750.0, "B": 8000.0, "rho": 1.0, "nodes": 5, "eta": 1.0, "degree": 4, "floor": None}
_SOLVED: dict[str, Any] = {**_PROBLEM, "curvature": 0.25, "output_epsilon": 0.0, "loss": "logistic"}
TAKES: dict[str, dict[str, Any]] = {
    "gamma": {"dimension": 105, "alpha": 1.0, **_SOLVED},
    "gaussian": {"dimension": 105, "sigma": None, **_SOLVED},
    "output-gamma": {"dimension": 105, "alpha": 1.0, **_PROBLEM},
    "output-gaussian": {"dimension": 105, "sigma": None, **_PROBLEM},
    "k-norm": {"dimension": 105, "alpha": 1.0, "sensitivity": None},
    "gaussian-query": {"noise_multiplier": None},
    "discrete-gaussian": {"dimension": 1, "sigma": None, "sensitivity": None},
    "pure": {"each": None},
    "masked": {"nodes": 20, "trust": None, "min_roster": None},
}
R_O_R = "PLD, R o R"
NAMES = {"add-remove": "add/remove", "replace": "replace-one", "label": "label only"}


@flag_group("mechanism")
class Options:
    mechanism: str = flag("gamma", help="what adds the noise", choices=tuple(TAKES))
    dimension: int | None = flag(
        None, help="number of coordinates that carry noise (105; discrete: 1)", at_least=1
    )
    alpha: float | None = flag(None, help="gamma noise: density proportional to exp(-alpha |b|) (1)", above=0)
    sigma: float | None = flag(
        None, help="Gaussian noise: standard deviation (discrete: in grid units)", above=0
    )
    noise_multiplier: float | None = flag(None, help="gaussian-query: sigma / sensitivity", above=0)
    sensitivity: float | None = flag(
        None, help="k-norm, discrete-gaussian: l2 sensitivity (grid units)", above=0
    )
    each: float | None = flag(None, help="pure: epsilon of one release", above=0)
    C: float | None = flag(None, help="weight of a node's loss: one record weighs C/B (1750)", above=0)
    B: float | None = flag(None, help="records of the node, as a public number (8000)", above=0)
    curvature: float | None = flag(None, help="c1, the largest curvature of the loss (1/4)", above=0)
    rho: float | None = flag(None, help="weight of the regulariser (1)", above=0)
    nodes: int | None = flag(None, help="number of nodes N (5)", at_least=1)
    trust: str | None = again(Shared, "trust", note="; masked")
    min_roster: int | None = flag(
        None, help="masked: the run ends when fewer nodes are left (N - N/10)", at_least=1
    )
    eta: float | None = flag(None, help="penalty eta (1)", above=0)
    degree: int | None = flag(None, help="neighbours V of the node (4)", at_least=1)
    floor: float | None = flag(None, help="Phi = rho/N + 2 eta V itself, instead of these four", above=0)
    loss: str | None = flag(
        None,
        help="logistic; one-signed: another loss whose slope has one sign for each record; any: |slope| <= 1",
        choices=("logistic", "one-signed", "any"),
    )
    output_epsilon: float | None = flag(
        None, help="what the output noise of an inexact solve costs (0)", at_least=0
    )
    count: int = flag(50, help="releases: K solves, or queries", at_least=1)
    delta: float = flag(1e-5, help="delta of the (epsilon, delta) statements", at_least=0, below=1)
    adjacency: str | None = flag(None, help="one only (default: all)", choices=(*ADJACENCIES, "node"))
    records: int = flag(1, help="records of one person at this node (group privacy)", at_least=1)
    epsilon: float | None = flag(
        None, help="find the noise that spends this; needs --adjacency", above=0, at_most=1e15
    )
    json: bool = flag(False, help="print one JSON object instead of a table")

    def __post_init__(self) -> None:
        takes = TAKES[self.mechanism]
        known = ", ".join(map(option, takes))
        for name in sorted({n for defaults in TAKES.values() for n in defaults}):
            require(
                getattr(self, name) is None or name in takes,
                f"{option(name)} means nothing for --mechanism {self.mechanism}; it takes: {known}",
            )
        require(
            self.epsilon is None or self.adjacency is not None,
            f"--epsilon needs --adjacency, for there is no default; choose one of {', '.join(ADJACENCIES)}",
        )
        own = self.adjacency != "node" or self.mechanism == "masked"
        require(own, f"--adjacency node: {self.mechanism} has no price for it; choose --mechanism masked")
        require(
            self.mechanism != "masked" or (self.epsilon and self.delta and self.trust),
            "--mechanism masked needs --epsilon, --adjacency and --trust: what is to be spent, and against whom",
        )

    def value(self, name: str) -> Any:
        """A flag, or its default for this mechanism."""
        given = getattr(self, name)
        found = TAKES[self.mechanism][name] if given is None else given
        require(found is not None or name == "floor", f"--mechanism {self.mechanism} needs {option(name)}")
        return found

    @property
    def weight(self) -> float:
        return self.value("C") / self.value("B")

    @property
    def phi(self) -> float:
        """The curvature that every record's objective has at least."""
        floor = self.value("floor")
        if floor is not None:
            return floor
        return self.value("rho") / self.value("nodes") + 2 * self.value("eta") * self.value("degree")


def _solves(o: Options) -> dict[str, Any]:
    """What objective perturbation is told of the problem and its solves, beside the noise."""
    return {
        "dimension": o.value("dimension"), "weight": o.weight, "curvature": o.value("curvature"), "floor": o.phi,
        "count": o.count, "noise": o.mechanism, "output_epsilon": o.value("output_epsilon"),
        "one_signed": o.value("loss") != "any", "logistic": o.value("loss") == "logistic",
    }  # fmt: skip


def event(options: Options, adjacency: Adjacency) -> Event:
    """The event of these flags; output perturbation moves by an amount that depends on the adjacency."""
    o, mechanism = options, options.mechanism
    if mechanism in ("gamma", "gaussian"):
        scale = o.value("alpha" if mechanism == "gamma" else "sigma")
        return accountant.ObjectivePerturbation(scale=scale, **_solves(o))
    if mechanism in ("output-gamma", "output-gaussian"):
        noise = mechanism.removeprefix("output-")
        given = o.value("dimension"), o.value("alpha" if noise == "gamma" else "sigma"), o.weight, o.phi
        return accountant.output_perturbation(noise, *given, adjacency, o.count)
    if mechanism == "k-norm":
        return accountant.KNorm(o.value("dimension"), o.value("alpha"), o.value("sensitivity"), o.count)
    if mechanism == "gaussian-query":
        return Gaussian(o.value("noise_multiplier"), o.count)
    if mechanism == "discrete-gaussian":
        query = o.value("sigma"), o.value("sensitivity")
        return accountant.DiscreteGaussian(*query, o.count, o.value("dimension"))
    return accountant.Pure(o.value("each"), o.count)


def adjacencies(options: Options) -> tuple[Adjacency, ...]:
    """Those that are shown: the event of a plain query states its own sensitivity, so one is as good as all."""
    if options.adjacency is not None:
        return (options.adjacency,)  # type: ignore[return-value]
    if options.mechanism in ("gamma", "gaussian", "output-gamma", "output-gaussian"):
        return ADJACENCIES
    return ("replace",)


def answer(options: Options) -> dict[str, Any]:
    """Everything that is printed, as data."""
    if options.epsilon is not None:
        options = calibrated(options)
    found: dict[str, Any] = {name: getattr(options, name) for name in ("mechanism", "delta", "records")}
    found["events"], found["epsilon"] = {}, {}
    for adjacency in adjacencies(options):
        one = event(options, adjacency)
        together = one.group(options.records)
        priced = accountant.bounds(together, options.delta, adjacency)
        stated = options.mechanism == "gamma" and options.records == 1
        published = accountant.published_epsilon(one, adjacency) if stated else math.inf
        found["events"][adjacency] = one.to_json()
        earlier = accountant.r_o_r(together, options.delta, adjacency)
        more = {"published": published, "best": priced.best, "r_o_r": earlier}
        found["epsilon"][adjacency] = {**priced._asdict(), **more}
    known = options.adjacency is not None or len(found["epsilon"]) > 1
    found["adjacency"], found["trust"] = list(found["epsilon"]) if known else [], str(ANY)
    found["held"] = held(found["adjacency"], ANY)
    found["assumptions"] = assumptions(options)
    found["not_covered"] = EXACT if options.mechanism == "discrete-gaussian" else NOT_COVERED
    return found


def calibrated(options: Options) -> Options:
    """The same flags with the noise that spends at most --epsilon."""
    o = options
    assert o.epsilon is not None
    adjacency: Adjacency = adjacencies(o)[0]
    require(o.records == 1, "--epsilon finds noise for one record; leave out --records")
    require(
        o.mechanism in ("gamma", "gaussian", "gaussian-query", "discrete-gaussian"),
        f"--epsilon finds noise for gamma, gaussian, gaussian-query and discrete-gaussian; not for {o.mechanism}",
    )
    given = {k: v for k, v in asdict(o).items() if k != "epsilon"}
    budget = o.epsilon, o.delta
    if o.mechanism == "gaussian-query":
        name, found = "noise_multiplier", accountant.gaussian_noise_multiplier(*budget, o.count)
    elif o.mechanism == "discrete-gaussian":
        query = o.value("sensitivity"), o.count, o.value("dimension")
        name, found = "sigma", accountant.gaussian_discrete_sigma(*budget, *query)
    else:
        name = "alpha" if o.mechanism == "gamma" else "sigma"
        found = accountant.objective_scale(*budget, adjacency, **_solves(o))
    return Options(**{**given, name: found})


# Whose bound a line is, and what it assumes: the mechanisms that it is about, and the words.
_EXACT = ("gaussian-query", "output-gaussian")
_BOUNDS: tuple[tuple[Any, str], ...] = (
    (("gamma",), "pure: the sum of alpha Delta + ln(1 + w c1/Phi), Delta = w = C/B (replaced: 2 w; flipped logistic "
     "label: without the logarithm)"),
    (("output-gamma", "k-norm", "pure"), "pure: the sum of the epsilons of the releases"),
    (TAKES, "Renyi: Renyi curves, added and converted; also for adaptively chosen releases under a filter"),
    (_EXACT, "exact: sqrt(sum mu^2)-Gaussian privacy (Dong, Roth and Su); adaptive releases as well"),
    (TAKES, "PLD: privacy-loss distributions composed; for a schedule committed before the first release"),
)  # fmt: skip
_ASSUMED: tuple[tuple[Any, str], ...] = (
    (("k-norm", "output-gamma", "discrete-gaussian"),
     "PLD of this noise: derived for this project, not peer-reviewed"),
    (("output-gamma", "output-gaussian"),
     "assumes a convex loss with |l'| <= 1, rows of norm at most 1, Phi-strong convexity, exact solves"),
    (("k-norm", "gaussian-query", "discrete-gaussian", "pure"),
     "assumes that what is stated of one release holds for the adjacency you have in mind"),
)  # fmt: skip
_REPLACED = (
    "PLD of a replaced record: the chain D, D without it, D with another, each step in its own direction, or the "
    "profile of tau + max(0, L) of a shift by 2 w where that is smaller. Committed schedules only: the pair is no "
    "filter, and no statement about data-dependent stopping, K or eta uses it. Second reading done; K > 3 and d > 2 "
    "not attacked numerically (docs/proofs/replace-one.md)",
    "Renyi of a replaced record: R o R, R the power of the best test between D and D with a record more, in either "
    "direction; or the sum of the losses tau + max(0, L) of a shift by 2 w where that is smaller",
    f"{R_O_R}: that R o R composed, for comparison in this release; what 0.1 claimed where it was the smaller",
)


def assumptions(options: Options) -> list[str]:
    """Whose bound each line is, and what it assumes."""
    mechanism, theorem = options.mechanism, "Theorem V.1 of Zhang, Khalili and Liu, Recycled ADMM"
    objective, lines = mechanism in ("gamma", "gaussian"), []
    if objective:
        # Why the paper states nothing of these flags, if so.
        moved, silent = 2 * options.value("curvature") * options.weight, ""
        if mechanism == "gaussian":
            silent = "the paper states none for Gaussian noise"
        elif options.records > 1:
            silent = "the paper states none for several records of one person"
        elif moved >= options.phi:
            silent = f"its condition fails: 2 c1 C/B = {moved:.4g} is not below Phi = {options.phi:.4g}"
        holds = f"{theorem}; exact minimisers, 2 c1 C/B < Phi, one record replaced; none is stated for groups"
        lines.append(f"published: {f'no row, because {silent} ({theorem})' if silent else holds}")
    lines += [text for of, text in _BOUNDS if mechanism in of]
    if options.count > MOST_PRICED and mechanism not in _EXACT:
        many = f"infinite above {MOST_PRICED:g} releases, where roundings may be all of a price"
        lines.append(f"Renyi, PLD: {many}")
    if objective:
        sign = "|l'| <= 1" if options.value("loss") == "any" else "l' of one sign for each record, |l'| <= 1"
        lines.append(
            f"pure, Renyi, PLD: derived for this project, not peer-reviewed; assume w = C/B public and fixed, {sign}, "
            "l'' <= c1, a loss of y x'f, rows of norm at most 1 from public constants, curvature of the rest at least "
            "Phi, fresh noise, a data-free schedule, exact solves or solves certified to a tolerance with output noise"
        )
        # Where power functions are chained, and what of that is for committed schedules alone.
        flipped = options.value("loss") == "logistic"
        replaced = any(a == "replace" or (a == "label" and not flipped) for a in adjacencies(options))
        lines += _REPLACED * replaced
        if options.records > 1:
            more = "; replaced, the swap's own R for each record" * replaced
            lines.append(f"of a group: R o ... o R, once for each record that is added or removed{more}")
    return lines + [text for of, text in _ASSUMED if mechanism in of]


ROWS = (
    ("published", "published (delta = 0)"),
    ("pure", "pure (delta = 0)"),
    ("renyi", "Renyi"),
    ("exact", "exact"),
    ("pld", "PLD"),
    ("best", "best proved"),
    ("r_o_r", f"{R_O_R} (as in 0.1)"),
)


def table(options: Options, found: dict[str, Any]) -> str:
    shown = list(found["epsilon"])
    lines = [described(found), ""]
    if options.records > 1:
        lines[-1:] = [f"for {options.records} records of one person at this node", ""]
    title = f"epsilon at delta = {exactly(options.delta)}"
    names = [NAMES[a] if len(shown) > 1 or options.adjacency else "stated sensitivity" for a in shown]
    lines.append(f"{title:<32}" + "".join(f"{name:>20}" for name in names))
    for key, label in ROWS:
        values = [found["epsilon"][a][key] for a in shown]
        if key == "best" or any(math.isfinite(v) for v in values):
            cells = [rounded_up(v) if math.isfinite(v) else "none" for v in values]
            lines.append(f"{label:<32}" + "".join(f"{cell:>20}" for cell in cells))
    notes = [found["held"], *found["assumptions"], found["not_covered"]]
    return "\n".join([*lines, "", *(textwrap.fill(note, 100, subsequent_indent="  ") for note in notes)])


def described(found: dict[str, Any]) -> str:
    """The event in one line; where the adjacency changes it, what changes is left out."""
    events = list(found["events"].values())
    same = {k: v for k, v in events[0].items() if all(e[k] == v for e in events)}
    name = same.pop("mech")
    brief = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in same.items()}
    return f"{name}: " + ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in brief.items())


def shown(options: Options) -> str:
    if options.mechanism != "masked":
        found = answer(options)
        return json_.dumps(finite(found), indent=2) if options.json else table(options, found)
    from distadmm.privacy.noise.masks import mask_degree

    n, trust = options.value("nodes"), Trust.parse(options.trust)
    c, least = colluding_of(options.trust, n), least_roster(n, options.min_roster, options.adjacency)
    mu = gaussian.mu_at(float(options.epsilon or 0.0), options.delta)
    shares = shares_of(mu, options.delta, n, c, least, mask_degree(n, c, least))
    spent = f"epsilon {exactly(options.epsilon or 0.0)} at delta {exactly(options.delta)}"
    said = f"{spent}. {held(adjacencies(options), trust)}"
    if options.json:
        told = {"epsilon_by_coalition": shares, "delta": options.delta, "trust": str(trust)}
        return json_.dumps(told | {"adjacency": adjacencies(options), "held": said}, indent=2)
    lines = [f"{size:>12}  {rounded_up(share):>10}" for size, share in shares.items()]
    return "\n".join([f"   colluding  epsilon at delta = {exactly(options.delta)}", *lines, "", said, EXACT])


main = say(PROG, __doc__, Options, shown)
