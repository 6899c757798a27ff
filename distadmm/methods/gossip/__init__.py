"""Noisy gossip: gradients under noise, models that travel between neighbours, every method in a file of its own."""
