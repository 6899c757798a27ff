"""What sentences about privacy rest on: hypotheses, who established them, and what each kind of run may say.

A hypothesis is a fact without which the theorem behind a price does not hold.  Who established it decides what may
be said: what code checked, a flag or a schema states or a bundled table brings is verified; what an author merely
declared makes a statement conditional; what nobody established makes epsilon infinite.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from distadmm.errors import require
from distadmm.privacy.accounting.trust import ADJACENCY_WORDS

By = Literal["code", "flag", "schema", "bundled", "declared", "nobody"]
VERIFIED: tuple[By, ...] = ("code", "flag", "schema", "bundled")

#: Hypotheses by name, each in the words in which it is missed.
HYPOTHESES = {
    "public-weight": "the weight C/B of a record is a public constant",
    "one-signed-slope": "the slope of the loss has one sign for each record and labels are exactly -1 or +1",
    "bounded-slope": "the loss is a function of y x'f with a slope of at most 1",
    "public-rows": "each row depends on its own record and public constants only and has norm at most 1",
    "fresh-noise": "noise is fresh given the whole past and is drawn after the ledger is charged",
    "data-free-schedule": "start, scales, penalties and stopping do not depend on data",
    "own-parameters": "each node holds its own floor, weight and scale, whatever its neighbours send",
    "free-domain": "models range over R^d, or a public convex set or regulariser stands inside the argmin",
    "curvature-floor": "rho/N + 2 eta V bounds the curvature from below at every release",
    "certified-solve": "each solve is certified to its tolerance and released with its output noise",
    "certified-gradient": "each solve is certified to the gradient norm that its noise allows for",
    "exact-solve": "each solve is exact (no output noise covers its error)",
    "committed-schedule": "the schedule was committed before the first release",
    "centred-regulariser": "the constraint is convex, the regulariser least at 0 in it, or messages are projected",
    "released-anchor": "a party's target is a function of released values only",
    "constrained-minimiser": "messages come from the constrained minimiser itself, clipped as stated",
    "strong-convexity": "the regulariser of each party is strongly convex with a public constant",
    "uncentred-rows": "rows are clipped and not centred or scaled by data",
    "clean-traffic": "no un-noised data traffic (such as power iterations) takes place",
    "public-labels": "labels and the number of samples are public",
    "clipped-examples": "the gradient of each example is clipped to a public constant",
    "public-divisor": "the divisor of the mean is public: n itself (replacing), or a fixed estimate of it (add/remove)",
    "data-free-steps": "step sizes come from released values or constants, without an exact line search",
    "bounded-gradient": "the gradient of each record's loss is at most the stated weight",
    "cut-rows": "each party cuts each of its rows to its bound, whatever the other rows are",
    "own-term": "what a record adds to a moment is a function of its own row and of released values",
    "public-bound": "the bound on the norm of a row is a public number",
    "bounded-curvature": "party 1's loss has curvature at most 1/4, slope at most 1, and 1 between labels if protected",
    "own-slopes": "party 1's slopes are those of a model solved to a gradient of norm 1e-9",
    "released-models": "models are functions of released values, so that scores tell of the people scored alone",
    "public-count": "the number of rows is public: replaced records leave it as it is, or it is given and not counted",
    "capped-slopes": "slopes are cut to their bound; labels are exactly -1 or +1 and everything is finite",
    "rows-one-by-one": "what is done to a row depends, bit for bit, on that row, constants and totals alone",
    "same-history": "masks are bound to commitment, history, kind, length and roster of the round",
    "fresh-masks": "the session is named by the node's own nonce, rounds ascend, and each has one vector and outcome",
    "nested-rosters": "a roster is part of the one before, of configured nodes, holds the node and is not too small",
    "all-pairs-masked": "all pairs of nodes share masks, or a graph of large enough degree",
    "authentic-keys": "keys are pinned, or the sentence says what is left if somebody changed them",
    "share-scale": "each node's share of the noise has standard deviation sigma/sqrt(R - c), at least 2^13 grid units",
    "zero-start": "the first gradient is taken where the model is exactly 0",
    "filter": "each node's own ledger keeps the sum of mu^2 within the budget",
    "centre-same-roster": "centred gradients go with a first gradient of the same roster",
    "noisy-own-term": "a node uses its gradient as it was released, under its noise",
    "fresh-pairs": "what the ends of an edge share is drawn anew in every round, from a key of this start and edge",
    "known-graph": "what coalitions leave hidden was worked out on the graph that keys were agreed along",
    "one-gradient": "each node releases one gradient, taken at the public start, in a run that was never resumed",
    "all-rounds": "every node is there in every round, and every message arrives",
    "canonical-link": "where only labels are protected, they enter one sum, and that does not depend on the model",
    "clipped-node-sums": "where all rows of a node may be others, what it adds to a sum is cut to a public norm",
    "public-targets-range": "targets lie within public bounds",
}


class Scope(NamedTuple):
    """What a sentence is about: its words, its hypotheses, and the adjacencies it can be said for."""

    sentence: str
    hypotheses: tuple[str, ...]
    adjacencies: dict[str, str]
    exact: bool = False  # its theorem is about the numbers of a machine; else arithmetic is taken to be exact


_RELEASES = ("fresh-noise", "data-free-schedule")
_SHARING = ("released-anchor", *_RELEASES)
_RECORDS = (
    *("constrained-minimiser", "strong-convexity", "uncentred-rows", "clean-traffic", "public-labels"),
    *_SHARING,
)
_MOMENTS = ("cut-rows", "public-bound", "bounded-slope", *_RELEASES)
_GRADIENTS = ("clipped-examples", "public-rows", "public-divisor", "noisy-own-term", *_RELEASES)
_NODES = ("public-weight", "public-rows", *_RELEASES, "own-parameters", "free-domain", "curvature-floor")
_MASKED = (
    *("public-rows", "public-count", "capped-slopes", "rows-one-by-one", "same-history", "fresh-masks"),
    *("nested-rosters", "all-pairs-masked", "authentic-keys", "share-scale", "fresh-noise", "zero-start"),
    *("filter", "data-free-schedule", "centre-same-roster", "public-targets-range", "canonical-link"),
    "clipped-node-sums",
)
_CHANGES = {
    "add-remove": "adding or removing one record",
    "replace": "replacing one record",
    "label": "flipping the label of one record",
}
_OF_NODES = {**_CHANGES, "node": "replacing all rows"}
_OF_FEATURES = {"replace": "replacing one person's features at these parties", "add-remove": "blanking them"}
FEATURE_WORDS = {  # where a person is known to be in the table, by those who hold the other columns
    "replace": "one person's features at the answering parties replaced",
    "add-remove": "one person's features at the answering parties blanked",
}
_FEATURES = "labels and N public; local models and predictions not covered"
_ANSWERS = "the number of records, the labels and party 1's columns known; for {releases}"

SCOPES = {
    "radmm": Scope(
        "All messages of all nodes together are {claim} for {change} held by one node, against any coalition of other "
        "nodes, for {releases}, weight C/B fixed, {solves}. Derivation not peer-reviewed.",
        _NODES,
        _CHANGES,
    ),
    "radmm-output": Scope(
        "All messages of all nodes together are {claim} for {change} held by one node, against any coalition of other "
        "nodes, for {releases}, each the minimiser under noise, weight C/B fixed, solves certified{certified}.",
        (*_NODES, "bounded-gradient", "certified-gradient"),
        _CHANGES,
    ),
    "moments": Scope(
        f"All replies of the answering parties together are {{claim}} for {{change}}; {_ANSWERS}. Derivation not "
        "peer-reviewed.",
        _MOMENTS,
        _OF_FEATURES,
    ),
    "moments-rounds": Scope(
        "All replies of the answering parties together, each made of the moments of several rounds, are {claim} for "
        f"{{change}}; {_ANSWERS}. Derivation not peer-reviewed.",
        ("own-term", *_MOMENTS),
        _OF_FEATURES,
    ),
    "moments-slopes": Scope(
        "Party 1's slopes are {claim} for {change}; for {releases}. Derivation not peer-reviewed.",
        ("cut-rows", "public-bound", "bounded-curvature", "own-slopes", *_RELEASES),
        {"label": "replacing one label", "replace": "replacing one record of party 1, its label included"},
    ),
    "scores": Scope(
        "The shares of scores that the answering parties sent are {claim} for {change}, of the people scored; for "
        "{releases}.",
        ("cut-rows", "public-bound", "fresh-noise", "released-models"),
        _OF_FEATURES,
    ),
    "sharing-party": Scope(
        "All messages of a party are {claim} at party level ({change}), for {releases}. Derivation not peer-reviewed.",
        ("centred-regulariser", *_SHARING),
        {"replace": "its whole table replaced"},
    ),
    "sharing-record": Scope(
        f"All messages of all parties together are {{claim}} for {{change}}; {_FEATURES}; for {{releases}}. Derivation "
        "not peer-reviewed.",
        _RECORDS,
        {"replace": "replacing one sample's features"},
    ),
    "sharing-outside": Scope(
        "All messages of the parties outside party 1 together are {claim} for {change}; "
        f"{_FEATURES}; for {{releases}}. Derivation not peer-reviewed.",
        _RECORDS,
        {"replace": "replacing one sample's features, only those outside party 1"},
    ),
    "masked": Scope(
        "",  # in the words of `masked_statements`
        _MASKED,
        {**_OF_NODES, "label": "changing the label of one record"},
    ),
    "gossip": Scope(
        "All messages and models of all nodes together are {claim} for {change} held by one node, against any "
        "coalition of other nodes, for {releases}, each a clipped gradient under Gaussian noise.",
        _GRADIENTS,
        _OF_NODES,
    ),
    "gossip-pairwise": Scope(
        "All messages and models of all nodes, and all that {against} have besides, are {claim} for {change} held by "
        "another node, for {releases}, each a clipped gradient under Gaussian noise that neighbours share in part. "
        "Computational: key agreement and SHAKE-256 are assumed unbroken, and that nobody changed keys on the way. "
        "If somebody did, and against all other nodes: {any}. Derivation not peer-reviewed.",
        (*_GRADIENTS, "fresh-pairs", "known-graph"),
        _OF_NODES,
    ),
    "istdp": Scope(
        "The released iterates are {claim} for {change}, for {releases}.",
        ("clipped-examples", "public-divisor", "data-free-steps", *_RELEASES),
        {"replace": "replacing one record, n public", "add-remove": "add/remove, fixed divisor n-hat"},
    ),
}


def changed(adjacency: str, scopes: Iterable[str | None]) -> str:
    """What one record may do, in the words of ledgers whose claims are of these `scopes`."""
    of_features = {name in SCOPES and SCOPES[name].adjacencies is _OF_FEATURES for name in scopes}
    words = [FEATURE_WORDS.get(adjacency) if which else None for which in sorted(of_features)]
    return " | ".join(dict.fromkeys(each or ADJACENCY_WORDS[adjacency] for each in words))


class Hypothesis(NamedTuple):
    """A hypothesis and who established it."""

    name: str
    by: By = "code"

    @property
    def words(self) -> str:
        return HYPOTHESES[self.name]

    @property
    def verified(self) -> bool:
        return self.by in VERIFIED


def hypotheses(established: Iterable[Hypothesis | str]) -> dict[str, Hypothesis]:
    """By name; a bare name was established by code."""
    found = [Hypothesis(each) if isinstance(each, str) else each for each in established]
    for each in found:
        require(each.name in HYPOTHESES, f"unknown hypothesis {each.name!r}; known: {', '.join(HYPOTHESES)}")
        require(
            each.by in (*VERIFIED, "declared", "nobody"),
            f"{each.name} is established by {each.by!r}; choose one of {', '.join(VERIFIED)}, declared, nobody",
        )
    return {each.name: each for each in found}


def claim(scope: str, established: Iterable[Hypothesis | str], **facts: Any) -> dict[str, Any]:
    """What a ledger's header keeps of it, so that `ledger show` can say the sentence again."""
    require(scope in SCOPES, f"scope is {scope!r}; choose one of {', '.join(SCOPES)}")
    found = hypotheses(established)
    by = {name: each.by for name, each in found.items() if each.by != "code"}
    verified = [name for name, each in found.items() if each.verified]
    return {"scope": scope, "verified": verified, **({"by": by} if by else {}), **facts}


def stating(claim: Mapping[str, Any], by: Mapping[str, str]) -> dict[str, Any]:
    """The claim where these of its hypotheses rest on somebody's word, and not on code alone."""
    told = {name: who for name, who in by.items() if name in claim["verified"]}
    return {**claim, "by": {**claim.get("by", {}), **told}} if told else dict(claim)


def established(claim: Mapping[str, Any]) -> list[Hypothesis]:
    """The hypotheses of a claim as a ledger keeps it; without `by`, code established them."""
    by = claim.get("by", {})
    names = dict.fromkeys([*claim["verified"], *by])
    return [Hypothesis(name, by.get(name, "code")) for name in names if name in HYPOTHESES]
