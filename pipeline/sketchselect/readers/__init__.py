"""Readers of matrices and vectors: arrays in memory, files, Zarr stores and Dask arrays, all read in runs of rows."""

from sketchselect._byte_sizes import parse_bytes
from sketchselect.readers.base import DEFAULT_PARTITION_BYTES, Matrix, MatrixView, Partitions, Vector, row_partitions
from sketchselect.readers.opening import grouped, open_matrix, open_vector
from sketchselect.readers.stored import MatrixMetadata
from sketchselect.readers.views import FirstRows, in_double, transposed
from sketchselect.readers.writing import convert

__all__ = [
    "DEFAULT_PARTITION_BYTES",
    "FirstRows",
    "Matrix",
    "MatrixMetadata",
    "MatrixView",
    "Partitions",
    "Vector",
    "convert",
    "grouped",
    "in_double",
    "open_matrix",
    "open_vector",
    "parse_bytes",
    "row_partitions",
    "transposed",
]
