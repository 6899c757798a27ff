# Four clinics train one private model on their own tables, and score new patients with it.
# Your tables take the place of these: one file a clinic, a column that is to be predicted, cells that are empty.
python - <<'ROWS'
import numpy as np

rng = np.random.default_rng(1)
def table(name, rows, target=True):
    age, pulse = rng.integers(20, 90, rows), np.clip(rng.normal(75, 12, rows).round(), 40, 150)
    ill = (rng.random(rows) < 1 / (1 + np.exp(6 - age / 12 - (pulse - 75) / 8))).astype(int)
    with open(name, "w") as file:
        print("age,pulse,sex,ill" if target else "age,pulse,sex", file=file)
        for a, p, sex, i in zip(age, pulse, rng.choice(["f", "m"], rows), ill):
            cells = [f"{a}", f"{p:.0f}" if rng.random() > 0.05 else "", sex, f"{i}"]
            print(",".join(cells if target else cells[:3]), file=file)

for clinic in range(4):
    table(f"clinic-{clinic}.csv", 2000)
table("new.csv", 5, target=False)
ROWS
head -n 3 clinic-0.csv

# What is known of the columns without looking at a row; an empty pulse counts as 75, and a column says that it was empty.
cat > schema.toml <<'SCHEMA'
target = "ill"
labels = ["0", "1"]

[columns]
age = { min = 0, max = 100 }
pulse = { min = 30, max = 180, missing = 75, missing_indicator = true }
sex = ["f", "m"]
SCHEMA

# What will it cost, and how good will it be?  Nothing is read but the number of rows and columns.
python -m distadmm plan --topology complete:4 --epsilon 1 --adjacency replace --rows 2000 --columns 5

# Train: each rank reads the files of its own clinics, and no other.
mpiexec -n 4 python -m distadmm.radmm --data 'clinic-{rank}.csv' --schema schema.toml --topology complete:4 \
    --epsilon 1 --adjacency replace --out runs/private

# The data-protection officer: who spent what, whether the ledgers are whole, and a page to file.
python -m distadmm ledger show runs/private
python -m distadmm ledger verify runs/private
python -m distadmm ledger certificate runs/private --owner "Data office" --out certificate.html

# The engineer: scores of new patients, and the model for those who do not have distadmm.
python -m distadmm predict runs/private --data new.csv --out scores.csv
cat scores.csv
python -m distadmm export runs/private --format json --out model.json
