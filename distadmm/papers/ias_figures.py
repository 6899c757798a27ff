"""The figures of Jin and Lai's Section IV from their rows: panels, what the paper says, and numbers in a table."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from distadmm.graphs.figures import grouped
from distadmm.papers.command import table
from distadmm.papers.ias import EPS, RHO, ROUNDING, beta_glob
from distadmm.papers.panels import Figure, Line, Panel, Row, Verdict, column, falls, level, rises, settles

Told = Iterator[Verdict]


def _each_beta(
    rows: list[Row], x: str, y: str, lines: Callable[[list[Row]], list[Line]], **how: object
) -> list[Panel]:
    """A panel for each beta; one above beta_glob says that nothing can be gained there."""
    found = []
    for (beta,), own in grouped(rows, "beta").items():
        trivial = " (nothing can be gained)" if beta >= max(map(beta_glob, ("js", "lc"))) else ""
        found.append(Panel(f"beta = {beta:g}{trivial}", x, y, lines(own), **how))  # type: ignore[arg-type]
    return found


def _by(rows: list[Row], x: str, y: str, *keys: str, label: str, style: str = "-") -> list[Line]:
    """A line for each value of `keys`."""
    groups = grouped(rows, *keys).items()
    return [Line(label.format(*key), column(own, x), column(own, y), style) for key, own in groups]


def _table_i(rows: list[Row], *keys: str) -> Iterator[str]:
    """The last row of every curve."""
    yield from table(rows[0], [own[-1].values() for own in grouped(rows, *keys).values()])


def _note(rows: list[Row], *measures: str) -> Iterator[str]:
    yield (
        "Stand-in: P_{Y|S} of the paper's Fig. 1 is drawn, not printed; used here are three bells of width 1.2 at "
        f"1.5, 4.5, 7.5 on |Y| = 10, P_S uniform (`gauss`), eps = {EPS:g}, rho = {RHO:g}, natural logarithms: the "
        "paper states none of them.  Its numbers cannot be compared; its statements can."
    )
    for measure in measures:
        for beta in dict.fromkeys(row["beta"] for row in rows):
            if beta >= (glob := beta_glob(measure)):
                yield (
                    f"\nbeta = {beta:g} is above beta_glob = {glob:.4g} ({measure}) of this table: the best mapping "
                    "says nothing and F* = 0."
                )
    yield ""


# -- Fig. 1 -----------------------------------------------------------------------------------------------------


def _bells(rows: list[Row]) -> list[Panel]:
    lines = _by(rows, "y", "p", "s", label="s = {}", style="o-")
    return [Panel("stand-in for the paper's Fig. 1", "y", "p(y|s)", lines, whole=True)]


def _distribution(rows: list[Row]) -> Told:
    """What the text says of it, which is all that can be checked."""
    each = grouped(rows, "s").values()
    sums = [float(column(own, "p").sum()) for own in each]
    sized = len(each) == 3 and all(len(own) == 10 for own in each)
    apart = len({int(column(own, "p").argmax()) for own in each}) == len(each)
    seen = f"{len(each)} rows of {len(next(iter(each)))}, sums {', '.join(f'{s:.6f}' for s in sums)}"
    holds = sized and apart and np.allclose(sums, 1) and bool((column(rows, "p") >= 0).all())
    yield Verdict("P_{Y|S} has three rows of ten probabilities, with their peaks apart", holds, seen)


# -- Figs. 2, 3, 7: Algorithm 1 ----------------------------------------------------------------------------------


def _inner(rows: list[Row]) -> list[Panel]:
    names = (("F", "F of the mapping"), ("F_admm", "F with the ADMM's own P_U"), ("delta_l1", "|delta|_1"))

    def lines(own: list[Row]) -> list[Line]:
        return [
            Line(f"{label}, {sign}", column(part, "step"), column(part, name), style, hue=name)
            for (sign,), part in grouped(own, "sign").items()
            for name, label in names
            for style in ("-" if sign == "corrected" else ":",)
        ]

    return _each_beta(rows, "inner iteration", "value (linear below 0.1)", lines, yscale="symlog", whole=True)


def _inner_says(rows: list[Row]) -> Told:
    for (beta, sign), own in grouped(rows, "beta", "sign").items():
        F, last = column(own, "F_admm"), own[-1]
        feasible = last["delta_l1"] < 1e-2
        of = f"beta {beta:g}, {'(19) corrected' if sign == 'corrected' else '(19) as printed'}"
        holds, down = rises(F, 1e-9) and feasible, int((np.diff(F) < -1e-9).sum())
        yield Verdict(f"F increases during the inner loop, {of}", holds, f"it fell in {down} steps")
        seen = f"F {F[min(19, len(F) - 1)]:.5f} after 20 steps, {F[-1]:.5f} after {len(F)}"
        seen += f"; |delta|_1 {last['delta_l1']:.2g}"
        settled = settles(F, 19, 0.01) and len(F) > 20 and feasible
        yield Verdict(f"and converges within 20, {of}", settled, seen)


def _outer(rows: list[Row]) -> list[Panel]:
    def lines(own: list[Row]) -> list[Line]:
        found = _by(own, "step", "F", "measure", label="Algorithm 1, {}", style="o-")
        parts = grouped(own, "measure").items()
        ends = [level(f"optimum, {measure}", part[0]["optimum"]) for (measure,), part in parts]
        return [*found, *(line._replace(hue=first.label) for first, line in zip(found, ends))]

    return _each_beta(rows, "outer iteration", "F", lines, whole=True)


def _outer_says(rows: list[Row]) -> Told:
    for (measure, beta), own in grouped(rows, "measure", "beta").items():
        F, best = column(own, "F"), own[0]["optimum"]
        down = int((np.diff(F) < -1e-9).sum())
        said = f"F increases with the outer iterations, {measure}, beta {beta:g}"
        yield Verdict(said, rises(F, 1e-9), f"it fell in {down} of {len(F) - 1} steps")
        near = settles(F, 3 * len(F) // 4, 0.01) and abs(best - F[-1]) <= 0.01 * abs(F[-1] - F[0])
        seen = f"{F[0]:.5f} to {F[-1]:.6f} in {len(F) - 1}; optimum {best:.6f}"
        yield Verdict(f"and converges within 20, {measure}, beta {beta:g}", near and len(F) <= 21, seen)


def _almost_the_same(rows: list[Row]) -> Told:
    yield from _outer_says(rows)
    for (beta,), own in grouped(rows, "beta").items():
        js, lc = (column(part, "F") for part in grouped(own, "measure").values())
        progress = [(F - F[0]) / (F[-1] - F[0]) if F[-1] != F[0] else F * np.nan for F in (js, lc)]
        apart = float(np.abs(progress[0] - progress[1]).max())
        seen = f"share of the way done at a step differs by up to {apart:.2f}"
        alike = apart <= 0.05 and rises(js, 1e-9) and rises(lc, 1e-9)
        yield Verdict(f"js and lc converge alike, beta {beta:g}", alike, seen)


# -- Figs. 4, 5: gradient ascent ---------------------------------------------------------------------------------


def _gradient(rows: list[Row]) -> list[Panel]:
    def lines(own: list[Row]) -> list[Line]:
        found = _by(own, "iteration", "F", "alpha", "projection", label="step {:g}, {}")
        return [*found, level("optimum", own[0]["optimum"])]

    return _each_beta(rows, "iteration", "F", lines)


def _gradient_says(rows: list[Row]) -> Told:
    for (beta, alpha, projection), own in grouped(rows, "beta", "alpha", "projection").items():
        F, of = column(own, "F"), f"beta {beta:g}, {projection}"
        if alpha == 1e-4:
            said = f"gradient ascent fails to keep increasing at step 1e-4, {of}"
            drops = int((np.diff(F) < -ROUNDING).sum())
            yield Verdict(said, drops > 0, f"F fell {drops} times")
        if alpha == 5e-5:
            seen = f"F {F[3 * len(F) // 4]:.5f} at three quarters of the way, {F[-1]:.5f} at the end"
            seen += f"; optimum {own[0]['optimum']:.5f}"
            settled = rises(F) and settles(F, 3 * len(F) // 4, 0.01)
            yield Verdict(f"it converges at step 5e-5, {of}", settled, seen)
            less, still = F[-1] < own[0]["optimum"] - 1e-4, "" if settled else "it has not converged"
            yield Verdict(f"to less than the optimum, {of}", settled and less, seen, still)


# -- Fig. 6 ---------------------------------------------------------------------------------------------------


def _leakage(rows: list[Row]) -> list[Panel]:
    ends = []
    for (method,), own in grouped(rows, "method").items():
        beta, mean, least, most = (column(own, of) for of in ("beta", "E_mean", "E_least", "E_most"))
        ends.append(Line(method, beta, mean, "o-", least, most))
    counted = _by(rows, "beta", "E_as_counted_in_the_paper", "method", label="{}", style="o-")
    return [
        Panel("E[d] where the run ended, mean and range", "beta", "E[d(y,u)]", ends),
        Panel("a run that did not settle counted as 1", "beta", "E[d(y,u)]", counted),
    ]


def _leakage_says(rows: list[Row]) -> Told:
    ours: list[tuple[str, list[Row]]] = []
    climbs: list[tuple[str, list[Row]]] = []
    for (method,), own in grouped(rows, "method").items():
        (climbs if method.startswith("GA") else ours).append((method, own))
    for method, own in ours:
        E = column(own, "E_mean")
        seen = ", ".join(f"{row['beta']:g}: {row['E_mean']:.3f}" for row in own)
        yield Verdict(f"E[d] falls as beta rises ({method})", falls(E, 1e-3), seen)
    algorithm = dict(ours)["Algorithm 1"]
    best = {row["beta"]: row["E_mean"] for row in algorithm}
    likewise = column(algorithm, "E_as_counted_in_the_paper")
    none = "Algorithm 1 did not settle everywhere in the steps allowed, and counts as 1 there too"
    if all(row["settled"] == row["runs"] for row in algorithm):
        none = ""
    for method, own in climbs:
        counted = column(own, "E_as_counted_in_the_paper")
        many = sum(row["settled"] < row["runs"] for row in own)
        said = f"counted as in the paper, it falls with Algorithm 1 and not with gradient ascent ({method})"
        holds = falls(likewise, 1e-3) and not falls(counted, 1e-3)
        seen = f"{likewise[0]:.3f} to {likewise[-1]:.3f}; {counted[0]:.3f} to {counted[-1]:.3f}"
        yield Verdict(said, holds, seen, none)
        said = f"gradient ascent diverges for many beta ({method})"
        yield Verdict(said, 2 * many >= len(own), f"not all runs settled for {many} of {len(own)}")
        settled = [row for row in own if row["settled"] == row["runs"]]
        weaker = [row["beta"] for row in settled if row["E_mean"] > best[row["beta"]] + 1e-3]
        said = f"where it settles it protects less ({method})"
        nowhere = "" if settled else "it settled in all runs at no beta here"
        seen = f"at {len(weaker)} of {len(settled)} beta"
        yield Verdict(said, bool(weaker) and len(weaker) == len(settled), seen, nowhere)


def _leakage_words(rows: list[Row]) -> Iterator[str]:
    yield from _note(rows, "js")
    yield "Settled means: gba gained less than 1e-9 in ten steps, gradient ascent moved less than 1e-5 (the paper's"
    yield "rule), Algorithm 1 met its rule within the 600 steps allowed; it costs hundreds of times as much as gba, so"
    yield "it is run from fewer starts.  For a method that reaches the optimum E[d] must fall with beta.\n"
    yield from table(rows[0], [row.values() for row in rows])


# -- Fig. 8, Table I ----------------------------------------------------------------------------------------------


def _alphabet(rows: list[Row]) -> list[Panel]:
    lines = _by(rows, "U", "F", "beta", "Y", label="beta {:g}, |Y| {}", style="o-")
    return [Panel("", "|U|", "best F found", lines, whole=True)]


def _alphabet_says(rows: list[Row]) -> Told:
    for (beta, n_y), own in grouped(rows, "beta", "Y").items():
        F, U = column(own, "F"), column(own, "U")
        if np.ptp(F) <= 1e-9:  # nothing to gain at this beta, with any |U|
            continue
        enough = F[max(7.0, 0.8 * n_y) >= U if n_y == 10 else 0.8 * n_y + 1 >= U].max()
        of, seen = f"beta {beta:g}, |Y| {n_y}", ", ".join(f"{u}: {value:.5f}" for u, value in zip(U, F))
        yield Verdict(f"F grows with |U|, {of}", rises(F, 1e-6), seen)
        said = f"little beyond |U| = {'7' if n_y == 10 else '0.8 |Y|'}, {of}"
        little = enough >= 0.99 * F.max() and F[0] < 0.5 * F.max()
        yield Verdict(said, little, f"{enough:.5f} of {F.max():.5f}")


def _alphabet_words(rows: list[Row]) -> Iterator[str]:
    yield from _note(rows, "js")
    yield "beta is not stated in the paper.  |U| = |Y| is always enough: the optimum is a point of a concave envelope"
    yield "over posteriors of |Y| values.\n"
    yield from _table_i(rows, "beta", "Y")


def _ends(rows: list[Row]) -> list[Panel]:
    def lines(own: list[Row]) -> list[Line]:
        steps = [row for row in own if row["alpha"]]
        ends = [row for row in own if not row["alpha"]]
        rest = [level(row["method"], row["F"], style) for row, style in zip(ends, ("--", ":"))]
        return [*_by(steps, "alpha", "F", "method", label="{}", style="o-"), *rest]

    return _each_beta(rows, "step size alpha", "F at the end, Le Cam", lines)


def _ends_says(rows: list[Row]) -> Told:
    for (beta,), own in grouped(rows, "beta").items():
        (admm,) = (row["F"] for row in own if row["method"] == "Algorithm 1")
        climbs = [row for row in own if row["alpha"]]
        best, worst = (end(row["F"] for row in climbs) for end in (max, min))
        seen = f"{admm:.6f} against {worst:.6f} to {best:.6f}"
        said = f"Algorithm 1 ends above gradient ascent at every step, beta {beta:g}"
        yield Verdict(said, admm > best + 1e-6, seen)
        low = all(row["F"] < -0.2 for row in climbs if row["alpha"] < 0.2)
        yield Verdict(f"which ends below -0.2 at steps of 0.05 to 0.15, beta {beta:g}", low, seen)
        last = [row for row in climbs if row["alpha"] == 0.2]
        drops = ", ".join(f"{row['method']}: fell {row['drops']} times" for row in last)
        diverges = bool(last) and all(not row["settled"] and row["drops"] > 0 for row in last)
        yield Verdict(f"and diverges at 0.2, beta {beta:g}", diverges, drops or "not run")


def _figure(
    panels: Callable[[list[Row]], list[Panel]],
    says: Callable[[list[Row]], Told],
    measures: Iterable[str],
    *keys: str,
) -> Figure:
    def words(rows: list[Row]) -> Iterator[str]:
        yield from _note(rows, *measures)
        yield from _table_i(rows, *keys)

    return Figure(panels, says, words)


FIGURES = {
    "1": _figure(_bells, _distribution, (), "s"),
    "2": _figure(_inner, _inner_says, ["js"], "beta", "sign"),
    "3": _figure(_outer, _outer_says, ["js"], "measure", "beta"),
    "4": _figure(_gradient, _gradient_says, ["js"], "beta", "alpha", "projection"),
    "5": _figure(_gradient, _gradient_says, ["js"], "beta", "alpha", "projection"),
    "6": Figure(_leakage, _leakage_says, _leakage_words),
    "7": _figure(_outer, _almost_the_same, ["js", "lc"], "measure", "beta"),
    "8": Figure(_alphabet, _alphabet_says, _alphabet_words),
    "table1": _figure(_ends, _ends_says, ["lc"], "beta", "method", "alpha"),
}
