"""Displays as scikit-learn's: what a figure shows, and its drawing on axes of Matplotlib."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted
from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import Floats

MOVED = 5
"""Columns that rose, and as many that fell, in the figure of a timeline."""


class Display(ABC):
    """Base of displays.

    Matplotlib is imported when something is drawn. A display is drawn by its class methods, and again by `plot`.

    Attributes
    ----------
    ax_ : matplotlib Axes, or array of several
        What it was drawn on.
    figure_ : matplotlib Figure
        Their figure.
    """

    _panels: ClassVar[tuple[float, ...]] = (1.0,)  # Relative heights of new axes

    def plot(self, ax: Any = None) -> Self:
        """Draw on `ax` (new axes by default) and return the display, with `ax_` and `figure_`.

        A display of several panels takes as many axes, or one for the first panel alone.
        """
        from sketchselect.plots import charts

        if ax is None:
            from matplotlib import pyplot

            heights, size = list(self._panels), (6.4, 3.6 + 1.4 * (len(self._panels) - 1))
            _, ax = pyplot.subplots(
                len(heights), squeeze=len(heights) == 1, figsize=size, height_ratios=heights, layout="constrained"
            )
        panels = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(panels) not in (1, len(self._panels)):
            raise BadParameter(f"ax: {type(self).__name__} draws on {len(self._panels)} axes, got {len(panels)}")
        for panel in panels:
            if not hasattr(panel, "xaxis"):
                raise BadParameter(f"ax: expected axes, such as those of figure.subplots(), got {type(panel).__name__}")
        self._draw(charts, charts.Pen.of_matplotlib(), panels)
        self.ax_ = panels[0] if len(panels) == 1 else np.array(panels, dtype=object)
        self.figure_ = panels[0].figure
        return self

    @abstractmethod
    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        """Draw on these axes by the functions of the module `charts`, which is imported for that."""


def _of(estimator: Any, name: str, needed: str) -> Any:
    """Return an attribute of a fitted estimator, or raise an error that says what is needed."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    if (value := getattr(estimator, name, None)) is None:
        raise BadParameter(f"{type(estimator).__name__} has no {name}; this display needs {needed}")
    return value


MOST_NAMES = 40
"""Columns with scores whose names have room below their bars."""


class SelectionScoresDisplay(Display):
    """Scores of all columns in falling order, the selected ones marked.

    Parameters
    ----------
    scores : array of shape (n_features,)
        Larger is better; columns of NaN are left out.
    support : array of int, shape (n_selected,)
        Selected columns.
    feature_names : sequence of str, optional
        Written below the bars where at most 40 columns have a score.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import load_digits
    >>> selector = sks.VarianceSelector(10).fit(load_digits().data)
    >>> display = sks.plots.SelectionScoresDisplay.from_estimator(selector)  # doctest: +SKIP
    """

    def __init__(self, *, scores: Any, support: Any, feature_names: Any = None) -> None:
        self.scores: Floats = np.asarray(scores, dtype=np.float64)
        self.support: NDArray[np.int64] = np.asarray(support, dtype=np.int64)
        self.feature_names = feature_names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the scores of a fitted selector."""
        return cls.from_selection(_of(estimator, "selection_", "a selector"), ax=ax)

    @classmethod
    def from_selection(cls, selection: Any, *, ax: Any = None) -> Self:
        """Draw the scores of a `Selection`."""
        names = selection.feature_names
        return cls(scores=selection.scores, support=selection.support, feature_names=names).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        ranking = charts.rank(self.scores, self.support)
        if ranking.n_scored == 0:
            raise BadParameter("no column has a score, so there is nothing to draw")
        charts.draw_scores(pen, panels[0], ranking, ranking.n_scored)
        if 1 < len(self.support) == len(self.scores):
            panels[0].set_title(f"all {len(self.scores)} columns are selected")
        if ranking.n_scored <= MOST_NAMES:
            order = ranking.order[: ranking.n_scored].tolist()
            names = order if self.feature_names is None else [self.feature_names[j] for j in order]
            panels[0].set_xticks(
                range(1, len(order) + 1), names, rotation=0 if self.feature_names is None and len(order) <= 20 else 90
            )
            panels[0].set_xlabel("columns, highest score first")
        else:
            panels[0].set_xlabel("rank of the column (1 = highest score)")


class VolcanoDisplay(Display):
    """Effects of single columns against the significance of their tests, the selected ones marked and some named.

    Parameters
    ----------
    effects : array of shape (n_features,)
        Sizes of the effects, in the unit that `effect` names.
    log_pvalues : array of shape (n_features,)
        Natural logarithms of the p-values; columns of NaN are left out, those of -inf are at the upper edge.
    support : array of int, shape (n_selected,)
        Selected columns.
    feature_names : sequence of str, optional
        Names of all columns; without them dots have the number of their column.
    effect : str
        What an effect is, in words.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import load_breast_cancer
    >>> tests = sks.selectors.UnivariateSelector(mode="fdr").fit(*load_breast_cancer(return_X_y=True, as_frame=True))
    >>> display = sks.plots.VolcanoDisplay.from_estimator(tests)  # doctest: +SKIP
    """

    def __init__(
        self, *, effects: Any, log_pvalues: Any, support: Any, feature_names: Any = None, effect: str = "effect"
    ) -> None:
        self.effects: Floats = np.asarray(effects, dtype=np.float64)
        self.log_pvalues: Floats = np.asarray(log_pvalues, dtype=np.float64)
        self.support: NDArray[np.int64] = np.asarray(support, dtype=np.int64)
        self.feature_names = feature_names
        self.effect = effect

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the tests of a fitted `UnivariateSelector`."""
        _of(estimator, "log_pvalues_", "a UnivariateSelector")
        return cls.from_selection(estimator.selection_, ax=ax)

    @classmethod
    def from_selection(cls, selection: Any, *, ax: Any = None) -> Self:
        """Draw the tests of a `Selection` by a `UnivariateSelector`."""
        columns = selection.columns
        if "log_pvalues" not in columns:
            raise BadParameter(
                f"a selection by {selection.method} has no tests; this display needs a UnivariateSelector"
            )
        return cls(
            effects=columns["effects"],
            log_pvalues=columns["log_pvalues"],
            support=selection.support,
            feature_names=selection.feature_names,
            effect=selection.diagnostics["effect"],
        ).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        if not (np.isfinite(self.effects) & ~np.isnan(self.log_pvalues)).any():
            raise BadParameter("no column has a test, so there is nothing to draw")
        (axes,) = panels
        room = np.array(axes.get_position().size) * axes.figure.bbox.size * 72 / axes.figure.dpi
        tests = self.effects, self.log_pvalues
        charts.draw_volcano(pen, axes, *tests, self.support, self.feature_names, self.effect, room)


class SelectionCurveDisplay(Display):
    """Inertia in all columns of k-means on the selected ones, by number of columns and method.

    Parameters
    ----------
    curve : SelectionCurve or mapping
        The estimates, or the columns of their table (`SelectionCurve.to_dict`).
    chosen : tuple of str and int, optional
        Method and number of columns to mark; its intervals alone are drawn then.
    n_columns : int, optional
        Number of all columns, for the title.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> curve = sks.selection_curve(X, n_clusters=3, methods=["greedy"], sizes=[2, 6])
    >>> display = sks.plots.SelectionCurveDisplay.from_curve(curve, ax=Figure().subplots())
    """

    def __init__(self, *, curve: Any, chosen: tuple[str, int] | None = None, n_columns: int | None = None) -> None:
        self.curve: Mapping[str, Any] = curve if isinstance(curve, Mapping) else curve.to_dict()
        self.chosen = chosen
        self.n_columns = n_columns

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the curve of a fitted `AutoSelector`, its choice marked."""
        curve = _of(estimator, "curve_", "an AutoSelector")
        chosen = estimator.method_, int(estimator.support_.size)
        return cls(curve=curve, chosen=chosen, n_columns=estimator.selection_.scores.size).plot(ax)

    @classmethod
    def from_curve(cls, curve: Any, *, ax: Any = None) -> Self:
        """Draw the result of `selection_curve`."""
        return cls(curve=curve).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        charts.draw_curve(pen, panels[0], self.curve, self.chosen)
        if self.chosen is not None:
            method, n_chosen = self.chosen
            columns = counted(n_chosen, "column")
            if self.n_columns is not None:
                part = "all" if 1 < n_chosen == self.n_columns else f"{n_chosen} of"
                columns = f"{part} {counted(self.n_columns, 'column')}"
            panels[0].set_title(f"{columns}, chosen by {method}")


class ClusterRangeDisplay(Display):
    """Inertia, lower bound, and stability and silhouette by number of clusters, in two panels; on one axes the first.

    Parameters
    ----------
    counts : ClusterRange
        The result of `cluster_range`; objectives are drawn as shares of the highest.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> counts = sks.cluster_range(X, range(2, 6))
    >>> display = sks.plots.ClusterRangeDisplay.from_range(counts, ax=Figure().subplots(2))
    """

    _panels = (1.6, 1.0)

    def __init__(self, *, counts: Any) -> None:
        self.counts = counts

    @classmethod
    def from_range(cls, counts: Any, *, ax: Any = None) -> Self:
        """Draw the result of `cluster_range`."""
        return cls(counts=counts).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        counts = self.counts.counts
        table = {
            "n_clusters": [c.n_clusters for c in counts],
            "objectives": [c.best_objective for c in counts],
            "lower_bounds": [np.nan if c.lower_bound is None else c.lower_bound for c in counts],
            "stability": [c.stability for c in counts],
            "silhouette": [c.silhouette for c in counts],
            "recommended": self.counts.recommended,
        }
        names = "inertia, relative to the highest", ""
        charts.draw_counts(pen, panels, table, names)


class TimelineDisplay(Display):
    """Ranks along the rows of the columns that moved most: solid lines rose, dashed ones fell.

    Parameters
    ----------
    timeline : Timeline
        The result of `timeline`.
    columns : sequence of int, optional
        Columns to draw; by default the five that rose most and the five that fell most. One that has the same rank at
        the first point and the last is not among these.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> timeline = sks.timeline(X, sks.VarianceSelector(2))
    >>> display = sks.plots.TimelineDisplay.from_timeline(timeline, ax=Figure().subplots())
    """

    def __init__(self, *, timeline: Any, columns: Iterable[int] | None = None) -> None:
        self.timeline, self.columns = timeline, columns

    @classmethod
    def from_timeline(cls, timeline: Any, *, columns: Iterable[int] | None = None, ax: Any = None) -> Self:
        """Draw the result of `timeline`."""
        return cls(timeline=timeline, columns=columns).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        line = self.timeline
        if self.columns is None:
            risen, columns = line.risers(MOVED), np.concatenate([line.risers(MOVED), line.fallers(MOVED)])
        else:
            columns = np.asarray(list(self.columns), dtype=np.int64)
            columns = columns[np.argsort(line.rises[columns] < 0, kind="stable")]
            risen = columns[line.rises[columns] >= 0]
        names = line.feature_names
        unknown = np.isnan(line.scores).all(axis=1)
        table = {
            "rows": line.rows,
            "ranks": np.where(unknown[:, None], np.nan, line.ranks[:, columns]),
            "n_selected": [support.size for support in line.supports],
            "names": [f"column {j}" if names is None else names[j] for j in columns.tolist()],
            "n_risen": len(risen),
            "window": None if (line.starts == 0).all() else 0,
            "dates": line.dates,
            "period": line.period,
        }
        title = "ranks that changed most" if self.columns is None else ""
        charts.draw_timeline(pen, panels[0], table, named=True, title=title)


class CertificateDisplay(Display):
    """Lower bound, inertia and the inertia of one cluster, a line for each certificate; the title says what is proved.

    Parameters
    ----------
    certificates : Certificate or sequence of them
        Of the same rows.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> model = sks.KMeans(3, random_state=0).fit(X)
    >>> certificate = sks.certify(X, model.inertia_, 3)
    >>> display = sks.plots.CertificateDisplay.from_certificates(certificate, ax=Figure().subplots())
    """

    def __init__(self, *, certificates: Any) -> None:
        self.certificates = list(certificates) if isinstance(certificates, Iterable) else [certificates]

    @classmethod
    def from_certificates(cls, certificates: Any, *, ax: Any = None) -> Self:
        """Draw one or several certificates, such as those of a `RunResult`."""
        return cls(certificates=certificates).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        if not self.certificates:
            raise BadParameter("no certificate was given, so there is nothing to draw")
        charts.draw_certificates(pen, panels[0], self.certificates)
        best = min(self.certificates, key=lambda c: (not np.isfinite(c.factor), c.confidence < 1, c.factor))
        sure = "" if best.confidence == 1 else f" (with probability {best.confidence})"
        # What the best one proves, without the numbers, which are on the axis.
        panels[0].set_title(best.sentence().partition(": ")[0] + sure, fontsize="medium", wrap=True)


class ModelPathDisplay(Display):
    """Standardised coefficients along the path of models, and the chosen model.

    Parameters
    ----------
    path : ModelPath
        Of several targets the norm of a column's coefficients is drawn.
    feature_names : sequence of str, optional
        Names of the terms.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = sks.LassoPath(n_features_to_select=4).fit(X, y)
    >>> display = sks.plots.ModelPathDisplay.from_estimator(model, ax=Figure().subplots())
    """

    def __init__(self, *, path: Any, feature_names: Any = None) -> None:
        self.path, self.feature_names = path, feature_names

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the path of a fitted selector with a target, such as `LassoPath`."""
        path = _of(estimator, "path_", "a selector with a path of models")
        # Of the terms: those of the frame are of other columns where steps make new ones.
        return cls(path=path, feature_names=getattr(estimator, "_term_names", None)).plot(ax)

    @classmethod
    def from_path(cls, path: Any, *, feature_names: Any = None, ax: Any = None) -> Self:
        """Draw a `ModelPath`, whose own names are the default."""
        names = path.feature_names if feature_names is None else feature_names
        return cls(path=path, feature_names=names).plot(ax)

    def _table(self) -> dict[str, Any]:
        columns, lines = self.path.lines()
        names = self.feature_names
        if names is not None and columns.size and len(names) <= (last := int(columns.max())):
            raise BadParameter(f"feature_names: {len(names)} given, the path has a term number {last}")
        return {
            "parameter": self.path.parameter,
            "values": self.path.values,
            "chosen": self.path.chosen,
            "path_terms": [f"column {j}" if names is None else str(names[j]) for j in columns.tolist()],
            "path_lines": lines,
            "cv_mean": self.path.mean_cv_error,
            "cv_error": self.path.cv_standard_error,
            "family": self.path.family,
        }

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        charts.draw_path(pen, panels[0], self._table(), named=True)
        panels[0].set_title(f"{counted(self.path.model.support.size, 'column')} chosen")


class CrossValidationDisplay(ModelPathDisplay):
    """Error on held-out folds along the path of models, with a band of one standard error.

    Parameters
    ----------
    path : ModelPath
        One that was chosen by cross-validation.
    feature_names : sequence of str, optional
        Without effect.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = sks.LassoPath(cv=5).fit(X, y)
    >>> display = sks.plots.CrossValidationDisplay.from_estimator(model, ax=Figure().subplots())
    """

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        if self.path.cv_errors is None:
            raise BadParameter("these models were not cross-validated; fit with cv=5, or draw the ModelPathDisplay")
        charts.draw_validation(pen, panels[0], self._table())


class ClustersDisplay(Display):
    """Rows on their two first principal components, in the colours of their clusters, which have numbers.

    Parameters
    ----------
    points : array of shape (n_rows, 2)
        Rows.
    labels : array of int, shape (n_rows,), optional
        Their clusters; -1 for none.
    centres : array of shape (n_clusters, 2), optional
        Where the numbers stand; the medians of the clusters by default.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> model = sks.KMeans(3, random_state=0).fit(X)
    >>> display = sks.plots.ClustersDisplay.from_estimator(model, X, ax=Figure().subplots())
    """

    def __init__(self, *, points: Any, labels: Any = None, centres: Any = None) -> None:
        self.points: Floats = np.asarray(points, dtype=np.float64)
        self.labels = None if labels is None else np.asarray(labels)
        self.centres: Floats | None = None if centres is None else np.asarray(centres, dtype=np.float64)
        if self.points.ndim != 2 or self.points.shape[1] != 2:
            raise BadParameter(f"points: expected shape (n_rows, 2), got {self.points.shape}")
        if self.labels is not None and self.labels.shape != self.points.shape[:1]:
            raise BadParameter(f"labels: {self.labels.size} for {len(self.points)} rows")
        if self.labels is not None and self.labels.dtype.kind not in "biuf":
            raise BadParameter(f"labels: expected whole numbers, got {self.labels.dtype}; number names by np.unique")

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Draw a sample of the rows of X, of up to 2,000, with the clusters of a fitted `KMeans`; one pass."""
        if not hasattr(estimator, "project"):
            raise BadParameter(f"{type(estimator).__name__} has no clusters; this display needs a KMeans")
        points, labels, centres = estimator.project(X)
        return cls(points=points, labels=labels, centres=centres).plot(ax)

    def _draw(self, charts: Any, pen: Any, panels: list[Any]) -> None:
        charts.draw_scatter(pen, panels[0], self.points, self.labels, self.centres)
