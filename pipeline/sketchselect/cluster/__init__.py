"""Clustering the rows: k-means on any engine, the exact objective of a partition, and certificates."""

from sketchselect.cluster.certificate import (
    Certificate,
    blocks_certificate,
    bounded_certificate,
    certify,
    drop_certificate,
)
from sketchselect.cluster.estimator import KMeans
from sketchselect.cluster.lloyd import FewerClusters, KMeansParameters, KMeansResult, fit_kmeans
from sketchselect.cluster.objective import kmeans_objective, objective_source

__all__ = [
    "Certificate",
    "FewerClusters",
    "KMeans",
    "KMeansParameters",
    "KMeansResult",
    "blocks_certificate",
    "bounded_certificate",
    "certify",
    "drop_certificate",
    "fit_kmeans",
    "kmeans_objective",
    "objective_source",
]
