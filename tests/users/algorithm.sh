# An algorithm of one's own is one file, and is then run, compared and tested like those that are built in.
cat > descent.py <<'FILE'
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import distadmm


class State(NamedTuple):
    f: np.ndarray  # a model for each node of this rank


@distadmm.register("descent")
@dataclass(frozen=True)
class Descent:
    """f_i(k+1) = mean of f(k) over i and its neighbours - rate/L grad O_i(f_i(k))"""

    rate: float = distadmm.flag(0.5, help="step length, in units of 1/(largest curvature)", above=0)

    def init(self, node):
        return State(node.start)

    def step(self, k, st, node):
        node.release.expose(k, "models travel without noise")
        mixed = (st.f + node.network.neighbour_sum(st.f)) / (1 + node.degree)
        length = self.rate / (node.facts.ridge + node.facts.weight * node.facts.max_curvature)
        return State(mixed - length * node.problem.gradients(st.f))
FILE

# Does it keep what every algorithm has to keep?  Worth the more, the more ranks there are.
mpiexec -n 3 python -m distadmm.testing descent.py --rate 0.2

# Beside a built-in one, on two networks; its field is a flag.
python -m distadmm sweep --algorithm descent.py --rate 0.5 2 --topology ring:8 complete:8 --data tiny --iterations 60 \
    --out runs/descent
python -m distadmm.radmm --algorithm admm --topology ring:8 --data tiny --iterations 60 --out runs/admm
python -m distadmm report runs/descent runs/admm --out descent.html

# The same contracts as tests of your own project.
cat > test_descent.py <<'TEST'
import pytest
from distadmm.testing import contracts

@pytest.mark.parametrize("contract", contracts.ALONE)
def test_descent_keeps(contract):
    contract("descent.py", rate=0.2)
TEST
python -m pytest -q test_descent.py
