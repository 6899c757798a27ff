"""How fast the consensus family converges near the optimum: the spectrum of its iteration matrix.

For quadratic objectives O_i(f) = f'H_i f/2 - b_i'f every iteration is affine, and the error contracts by the
spectral radius of its linear part; for smooth objectives this is the local rate, H_i taken at the optimum.

    odd:   f+   = (H + 2WD)^-1 (b - 2 lam + W(D+A) f)                                   (8), (12), (14)
           lam+ = lam + S/2 (D-A) f+                                                     (9), (13), (15)
    even:  f++  = f+ + D~^-1 (W(D+A)(f+ - f) - S(D-A) f+),   D~ = 2WD + gamma            (10), (16), (19)

W holds the penalties eta_i, S the dual steps: theta for all nodes, or eta_i in the paper's literal form.
ADMM and M-ADMM are the odd half alone.  lam never leaves the range of S(D-A), so lam = S Q c with the columns
of Q orthonormal and orthogonal to 1, and c+ = c + Q'(D-A) f+/2: without this the conserved sum of the duals
would show as an eigenvalue 1.
"""

from typing import NamedTuple

import numpy as np

from distadmm.graphs.facts import Array
from distadmm.graphs.topology import Topology

DENSE_MOST = 1400  # unknowns up to which all eigenvalues are computed; beyond, the greatest by Arnoldi


class Setting(NamedTuple):
    """One member of the family with constant penalties."""

    eta: Array  # W, one entry a node
    theta: Array  # S, one entry a node
    gamma: float | None = None  # None: ADMM or M-ADMM; a number: R-ADMM or MR-ADMM, an iteration is a pair


class _Step:
    """z -> the linear part of one iteration (a pair for R-ADMM), z = (f, c) with f (N, d) and c (N-1, d)."""

    def __init__(self, topology: Topology, hessians: Array, setting: Setting):
        self.n, self.d = topology.n, hessians.shape[-1]
        self.A = topology.adjacency()
        self.V = topology.degrees[:, None].astype(float)
        self.eta, self.theta = setting.eta[:, None], setting.theta[:, None]
        penalty = 2 * self.eta * self.V
        self.inverse = np.linalg.inv(hessians + penalty[:, :, None] * np.eye(self.d))
        # Q: all columns but the first of the Householder reflection I - vv' that maps 1 to the first axis.
        v = np.ones(self.n) / np.sqrt(self.n)
        v[0] += 1.0
        self.v = v * np.sqrt(2.0 / (v @ v))
        self.shrink = None if setting.gamma is None else 1.0 / (penalty + setting.gamma)

    @property
    def size(self) -> int:
        return int((2 * self.n - 1) * self.d)

    def reflect(self, x: Array) -> Array:
        return x - np.outer(self.v, self.v @ x)

    def __call__(self, z: Array) -> Array:
        """Applied to each column of z."""
        columns = z.reshape(self.size, -1).shape[1]
        f, c = np.split(z.reshape(self.size, -1), [self.n * self.d])
        f, c = f.reshape(self.n, -1), c.reshape(self.n - 1, -1)
        lam = self.theta * self.reflect(np.concatenate([np.zeros((1, c.shape[1])), c]))
        pull = self.eta * (self.V * f + self.A @ f) - 2.0 * lam
        odd = (self.inverse @ pull.reshape(self.n, self.d, columns)).reshape(self.n, -1)
        spread = self.V * odd - self.A @ odd
        c = c + 0.5 * self.reflect(spread)[1:]
        if self.shrink is not None:
            change = odd - f
            odd = odd + self.shrink * (self.eta * (self.V * change + self.A @ change) - self.theta * spread)
        return np.concatenate([odd.reshape(-1, columns), c.reshape(-1, columns)]).reshape(z.shape)


def linear_rate(topology: Topology, hessians: Array, setting: Setting) -> float:
    """The factor by which one iteration (a pair of R-ADMM) shrinks the error in the end; above 1 it diverges.

    `hessians` is (N, d, d), or (N,) when every objective has one curvature in all directions.  NaN if the
    greatest eigenvalue was not found: there are many unknowns and many eigenvalues as great.
    """
    hessians = np.asarray(hessians, dtype=float)
    step = _Step(topology, hessians[:, None, None] if hessians.ndim == 1 else hessians, setting)
    if step.size <= DENSE_MOST:
        return float(np.abs(np.linalg.eigvals(step(np.eye(step.size)))).max())
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    operator = LinearOperator((step.size, step.size), matvec=step, dtype=float)
    start = np.random.Generator(np.random.PCG64(step.size)).standard_normal(step.size)
    search = {"k": 6, "which": "LM", "v0": start, "tol": 1e-8, "maxiter": 100, "return_eigenvectors": False}
    # Several, since eigenvalues close together (directions the data say little about) hide one another.
    for memory in (60, 300):
        try:
            return float(np.abs(eigs(operator, ncv=memory, **search)).max())
        except ArpackError:
            continue
    return float("nan")


def iterations_for(rate: float) -> float:
    """Iterations in which the error falls to a tenth at this rate; infinite if it does not fall."""
    return float(np.log(10.0) / -np.log(rate)) if 0 < rate < 1 else (0.0 if rate == 0 else float("inf"))
