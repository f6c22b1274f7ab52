"""Frequent Directions sketches, with constant and with decaying row weights."""
