"""What a run of ISTDP says before it begins, and when it is over."""

import math
from collections.abc import Iterator
from typing import Any

from distadmm.data.rows import Rows
from distadmm.methods.istdp import fit, printed, release
from distadmm.methods.istdp.options import Options
from distadmm.privacy.accounting.statements import SEEDED, exactly, refuted, rounded_up
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.problems.losses import foreign


def outlook(options: Options, rows: Rows, price: release.Price | None) -> str:
    model, privacy, (n, d) = options.model, options.privacy, rows.X.shape
    counted = f"{n} rows, " if privacy.adjacency != "add-remove" else ""
    text = f"{rows.description['name']}: {counted}{d} columns; loss {model.loss}, penalty {model.penalty}"
    if price is None:
        return f"{text}\nno noise, no privacy: at most {model.iterations or 10_000} iterations"
    plan, steps = price.plan, price.plan.steps
    lines = [
        text,
        f"iterations     T = {plan.iterations}, each with noise of sigma {price.sigma:.4g}, "
        f"{plan.noise_multiplier:.4g} times the sensitivity",
        f"penalty        lambda {plan.lam:.4g}, alpha {plan.alpha:.4g}",
        f"steps          {steps.rule}, from {steps.shortest:.4g} to {steps.longest:.4g}",
    ]
    if file := foreign(fit.loss_of(model.loss)):
        lines.append(f"privacy        unbounded: {UNCHECKED} {file}")
    elif privacy.form == "paper":
        lines.append(f"privacy        {refuted(plan.epsilon, plan.delta, printed.REFUTED)}")
    else:
        bound = f"epsilon {rounded_up(price.epsilon)} at delta {exactly(plan.delta)} ({plan.adjacency})"
        seeded = SEEDED if privacy.rng == "simulation" else ""
        lines.append(f"privacy        {bound} for all iterates together{seeded}")
    return "\n".join([*lines, "messages       none leave: one process holds the rows"])


def closing(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    left_out = ["notes", "statement", "seconds"]
    left_out += ["epsilon", "delta"] if summary["adjacency"] is None else []
    for name, value in summary.items():
        if name in left_out or name.endswith("_sd") or value is None:
            continue
        shown = (
            "infinite" if value == math.inf else f"{value:.6g}" if isinstance(value, float) else str(value)
        )
        spread = summary.get(f"{name}_sd")
        yield name.replace("_", " "), shown + (f" +- {spread:.2g}" if spread is not None else "")
