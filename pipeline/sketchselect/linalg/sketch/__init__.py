"""Frequent Directions: the shrink step for dense and sparse rows; singular values and vectors of small factors."""
