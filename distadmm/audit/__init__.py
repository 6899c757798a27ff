"""Attacks on what the ledgers claim: white box (level 0), trade-off tests (level 1), lower bounds (level 2)."""
