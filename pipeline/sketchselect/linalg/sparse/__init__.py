"""Compressed sparse rows: canonical form, products, column statistics."""
