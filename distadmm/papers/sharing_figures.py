"""The figures of `reproduce sharing`: their panels, what the paper says of them, and the numbers in a table."""

import math
from collections.abc import Iterator
from itertools import pairwise

from distadmm.graphs.figures import grouped
from distadmm.papers.command import table
from distadmm.papers.panels import Figure, Line, Panel, Row, Verdict, band, column, level, summarised

NOTHING = math.log(2)  # the loss of a model that says nothing
Curves = dict[str, list[Row]]  # by label; mean, least and most over the seeds at each epoch


def curves(rows: list[Row]) -> Curves:
    values = ("objective", "test_loss")
    return {name: summarised(own, "epoch", *values) for (name,), own in grouped(rows, "curve").items()}


def _traces(rows: list[Row]) -> list[Panel]:
    """Test loss, and the objective, dotted, where methods are compared, against the epoch."""
    lines = []
    for (name,), own in grouped(rows, "curve").items():
        lines.append(band(name, own, "epoch", "test_loss"))
        if not name.startswith("sigma"):
            lines.append(band(f"{name}: objective/N", own, "epoch", "objective", ":", hue=name))
    return [Panel(rows[0]["data"], "epoch", "test log loss", lines, yscale="log", whole=True)]


def _levels(rows: list[Row]) -> list[Panel]:
    every = {name: own[-1] for name, own in curves(rows).items()}
    noisy = {name.removeprefix("sigma "): row for name, row in every.items() if name.startswith("sigma")}
    y, low, high = (column(noisy.values(), f"test_loss{end}") for end in ("", " low", " high"))
    lines = [Line("ADMM with noise (10), mean and range", range(len(noisy)), y, "o-", low, high, bars=True)]
    rest = [(name, row) for name, row in every.items() if not name.startswith("sigma")]
    lines += [level(name, row["test_loss"], style) for (name, row), style in zip(rest, ("-.", "--", ":"))]
    y_name = "test log loss at the last epoch"
    return [Panel(rows[0]["data"], "noise level sigma", y_name, lines, yscale="log", ticks=tuple(noisy))]


def _descends(own: list[Row]) -> bool:
    return bool(own[-1]["test_loss"] < own[0]["test_loss"] and own[-1]["objective"] < own[0]["objective"])


def _rivals(rows: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Algorithm 1 as printed, the corrected form, and SGD at its better step."""
    found = curves(rows)
    sgd = min((own for name, own in found.items() if "SGD" in name), key=lambda own: own[-1]["test_loss"])
    return next(iter(found.values())), found["ADMM corrected"], sgd


def _against_sgd(rows: list[Row]) -> Iterator[Verdict]:
    literal, admm, sgd = _rivals(rows)
    apart = abs(admm[-1]["test_loss"] - sgd[-1]["test_loss"])
    slower = literal[1]["objective"] > sgd[1]["objective"]
    holds = slower and all(map(_descends, (literal, admm, sgd)))
    seen = f"objective/N at epoch 2: {literal[1]['objective']:.4f} against {sgd[1]['objective']:.4f}"
    yield Verdict("ADMM is slightly slower than SGD a epoch", holds, seen)
    same = apart < 2e-3 and all(map(_descends, (admm, sgd)))
    seen = f"{admm[-1]['test_loss']:.4f} (corrected) against {sgd[-1]['test_loss']:.4f}"
    yield Verdict("both reach the same test loss", same, seen)


def _far_below_sgd(rows: list[Row]) -> Iterator[Verdict]:
    _, admm, sgd = _rivals(rows)
    early = min(row["test_loss"] for row in admm[: max(2, len(admm) // 4)])
    least, end = min(row["test_loss"] for row in sgd), admm[-1]["test_loss"]
    holds = early < least and end < least and admm[-1]["objective"] < admm[0]["objective"] < NOTHING
    seen = f"{early:.4f} in the first quarter and {end:.4f} at the end against {least:.4f} at best"
    yield Verdict("ADMM is within a few epochs below where SGD stays", holds, seen)


def _noise(rows: list[Row]) -> Iterator[Verdict]:
    found = curves(rows)
    ends = {name: own[-1]["test_loss"] for name, own in found.items()}
    clean, moderate, *_, most = ends.values()
    first, second, *_ = found.values()
    seen = ", ".join(f"{name}: {end:.4f}" for name, end in ends.items())
    holds = moderate < 2 * clean and _descends(first) and _descends(second)
    yield Verdict("moderate noise still converges", holds, seen)
    grows = all(low <= high * 1.02 for low, high in pairwise(ends.values()))
    yield Verdict("too much noise ruins the model", grows and most > 2 * clean, seen)


def _baselines(rows: list[Row]) -> Iterator[Verdict]:
    ends = {name: own[-1]["test_loss"] for name, own in curves(rows).items()}
    alone, full, admm = ends["party 1 alone"], ends["all features"], ends["sigma 0"]
    seen = f"party 1 {alone:.4f}, all features {full:.4f}, ADMM {admm:.4f}"
    yield Verdict("more features help party 1", max(full, admm) < min(alone, NOTHING), seen)


def _better_than_all(rows: list[Row]) -> Iterator[Verdict]:
    yield from _baselines(rows)
    found = curves(rows)
    full = found["all features"][-1]["test_loss"]
    stopped = next(own[-1] for name, own in found.items() if name.startswith("corrected"))
    for name, row in (("Algorithm 1", found["sigma 0"][-1]), ("corrected", stopped)):
        loss, epoch = row["test_loss"], row["epoch"]
        said = f"ADMM ({name}, epoch {epoch}) does even better than the model of all features"
        yield Verdict(said, loss < min(full, NOTHING), f"{loss:.4f} against {full:.4f}")


def _words(rows: list[Row]) -> Iterator[str]:
    head = ("curve", "seeds", "objective/N at 2", "at the end", "test loss at 2", "at the end", "range")
    lines = []
    for name, own in curves(rows).items():
        seeds = len({row["seed"] for row in rows if row["curve"] == name})
        early = [own[1] if len(own) > 1 else None, own[-1]]
        values = [f"{row[what]:.4f}" if row else "-" for what in ("objective", "test_loss") for row in early]
        lines.append([name, seeds, *values, f"{own[-1]['test_loss high'] - own[-1]['test_loss low']:.4f}"])
    yield from table(head, lines)


def _more_words(rows: list[Row]) -> Iterator[str]:
    yield from _words(rows)
    yield "\nEquation (10) guarantees nothing at any level of noise (docs/sharing.md)."
    if any(row["curve"].startswith("corrected") for row in rows):
        yield "ADMM below the model of all features is ADMM stopped early: both minimise one objective."


FIGURES = {
    "1a": Figure(_traces, _against_sgd, _words),
    "1b": Figure(_traces, _noise, _more_words),
    "2a": Figure(_traces, _far_below_sgd, _words),
    "2b": Figure(_traces, _noise, _more_words),
    "3a": Figure(_levels, _baselines, _more_words),
    "3b": Figure(_levels, _better_than_all, _more_words),
}
