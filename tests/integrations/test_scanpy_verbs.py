"""Verbs on AnnData objects: scanpy's keys and numbers, and k-means with its certificate."""

import re
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats

import sketchselect as sks
from sketchselect.cluster.certificates import block
from sketchselect.errors import BadBlock, BadParameter, SourceError

COLUMNS = ["highly_variable", "highly_variable_rank", "means", "variances", "variances_norm"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def adata():
    """300 cells of three kinds and two batches, in 200 genes of which each kind has ten of its own."""
    rng = np.random.default_rng(0)
    means = np.tile(np.geomspace(0.05, 20.0, 200), (300, 1))
    for kind in range(3):
        means[100 * kind : 100 * (kind + 1), 120 + 10 * kind : 130 + 10 * kind] *= 6
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + means)).astype(np.float32)
    obs = pd.DataFrame({"batch": pd.Categorical(np.tile(["x", "y"], 150))}, index=[f"cell {i}" for i in range(300)])
    cells = anndata.AnnData(sp.csr_matrix(np.log1p(counts)), obs=obs, layers={"counts": sp.csr_matrix(counts)})
    cells.obsm["X_pca"] = np.eye(3)[np.repeat([0, 1, 2], 100)] * 9 + rng.standard_normal((300, 3))
    return cells


@pytest.mark.parametrize("batch_key", [None, "batch"])
def test_highly_variable_genes_are_written_under_the_keys_of_scanpy(adata, batch_key):
    sks.pp.highly_variable_genes(adata, 25, batch_key, layer="counts")
    assert list(adata.var) == COLUMNS + (["highly_variable_nbatches"] if batch_key else [])
    assert adata.uns["hvg"] == {"flavor": "seurat_v3"}
    chosen = np.flatnonzero(adata.var["highly_variable"])
    assert len(chosen) == 25
    assert np.isin(np.arange(125, 150), chosen).sum() >= 20
    counts = adata.layers["counts"].toarray().astype(float)
    np.testing.assert_allclose(adata.var["means"], counts.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(adata.var["variances"], counts.var(axis=0, ddof=1), rtol=1e-9)


def test_the_batches_of_an_earlier_call_are_removed(adata):
    sks.pp.highly_variable_genes(adata, 25, "batch", layer="counts")
    sks.pp.highly_variable_genes(adata, 25, layer="counts")
    assert list(adata.var) == COLUMNS


def test_the_genes_are_those_of_scanpy(adata):
    scanpy = pytest.importorskip("scanpy")
    theirs = adata.copy()
    sks.pp.highly_variable_genes(adata, 25, layer="counts")
    scanpy.pp.highly_variable_genes(theirs, n_top_genes=25, layer="counts", flavor="seurat_v3")
    assert adata.var.dtypes.to_dict() == theirs.var.dtypes.to_dict()
    assert adata.var["highly_variable"].equals(theirs.var["highly_variable"])
    np.testing.assert_allclose(adata.var["variances_norm"], theirs.var["variances_norm"], rtol=1e-6)


@pytest.fixture
def normalized(adata):
    """The cells with logarithms of normalised counts, so that no two genes have one mean."""
    counts = adata.layers["counts"].toarray()
    adata.X = sp.csr_matrix(np.log1p(counts * (1e3 / counts.sum(axis=1, keepdims=True))))
    return adata


FLAVORS = ["seurat_v3_paper", "seurat", "cell_ranger", "pearson_residuals"]


def by_flavor(adata, flavor, batch_key=None, **options):
    layer = None if flavor in ("seurat", "cell_ranger") else "counts"
    sks.pp.highly_variable_genes(adata, 25, batch_key, flavor=flavor, layer=layer, **options)
    return adata.var


@pytest.mark.share(4)
@pytest.mark.parametrize("batch_key", [None, "batch"])
@pytest.mark.parametrize("flavor", FLAVORS)
def test_flavors_are_those_of_scanpy(normalized, flavor, batch_key):
    scanpy = pytest.importorskip("scanpy")
    verbs = scanpy.experimental.pp if flavor == "pearson_residuals" else scanpy.pp
    theirs = normalized.copy()
    layer = None if flavor in ("seurat", "cell_ranger") else "counts"
    verbs.highly_variable_genes(theirs, n_top_genes=25, flavor=flavor, layer=layer, batch_key=batch_key)
    ours = by_flavor(normalized, flavor, batch_key)
    assert normalized.uns["hvg"] == theirs.uns["hvg"]
    assert ours.dtypes.to_dict() == theirs.var.dtypes.to_dict()
    differ = (ours["highly_variable"] != theirs.var["highly_variable"]).sum()
    # With batches, scanpy's regression of Seurat v3 is of variances that differ by rounding, and differs by 1e-3.
    assert differ <= (2 if flavor == "seurat_v3_paper" and batch_key else 0)
    for name in {"means", "dispersions", "dispersions_norm", "residual_variances"} & set(ours):
        # scanpy takes squares of float32 values in float32.
        np.testing.assert_allclose(ours[name], theirs.var[name], rtol=1e-3, atol=1e-5)


def test_pearson_residuals_are_those_of_all_entries(adata):
    counts = adata.layers["counts"].toarray().astype(float)
    counts[:, 7] = 0
    adata.layers["counts"] = sp.csr_matrix(counts)
    variances = []
    for label in ("x", "y"):
        cells = counts[adata.obs["batch"] == label]
        expected = np.outer(cells.sum(axis=1), cells.sum(axis=0)) / cells.sum()
        with np.errstate(invalid="ignore"):
            residuals = np.clip((cells - expected) / np.sqrt(expected + expected**2 / 30), -(150**0.5), 150**0.5)
        variances.append(np.nan_to_num(residuals).var(axis=0))
    columns = by_flavor(adata, "pearson_residuals", "batch", theta=30)
    np.testing.assert_allclose(columns["residual_variances"], np.mean(variances, axis=0), rtol=1e-9)
    ranks = np.argsort(np.argsort(-np.array(variances), axis=1), axis=1)
    chosen = (ranks < 25).sum(axis=0)
    assert columns["highly_variable_nbatches"].tolist() == chosen.tolist()
    assert columns["highly_variable"][chosen == 2].all()


@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
def test_dispersions_are_normalised_in_bins_of_the_mean(normalized, flavor):
    values = normalized.X.toarray().astype(float)
    if flavor == "seurat":
        values = np.expm1(values)
    means, dispersions = values.mean(axis=0), values.var(axis=0, ddof=1) / values.mean(axis=0)
    if flavor == "seurat":
        means, dispersions = np.log1p(means), np.log(dispersions)
        bins = np.ceil((means - means.min()) / np.ptp(means) * 20)
        bins[means == means.min()] = 1
    else:
        bins = np.searchsorted(np.percentile(means, np.arange(10, 105, 5)), means, side="left")
    expected = np.empty(200)
    for label in np.unique(bins):
        part = dispersions[bins == label]
        if flavor == "seurat":
            expected[bins == label] = 1 if len(part) == 1 else (part - part.mean()) / part.std(ddof=1)
        else:
            spread = np.median(abs(part - np.median(part))) / scipy.stats.norm.ppf(0.75)
            expected[bins == label] = (part - np.median(part)) / spread
    columns = by_flavor(normalized, flavor)
    np.testing.assert_allclose(columns["dispersions_norm"], expected, rtol=1e-4, atol=1e-5)
    assert set(np.flatnonzero(columns["highly_variable"])) == set(np.argsort(-expected)[:25])


def test_logarithms_of_another_base_are_undone(normalized):
    expected = by_flavor(normalized.copy(), "seurat")["dispersions_norm"]
    normalized.X = normalized.X / np.float32(np.log(2))
    normalized.uns["log1p"] = {"base": 2}
    np.testing.assert_allclose(by_flavor(normalized, "seurat")["dispersions_norm"], expected, rtol=1e-3)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_genes_are_the_same_wherever_the_cells_are(normalized, flavor, tmp_path):
    import dask.array

    normalized.write_h5ad(tmp_path / "cells.h5ad")
    expected = by_flavor(normalized, flavor, "batch")["highly_variable"].to_numpy()
    assert expected.sum() == 25
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    lazy = anndata.experimental.read_lazy(tmp_path / "cells.h5ad")
    chunked = normalized.copy()
    chunked.X, chunked.layers["counts"] = (
        dask.array.from_array(values.toarray(), chunks=(70, 200))
        for values in (normalized.X, normalized.layers["counts"])
    )
    for cells in (backed, lazy, chunked):
        assert np.array_equal(by_flavor(cells, flavor, "batch")["highly_variable"], expected)
    backed.file.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"flavor": "seurat_v4"}, "flavor must be one of seurat_v3, .*seurat_v4"),
        ({"flavor": "pearson_residuals", "theta": 0}, "theta must be a number above 0"),
        ({"flavor": "seurat", "n_top_genes": 0}, "n_top_genes"),
        ({"flavor": "seurat", "batch_key": "gap"}, "cell 3 has no batch in .*gap"),
        ({"flavor": "seurat_v3", "batch_key": "gap"}, "cell 3 has no batch in .*gap"),
        ({"flavor": "seurat_v3", "batch_key": "solo"}, r"batch 'on its own' of adata.obs\['solo'\] has one cell"),
        ({"flavor": "cell_ranger", "batch_key": "solo"}, "in batch 'on its own' one mean is that of so many genes"),
    ],
)
def test_mistakes_about_flavors_name_what_is_wrong(adata, options, said):
    adata.obs["solo"] = pd.Categorical(["on its own" if i == 3 else "x" for i in range(300)])
    adata.obs["gap"] = pd.Categorical([None if i == 3 else "x" for i in range(300)])
    with pytest.raises(BadParameter, match=said):
        sks.pp.highly_variable_genes(adata, **options)


@pytest.mark.parametrize("flavor", ["seurat_v3", "cell_ranger", "pearson_residuals"])
def test_more_genes_than_there_are_is_all_with_a_warning(adata, flavor):
    layer = None if flavor == "cell_ranger" else "counts"
    with pytest.warns(UserWarning, match="n_top_genes is 201, but there are 200 genes"):
        sks.pp.highly_variable_genes(adata, 201, flavor=flavor, layer=layer)
    assert adata.var["highly_variable"].all()


@pytest.fixture
def grouped(adata):
    """The cells with their kind in a column; three cells have none."""
    kinds = np.repeat(["a", "b", "c"], 100).astype(object)
    kinds[[5, 105, 205]] = None
    adata.obs["kind"] = pd.Categorical(kinds, categories=["a", "b", "c", "no cell"])
    dark = adata.X.toarray()
    dark[:, 3] = 0.0
    dark[:, 4] = np.where(adata.obs["kind"] == "a", 2.0, 1.0)
    adata.X = sp.csr_matrix(dark)
    return adata


def field(adata, name, group):
    results = adata.uns["rank_genes_groups"]
    return pd.Series(results[name][group], index=results["names"][group]).reindex(adata.var_names).to_numpy(float)


@pytest.mark.parametrize("reference", ["rest", "b"])
def test_scores_of_groups_are_welchs_t(grouped, reference):
    sks.tl.rank_genes_groups(grouped, "kind", reference=reference)
    values = grouped.X.toarray().astype(float)
    kind = grouped.obs["kind"]
    names = grouped.uns["rank_genes_groups"]["names"].dtype.names
    assert names == tuple(group for group in "abc" if group != reference)
    for group in names:
        mine, rest = kind == group, (kind != group) if reference == "rest" else kind == reference
        expected = scipy.stats.ttest_ind(values[mine], values[rest], equal_var=False)
        t, p = expected.statistic.copy(), expected.pvalue.copy()
        t[3], p[3] = 0.0, 1.0  # dark in every cell
        if reference == "b":  # constant in both groups, and different in "a"
            t[4], p[4] = (np.inf, 0.0) if group == "a" else (0.0, 1.0)
        np.testing.assert_allclose(field(grouped, "scores", group), t, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(field(grouped, "pvals", group), p, rtol=1e-9)
        corrected = scipy.stats.false_discovery_control(p)
        np.testing.assert_allclose(field(grouped, "pvals_adj", group), corrected, rtol=1e-9)
    scores = grouped.uns["rank_genes_groups"]["scores"]["a"]
    assert (np.diff(scores) <= 0).all()


def test_the_reference_is_no_group_and_rest_may_be_the_name_of_one(grouped):
    sks.tl.rank_genes_groups(grouped, "kind", ["a", "c"], reference="a")
    assert grouped.uns["rank_genes_groups"]["names"].dtype.names == ("c",)
    sks.tl.rank_genes_groups(grouped, "kind", key_added="others")
    grouped.obs["named"] = grouped.obs["kind"].cat.rename_categories({"b": "rest"})
    sks.tl.rank_genes_groups(grouped, "named", key_added="named")
    assert grouped.uns["named"]["names"].dtype.names == ("a", "rest", "c")
    for name, group in (("rest", "b"), ("c", "c")):
        np.testing.assert_array_equal(grouped.uns["named"]["scores"][name], grouped.uns["others"]["scores"][group])


def test_genes_of_a_kind_come_first_and_survive_a_store(grouped, tmp_path):
    sks.tl.rank_genes_groups(grouped, "kind", ["c", "a"], n_genes=10, key_added="markers")
    grouped.write_h5ad(tmp_path / "a.h5ad")
    results = anndata.read_h5ad(tmp_path / "a.h5ad").uns["markers"]
    assert results["names"].dtype.names == ("c", "a")
    assert {int(name) for name in results["names"]["c"]} >= set(range(142, 150))
    assert (results["logfoldchanges"]["c"] > 1).sum() >= 8
    assert results["params"]["method"] == "t-test"


def test_a_backed_object_and_its_raw_counts_give_the_same_genes(grouped, tmp_path):
    grouped.raw = grouped
    grouped.write_h5ad(tmp_path / "a.h5ad")
    sks.tl.rank_genes_groups(grouped, "kind")
    assert grouped.uns["rank_genes_groups"]["params"]["use_raw"] is True
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    for use_raw in (True, False):
        sks.tl.rank_genes_groups(backed, "kind", use_raw=use_raw)
        for name in ("names", "scores", "pvals", "pvals_adj", "logfoldchanges"):
            ours, theirs = grouped.uns["rank_genes_groups"][name], backed.uns["rank_genes_groups"][name]
            np.testing.assert_array_equal(ours, theirs)
    backed.file.close()


@pytest.mark.parametrize("reference", ["rest", "b"])
@pytest.mark.parametrize("method", ["t-test", "t-test_overestim_var"])
def test_genes_of_groups_are_those_of_scanpy(grouped, method, reference):
    scanpy = pytest.importorskip("scanpy")
    for corr_method in ("benjamini-hochberg", "bonferroni"):
        sks.tl.rank_genes_groups(grouped, "kind", method=method, reference=reference, corr_method=corr_method)
        theirs = grouped.copy()
        theirs.obs["kind"] = theirs.obs["kind"].cat.remove_unused_categories()
        scanpy.tl.rank_genes_groups(theirs, "kind", method=method, reference=reference, corr_method=corr_method)
        ours, expected = grouped.uns["rank_genes_groups"], theirs.uns["rank_genes_groups"]
        assert ours["params"] == {**expected["params"], "reference": reference}
        for name in ("scores", "pvals", "pvals_adj", "logfoldchanges"):
            assert ours[name].dtype == expected[name].dtype
            for group in ours[name].dtype.names:
                np.testing.assert_allclose(
                    field(grouped, name, group), field(theirs, name, group), rtol=1e-4, atol=1e-6
                )


def counts_of(adata):
    """The counts up to 60, which have a bin each."""
    return sp.csr_matrix(np.minimum(np.round(np.expm1(adata.X.toarray())), 60.0))


@pytest.mark.parametrize("reference", ["rest", "b"])
@pytest.mark.parametrize("tie_correct", [False, True])
def test_rank_sums_of_counts_are_those_of_scanpy(grouped, tie_correct, reference):
    scanpy = pytest.importorskip("scanpy")
    grouped.X = counts_of(grouped)
    options = {"method": "wilcoxon", "reference": reference, "tie_correct": tie_correct, "use_raw": False}
    sks.tl.rank_genes_groups(grouped, "kind", **options)
    theirs = grouped.copy()
    theirs.obs["kind"] = theirs.obs["kind"].cat.remove_unused_categories()
    scanpy.tl.rank_genes_groups(theirs, "kind", **options)
    for name in ("scores", "pvals", "pvals_adj", "logfoldchanges"):
        for group in theirs.uns["rank_genes_groups"][name].dtype.names:
            np.testing.assert_allclose(field(grouped, name, group), field(theirs, name, group), rtol=1e-4, atol=1e-6)


def test_rank_sums_are_those_of_mann_and_whitney(grouped):
    grouped.X = counts_of(grouped)
    sks.tl.rank_genes_groups(grouped, "kind", ["a"], "b", method="wilcoxon", tie_correct=True, use_raw=False)
    rows = {kind: grouped.X.toarray().astype(float)[grouped.obs["kind"] == kind] for kind in "ab"}
    expected = scipy.stats.mannwhitneyu(rows["a"], rows["b"], use_continuity=False, method="asymptotic").pvalue
    np.testing.assert_allclose(field(grouped, "pvals", "a"), np.nan_to_num(expected, nan=1.0), rtol=1e-9)


def test_marked_genes_are_clustered_unless_told_otherwise(adata):
    adata.var["highly_variable"] = np.arange(200) >= 120
    sks.tl.kmeans(adata, 3, certificate=False)
    marked = adata.uns["kmeans"]
    assert marked["params"]["mask_var"] == "highly_variable"
    expected = sks.KMeans(3, random_state=0).fit(adata.X[:, 120:])
    assert marked["inertia"] == pytest.approx(expected.inertia_)
    assert marked["centers"].shape == (3, 80)
    sks.tl.kmeans(adata, 3, mask_var=None, certificate=False)
    assert adata.uns["kmeans"]["centers"].shape == (3, 200)


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_clusters_and_their_certificate_survive_a_store(adata, tmp_path, ending):
    sks.tl.kmeans(adata, 3, "kinds", use_rep="X_pca")
    path = tmp_path / f"a.{ending}"
    if ending == "h5ad":
        adata.write_h5ad(path)
        again = anndata.read_h5ad(path)
    else:
        adata.write_zarr(path)
        again = anndata.read_zarr(path)
    clusters = again.obs["kinds"]
    assert list(clusters.cat.categories) == ["0", "1", "2"]
    assert all(clusters.iloc[100 * kind : 100 * (kind + 1)].nunique() == 1 for kind in range(3))
    results = again.uns["kinds"]
    assert results["params"] == {"n_clusters": 3, "random_state": 0, "use_rep": "X_pca"}
    kinds = adata.obsm["X_pca"].reshape(3, 100, 3)
    np.testing.assert_allclose(results["inertia"], ((kinds - kinds.mean(axis=1, keepdims=True)) ** 2).sum())
    certificate = results["certificate"]
    assert 1 <= certificate["factor"] < 1.2
    assert certificate["lower_bound"] * certificate["factor"] == pytest.approx(results["inertia"])
    assert "with 3 clusters" in certificate["sentence"]


@pytest.mark.slow
def test_no_more_blocks_are_solved_than_a_job_solves(monkeypatch):
    cells = anndata.AnnData(np.random.default_rng(0).standard_normal((4000, 4)))
    bounds = []
    for seconds in (0.0, 1.25, 1e9):
        monkeypatch.setattr(block, "LEAST_SECONDS", seconds)
        sks.tl.kmeans(cells, 3)
        bounds.append(cells.uns["kmeans"]["certificate"]["lower_bound"])
    inertia = cells.uns["kmeans"]["inertia"]
    assert bounds[0] == pytest.approx(sks.certify(cells.X, inertia, 3, method="spectral").lower_bound)
    assert bounds[0] < bounds[1] < bounds[2]
    assert bounds[2] == pytest.approx(sks.certify(cells.X, inertia, 3, method="blocks").lower_bound)


def test_a_backed_object_is_annotated_too(adata, tmp_path):
    adata.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    sks.pp.highly_variable_genes(backed, 25, "batch", layer="counts")
    sks.pp.highly_variable_genes(adata, 25, "batch", layer="counts")
    assert backed.var["highly_variable"].equals(adata.var["highly_variable"])
    sks.tl.kmeans(backed, 2, certificate=False)
    assert set(backed.obs["kmeans"]) == {"0", "1"}
    assert "certificate" not in backed.uns["kmeans"]
    backed.file.close()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a: sks.pp.highly_variable_genes(a.X, 5), BadParameter, "must be an AnnData object"),
        (lambda a: sks.pp.highly_variable_genes(a, 5, "bach"), BadParameter, "no column 'bach'; there are: batch"),
        (lambda a: sks.pp.highly_variable_genes(a, 5, layer="raw"), SourceError, "no layer 'raw'; there are: counts"),
        (lambda a: sks.tl.rank_genes_groups(a.X, "batch"), BadParameter, "must be an AnnData object"),
        (lambda a: sks.tl.rank_genes_groups(a, "bach"), BadParameter, "no column 'bach'; there are: batch"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", ["z"]), BadParameter, "no group 'z'; there are: x, y"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", reference="z"), BadParameter, "no group 'z'"),
        (
            lambda a: sks.tl.rank_genes_groups(a, "batch", "x"),
            BadParameter,
            'must be "all" or a list of groups, got .x',
        ),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", n_genes=-3), BadParameter, "n_genes must be a whole number"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", ["x"], "x"), BadParameter, "none but the reference, 'x'"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", method="logreg"), BadParameter, "method must be one of t-test"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", corr_method="b"), BadParameter, "corr_method must be one of"),
        (lambda a: sks.tl.rank_genes_groups(a, "batch", use_raw=True), BadParameter, "adata.raw is empty"),
        (lambda a: sks.tl.kmeans(a, 3, mask_var="gens"), BadParameter, "adata.var has no column 'gens'"),
        (lambda a: sks.tl.kmeans(a, 3, use_rep="X_umap"), BadParameter, "no entry 'X_umap'; there are: X_pca"),
        (lambda a: sks.tl.kmeans(a, 3, use_rep="X_pca", layer="counts"), BadParameter, "leave one out"),
    ],
)
def test_mistakes_are_named(adata, call, error, message):
    with pytest.raises(error, match=message):
        call(adata)
    assert list(adata.var) == []


@pytest.mark.parametrize(
    ("flavor", "kind", "text"),
    [("seurat_v3", "logged", "not whole numbers"), ("pearson_residuals", "logged", "raw counts.* fractions")]
    + [(flavor, "few", "logarithms.* whole numbers") for flavor in ("seurat", "cell_ranger")]
    + [("seurat", "logged", ""), ("pearson_residuals", "counts", ""), ("seurat_v3_paper", "counts", "")],
)
def test_values_of_another_kind_are_warned_of(normalized, flavor, kind, text):
    normalized.layers["logged"] = normalized.X
    normalized.layers["few"] = normalized.layers["counts"].minimum(20)
    normalized.layers["negative"] = normalized.layers["counts"] - sp.csr_matrix(np.eye(300, 200))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sks.pp.highly_variable_genes(normalized, 25, flavor=flavor, layer=kind)
    texts = [
        str(each.message) for each in said if "whole numbers" in str(each.message) or "flavor" in str(each.message)
    ]
    assert len(texts) == bool(text)
    assert not text or re.search(text, texts[0])
    first = re.escape(f"0 ({normalized.var_names[0]}) has")
    for counts in ("seurat_v3", "pearson_residuals"):
        with pytest.raises(BadBlock, match=first):
            sks.pp.highly_variable_genes(normalized, 25, flavor=counts, layer="negative")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.filterwarnings("ignore:flavor 'seurat' is of logarithms")
def test_a_count_that_is_no_logarithm_is_named(form):
    counts = np.random.default_rng(0).poisson(2, (60, 30)).astype(np.float32)
    counts[7, 20] = 258
    with pytest.raises(BadBlock, match="row 7, column '20': 258, which is no logarithm"):
        sks.pp.highly_variable_genes(anndata.AnnData(form(counts)), flavor="seurat", n_top_genes=5)


def test_raw_counts_are_warned_of(adata):
    def said(verb, *args, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            verb(adata, *args, **options)
        return [str(each.message) for each in caught if "raw counts" in str(each.message)]

    for method in ("t-test", "t-test_overestim_var"):
        (text,) = said(sks.tl.rank_genes_groups, "batch", layer="counts", method=method)
        assert text.startswith("rank_genes_groups seems to get raw counts")
        assert not said(sks.tl.rank_genes_groups, "batch", method=method), "logarithms"
    assert not said(sks.tl.rank_genes_groups, "batch", layer="counts", method="wilcoxon"), "ranks of counts are ranks"
    (text,) = said(sks.tl.kmeans, 3, layer="counts", certificate=False)
    assert text.startswith("kmeans seems to get raw counts")
    adata.obsm["X_pca"] = np.rint(adata.obsm["X_pca"])
    assert not said(sks.tl.kmeans, 3, certificate=False) + said(sks.tl.kmeans, 3, use_rep="X_pca", certificate=False)
    adata.layers["seen"] = (adata.layers["counts"] > 0).astype(np.float32)
    assert not said(sks.tl.rank_genes_groups, "batch", layer="seen"), "zeros and ones are no counts of scale"
