"""Distributed k-means: seeding, Lloyd iterations, labels, the estimator."""
