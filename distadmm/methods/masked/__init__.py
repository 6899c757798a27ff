"""Masked consensus: private learning on a graph whose sums travel masked, so that noise is added once."""
