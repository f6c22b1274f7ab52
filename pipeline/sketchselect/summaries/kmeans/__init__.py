"""Summaries for k-means: cluster sums, a lower bound of the objective, contingency tables."""
