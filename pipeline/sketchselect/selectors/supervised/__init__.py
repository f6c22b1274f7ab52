"""Selectors that learn from a target."""
