"""Summaries of clusters: sums, a lower bound of the k-means objective, contingency tables."""
