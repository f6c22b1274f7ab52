"""Preprocessing of AnnData objects, as in ``scanpy.pp``."""

from sketchselect.integrations.scanpy import highly_variable_genes

__all__ = ["highly_variable_genes"]
