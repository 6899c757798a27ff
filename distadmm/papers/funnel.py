"""The two figures of the privacy funnel paper (Chen, Ye, Wu, Wu, Wu and Zhang, 2024), made again.

python -m distadmm reproduce funnel --out DIR                    both figures; some minutes
python -m distadmm reproduce funnel --figure 1

Figure 1: synthetic distribution, uniform and non-uniform P(x).  Figure 2: heart failure and census income.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from distadmm.data import joint as tables
from distadmm.flags import again, flag, flag_group
from distadmm.graphs.figures import grouped
from distadmm.methods.funnel import literal, perfect
from distadmm.methods.funnel.curve import curve
from distadmm.methods.funnel.model import Joint, of_table
from distadmm.methods.funnel.report import CLOSE
from distadmm.methods.funnel.solvers import FEASIBLE, Effort, channels, pieces
from distadmm.papers.command import Made, reproduce, table
from distadmm.papers.panels import Figure, Line, Panel, Row, Verdict, column, rises
from distadmm.ranks.world import World
from distadmm.run.groups import Output

PROBLEMS = {"1": ("synthetic-unif", "synthetic-nonunif"), "2": ("heart", "adult")}
TITLES = {
    "synthetic-unif": "uniform P(x)",
    "synthetic-nonunif": "non-uniform P(x)",
    "heart": "heart failure clinical records",
    "adult": "census income",
}
PERTURBED = {"heart": 1e-3, "adult": 1e-3}  # the paper's "perturbation of 1e-3 to each entry"
CENSUS = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
LARGE = 50  # symbols of X from which a problem counts as large
ENDS, DC_ENDS = "DRS, every end point", "DC, every end point"


@flag_group("reproduce funnel")
class Options(Output):
    figure: str = flag("all", choices=("1", "2", "all"), help="which figure of the paper")
    points: int = flag(20, help="R on each curve, evenly up to H(X); census income has its own", at_least=2)
    restarts: int = again(
        Effort, "restarts", note=": AEM for each R, as in the paper; a tenth on census income"
    )
    repeats: int = flag(2, help="runs of lp; one on census income", at_least=1)
    seed: int = flag(0, help="seed of all random choices", at_least=0)
    quick: bool = flag(False, help="4 points, 3 trials, coarse grids; said on the figure")

    def effort(self) -> Effort:
        if self.quick:
            return Effort(restarts=3, repeats=1, seed=self.seed)
        return Effort(restarts=self.restarts, repeats=self.repeats, seed=self.seed)


def panel(name: str, options: Options, world: World) -> list[Row]:
    """All methods on one problem, on rank 0."""
    joint = world.on_root(lambda: of_table(tables.problem(name), perturb=PERTURBED.get(name, 0.0)))
    large, points = joint.M > LARGE, 4 if options.quick else options.points
    shares = CENSUS[:: 3 if options.quick else 1] if large else np.arange(1, points + 1) / points
    rates = [min(float(share) * joint.HX, joint.HX) for share in shares]
    effort = options.effort()
    if large:
        effort = replace(effort, restarts=max(1, effort.restarts // 10), repeats=1)
    known = world.on_root(lambda: perfect.solve(joint, effort.seed))
    fixed = {"problem": name, "H_X": joint.HX, "I_SX": joint.ISX, "R0": known.R0, "R0_exact": known.exact}
    rows: list[Row] = []

    def add(method: str, R: float, leak: float, told: float, lower: float, reached: bool, note: str) -> None:
        rest = {"I_SY": leak, "I_XY": told, "lower_bound": lower, "reached": reached, "note": note}
        rows.append({**fixed, "method": method, "R": R, "R_over_HX": R / joint.HX, **rest})

    for method in ("lp", "aem", "greedy"):
        for one in curve(joint, rates, method, effort=effort, world=world, known=known) or []:
            # A baseline that does not reach R has no point there.
            reached = bool(one.converged or one.iterations)
            add(method, one.R, one.leakage, one.disclosure, one.lower, reached, one.note)
    for method, all_ends in (("drs", ENDS), ("dc", DC_ENDS)):
        ends = _end_points(method, joint, effort, world, options.quick) or []
        for R in rates if ends else ():
            enough = [(leak, told) for told, leak in ends if told >= R - FEASIBLE]
            leak, told = min(enough, default=(float("nan"), float("nan")))
            add(method, R, leak, told, 0.0, bool(enough), f"{len(enough)} of {len(ends)} end points")
        for told, leak in ends:
            add(all_ends, float("nan"), leak, told, 0.0, True, "")
    return rows


def _end_points(
    method: str, joint: Joint, effort: Effort, world: World, quick: bool
) -> list[tuple[float, float]] | None:
    """I(X;Y) and I(S;Y) of every end point of a method that serves all R, on rank 0."""

    def ends(number: int) -> list[tuple[float, float]]:
        return [(one.told, one.leak) for one in channels(joint, method, 0.0, number, effort)]

    numbers = [piece.number for piece in pieces(joint, method, 1, effort)]
    parts = world.share_out(ends, numbers[:: 6 if quick else 1])
    return None if parts is None else [point for part in parts for point in part]


STYLES = {
    "lp": ("-", "linear program over posteriors (this project)", "default"),
    "aem": ("--", "AEM, best of the trials", "default"),
    "drs": ("-", "DRS, best end point for each R", "steps-pre"),
    "dc": ("--", "DC steps, best end point for each R", "steps-pre"),
    "greedy": ("-.", "greedy merging", "steps-pre"),
}


def _panels(rows: list[Row]) -> list[Panel]:
    found = []
    for (name,), own in grouped(rows, "problem").items():
        by, first = grouped(own, "method"), own[0]
        dots = (("ms", 2), ("alpha", 0.25))
        lines = [
            Line(label, column(by[(label,)], "I_XY"), column(by[(label,)], "I_SY"), "o", more=dots)
            for label in (ENDS, DC_ENDS)
        ]
        for method, (style, label, steps) in STYLES.items():
            kept = [row for row in by.get((method,), []) if row["reached"]]
            how = (("drawstyle", steps),)
            lines.append(Line(label, column(kept, "R"), column(kept, "I_SY"), style, more=how))
        corner = "I(X;Y) = H(X), I(S;Y) = I(S;X)"
        star = (("color", "black"), ("mfc", "black"), ("marker", "*"), ("ms", 8))
        lines.append(Line(corner, [first["H_X"]], [first["I_SX"]], "o", more=star))
        if first["R0"] > 0:
            label, style = "perfect privacy at least", ":"
            if first["R0_exact"]:
                label, style = "R0: perfect privacy up to here", "-"
            bare = (("color", "0.6"), ("marker", ""))
            lines.append(Line(label, [first["R0"]] * 2, [0, first["I_SX"]], style, more=bare))
        found.append(Panel(TITLES[name], "R, bound on I(X;Y) (nats)", "I(S;Y) (nats)", lines))
    return found


def _parts(rows: list[Row]) -> Iterator[tuple[str, Row, dict[str, list[Row]]]]:
    for (name,), own in grouped(rows, "problem").items():
        yield TITLES[name], own[0], {method: part for (method,), part in grouped(own, "method").items()}


def _synthetic(rows: list[Row]) -> Iterator[Verdict]:
    for title, of, by in _parts(rows):
        aem, splitting = column(by["aem"], "I_SY"), column(by["drs"], "I_SY")
        last = abs(aem[-1] - of["I_SX"]), abs(splitting[-1] - of["I_SX"])
        both = all(np.isfinite(end) and end <= 1e-3 * of["I_SX"] for end in last) and of["I_SX"] > 0
        drs = f"DRS {last[1]:.1e}" if np.isfinite(last[1]) else "DRS ended nowhere with that I(X;Y)"
        said = f"both reach I(S;Y) = I(S;X) at I(X;Y) = H(X), {title}"
        yield Verdict(said, both, f"AEM is {last[0]:.1e} off, {drs}")
        bends = [_bend(aem), _bend(splitting)]
        none = "" if np.isfinite(bends[1]) else "DRS ended at fewer than three R"
        seen = f"largest bend {bends[0]:.4f} and {bends[1]:.4f}"
        holds = bends[0] < bends[1] and rises(aem, 1e-6)
        yield Verdict(f"AEM's curve is the smoother one, {title}", holds, seen, none)
        yield _worse(title, by, of, 0.1)


def _bend(values: np.ndarray) -> float:
    """The largest second difference between R that were reached."""
    there = values[np.isfinite(values)]
    return float(np.abs(np.diff(there, n=2)).max()) if there.size > 2 else float("nan")


def _worse(title: str, by: dict[str, list[Row]], of: Row, share: float) -> Verdict:
    aem, splitting = column(by["aem"], "I_SY"), column(by["drs"], "I_SY")
    worse = ~(splitting <= aem + 0.01 * of["I_SX"])  # DRS that does not reach R at all counts
    missed = np.isnan(splitting)
    seen = (
        f"it leaks at least 1 % of I(S;X) more at {(worse & ~missed).sum()} of {len(worse)} R, and ended nowhere with "
        f"that R at {missed.sum()}"
    )
    holds = bool(worse.mean() >= share and rises(aem, 1e-6))
    return Verdict(f"DRS is worse over a range of disclosures, {title}", holds, seen)


def _real(rows: list[Row]) -> Iterator[Verdict]:
    for title, of, by in _parts(rows):
        aem = by["aem"]
        silent = max((row["R_over_HX"] for row in aem if row["I_SY"] <= 0.01 * of["I_SX"]), default=0.0)
        holds = 0.5 <= silent < 1 and rises(column(aem, "I_SY"), 1e-4)
        seen = f"I(S;Y) is at most 1 % of I(S;X) up to R = {silent:.2f} H(X)"
        yield Verdict(f"AEM reaches almost perfect privacy over a wide range of R, {title}", holds, seen)
        yield _worse(title, by, of, 0.2)


HEAD = """All numbers are in nats. AEM is run in logarithms with Lambda = max(0, root) from feasible starts, because
Algorithm 1 as printed cannot be run. DRS is this project's implementation of Huang, El Gamal and El Gamal (2022):
28 multipliers, 3 penalties, one step for all entries or one a row, 6 starts each, every end point counted; a run of
it ends where no step keeps all probabilities within [0, 1]. DC steps are a rival that the paper leaves out as well,
after Huang and El Gamal's An Efficient Difference-of-Convex Solver for Privacy Funnel (2024), of which the abstract
alone was at hand: the closed form is derived here; 28 multipliers, 6 starts each. The paper does not print its
settings, nor numbers."""
DATA = """
The paper's age bins are not printed; used here: <30, 30-39, 40-49, 50-59, >=60. It adds 1e-3 to each entry of the
*normalised* table, which for census income is 52 100 pseudo-counts in all against 32 561 people: the curve is mostly
that of the perturbation. It is kept here to match the figure; the package's default adds nothing."""


def _words(rows: list[Row]) -> Iterator[str]:
    yield HEAD
    for (name,), own in grouped(rows, "problem").items():
        by, of = {method: part for (method,), part in grouped(own, "method").items()}, own[0]
        kind = "exactly" if of["R0_exact"] else "at least (search)"
        yield f"\n## {TITLES[name]}\n\nH(X) = {of['H_X']:.5g}, I(S;X) = {of['I_SX']:.5g}, R0 = {of['R0']:.5g} {kind}."
        best, excess = by["lp"], column(by["aem"], "I_SY") - column(by["lp"], "I_SY")
        worst = int(np.argmax(excess))
        yield f"AEM's best is above the linear program by at most {excess[worst]:.1e}, at R/H(X) ="
        yield f"{best[worst]['R_over_HX']:.3f}; by {np.median(excess):.1e} in the median over R.\n"
        head = ("R/H(X)", *STYLES, "proven lower bound", "hits of AEM within 1e-4 of its best")
        yield from table(head, (_line(by, k) for k in range(len(best))))
        if name in PROBLEMS["1"]:
            yield from _printed(name)
    if any(row["problem"] in PERTURBED for row in rows):
        yield DATA


def _line(by: dict[str, list[Row]], k: int) -> Iterator[str]:
    """One R: what each method reached, and what is proved."""
    one, note = by["lp"][k], by["aem"][k]["note"]
    yield f"{one['R_over_HX']:.3f}"
    for at in (by[method][k] for method in STYLES):
        yield f"{at['I_SY']:.6f}" if at["reached"] else "none reaches R"
    yield f"{one['lower_bound']:.6f}" + (" (optimal)" if one["I_SY"] - one["lower_bound"] <= CLOSE else "")
    yield note.split(" within")[0] if " within" in note else "-"


def _printed(name: str) -> Iterator[str]:
    joint = of_table(tables.problem(name))
    yield f"\nAlgorithm 1 as printed (refuted), {TITLES[name]}, R = H(X)/2:\n"
    for reading, outcome in literal.report(joint, 0.5 * joint.HX, joint.M + 1, 500):
        value = "" if np.isnan(outcome.value) else f" I(S;Y) = {outcome.value:.6f};"
        yield f"- {reading}:{value} {outcome.what}"


FIGURES = {"1": Figure(_panels, _synthetic, _words), "2": Figure(_panels, _real, _words)}


def figures(options: Options, world: World) -> Iterator[Made]:
    title = "The privacy funnel: figure {} of Chen, Ye, Wu, Wu, Wu and Zhang (2024), made again"
    for figure in PROBLEMS if options.figure == "all" else (options.figure,):
        parts = [panel(name, options, world) for name in PROBLEMS[figure]]
        yield f"figure-{figure}", title.format(figure), FIGURES[figure], parts


main = reproduce("funnel", __doc__, Options, figures)
