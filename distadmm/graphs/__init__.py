"""Graphs behind `distadmm.graphs.topology`: generators, file formats, facts, placement, drawing."""
