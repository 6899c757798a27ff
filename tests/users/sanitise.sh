# A column that says too much is replaced before anybody trains on it; then a private model, and new rows the same way.
# The mapping: two symbols for six kinds of relationship, with a bound that shows how far from the best it can be.
python -m distadmm.ias --data adult --infer income --column relationship --f mi --beta 0.05 --certify --out mapping

# Every rank sanitises its own rows first; the counts that the mapping was designed on are stated to be public.
mpiexec -n 2 python -m distadmm.radmm --topology ring:8 --sanitise relationship=mapping/mapping.npz --stated mappings \
    --epsilon 2 --adjacency replace --out runs/sanitised
python -m distadmm ledger show runs/sanitised --rows 3

# New people: their column becomes a symbol, with randomness of its own, and the model scores what is left.
cat > new.csv <<'ROWS'
age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,capital-loss,hours-per-week,native-country
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States
50,Self-emp-not-inc,83311,Bachelors,13,Married-civ-spouse,Exec-managerial,Husband,White,Male,0,0,13,United-States
ROWS
python -m distadmm apply mapping --data new.csv --out sanitised.csv
python -m distadmm predict runs/sanitised --data sanitised.csv --out scores.csv
cat scores.csv
