"""Values as they may come: any layout in memory, any size, down to the smallest numbers there are."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone

import sketchselect as sks
from sketchselect.cluster import cluster_range
from sketchselect.cluster.certificates.labels import _first_rows
from sketchselect.errors import BadBlock, BadParameter, ConfigError, EmptyInput, NotFinite, SourceError
from sketchselect.execution import Block
from sketchselect.linalg.hashing import words_of
from sketchselect.linalg.kmeans.separation import Partition, sums_of_rows
from sketchselect.readers import open_vector
from sketchselect.selectors.supervised import target
from sketchselect.summaries import CentroidSums, codec
from sketchselect.workflow.plan.forecast import forecast_job

DESCRIPTION = {"stats": sks.ColumnStats(), "moments": sks.Moments(), "sketch": sks.FrequentDirections(size=4)}


def unaligned(rows: np.ndarray) -> np.ndarray:
    raw = np.empty(rows.nbytes + 1, np.uint8)
    view = raw[1:].view(rows.dtype).reshape(rows.shape)
    view[...] = rows
    return view


def read_only(rows: np.ndarray) -> np.ndarray:
    copy = rows.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.share(1)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_layouts_of_memory_give_the_same_bits(dtype: str) -> None:
    rows = (100 * np.random.default_rng(0).standard_normal((203, 7))).astype(dtype)
    layouts = {
        "Fortran order": np.asfortranarray(rows),
        "big-endian": rows.astype(rows.dtype.newbyteorder(">")),
        "read-only": read_only(rows),
        "unaligned": unaligned(rows),
        "every second row": np.repeat(rows, 2, axis=0)[::2],
    }
    assert not layouts["unaligned"].flags.aligned
    native = codec.encode(sks.summarize(rows, DESCRIPTION, client="serial", partition_bytes=2000))
    for name, values in layouts.items():
        assert codec.encode(sks.summarize(values, DESCRIPTION, client="serial", partition_bytes=2000)) == native, name


@pytest.mark.parametrize("cls", [csr_array, csr_matrix])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
def test_sparse_rows_with_stored_zeros_are_left_as_they_are(cls: Any, dtype: str) -> None:
    """Matrices such as the layers of an AnnData object may share their places; `fit` took zeros out of both."""
    rows = cls(np.random.default_rng(0).integers(1, 9, (40, 5)).astype(dtype))
    rows.data[:7] = 0
    beside = cls((np.arange(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
    arrays = [a.copy() for a in (rows.data, rows.indices, rows.indptr)]
    dense = beside.toarray()
    for estimator in (sks.VarianceSelector(2, normalize=None), sks.KMeans(2, random_state=0)):
        for rows_of in (estimator.fit, estimator.transform):
            rows_of(rows)
            for before, now in zip(arrays, (rows.data, rows.indices, rows.indptr), strict=True):
                assert np.array_equal(before, now)
            assert np.array_equal(beside.toarray(), dense)


@pytest.mark.parametrize("estimator", [sks.VarianceSelector(2), sks.KMeans(2)])
@pytest.mark.parametrize(("dtype", "what"), [("M8[s]", "dates"), ("m8[s]", "durations")])
def test_dates_in_an_array_are_not_taken_as_numbers(estimator: Any, dtype: str, what: str) -> None:
    rows = np.arange(40).reshape(10, 4)
    with pytest.raises(SourceError, match=f"array: values of type .* are not real numbers.*turn {what} into numbers"):
        clone(estimator).fit(rows.astype(dtype))
    if isinstance(estimator, sks.KMeans):
        fitted = clone(estimator).fit(rows)
        with pytest.raises(SourceError, match=f"turn {what} into numbers first"):
            fitted.predict(rows.astype(dtype))


@pytest.mark.parametrize("span", [10, 100, 400])
def test_sizes_of_columns_change_no_selection_that_standardises(span: int) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 12)) + 0.3 * rng.standard_normal((300, 12))
    target = rows @ np.r_[3.0, -2.0, np.zeros(10)]
    scaled = rows * 2.0 ** rng.integers(-span, span, 12)
    for values in (rows, scaled):
        values += values.mean(axis=0)
    of_target = [sks.LassoPath(n_features_to_select=4).fit(X, target).get_support() for X in (rows, scaled)]
    assert np.array_equal(*of_target)
    prepared = []
    for X in (rows, scaled):
        steps = sks.fit_prepare(X, ["standardise"]).steps
        sketch = sks.summarize(X, sks.FrequentDirections(size=12), prepare=steps, client="serial")
        selector = sks.SketchedRidgeSelector(n_features_to_select=4, n_components=3, sketch_size=12)
        prepared.append(selector.fit_summary(sketch).get_support())
    assert np.array_equal(*prepared)


def test_denormal_numbers_are_numbers() -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((100, 3))
    rows[:, 1] *= 5e-324 / np.abs(rows[:, 1]).max() * 40
    seen = sks.summarize(rows, DESCRIPTION, client="serial", partition_bytes=800)
    assert np.array_equal(seen["stats"].minimum, rows.min(axis=0))
    assert np.isfinite(seen["stats"].variance).all()
    assert np.isfinite(seen["sketch"].sketch).all()
    chosen = sks.VarianceSelector(n_features_to_select=2).fit(rows).get_support()
    assert chosen.tolist() == [True, False, True]


@pytest.mark.parametrize("size", [1e-310, 1e-315, 5e-324])
@pytest.mark.parametrize(
    "estimator", [sks.KMeans(3), sks.VarianceSelector(2), sks.LassoPath(n_features_to_select=2)], ids=lambda e: str(e)
)
def test_weights_without_digits_count_as_zero(estimator: Any, size: float) -> None:
    rng = np.random.default_rng(3)
    rows, weights = rng.standard_normal((60, 5)), np.full(60, size)
    with pytest.raises((BadParameter, EmptyInput), match=r"sample.weights? (is|are) zero"):
        estimator.fit(rows, rows[:, 0], sample_weight=weights)
    weights[30:] = 1.0
    # Beside others they are nothing, in any partitions.
    whole = sks.summarize(rows, sks.Moments(), sample_weight=weights, client="serial")
    parts = sks.summarize(rows, sks.Moments(), sample_weight=weights, partition_bytes=400, client="serial")
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-13)
    assert whole.weight == parts.weight == 30.0
    estimator.fit(rows, rows[:, 0], sample_weight=weights)


def test_weights_that_are_text_are_said() -> None:
    for estimator in (sks.KMeans(3), sks.VarianceSelector(2)):
        with pytest.raises(BadBlock, match="sample_weight holds text that is no number"):
            estimator.fit(np.eye(6), sample_weight=np.array(["high", "low"] * 3))


@pytest.mark.parametrize("size", [1e-155, 1e-170, 1e-300])
def test_a_target_too_small_to_be_squared_is_not_called_constant(size: float) -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((200, 6))
    target = rows @ np.r_[3.0, -2.0, np.zeros(4)] + 1
    with pytest.warns(UserWarning, match=r"the target is too small to be squared .*multiply it by a number"):
        sks.LassoPath(n_features_to_select=2).fit(rows, size * target)
    for of_mean_zero in (2.0 ** int(np.log2(size)) * np.resize([1.0, -1.0], 200), np.zeros(200)):
        with pytest.warns(UserWarning, match=r"is constant, or too small to be squared .*one that varies by"):
            sks.LassoPath(n_features_to_select=2).fit(rows, of_mean_zero)
    with pytest.warns(UserWarning, match="the target is constant: no column"):
        sks.LassoPath(n_features_to_select=2).fit(rows, np.ones(200))


@pytest.mark.filterwarnings("ignore:only 0 of 4 columns can be tested")  # of classes of one row each
def test_numbers_that_are_hardly_classes_are_said() -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((64, 4))
    with pytest.raises(BadParameter, match=r"target array: Unknown label type: floats beyond 2\^53 are no classes"):
        sks.selectors.LogisticPath(cv=2).fit(rows, 10.0 ** np.arange(64))
    for y in (np.arange(64), np.arange(64.0), [f"name {i}" for i in range(64)]):
        says = "number of unique classes, 64, is greater than 50% of the number of rows, 64: it may be a quantity"
        with pytest.warns(UserWarning, match=says):
            sks.selectors.MRMRSelector(2, task="classification").fit(rows, np.array(y))
    # As scikit-learn says nothing of these.
    sks.selectors.MRMRSelector(2, task="classification").fit(rows, np.repeat(np.arange(32), 2))
    sks.selectors.MRMRSelector(2, task="classification").fit(rows[:20], np.arange(20))
    of_numbers = sks.selectors.MRMRSelector(2).fit(rows, 2.0**60 * np.repeat([1, 2], 32))
    assert of_numbers.target_task == "regression"


@pytest.mark.parametrize(
    "estimator",
    [
        sks.LassoPath(task="classification"),
        sks.selectors.LogisticPath(cv=5),
        pytest.param(sks.selectors.TargetAutoSelector(), marks=pytest.mark.slow),
    ],
    ids=lambda e: e.method,
)
def test_a_class_of_fewer_rows_than_folds_is_named(estimator: Any) -> None:
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((90, 4))
    y = np.array(["low", "high"])[(rows[:, 1] > 0).astype(int)]
    y[:10] = "mid"
    estimator.fit(rows, y)  # without a warning
    y[1:10] = "low"
    with pytest.warns(UserWarning, match="class 'mid' has 1 row, fewer than the 5 folds: folds without") as caught:
        estimator.fit(rows, y)
    assert len([w for w in caught if "folds" in str(w.message)]) == 1
    y[3:6] = "top"
    with pytest.warns(UserWarning, match=r"class 'mid' has 1 row, fewer than the 5 folds \(2 such classes\)"):
        estimator.fit(rows, y)


def test_folds_without_a_group_are_said() -> None:
    rng = np.random.default_rng(5)
    rows, groups = rng.standard_normal((60, 3)), np.arange(60) % 5
    filled = len(set(sks.Folds(sks.Moments(), 5, groups=True).fold_of(words_of(np.arange(5))).tolist()))
    assert filled < 5
    with pytest.warns(UserWarning, match=f"5 groups fill {filled} of the 5 folds.*{filled}-fold"):
        model = sks.LassoPath(cv=5).fit(rows, rows[:, 1], groups=groups)
    assert model.mse_path_.shape[-1] == filled


def test_groups_of_many_rows_are_not_all_read_to_look_for_empty_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    read, groups = list[int](), open_vector(np.arange(60) % 5, 60, name="groups")
    monkeypatch.setattr(target, "_RUN", 10)
    monkeypatch.setattr(target, "_MOST_READ", 20)
    monkeypatch.setattr(target, "words_of", lambda values: read.append(len(values)) or words_of(values))
    target._require_folds(groups, 0, 5)  # without a warning
    assert read == [10, 10]


FOLDED = [
    sks.LassoPath,
    sks.ThresholdedOLS,
    sks.selectors.LogisticPath,
    pytest.param(sks.selectors.TargetAutoSelector, marks=pytest.mark.slow),
]


@pytest.mark.filterwarnings("ignore::sketchselect.selectors.supervised.target.DoubtfulClasses")
@pytest.mark.parametrize("cls", FOLDED, ids=lambda cls: cls.method)
def test_folds_that_the_rows_or_groups_do_not_fill_are_refused_before_the_pass(
    cls: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((20, 4))
    y = np.array(["no", "yes"])[(rows[:, 1] > 0).astype(int)] if cls is sks.selectors.LogisticPath else rows[:, 1]
    cls(cv=20).fit(rows, y)
    monkeypatch.setattr(cls, "collect_source", None)  # no pass is made
    with pytest.raises(BadParameter, match="cv must be at most the number of rows, got 21, and array has 20 rows"):
        cls(cv=21).fit(rows, y)
    with pytest.raises(BadParameter, match="groups array: all rows are in one group, and cross-validation needs"):
        cls(cv=5).fit(rows, y, groups=np.ones(20))
    fold = sks.Folds(sks.Moments(), 2, groups=True).fold_of(words_of(np.arange(20)))
    together = np.resize(np.flatnonzero(fold == fold[0])[:3], 20)
    with pytest.raises(BadParameter, match="groups array: the 3 groups are all in one of the 2 folds"):
        cls(cv=2).fit(rows, y, groups=together)
    for name, values in (("x", rows), ("y", y), ("groups", np.ones(20))):
        np.save(tmp_path / f"{name}.npy", values)
    paths = {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")}
    job = {"input": paths, "select": {"method": cls.method, "cv": 21}, "output": {"dir": str(tmp_path / "out")}}
    with pytest.raises(
        ConfigError, match=r"^select: cv must be at most the number of rows, got 21, and .*x.npy has 20"
    ):
        sks.run(job)
    of_groups = {
        "input": paths | {"cv_groups": str(tmp_path / "groups.npy")},
        "select": {"method": cls.method, "cv": 5},
    }
    with pytest.raises(ConfigError, match=r"^select: groups .*groups.npy: all rows are in one group"):
        sks.run(job | of_groups)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_a_weight_that_is_none_is_named_by_its_row(wrong: float) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 6))
    weights = np.ones(60)
    weights[47] = wrong
    for fit in (
        lambda: sks.summarize(rows, sks.Moments(), sample_weight=weights, partition_bytes=480, client="serial"),
        lambda: sks.KMeans(2).fit(rows, sample_weight=weights, client="serial"),
        lambda: sks.ColumnStats().from_block(rows[40:], start=40, sample_weight=weights[40:]),
    ):
        with pytest.raises(BadBlock, match=rf"sample_weight is {wrong:g} at row 47"):
            fit()


@pytest.mark.parametrize("n_rows", [2, 3, 4])
def test_folds_by_default_are_no_more_than_few_rows_fill(n_rows: int, tmp_path: Path) -> None:
    rows, y = np.random.default_rng(7).standard_normal((n_rows, 4)), np.arange(n_rows) / 2
    sks.selectors.TargetAutoSelector().fit(rows, y)
    with pytest.raises(
        BadParameter, match=rf"cv must be at most the number of rows, got 5, and array has {n_rows} rows"
    ):
        sks.selectors.TargetAutoSelector(cv=5).fit(rows, y)
    for name, values in (("x", rows), ("y", y)):
        np.save(tmp_path / f"{name}.npy", values)
    job = {
        "input": {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")},
        "select": {"method": "auto"},
        "output": {"dir": str(tmp_path / "out")},
    }
    sks.run(job)


@pytest.mark.parametrize("many", [10**6, 10**30])
def test_repetitions_that_would_never_end_are_refused(many: int) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 6))
    fits = {
        "n_init": lambda: sks.KMeans(2, n_init=many).fit(rows),
        "n_init ": lambda: sks.KMeans(2, n_init=many).partial_fit(rows),
        "n_seeds": lambda: cluster_range(rows, [2, 3], n_seeds=many),
        "n_folds": lambda: sks.summaries.Folds(sks.Moments(), n_folds=many),
        "n_draws": lambda: sks.selectors.RandomizedSelector(n_draws=many).fit(rows),
        "cv": lambda: sks.selectors.LassoPath(cv=many).fit(rows, rows[:, 0]),
        "cv ": lambda: sks.selectors.LogisticPath(cv=many).fit(rows, rows[:, 0] > 0),
        "n_alphas": lambda: sks.selectors.MCPPath(n_alphas=many).fit(rows, rows[:, 0]),
        "draws": lambda: sks.selectors.KnockoffSelector(draws=many).fit(rows, rows[:, 0]),
        "n_pairs": lambda: sks.selectors.StabilitySelector(n_pairs=many).fit(rows, rows[:, 0]),
        "n_buckets": lambda: sks.selectors.StabilitySelector(n_buckets=many).fit(rows, rows[:, 0]),
        "n_iter": lambda: sks.selectors.FeatureSelectionAnnealing(n_iter=10 * many).fit(rows, rows[:, 0]),
    }
    for name, fit in fits.items():
        with pytest.raises(
            BadParameter, match=rf"^{name.strip()} must be .*a whole number from [012] to 10*0.* got 10+"
        ):
            fit()


@pytest.mark.parametrize("ks", [range(2, 10**30), range(10**30, 2, -1), range(2, 62), itertools.count(2), [2, 61]])
def test_more_clusters_than_rows_are_refused_before_the_numbers_are_walked(ks: Iterable[int]) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 6))
    for source in (rows, sks.summaries.RowSample(60).from_block(rows)):
        with pytest.raises(
            BadParameter, match=r"^cluster_range: \d+ clusters, but .* has 60 rows; ask for fewer clusters"
        ):
            cluster_range(source, ks)


@pytest.mark.parametrize("size", [1e-310, 5e-324])
def test_rows_of_weights_without_digits_are_in_no_certificate_or_index(size: float) -> None:
    rows, labels = np.array([[1.0, 2.0], [3.0, 5.0], [1.0, 2.0]]), np.zeros(3)
    weights = np.array([1.0, size, 1.0])
    assert _first_rows(1, Block(rows, labels, weights, 0, 3)).same
    assert not _first_rows(1, Block(rows, labels, None, 0, 3)).same
    clusters = CentroidSums(2).from_block(rows, np.array([0, 1, 0]))
    partition = Partition(rows[:2], clusters.cluster_means, clusters.cluster_weights, clusters.within)
    (sums,) = np.atleast_2d(sums_of_rows([partition], rows[:2] + 1.0, np.full(2, size)))
    np.testing.assert_array_equal(sums, 0.0)


@pytest.mark.parametrize(
    "method", [sks.VarianceSelector(2), sks.GreedySelector(2), sks.LeverageSelector(2), sks.KMeans(2), sks.LassoPath()]
)
@pytest.mark.parametrize("weights", [np.full(60, 1e308), np.where(np.arange(60) == 0, 1e308, 1.0)])
def test_weights_whose_sums_overflow_are_named(method: Any, weights: Any) -> None:
    # k-means had divided by zero, and variances had been those of one row.
    rows = np.random.default_rng(0).standard_normal((60, 6))
    with pytest.raises(BadBlock, match=r"sample_weight is 1e\+308 at row 0; .*; divide all weights by the largest"):
        clone(method).fit(rows, rows[:, 0], sample_weight=weights)
    with pytest.raises(BadBlock, match=r"sample_weight is 1e\+308 at row 0; .*; divide all weights by the largest"):
        sks.summarize(rows, sks.Moments(), sample_weight=weights)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ([2**63 - 1, 2**63, 0], "row number 9223372036854775808 at row 1 of the block is not from 0"),
        ([0, 2**64, 1], "row number 18446744073709551616 at row 1"),
        (np.array([3, -1, 0]), "row number -1 at row 1 of the block is not from 0"),
        ([7, 1, 7], "rows 0 and 2 of the block have one number, 7; give each its own"),
        (np.array([True, False, True]), "True is no row number; give whole numbers"),
        ([0.0, 1.0, 2.0], "0.0 is no row number"),
        (np.arange(2), r"row numbers of shape \(2,\) for 3 rows"),
        (-1, "row number -1 is not from 0"),
        (2**63 - 2, "row number 9223372036854775806 is not"),
        (True, "True is no row number"),
        (1.5, "1.5 is no row number"),
    ],
)
@pytest.mark.parametrize("kind", [sks.summaries.RowSample(2), sks.ColumnStats(), sks.DecayedMoments(10)])
def test_row_numbers_that_are_none_are_one_line(kind: Any, start: Any, says: str) -> None:
    rows = np.eye(3)
    for call in (kind.from_block, kind.from_block(rows).update):
        with pytest.raises(BadParameter, match=f"^start: .*{says}|^start: {says}"):
            call(rows, start=start)
    of_array, of_list = (kind.from_block(rows, start=numbers) for numbers in (np.array([5, 9, 7]), [5, 9, 7]))
    assert codec.encode(of_array) == codec.encode(of_list)


@pytest.mark.parametrize("method", [sks.VarianceSelector(2), sks.GreedySelector(2), sks.KMeans(2, random_state=0)])
def test_weights_without_digits_are_zero_and_said_to_be(method: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((60, 6))
    with pytest.raises((EmptyInput, BadParameter), match=r"zero \(or below 2.2e-308\)"):
        clone(method).fit(rows, sample_weight=np.full(60, 5e-324))
    mixed = clone(method).fit(rows, sample_weight=np.where(np.arange(60) % 2, 5e-324, 1.0))
    zeros = clone(method).fit(rows, sample_weight=np.where(np.arange(60) % 2, 0.0, 1.0))
    for name in ("support_", "scores_", "cluster_centers_"):
        np.testing.assert_array_equal(getattr(mixed, name, 0), getattr(zeros, name, 0))


def test_infinity_is_named_where_nan_is_a_missing_value() -> None:
    rows = pd.DataFrame(np.random.default_rng(9).standard_normal((30, 4)), columns=list("abcd"))
    rows.iloc[3, 0], rows.iloc[17, 2], rows.iloc[20, 1] = np.nan, np.inf, -np.inf
    says = r"^X: 2 infinite values, the first at row 17, column 'c'; leave such rows out, or write NaN"
    with pytest.raises(NotFinite, match=says):
        sks.VarianceSelector(2).fit(rows, prepare=["impute"])
    with pytest.raises(NotFinite, match=says):
        sks.KMeans(2).fit(rows, prepare=["impute"])
    with pytest.raises(NotFinite, match=says.replace("'c'", "2")):
        sks.VarianceSelector(2).fit(csr_array(rows.to_numpy()), prepare=["impute"])


def test_a_data_frame_names_all_columns_of_text() -> None:
    rows = pd.DataFrame({"a": [1.0, 2.0], "ward": ["x", "y"], "n": np.array([1, 2], dtype=object), "unit": ["m", "s"]})
    with pytest.raises(SourceError, match=r"column 'ward' is of type \w+, and 'unit' is text too; .*: leave them out"):
        sks.VarianceSelector(1).fit(rows)


@pytest.mark.slow
def test_a_warning_of_small_classes_is_a_note_of_a_job(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((90, 4))
    y = np.array(["low", "high"])[(rows[:, 1] > 0).astype(int)]
    y[0] = "mid"
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", y)
    given = {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")}
    job = {"input": given, "select": {"method": "logistic", "cv": 5}, "output": {"dir": str(tmp_path / "out")}}
    with pytest.warns(UserWarning, match="class 'mid' has 1 row") as caught:
        sks.selectors.LogisticPath(cv=5).fit(rows, open_vector(given["target"], 90))
    [sentence] = [str(w.message) for w in caught if "class 'mid'" in str(w.message)]
    assert f"logistic: {sentence}" in sks.run(job).manifest["notes"]
    assert "class &#39;mid&#39; has 1 row, fewer than" in (tmp_path / "out" / "report.html").read_text()
    assert f"logistic: {sentence}" in forecast_job(job, calibrate=False).notes
