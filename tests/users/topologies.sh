# Which network for eight nodes?  What it is like, what theory foresees for it, what it costs with and without privacy.
python -m distadmm topology ring:8 --draw ring.pdf
python -m distadmm check --topology ring:8 --eta 0.5 --data tiny

# One command makes all runs: each family, several draws of random networks, several deals of the rows, each budget.
# It leaves a line a run (study.csv), a ranking with intervals, and figures as PDF and SVG for a paper of two columns.
python -m distadmm study topology --families ring star complete --sizes 8 --epsilon 4 --adjacency replace \
    --data-seeds 0 1 --gap 0.05 --data tiny --iterations 40 --out study
cat study/study.md

# The runs without noise side by side, as a page; and what to cite.
python -m distadmm report study/radmm-*-d0 --out networks.html
python -m distadmm cite > distadmm.bib
