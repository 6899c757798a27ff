"""A picture of a network: nodes apart as their distances say, the same picture each time."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from distadmm.errors import require
from distadmm.graphs import figures
from distadmm.graphs.facts import Array, depths
from distadmm.graphs.topology import Topology

NODES_MOST = 1500
NAMED_MOST = 60
RIM = 0.07  # around the unit square of nodes
ENDINGS = (".svg", ".png", ".pdf")


def layout(topology: Topology) -> Array:
    """(n, 2) places whose distances come close to the hops d_ij: least stress sum_ij (|x_i - x_j| - d_ij)^2 / d_ij^2.

    From classical scaling, each round replaces the stress by a quadratic that lies above it and touches it at
    the present places (Gansner, Koren and North, Graph drawing by stress majorization, 2004).
    """
    n = topology.n
    hops = np.array([depths(topology, i) for i in range(n)], dtype=float)
    if hops.max() <= 1:  # all alike: least stress would put some of them inside a circle of the others
        return _circle(n)
    if len(topology.edges) == n - 1 == int(topology.degrees.max()):  # a star: the leaves are alike
        return _circle(n - 1)[np.cumsum(topology.degrees == 1) - 1] * (topology.degrees == 1)[:, None]
    weight = 1.0 / (hops + np.eye(n)) ** 2 - np.eye(n)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ hops**2 @ centre)
    x = vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0.0))  # the longest way across lies flat
    # A small circle keeps nodes apart that classical scaling puts on one spot (all of a complete graph).
    x = x + 0.05 * _circle(n)
    inverse = np.linalg.inv(np.diag(weight.sum(axis=1)) - weight + 1.0 / n)  # 1/n: the places' mean stays put
    for _ in range(300):
        apart = np.linalg.norm(x[:, None] - x[None], axis=2)
        pull = np.divide(weight * hops, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        new = inverse @ (pull.sum(axis=1)[:, None] * x - pull @ x)
        moved, x = np.abs(new - x).max(), new
        if moved < 1e-4:
            break
    return x


def _circle(n: int) -> Array:
    angle = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def draw(topology: Topology, path: Path, caption: str, owner: Array | None = None) -> None:
    """Write the picture; `owner`, if given, is each node's rank, and colours it; a few ranks are named below."""
    require(
        path.suffix.lower() in ENDINGS,
        f"--draw {path}: cannot write {path.suffix or 'a file without ending'}; give one of: {', '.join(ENDINGS)}",
    )
    require(
        topology.n <= NODES_MOST,
        f"--draw: {topology.n} nodes make no readable picture; at most {NODES_MOST} are drawn",
    )
    require(path.parent.is_dir(), f"--draw {path}: no folder {path.parent}; make it first")
    figures.demand("--draw")
    plt, place = figures.pyplot(), placed(topology)
    width, height = np.ptp(place, axis=0) + 2 * RIM
    ranks = [] if owner is None else sorted({int(rank) for rank in owner})
    below = 0.3 if 1 < len(ranks) <= len(figures.INKS) else 0.0
    figure: Any = plt.figure(figsize=(6.4, 6.4 * height / width + 0.5 + below))
    tall = figure.get_figheight()
    axes = figure.add_axes((0.0, below / tall, 1.0, 1.0 - (0.5 + below) / tall))
    inks = np.array(figures.INKS)
    draw_on(axes, topology, place, "#2f6f9f" if owner is None else inks[owner % len(inks)])
    if below:
        named = [axes.scatter([], [], c=inks[rank % len(inks)], s=60, label=f"rank {rank}") for rank in ranks]
        figure.legend(handles=named, loc="lower center", ncols=len(ranks), fontsize=9)
    figure.text(0.02, 1.0 - 0.15 / figure.get_figheight(), caption, va="top", fontsize=9, color="#222222")
    figures.save(figure, path, dpi=150, bbox_inches=None)


def placed(topology: Topology) -> Array:
    """`layout` within a unit square."""
    place = layout(topology)
    return (place - place.min(axis=0)) / max(np.ptp(place, axis=0).max(), 1e-9)


def draw_on(
    axes: Any,
    topology: Topology,
    place: Array,
    colour: Any = "#2f6f9f",
    scale: float = 1.0,
    carried: Array | None = None,
) -> None:
    """Edges, nodes and, where there is room, their names; `scale` is that of the axes, 1 for six inches.

    `carried`, if given, is what each edge carried, as a share of the most: it is the edge's width, dots for nothing.
    """
    from matplotlib.collections import LineCollection

    width, height = np.ptp(place, axis=0)
    axes.set(aspect="equal", xlim=(-RIM, width + RIM), ylim=(-RIM, height + RIM))
    axes.axis("off")
    thick = 70 / max(len(topology.edges), 1)  # the edges of a dense graph would fill the circle
    look: dict[str, Any] = {"linewidths": np.clip(3 * thick, 0.3, 1.0)}
    if carried is not None:
        most = np.clip(thick, 0.4, 3.4)
        dashes = ["-" if share else ":" for share in carried]
        look = {"linewidths": np.where(carried > 0, 0.3 + most * carried, 1.0), "linestyles": dashes}
    axes.add_collection(LineCollection(place[topology.edges], colors="#9aa5b1", zorder=1, **look))
    named = topology.n <= NAMED_MOST * scale and max(map(len, topology.names)) <= 14
    short = named and max(map(len, topology.names)) <= 3
    size = (300 if short else 60 if topology.n <= 200 else 12) * scale
    if short:  # nodes do not hide each other
        apart = pdist(place).min(initial=1.0) * 432 * scale / (max(width, height) + 2 * RIM)  # points
        size = np.clip(apart**2, 64, size)
    axes.scatter(*place.T, s=size, c=colour, edgecolors="white", linewidths=1.0, zorder=2)
    if named:
        for name, (x, y) in zip(topology.names, place):
            style: dict[str, Any] = {"color": "white", "va": "center"}
            if not short:
                back = {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.5}
                style = {"color": "#222222", "va": "bottom", "bbox": back}
            axes.annotate(
                name, (x, y), (0, 0 if short else 6), textcoords="offset points", ha="center", zorder=3,
                parse_math=False, fontsize=max(4.5, 0.46 * size**0.5) if short else 8 if scale > 0.8 else 6, **style,
            )  # fmt: skip
