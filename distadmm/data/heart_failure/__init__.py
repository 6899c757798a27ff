"""Counts of the heart-failure records."""
