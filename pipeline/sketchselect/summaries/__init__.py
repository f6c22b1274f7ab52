"""Mergeable summaries: base class, kinds, and file format."""

from sketchselect.summaries.base import KINDS, Context, Summary, register
from sketchselect.summaries.block_bound import BlockBound
from sketchselect.summaries.clusters import CentroidSums, Contingency
from sketchselect.summaries.codec import decode, encode, load, save
from sketchselect.summaries.column_stats import ColumnStats
from sketchselect.summaries.containers import SPECTRAL_KINDS, Bundle, StepStatistics, pick, pick_spectrum
from sketchselect.summaries.drift import Drift, drift
from sketchselect.summaries.frequent_directions import BatchDirections, DecayedDirections, FrequentDirections
from sketchselect.summaries.level_counts import LevelCounts
from sketchselect.summaries.leverage import LeverageSample, LeverageScores
from sketchselect.summaries.likelihood import LikelihoodSums
from sketchselect.summaries.moment_panels import ComomentPanel
from sketchselect.summaries.moments import DecayedMoments, Moments
from sketchselect.summaries.partitioned import Folds, Groups
from sketchselect.summaries.row_sample import RowSample
from sketchselect.summaries.target_histogram import TargetHistogram
from sketchselect.summaries.top_values import TopValues
from sketchselect.summaries.window import SlidingWindow

__all__ = [
    "KINDS",
    "SPECTRAL_KINDS",
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
    "Drift",
    "Folds",
    "FrequentDirections",
    "Groups",
    "LevelCounts",
    "LeverageSample",
    "LeverageScores",
    "LikelihoodSums",
    "Moments",
    "RowSample",
    "SlidingWindow",
    "StepStatistics",
    "Summary",
    "TargetHistogram",
    "TopValues",
    "decode",
    "drift",
    "encode",
    "load",
    "pick",
    "pick_spectrum",
    "register",
    "save",
]
