"""ADMM sharing over vertical features: the mathematics, one part a file."""
