"""The verb `certify`: how far a clustering of given objective can be from the best one, from a summary or the rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from sketchselect.cluster.certificates.block import (
    BlockOptions,
    block_pass,
    blocks_certificate,
    opened_rows,
    require_unused,
)
from sketchselect.cluster.certificates.certificate import Certificate, as_objective, made_certificate
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries import BlockBound, FrequentDirections, Moments, Summary, pick

METHODS = ("spectral", "blocks")


def certify(
    source: Any,
    objective: float,
    n_clusters: int,
    method: str | None = None,
    *,
    block_rows: int = BlockOptions.block_rows,
    confidence: float | None = None,
    fraction: float | None = None,
    sample_weight: Any = None,
    prepare: Any = None,
    seed: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> Certificate:
    """Return how far a clustering can be from the best one of the same rows.

    "spectral": with s_i the singular values of the centred sketch, Delta its shrinkage and
    T = ||A_c||_F^2 - ||B_c||_F^2 what it lost, every partition of the rows into k clusters has an objective of at least
    ``||A_c||_F^2 - sum_{i<k} s_i^2 - min((k - 1) Delta, T)``, less a slack for rounding.
    "blocks": the sum, over blocks of rows, of the dual of a semidefinite relaxation (`BlockBound`); far closer.

    Parameters
    ----------
    source : summary, mapping or Bundle; for "blocks" also anything `open_matrix` takes
        Of the rows in the columns (and after the preparation) in which the objective was measured.
    objective : float
        Of the clustering, as from `kmeans_objective`. A 0 is taken at its word (`certify_labels` compares the rows).
    n_clusters : int
        Number of clusters.
    method : {"spectral", "blocks"}, optional
        The bound. None: "spectral" from a summary that has a spectrum, "blocks" from rows or a `BlockBound`.
    block_rows : int, default 400
        Rows of a block: ``max(1, rows // block_rows)`` equal blocks of every partition's rows, dealt by hash of `seed`.
    confidence : float in (0, 1), optional
        None solves every block and proves the bound. A probability solves a share of them, and the bound holds with
        that probability over their choice; where they are too few for it the certificate gives what is certain, and
        says so.
    fraction : float in (0, 1], optional
        Share of the blocks that are solved: all, or a quarter where a probability is enough.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative, where rows are read; the objective must be the weighted one. A summary has its own.
    prepare : sequence of str, optional
        Row steps, where rows are read.
    seed : int
        Of the blocks.
    client, checkpoint, progress : optional
        As in `sketchselect.summarize`, where rows are read.

    Returns
    -------
    Certificate
        ``factor >= objective / optimum``, rigorously, or with probability `confidence`.

    Raises
    ------
    BadParameter
        If the objective is below what any clustering can have (it belongs to other rows, columns or prepare steps), or
        the method is not available.
    Incompatible
        If there is no summary of a kind that gives this bound, or one for another number of clusters.

    Notes
    -----
    Centred clusterings have rank k - 1, because the vector of ones is in the span of the indicators; that makes the
    bound at least that of the uncentred spectrum. With weights the same holds of the rows about the weighted mean,
    times the roots of their weights, and of the vector of these roots instead of ones.
    Cost: the spectrum of the sketch; for "blocks" about a second of one core for 400 rows.
    Source: Drineas et al. 2004, section 2; Ky Fan's inequality; Liberty 2013 for Delta; Peng and Wei 2007.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> c = certify(Moments().from_block(X), 1.0, 2)
    >>> round(c.factor, 9), round(c.lower_bound, 9)
    (1.0, 1.0)
    >>> round(certify(X, 1.0, 2, method="blocks").factor, 6)
    1.0
    """
    began = time.perf_counter()
    n_clusters = require_positive("n_clusters", n_clusters)
    value = as_objective(objective)
    summarised = isinstance(source, (Summary, Mapping))
    if method is None:
        method = "spectral" if summarised and not _has_blocks(source) else "blocks"
    require_method(method)
    blocks = BlockOptions(block_rows, confidence, fraction, seed)
    if summarised:
        # What says how rows are read would be ignored.
        others = {"sample_weight": sample_weight, "prepare": prepare, "client": client, "checkpoint": checkpoint}
        chosen = blocks.chosen() | {name: value for name, value in others.items() if value is not None}
        require_unused(chosen, "for rows, and a summary was given", *(["confidence"] if method == "blocks" else []))
    if method == "spectral":
        if not summarised:
            raise BadParameter(
                "the spectral bound needs a summary of kind frequent-directions or moments (sketchselect.summarize); "
                'method="blocks" reads the rows'
            )
        return spectral_certificate(source, value, n_clusters, began)
    if summarised:
        bound = pick(source, BlockBound.kind)
        assert isinstance(bound, BlockBound)
        if bound.n_clusters != n_clusters:
            raise Incompatible(f"the block bound is of {bound.n_clusters} clusters, the clustering has {n_clusters}")
        return blocks_certificate(bound, value, confidence, began)
    with opened_rows(source, None, sample_weight, prepare, client, checkpoint, progress) as (rows, options):
        reduced = block_pass(rows, blocks.description(n_clusters), options)
    return blocks_certificate(cast(BlockBound, reduced.value), value, confidence, began, reduced.stats)


def require_method(method: str) -> None:
    """Raise `BadParameter` unless this is a bound there is."""
    if method not in METHODS:
        raise BadParameter(f"certify method {method!r} is not available; available: {', '.join(map(repr, METHODS))}")


def spectral_certificate(source: Any, objective: float, n_clusters: int, began: float) -> Certificate:
    """Return the certificate that a summary with a spectrum gives; `began` is when `time.perf_counter` was asked."""
    summary = pick(source, "frequent-directions", "moments")
    assert isinstance(summary, (FrequentDirections, Moments))
    lower, details = spectral_bound(summary, n_clusters)
    return made_certificate(lower, objective, n_clusters, "spectral", details, began)


def _has_blocks(source: Any) -> bool:
    kinds = [source.kind] if not isinstance(source, Mapping) else [getattr(m, "kind", "") for m in source.values()]
    return BlockBound.kind in kinds and not {"frequent-directions", "moments"} & set(kinds)
