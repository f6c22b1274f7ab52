"""Matrices in Zarr stores: dense arrays and the CSR groups of AnnData."""
