"""Clustering the rows: k-means on any engine, the exact objective of a partition, and certificates."""

from sketchselect.cluster.block_certificate import blocks_certificate
from sketchselect.cluster.certificate import Certificate
from sketchselect.cluster.certifying import certify
from sketchselect.cluster.cluster_count import ClusterCount, ClusterRange, cluster_range
from sketchselect.cluster.drop_certificate import (
    SelectionBound,
    bounded_certificate,
    certify_selection,
    drop_certificate,
)
from sketchselect.cluster.estimator import KMeans
from sketchselect.cluster.labels_certificate import certify_labels
from sketchselect.cluster.lloyd import FewerClusters, KMeansParameters, KMeansResult, fit_kmeans
from sketchselect.cluster.objective import Reassigned, kmeans_objective, objective_source, reassign, reassign_source

__all__ = [
    "Certificate",
    "ClusterCount",
    "ClusterRange",
    "FewerClusters",
    "KMeans",
    "KMeansParameters",
    "KMeansResult",
    "Reassigned",
    "SelectionBound",
    "blocks_certificate",
    "bounded_certificate",
    "certify",
    "certify_labels",
    "certify_selection",
    "cluster_range",
    "drop_certificate",
    "fit_kmeans",
    "kmeans_objective",
    "objective_source",
    "reassign",
    "reassign_source",
]
