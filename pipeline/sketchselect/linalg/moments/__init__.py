"""Centred second moments of a block, and their pairwise merge."""
