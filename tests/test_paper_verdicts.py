"""Verdicts of `reproduce` can say yes and no: each is fed curves that bear the paper out and curves that do not."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from distadmm.papers import funnel, ias_figures, istdp_figures, radmm_figures, sharing_figures
from distadmm.papers.panels import QUICK, Figure, Line, Panel, Row, drawn
from distadmm.papers.radmm import DVP, FAR, GROWTHS, HALF, OPTIMUM, PLAIN, PP

T = 50


# -- right curves -------------------------------------------------------------------------------------------------


def radmm_rows(curves: dict[tuple[str, str], dict[str, Any]]) -> list[Row]:
    """L(t) from log 2 down to `end`, with `swing` between even and odd iterations, over runs that are `range` apart."""
    rows: list[Row] = []
    for (tag, label), how in curves.items():
        for seed in range(2):
            length = how.get("length", T)
            for t in range(length + 1):
                even = how.get("swing", 0.0) * (t % 2 == 0) * (t > 0)
                L = how["end"] + (math.log(2) - how["end"]) * math.exp(-t / how.get("pace", 5)) + even
                rows.append({
                    "tag": tag, "curve": label, "nodes": 5, "seed": seed, "t": t,
                    "test_error_at_end": how.get("E", 0.16),
                    "L": L + seed * how.get("range", 0.0) * (t > 0), "P_published": how.get("P", math.nan) * t / length,
                    "epsilon_tight": how.get("P", math.nan) / 9,
                })  # fmt: skip
    return rows


def radmm_1a() -> list[Row]:
    gammas = {0: (0.3400, 0.02), 0.5: (0.3401, 0.01), 5: (0.3410, 0.002), 50: (0.3420, 0.0)}
    made = {(tag, "ADMM"): {"end": 0.34} for tag in ("N = 5",)}
    made |= {("N = 5", f"R-ADMM, gamma = {g:g}"): {"end": e, "swing": s} for g, (e, s) in gammas.items()}
    return radmm_rows(made)


def radmm_1c() -> list[Row]:
    made: dict[tuple[str, str], dict[str, Any]] = {("", OPTIMUM): {"end": 0.34, "pace": 0.1, "length": 8}}
    for at, label in enumerate(["R-ADMM", *(f"q = {q}" for q in GROWTHS)]):
        made["", label] = {"end": 0.34, "pace": 6 + at, "length": FAR}
    return radmm_rows(made)


def radmm_2() -> list[Row]:
    return radmm_rows(
        {
            ("", f"{rho:g}"): {"end": 0.34, "E": 0.16 + 0.01 * abs(math.log(rho / 0.22))}
            for rho in (0.001, 0.05, 0.22, 30)
        }
    )


def radmm_3() -> list[Row]:
    made = {("", PLAIN): {"end": 0.34}}
    for tag in ("alpha = 1", "alpha = 2"):
        made |= {(tag, f"gamma {g}"): {"end": 0.4 + 0.001 * g, "E": 0.18 + 0.001 * g} for g in (1, 2, 3)}
    return radmm_rows(made)


def radmm_4() -> list[Row]:
    made = {("", PLAIN): {"end": 0.34}}
    for alpha in (2, 1):
        for at in range(3):
            how = {
                "end": 0.42 - 0.01 * at / alpha,
                "E": 0.18 - 0.001 * at,
                "P": 11.9 - 0.1 * at,
                "range": 0.03 - 0.01 * at,
            }
            made[f"alpha = {alpha}", f"q {at}"] = how
    return radmm_rows(made)


def radmm_5() -> list[Row]:
    made = {("", PLAIN): {"end": 0.34}}
    for at, tag in enumerate(("alpha = 2", "alpha = 1", "alpha = 0.5")):
        made |= {(tag, name): {"end": 0.45 + 0.1 * at, "E": 0.2, "P": 12} for name in (DVP, PP)}
        made[tag, "R-ADMM"] = {"end": 0.38, "E": 0.18, "P": 12}
        made[tag, "MR-ADMM"] = {"end": 0.36, "E": 0.17, "P": 11.5}
        made[tag, HALF] = {"end": 0.37, "E": 0.17, "P": 12}
    return radmm_rows(made)


def sharing_rows(ends: dict[str, float], **start: float) -> list[Row]:
    rows = []
    for curve, end in ends.items():
        for epoch in range(1, 13):
            value = end + start.get(curve.split()[0], 0.3) * math.exp(1 - epoch)
            rows.append(
                {
                    "figure": "",
                    "data": "a9a",
                    "curve": curve,
                    "seed": 0,
                    "epoch": epoch,
                    "objective": value,
                    "test_loss": value,
                }
            )
    return rows


def sharing_1a() -> list[Row]:
    return sharing_rows(
        {"ADMM, Algorithm 1": 0.325, "ADMM corrected": 0.324, "SGD eta 3": 0.3241, "SGD eta 0.3": 0.34},
        SGD=0.1,
    )


def sharing_2a() -> list[Row]:
    return sharing_rows({"ADMM, Algorithm 1": 0.06, "ADMM corrected": 0.05, "SGD eta 0.1": 0.12}, ADMM=0.1)


def sharing_noise() -> list[Row]:
    return sharing_rows({"sigma 0": 0.32, "sigma 3": 0.33, "sigma 10": 0.4, "sigma 100": 1.5})


def sharing_levels() -> list[Row]:
    ends = {
        "sigma 0": 0.05,
        "sigma 3": 0.06,
        "corrected, at its best epoch": 0.05,
        "party 1 alone": 0.12,
        "all features": 0.09,
    }
    return [row for row in sharing_rows(ends) if row["epoch"] == 12]


def ias_1() -> list[Row]:
    P = np.exp(-((np.arange(10) - np.array([[1.5], [4.6], [7.5]])) ** 2))
    P /= P.sum(1, keepdims=True)
    return [{"s": s, "y": y, "p": float(P[s, y])} for s in range(3) for y in range(10)]


def ias_2() -> list[Row]:
    def row(beta: float, sign: str, t: int) -> Row:
        F = 0.3 * (1 - math.exp(-t / 3))
        return {
            "beta": beta,
            "sign": sign,
            "step": t,
            "F_admm": F,
            "F": F,
            "lagrangian": F,
            "delta_l1": math.exp(-t),
        }

    return [
        row(beta, sign, t)
        for beta in (2.0, 0.6)
        for sign in ("corrected", "as printed")
        for t in range(1, 41)
    ]


def ias_outer() -> list[Row]:
    return [
        {"measure": m, "beta": beta, "step": t, "F": 0.3 * (1 - math.exp(-t)), "gba": 0.3, "optimum": 0.3}
        for beta in (8.0, 0.6) for m in ("js", "lc") for t in range(21)
    ]  # fmt: skip


def ias_gradient(alpha: float, fall: float = 0.0) -> list[Row]:
    return [
        {"beta": beta, "alpha": alpha, "projection": p, "iteration": t, "F": 0.2 * (1 - math.exp(-t)) - fall * (t == 9),
         "optimum": 0.3}
        for beta in (2.0, 0.6) for p in ("euclidean", "renormalise") for t in range(30)
    ]  # fmt: skip


def ias_6() -> list[Row]:
    rows = []
    for method in ("Algorithm 1", "gba", "GA euclidean"):
        for at, beta in enumerate((0.2, 0.6, 1.0, 1.4)):
            E, settled = (0.8 - 0.2 * at, 3) if method[:2] != "GA" else (0.9, 3 if at < 2 else 0)
            counted = E if settled == 3 else 1.0
            rows.append({
                "beta": beta, "method": method, "runs": 3, "settled": settled, "E_mean": E, "E_least": E, "E_most": E,
                "E_as_counted_in_the_paper": counted,
            })  # fmt: skip
    return rows


def ias_8() -> list[Row]:
    return [
        {"beta": 0.2, "Y": Y, "U": U, "F": 0.5 * (1 - math.exp(1 - U)), "E_d": 0.1, "in_use": U, "upper_bound": 0.5}
        for Y in (10, 14) for U in range(1, Y + 2)
    ]  # fmt: skip


def ias_table() -> list[Row]:
    rows: list[Row] = [
        {"beta": 2.0, "method": m, "alpha": 0.0, "F": 0.0, "settled": True, "drops": 0}
        for m in ("Algorithm 1", "gba")
    ]
    for alpha in (0.05, 0.1, 0.2):
        diverged = alpha == 0.2
        rows.append(
            {
                "beta": 2.0,
                "method": "GA euclidean",
                "alpha": alpha,
                "F": -0.25,
                "settled": not diverged,
                "drops": 9 * diverged,
            }
        )
    return rows


def funnel_rows(name: str) -> list[Row]:
    rows = []
    for method in ("lp", "drs", "dc", "greedy", "aem", funnel.ENDS, funnel.DC_ENDS):
        for at in range(1, 11):
            R = at / 10
            leak = 0.4 * max(0.0, R - 0.6) / 0.4 if name == "heart" else 0.4 * R**2
            hole = 0.1 * (3 <= at <= 7) if method == "drs" else 0.0
            rows.append({
                "problem": name, "H_X": 1.0, "I_SX": 0.4, "R0": 0.5, "R0_exact": True, "method": method,
                "R": R, "R_over_HX": R,
                "I_SY": leak + hole, "I_XY": R, "lower_bound": leak, "reached": True, "note": "",
            })  # fmt: skip
    return rows


def istdp_accounting() -> list[Row]:
    return [
        {"epsilon": e, "paper": 10 / e, "exact": 9.9 / e, "ratio": 1.01, "true_epsilon_of_paper": 0.99 * e}
        for e in (1.0, 8.0)
    ]


def istdp_attack() -> list[Row]:
    return [{"leak": "step", "rows": n, "alpha_max": 1e4, "delta_at_least": 1e-7} for n in (100, 1000)]


def istdp_nonprivate() -> list[Row]:
    penalties = {
        f"{p} {w}": start + by * at
        for at, p in enumerate(istdp_figures.PENALTIES)
        for w, start, by in (("f1", 1.0, -0.1), ("error", 0.1, 0.1))
    }
    more = {
        "iterations": 3,
        "iterations without Newton": 9,
        "objective": 1.0,
        "objective without Newton": 1.0,
    }
    return [{"loss": "squared", "rows": 150, "seed": 0, **penalties, **more}]


def istdp_budget() -> list[Row]:
    return [
        {"rows": 4000, "variant": v, "epsilon": e, "seed": 0, "f1": 1.0, "accuracy": 0.88, "bayes": 0.89, "stuck": 0}
        for v in ("lambda 0.02", "composition of Theorem 3.3") for e in (1.0, 8.0)
    ]  # fmt: skip


def istdp_adult() -> list[Row]:
    single = [
        {"variant": v, "epsilon": math.inf, "seed": 0, "accuracy": a}
        for v, a in (("not private", 0.85), ("T = 50", 0.84))
    ]
    return [
        {"variant": "steps", "epsilon": e, "seed": 0, "accuracy": 0.835 + e / 1e3} for e in (0.5, 1.0, 8.0)
    ] + single


# -- and wrong ones -----------------------------------------------------------------------------------------------


def changed(rows: list[Row], values: str, change: Callable[[Row, float], float]) -> list[Row]:
    """All numbers of these columns changed; a row keeps its place."""
    return [{**row, **{name: change(row, row[name]) for name in values.split(",")}} for row in rows]


def swapped(rows: list[Row], values: str, key: str) -> list[Row]:
    """The last curve's numbers under the first one's name, and so on, within a panel where there are panels."""
    place = [k for k in ("tag", "beta", "Y") if k in rows[0] and k != key]
    groups: dict[Any, dict[Any, list[Row]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in place), {}).setdefault(row[key], []).append(row)
    found = []
    for curves in groups.values():
        names = list(curves)
        for name, other in zip(names, reversed(names)):
            for at, row in enumerate(curves[name]):
                source = curves[other][min(at, len(curves[other]) - 1)]
                found.append({**row, **{v: source[v] for v in values.split(",")}})
    return found


def rising(x: str) -> Callable[[Row, float], float]:
    return lambda row, value: 1.0 + (0.1 + abs(value)) * row[x] ** 2


def falling(x: str) -> Callable[[Row, float], float]:
    return lambda row, value: -(0.1 + abs(value)) * row[x] ** 2


def worse(row: Row, value: float) -> float:
    return 0.8 - row["epsilon"] / 100 if row["epsilon"] < 99 else 0.9


def flat(row: Row, value: float) -> float:
    return 0.5 if isinstance(value, float) else 0


_LOSS = "L,P_published,epsilon_tight,test_error_at_end"
_SHARED = "objective,test_loss"
_ENDS, _WORTH = "E_mean,E_as_counted_in_the_paper,settled", "paper,true_epsilon_of_paper"
_BIAS = "mcp error,mcp f1"
radmm, sharing, ias, istdp = (m.FIGURES for m in (radmm_figures, sharing_figures, ias_figures, istdp_figures))
# name -> the figure, right rows, values, what diverging does to them (with x), by what curves are told apart
CASES: dict[str, tuple[Figure, list[Row], str, Callable[[Row, float], float], str]] = {
    "radmm 1a": (radmm["1a"], radmm_1a(), _LOSS, rising("t"), "curve"),
    "radmm 1b": (radmm["1b"], radmm_1c(), _LOSS, rising("t"), "curve"),
    "radmm 1c": (radmm["1c"], radmm_1c(), _LOSS, rising("t"), "curve"),
    "radmm 2": (radmm["2"], radmm_2(), _LOSS, lambda row, _: 1 / float(row["curve"]), "curve"),
    "radmm 3": (radmm["3"], radmm_3(), _LOSS, rising("t"), "tag"),
    "radmm 4": (radmm["4"], radmm_4(), _LOSS, rising("t"), "curve"),
    "radmm 5": (radmm["5"], radmm_5(), _LOSS, rising("t"), "curve"),
    "sharing 1a": (sharing["1a"], sharing_1a(), _SHARED, rising("epoch"), "curve"),
    "sharing 1b": (sharing["1b"], sharing_noise(), _SHARED, rising("epoch"), "curve"),
    "sharing 2a": (sharing["2a"], sharing_2a(), _SHARED, rising("epoch"), "curve"),
    "sharing 2b": (sharing["2b"], sharing_noise(), _SHARED, rising("epoch"), "curve"),
    "sharing 3a": (sharing["3a"], sharing_levels(), _SHARED, rising("epoch"), "curve"),
    "sharing 3b": (sharing["3b"], sharing_levels(), _SHARED, rising("epoch"), "curve"),
    "ias 1": (ias["1"], ias_1(), "p", rising("y"), "s"),
    "ias 2": (ias["2"], ias_2(), "F,F_admm,delta_l1", falling("step"), "sign"),
    "ias 3": (ias["3"], ias_outer(), "F", falling("step"), "measure"),
    "ias 4": (ias["4"], ias_gradient(1e-4, 0.05), "F", lambda row, _: 0, "projection"),
    "ias 5": (ias["5"], ias_gradient(5e-5), "F", rising("iteration"), "projection"),
    "ias 6": (ias["6"], ias_6(), _ENDS, lambda row, v: v and 3 * row["beta"], "method"),
    "ias 7": (ias["7"], ias_outer(), "F", falling("step"), "measure"),
    "ias 8": (ias["8"], ias_8(), "F", falling("U"), "Y"),
    "ias table1": (ias["table1"], ias_table(), "F,settled,drops", lambda row, v: row["alpha"] + 1, "method"),
    "funnel 1": (funnel.FIGURES["1"], funnel_rows("synthetic-unif"), "I_SY", falling("R"), "method"),
    "funnel 2": (funnel.FIGURES["2"], funnel_rows("heart"), "I_SY", falling("R"), "method"),
    "istdp accounting": (istdp["accounting"], istdp_accounting(), _WORTH, rising("epsilon"), "epsilon"),
    "istdp attack": (istdp["attack"], istdp_attack(), "delta_at_least", lambda row, _: 0.9, "rows"),
    "istdp nonprivate": (istdp["nonprivate"], istdp_nonprivate(), _BIAS, lambda _, v: 9.0 * (v < 0.5), "rows"),
    "istdp budget": (istdp["budget"], istdp_budget(), "accuracy,f1", lambda row, _: 0.5, "variant"),
    "istdp adult": (istdp["adult"], istdp_adult(), "accuracy", worse, "epsilon"),
}  # fmt: skip
# Figures whose curves may be exchanged without making the paper wrong: each is spoken of alone, or they are alike.
ALIKE = {
    "ias 1",
    "ias 2",
    "ias 3",
    "ias 4",
    "ias 5",
    "ias 7",
    "ias 8",
    "istdp attack",
    "istdp accounting",
    "istdp nonprivate",
}
ALIKE |= {"istdp budget"}


def test_every_figure_has_verdicts_that_are_tried() -> None:
    known = {
        f"{paper} {name}"
        for paper, figures in (("radmm", radmm), ("sharing", sharing), ("ias", ias))
        for name in figures
    }
    known |= {f"istdp {name}" for name in istdp} | {f"funnel {name}" for name in funnel.FIGURES}
    assert known == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_agrees_with_right_curves_and_with_no_wrong_ones(name: str) -> None:
    figure, rows, values, diverge, key = CASES[name]
    right = list(figure.verdicts(rows))
    assert right, name
    assert all(verdict.holds for verdict in right), [v.text() for v in right if not v.holds]
    assert "does not agree" not in figure.text("t", rows) if name != "funnel 1" else right
    wrong = {"diverging": changed(rows, values, diverge), "flat": changed(rows, values, flat)}
    if name not in ALIKE:
        wrong["swapped"] = swapped(rows, values, key)
    refuted: set[str] = set()
    for how, curves in wrong.items():
        said = list(figure.verdicts(curves))
        no = [verdict for verdict in said if not verdict.holds]
        assert no or (how == "flat" and not said), (name, how, [v.text() for v in said])
        assert all("does not agree" in verdict.text() or verdict.open for verdict in no)
        refuted |= {verdict.says for verdict in no}
    missed = [verdict.says for verdict in right if verdict.says not in refuted]
    assert not missed, missed  # each of them says no to something


@pytest.mark.parametrize("name", ["radmm 5", "radmm 1c", "ias 2", "sharing 1a"])
def test_panels_are_whole_and_quick_is_written_on_them(name: str) -> None:
    pytest.importorskip("matplotlib")
    figure, rows, *_ = CASES[name]
    panels = figure.panels(rows)
    made = drawn(panels, QUICK)
    assert made.get_suptitle() == QUICK
    (legend,) = made.legends or filter(None, (axis.get_legend() for axis in made.axes[len(panels) :]))
    shown = {text.get_text() for text in legend.get_texts()}
    for axis, panel in zip(made.axes, panels):
        assert axis.get_legend() is None
        assert {line.label for line in panel.lines} <= shown
        if panel.whole:
            assert all(float(tick).is_integer() for tick in axis.xaxis.get_major_locator()())
        low, high = axis.get_ylim()
        ends = [float(np.asarray(line.y)[-1]) for line in panel.lines if len(line.y)]
        assert low <= min(ends) <= max(ends) <= high


def test_where_no_ascent_settles_nothing_is_said_of_what_it_protects() -> None:
    rows = [{**row, "settled": 0 if row["method"].startswith("GA") else row["settled"]} for row in ias_6()]
    said = [verdict.text() for verdict in ias["6"].verdicts(rows) if "protects less" in verdict.says]
    assert said
    assert all("Here: OPEN, it settled in all runs at no beta here" in text for text in said)


def test_few_places_on_a_logarithmic_axis_are_written_as_numbers() -> None:
    pytest.importorskip("matplotlib")
    for name in ("istdp accounting", "istdp adult"):
        figure, rows, *_ = CASES[name]
        axis = drawn(figure.panels(rows)).axes[0]
        places = sorted({row["epsilon"] for row in rows if math.isfinite(row["epsilon"])})
        assert [label.get_text() for label in axis.get_xticklabels()] == [f"{place:g}" for place in places]
        assert not len(axis.get_xticks(minor=True))


def test_long_names_of_places_are_turned() -> None:
    pytest.importorskip("matplotlib")
    names = ("squared, n = 150", "squared, n = 500", "logistic, n = 500", "logistic, n = 2000")
    axis = drawn([Panel("", "x", "y", [Line("a", range(4), range(4))], ticks=names)]).axes[0]
    assert {label.get_rotation() for label in axis.get_xticklabels()} == {30.0}
    axis = drawn([Panel("", "x", "y", [Line("a", range(3), range(3))], ticks=("0", "3", "10"))]).axes[0]
    assert {label.get_rotation() for label in axis.get_xticklabels()} == {0.0}


def test_lines_are_told_apart_without_their_colours_and_the_legend_takes_the_place_that_is_free():
    hues = [f"arm {at}" for at in range(11)]
    lines = [Line(hue, range(9), [at] * 9) for at, hue in enumerate(hues)]
    dashed = [Line("dashed", range(9), [at + 0.5] * 9, "o--", hue=hue) for at, hue in enumerate(hues)]
    for count, inside in ((7, True), (6, False)):  # two places of the last row are free, or none
        made = drawn([Panel(str(at), "x", "y", [*lines, *dashed]) for at in range(count)])
        first, *others = [[line.get_marker() for line in axis.lines] for axis in made.axes[:count]]
        assert len(set(first[:11])) == 11
        assert first[:11] == first[11:]
        assert all(marks == first for marks in others)
        legends = [axis.get_legend() for axis in made.axes if axis.get_legend()] + made.legends
        assert [[text.get_text() for text in legend.get_texts()] for legend in legends] == [[*hues, "dashed"]]
        assert bool(made.legends) != inside


def _drawn_lines(figure: Figure, rows: list[Row]) -> list[list[Any]]:
    """Of each panel, all that is drawn of its rows."""
    return [
        [
            (line.label, *(np.asarray(part, dtype=float).tobytes() for part in (line.y, line.low, line.high)))
            for line in panel.lines
        ]
        for panel in figure.panels(rows)
    ]


# What may come of rows in which a key was made wrong; that a mean has no row is a warning, and here an error.
_WRONG_KEY = ArithmeticError, ValueError, LookupError, RuntimeWarning


def _wrong_in_part(
    figure: Figure, rows: list[Row], diverge: Callable[[Row, float], float]
) -> Iterator[list[Row]]:
    """Rows of which one drawn column is wrong, everywhere or where another column has one of its few values."""
    right = _drawn_lines(figure, rows)
    few = {key: {row[key] for row in rows} for key in rows[0]}
    for name in (name for name, value in rows[0].items() if isinstance(value, float | np.floating)):
        for change in (lambda row, value: -3 * value - 1, diverge, flat):
            wrong = changed(rows, name, change)
            with contextlib.suppress(*_WRONG_KEY):
                if _drawn_lines(figure, wrong) != right:
                    yield wrong
                    for key, places in few.items():
                        for place in places if key not in (name, "seed") and 1 < len(places) <= 4 else ():
                            yield [new if old[key] == place else old for old, new in zip(rows, wrong)]


@pytest.mark.parametrize("name", CASES)
def test_every_panel_has_a_verdict_that_says_no_to_wrong_curves_in_it(name: str) -> None:
    """By what is drawn: of the wrong rows that change a panel, and as few others as can be, one is refused."""
    figure, rows, _, diverge, _ = CASES[name]
    right, told = _drawn_lines(figure, rows), {verdict.says for verdict in figure.verdicts(rows)}
    least = [(len(right) + 1, False)] * len(right)  # panels that change, and whether a verdict then says no
    for wrong in _wrong_in_part(figure, rows, diverge):
        if all(found == (1, True) for found in least):
            break
        with contextlib.suppress(*_WRONG_KEY):
            moved = [now != was for now, was in zip(_drawn_lines(figure, wrong), right)]
            no = any(not verdict.holds for verdict in figure.verdicts(wrong) if verdict.says in told)
            for at in np.flatnonzero(moved):
                touched, refused = least[at]
                if sum(moved) < touched or (sum(moved) == touched and no and not refused):
                    least[at] = sum(moved), no
    assert all(touched <= len(right) and refused for touched, refused in least), least
