"""Results under the keys of scanpy: what goes into an AnnData object, and a file of them without a matrix."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sketchselect.workflow.output.manifest import JobResults
from sketchselect.workflow.output.tables import row_texts
from sketchselect.workflow.stages.session import Session

FILE = "annotations.h5ad"
HVG = {"flavor": "seurat_v3"}
"""Entry of ``uns`` under the name of the method, which is scanpy's."""


def gene_columns(selector: Any) -> dict[str, Any]:
    """Return the columns of ``var`` of a fitted selector of highly variable genes."""
    columns = {
        "highly_variable": selector.get_support(),
        "highly_variable_rank": selector.ranks_.astype(np.float32),
        "means": selector.means_,
        "variances": selector.variances_,
        "variances_norm": selector.variances_norm_,
    }
    return columns | ({"highly_variable_nbatches": selector.n_batches_} if selector.batches else {})


def cluster_column(labels: Any, n_clusters: int) -> Any:
    """Return the column of ``obs``: categories "0", "1", ..., missing where a row was left out."""
    import pandas as pd

    return pd.Categorical.from_codes(labels, [str(label) for label in range(n_clusters)])


def cluster_entry(params: dict[str, Any], inertia: float, centers: Any, certificate: Any) -> dict[str, Any]:
    """Return the entry of ``uns``."""
    entry = {"params": params, "inertia": float(inertia), "centers": centers}
    if certificate is not None:
        numbers = {name: float(getattr(certificate, name)) for name in ("factor", "lower_bound", "confidence")}
        entry["certificate"] = numbers | {"sentence": certificate.sentence()}
    return entry


def write_annotations(session: Session, results: JobResults) -> None:
    """Publish the AnnData file, whose rows and columns are all those of the source."""
    import anndata
    import pandas as pd

    selection, clustering = results.selection, results.clustering
    if session.selector.needs_counts and not session.has_preset:
        uns: dict[str, Any] = {session.selector.method: HVG}
        columns = gene_columns(session.selector)
    else:
        uns = {}
        mask = np.isin(np.arange(selection.scores.size), selection.support)
        columns = {"selected": mask, "score": selection.scores}
    names = selection.feature_names or map(str, range(selection.scores.size))
    rows = session.vector("row_names") or session.matrix.row_names
    n_rows = session.matrix.shape[0]
    cells = map(str, range(n_rows)) if rows is None else row_texts(rows, 0, n_rows)
    obs, var = pd.DataFrame(index=list(cells)), pd.DataFrame(columns, index=list(names))
    if clustering is not None and session.config.cluster is not None:
        evaluation, settings = results.evaluation, session.config.cluster
        proofs = () if evaluation is None else evaluation.certificates
        best = min(proofs, key=lambda proof: proof.factor, default=None)
        params = {"n_clusters": settings.n_clusters, "random_state": settings.random_state}
        obs["kmeans"] = cluster_column(clustering.labels, settings.n_clusters)
        uns["kmeans"] = cluster_entry(params, clustering.inertia, clustering.centers, best)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of names that are not unique, and of releases of pandas
        anndata.AnnData(obs=obs, var=var, uns=uns).write_h5ad(session.folder.staging(FILE))
    session.folder.publish(FILE)
