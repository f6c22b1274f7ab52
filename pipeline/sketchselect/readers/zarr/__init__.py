"""Matrices and vectors in Zarr stores: dense arrays, and the groups of AnnData."""
