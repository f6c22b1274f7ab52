"""The real data sets of the comparisons, prepared for selection and for clustering; nothing is downloaded."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
KINDS = {
    "USPS": "image",
    "COIL20": "image",
    "MNIST": "image",
    "Isolet": "image",
    "AR_55x40": "image",
    "TDT2": "text",
    "20Newsgroups_tf": "text",
    "mouse_bladder_cells": "cells",
    "ALLAML": "arrays",
    "arcene": "arrays",
}


@dataclass(frozen=True)
class DataSet:
    """Rows for the selection, rows for the clustering, classes."""

    name: str
    kind: str
    select: Any
    cluster: Any
    y: Any

    @property
    def n_clusters(self) -> int:
        return int(self.y.max()) + 1


def _unit_rows(A):
    if sp.issparse(A):
        norms = np.sqrt(np.asarray(A.multiply(A).sum(axis=1)).ravel())
        return sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ A)
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    return A / np.where(norms > 0, norms, 1)


def load(name: str, cluster_rows: int) -> DataSet | None:
    """Return a data set, or None with a message where its file is absent.

    Images and microarrays: unit rows for the selection, values / max for clustering. Text: sublinear tf-idf, unit rows.
    Cells: library size 1e4, log1p, unit rows for the selection. At most `cluster_rows` random rows are clustered, all
    are selected on.
    """
    file = DATA / f"{name}.npz"
    if not file.exists():
        print(f"{name}: skipped, there is no {file.name} in {DATA}")
        return None
    found = np.load(file)
    kind = KINDS[name]
    y = np.unique(found["y"], return_inverse=True)[1]
    if kind in ("image", "arrays"):
        A = found["X"].astype(np.float64)
        select, cluster = _unit_rows(A), A / np.abs(A).max()
    else:
        counts = found["data"].astype(np.float64)
        # scikit-learn's k-means takes 32-bit indices only.
        index = (found["indices"].astype(np.int32), found["indptr"].astype(np.int32))
        A = sp.csr_array((counts, *index), shape=tuple(found["shape"]))
        if kind == "text":
            idf = np.log((1 + A.shape[0]) / (1 + np.bincount(A.indices, minlength=A.shape[1]))) + 1
            A.data = 1 + np.log(A.data)
            select = cluster = _unit_rows(sp.csr_array(A @ sp.diags_array(idf)))
        else:
            cluster = sp.csr_array(sp.diags_array(1e4 / np.asarray(A.sum(axis=1)).ravel()) @ A)
            cluster.data = np.log1p(cluster.data)
            select = _unit_rows(cluster)
    # Files come sorted by class; both the order of the stream and the sample are random.
    order = np.random.default_rng(0).permutation(len(y))
    some = order[:cluster_rows]
    return DataSet(name, kind, select[order], cluster[some].astype(np.float32), y[some])


def sketch(data: DataSet, size: int):
    """Return the product's sketch of the rows, in dense bands."""
    import sketchselect as sks

    total, band = None, max(4 * size, 640)
    for a in range(0, data.select.shape[0], band):
        rows = data.select[a : a + band]
        part = sks.FrequentDirections(size).from_block(rows.toarray() if sp.issparse(rows) else rows, start=a)
        total = part if total is None else total.merge(part)
    return total


def dense_columns(A: Any, support: Any):
    """Return columns, dense unless they are mostly zeros."""
    if not sp.issparse(A):
        return np.ascontiguousarray(A[:, support])
    part = sp.csr_array(sp.csc_array(A)[:, support])
    return part.toarray() if part.nnz > 0.05 * part.shape[0] * part.shape[1] else part


def agreement(features: Any, data: DataSet, seeds: int) -> tuple[float, float]:
    """Return (NMI, accuracy under the best matching) of scikit-learn KMeans, means over seeds."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    nmi, accuracy = [], []
    for seed in range(seeds):
        labels = KMeans(data.n_clusters, n_init=5, random_state=seed).fit_predict(features)
        table = contingency_matrix(data.y, labels)
        nmi.append(normalized_mutual_info_score(data.y, labels))
        accuracy.append(table[linear_sum_assignment(-table)].sum() / len(labels))
    return float(np.mean(nmi)), float(np.mean(accuracy))
