"""Certificates: how far a clustering can be from the best one, proved from a summary alone."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.cluster.block_certificate import block_bound, block_details, require_confidence
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.summaries import BlockBound, FrequentDirections, Moments, Summary, pick
from sketchselect.summaries.base import require_positive

METHODS = ("spectral", "blocks")

_OBJECTIVE_ROUNDING = 1e-6
"""Relative error that an objective may carry (sums in float32, say) before it is called impossible."""


@dataclass(frozen=True)
class Certificate:
    """A proved statement: the objective is at most `factor` times the best possible one.

    Parameters
    ----------
    lower_bound : float
        No clustering of the rows into `n_clusters` clusters has a smaller objective; 0 says nothing.
    objective : float
        The objective of the clustering at hand, or an upper bound of it (`method` says which).
    factor : float
        objective / lower_bound, at least 1; infinite where the lower bound is 0 and the objective is not.
    method : str
        "spectral", "blocks"; "spectral+drop" and "spectral+selection" where the objective is bounded and not measured.
    confidence : float
        Probability with which the statement holds; 1 for what is rigorous.
    cost : float
        Seconds it took.
    n_clusters : int
        Number of clusters.
    details : mapping of str to number
        What the bound was made of.
    """

    lower_bound: float
    objective: float
    factor: float
    method: str
    confidence: float
    cost: float
    n_clusters: int
    details: Mapping[str, float] = field(default_factory=dict)

    def sentence(self) -> str:
        """Return the certificate in plain words.

        Examples
        --------
        >>> Certificate(50.0, 60.0, 1.2, "spectral", 1.0, 0.0, 3).sentence()[:68]
        'The clustering is within 20 % of the best possible one with 3 cluste'
        """
        k = f"{self.n_clusters} cluster{'s' if self.n_clusters > 1 else ''}"
        what = "is at most" if self.method.endswith(("drop", "selection")) else "is"
        if self.objective == 0:
            return f"The clustering is the best possible one with {k}: its objective is 0."
        if not np.isfinite(self.factor):
            hope = "; a larger sketch may give one" if self.details.get("shrinkage", 1.0) > 0 else ""
            return (
                f"Nothing can be said about the best possible clustering with {k}: the lower bound is 0 (the objective "
                f"{what} {self.objective:.6g}){hope}."
            )
        if self.factor == 1:
            return f"The clustering is the best possible one with {k}: its objective {what} {self.objective:.6g}."
        # Rounded up: a certificate may not say more than was proved.
        if self.factor < 1.5:
            away = f"{math.ceil(1000 * (self.factor - 1) - 1e-9) / 10:g} %"
        else:
            away = f"a factor of {math.ceil(1000 * self.factor - 1e-9) / 1000:g}"
        sure = "" if self.confidence == 1 else f" (with probability {self.confidence:g})"
        subject = "Judged by its selected columns alone, the clustering" if what == "is at most" else "The clustering"
        return (
            f"{subject} is within {away} of the best possible one with {k}: its objective {what} "
            f"{self.objective:.6g}, and no clustering can have one below {self.lower_bound:.6g}{sure}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: numbers, text and a dict; an infinite factor as None."""
        plain = asdict(self) | {"details": dict(self.details), "sentence": self.sentence()}
        plain["factor"] = self.factor if np.isfinite(self.factor) else None
        return plain


def certify(
    source: Any,
    objective: float,
    n_clusters: int,
    method: str | None = None,
    *,
    block_rows: int = 400,
    confidence: float | None = None,
    fraction: float | None = None,
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
        Of the clustering, as from `kmeans_objective`.
    n_clusters : int
        Number of clusters.
    method : {"spectral", "blocks"}, optional
        The bound. None: "spectral" from a summary that has a spectrum, "blocks" from rows or a `BlockBound`.
    block_rows : int, default 400
        Rows of a block: ``max(1, rows // block_rows)`` equal blocks of every partition's rows, dealt by hash.
    confidence : float in (0, 1), optional
        None solves every block and proves the bound. A probability solves a share of them (`fraction`, a quarter by
        default), and the bound holds with that probability over their choice.
    fraction : float in (0, 1], optional
        Share of the blocks that are solved.
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
    bound at least that of the uncentred spectrum. Cost: the spectrum of the sketch; for "blocks" about a second of one
    core for 400 rows.
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
    value = _as_objective(objective)
    if method is not None and method not in METHODS:
        raise BadParameter(f"certify method {method!r} is not available; available: {', '.join(map(repr, METHODS))}")
    summarised = isinstance(source, (Summary, Mapping))
    if method is None:
        method = "spectral" if summarised and not _has_blocks(source) else "blocks"
    if summarised:
        # What says how rows are read would be ignored.
        idle = {"block_rows": block_rows != 400, "fraction": fraction is not None, "prepare": prepare is not None}
        idle |= {"client": client is not None, "checkpoint": checkpoint is not None, "seed": seed != 0}
        idle["confidence"] = confidence is not None and method == "spectral"
        if unused := [name for name, is_given in idle.items() if is_given]:
            raise BadParameter(f"certify: {', '.join(unused)} is for rows, and a summary was given; leave it out")
    if method == "spectral":
        if not summarised:
            raise BadParameter(
                "the spectral bound needs a summary of kind frequent-directions or moments (sketchselect.summarize); "
                'method="blocks" reads the rows'
            )
        summary = pick(source, "frequent-directions", "moments")
        assert isinstance(summary, (FrequentDirections, Moments))
        lower, details = _spectral_bound(summary, n_clusters)
        return _certificate(lower, value, n_clusters, "spectral", details, began)
    if summarised:
        found = pick(source, BlockBound.kind)
        assert isinstance(found, BlockBound)
        if found.n_clusters != n_clusters:
            raise Incompatible(f"the block bound is of {found.n_clusters} clusters, the clustering has {n_clusters}")
        require_confidence(confidence)
    else:
        found = block_bound(
            source,
            n_clusters,
            block_rows=block_rows,
            confidence=confidence,
            fraction=fraction,
            prepare=prepare,
            seed=seed,
            client=client,
            checkpoint=checkpoint,
            progress=progress,
        )
    return blocks_certificate(found, value, confidence, began)


def blocks_certificate(found: BlockBound, objective: float, confidence: float | None, began: float) -> Certificate:
    """Return the certificate of a finished `BlockBound`; `began` is when `time.perf_counter` was asked."""
    sampled = found.record.n_solved < found.record.n_blocks and confidence is not None
    lower = found.lower_bound(confidence)
    certificate = _certificate(lower, objective, found.n_clusters, "blocks", block_details(found), began)
    return replace(certificate, confidence=float(confidence)) if sampled and confidence is not None else certificate


def _has_blocks(source: Any) -> bool:
    kinds = [source.kind] if not isinstance(source, Mapping) else [getattr(m, "kind", "") for m in source.values()]
    return BlockBound.kind in kinds and not {"frequent-directions", "moments"} & set(kinds)


def drop_certificate(source: Any, selected_objective: float, support: ArrayLike, n_clusters: int) -> Certificate:
    """Return a certificate for all columns from the objective in the selected ones, without another pass.

    The objective in all columns is at most that in the columns S plus the scatter of the others:
    ``F(A) <= F(A_S) + sum_{j not in S} ||a_j - mean_j||^2``.

    Parameters
    ----------
    source : FrequentDirections, Moments, or a mapping or Bundle that holds one
        Summary of the rows in all columns.
    selected_objective : float
        Objective of the clustering in the selected columns alone, with weights one.
    support : array of int
        The selected columns.
    n_clusters : int
        Number of clusters.

    Raises
    ------
    BadParameter
        If a column does not exist or appears twice, or the objective is impossible.
    Incompatible
        If there is no summary of a kind that has a spectrum.
    """
    began = time.perf_counter()
    n_clusters = require_positive("n_clusters", n_clusters)
    summary = pick(source, "frequent-directions", "moments")
    assert isinstance(summary, (FrequentDirections, Moments))
    columns = np.asarray(support)
    p = summary.n_features
    if columns.ndim != 1 or columns.dtype.kind not in "iu":
        raise BadParameter("support must be a one-dimensional array of column indices")
    if columns.size and (columns.min() < 0 or columns.max() >= p or np.unique(columns).size != columns.size):
        raise BadParameter(f"support must hold different columns between 0 and {p - 1}")
    scatter = summary.centered_column_squared_norms
    dropped = np.ones(p, dtype=bool)
    dropped[columns] = False
    selected = _as_objective(selected_objective)
    lost = float(scatter[dropped].sum())
    lower, details = _spectral_bound(summary, n_clusters)
    details |= {"selected_objective": selected, "dropped_scatter": lost}
    return _certificate(lower, selected + lost, n_clusters, "spectral+drop", details, began)


def bounded_certificate(lower_bound: float, bound: float, n_clusters: int, began: float) -> Certificate:
    """Return the certificate that a method's own bounds give: of the optimum, and of the clustering's objective.

    Parameters
    ----------
    lower_bound : float
        No clustering of the rows has a smaller objective.
    bound : float
        The clustering's objective in all columns is at most this; infinity proves nothing.
    n_clusters : int
        Number of clusters.
    began : float
        When `time.perf_counter` was asked.
    """
    factor = bound / lower_bound if lower_bound > 0 else float("inf")
    if bound == 0:
        factor = 1.0
    spent = time.perf_counter() - began
    return Certificate(lower_bound, bound, max(factor, 1.0), "spectral+selection", 1.0, spent, n_clusters)


def _spectral_bound(summary: FrequentDirections | Moments, n_clusters: int) -> tuple[float, dict[str, float]]:
    total = summary.centered_squared_norm
    squares: Floats = summary.centered_directions.squares
    delta = summary.shrinkage if isinstance(summary, FrequentDirections) else 0.0
    lost = max(total - float(squares.sum()), 0.0)
    top = float(squares[: n_clusters - 1].sum())
    # An exact summary loses nothing, whatever rounding says.
    unseen = min((n_clusters - 1) * delta, lost) if delta > 0 else 0.0
    slack = _rounding(summary, total, squares.size)
    if isinstance(summary, Moments):
        slack += (n_clusters - 1) * summary.single_rounding
    bound = float(total - top - unseen - slack)
    details = {
        "n_rows": summary.n_rows,
        "n_features": summary.n_features,
        "scatter": float(total),
        "top_squares": float(top),
        "shrinkage": float(delta),
        "unseen": float(unseen),
        "rounding": float(slack),
    }
    # As many clusters as rows can leave nothing over; the formula knows that only up to rounding.
    return (max(bound, 0.0) if n_clusters < summary.n_rows else 0.0), details


def _rounding(summary: FrequentDirections | Moments, total: float, n_values: int) -> float:
    """Return what rounding can have added to a spectral bound, whatever the blocks and the tree.

    Two parts. Column sums, products and shrinks carry up to some units of the total a row, since a sum of n terms can
    be off by n units. And a mean is rounded at each merge, to a unit of itself, which far from the origin is more than
    that: an error e of the means changes the scatter by at most 2 sqrt(W total) e + W e^2.
    """
    eps, n_rows = float(np.finfo(np.float64).eps), summary.n_rows
    off = 2.0 * eps * n_rows * float(np.linalg.norm(summary.mean))
    weight = float(summary.weight)
    return 8.0 * eps * (n_values + 8 + n_rows) * total + 2.0 * math.sqrt(weight * total) * off + weight * off * off


def _as_objective(value: float) -> float:
    objective = float(value)
    if not (np.isfinite(objective) and objective >= 0):
        raise BadParameter("an objective must be a finite number that is not negative")
    return objective


def _certificate(
    lower: float, objective: float, n_clusters: int, method: str, details: dict[str, float], began: float
) -> Certificate:
    if objective < lower * (1 - _OBJECTIVE_ROUNDING) - details["rounding"]:
        raise BadParameter(
            f"an objective of {objective:.6g} is impossible: no clustering of these {details['n_rows']} rows x "
            f"{details['n_features']} columns into {n_clusters} clusters is below {lower:.6g}; it was measured on "
            "other rows, columns or prepare steps than the summary"
        )
    lower = min(lower, objective)
    if objective == 0:
        factor = 1.0
    else:
        factor = objective / lower if lower > 0 else float("inf")
    return Certificate(lower, objective, factor, method, 1.0, time.perf_counter() - began, n_clusters, details)
