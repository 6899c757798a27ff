"""One agent of DISROPT's ADMM on the setting of `consensus_setting.py`, in DISROPT's own environment.

mpiexec -n N python disropt_node.py ITERATIONS RHO OUT.npz
"""

from __future__ import annotations

import sys
import time
import warnings

import consensus_setting as setting
import numpy as np
from disropt.agents import Agent
from disropt.algorithms import ADMM
from disropt.functions import Logistic, Variable
from disropt.problems import Problem
from mpi4py import MPI


def main() -> None:
    iterations, rho, out = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    comm = MPI.COMM_WORLD
    n, i = comm.Get_size(), comm.Get_rank()
    neighbours = sorted(
        {b for a, b in setting.graph(n) if a == i} | {a for a, b in setting.graph(n) if b == i}
    )
    agent = Agent(in_neighbors=list(neighbours), out_neighbors=list(neighbours))
    X, y = setting.rows_of(i)
    rows, d = X.shape
    x = Variable(d)
    # `A @ x` is A' x there.  One matrix, because its documented sum of 2000 terms exceeds Python's recursion limit.
    objective = np.full((rows, 1), 1.0 / rows) @ Logistic((-X * y[:, None]).T @ x) + (setting.RIDGE / 2) * (
        x @ x
    )
    agent.set_problem(Problem(objective))
    start = {j: np.zeros((d, 1)) for j in (*neighbours, i)}
    algorithm = ADMM(agent=agent, initial_lambda=start, initial_z=np.zeros((d, 1)), enable_log=True)
    comm.Barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    sequence = algorithm.run(iterations=iterations, penalty=rho)[0]
    cpu = time.process_time() - cpu
    comm.Barrier()
    wall = time.perf_counter() - wall
    models = comm.gather(np.asarray(sequence)[:, :, 0])
    cpus = comm.gather(cpu)
    if i == 0:
        np.savez(out, models=np.stack(models, axis=1), wall=wall, cpu=sum(cpus))
    comm.Barrier()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
