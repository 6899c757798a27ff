"""ADMM sharing as Boyd et al. 2011, section 7.3, write it: in averages over the M parties.

    x_m  = argmin lambda R(x_m) + r/2 |D_m x_m - v_m - zbar + vbar + u|^2
    zbar = argmin l(M zbar) + M r/2 |zbar - u - vbar|^2
    u    = u + vbar - zbar

with r = M rho, vbar = S/M, zbar = z/M and u = y/r.  It is the corrected form's step with tau = M - 1.
"""

from typing import ClassVar

import numpy as np

from distadmm.algorithm import register
from distadmm.methods.sharing.admm import Form, State
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.columns import minimise
from distadmm.problems.prox import prox
from distadmm.structs import struct


@register("averaged", family="star")
@struct
class Averaged(Form):
    masks: ClassVar[bool] = False

    def weight(self, seat: Seat) -> tuple[float, float]:
        return np.nan, seat.fabric.parties - 1.0

    def step(self, k: int, st: State, seat: Seat) -> State:
        problem, M = seat.problem, seat.fabric.parties
        r = M * st.rho
        q = seat.down((st.total - st.z) / M + st.y / r)  # vbar - zbar + u
        x, v = {}, {}
        for m, block in seat.blocks.items():
            x[m] = minimise(block, st.v[m] - q, r, problem.lam, problem.reg, problem.region, st.x[m])
            v[m] = seat.release.seal(k, m, block.apply(x[m]))
        total, v = seat.collect(k, v)
        if seat.labels is None:
            return self.judge(k, st, st._replace(x=x, v=v), seat)
        b = st.b - float(q.mean()) if problem.intercept else 0.0
        mean, u = (total + b) / M, st.y / r
        # l(M zbar) + M r/2 |zbar - n|^2 is, in z = M zbar, l(z) + (r/M)/2 |z - M n|^2.
        zbar = prox(problem.loss, seat.labels, r / M, M * (mean + u), st.z) / M
        u = u + mean - zbar
        return self.judge(k, st, st._replace(x=x, v=v, total=M * mean, z=M * zbar, y=r * u, b=b), seat)
