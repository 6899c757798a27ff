"""What an audit says: claim, lower bound, confidence, runs, verdict; as JSON, as a table, as a figure."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.audit.bounds import Claim, Outcome, lower_bound, trade_off
from distadmm.audit.draws import REPEATED
from distadmm.audit.noises import LEVEL, TESTS, Array, Verdict
from distadmm.files import write_json, write_npz
from distadmm.graphs import figures
from distadmm.privacy.accounting.statements import rounded_down, rounded_up
from distadmm.privacy.ledger.chain import plain

REFUTED, STANDS, NOTHING = "refuted", "not refuted", "nothing is claimed"
_SHOWN = 5  # findings in the table; the JSON has all


class Level(NamedTuple):
    level: int
    claim: str
    confidence: float
    runs: int
    verdict: str
    text: str
    more: dict[str, Any]
    claimed_epsilon: float | None = None
    lower_bound: float | None = None
    delta: float | None = None


class Audit(NamedTuple):
    subject: str
    watermark: str
    levels: list[Level]
    claim: Claim | None
    scores: tuple[Array, Array] | None
    white_box: Verdict | None

    @property
    def refuted(self) -> bool:
        return any(level.verdict == REFUTED for level in self.levels)


def level_zero(found: Verdict, runs: int = 1) -> Level:
    verdict = REFUTED if found.refuted else STANDS if found.releases else NOTHING
    text = f"{found.releases} releases against their noise-off twins; smallest corrected p-value {found.least:.2g}"
    if found.unclaimed:
        text += f"; {found.unclaimed} releases of infinite cost claim nothing"
    more = {"findings": [finding._asdict() for finding in found.findings]}
    return Level(0, "the noise that each ledger entry states", 1 - LEVEL, runs, verdict, text, more)


def _of(number: int, claim: Claim, found: Outcome, runs: int, nothing: str) -> Level:
    """Level 1 or 2; `nothing`: why the ledger claims nothing."""
    verdict, bound = NOTHING if nothing else REFUTED if found.refuted else STANDS, math.inf
    if not nothing:
        bound = claim.epsilon(found.delta)
    rates = found.rates
    if number == 1:
        text = (
            f"held out: a test right with at least {rates.power:.4g}, wrong with at most {rates.level:.4g}; "
            f"{'above' if found.excess > 0 else 'within'} the claimed curve by {abs(found.excess):.3g} "
            f"at epsilon {found.at:.3g}"
        )
        if claim.mu is not None and found.mu is not None:
            text += f"; mu at least {rounded_down(found.mu, 3)}, claimed {rounded_up(claim.mu, 3)}"
    else:
        text = f"epsilon at least {rounded_down(found.epsilon, 3)} at delta {found.delta:g}"
        text += "" if nothing else f", claimed {rounded_up(bound)}"
    text += f"; the ledger says infinity: {nothing}" if nothing else ""
    more = {
        "held_out": {"right": rates.right, "wrong": rates.wrong, "of": list(rates.trials)},
        "power_at_least": rates.power,
        "level_at_most": rates.level,
        "threshold": found.test.threshold,
        "first": found.test.first,
        "claimed_mu": claim.mu,
    }
    said = verdict, text, more, bound, found.epsilon, found.delta
    return Level(number, claim.words, found.confidence, runs, *said)


def levels_of(
    options: Any, claim: Claim, scores: tuple[Array, Array], delta: float, nothing: str = ""
) -> list[Level]:
    """Levels 1 and 2, as far as `options` want them; at the run's `delta` where they name no other."""
    delta = delta if options.audit_delta is None else options.audit_delta
    given: dict[str, Any] = {"delta": delta, "confidence": options.confidence}
    asked = [(number, test) for number, test in ((1, trade_off), (2, lower_bound)) if options.wants(number)]
    return [
        _of(number, claim, test(claim, *scores, **given), options.runs, nothing) for number, test in asked
    ]


def table(found: Audit, folder: Path) -> str:
    rows = [("audit of", found.subject)]
    for level in found.levels:
        rows.append((f"level {level.level}", f"{level.verdict.upper()} ({level.text})"))
        findings = level.more.get("findings", [])
        rows += [("", f"{each['kind']}: {_where(each)}{each['text']}") for each in findings[:_SHOWN]]
        if len(findings) > _SHOWN:
            rows.append(("", f"and {len(findings) - _SHOWN} more: see audit.json"))
        if level.level:
            plays = f"{level.runs} transcripts a world, confidence {level.confidence:g}"
            rows.append(("", f"claim: {level.claim}; {plays}"))
    if found.watermark:
        rows.append(("note", found.watermark))
    rows.append(("", "An audit refutes or fails to refute; it proves no guarantee."))
    rows.append(("written to", str(folder)))
    return "\n".join(f"{name:<11} {value}" for name, value in rows)


def _where(finding: dict[str, Any]) -> str:
    node = f"node {finding['node']}, " if finding["node"] >= 0 else ""
    return f"{node}iteration {finding['iteration']}: " if finding["iteration"] >= 0 else node


def as_json(found: Audit) -> dict[str, Any]:
    levels = [{k: v for k, v in {**one._asdict(), **one.more}.items() if k != "more"} for one in found.levels]
    whole = {"subject": found.subject, "refuted": found.refuted, "watermark": found.watermark}
    return {**whole, "levels": [plain(level) for level in levels]}


def write(found: Audit, folder: Path) -> None:
    """audit.json, the scores, and a figure where matplotlib is installed and something was tested."""
    write_json(folder / "audit.json", as_json(found))
    if found.scores is not None:
        write_npz(folder / "scores.npz", {"D": found.scores[0], "D2": found.scores[1]})
    if found.scores is None and (found.white_box is None or not len(found.white_box.p_values)):
        return
    if figures.possible():
        figures.save(draw(found), folder / "audit.png", dpi=130)


def draw(found: Audit) -> Any:
    """Left: the trade-off of the scores and the claimed limit.  Right: p-values of level 0."""
    tested = found.white_box is not None and len(found.white_box.p_values) > 0
    panels = [_trade_off] * (found.scores is not None) + [_p_values] * tested
    figure = figures.pyplot().figure(figsize=(5.2 * max(len(panels), 1), 4.4), layout="constrained")
    axes = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    for panel, ax in zip(panels, axes):
        panel(found, ax)
    title = f"{found.subject}: {'REFUTED' if found.refuted else 'not refuted'}"
    figure.suptitle(title + ("\nsimulation noise" if found.watermark == REPEATED else ""), fontsize=10)
    return figure


def _trade_off(found: Audit, ax: Any) -> None:
    assert found.scores is not None
    assert found.claim is not None
    here, there = found.scores
    cuts = np.unique(np.concatenate([here, there]))
    wrong = 1 - np.searchsorted(np.sort(here), cuts, side="right") / len(here)
    missed = np.searchsorted(np.sort(there), cuts, side="right") / len(there)
    ax.step(wrong, missed, where="post", color="C0", linewidth=2, label="transcripts", clip_on=False)
    x, e, d = np.linspace(0, 1, 401), found.claim.epsilons[:, None], found.claim.deltas[:, None]
    below = np.concatenate([1 - d - np.exp(e) * x, np.exp(-e) * (1 - d - x)])
    limit = np.maximum(below.max(axis=0), 0.0)
    ax.plot(x, limit, color="C3", label="limit of the claim")
    ax.fill_between(x, 0, limit, color="C3", alpha=0.12, label="refutes the claim")
    for level in found.levels:
        if level.level == 1:
            corner = level.more["level_at_most"], 1 - level.more["power_at_least"]
            text = f"held out, {100 * level.confidence:g} %"
            at = corner[::-1] if level.more["first"] else corner
            ax.plot(*at, "s", color="C0", markersize=5, label=text, clip_on=False)
    ax.set(xlabel="D taken for D'", ylabel="D' taken for D", title="errors of the best test")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize=8)


def _p_values(found: Audit, ax: Any) -> None:
    assert found.white_box is not None
    p = np.sort(found.white_box.p_values)
    expected = (np.arange(len(p)) + 0.5) / len(p)
    ax.plot(expected, np.maximum(p, 1e-30), ".", color="C0", markersize=4)
    ax.plot([expected[0], 1], [expected[0], 1], color="0.6", linewidth=1)
    limit = LEVEL / (TESTS * len(p))
    ax.axhline(limit, color="C3", linewidth=1, label="refuted below")
    ax.set(xscale="log", yscale="log", ylim=(max(min(p[0], limit), 1e-30) / 10, 2))
    ax.set(xlabel="expected p-value", ylabel="p-value of a release's noise")
    ax.set(title="noise against its ledger entry")
    ax.legend(frameon=False, fontsize=8)
