"""Certificates: how far a clustering can be from the best one, proved from a summary alone."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np

from sketchselect.cluster.block_certificate import block_description, block_details, block_pass, require_confidence
from sketchselect.cluster.spectral_certificate import spectral_bound
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import PassStats
from sketchselect.summaries import BlockBound, FrequentDirections, Moments, Summary, pick
from sketchselect.summaries.base import require_positive

METHODS = ("spectral", "blocks")

_OBJECTIVE_ROUNDING = 1e-6
"""Relative error that an objective may carry (sums in float32, say) before it is called impossible."""


_NOTHING = 1e-9
"""Excess of a factor over 1 that is put down to rounding in words."""


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
    rows_read, bytes_read : int
        What was read for it, bytes as stored; 0 where a summary was enough.
    columns : {"all", "selected"}
        Which columns it speaks of: with "selected", of clusterings judged by the selected columns alone.
    """

    lower_bound: float
    objective: float
    factor: float
    method: str
    confidence: float
    cost: float
    n_clusters: int
    details: Mapping[str, float] = field(default_factory=dict)
    rows_read: int = 0
    bytes_read: int = 0
    columns: str = "all"

    def sentence(self) -> str:
        """Return the certificate in plain words.

        Examples
        --------
        >>> Certificate(50.0, 60.0, 1.2, "spectral", 1.0, 0.0, 3).sentence()[:68]
        'The clustering is within 20 % of the best possible one with 3 cluste'
        """
        k = f"{self.n_clusters} cluster{'s' if self.n_clusters > 1 else ''}"
        if self.columns == "selected":
            k += " in the selected columns"
        what = "is at most" if self.method.endswith(("drop", "selection")) else "is"
        if self.objective == 0:
            return f"The clustering is the best possible one with {k}: its objective is 0."
        if not np.isfinite(self.factor):
            hope = "; a larger sketch may give one" if self.details.get("shrinkage", 0.0) > 0 else ""
            if self.details.get("n_solved", 0) > 0:
                hope = "; larger blocks may give one"
            return (
                f"Nothing can be said about the best possible clustering with {k}: the lower bound is 0 (the objective "
                f"{what} {self.objective:.6g}){hope}."
            )
        sure = "" if self.confidence == 1 else f" (with probability {self.confidence:g})"
        if self.factor <= 1 + _NOTHING:
            best = "the best possible one" if self.factor == 1 else "up to rounding the best possible one"
            return f"The clustering is {best} with {k}: its objective {what} {self.objective:.6g}{sure}."
        # Rounded up: a certificate may not say more than was proved.
        if self.factor < 1.5:
            away = f"{math.ceil(1000 * (self.factor - 1) - _NOTHING) / 10:g} %"
        else:
            away = f"a factor of {math.ceil(1000 * self.factor - _NOTHING) / 1000:g}"
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
    value = as_objective(objective)
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
        lower, details = spectral_bound(summary, n_clusters)
        return made_certificate(lower, value, n_clusters, "spectral", details, began)
    if summarised:
        found = pick(source, BlockBound.kind)
        assert isinstance(found, BlockBound)
        if found.n_clusters != n_clusters:
            raise Incompatible(f"the block bound is of {found.n_clusters} clusters, the clustering has {n_clusters}")
        require_confidence(confidence)
        return blocks_certificate(found, value, confidence, began)
    reduced = block_pass(
        source,
        block_description(n_clusters, block_rows, confidence, fraction, seed),
        prepare=prepare,
        client=client,
        checkpoint=checkpoint,
        progress=progress,
    )
    return blocks_certificate(cast(BlockBound, reduced.value), value, confidence, began, reduced.stats)


def blocks_certificate(
    found: BlockBound, objective: float, confidence: float | None, began: float, stats: PassStats | None = None
) -> Certificate:
    """Return the certificate of a finished `BlockBound`.

    Parameters
    ----------
    found : BlockBound
        Of the rows, in the columns, that the objective was measured on.
    objective : float
        Of the clustering.
    confidence : float in (0, 1) or None
        As in `certify`; of no effect where every block was solved.
    began : float
        When `time.perf_counter` was asked.
    stats : PassStats, optional
        Account of the pass, for what was read.
    """
    certain = found.lower_bound()
    lower = certain if confidence is None else found.lower_bound(confidence)
    # A bound above an objective that was reached has failed, as it may; what holds for certain is left.
    sampled = confidence is not None and certain < lower <= objective
    certificate = made_certificate(
        lower if sampled else certain, objective, found.n_clusters, "blocks", block_details(found), began
    )
    if stats is not None:
        certificate = replace(certificate, rows_read=stats.rows_read, bytes_read=stats.bytes_read)
    return replace(certificate, confidence=float(confidence)) if sampled and confidence is not None else certificate


def _has_blocks(source: Any) -> bool:
    kinds = [source.kind] if not isinstance(source, Mapping) else [getattr(m, "kind", "") for m in source.values()]
    return BlockBound.kind in kinds and not {"frequent-directions", "moments"} & set(kinds)


def as_objective(value: float) -> float:
    """Return an objective as a float, or raise `BadParameter`."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (is_number and np.isfinite(value) and value >= 0):
        raise BadParameter("an objective must be a finite number that is not negative")
    return float(value)


def made_certificate(
    lower: float, objective: float, n_clusters: int, method: str, details: dict[str, float], began: float
) -> Certificate:
    """Return the certificate of a lower bound and an objective, or raise `BadParameter` where they contradict."""
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
