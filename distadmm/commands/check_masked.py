"""What masked sums will assume, send and cost: rounds, messages, bytes, noise, and epsilon by size of coalition.

Nothing is read but how many rows and columns there are.
"""

from dataclasses import replace
from typing import Any

from distadmm.commands.shape import ShapeOfNodes, shape
from distadmm.errors import InputError
from distadmm.flags import again, flag, flag_group
from distadmm.graphs.topology import load
from distadmm.methods.masked.forecast import forecast_of
from distadmm.methods.masked.masked import Masked
from distadmm.methods.masked.rule import ADJACENCIES, SHRINK, Rule, choose, diagonal
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.masked_statements import shares_in_words
from distadmm.privacy.accounting.scopes import HYPOTHESES, SCOPES
from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of, least_roster, table
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.noise.masks import mask_degree
from distadmm.ranks.tree import spanning
from distadmm.run.groups import Shared

_MARK = 8  # bytes that each message bears


@flag_group("check --algorithm masked")
class Options(ShapeOfNodes):
    algorithm: str = again(Shared, "algorithm", default="masked", choices=("masked",))
    adjacency: str = flag(help="what one record may do", choices=ADJACENCIES)
    trust: str | None = again(Shared, "trust", note="; no default")
    evaluate: float | None = again(Masked, "evaluate")
    min_roster: int | None = again(Masked, "min_roster")


def lines(options: Options) -> list[str]:
    topology, (rows_each, columns) = load(options.topology), shape(options)
    told = gaussian.mu_at(options.evaluate, options.delta) if options.evaluate else 0.0
    trained = choose(
        name="centred", loss="logistic", adjacency=options.adjacency, nodes=topology.n, rows=topology.n * rows_each,
        columns=columns, colluding=colluding_of(options.trust, topology.n),
        mu=gaussian.mu_at(options.epsilon, options.delta),
    )  # fmt: skip
    rule = replace(trained, evaluation=told * SHRINK)
    tree = spanning(topology.indptr, topology.indices, list(range(topology.n)))
    mu = float((gaussian.mu_at(options.epsilon, options.delta) ** 2 + told**2) ** 0.5)
    least = least_roster(rule.nodes, options.min_roster, options.adjacency)
    degree, up = mask_degree(rule.nodes, rule.colluding, least), 2 * (rule.nodes - 1)
    size = up * sum(8 * rule.words(kind) + _MARK for kind in rule.kinds)
    kinds = {kind: rule.kinds.count(kind) for kind in rule.kinds}
    facts: dict[str, Any] = {"coalition": rule.colluding, "hosted": 1}
    shares = table(mu, options.delta, rule.nodes, rule.colluding, least, degree)
    masks = "none: every vector stands alone under its own noise"
    if rule.colluding < rule.nodes - 1:
        masks = f"each node with {degree} others" if degree else "every pair of nodes"
    expected = forecast_of(rule)
    height = tree.height[tree.root]
    whole = (
        f"{gaussian.epsilon(mu, options.delta):.4g} at delta {exactly(options.delta)} ({options.adjacency})"
    )
    rows = [
        ("network", f"{options.topology}: {rule.nodes} nodes; tree of height {height} at node {tree.root}"),
        ("rule", f"{rule.name}: {rule.rows} rows of {rule.columns} columns, b = {rule.bits} bits; "
         f"n mu/(sqrt(d) nf) = {rule.hope:.3g} (below {rule.hopeless:g} refused, below {rule.doubtful} doubtful)"),
        ("rounds", f"at most {rule.most_rounds}: " + ", ".join(f"{n} of {kind}" for kind, n in kinds.items())),
        ("messages", f"{up} a round, {up * rule.most_rounds} in all, {size / 1e6:.2f} MB, {2 * height} hops a round; "
         "set-up besides"),
        ("masks", masks),
        ("noise", "; ".join(_noise(rule, kind) for kind in kinds)),
        ("roster", f"the run ends when fewer than {least} of {rule.nodes} nodes are left"),
        ("budget", f"mu^2 = {mu * mu:.4g}: epsilon {whole}" + f", {options.epsilon:g} of it for training" * bool(told)),
    ]  # fmt: skip
    if expected.tells:
        rows.append(("expected", expected.words))
    try:
        doubt = trained.check()
    except InputError as error:  # a run would be refused
        doubt = str(error)
    if doubt:
        rows.insert(2, ("doubt", doubt))
    text = [f"{label:12}{value}" for label, value in rows]
    text += ["", *shares_in_words(facts, shares), "", "Checked by code before and in every run:"]
    text += [f"  {name:22}{HYPOTHESES[name]}" for name in SCOPES["masked"].hypotheses]
    return [
        *text,
        "  X25519, HKDF, SHAKE-256 and SHA-256 are unbroken; nodes collude from the start or not at all (not checked)",
    ]


def _noise(rule: Rule, kind: str) -> str:
    """Standard deviation of one node's share, and of all nodes' together, in units of the sum."""
    variance = rule.share_variances(kind, 1, rule.nodes)
    if kind == "curvature":
        variance = variance[diagonal(rule.columns)]
    share = float(variance.max()) ** 0.5 * rule.grain(kind)
    return f"{kind} {share:.3g} a node, {share * rule.nodes**0.5:.3g} in the total"
