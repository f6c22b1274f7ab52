"""Matrices and vectors in HDF5 files, those of AnnData among them."""
