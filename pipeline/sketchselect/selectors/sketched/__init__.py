"""Selectors that score columns on a Frequent Directions sketch."""
