"""Clustering the rows: k-means on any engine, the exact objective of a partition, and certificates."""

from sketchselect.cluster.certificates.block import blocks_certificate
from sketchselect.cluster.certificates.certificate import Certificate
from sketchselect.cluster.certificates.certify import certify, certify_labels
from sketchselect.cluster.certificates.spectral import (
    SelectionBound,
    bounded_certificate,
    certify_selection,
    dropped_columns_certificate,
    least_squares_metric,
)
from sketchselect.cluster.kmeans.estimator import KMeans
from sketchselect.cluster.kmeans.lloyd import FewerClusters, KMeansParameters, KMeansResult, fit_kmeans
from sketchselect.cluster.n_clusters import ClusterCount, ClusterRange, cluster_range
from sketchselect.cluster.objective import Reassigned, kmeans_objective, objective_source, reassign, reassign_source
from sketchselect.cluster.preparation import Preparations, PreparationScore, compare_preparations

__all__ = [
    "Certificate",
    "ClusterCount",
    "ClusterRange",
    "FewerClusters",
    "KMeans",
    "KMeansParameters",
    "KMeansResult",
    "PreparationScore",
    "Preparations",
    "Reassigned",
    "SelectionBound",
    "blocks_certificate",
    "bounded_certificate",
    "certify",
    "certify_labels",
    "certify_selection",
    "cluster_range",
    "compare_preparations",
    "dropped_columns_certificate",
    "fit_kmeans",
    "kmeans_objective",
    "least_squares_metric",
    "objective_source",
    "reassign",
    "reassign_source",
]
