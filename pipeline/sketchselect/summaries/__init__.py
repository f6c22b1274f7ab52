"""Mergeable summaries: base class, kinds, and file format."""

from sketchselect.summaries.base import Context, Summary
from sketchselect.summaries.codec import decode, encode, load, save
from sketchselect.summaries.column_stats import ColumnStats
from sketchselect.summaries.containers.bundle import Bundle, pick
from sketchselect.summaries.containers.folds import Folds
from sketchselect.summaries.containers.groups import Groups
from sketchselect.summaries.containers.step_statistics import StepStatistics
from sketchselect.summaries.kmeans.block_bound import BlockBound
from sketchselect.summaries.kmeans.centroids import CentroidSums
from sketchselect.summaries.kmeans.contingency import Contingency
from sketchselect.summaries.leverage.sample import LeverageSample
from sketchselect.summaries.leverage.scores import LeverageScores
from sketchselect.summaries.moments.decayed import DecayedMoments
from sketchselect.summaries.moments.moments import Moments
from sketchselect.summaries.moments.panel import ComomentPanel
from sketchselect.summaries.registry import KINDS, register
from sketchselect.summaries.row_sample import RowSample
from sketchselect.summaries.sketch.batches import BatchDirections
from sketchselect.summaries.sketch.decayed import DecayedDirections
from sketchselect.summaries.sketch.frequent_directions import FrequentDirections
from sketchselect.summaries.top_values import TopValues
from sketchselect.summaries.window import SlidingWindow

__all__ = [
    "KINDS",
    "BatchDirections",
    "BlockBound",
    "Bundle",
    "CentroidSums",
    "ColumnStats",
    "ComomentPanel",
    "Context",
    "Contingency",
    "DecayedDirections",
    "DecayedMoments",
    "Folds",
    "FrequentDirections",
    "Groups",
    "LeverageSample",
    "LeverageScores",
    "Moments",
    "RowSample",
    "SlidingWindow",
    "StepStatistics",
    "Summary",
    "TopValues",
    "decode",
    "encode",
    "load",
    "pick",
    "register",
    "save",
]
