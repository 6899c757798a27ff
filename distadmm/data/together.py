"""What the symbols of several sanitised columns say together.

Each mapping acts alone on its own column Y_i, with randomness of its own, so that the symbols U_1, ..., U_m are
independent given the columns.  However the columns depend on one another,

    I(Y_1..Y_m; U_1..U_m) = H(U_1..U_m) - sum_i H(U_i|Y_i) <= sum_i I(Y_i; U_i)                                  (1)
    maximal leakage and local epsilon of all:               <= the sums of those of each                         (2)
    I(S; U_1..U_m) <= min_i [I(S; U_i) + sum_{j != i} I(Y_j; U_j)]   for S that the mappings do not see           (3)

(1) is H(U_1..U_m) <= sum H(U_i).  (2) a likelihood p(u|y) is the product of its columns'.  (3) I(S;U) = I(S;U_i) +
I(S;U_rest|U_i), and the last is at most I(Y_rest;U_rest|U_i) = H(U_rest|U_i) - sum_{j != i} H(U_j|Y_j).  The sum of
the I(S;U_i) bounds nothing: where S is the exclusive or of two fair bits, each bit says nothing of S and both say all.
"""

from collections.abc import Mapping as Mappings
from typing import NamedTuple

from distadmm.data.mapping import Mapping, Told, upwards
from distadmm.errors import require

ALONE = "other columns, the target and the model may say more"


class Together(NamedTuple):
    """Upper bounds in nats; (1) and (3) where each column is distributed as its mapping's P_Y says."""

    columns: tuple[str, ...]
    nats: float  # (1)
    maximal: float  # (2)
    local_epsilon: float  # (2)
    # (3), of the S that each column's mapping was designed for, where that is known.
    inference: dict[str, float]

    def text(self) -> str:
        local = upwards(self.local_epsilon) if self.local_epsilon < float("inf") else "infinite"
        lines = [
            f"all symbols together: at most {upwards(self.nats)} nats about {', '.join(self.columns)} on average over "
            "the mappings' P_Y, however these columns depend on one another",
            f"maximal leakage at most {upwards(self.maximal)} nats; local differential privacy epsilon {local}",
        ]
        for column, nats in self.inference.items():
            lines.append(
                f"about the S that the mapping of {column} was designed for: at most {upwards(nats)} nats"
            )
        return "\n".join(lines)

    def release(self, *, seeded: bool = False) -> Told:
        """What a ledger lists beside the single columns."""
        what = f"{', '.join(self.columns)} by all their symbols together, at most, average over the mappings' P_Y; "
        what += f"at most {upwards(self.maximal)} whatever P_Y is; {ALONE}"
        return Told(self.nats, what + (", to those who do not know --seed" if seeded else ""))


def together(mappings: Mappings[str, Mapping]) -> Together:
    """The bounds for these columns, each sanitised by its own mapping."""
    require(mappings, "no mapping is given; needed: a mapping for each column")
    found = {column: mapping.leakage() for column, mapping in mappings.items()}
    total = sum(one.nats for one in found.values())
    inference = {
        column: min(total, one.inference + total - one.nats)  # (3), and S says no more than (1)
        for column, one in found.items()
        if one.inference is not None
    }
    maximal, local = (sum(getattr(one, of) for one in found.values()) for of in ("maximal", "local_epsilon"))
    return Together(tuple(found), min(total, maximal), maximal, local, inference)


def releases(mappings: Mappings[str, Mapping], *, seeded: bool = False) -> tuple[Told, ...]:
    """What a ledger lists: each column, and where there are several what they say together."""
    alone = tuple(mapping.release(column, seeded=seeded) for column, mapping in mappings.items())
    return alone if len(alone) < 2 else (*alone, together(mappings).release(seeded=seeded))
