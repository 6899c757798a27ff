"""Noise and what is done with it: sources, samplers, mechanisms, queries, releases."""
