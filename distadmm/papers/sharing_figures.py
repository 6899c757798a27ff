"""The figures of `reproduce sharing`, and what agrees with the paper; matplotlib is imported when one is drawn."""

from itertools import pairwise
from typing import Any

from distadmm.graphs.figures import grouped, pyplot
from distadmm.papers.command import Row, table


def drawn(figure: str, rows: list[Row]) -> Any:
    found = _traces(pyplot(), rows) if figure[0] != "3" else _levels(pyplot(), rows)
    found.axes[0].set_title(f"Figure {figure}: {rows[0]['data']}", loc="left")
    return found


def _traces(plt: Any, rows: list[Row]) -> Any:
    """Test loss (and the objective, dotted, where methods are compared) against the epoch."""
    drawn, axes = plt.subplots(figsize=(5, 3.2))
    for index, ((name,), own) in enumerate(grouped(rows, "curve").items()):
        epochs = [row["epoch"] for row in own]
        axes.plot(epochs, [row["test_loss"] for row in own], color=f"C{index}", label=name)
        if "sigma" not in name:
            axes.plot(epochs, [row["objective"] for row in own], ":", color=f"C{index}")
    axes.set(xlabel="epoch", ylabel="test log loss (dotted: objective/N)", yscale="log")
    axes.legend()
    return drawn


def _levels(plt: Any, rows: list[Row]) -> Any:
    drawn, axes = plt.subplots(figsize=(5, 3.2))
    noisy = [row for row in rows if row["curve"].startswith("sigma")]
    labels = [row["curve"].removeprefix("sigma ") for row in noisy]
    axes.plot(range(len(noisy)), [row["test_loss"] for row in noisy], "o-", label="equation (10)")
    for row, style in zip([row for row in rows if row not in noisy], ("-.", "--", ":")):
        axes.axhline(row["test_loss"], linestyle=style, color="0.4", label=row["curve"])
    axes.set_xticks(range(len(noisy)), labels)
    axes.set(xlabel="noise level sigma", ylabel="test log loss at the last epoch", yscale="log")
    axes.legend()
    return drawn


def verdicts(rows: list[Row], figures: tuple[str, ...]) -> str:
    """What each figure of the paper says, and whether these numbers say it too."""
    lines = []
    for figure in figures:
        own = [row for row in rows if row["figure"] == figure]
        said = _baselines if figure[0] == "3" else _against_sgd if figure[1] == "a" else _noise
        lines += [f"## Figure {figure}, {own[0]['data']}", "", *said(figure, own), ""]
    return "\n".join(lines)


def _against_sgd(figure: str, rows: list[Row]) -> list[str]:
    curves = {name: own for (name,), own in grouped(rows, "curve").items()}
    lines = table(
        ("curve", "objective/N at 2", "at the end", "test loss at 2", "at the end"),
        (
            (name, *(f"{own[at][what]:.4f}" for what in ("objective", "test_loss") for at in (1, -1)))
            for name, own in curves.items()
        ),
    )
    admm = curves["ADMM corrected"]
    sgd = min((own for name, own in curves.items() if "SGD" in name), key=lambda c: c[-1]["test_loss"])
    if figure == "1a":
        slower = next(iter(curves.values()))[1]["objective"] > sgd[1]["objective"]
        same = abs(admm[-1]["test_loss"] - sgd[-1]["test_loss"]) < 2e-3
        claim = "ADMM is slightly slower than SGD a epoch, and both reach the same test loss"
        return [*lines, "", f"The paper: {claim}.  Here: {_agrees(slower and same)}."]
    best = min(row["test_loss"] for row in admm)
    worst = min(row["test_loss"] for row in sgd)
    claim = "ADMM is quickly below where SGD stays"
    seen = f"{_agrees(best < worst)} ({best:.4f} against {worst:.4f})"
    return [*lines, "", f"The paper: {claim}.  Here: {seen}."]


def _noise(figure: str, rows: list[Row]) -> list[str]:
    final = {name: own[-1]["test_loss"] for (name,), own in grouped(rows, "curve").items()}
    order = list(final.values())
    grows = all(low <= high * 1.02 for low, high in pairwise(order))
    said = (
        "The paper: moderate noise still converges, too much ruins the model.  Here: "
        f"{_agrees(grows and order[1] < 2 * order[0])}; equation (10) guarantees nothing at any level "
        "(docs/sharing.md)."
    )
    return [*table(final, [[f"{loss:.4f}" for loss in order]]), "", said]


def _baselines(figure: str, rows: list[Row]) -> list[str]:
    final = {row["curve"]: row["test_loss"] for row in rows}
    lines = [*table(final, [[f"{loss:.4f}" for loss in final.values()]]), ""]
    helps = final["all features"] < final["party 1 alone"]
    lines.append(f"The paper: more features help party 1.  Here: {_agrees(helps)}.")
    if figure == "3b":
        best = next(row for row in rows if "best" in row["curve"])
        last = _agrees(final["sigma 0"] < final["all features"])
        early = _agrees(best["test_loss"] < final["all features"])
        lines.append(
            "The paper: ADMM does even better than the model of all features.  "
            f"Here: Algorithm 1 at the last epoch {last}, corrected at its best epoch ({best['epoch']}) {early}.  "
            "It is early stopping: run to its optimum ADMM is that model."
        )
    return lines


def _agrees(holds: bool) -> str:
    return "agrees" if holds else "does not agree"
