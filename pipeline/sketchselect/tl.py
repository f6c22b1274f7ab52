"""Tools for AnnData objects, as in ``scanpy.tl``."""

from sketchselect.integrations.scanpy import kmeans, rank_genes_groups

__all__ = ["kmeans", "rank_genes_groups"]
