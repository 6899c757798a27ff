"""Graphs behind `distadmm.topology`: generators, file formats, facts, placement, drawing."""
