"""AEM with the step omega chosen while it runs: mirror descent that tries longer steps.

    omega <- 1.3 omega            after an iteration that lowered I(S;Y)
    omega <- max(1, 0.4 omega)    after one that did not; its result is thrown away

By the strong data-processing inequality every omega <= 1 / Dobrushin(P(s|x)) lowers I(S;Y); longer steps often do.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel import aem
from distadmm.methods.funnel.model import Array, Joint

GROW, SHRINK = 1.3, 0.4


class State(NamedTuple):
    inner: aem.State
    omega: Array  # the step each start tries next, never below 1


def start(joint: Joint, v: Array) -> State:
    """The state at the channels v (B x M x N)."""
    return State(aem.start(joint, v), np.ones(len(v)))


def step(joint: Joint, state: State, R: float, room: aem.Room | None = None) -> State:
    """One iteration for every start; those that would leak more stay where they are."""
    new = aem.step(joint, state.inner, R, state.omega, room)
    worse = (new.leak > state.inner.leak) & (state.omega > 1)
    omega = np.where(worse, np.maximum(SHRINK * state.omega, 1.0), GROW * state.omega)
    return State(aem.choose(worse, state.inner, new), omega)
