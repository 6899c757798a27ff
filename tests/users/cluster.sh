# A job that may be preempted at any moment, and goes on where it was: on as many ranks as there are then.
job="python -m distadmm.radmm --data tiny --topology ring:8 --algorithm admm --checkpoint-every 20 --progress none"

# What it would have been in one piece.
mpiexec -n 4 $job --iterations 4000 --out runs/whole

# The scheduler takes the machine away after the first checkpoint; here a time limit of the job's own would do, or a signal.
mpiexec -n 4 $job --iterations 100000 --out runs/job &
until [ -d runs/job/checkpoint ] && [ -n "$(ls runs/job/checkpoint)" ]; do sleep 0.2; done
kill -TERM $!
wait $! || echo "exit code $?: 128 and the number of the signal"
python -m distadmm status runs/job

# Afterwards, with fewer ranks: to the bit what one piece gives.
mpiexec -n 2 $job --resume runs/job --iterations 4000
python -m distadmm status runs/job
python - <<'SAME'
import numpy as np

whole, job = (np.load(f"runs/{name}/models.npz") for name in ("whole", "job"))
print("the same bits:", all(np.array_equal(whole[key], job[key]) for key in whole))
SAME
