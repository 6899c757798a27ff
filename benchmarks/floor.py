"""The floor: decentralised consensus ADMM in bare mpi4py and numpy, without any feature.

No privacy, no history, no progress, no checkpoint, no stop rule: the bar for the product's overhead.
One node a rank; Isend/Irecv; Newton's method with a fresh Cholesky factor a step, warm-started.  The
Hessian is a symmetric product (BLAS syrk) and shares its forward product with the gradient, so that the
floor is not slow where it need not be.  `benchmarks/consensus.py` alternates it with the product.

    f_i   = argmin O_i(f) + (2 lam_i - eta (V f_i + s_i)).f + eta V |f|^2
    lam_i = lam_i + eta/2 (V f_i - s_i)                               s_i = sum_j f_j
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from scipy.linalg import cho_factor, cho_solve

Array = np.ndarray


def newton(A: Array, weight: float, linear: Array, quadratic: float, f: Array, tolerance: float) -> Array:
    """argmin weight sum_n log(1 + exp(-a_n.f)) + linear.f + quadratic/2 |f|^2, rows a_n = y_n x_n."""
    identity = np.eye(len(f))
    while True:
        sigma = 1.0 / (1.0 + np.exp(A @ f))
        g = linear + quadratic * f - weight * (A.T @ sigma)
        if np.sqrt(g @ g) <= tolerance:
            return f
        B = A * np.sqrt(weight * sigma * (1.0 - sigma))[:, None]
        factor = cho_factor(B.T @ B + quadratic * identity, check_finite=False)
        f = f - cho_solve(factor, g, check_finite=False)


class Floor:
    """One rank's node of the floor."""

    def __init__(
        self, comm: MPI.Comm, A: Array, weight: float, neighbours: list[int], eta: float, ridge: float
    ):
        self.comm, self.A, self.weight, self.neighbours = comm, A, weight, neighbours
        self.eta, self.ridge, self.V, self.d = eta, ridge, len(neighbours), A.shape[1]
        self.inbox = np.empty((self.V, self.d))
        self.tolerance = 1e-10
        self.reset()

    def reset(self) -> None:
        self.f, self.lam, self.s = np.zeros(self.d), np.zeros(self.d), np.zeros(self.d)

    def exchange(self) -> None:
        requests = [self.comm.Irecv(self.inbox[a], source=j) for a, j in enumerate(self.neighbours)]
        requests += [self.comm.Isend(self.f, dest=j) for j in self.neighbours]
        MPI.Request.Waitall(requests)
        self.s = self.inbox.sum(axis=0)

    def step(self) -> None:
        eta, V = self.eta, self.V
        pull = 2 * self.lam - eta * (V * self.f + self.s)
        self.f = newton(self.A, self.weight, pull, self.ridge + 2 * eta * V, self.f, self.tolerance)
        self.exchange()
        self.lam = self.lam + eta / 2 * (V * self.f - self.s)

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            self.step()
