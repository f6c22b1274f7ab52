"""Principal components of a sketch: scikit-learn's contract, its PCA as the oracle, streams, sources and names."""

import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from tests.estimator_checks import run_checks

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.selectors import SketchedPCA


# The suite itself provokes warnings of scikit-learn and pandas that are not ours to mend.
@pytest.mark.filterwarnings("default")
def test_scikit_learn_contract():
    run_checks([SketchedPCA(), SketchedPCA(2, sketch_size=3)])


def rows(n=300, p=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) * 2.0 ** -np.arange(p) @ np.linalg.qr(rng.standard_normal((p, p)))[0] + 1e3


def require_same(ours, theirs, X):
    k = ours.n_components_
    signs = np.sign(np.einsum("ij,ij->i", ours.components_, theirs.components_[:k]))
    np.testing.assert_allclose(ours.components_ * signs[:, None], theirs.components_[:k], atol=1e-8)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_[:k], rtol=1e-9)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_[:k], rtol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_[:k], rtol=1e-9)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.transform(X) * signs, theirs.transform(X)[:, :k], atol=1e-8)


def test_where_nothing_is_shrunk_it_is_pca():
    X = rows()
    ours, theirs = SketchedPCA(5).fit(X), PCA(5, svd_solver="full").fit(X)
    require_same(ours, theirs, X)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X)))
    low, high = ours.explained_variance_bounds_.T
    assert ((low < theirs.explained_variance_) & (theirs.explained_variance_ < high)).all()
    assert (high - low < 1e-6 * theirs.explained_variance_[0]).all()
    assert ours.subspace_angle_ < 1e-10
    assert (np.take_along_axis(ours.components_, np.abs(ours.components_).argmax(1)[:, None], 1) > 0).all()


def test_a_weight_is_a_number_of_rows():
    X = rows(60)
    counts = np.arange(60) % 4
    repeated = np.repeat(X, counts, axis=0)
    require_same(SketchedPCA(4).fit(X, sample_weight=counts), PCA(4, svd_solver="full").fit(repeated), X)


@pytest.mark.parametrize("sketch_size", [None, 6])
def test_a_stream_has_the_guarantee_of_one_pass(sketch_size):
    X = np.tile(rows(), (1, 4))
    stream = SketchedPCA(3, sketch_size=sketch_size)
    for a, b in ((0, 2), (2, 3), (3, 200), (200, 300)):
        stream.partial_fit(X[a:b])
    exact = PCA(3, svd_solver="full").fit(X).explained_variance_
    low, high = stream.explained_variance_bounds_.T
    assert (low <= exact * (1 + 1e-9)).all()
    assert (exact <= high * (1 + 1e-9)).all()
    assert (high - low > 1e-6 * exact).all() == (sketch_size is not None)
    assert stream.summary_.n_rows == 300
    again = SketchedPCA(3).fit_summary({"sketch": stream.summary_})
    assert (again.components_ == stream.components_).all()


def test_every_source_gives_the_same_components_and_scores(tmp_path):
    dask_array, xarray = pytest.importorskip("dask.array"), pytest.importorskip("xarray")
    X = np.rint(10 * np.random.default_rng(2).standard_normal((200, 12)))
    X[:, ::2] *= np.random.default_rng(3).random((200, 6)) < 0.1
    np.save(tmp_path / "rows.npy", X)
    expected = SketchedPCA(3).fit(X)
    scores = expected.transform(X)
    lazy = dask_array.from_array(X, chunks=(70, 5))
    labelled = xarray.DataArray(X, dims=("cell", "gene"), coords={"cell": np.arange(200)})
    sparse = scipy.sparse.csr_array(X)
    blocks = lazy.rechunk({1: -1}).map_blocks(scipy.sparse.csr_array, meta=sparse[:0])
    for source in (tmp_path / "rows.npy", lazy, sparse, blocks, labelled):
        ours = SketchedPCA(3).fit(source)
        np.testing.assert_allclose(ours.components_, expected.components_, atol=1e-9)
        np.testing.assert_allclose(np.asarray(ours.transform(source)), scores, atol=1e-8)
    assert hasattr(expected.transform(lazy), "__dask_graph__")
    assert expected.transform(labelled).dims == ("cell", "component")


def test_names_go_in_and_out():
    frame = pandas.DataFrame(rows(p=3), columns=["a", "b", "c"])
    pca = SketchedPCA(2).set_output(transform="pandas").fit(frame)
    assert pca.feature_names_in_.tolist() == ["a", "b", "c"]
    assert pca.transform(frame).columns.tolist() == pca.get_feature_names_out().tolist()
    assert pca.get_feature_names_out().tolist() == ["sketchedpca0", "sketchedpca1"]
    assert pca.partial_fit(frame).summary_.feature_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="feature names"):
        pca.transform(frame[["b", "a", "c"]])


def test_directions_that_the_rows_do_not_have_are_no_components():
    X = np.outer(np.arange(20.0), [1, 2, 2, 0]) + 5
    with pytest.warns(UserWarning, match="n_components = 3, but the rows vary in 1 direction by"):
        pca = SketchedPCA(3).fit(X)
    np.testing.assert_allclose(pca.components_, [[1 / 3, 2 / 3, 2 / 3, 0]], atol=1e-12)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), X)
    with pytest.warns(UserWarning, match="n_components = 3, but the rows vary in 0 directions by"):
        constant = pca.fit(np.full((5, 3), 7.0))
    assert constant.n_components_ == 0
    assert (constant.inverse_transform(np.zeros((1, 0))) == 7).all()


@pytest.mark.parametrize("largest", [1e3, 1e6, 1e7])
@pytest.mark.parametrize("n", [60, 20_000])
def test_the_intervals_include_rounding(largest, n):
    X = np.random.default_rng(5).standard_normal((n, 4))
    # An SVD does not square the condition number.
    X *= [1.0, 1.0, 1.0, largest]
    pca = SketchedPCA(4).fit(X)
    low, high = pca.explained_variance_bounds_.T
    exact = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2 / (n - 1)
    assert (low < exact).all()
    assert (exact < high).all()


def test_a_stream_may_begin_with_single_rows():
    X = rows(40, 6)
    stream = SketchedPCA(2)
    for i in range(40):
        stream.partial_fit(X[i : i + 1])
        assert stream.summary_.n_rows == i + 1
        assert stream.n_components_ == min(i, 2)
    assert stream.transform(X).shape == (40, 2)
    np.testing.assert_allclose(
        stream.explained_variance_, PCA(2, svd_solver="full").fit(X).explained_variance_, rtol=1e-9
    )
    alone = SketchedPCA(2).partial_fit(X[:1])
    assert alone.transform(X).shape == (40, 0)
    np.testing.assert_array_equal(alone.mean_, X[0])
    with pytest.raises(EmptyInput, match="above 1, not 1 "):
        SketchedPCA(2).fit_summary(alone.summary_)


def test_what_it_refuses_it_names():
    X = rows(20, 4)
    with pytest.raises(BadParameter, match="n_components = 5, but there are 4 columns"):
        SketchedPCA(5).fit(X)
    with pytest.raises(BadParameter, match=r"n_components must be a whole number of at least 1.* got 0"):
        SketchedPCA(n_components=0).fit(np.eye(4))
    with pytest.raises(BadParameter, match=r"sketch_size \(3\) must exceed n_components \(3\)"):
        SketchedPCA(3, sketch_size=3).fit(X)
    with pytest.raises(EmptyInput, match=r"above 1, not 0\.5"):
        SketchedPCA().fit(X, sample_weight=np.full(20, 0.025))
    with pytest.raises(Incompatible, match="prepared by"):
        SketchedPCA().fit_summary(sks.summarize(X, sks.FrequentDirections(5), prepare=["l2"]))
