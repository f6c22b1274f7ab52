"""Mergeable summaries: the contract, the kinds, and their file format."""

from sketchselect.summaries.base import Context, Summary
from sketchselect.summaries.bundle import Bundle, pick
from sketchselect.summaries.centroids import CentroidSums
from sketchselect.summaries.codec import decode, encode, load, save
from sketchselect.summaries.column_stats import ColumnStats
from sketchselect.summaries.frequent_directions import FrequentDirections
from sketchselect.summaries.moments import Moments
from sketchselect.summaries.registry import KINDS, register

__all__ = [
    "KINDS",
    "Bundle",
    "CentroidSums",
    "ColumnStats",
    "Context",
    "FrequentDirections",
    "Moments",
    "Summary",
    "decode",
    "encode",
    "load",
    "pick",
    "register",
    "save",
]
