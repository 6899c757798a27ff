"""Figures of the papers, made again, with what agrees and what does not."""
