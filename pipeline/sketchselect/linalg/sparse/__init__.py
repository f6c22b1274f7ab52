"""Compressed sparse rows: canonical form, products, statistics."""
