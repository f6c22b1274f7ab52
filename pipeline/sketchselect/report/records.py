"""Record of a run: the plain data that the report page is made from.

Check of the shapes of a record's arrays.

Record of a fitted model.

Record of a range of numbers of clusters.

Record of a timeline: ranks of columns along the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.cluster import Certificate
from sketchselect.errors import BadParameter


def require_shape(name: str, values: Any, expected: tuple[int, ...]) -> None:
    """Raise `BadParameter` unless values, where there are any, have this shape."""
    shape = np.shape(values)
    # An empty table read back from a file has lost its width.
    if values is not None and shape != expected and (math.prod(shape) or math.prod(expected)):
        raise BadParameter(f"report: {name} has shape {shape}, expected {expected}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelRecord:
    """A sparse linear model and the path of models it was chosen from.

    Parameters
    ----------
    task : str
        "regression" or "classification".
    outputs : sequence of str
        Names of the outputs.
    terms : sequence of str
        The listed terms of the model, strongest first: a column's number or name, or a product of columns.
    coefficients : array (n_listed, n_outputs)
        Coefficients of the listed terms, in units of the data.
    strengths : array (n_listed,)
        Coefficients of the standardised terms (norms of several targets'): comparable with one another.
    intercepts : array (n_outputs,)
        Not finite where an output never wins.
    n_terms : int
        Terms of the model, listed or not.
    chosen_by : str
        Rule that this model was chosen by.
    explained, explained_held_out : float or None
        Share of the target's variance that the model explains on the rows it was fitted to, and on held-out folds.
    parameter : str
        "alpha" or "n_features": the parameter that varies along the path.
    values, sizes : array (m,)
        That parameter, and the number of terms, of each model of the path.
    chosen : int
        Index of the chosen model.
    path_terms : sequence of str
        Terms followed along the path, strongest first.
    path_lines : array (m, n_followed)
        Their standardised coefficients.
    criteria : mapping of str to array (m,)
        Information criteria; smaller is better.
    cv_mean, cv_error : array (m,) or None
        Mean squared error over held-out folds, and its standard error.
    cv_folds : int
        Number of folds.
    cv_rule : str
        "min" or "1se".
    expanded : bool
        Whether terms include squares and products of columns.

    Raises
    ------
    BadParameter
        Two fields contradict each other.
    """

    task: str
    outputs: Sequence[str]
    terms: Sequence[str]
    coefficients: ArrayLike
    strengths: ArrayLike
    intercepts: ArrayLike
    n_terms: int
    chosen_by: str
    values: ArrayLike
    sizes: ArrayLike
    chosen: int
    parameter: str = "alpha"
    explained: float | None = None
    explained_held_out: float | None = None
    path_terms: Sequence[str] = ()
    path_lines: ArrayLike | None = None
    criteria: Mapping[str, ArrayLike] = field(default_factory=dict)
    cv_mean: ArrayLike | None = None
    cv_error: ArrayLike | None = None
    cv_folds: int = 0
    cv_rule: str = "min"
    expanded: bool = False

    def __post_init__(self) -> None:
        """Refuse records whose parts do not fit together."""
        m, n, q = len(np.asarray(self.values)), len(self.terms), len(self.outputs)
        if not 0 <= self.chosen < m:
            raise BadParameter(f"report: model.chosen is {self.chosen}, the path has {m} models")
        require_shape("model.strengths", self.strengths, (n,))
        require_shape("model.intercepts", self.intercepts, (q,))
        require_shape("model.coefficients", self.coefficients, (n, q))
        if len(self.path_terms):
            require_shape("model.path_lines", self.path_lines, (m, len(self.path_terms)))
        curves = {"sizes": self.sizes, "cv_mean": self.cv_mean, "cv_error": self.cv_error, **self.criteria}
        for name, values in curves.items():
            require_shape(f"model.{name}", values, (m,))


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterCountRecord:
    """Objective, lower bound and stability of a range of numbers of clusters.

    Parameters
    ----------
    n_clusters : sequence of int
        The numbers, ascending.
    objectives : sequence of float
        Objective of the best clustering for each, over all rows.
    lower_bounds : sequence of float
        No clustering into that many clusters has a smaller objective.
    stability : sequence of float
        Mean adjusted Rand index between clusterings from different seeds.
    sentence : str
        The recommendation and its rule.
    n_seeds, n_sampled : int
        Seeds for each number, and rows of the coreset they were compared on.
    recommended : int or None
        One of the numbers.
    used : int or None
        The number of clusters that the job itself used.

    Raises
    ------
    BadParameter
        If the sequences differ in length.
    """

    n_clusters: Sequence[int]
    objectives: Sequence[float]
    lower_bounds: Sequence[float]
    stability: Sequence[float]
    sentence: str
    n_seeds: int
    n_sampled: int
    recommended: int | None = None
    used: int | None = None

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {np.size(a) for a in (self.n_clusters, self.objectives, self.lower_bounds, self.stability)}
        if len(lengths) != 1 or 0 in lengths:
            raise BadParameter(f"report: columns of the range of clusters have lengths {sorted(lengths)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class TimelineRecord:
    """The columns that rose and fell the most.

    Parameters
    ----------
    rows : array (n_points,) of int
        Index after the last row that counts at each point, ascending.
    n_selected : array (n_points,) of int
        Columns selected at each point.
    n_ever : int
        Columns selected at any point.
    n_always : int
        Columns selected at every point.
    names : sequence of str
        The columns shown: those that rose, farthest first, then those that fell, farthest first.
    n_risen : int
        How many of them rose.
    ranks : array (n_points, n_shown)
        Their ranks, 1 for the best score; NaN where a point has no scores.
    window : int or None
        Rows that count at each point; None for all since the first.
    half_life : float or None
        Rows after which a row counts half.

    Raises
    ------
    BadParameter
        Two fields contradict each other.
    """

    rows: ArrayLike
    n_selected: ArrayLike
    n_ever: int
    n_always: int
    names: Sequence[str]
    n_risen: int
    ranks: ArrayLike
    window: int | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Refuse records whose parts do not fit together."""
        t, m = len(np.asarray(self.rows)), len(self.names)
        if t == 0:
            raise BadParameter("report: timeline has no points")
        require_shape("timeline.n_selected", self.n_selected, (t,))
        require_shape("timeline.ranks", self.ranks, (t, m))
        if not 0 <= self.n_risen <= m:
            raise BadParameter(f"report: timeline.n_risen is {self.n_risen} of {m} columns shown")


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
