"""Kernels on columns: pivoting, sampling, leverage scores, statistics."""
