"""Matrices in memory, and lazy arrays."""
