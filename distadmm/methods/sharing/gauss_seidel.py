"""ADMM sharing in which each party in turn sees its predecessors' new predictions: M round trips an iteration.

For m = 1, ..., M one after the other, with S as it stands:

    q     = S - z + y/rho                                               centre -> party m
    x_m   = argmin_{X_m} lambda R(x_m) + rho(1+tau)/2 |D_m x_m - v_m + q/(1+tau)|^2
    S     = S + D_m x_m - v_m,  v_m = D_m x_m                           party m -> centre

and then z and y by (7) and (8).
"""

from typing import ClassVar

import numpy as np

from distadmm.algorithm import register
from distadmm.methods.sharing.admm import Form, State, update_centre, update_party
from distadmm.methods.sharing.masks import total_of
from distadmm.methods.sharing.seat import Seat
from distadmm.structs import struct


@register("gauss-seidel", family="star")
@struct
class GaussSeidel(Form):
    masks: ClassVar[bool] = False

    def weight(self, seat: Seat) -> tuple[float, float]:
        return np.nan, self.tau or 0.0

    def init(self, seat: Seat) -> State:
        silent = dict.fromkeys(seat.fabric.home, np.zeros(seat.rows)) if seat.fabric.is_centre else {}
        return super().init(seat)._replace(heard=silent)

    def step(self, k: int, st: State, seat: Seat) -> State:
        star, rows = seat.fabric, seat.rows
        x, v, heard, total = dict(st.x), dict(st.v), dict(st.heard), st.total
        for m in star.home:
            received = star.deal({m: total - st.z + st.y / st.rho}, {m: rows})  # q
            sent = {}
            if m in seat.blocks:
                x[m] = update_party(seat.blocks[m], seat.problem, x[m], v[m], received[m], st.rho, st.tau)
                sent[m] = seat.release.seal(k, m, seat.blocks[m].apply(x[m]))
                v[m] = star.rounded(sent[m])
            arrived = star.up(sent, {m: rows})
            if arrived is not None:
                total = total + (arrived[m] - heard[m])
                heard[m] = arrived[m]
        if seat.labels is None:
            return self.judge(k, st, st._replace(x=x, v=v), seat)
        b = st.b
        if seat.problem.intercept:
            b -= float((total - st.z + st.y / st.rho).mean()) / (1.0 + st.tau)
        total = total_of(heard, rows) + b
        z, y = update_centre(seat.problem, seat.labels, st, total)  # (7), (8)
        return self.judge(k, st, st._replace(x=x, v=v, total=total, z=z, y=y, b=b, heard=heard), seat)
