"""Prints the table of docs/claims.md: python -m tests.claims"""

from tests.claims.recomputed import lines

print("\n".join(lines()))
