"""The figures of `reproduce radmm`: their panels, what the paper says of them, and the numbers in a table."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from distadmm.graphs.figures import grouped
from distadmm.papers import command, panels
from distadmm.papers.panels import Line, Panel, Row, Verdict
from distadmm.papers.radmm import DVP, HALF, OPTIMUM, PLAIN, PP, SHOWN

FOUR = (DVP, PP, "R-ADMM", "MR-ADMM")  # the paper's
NOISY = "Seeded noise, exact solves, no output noise: a simulation of the paper's mechanism, no guarantee."


class Curve(NamedTuple):
    label: str
    runs: int
    t: np.ndarray
    L: np.ndarray  # mean over the runs
    range: float  # of L at the end: largest minus smallest
    error: float  # mean test error at the end, and its range
    error_range: tuple[float, float]
    P: float  # by the paper's bound; nan without noise
    epsilon: float  # by the tight one

    def at(self, t: int) -> float:
        return float(self.L[np.flatnonzero(self.t <= t)[-1]])

    @property
    def end(self) -> float:
        return float(self.L[-1])

    @property
    def descends(self) -> bool:
        return bool(np.isfinite(self.L).all() and self.end < self.L[0])


def curves(rows: list[Row], tag: str = "") -> dict[str, Curve]:
    """By label, of one panel."""
    found = {}
    for (at, label), own in grouped(rows, "tag", "curve").items():
        if at not in ("", tag):
            continue
        shown = panels.summarised(own, "t", "L", "test_error_at_end")
        last, spent = shown[-1], [row for row in own if row["seed"] == 0][-1]
        low, high = (last[f"test_error_at_end {end}"] for end in ("low", "high"))
        found[label] = Curve(
            label, len({row["seed"] for row in own}), panels.column(shown, "t"), panels.column(shown, "L"),
            last["L high"] - last["L low"], last["test_error_at_end"], (low, high),
            spent["P_published"], spent["epsilon_tight"],
        )  # fmt: skip
    return found


def tags(rows: list[Row]) -> list[str]:
    return [tag for tag in dict.fromkeys(row["tag"] for row in rows) if tag] or [""]


# -- panels -----------------------------------------------------------------------------------------------------


def _losses(rows: list[Row], tag: str, most: int = SHOWN) -> Panel:
    lines = []
    for (at, label), own in grouped(rows, "tag", "curve").items():
        if label == OPTIMUM:
            lines.append(panels.level(label, own[-1]["L"]))
        elif at in ("", tag):
            lines.append(panels.band(label, [row for row in own if row["t"] <= most], "t", "L"))
    return Panel(tag, "iteration", "mean loss L(t)", lines, whole=True, settled=True)


def _privacy(rows: list[Row], tag: str) -> Panel:
    lines = []
    kept = [row for row in rows if row["tag"] == tag and row["seed"] == 0 and row["P_published"] > 0]
    for (label,), own in grouped(kept, "curve").items():
        exact = [row for row in own if np.isfinite(row["epsilon_tight"])]
        lines.append(Line(label, panels.column(own, "t"), panels.column(own, "P_published")))
        shown = panels.column(exact, "t"), panels.column(exact, "epsilon_tight")
        lines.append(Line("dashed: the same, tight bound at delta = 1e-5", *shown, "o--", hue=label))
    ends = [line.y[-1] for line in lines if not line.hue]
    title = f"{tag}: P(t), to {min(ends):.4g} .. {max(ends):.4g}, and tight"  # curves that lie on each other
    return Panel(title, "iteration", "privacy loss", lines, yscale="log", whole=True)


def _errors(rows: list[Row]) -> Panel:
    labels = list(dict.fromkeys(row["curve"] for row in rows if row["curve"] != PLAIN))
    lines, each = [], tags(rows)
    for place, tag in enumerate(each):
        aside = 0.2 * (place - (len(each) - 1) / 2)  # so that ranges do not lie on each other
        found = [(labels.index(c.label) + aside, c) for c in curves(rows, tag).values() if c.label != PLAIN]
        x, y = [at for at, _ in found], [100 * c.error for _, c in found]
        low, high = ([100 * c.error_range[end] for _, c in found] for end in (0, 1))
        lines.append(Line(f"test error, {tag}", x, y, "o", low, high, bars=True))
    lines.append(panels.level(PLAIN, 100 * curves(rows)[PLAIN].error, "-"))
    named = {DVP: "ADMM (DVP)", PP: "M-ADMM (PP)"}
    short = [named.get(label, label.removeprefix("MR-ADMM, ")) for label in labels]
    return Panel("test error at the end, mean and range", "", "error, %", lines, ticks=short)


def _panels(rows: list[Row], privacy: bool = True) -> list[Panel]:
    each = tags(rows)
    bounds = [_privacy(rows, tag) for tag in each] if privacy else []
    return [*(_losses(rows, tag) for tag in each), *bounds, _errors(rows)]


def _growing(rows: list[Row]) -> list[Panel]:
    near, far = _losses(rows, ""), _losses(rows, "", int(panels.column(rows, "t").max()))
    shown = near._replace(title=f"to iteration {SHOWN}, as in the paper")
    return [shown, far._replace(title="to the end")]


def _rho(rows: list[Row]) -> list[Panel]:
    found = list(curves(rows).values())
    line = Line("ADMM, 50 iterations", [float(c.label) for c in found], [100 * c.error for c in found], "o-")
    chosen = Line("the paper's choice", [0.22], [100 * c.error for c in found if c.label == "0.22"], "o")
    return [Panel("", "rho", "test error, %", [line, chosen], xscale="log")]


# -- what the paper says ----------------------------------------------------------------------------------------


def _1a(rows: list[Row]) -> Iterator[Verdict]:
    for tag in tags(rows):
        own = curves(rows, tag)
        plain, *recycled = own.values()
        one = own["R-ADMM, gamma = 0.5"]
        odd = SHOWN - 1
        fell, apart = plain.L[0] - plain.at(odd), abs(one.at(odd) - plain.at(odd))
        yield Verdict(
            f"at odd iterations R-ADMM (gamma = 0.5) descends about as fast as ADMM, {tag}",
            plain.descends and one.descends and apart <= 0.02 * fell,
            f"L({odd}) {one.at(odd):.5f} against {plain.at(odd):.5f}, {apart / max(fell, 1e-12):.1%} of the descent",
        )
        swings = [float(np.maximum(np.diff(curve.L), 0).sum()) for curve in recycled]
        yield Verdict(
            f"a larger gamma means less oscillation and a slower descent, {tag}",
            panels.falls(swings)
            and panels.in_order([c.at(odd) for c in recycled[1:]])
            and all(c.descends for c in recycled),
            f"rises of L in all {', '.join(f'{s:.4f}' for s in swings)}; L({odd}) "
            + ", ".join(f"{c.at(odd):.5f}" for c in recycled)
            + " for gamma = 0, 0.5, 5, 50",
        )


def _1bc(rows: list[Row]) -> Iterator[Verdict]:
    own = curves(rows)
    optimum = own.pop(OPTIMUM).end
    values = [curve.at(SHOWN) for curve in own.values()]
    yield Verdict(
        "penalties that grow slow the descent, faster growth more so",
        panels.in_order(values) and all(curve.descends for curve in own.values()),
        f"L({SHOWN}) " + ", ".join(f"{value:.5f}" for value in values) + ", constant penalty first",
    )
    _, *growing = own.values()
    gaps = [curve.end - optimum for curve in growing]
    halves = [curve.at(int(curve.t[-1]) // 2) - optimum for curve in growing]
    # Arrived, or still on the way at a pace that leads there.
    arrives = [gap <= 1e-4 or gap <= 0.5 * half for gap, half in zip(gaps, halves)]
    yield Verdict(
        "convergence is attained all the same",
        all(arrives) and all(curve.descends for curve in growing),
        f"L - L* at {growing[0].t[-1]}: {', '.join(f'{gap:.1e}' for gap in gaps)}; half way there "
        + ", ".join(f"{half:.1e}" for half in halves),
    )


def _2(rows: list[Row]) -> Iterator[Verdict]:
    found = {float(c.label): c.error for c in curves(rows).values()}
    best = min(found, key=lambda rho: found[rho])
    yield Verdict(
        "the test error is least at rho = 0.22 or so",
        0.1 <= best <= 0.5 and found[0.22] < min(found[min(found)], found[max(found)]),
        f"{found[0.22]:.2%} at 0.22, least {found[best]:.2%} at {best:g}, {found[min(found)]:.2%} at {min(found):g}",
    )


def _3(rows: list[Row]) -> Iterator[Verdict]:
    for tag in tags(rows):
        plain, *noisy = curves(rows, tag).values()
        ends, errors = [c.end for c in noisy], [c.error for c in noisy]
        cost, error_cost = np.mean(ends) - plain.end, np.mean(errors) - plain.error
        hold = np.ptp(ends) <= 0.25 * cost and np.ptp(errors) <= max(0.5 * error_cost, 0) and cost > 0
        yield Verdict(
            f"gamma between 0.1 and 5 hardly matters under noise, {tag}",
            bool(hold) and all(c.descends for c in noisy),
            f"L({SHOWN}) varies by {np.ptp(ends):.4f} where the noise costs {cost:.4f}, the test error by "
            f"{np.ptp(errors):.2%} where the noise costs {error_cost:.2%}",
        )


def _4(rows: list[Row]) -> Iterator[Verdict]:
    gains = {}
    for tag in tags(rows):
        _, *own = curves(rows, tag).values()
        ends, P = [c.end for c in own], [c.P for c in own]
        gains[tag] = ends[0] - ends[-1]
        yield Verdict(
            f"penalties that grow faster lower the loss under noise, {tag}",
            panels.falls(ends) and all(c.descends for c in own),
            f"L({SHOWN}) " + ", ".join(f"{end:.4f}" for end in ends),
        )
        lower = own[-1].error < own[0].error
        yield Verdict(f"and the test error, {tag}", lower, f"{own[0].error:.2%} to {own[-1].error:.2%}")
        yield Verdict(f"and the bound P, {tag}", panels.falls(P), f"{P[0]:.2f} to {P[-1]:.2f}")
        yield Verdict(
            f"and the range over the runs, {tag}",
            own[-1].range < own[0].range,
            f"{own[0].range:.4f} to {own[-1].range:.4f} over {own[0].runs} runs",
        )
    seen = "; ".join(f"{tag}: {gain:.4f}" for tag, gain in gains.items())
    yield Verdict("the gain is larger at more noise", gains["alpha = 1"] > gains["alpha = 2"] > 0, seen)


def _5(rows: list[Row]) -> Iterator[Verdict]:
    gains, each = [], tags(rows)
    for tag in each:
        own = curves(rows, tag)
        dvp, pp, r, mr = (own[name] for name in FOUR)
        gains.append(min(dvp.end, pp.end) - mr.end)
        ends = ", ".join(f"{name} {own[name].end:.4f} (P {own[name].P:.2f})" for name in FOUR)
        better = max(r.end, mr.end) < min(dvp.end, pp.end) and max(r.P, mr.P) <= min(dvp.P, pp.P) + 1e-6
        said = f"R-ADMM and MR-ADMM end below ADMM and M-ADMM at no more P, {tag}"
        yield Verdict(said, better, f"L: {ends}")
        best = mr.end < r.end and mr.P < r.P and mr.end < min(dvp.end, pp.end) and mr.descends
        yield Verdict(f"MR-ADMM has the lowest loss at the lowest P, {tag}", best, f"P {mr.P:.2f}")
        errors = {name: own[name].error for name in FOUR}
        seen = ", ".join(f"{name} {error:.2%}" for name, error in errors.items())
        least = min(errors, key=lambda name: errors[name])
        alone = least == "MR-ADMM" and max(errors.values()) > errors[least]
        yield Verdict(f"MR-ADMM has the least test error, {tag}", alone, seen)
    seen = ", ".join(f"{tag}: {gain:.4f}" for tag, gain in zip(each, gains))
    grows = panels.rises([0.0, *gains]) and panels.in_order(gains)
    yield Verdict("its lead grows as the total P shrinks", grows, seen)


# -- numbers ----------------------------------------------------------------------------------------------------


def _words(rows: list[Row]) -> Iterator[str]:
    own = [(tag, curve) for tag in tags(rows) for curve in curves(rows, tag).values()]
    noisy = any(np.isfinite(curve.P) for _, curve in own)
    head = ["panel", "curve", f"L({SHOWN // 2})", "L at the end", "range", "test error, range"]
    P = ["P, published", "epsilon at delta = 1e-5, tight"] if noisy else []
    lines = []
    for tag, c in own:
        low, high = c.error_range
        error = f"{c.error:.2%}, {high - low:.2%}"
        numbers = [f"{c.at(SHOWN // 2):.5f}", f"{c.end:.5f}", f"{c.range:.4f}", error]
        prices = [f"{c.P:.2f}" if np.isfinite(c.P) else "-", f"{c.epsilon:.3f}"] * noisy
        lines.append([tag or "all", c.label, *numbers, *(p.replace("nan", "-") for p in prices)])
    yield from command.table([*head, *P], lines)
    if noisy:
        yield f"\n{NOISY}"


def _beyond(rows: list[Row]) -> Iterator[str]:
    """What the paper's four leave out."""
    yield "P is matched to that of R-ADMM: ADMM and M-ADMM take the alpha_i of each node that spends just this."
    yield "The last three arms are not in the paper: half the iterations of plain ADMM show what halving"
    yield "the noisy solves brings by itself, eta = 2 and K = 10 what choosing eta and K does.\n"
    for tag in tags(rows):
        own = curves(rows, tag)
        best = min(FOUR, key=lambda name: own[name].end)
        extra = min((c for name, c in own.items() if name not in (*FOUR, PLAIN)), key=lambda c: c.end)
        than = "lower than" if extra.end < own[best].end else "not lower than"
        half = "no higher than" if own[HALF].end <= own["R-ADMM"].end else "higher than"
        yield f"- {tag}: {extra.label} ends at {extra.end:.4f}, {than} {best} ({own[best].end:.4f}); half the"
        yield f"  iterations of ADMM end at {own[HALF].end:.4f}, {half} R-ADMM ({own['R-ADMM'].end:.4f})."
    yield ""
    yield from _words(rows)


def _plain(rows: list[Row]) -> Sequence[Panel]:
    return [_losses(rows, tag) for tag in tags(rows)]


FIGURES = {
    "1a": panels.Figure(_plain, _1a, _words),
    "1b": panels.Figure(_growing, _1bc, _words),
    "1c": panels.Figure(_growing, _1bc, _words),
    "2": panels.Figure(_rho, _2, _words),
    "3": panels.Figure(lambda rows: _panels(rows, privacy=False), _3, _words),
    "4": panels.Figure(_panels, _4, _words),
    "5": panels.Figure(_panels, _5, _beyond),
}
