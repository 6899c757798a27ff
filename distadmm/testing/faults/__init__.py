"""Faults that are done to real runs, and what must hold whatever they meet: `python -m distadmm faults`."""
