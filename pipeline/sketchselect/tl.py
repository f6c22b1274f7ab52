"""Tools for AnnData objects, as in ``scanpy.tl``."""

from sketchselect.integrations.scanpy import kmeans

__all__ = ["kmeans"]
