"""Dask clusters: starting, checking, watching, running passes on them."""
