"""Verbs on AnnData objects that write the keys of scanpy: highly variable genes, and k-means with its certificate."""

from __future__ import annotations

from typing import Any

from sketchselect.cluster import KMeans
from sketchselect.cluster.certificates.certify import affordable_certificate
from sketchselect.errors import BadParameter
from sketchselect.readers import open_matrix
from sketchselect.readers.arrays import is_anndata
from sketchselect.selectors import HighlyVariableGenes
from sketchselect.workflow.assignment import HVG, cluster_column, cluster_entry, gene_columns


def highly_variable_genes(
    adata: Any,
    n_top_genes: int = 2000,
    batch_key: str | None = None,
    *,
    layer: str | None = None,
    span: float = 0.3,
    client: Any = None,
) -> None:
    """Annotate the genes that vary more than their means explain, as ``scanpy.pp`` with ``flavor="seurat_v3"`` does.

    The genes and numbers are those of `HighlyVariableGenes`; a backed object is read in runs of rows.

    Parameters
    ----------
    adata : AnnData
        Raw counts. Gets, as from scanpy, ``var["highly_variable"]``, ``["highly_variable_rank"]``, ``["means"]``,
        ``["variances"]``, ``["variances_norm"]``, with batches ``["highly_variable_nbatches"]``, and ``uns["hvg"]``.
    n_top_genes : int, default 2000
        Number of genes.
    batch_key : str, optional
        Column of ``obs`` with the batch of every cell.
    layer : str, optional
        Layer with the counts; ``X`` by default.
    span : float, default 0.3
        Share of the genes in each local regression.
    client : optional
        Runs the pass, as in `sketchselect.summarize`.

    Raises
    ------
    BadParameter
        If `adata` is no AnnData object, or ``obs`` has no column `batch_key`.
    SourceError
        If there is no such layer.

    Notes
    -----
    Cost: one pass over the rows, two where a gene has many clipped values.

    Source: Stuart, Butler, Hoffman et al., Cell 177, 2019.
    """
    _require_anndata(adata)
    matrix = open_matrix(adata, key=_layer_key(layer))
    batches = None if batch_key is None else _column(adata, batch_key)
    selector = HighlyVariableGenes(n_top_genes, batches=batches is not None, span=span)
    selector.fit(matrix, batches, client=client)
    adata.uns["hvg"] = dict(HVG)
    if "highly_variable_nbatches" in adata.var:
        del adata.var["highly_variable_nbatches"]  # left by an earlier call
    for name, column in gene_columns(selector).items():
        adata.var[name] = column


def kmeans(
    adata: Any,
    n_clusters: int,
    key_added: str = "kmeans",
    *,
    use_rep: str | None = None,
    layer: str | None = None,
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
        If `adata` is no AnnData object, ``obsm`` has no such entry, or both `use_rep` and `layer` are named.
    SourceError
        If there is no such layer.

    Notes
    -----
    Cost: that of `KMeans.fit`, and of the certificate.
    """
    _require_anndata(adata)
    if use_rep is not None and layer is not None:
        raise BadParameter("use_rep and layer both name what to cluster; leave one out")
    if use_rep is not None and use_rep not in adata.obsm:
        raise BadParameter(f"adata.obsm has no entry {use_rep!r:.80}; there are: {_listed(adata.obsm)}")
    matrix = open_matrix(adata, key=_layer_key(layer)) if use_rep is None else open_matrix(adata.obsm[use_rep])
    model = KMeans(n_clusters, random_state=random_state).fit(matrix, client=client)
    adata.obs[key_added] = cluster_column(model.labels_, len(model.cluster_centers_))
    params = {"n_clusters": n_clusters, "random_state": random_state, "use_rep": use_rep, "layer": layer}
    proof = affordable_certificate(matrix, model.inertia_, n_clusters, client=client) if certificate else None
    given = {name: value for name, value in params.items() if value is not None}
    adata.uns[key_added] = cluster_entry(given, model.inertia_, model.cluster_centers_, proof)


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
