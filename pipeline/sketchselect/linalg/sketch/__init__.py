"""Frequent Directions: the shrink step for dense and sparse rows, and the spectrum of small factors."""
