"""The mechanism of a finished run, attacked: what its files say of its noise, played on two neighbouring tables.

The run's own messages are not kept, so its code is run again on the worst pair of tables; what it is held against is
what the ledger of the run claims.
"""

from collections.abc import Callable
from typing import NamedTuple

from distadmm import sharing as entry
from distadmm.audit import istdp, sharing
from distadmm.audit.bounds import Claim, claim_of
from distadmm.audit.draws import Draws, Played
from distadmm.errors import require
from distadmm.methods.istdp.plan import Plan
from distadmm.methods.istdp.private import NoisySteps
from distadmm.methods.sharing import private
from distadmm.privacy.accounting.events import Array, Event
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.ledger.shelves import of_nodes
from distadmm.privacy.ledger.tally import Tally
from distadmm.ranks.world import World
from distadmm.run.kinds import RunDirectory

_ROWS = 12  # records of the attacked tables: all but one are the same, so that their number changes nothing


class Play(NamedTuple):
    """How a mechanism is attacked: many plays of it, and the claim they are held against."""

    words: str
    played: Callable[[int, Draws], Played] | None  # plays in each world; None: as printed, nothing is sound
    claim: Claim | Callable[[list[Event]], Claim]  # of a run; or of what the ledger of a play says
    mode: str = "simulation"  # of the noise, where a run says it
    printed: Callable[[int, int], tuple[Array, Array, Claim]] | None = None  # plays, seed


def of_run(run: RunDirectory, width: int) -> Play:
    """How to attack `run`; `width` columns at most."""
    if run.summary is None:
        run.refuse("which has not ended; audit it when it has")
    if "paper" in (run.config.get("mechanism"), run.config.get("form")) and run.config.get("epsilon"):
        printed = f"python -m distadmm audit {run.kind}-printed"
        run.refuse(f"whose mechanism claims nothing; what the paper claims: {printed}")
    require(
        run.config.get("epsilon") is not None,
        f"{run.path} is a run of {run.kind} without noise: its ledger claims nothing to be audited",
    )
    return _OF_KIND[run.kind](run, width)


def events_of(run: RunDirectory, node: int) -> list[Event]:
    """What the ledger of one node has charged."""
    found = of_nodes(run.path / "ledger", [node])[node]
    require(
        found.entries or found.fault,
        f"{run.path} is a run of {run.kind}, but has no ledger of node {node}: what it claims is unknown",
    )
    require(found.fault is None, f"{found.fault}; see: python -m distadmm ledger verify")
    return Tally.of(found.entries).events


def _istdp(run: RunDirectory, width: int) -> Play:
    s = run.summary or {}
    plan = Plan(
        epsilon=run.config["epsilon"], delta=s["delta"], adjacency=s["adjacency"], clip=s["clip"],
        divisor=s["divisor"], iterations=s["iterations"], dimension=width, noise_multiplier=s["noise_multiplier"],
        steps=NoisySteps(), lam=s["lambda"], alpha=s["alpha"],
    )  # fmt: skip
    events = events_of(run, 0)
    if len(events) != 1:
        run.refuse(f"whose ledger has {len(events)} sorts of releases; needed: one")
    return Play(
        f"the mechanism of {run.path}, a run of istdp",
        lambda runs, draws: istdp.played(plan, _ROWS, runs, draws, events[0]),
        claim_of(events, plan.adjacency, f"the ledger of {run.path}"),
        run.config["rng"],
    )


def _sharing(run: RunDirectory, width: int) -> Play:
    """The last party's messages: what is said of one holds for all; of V2's first, level 0 alone."""
    again = ["--config", str(run.path / "config.json"), "--run-code"]  # who opened `run` saw to its code
    options = entry.PROGRAMME.read(again)
    prepared = entry.PROGRAMME.prepare(options, World())
    price, m, mode = entry.PROGRAMME.price(prepared), prepared.star.parties, options.privacy.noise
    first: sharing.Party | None = None
    if price.agreed is not None:
        spread = 0.0
        if price.agreed.mechanism == "v2":
            spread = private.slope_query(price.agreed, prepared.parts.rows, mode).sigma
            first = sharing.of_slopes(price.agreed, prepared.problem, _ROWS, mode)
        party = sharing.of_moments(price.agreed, m, prepared.problem, _ROWS, width, spread, mode)
    else:
        mu = mu_at(options.privacy.epsilon, options.privacy.delta)
        of = prepared.algorithm, prepared.problem, prepared.row[m]
        party = sharing.of_vectors(*of, _ROWS, prepared.iterations, mu, mode)
    events = events_of(run, m)

    def played(runs: int, draws: Draws) -> Played:
        found = sharing.played(party, runs, draws, events)
        if first is None:
            return found
        more = sharing.played(first, runs, draws, events_of(run, 1))
        noises, findings = [*found.noises, *more.noises], [*found.findings, *more.findings]
        return found._replace(noises=noises, findings=findings)

    who = f"parties 1 and {m} send" if first else f"party {m} sends"
    claim = claim_of(events, party.adjacency, f"the ledger of party {m} in {run.path}")
    return Play(f"what {who} in {run.path}, a run of sharing ({party.name})", played, claim, mode)


_OF_KIND = {"istdp": _istdp, "sharing": _sharing}
