"""What the laws do not say about the sketch: streaming, long blocks, domain, real data, names."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.data_sets import data_set
from tests.passing import random_tree
from tests.summaries.oracles import check_directions

import sketchselect as sks
from sketchselect.errors import BadBlock, BadParameter, Incompatible, NoData, NotFinite
from sketchselect.linalg.shrink import shrink


def test_energy_in_the_last_rows_of_a_buffer_is_not_lost():
    # A published implementation returned the first half of a buffer that had not been shrunk first.
    X = np.zeros((15, 200))
    X[10:, :5] = np.eye(5) * 100
    s = sks.FrequentDirections(10).from_block(X)
    check_directions(s, X, None, np.ones(len(X)))
    assert s.squared_norm == pytest.approx(5e4)
    assert np.trace(s.sketch.T @ s.sketch) == pytest.approx(5e4)


@pytest.mark.parametrize("n", [1, 7, 8, 15, 16, 17, 31, 32, 33, 100, 1000, 1001])
def test_any_length_of_block(n):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 130)) * np.linspace(3, 0.1, 130) + 5
    s = sks.FrequentDirections(8).from_block(X)
    check_directions(s, X, None, np.ones(len(X)))
    assert s.centered_sketch.shape[0] <= 7


def test_spectra_that_are_flat_steep_and_low_rank():
    rng = np.random.default_rng(1)
    q, _ = np.linalg.qr(rng.standard_normal((150, 150)))
    for values in (
        np.ones(150),
        10.0 ** -np.arange(0, 15, 0.1),
        np.r_[1e8, np.ones(149)],
        np.r_[np.ones(3), np.zeros(147)],
    ):
        X = rng.standard_normal((700, 150)) @ (q * values)
        check_directions(sks.FrequentDirections(9).from_block(X), X, None, np.ones(len(X)))


def test_update_from_a_description_and_one_row_at_a_time():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 100))
    s = sks.FrequentDirections(5)
    for row in X:
        s = s.update(row[None, :])
    assert s.n_rows == 60
    check_directions(s, X, None, np.ones(len(X)))


@pytest.mark.parametrize("blocks", [1, 1000])
def test_directions_lost_beside_a_huge_one_are_counted_in_the_shrinkage(blocks):
    X = np.zeros((4001, 100))
    X[0, 0] = 1e9
    X[1::2, 1] = 1.0
    fd = sks.FrequentDirections(3)
    s = fd.from_block(X[:1])
    for part in np.array_split(X[1:], blocks):
        s = s.merge(fd.from_block(part))
    lost = 1000.0 - (s.centered_sketch[:, 1] ** 2).sum()
    # The scatter of column 1 is 1000 and orthogonal to the huge row up to one part in the number of rows.
    assert lost <= s.shrinkage + 2
    assert s.shrinkage <= 1e-10 * s.squared_norm


@pytest.mark.slow
def test_ten_thousand_merges_of_one_row_keep_both_sides():
    rng = np.random.default_rng(9)
    fd = sks.FrequentDirections(2)
    low = rng.standard_normal((10_000, 2)) @ rng.standard_normal((2, 40))
    for X in (low, rng.standard_normal((10_000, 40)) * 10.0 ** -np.arange(40)):
        s = fd
        for row in X:
            s = s.update(row[None, :])
        C = X - X.mean(axis=0)
        gram = C.T @ C
        gap = np.linalg.eigvalsh(gram - s.centered_sketch.T @ s.centered_sketch)
        assert gap[0] >= -1e-13 * gram.trace()
        assert gap[-1] <= s.shrinkage


def test_shrink_removes_at_least_size_times_delta():
    rng = np.random.default_rng(3)
    C = rng.standard_normal((40, 60))
    B, delta = shrink(C, 10)
    singular = np.linalg.svd(C, compute_uv=False)
    assert B.shape[0] <= 9
    assert delta == pytest.approx(singular[9] ** 2)
    assert (C**2).sum() - (B**2).sum() >= 10 * delta * (1 - 1e-12)


def test_exact_mode_is_a_function_of_width_and_size_alone():
    X = np.random.default_rng(4).standard_normal((50, 31))
    assert sks.FrequentDirections(3).from_block(X[:, :30] * 1).is_exact is True
    assert not sks.FrequentDirections(2).from_block(X).is_exact
    assert not sks.FrequentDirections(1000).keeps_gram(2049)
    assert sks.FrequentDirections(1000).keeps_gram(2048)


def test_directions_agree_with_svd():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((80, 30)) + 2
    s = sks.FrequentDirections(4).from_block(X)
    assert s.is_exact
    _, sv, vt = np.linalg.svd(X, full_matrices=False)
    assert np.allclose(s.directions.squares, sv**2)
    assert np.allclose(np.abs((s.directions.vectors * vt).sum(axis=1)), 1)
    assert np.allclose(s.centered_directions.squares[:29], np.linalg.svd(X - X.mean(0), compute_uv=False)[:29] ** 2)


@pytest.mark.parametrize(
    ("values", "error", "names"),
    [
        ([[1.0, np.nan]], NotFinite, ["row 40", "column 1"]),
        ([[1.0, 2.0], [np.inf, 2.0]], NotFinite, ["row 41", "column 0"]),
        ([[1.0, 1e160]], BadBlock, ["1e150", "row 40", "column 1"]),
        ([[1.0, -1e160], [0.0, 1e160]], BadBlock, ["1e150", "column 1"]),
        ([1.0, 2.0], BadBlock, ["two-dimensional"]),
        ([["a", "b"]], BadBlock, ["numeric"]),
        ([[1 + 2j]], BadBlock, ["complex"]),
        (np.array([["2020-01-01"]], dtype="M8[D]"), BadBlock, ["datetime"]),
    ],
)
@pytest.mark.parametrize("kind", [sks.FrequentDirections(2), sks.Moments()])
def test_bad_blocks_are_named(kind, values, error, names):
    wide = np.zeros((1, 40))
    kind.from_block(wide)
    with pytest.raises(error) as caught:
        kind.from_block(values, start=40)
    for name in names:
        assert name in str(caught.value)


def test_wide_blocks_with_bad_values_do_not_reach_lapack():
    X = np.zeros((300, 100))
    X[250, 3] = np.inf
    with pytest.raises(NotFinite, match="row 250, column 3"):
        sks.FrequentDirections(4).from_block(X)
    X[250, 3] = 1e200
    with pytest.raises(BadBlock, match="row 250, column 3"):
        sks.FrequentDirections(4).from_block(X)


def test_parameters_and_descriptions():
    for bad in (1, 0, -3, 2.5, True, "8", None):
        with pytest.raises(BadParameter, match="size"):
            sks.FrequentDirections(bad)
    with pytest.raises(NoData):
        sks.FrequentDirections(4).sketch.shape
    with pytest.raises(Incompatible, match="moments"):
        sks.FrequentDirections(4).from_block(np.eye(5)).merge(sks.Moments().from_block(np.eye(5)))


@pytest.mark.parametrize(
    "kind", [sks.FrequentDirections(2), sks.FrequentDirections(9), sks.Moments(), sks.ColumnStats()]
)
def test_what_a_summary_hands_out_cannot_be_changed(kind):
    s = kind.from_block(np.random.default_rng(0).standard_normal((3, 60)))
    both = s.merge(kind.empty(60))
    with pytest.raises(ValueError, match="read-only"):
        both.mean[:] = 0
    assert (s.mean != 0).all()


def test_names_and_prepare_steps_must_agree():
    fd = sks.FrequentDirections(2)
    X = np.eye(3)
    a = fd.from_block(X).with_context(prepare=(), feature_names=("a", "b", "c"))
    assert a.merge(fd.from_block(X)).feature_names == ("a", "b", "c")
    assert fd.from_block(X).merge(a).feature_names == ("a", "b", "c")
    with pytest.raises(Incompatible, match="'c' and 'x'"):
        a.merge(fd.from_block(X).with_context(prepare=(), feature_names=("a", "b", "x")))
    wider = fd.from_block(np.eye(4)).with_context(prepare=(), feature_names=("a", "b", "c", "x"))
    for one, another, which in ((a, wider, "second"), (wider, a, "first")):
        with pytest.raises(Incompatible, match=rf"columns; only the {which} has 'x'; summarize the same columns"):
            one.merge(another)
    with pytest.raises(Incompatible, match=r"'b' and 'c'; both have the same columns in another order; write"):
        a.merge(fd.from_block(X).with_context(prepare=(), feature_names=("a", "c", "b")))
    with pytest.raises(Incompatible, match=r"3 and 4 columns$"):
        fd.from_block(X).merge(wider)
    with pytest.raises(Incompatible, match="l2"):
        a.merge(fd.from_block(X).with_context(prepare=("l2",), feature_names=None))


def test_weights_that_cannot_be_are_refused():
    for weights in (-np.ones(3), np.ones(2)):
        with pytest.raises(BadBlock, match="sample_weight"):
            sks.Moments().from_block(np.eye(3), sample_weight=weights)


def test_projection_bounds_the_state():
    rng = np.random.default_rng(7)
    for size, p in ((2, 20), (2, 100), (10, 100), (10, 500)):
        fd = sks.FrequentDirections(size)
        s = fd.from_block(rng.standard_normal((3, p)))
        for n in (1, 5, 50, 300):
            s = s.merge(fd.from_block(rng.standard_normal((n, p))))
            assert s.nbytes <= fd.projected_nbytes(p)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_invalid(np.array([[1.0, np.nan], [2.0, 3.0]]))
    for kind in (sks.FrequentDirections(2), sks.Moments(), sks.ColumnStats()):
        with pytest.raises(BadBlock, match="mask"):
            kind.from_block(masked)
    with pytest.raises(ValueError, match="mask"):
        sks.open_matrix(masked)
    rows = np.arange(8.0).reshape(4, 2) ** 2
    masked = np.ma.masked_greater(rows, 30.0)
    for estimator in (sks.VarianceSelector(1), sks.KMeans(2), sks.LassoPath(), sks.selectors.SketchedPCA(1)):
        for values in (masked, list(masked)):
            with pytest.raises(ValueError, match="mask"):
                estimator.fit(values, rows[:, 0])
        fitted = estimator.fit(rows, rows[:, 0])
        with pytest.raises(ValueError, match="mask"):
            (fitted.predict if hasattr(fitted, "predict") else fitted.transform)(masked)
    with pytest.raises(ValueError, match="mask"):
        sks.VarianceSelector(1).partial_fit(masked)
    assert sks.KMeans(2).fit(np.ma.masked_array(rows)).labels_.shape == (4,)  # nothing is masked


# The guarantees on real data: digits, which ship with scikit-learn, and larger sets where they are at hand.


def load(name):
    if name == "digits":
        return load_digits().data
    X = data_set(name)["X"][:2000].astype(float)
    # The oracle sums in long doubles, which takes seconds for products of a thousand columns.
    return X[:, :: -(-X.shape[1] // 400)]


@pytest.mark.share(3)
@pytest.mark.parametrize("size", [3, 12])
@pytest.mark.parametrize("name", ["digits", "USPS", "COIL20", "Isolet", "MNIST"])
def test_sketch_of_real_data_over_random_trees(name, size):
    X = load(name)
    rng = np.random.default_rng(size)
    parts, start = [], 0
    for rows in np.array_split(X, np.sort(rng.integers(0, len(X) + 1, 10))):
        parts.append(sks.FrequentDirections(size).from_block(rows, start=start))
        start += len(rows)
    result = random_tree(parts, rng)
    check_directions(result, X, None, np.ones(len(X)))
