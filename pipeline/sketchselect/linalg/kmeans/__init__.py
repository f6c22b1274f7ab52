"""Kernels of k-means: distances, Lloyd steps, cluster sums, lower bounds, agreement of two partitions."""
