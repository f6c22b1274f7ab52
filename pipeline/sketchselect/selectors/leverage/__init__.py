"""Selectors by ridge leverage scores."""
