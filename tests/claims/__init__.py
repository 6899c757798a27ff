"""What published code of this field claims, recomputed; `python -m tests.claims` prints it."""
