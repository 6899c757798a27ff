"""ADMM sharing in which all parties work at the same time: Algorithm 1 corrected, and to the letter.

One iteration t -> t+1:

    q     = S - z + y/rho                                               centre -> parties
    w_m   = v_m - q / (1 + tau)
    x_m   = argmin_{X_m} lambda R(x_m) + rho(1+tau)/2 |D_m x_m - w_m|^2     (6), with a proximal weight tau
    v_m   = D_m x_m                                                     parties -> centre
    z     = argmin l(z) - <y, z> + rho/2 |S - z|^2                      (7)
    y     = y + rho (S - z)                                             (8)

tau = 0 is the paper's (6) to the letter.  One vector goes down, since S - z and y reach a party only
through q; `two_vectors` sends both of them, as the paper does.
"""

from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array, register
from distadmm.methods.sharing.admm import Form, State, gather, update_party
from distadmm.methods.sharing.seat import Seat
from distadmm.structs import struct


@register("corrected", family="star")
@struct
class Corrected(Form):
    """From the best constant, with the proximal weight that makes every penalty stable."""

    two_vectors: ClassVar[bool] = False

    def step(self, k: int, st: State, seat: Seat) -> State:
        q = self.pull(st, seat)
        x, v = {}, {}
        for m, block in seat.blocks.items():
            x[m] = update_party(block, seat.problem, st.x[m], st.v[m], q, st.rho, st.tau)  # (6)
            x[m], v[m] = self.answer(k, m, x[m], seat)
        return self.judge(k, st, gather(k, st, seat, x, v, q, 1.0 + st.tau), seat)  # (7), (8)

    def pull(self, st: State, seat: Seat) -> Array:
        """q at every party of this rank, and at the centre."""
        if not self.two_vectors:
            return seat.down(st.total - st.z + st.y / st.rho)
        return seat.down(st.total - st.z) + seat.down(st.y) / st.rho

    def answer(self, k: int, m: int, x: Array, seat: Seat) -> tuple[Array, Array]:
        """What party m keeps and sends."""
        return x, seat.release.seal(k, m, seat.blocks[m].apply(x))


@register("paper", family="star")
@struct
class Paper(Corrected):
    """Equations (6) to (8) to the letter: tau = 0, all zeros at the start, one penalty, two vectors down."""

    from_zero: ClassVar[bool] = True
    two_vectors: ClassVar[bool] = True

    def weight(self, seat: Seat) -> tuple[float, float]:
        return np.nan, self.tau or 0.0

    def tell(self, k: int, st: State, seat: Seat) -> State:
        rho, verdict = seat.tell(st.rho, st.verdict)
        return st._replace(rho=rho, verdict=verdict)
