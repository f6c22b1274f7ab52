"""Selectors on nearest-neighbour graphs of sampled rows."""
