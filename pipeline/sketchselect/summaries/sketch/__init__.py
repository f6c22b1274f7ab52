"""Sketches of the rows: Frequent Directions, plain and with decaying weights."""
