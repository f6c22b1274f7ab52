"""Conformance suites for users' summaries and readers: laws, and difficult inputs."""

from sketchselect.testing.laws import SummaryLaws
from sketchselect.testing.nasty import nasty_matrices, nasty_sparse_matrices
from sketchselect.testing.readers import MatrixConformance

__all__ = ["MatrixConformance", "SummaryLaws", "nasty_matrices", "nasty_sparse_matrices"]
