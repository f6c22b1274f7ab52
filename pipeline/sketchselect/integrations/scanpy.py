"""Verbs on AnnData objects that write the keys of scanpy: highly variable genes, genes of groups, and k-means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from sketchselect._text import counted
from sketchselect.cluster import KMeans
from sketchselect.cluster.certificates.certify import affordable_certificate
from sketchselect.errors import BadParameter, warn
from sketchselect.execution import summarize
from sketchselect.integrations.genes import dispersion_columns, residual_columns
from sketchselect.linalg.validation import is_csr, require_positive
from sketchselect.readers import Matrix, open_matrix, row_partitions
from sketchselect.readers.arrays import backing_file, is_anndata
from sketchselect.readers.views import ChosenColumns
from sketchselect.selectors import HighlyVariableGenes
from sketchselect.selectors.highly_variable import combined_order, normalized_variances
from sketchselect.selectors.supervised.binned import rank_sums
from sketchselect.selectors.supervised.univariate import ColumnTests, adjusted, others, welch
from sketchselect.summaries import ColumnStats, Groups, RowSample, Summary, TargetHistogram
from sketchselect.workflow.assignment import HVG, cluster_column, cluster_entry, gene_columns

Flavor = Literal["seurat_v3", "seurat_v3_paper", "seurat", "cell_ranger", "pearson_residuals"]
_BY_BATCHES = {"highly_variable_nbatches", "highly_variable_intersection"}

_LOOKED_AT = 1000
"""Cells whose values are looked at for a warning."""
_BINS, _SAMPLED_CELLS = 64, 4096
"""Bins of a gene for rank sums, and cells that their edges come from: 64 a bin."""


def highly_variable_genes(
    adata: Any,
    n_top_genes: int = 2000,
    batch_key: str | None = None,
    *,
    flavor: Flavor = "seurat_v3",
    layer: str | None = None,
    span: float = 0.3,
    theta: float = 100.0,
    client: Any = None,
) -> None:
    """Annotate the genes that vary more than their means explain, as ``scanpy.pp`` does.

    The genes are those of scanpy, but for genes that are equal to rounding; those of "seurat_v3" are of
    `HighlyVariableGenes`. Objects may be backed or lazy, or hold Dask arrays: they are read in runs of rows.

    Parameters
    ----------
    adata : AnnData
        Gets, as from scanpy, ``uns["hvg"]`` and columns of ``var``: ``highly_variable``, ``means``, and
        ``highly_variable_rank``, ``variances`` and ``variances_norm`` (``residual_variances`` of Pearson residuals), or
        ``dispersions`` and ``dispersions_norm`` ("seurat", "cell_ranger"). With batches, ``highly_variable_nbatches``,
        and but for Seurat v3 ``highly_variable_intersection``.
    n_top_genes : int, default 2000
        Number of genes.
    batch_key : str, optional
        Column of ``obs`` with the batch of every cell.
    flavor : "seurat_v3", "seurat_v3_paper", "seurat", "cell_ranger" or "pearson_residuals"
        The first two are of raw counts, and differ in the order of genes of several batches: by the median of their
        ranks, or by the number of batches that choose them. "seurat" and "cell_ranger" are of logarithms of normalised
        counts. "pearson_residuals" are of raw counts, as in ``scanpy.experimental.pp``.
    layer : str, optional
        Layer with the values; ``X`` by default.
    span : float, default 0.3
        Share of the genes in each local regression, of Seurat v3.
    theta : float, default 100
        Overdispersion of the negative binomial model of "pearson_residuals".
    client : optional
        Runs the pass, as in `sketchselect.summarize`.

    Raises
    ------
    BadParameter
        If `adata` is no AnnData object, ``obs`` has no column `batch_key`, a cell has no batch, or a number is out of
        range.
    SourceError
        If there is no such layer.

    Notes
    -----
    Negative counts are refused. A warning says if values are not of the kind that the flavor is for: of Seurat v3 by
    the largest values of all cells, of the others by the first 1,000 cells.

    Cost: one pass over the rows; of Seurat v3 two where a gene has many clipped values, and of Pearson residuals
    two: for the totals, and for the residuals of all entries, the zeros too.

    Source: Stuart, Butler, Hoffman et al., Cell 177, 2019 (Seurat v3); Satija, Farrell et al., Nature Biotechnology 33,
    2015 ("seurat"); Zheng et al., Nature Communications 8, 2017 ("cell_ranger"); Lause, Berens and Kobak, Genome
    Biology 22, 2021 (Pearson residuals).

    Examples
    --------
    >>> import anndata as ad
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> rng = np.random.default_rng(0)
    >>> rates = np.where(np.arange(60) < 10, [[8.0], [0.5]], 0.5)[rng.integers(2, size=100)]
    >>> cells = ad.AnnData(rng.poisson(rates).astype(np.float32))
    >>> sks.pp.highly_variable_genes(cells, n_top_genes=10)
    >>> int(cells.var["highly_variable"].sum())
    10
    """
    _require_anndata(adata)
    _require_choice("flavor", flavor, get_args(Flavor))
    matrix = open_matrix(adata, key=_layer_key(layer))
    n_top = require_positive("n_top_genes", n_top_genes)
    if n_top > matrix.shape[1]:
        warn(f"n_top_genes is {n_top}, but there are {counted(matrix.shape[1], 'gene')}, and all are highly variable")
        n_top = matrix.shape[1]
    codes, names = None, None
    if batch_key is not None:
        numbers, labels = _groups(adata, batch_key)
        if (lost := np.flatnonzero(numbers == len(labels))).size:
            raise BadParameter(f"cell {int(lost[0])} has no batch in adata.obs[{batch_key!r:.80}]")
        # In the order of scanpy, which takes one number from the first batch
        names, codes = np.unique(np.asarray(_column(adata, batch_key)), return_inverse=True)
    if flavor.startswith("seurat_v3"):
        if names is not None and codes is not None and (alone := np.flatnonzero(np.bincount(codes) < 2)).size:
            batch = f"batch {str(names[alone[0]])!r:.80} of adata.obs[{batch_key!r:.80}]"
            raise BadParameter(f"{batch} has one cell; a variance needs two: merge it with another batch")
        batches = None if batch_key is None else _column(adata, batch_key)
        selector = HighlyVariableGenes(n_top, batches=batches is not None, span=span)
        selector.fit(matrix, batches, client=client)
        columns = gene_columns(selector)
        if flavor == "seurat_v3_paper" and batches is not None:
            summary: Any = selector.summary_
            parts: list[Any] = list(summary) if isinstance(summary, Groups) else [summary]
            values = np.array([normalized_variances(part, selector.trend, float(span)).values for part in parts])
            order = combined_order(values, n_top, selector.ties, by_batches=True)[0]
            columns["highly_variable"] = np.isin(np.arange(order.size), order[:n_top])
    else:
        _warn_of_values(matrix, flavor)
        if flavor == "pearson_residuals":
            if not theta > 0:
                raise BadParameter(f"theta must be a number above 0, got {theta!r:.80}")
            n_batches = 1 if names is None else len(names)
            columns = residual_columns(matrix, codes, n_batches, n_top, float(theta), client)
        else:
            base = adata.uns.get("log1p", {}).get("base")
            columns = dispersion_columns(matrix, codes, names, flavor, n_top, base, adata.var_names, client)
    computed_on = {"computed_on": layer or "adata.X"} if flavor == "pearson_residuals" else {}
    adata.uns["hvg"] = {**HVG, "flavor": flavor, **computed_on}
    for left in _BY_BATCHES & set(adata.var):
        del adata.var[left]  # by an earlier call
    for name, column in columns.items():
        adata.var[name] = column


def kmeans(
    adata: Any,
    n_clusters: int,
    key_added: str = "kmeans",
    *,
    use_rep: str | None = None,
    layer: str | None = None,
    mask_var: str | None = "highly_variable",
    certificate: bool = True,
    random_state: int = 0,
    client: Any = None,
) -> None:
    """Cluster the cells by k-means, and prove how far the clustering can be from the best one.

    Parameters
    ----------
    adata : AnnData
        Gets ``obs[key_added]``, the clusters as categories "0", "1", ..., and ``uns[key_added]`` with ``params``,
        ``inertia``, ``centers`` and ``certificate``: ``factor``, ``lower_bound``, ``confidence``, ``sentence``.
    n_clusters : int
        Number of clusters.
    key_added : str, default "kmeans"
        Key of the results.
    use_rep : str, optional
        Entry of ``obsm`` to cluster, such as "X_pca"; ``X`` by default.
    layer : str, optional
        Layer to cluster in place of ``X``.
    mask_var : str, optional
        Column of ``var`` that marks the genes to cluster; by default those that are highly variable, or all genes where
        no gene is marked. None: all genes. It does not apply to `use_rep`.
    certificate : bool, default True
        Whether to prove a bound, in one more pass: from as many blocks of rows as a job solves by default (about ten
        seconds, or a fifth of the run), with probability 0.99 if these are not all. `certify` solves all blocks.
    random_state : int, default 0
        Seed.
    client : optional
        Runs the passes, as in `sketchselect.summarize`.

    Raises
    ------
    BadParameter
        If `adata` is no AnnData object, ``obsm`` or ``var`` has no such entry, or both `use_rep` and `layer` are named.
    SourceError
        If there is no such layer.

    Notes
    -----
    A warning says if the first 1,000 cells of ``X`` or a layer seem to be raw counts.

    Cost: that of `KMeans.fit`, and of the certificate.

    Examples
    --------
    >>> import anndata as ad
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> rng = np.random.default_rng(0)
    >>> rates = np.where(np.arange(60) < 10, [[8.0], [0.5]], 0.5)[rng.integers(2, size=100)]
    >>> cells = ad.AnnData(np.log1p(rng.poisson(rates).astype(np.float32)))
    >>> sks.tl.kmeans(cells, 2)
    >>> list(cells.obs["kmeans"].cat.categories), sorted(cells.uns["kmeans"])
    (['0', '1'], ['centers', 'certificate', 'inertia', 'params'])
    """
    _require_anndata(adata)
    if use_rep is not None and layer is not None:
        raise BadParameter("use_rep and layer both name what to cluster; leave one out")
    if use_rep is not None and use_rep not in adata.obsm:
        raise BadParameter(f"adata.obsm has no entry {use_rep!r:.80}; there are: {_listed(adata.obsm)}")
    if use_rep is None:
        matrix = open_matrix(adata, key=_layer_key(layer))
        _warn_of_counts(matrix, "kmeans", "whose distances are those of a few highly expressed genes")
        matrix, mask_var = _marked_genes(adata, matrix, mask_var)
    else:
        matrix, mask_var = open_matrix(adata.obsm[use_rep]), None
    model = KMeans(n_clusters, random_state=random_state).fit(matrix, client=client)
    adata.obs[key_added] = cluster_column(model.labels_, len(model.cluster_centers_))
    params = {
        "n_clusters": n_clusters,
        "random_state": random_state,
        "use_rep": use_rep,
        "layer": layer,
        "mask_var": mask_var,
    }
    proof = affordable_certificate(matrix, model.inertia_, n_clusters, client=client) if certificate else None
    given = {name: value for name, value in params.items() if value is not None}
    adata.uns[key_added] = cluster_entry(given, model.inertia_, model.cluster_centers_, proof)


def rank_genes_groups(
    adata: Any,
    groupby: str,
    groups: Literal["all"] | Sequence[str] = "all",
    reference: str = "rest",
    n_genes: int | None = None,
    *,
    method: Literal["t-test", "t-test_overestim_var", "wilcoxon"] = "t-test",
    corr_method: Literal["benjamini-hochberg", "bonferroni"] = "benjamini-hochberg",
    tie_correct: bool = False,
    rankby_abs: bool = False,
    use_raw: bool | None = None,
    layer: str | None = None,
    key_added: str = "rank_genes_groups",
    client: Any = None,
) -> None:
    """Rank the genes that tell each group of cells from the others, as ``scanpy.tl`` does, in one pass over the cells.

    Scores and p-values of Welch's t-test are from counts, means and variances of every group: exact to rounding. Those
    of Wilcoxon's rank sums are from the number of cells in each of 64 bins of every gene, whose edges come from a
    sample in a pass before: exact for counts up to 63; other values in the same bin are ties.

    Parameters
    ----------
    adata : AnnData
        Logarithms of counts; may be backed, or hold Dask arrays. Gets ``uns[key_added]`` with ``names``, ``scores``,
        ``pvals``, ``pvals_adj``, ``logfoldchanges`` (a field for each group, best gene first) and ``params``.
    groupby : str
        Column of ``obs`` with the group of every cell. Cells without a group count as others.
    groups : "all" or sequence of str
        Groups to compare; the reference is left out.
    reference : str, default "rest"
        Group that the others are compared with; "rest": all other cells, also where a group has that name.
    n_genes : int, optional
        Number of genes listed for each group; all by default.
    method : "t-test", "t-test_overestim_var" or "wilcoxon"
        The second counts the others as if they were as many as the group, which overestimates their variance.
    corr_method : "benjamini-hochberg" or "bonferroni"
        How ``pvals_adj`` accounts for the number of genes.
    tie_correct : bool, default False
        Whether the variance of rank sums accounts for ties ("wilcoxon"); without, p-values are larger.
    rankby_abs : bool, default False
        Whether to order genes by the absolute score.
    use_raw : bool, optional
        Whether to use ``adata.raw``; by default where there is one and no `layer` is named.
    layer : str, optional
        Layer in place of ``X``.
    key_added : str, default "rank_genes_groups"
        Key of the results.
    client : optional
        Runs the pass, as in `sketchselect.summarize`.

    Raises
    ------
    BadParameter
        If `adata` is no AnnData object, a group has one cell, or a column, group, method or correction is unknown.
    SourceError
        If there is no such layer.

    Notes
    -----
    A warning says if the first 1,000 cells seem to be raw counts, of which no t-test should be.

    Cost: one pass over the cells; 64 bytes for each gene and group. For "wilcoxon" a pass for the bins, and 512 bytes
    more for each gene and group.

    Source: Welch, Biometrika 34, 1947; Wilcoxon, Biometrics Bulletin 1, 1945; scanpy: Wolf, Angerer, Theis, Genome
    Biology 19, 2018.

    Examples
    --------
    >>> import anndata as ad
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> rng = np.random.default_rng(0)
    >>> rates = np.where(np.arange(60) < 10, [[8.0], [0.5]], 0.5)[rng.integers(2, size=100)]
    >>> cells = ad.AnnData(np.log1p(rng.poisson(rates).astype(np.float32)))
    >>> sks.tl.kmeans(cells, 2)
    >>> sks.tl.rank_genes_groups(cells, "kmeans", n_genes=5)
    >>> cells.uns["rank_genes_groups"]["names"].dtype.names
    ('0', '1')
    """
    _require_anndata(adata)
    _require_choice("method", method, ("t-test", "t-test_overestim_var", "wilcoxon"))
    _require_choice("corr_method", corr_method, ("benjamini-hochberg", "bonferroni"))
    if isinstance(groups, str) and groups != "all":
        raise BadParameter(f'groups must be "all" or a list of groups, got {groups!r:.80}; write [{groups!r:.80}]')
    if n_genes is not None:
        n_genes = require_positive("n_genes", n_genes)
    codes, labels = _groups(adata, groupby)
    compared = labels if isinstance(groups, str) else [str(group) for group in groups]
    if reference != "rest":  # "rest" is all other cells, also where a group has that name
        compared = [group for group in compared if group != reference]
        if not compared:
            raise BadParameter(
                f"groups: there is none but the reference, {reference!r:.80}; name one to compare with it"
            )
    for group in [*compared, *([] if reference == "rest" else [reference])]:
        if group not in labels:
            raise BadParameter(f"adata.obs[{groupby!r:.80}] has no group {group!r:.80}; there are: {', '.join(labels)}")
        if (n_cells := int((codes == labels.index(group)).sum())) < 2:
            raise BadParameter(
                f"group {group!r:.80} of adata.obs[{groupby!r:.80}] has {n_cells} cell; a test needs two"
            )
    if use_raw is None:
        use_raw = adata.raw is not None and layer is None
    matrix, names = _raw(adata) if use_raw else (open_matrix(adata, key=_layer_key(layer)), adata.var_names)
    if method != "wilcoxon":
        _warn_of_counts(matrix, "rank_genes_groups", "and fold changes are computed from logarithms")
    # Cells without a group make a group of their own, the last.
    all_groups = range(len(labels) + 1)
    described: dict[str, Summary[Any]] = {"groups": Groups(ColumnStats(), all_groups)}
    if method == "wilcoxon":
        sample: Any = summarize(matrix, RowSample(_SAMPLED_CELLS), client=client)
        described["bins"] = TargetHistogram.of_sample(sample.rows, _BINS, classes=all_groups)
    summary: Any = summarize(matrix, described, y=codes, client=client)
    counts = np.array([part.n_rows for part in summary["groups"]], dtype=np.float64)
    means = np.array([part.mean for part in summary["groups"]])
    scatters = np.array([part.centered_column_squared_norms for part in summary["groups"]])

    columns: dict[str, dict[str, Any]] = {
        name: {} for name in ("names", "scores", "pvals", "pvals_adj", "logfoldchanges")
    }
    base = adata.uns.get("log1p", {}).get("base") or np.e
    for group in compared:
        i = labels.index(group)
        if reference == "rest":
            count, mean, scatter = others(i, counts, means, scatters)
        else:
            j = labels.index(reference)
            count, mean, scatter = counts[j], means[j], scatters[j]
        if method == "wilcoxon":
            bins = summary["bins"].counts
            second = bins.sum(axis=2) - bins[:, :, i] if reference == "rest" else bins[:, :, labels.index(reference)]
            tests = ColumnTests(*rank_sums(bins[:, :, i], second, tie_correct=tie_correct)[:3])
        else:
            tests = welch(
                np.array([counts[i], count]),
                np.array([means[i], mean]),
                np.array([scatters[i], scatter]),
                as_many=method == "t-test_overestim_var",
            )
        # Genes that are constant in both groups are not different.
        scores, pvalues = np.nan_to_num(tests.statistics, nan=0.0), np.nan_to_num(tests.pvalues, nan=1.0)
        if corr_method == "bonferroni":
            corrected = np.minimum(pvalues * pvalues.size, 1.0)
        else:
            corrected = np.exp(adjusted(np.nan_to_num(tests.log_pvalues, nan=0.0, neginf=-np.inf), "fdr"))
        changes = np.log2((np.expm1(means[i] * np.log(base)) + 1e-9) / (np.expm1(mean * np.log(base)) + 1e-9))
        order = np.argsort(-np.abs(scores) if rankby_abs else -scores, kind="stable")[:n_genes]
        columns["names"][group] = np.asarray(names, dtype=object)[order]
        columns["scores"][group] = scores[order].astype(np.float32)
        columns["pvals"][group] = pvalues[order]
        columns["pvals_adj"][group] = corrected[order]
        columns["logfoldchanges"][group] = changes[order].astype(np.float32)
    params = {
        "groupby": groupby,
        "reference": reference,
        "method": method,
        "use_raw": bool(use_raw),
        "layer": layer,
        "corr_method": corr_method,
    }
    adata.uns[key_added] = {"params": params} | {
        name: np.rec.fromarrays(
            list(fields.values()), dtype=[(group, column.dtype) for group, column in fields.items()]
        )
        for name, fields in columns.items()
    }


def _groups(adata: Any, key: str) -> tuple[Any, list[str]]:
    """Return the number of the group of each cell, one past the last for cells without one, and the groups' names."""
    import pandas as pd

    values = _column(adata, key)  # of a lazy object no series
    column = pd.Categorical(values if isinstance(values, pd.Series) else np.asarray(values)).remove_unused_categories()
    labels = [str(label) for label in column.categories]
    return np.where(column.codes < 0, len(labels), column.codes), labels


def _raw(adata: Any) -> tuple[Matrix, Any]:
    """Return the matrix of ``adata.raw`` and the names of its genes."""
    if adata.raw is None:
        raise BadParameter("use_raw: adata.raw is empty; set use_raw=False, or name a layer")
    matrix = open_matrix(backing_file(adata), key="raw/X") if adata.isbacked else open_matrix(adata.raw.X)
    return matrix, adata.raw.var_names


def _marked_genes(adata: Any, matrix: Matrix, column: str | None) -> tuple[Matrix, str | None]:
    """Return the matrix of the genes that a column of ``var`` marks, and the column, None if all genes are taken."""
    if column is None or (column == "highly_variable" and column not in adata.var):
        return matrix, None
    if column not in adata.var:
        raise BadParameter(f"adata.var has no column {column!r:.80}; there are: {_listed(adata.var)}")
    genes = np.flatnonzero(np.asarray(adata.var[column], dtype=bool))
    if not genes.size:
        raise BadParameter(f"adata.var[{column!r:.80}] marks no gene; mask_var=None clusters all")
    return ChosenColumns(matrix, genes.tolist()), column


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadParameter(f"{name} must be one of {', '.join(choices)}, got {value!r:.80}")


def _warn_of_values(matrix: Matrix, flavor: Flavor) -> None:
    """Warn if the values of the first cells are not of the kind that a flavor is for; Seurat v3 looks at all itself."""
    counts, largest = _seem_counts(matrix)
    is_of_counts = flavor == "pearson_residuals"
    if counts != is_of_counts and (is_of_counts or largest > 1):
        expected, seen = "logarithms of normalised counts", "whole numbers, as raw counts are"
        if is_of_counts:
            expected, seen = "raw counts", "fractions"
        warn(
            f"flavor {flavor!r} is of {expected}, but the values of the first cells are {seen}; name another layer or "
            "flavor"
        )


def _seem_counts(matrix: Matrix) -> tuple[bool, float]:
    """Return whether the values of the first cells are whole numbers from 0 on, and the largest of them."""
    start, stop = row_partitions(matrix, sparse=matrix.is_sparse)[0]
    block = matrix.read_rows(start, min(stop, start + _LOOKED_AT))
    values = np.asarray(block.data if is_csr(block) else block)
    return bool((values >= 0).all() and (values == np.rint(values)).all()), float(values.max(initial=0))


def _warn_of_counts(matrix: Matrix, verb: str, why: str) -> None:
    """Warn if a verb for logarithms of normalised counts seems to get raw counts."""
    counts, largest = _seem_counts(matrix)
    if counts and largest > 1:
        warn(
            f"{verb} seems to get raw counts (the values of the first cells are whole numbers), {why}; take logarithms "
            "of normalised counts first (scanpy.pp.normalize_total, scanpy.pp.log1p), or name their layer"
        )


def _require_anndata(adata: Any) -> None:
    if not is_anndata(adata):
        raise BadParameter(f"adata must be an AnnData object, got {type(adata).__name__}")


def _layer_key(layer: str | None) -> str | None:
    return None if layer is None else f"layers/{layer}"


def _column(adata: Any, key: str) -> Any:
    if key not in adata.obs:
        raise BadParameter(f"adata.obs has no column {key!r:.80}; there are: {_listed(adata.obs)}")
    return adata.obs[key]


def _listed(mapping: Any) -> str:
    return ", ".join(map(str, mapping)) or "none"
