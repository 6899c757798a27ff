"""What a network is like: python -m distadmm topology NETWORK, or: topology list

NETWORK is a file (.edges .adjlist .graphml .gml .gexf .json .csv ...), a bundled network (er20) or a line (ring:20);
`topology list` shows all bundled networks and all generators.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.flags import flag, flag_group, positional
from distadmm.graphs import topology as networks
from distadmm.graphs.facts import placed
from distadmm.ranks.launch import say

PROG = "distadmm topology"


@flag_group("topology")
class Options:
    network: str = positional("NETWORK", help="such as er20 or ring:20, or list: what there is")
    json: bool = flag(False, help="print one JSON object instead of a table")
    draw: str | None = flag(None, help="write a picture here: .svg, .png or .pdf")
    ranks: int | None = flag(
        None, help="also place the nodes on this many ranks, and colour the picture by rank", at_least=1
    )


def describe(topology: networks.Topology, found: networks.Facts) -> dict[str, Any]:
    """The facts as a table: label -> value, in the order of printing."""
    about = "" if found.paths_exact else "at least "
    rows: dict[str, Any] = {
        "network": topology.source,
        "nodes": found.nodes,
        "edges": found.edges,
        "degree": f"{found.degree_min} to {found.degree_max}, mean {found.degree_mean:.2f}",
        "diameter": f"{about}{found.diameter}",
        "average path": f"{found.average_path:.3f}" + ("" if found.paths_exact else " (sampled)"),
        "algebraic connectivity": f"{found.algebraic_connectivity:.6g}",
        "spectral gap": f"{found.spectral_gap:.6g}  (1 - second largest eigenvalue of D^-1 A)",
        "mu": f"{found.mu:.6g}  (largest |eigenvalue| of D^-1 A below 1)",
        "bipartite": "yes" if found.bipartite else "no",
        "messages an iteration": 2 * found.edges,
    }
    for what, table in (("node", topology.node_attributes), ("edge", topology.edge_attributes)):
        ranges = [f"{key} {np.nanmin(of):g}..{np.nanmax(of):g}" for key, of in table.items()]
        rows |= {f"{what} attributes": ", ".join(ranges)} if table else {}
    return rows


def catalogue() -> list[dict[str, Any]]:
    """One row for each bundled network: its facts and provenance."""
    rows = []
    for name, file in networks.bundled().items():
        found = networks.facts(networks.load(name))
        origin = networks.provenance(file)
        rows.append({"name": name, "file": file.name, **found._asdict(), "provenance": origin})
    return rows


def _catalogue(as_json: bool) -> str:
    generators = dict((make.__doc__ or "").split(" -- ", 1) for make in networks.GENERATORS.values())
    if as_json:
        return json.dumps({"bundled": catalogue(), "generators": list(generators)}, indent=2)
    columns = f"{'bundled':12}{'nodes':>6}{'edges':>6}{'degree':>8}{'diam.':>6}{'alg. con.':>10}{'mu':>8}"
    lines = [f"{columns}  bip.  provenance"]
    for row in catalogue():
        degree = f"{row['degree_min']}-{row['degree_max']}"
        lines.append(
            f"{row['name']:12}{row['nodes']:6}{row['edges']:6}{degree:>8}{row['diameter']:6}"
            f"{row['algebraic_connectivity']:10.4f}{row['mu']:8.4f}  {'yes' if row['bipartite'] else 'no':4}"
            f"  {row['provenance']}"
        )
    changing = {
        "seq:A,B,...": "step t has the edges of the (t mod number)th network",
        "links:p=0.8:seed=1:NETWORK": "each edge is there with probability p, anew in each step",
    }
    for title, of in (("generators", generators), ("changing from step to step", changing)):
        lines += ["", title, *(f"  {usage:28}{what}" for usage, what in of.items())]
    return "\n".join(lines)


def _shown(options: Options) -> str:
    name = options.network
    if name == "list":
        require(options.draw is None, "topology list draws nothing; give one network to --draw")
        return _catalogue(options.json)
    changing = networks.load_changing(name)
    topology = changing.union
    found = networks.facts(topology)
    owner = None if options.ranks is None else placed(topology, options.ranks)
    if options.json:
        content: dict[str, Any] = {"network": name, **found._asdict(), "fingerprint": topology.fingerprint}
        if owner is not None:
            content |= {"ranks": options.ranks, "edges_between_ranks": networks.cut(topology, owner)}
            content["rank"] = owner.tolist()
        lines = [json.dumps(content, indent=2)]
    else:
        rows = describe(topology, found)
        if not changing.constant:
            mean = changing.p * changing.graphs.sum() / len(changing.graphs)
            rows["edges in a step"] = f"{mean:.1f} on average"
        if owner is not None:
            crossing = networks.cut(topology, owner)
            rows[f"on {options.ranks} ranks"] = f"{crossing} of {found.edges} edges between ranks"
        lines = [f"{label:24}{value}" for label, value in rows.items()]
    if options.draw is not None:
        from distadmm.graphs.draw import draw

        caption = f"{name}: {found.nodes} nodes, {found.edges} edges, diameter {found.diameter}"
        draw(topology, Path(options.draw), caption, owner)
        if not options.json:
            lines.append(f"{'drawn':24}{options.draw}")
    return "\n".join(lines)


main = say(PROG, __doc__, Options, _shown)
