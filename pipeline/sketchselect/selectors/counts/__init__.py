"""Selectors for counts."""
