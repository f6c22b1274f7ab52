"""Curves of the objective over the number of columns, and the selection that they choose."""
