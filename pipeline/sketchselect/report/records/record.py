"""Record of a run: the plain data that the report page is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.cluster import Certificate
from sketchselect.errors import BadParameter
from sketchselect.report.records.model import ModelRecord
from sketchselect.report.records.n_clusters import ClusterCountRecord
from sketchselect.report.records.shapes import require_shape
from sketchselect.report.records.timeline import TimelineRecord


@dataclass(frozen=True)
class ComparedRecord:
    """One of several clusterings of the same rows.

    Parameters
    ----------
    columns : str
        Columns that were clustered: "selected columns", "selected columns, weighted", "all columns".
    objective : float
        Exact within-cluster sum of squares in all prepared columns.
    nmi, ari : float or None
        Agreement with known labels, where there are any.
    published : bool
        Whether it is the run's result, in ``labels.zarr``.
    """

    columns: str
    objective: float
    nmi: float | None = None
    ari: float | None = None
    published: bool = False


@dataclass(frozen=True)
class StageRecord:
    """A stage of the run with its cost: seconds of wall clock and bytes read, None if it reads nothing.

    `profile`: Seconds of all task slots by step of its passes, where it has some.
    """

    name: str
    seconds: float
    bytes_read: int | None = None
    profile: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of clusters with known labels, which were never used for the selection.

    Parameters
    ----------
    table : array (n_classes, n_clusters)
        Rows of each class in each cluster (counts or weights).
    classes : sequence of str
        Names of the classes, sorted, in the order of the table's rows.
    nmi, ari, accuracy : float
        Normalised mutual information (arithmetic), adjusted Rand index, and share of rows in their class's cluster
        under the best matching; dropped rows are left out.
    nmi_all_columns, ari_all_columns, accuracy_all_columns : float or None
        The same for k-means on all columns, where the job asked for the comparison.
    """

    table: ArrayLike
    classes: Sequence[str]
    nmi: float
    ari: float
    accuracy: float
    nmi_all_columns: float | None = None
    ari_all_columns: float | None = None
    accuracy_all_columns: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRecord:
    """Data of the report page. Texts are escaped and shortened there, so they may be hostile, but not secret.

    Only `title`, the counts, `method`, `scores` and `support` are required: a section without data is left out.

    Parameters
    ----------
    title : str
        Heading of the page, e.g. the name of the source.
    n_rows, n_columns : int
        Shape of the matrix as read.
    method : str
        Selection method as in the job file, e.g. ``"sketched-ridge"``.
    scores : array (n_columns,)
        One score per column; NaN where a column has none.
    support : array (r,) of int
        Selected columns, ascending.
    job_text : str
        The job file (or command) that repeats the run.
    n_dropped : int
        Rows left out because of non-finite values.
    method_parameters : mapping
        Parameters of the selector.
    prepare : sequence of str
        Prepare steps that the rows went through.
    feature_names : sequence of str or None
        One name per column.
    weights : array (r,) or None
        Weights of the selected columns, where the method samples.
    diagnostics : mapping
        Numbers and texts that the method reports of its answer.
    model : ModelRecord or None
        The model fitted by a method with a target.
    timeline : TimelineRecord or None
        The selection along the rows.
    cluster_count : ClusterCountRecord or None
        Comparison of a range of numbers of clusters.
    singular_values : array (m,) or None
        Singular values of the sketch (of the matrix itself where the sketch is exact), descending.
    shrinkage : float
        Delta: the true squared singular values lie in [s_i^2, s_i^2 + Delta].
    squared_norm : float or None
        Exact squared Frobenius norm of the sketched matrix (centred if `spectrum_centred`).
    spectrum_centred : bool
        The spectrum is that of the rows minus their mean.
    cluster_weights : array (k,) or None
        Rows (or total weight) of each cluster; None where nothing was clustered.
    weighted : bool
        `cluster_weights` are weights, not counts.
    profiles : array (k, r) or None
        Means of the clusters in the selected columns less those of all rows, in standard deviations of all rows.
    points : array (m, 2) or None
        A sample of the rows on the top two directions of the sketch.
    point_labels : array (m,) of int or None
        Cluster of each point; negative: none.
    centres_2d : array (k, 2) or None
        Cluster centres on the same two directions.
    image_shape : (height, width) or (height, width, channels) or None
        Where a row is an image: columns in C order.
    centres : array (k, d) or None
        Means of the clusters in all columns; drawn where a row is an image.
    certificates : sequence of Certificate
        Guarantees, in any order.
    statements : sequence of str
        Further proved sentences: on the selected columns before and after clustering.
    known_labels : Agreement or None
        Agreement with known labels.
    compared : sequence of ComparedRecord
        All clusterings, where there are several.
    stages : sequence of StageRecord
        Stages of the run, in order.
    seconds : float or None
        Wall clock of the run until the page was drawn.
    versions, settings : mapping
        Versions of the libraries; seeds and effective settings. Values are shown with ``str``; mappings may nest.
    notes : sequence of str
        Warnings and remarks, one sentence each.

    Raises
    ------
    BadParameter
        Two fields contradict each other.
    """

    title: str
    n_rows: int
    n_columns: int
    method: str
    scores: ArrayLike
    support: ArrayLike
    job_text: str = ""
    n_dropped: int = 0
    method_parameters: Mapping[str, Any] = field(default_factory=dict)
    prepare: Sequence[str] = ()
    feature_names: Sequence[str] | None = None
    weights: ArrayLike | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    model: ModelRecord | None = None
    timeline: TimelineRecord | None = None
    cluster_count: ClusterCountRecord | None = None
    singular_values: ArrayLike | None = None
    shrinkage: float = 0.0
    squared_norm: float | None = None
    spectrum_centred: bool = True
    cluster_weights: ArrayLike | None = None
    weighted: bool = False
    profiles: ArrayLike | None = None
    points: ArrayLike | None = None
    point_labels: ArrayLike | None = None
    centres_2d: ArrayLike | None = None
    image_shape: Sequence[int] | None = None
    centres: ArrayLike | None = None
    certificates: Sequence[Certificate] = ()
    statements: Sequence[str] = ()
    known_labels: Agreement | None = None
    compared: Sequence[ComparedRecord] = ()
    stages: Sequence[StageRecord] = ()
    seconds: float | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse records whose parts do not fit together."""
        d = self.n_columns
        require_shape("scores", self.scores, (d,))
        support = np.asarray(self.support)
        if support.ndim != 1 or (support.size and not (support.min() >= 0 and support.max() < d)):
            raise BadParameter(f"report: support must be a list of columns in 0..{d - 1}, got shape {support.shape}")
        require_shape("feature_names", self.feature_names, (d,))
        require_shape("weights", self.weights, (support.size,))
        if self.cluster_weights is not None:
            k = len(np.asarray(self.cluster_weights))
            require_shape("profiles", self.profiles, (k, support.size))
            require_shape("centres", self.centres, (k, d))
        n_points = 0 if self.points is None else len(np.asarray(self.points))
        if n_points:
            require_shape("points", self.points, (n_points, 2))
            require_shape("point_labels", self.point_labels, (n_points,))
        if self.image_shape is not None and (
            len(self.image_shape) not in (2, 3) or int(np.prod(self.image_shape)) != d
        ):
            raise BadParameter(f"report: image_shape {tuple(self.image_shape)} does not hold {d} columns")
        if self.known_labels is not None:
            rows = np.shape(self.known_labels.table)
            if len(rows) != 2 or rows[0] != len(self.known_labels.classes):
                raise BadParameter(
                    f"report: known_labels.table has shape {rows} for {len(self.known_labels.classes)} classes"
                )
