"""Summaries made of other summaries."""
