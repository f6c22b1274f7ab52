"""Displays draw the numbers of what they show, on the axes that they are given; tables for notebooks are escaped."""

from __future__ import annotations

import dataclasses
import io
import sys
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_selection import chi2
from tests.documentation.pages import python

import sketchselect as sks
from sketchselect import plots
from sketchselect.errors import BadParameter
from sketchselect.selectors.registry import METHODS

RNG = np.random.default_rng(0)
X = np.abs(20.0 * np.eye(4)[RNG.integers(4, size=300)] @ RNG.random((4, 6)) + RNG.normal(size=(300, 6)))
Y = X[:, 1] - 2.0 * X[:, 4] + 0.1 * RNG.normal(size=300)


def new_axes(n=1):
    axes = np.ravel(Figure().subplots(n, 1, squeeze=False))
    return axes[0] if n == 1 else axes


def line(axes, label):
    """Return the data of the line with this label."""
    (found,) = (entry for entry in axes.lines if entry.get_label() == label)
    return found.get_xydata()


def drawn(axes):
    """Draw the figure for real, in the form of pixels and of vectors."""
    for form in ("png", "svg"):
        axes.figure.savefig(io.BytesIO(), format=form)


def test_matplotlib_is_imported_when_something_is_drawn(tmp_path):
    display = "sks.plots.ClustersDisplay(points=[[0, 1]])"
    program = f"import sys, sketchselect as sks; {display}; print('matplotlib' in sys.modules)"
    assert python("-c", program, cwd=tmp_path).strip() == "False"


def test_scores_are_bars_from_zero_and_selected_ones_are_drawn_again():
    selector = sks.VarianceSelector(2, normalize=None).fit(X)
    axes = new_axes()
    display = plots.SelectionScoresDisplay.from_estimator(selector, ax=axes)
    assert display.ax_ is axes
    assert display.figure_ is axes.figure
    every, selected = (patch.get_path().vertices.reshape(-1, 2, 2)[:, 1, 1] for patch in axes.patches)
    assert np.allclose(every, np.sort(selector.scores_)[::-1])
    assert np.allclose(selected, every[:2])
    drawn(axes)
    named = dataclasses.replace(selector.selection_, feature_names=tuple("fedcba")).plot()
    assert [label.get_text() for label in named.get_xticklabels()] == [
        "fedcba"[j] for j in np.argsort(-selector.scores_)
    ]
    unnamed = [label.get_text() for label in axes.get_xticklabels()]
    assert unnamed == [str(j) for j in np.argsort(-selector.scores_)]
    every_column = sks.VarianceSelector(6, normalize=None).fit(X).selection_
    assert "all 6 columns" in every_column.plot().get_title()
    assert "all 6 columns" in repr(every_column)


@pytest.mark.parametrize("sizes", [[18, 19, 20, 21, 22], [1, 2, 4, 8, 16, 17, 18, 19], [5], list(range(1, 200))])
def test_sizes_of_a_curve_are_labelled_where_labels_do_not_touch(sizes):
    n = len(sizes)
    curve = {"method": ["greedy"] * n, "n_features": sizes, "ratio": [1.1] * n, "low": [1.0] * n, "high": [1.2] * n}
    axes = plots.SelectionCurveDisplay.from_curve(curve, ax=Figure(figsize=(6, 4)).subplots()).ax_
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert axes.get_xticks()[-1] == sizes[-1]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_curve_is_a_line_for_each_method_with_its_choice_marked():
    auto = sks.AutoSelector(n_clusters=4, methods=["greedy", "variance"]).fit(X)
    assert auto.method_ in {"greedy", "variance"}
    for axes in (plots.SelectionCurveDisplay.from_estimator(auto, ax=new_axes()).ax_, auto.curve_.plot(new_axes())):
        for name in auto.curve_.methods:
            points = [(p.n_features, p.ratio) for p in auto.curve_.points if p.method == name]
            assert np.allclose(line(axes, name), points)
        drawn(axes)
    table = next(p for p in auto.curve_.points if (p.method, p.n_features) == (auto.method_, auto.support_.size))
    marked = plots.SelectionCurveDisplay.from_estimator(auto, ax=new_axes()).ax_
    assert any(np.allclose(entry.get_xydata(), [[table.n_features, table.ratio]]) for entry in marked.lines)
    for n, columns in ((1, "1 of 6 columns"), (5, "5 of 6 columns"), (6, "all 6 columns")):
        chosen = sks.AutoSelector(n, n_clusters=4, methods=["variance"]).fit(X)
        titled = plots.SelectionCurveDisplay.from_estimator(chosen, ax=new_axes()).ax_
        assert titled.get_title() == f"{columns}, chosen by variance"


def test_range_has_objective_bound_and_stability():
    counts = sks.cluster_range(X, range(2, 6), n_seeds=3)
    above, below = counts.plot(new_axes(2))
    top = max(c.objective for c in counts.counts)
    assert np.allclose(line(above, "best clustering"), [(c.n_clusters, c.objective / top) for c in counts.counts])
    assert np.allclose(line(above, "lower bound"), [(c.n_clusters, c.lower_bound / top) for c in counts.counts])
    assert np.allclose(below.lines[0].get_xydata(), [(c.n_clusters, c.stability) for c in counts.counts])
    assert len(counts.plot(new_axes()).lines) > 0
    with pytest.raises(BadParameter, match="2 axes, got 3"):
        counts.plot(new_axes(3))
    drawn(above)


def test_timeline_has_the_ranks_of_columns_that_moved():
    stream = X.copy()
    stream[:150, 2] *= 30.0
    stream[150:, 5] *= 90.0
    timeline = sks.timeline(stream, sks.VarianceSelector(1, normalize=None), points=4, partition_bytes=50 * 6 * 8)
    axes = timeline.plot(new_axes())
    for j in (*timeline.risers(5).tolist(), *timeline.fallers(5).tolist()):
        assert np.array_equal(line(axes, f"column {j}"), np.column_stack([timeline.rows, timeline.ranks[:, j]]))
    odd = dataclasses.replace(timeline, feature_names=("_a", "b", "c", "d", "e", "$\\no{$"))
    display = plots.TimelineDisplay.from_timeline(odd, columns=[0, 5], ax=new_axes())
    assert {text.get_text() for text in display.ax_.get_legend().get_texts()} == {"_a", "$\\no{$"}
    display = plots.TimelineDisplay.from_timeline(odd, columns=[0, 5], ax=new_axes())
    assert display.ax_.get_legend().get_title().get_text() == ""
    assert axes.get_legend().get_title().get_text() == "ranks that changed most"
    drawn(display.ax_)
    drawn(axes)


def by_period(first_days, period):
    """Return a timeline with a point in each of the periods."""
    n = len(first_days)
    stream = np.where(np.arange(30 * n)[:, None] < 15 * n, [1.0, 9.0], [9.0, 1.0]) * RNG.normal(size=(30 * n, 2))
    timeline = sks.timeline(stream, sks.VarianceSelector(1, normalize=None), points=n, partition_bytes=30 * 2 * 8)
    return dataclasses.replace(timeline, dates=np.array(first_days, dtype="datetime64[D]"), period=period)


@pytest.mark.parametrize(
    ("period", "begins", "middles"),
    [
        ("day", ["2024-02-01", "2024-04-01"], ["2024-02-01T12", "2024-04-01T12"]),
        ("week", ["2024-01-29", "2024-04-01"], ["2024-02-01T12", "2024-04-04T12"]),
        ("month", ["2024-02-01", "2024-04-01"], ["2024-02-15T12", "2024-04-16"]),
        ("year", ["2024-01-01", "2026-01-01"], ["2024-07-02", "2026-07-02T12"]),
    ],
)
def test_points_of_a_timeline_are_drawn_in_the_middle_of_periods(period, begins, middles):
    places = line(by_period(begins, period).plot(new_axes()), "column 0")[:, 0]
    assert (24 * places).tolist() == np.array(middles, dtype="datetime64[h]").astype(float).tolist()


def dates(first, stop, step):
    """Return the first days of periods."""
    return np.arange(first, stop, dtype=f"datetime64[{step}]").astype("datetime64[D]")


@pytest.mark.parametrize(
    ("period", "begins", "names"),
    [
        ("month", dates("2025-01", "2025-07", "M"), [f"2025-{m:02d}" for m in range(1, 7)]),
        ("month", dates("2025-01", "2025-11", "M"), [f"2025-{m:02d}" for m in range(1, 11, 2)]),
        ("day", dates("2025-01-29", "2025-05-04", "D"), [f"2025-{m:02d}-01" for m in range(2, 6)]),
        ("day", dates("2025-01-30", "2025-02-02", "D"), ["2025-01-30", "2025-01-31", "2025-02-01"]),
        ("day", dates("2025-01-01", "2025-01-31", "D"), [f"2025-01-{d:02d}" for d in (6, 13, 20, 27)]),
        ("week", ["2024-12-30", "2025-01-06", "2025-03-31"], ["2025-01-06", "2025-03-31"]),
        ("year", dates("1987", "2026", "Y"), [str(year) for year in range(1990, 2026, 5)]),
        ("year", ["2025-01-01"], ["2025"]),
        # Placeholders of dates that are not known: no others than theirs are named.
        ("month", ["0001-01-01", "2025-02-01", "9999-12-01"], ["0001-01", "2025-02", "9999-12"]),
        ("day", ["-004-02-01", "0001-01-01"], ["-004-02-01", "0001-01-01"]),
    ],
)
def test_ticks_of_a_timeline_name_periods_that_have_rows(period, begins, names):
    timeline = by_period(begins, period)
    axes = timeline.plot(new_axes())
    drawn(axes)
    assert [text.get_text() for text in axes.get_xticklabels()] == names
    places = dict(zip(timeline.dates.astype(str).tolist(), axes.lines[0].get_xdata().tolist(), strict=True))
    assert [places[next(day for day in places if day.startswith(name))] for name in names] == axes.get_xticks().tolist()


def test_certificates_are_lines_from_bound_to_objective_to_scatter():
    certificate = sks.Certificate(50.0, 60.0, 1.2, "spectral", 1.0, 0.0, 3, scatter=100.0)
    axes = certificate.plot(new_axes())
    assert line(axes, "may still be gained")[:, 0].tolist() == [certificate.lower_bound, certificate.objective]
    assert line(axes, "gain over one cluster")[:, 0].tolist() == [certificate.objective, certificate.scatter]
    two = plots.CertificateDisplay.from_certificates([certificate, certificate], ax=new_axes())
    assert [text.get_text() for text in two.ax_.get_yticklabels()] == [certificate.method] * 2
    assert "within 20 % of the best possible" in axes.get_title()
    likely = dataclasses.replace(certificate, factor=1.1, confidence=0.99)
    nothing = dataclasses.replace(certificate, lower_bound=0.0, factor=np.inf)
    several = (
        ([likely, certificate], "within 20 %"),
        ([nothing, likely], "with probability 0.99"),
        ([nothing], "Nothing"),
    )
    for certificates, title in several:
        display = plots.CertificateDisplay.from_certificates(certificates, ax=new_axes())
        assert title in display.ax_.get_title()
    with pytest.raises(BadParameter, match="no certificate"):
        plots.CertificateDisplay.from_certificates([])
    drawn(axes)


@pytest.mark.parametrize("method", [sks.LassoPath(), sks.selectors.LogisticPath()])
def test_path_of_a_frame_has_its_names(method):
    names = [f"gene {j}" for j in range(X.shape[1])]
    y = (np.median(Y) < Y).ravel() if method.method == "logistic" else Y
    axes = method.fit(pd.DataFrame(X, columns=names), y).path_.plot_path(new_axes())
    labels = [one.get_label() for one in axes.get_lines() if one.get_label() in names or "column" in one.get_label()]
    assert labels
    assert set(labels) <= set(names)


@pytest.mark.parametrize("method", [sks.LassoPath(), sks.ThresholdedOLS(criterion="bic"), sks.MCPPath(2)])
def test_path_has_the_coefficients_of_standardised_columns(method):
    model = method.fit(X, Y)
    axes = model.path_.plot_path(new_axes())
    scale = X.std(axis=0)
    for j in np.flatnonzero((model.path_.coefs != 0).any(axis=1)):
        assert np.allclose(
            line(axes, f"column {j}"), np.column_stack([model.path_.values, model.path_.coefs[j] * scale[j]])
        )
    drawn(axes)
    if model.path_.cv_errors is not None:
        validation = plots.CrossValidationDisplay.from_estimator(model, ax=new_axes()).ax_
        errors = np.column_stack([model.path_.values, model.path_.cv_errors.mean(axis=1)])
        assert np.allclose(line(validation, "mean over the folds"), errors)
        drawn(validation)
    else:
        with pytest.raises(BadParameter, match="cross-validated"):
            plots.CrossValidationDisplay.from_estimator(model, ax=new_axes())


@pytest.mark.parametrize("form", ["array", "csr", "zarr"])
def test_clusters_are_drawn_on_the_principal_components_of_the_rows(form, tmp_path):
    from scipy.sparse import csr_array

    km = sks.KMeans(4).fit(X)
    rows = {"array": X, "csr": csr_array(X), "zarr": str(tmp_path / "x.zarr")}[form]
    if form == "zarr":
        sks.convert(X, rows)
    points, labels, centres = km.project(rows)
    pca = PCA(2).fit(X)
    exact = pca.transform(X)
    signs = np.sign((points * exact).sum(axis=0))
    assert np.allclose(points * signs, exact, atol=1e-9)
    assert np.allclose(centres * signs, pca.transform(km.cluster_centers_), atol=1e-9)
    assert np.array_equal(labels, km.labels_)
    axes = plots.ClustersDisplay.from_estimator(km, rows, ax=new_axes()).ax_
    dots = np.concatenate([entry.get_xydata() for entry in axes.lines])
    assert {*map(tuple, points.round(9))} <= {*map(tuple, dots.round(9))}
    assert {text.get_text() for text in axes.texts} == {"0", "1", "2", "3"}
    drawn(axes)


def test_top_features_are_those_of_the_largest_chi_square_above_the_mean():
    digits = load_digits().data
    km = sks.KMeans(10).fit(digits)
    for cluster, top in enumerate(km.top_features(3)):
        members = digits[km.labels_ == cluster].mean(axis=0)
        mean = digits.mean(axis=0)
        lift = np.divide(members, mean, out=np.zeros(64), where=mean > 0)
        statistics = np.where(lift > 1, chi2(digits, km.labels_ == cluster)[0], 0.0)
        assert [j for j, _ in top] == np.argsort(-statistics)[:3].tolist()
        assert np.allclose([lift[j] for j, _ in top], [value for _, value in top])
    centred = sks.KMeans(4).fit(X - X.mean(axis=0))
    for cluster, top in enumerate(centred.top_features(3)):  # low columns distinguish a cluster, too
        centre = centred.cluster_centers_[cluster]
        assert [j for j, _ in top] == np.argsort(-np.abs(centre), kind="stable")[:3].tolist()
        assert np.allclose([value for _, value in top], [centre[j] for j, _ in top])
    words = np.array([[1.0, 3.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0], [0.0, 0.0, 4.0]])
    first, _ = sks.KMeans(2, init=words[1:3]).fit(words).top_features(2)
    assert first == [(1, 2.0), (0, 2.0)]  # of equal lifts the larger mean
    topics = np.repeat([[3.0, 0.0, 1.0, 0.0], [0.0, 3.0, 1.0, 0.0]], 50, axis=0)
    topics[0, 3], topics[50, 0] = 1.0, 1.0  # a word of one row alone, and one that is seldom elsewhere
    first, _ = sks.KMeans(2, init=topics[[1, 51]]).fit(topics).top_features(2)
    assert first == [(0, pytest.approx(2 * 150 / 151)), (3, 2.0)]  # though the lift of the other is larger
    with pytest.raises(BadParameter, match="stream"):
        sks.KMeans(2).partial_fit(X).top_features()


def test_new_axes_are_made_without_any():
    try:
        axes = sks.VarianceSelector(2).fit(X).selection_.plot()
        assert axes.figure.number in pyplot.get_fignums()
    finally:
        pyplot.close("all")


def test_displays_say_what_they_need():
    with pytest.raises(BadParameter, match="VarianceSelector has no curve_"):
        plots.SelectionCurveDisplay.from_estimator(sks.VarianceSelector(2).fit(X))
    with pytest.raises(BadParameter, match=r"\(n_rows, 2\)"):
        plots.ClustersDisplay(points=np.zeros((3, 3)))


class Cells(HTMLParser):
    """Text of the cells of a table; only elements of tables may occur."""

    def __init__(self, html):
        super().__init__()
        self.text = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert (tag, attrs) in [(name, []) for name in ("table", "caption", "tr", "th", "td")]

    def handle_data(self, data):
        self.text.append(data)


def test_results_are_tables_in_a_notebook_and_escaped():

    frame = pd.DataFrame(X, columns=["<script>", "b&", "c\u202e", "d", "e", "f"])
    selector = sks.VarianceSelector(3, normalize=None).fit(frame)
    km = sks.KMeans(3).fit(X)
    auto = sks.AutoSelector(n_clusters=3, methods=["variance"]).fit(X)
    certificate = sks.certify(X, km.inertia_, 3)
    counts = sks.cluster_range(X, range(2, 4), n_seeds=2)
    moving = sks.timeline(frame, sks.VarianceSelector(1), points=3, partition_bytes=50 * 6 * 8)
    for shown, word in (
        (selector.selection_, "3 of 6 columns"),
        (selector.summary_, "300"),
        (sks.Moments(), "moments"),
        (auto.curve_, "variance"),
        (auto.selection_, auto.selection_.diagnostics["choice"]),
        (certificate, certificate.sentence()[:40]),
        (counts, counts.sentence()),
        (moving, "Timeline"),
    ):
        assert word in " ".join(Cells(shown._repr_html_()).text)
    names = Cells(selector.selection_._repr_html_()).text
    assert [name for name in names if name in frame.columns] == [
        frame.columns[j] for j in selector.selection_.ranking()[:3] if j != 2
    ]


def test_dir_is_for_users():
    internal = {
        "summary_description",
        "check_parameters",
        "single_pass",
        "method",
        "requires",
        "uses_target",
        "n_folds",
    }
    for cls in {*METHODS.values(), sks.KMeans, sks.selectors.SketchedPCA}:
        names = dir(cls())
        assert {
            *cls().get_params(deep=False),
            "fit",
            "transform",
            "get_params",
            "set_params",
            "get_feature_names_out",
        } <= {*names}
        assert not internal & {*names} - {*cls().get_params()}
        assert not [name for name in names if name.startswith("_") or name.endswith("_")]
        undocumented = [
            name
            for name in {*names} - {*cls().get_params()}
            if not (getattr(cls(), name).__doc__ or "").strip() or not callable(getattr(cls(), name))
        ]
        assert not undocumented, cls
    for fitted in (sks.VarianceSelector(2).fit(X), sks.KMeans(2).fit(X), sks.LassoPath().fit(X, Y)):
        attributes = {name for name in dir(fitted) if name.endswith("_")}
        assert attributes >= {name for name in vars(fitted) if name.endswith("_") and name[0] != "_"}
        assert all(getattr(fitted, name) is not None for name in attributes)
    assert "cluster_centers_" in dir(sks.KMeans(2).partial_fit(X))
    assert {"alpha_", "mse_path_"} <= {*dir(sks.LassoPath(cv=3).fit(X, Y))}
    assert "matplotlib" in sys.modules


@pytest.mark.parametrize("options", [{}, {"degree": 2}])
def test_terms_have_the_names_of_the_columns_that_steps_made(options):
    frame = pd.DataFrame({"place": ["mill", "weir", "dam"] * (len(X) // 3), "a": X[: len(X) // 3 * 3, 0]})
    model = sks.LassoPath(**options).fit(frame, frame.a - (frame.place == "mill"), prepare=["one-hot"])
    axes = plots.ModelPathDisplay.from_estimator(model, ax=new_axes()).ax_
    for name in ("a", "place=mill"):
        assert name in model.get_feature_names_out()
        assert line(axes, name)[-1, 1] != 0


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (lambda: plots.ClustersDisplay(points=[[0, 1]]).plot(Figure()), "ax: .*Figure"),
        (lambda: plots.ClustersDisplay(points=[[0, 1]], labels=["a"]), "labels"),
        (lambda: plots.ClustersDisplay.from_estimator(sks.VarianceSelector(2).fit(X), X), "VarianceSelector"),
        (lambda: plots.ModelPathDisplay.from_path(sks.LassoPath().fit(X, Y).path_, feature_names="a"), "feature_names"),
    ],
)
def test_what_cannot_be_drawn_is_named(draw, names):
    with pytest.raises(BadParameter, match=names):
        draw()


def test_a_volcano_plot_has_effects_and_logarithms_of_p_values():
    names = ["<a> $b$", *"cdefg"]
    rows = pd.DataFrame(X, columns=names)
    tests = sks.selectors.UnivariateSelector(score="correlation", mode="fdr", alpha=1e-6).fit(rows, pd.Series(Y))
    axes = new_axes()
    plots.VolcanoDisplay.from_estimator(tests, ax=axes)
    dots = np.vstack([dots.get_xydata() for dots in axes.lines if dots.get_marker() == "o"])
    expected = np.column_stack([tests.effects_, -tests.log_pvalues_ / np.log(10)])
    expected[:, 1] = np.minimum(expected[:, 1], axes.get_ylim()[1])
    assert np.allclose(dots[np.argsort(dots[:, 0])], expected[np.argsort(expected[:, 0])])
    labels = {text.get_text() for text in axes.texts}
    assert labels
    assert labels <= {names[j] for j in tests.support_}
    assert axes.get_xlabel() == "correlation with the target"
    drawn(axes)
    with pytest.raises(BadParameter, match="no tests"):
        plots.VolcanoDisplay.from_selection(sks.VarianceSelector(2).fit(X).selection_)
    with pytest.raises(BadParameter, match="UnivariateSelector"):
        plots.VolcanoDisplay.from_estimator(sks.VarianceSelector(2).fit(X))
    none = np.full(2, np.nan)
    with pytest.raises(BadParameter, match="nothing to draw"):
        plots.VolcanoDisplay(effects=none, log_pvalues=none, support=[]).plot(new_axes())
