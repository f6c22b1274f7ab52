"""The verb `certify`: how far a clustering of given objective can be from the best one, from a summary or the rows.

The closer of both bounds: the spectral one first, and blocks of rows where a few of them promise more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from sketchselect import prepare as steps
from sketchselect._text import format_seconds
from sketchselect.cluster.certificates.block import (
    BlockOptions,
    affordable_blocks,
    block_pass,
    blocks_certificate,
    require_unused,
)
from sketchselect.cluster.certificates.certificate import Certificate, made_certificate, with_row_check
from sketchselect.cluster.certificates.labels import Measured, as_cluster_numbers, measure
from sketchselect.cluster.certificates.spectral import sketch_rows, spectral_bound
from sketchselect.cluster.kmeans.seeding import n_starts
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source, fitted_source, make_progress, open_engine
from sketchselect.execution.api import open_source
from sketchselect.execution.checkpoints import as_checkpoint
from sketchselect.execution.engine import PassOptions
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.summaries import SPECTRAL_KINDS, BlockBound, Bundle, FrequentDirections, Summary, pick, pick_spectrum

TRIAL_BLOCKS = 6  # Blocks solved in the first pass, to estimate the bound that all blocks prove


def spectral_certificate(source: Any, objective: float, n_clusters: int, began: float) -> Certificate:
    """Return the certificate that a summary with a spectrum gives; `began`: `time.perf_counter()` at the start."""
    lower, details = spectral_bound(pick_spectrum(source), n_clusters)
    return made_certificate(lower, objective, n_clusters, "spectral", details, began)


def closest_certificate(
    rows: Source,
    objective: float | None,
    n_clusters: int,
    blocks: BlockOptions,
    options: PassOptions,
    *,
    spectrum: Any = None,
) -> Certificate:
    """Return the certificate of the larger of both bounds; one pass, or two where blocks promise more.

    `rows`: Without an `objective`, with the labels as its target.
    `objective`: Of the clustering; None measures that of the labels.
    `blocks`: How rows are dealt into blocks.
    `options`: Of the passes.
    `spectrum`: Has the spectrum of the rows; without it the first pass makes a sketch.
    """
    began = time.perf_counter()
    share = min(1.0, TRIAL_BLOCKS * blocks.block_rows / max(rows.n_rows, 1))
    members: dict[str, Summary[Any]] = {"blocks": replace(blocks, fraction=share).description(n_clusters)}
    if spectrum is None:
        members["sketch"] = FrequentDirections(size=sketch_rows(n_clusters))
    measurement = measured_bounds(rows, objective, n_clusters, members, options)
    cheap = measured_certificate(measurement, spectrum or measurement.bounds["sketch"], n_clusters, began)
    trial = cast(BlockBound, measurement.bounds["blocks"])
    if trial.record.n_solved == trial.record.n_blocks:
        return min(cheap, measured_certificate(measurement, trial, n_clusters, began), key=lambda c: c.factor)
    options.progress.note(f"spectral bound: {cheap.sentence()}")
    if trial.record.n_solved and _estimate(trial) <= cheap.lower_bound:
        count = f"{trial.record.n_solved} of {trial.record.n_blocks} blocks of rows promise no larger bound"
        return replace(cheap, note=f"{cheap.note} {count}, so the others were not solved.".lstrip())
    seconds = (time.perf_counter() - began) * trial.record.n_blocks / max(trial.record.n_solved, 1)
    options.progress.note(
        f"block certificate: {trial.record.n_blocks} blocks of rows to solve, about {format_seconds(seconds)} at the "
        f'speed of the {trial.record.n_solved} solved so far; the method "spectral" solves none, a confidence (0.99) a '
        "quarter of them"
    )
    full = block_pass(rows, blocks.description(n_clusters), options)
    closer = measured_certificate(replace(measurement, bounds={}), full.value, n_clusters, began)
    totals = (measurement.stats.rows_read + full.stats.rows_read, measurement.stats.bytes_read + full.stats.bytes_read)
    best = min(cheap, replace(closer, scatter=cheap.scatter), key=lambda c: c.factor)
    return replace(best, rows_read=totals[0], bytes_read=totals[1], cost=time.perf_counter() - began)


def measured_bounds(
    rows: Source, objective: float | None, n_clusters: int, members: Mapping[str, Summary[Any]], options: PassOptions
) -> Measured:
    """Return summaries of rows, and the objective of their labels unless it is passed; one pass."""
    if objective is None:
        return measure(rows, n_clusters, members, options, stage="certificate")
    result = block_pass(rows, Bundle(dict(members)), options)
    return Measured(objective, cast(Bundle, result.value), None, result.stats)


def measured_certificate(
    measurement: Measured, bound: Any, n_clusters: int, began: float, confidence: float | None = None
) -> Certificate:
    """Return the certificate of a measured objective.

    `measurement`: The objective, and the pass that measured it.
    `bound`: Of the same rows.
    `n_clusters`, `confidence`: As in `certify`.
    `began`: `time.perf_counter()` at the start.
    """
    if isinstance(bound, BlockBound):
        certificate = blocks_certificate(bound, measurement.objective, confidence, began)
    else:
        certificate = spectral_certificate(bound, measurement.objective, n_clusters, began)
    if certificate.scatter is None:
        certificate = replace(certificate, scatter=measurement.scatter)
    if measurement.note:
        certificate = replace(certificate, note=f"{certificate.note} {measurement.note}".lstrip())
    if measurement.same_rows is not None:
        certificate = with_row_check(certificate, measurement.same_rows)
    return certificate.with_statistics(measurement.stats, began)


def _estimate(trial: BlockBound) -> float:
    """Return the bound that all blocks would prove if the others gained as much as the solved ones."""
    record = trial.record
    return record.spectral + record.gained * record.n_blocks / record.n_solved


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
    random_state: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> Certificate:
    """Return how far a clustering can be from the best one of the same rows.

    "spectral": with s_i the singular values of the centred sketch, Delta its shrinkage and
    T = ||A_c||_F^2 - ||B_c||_F^2 what it lost, every partition of the rows into k clusters has an objective of at least
    ``||A_c||_F^2 - sum_{i<k} s_i^2 - min((k - 1) Delta, T)``, less a slack for rounding:
    from `Moments` of float32 rows ``1.6e-5 sqrt(k - 1) ||A_c||^2``, nearly all of the slack for separated clusters.
    "blocks": the sum, over blocks of rows, of the dual of a semidefinite relaxation with triangle inequalities
    (`BlockBound`); far closer.

    Parameters
    ----------
    source : summary, mapping or Bundle; for "blocks" also anything `open_matrix` takes
        Of the rows in the columns (and after the preparation) in which the objective was measured.
    objective : float
        Of the clustering, as from `kmeans_objective`. A 0 is not checked (`certify_labels` compares the rows).
    n_clusters : int
        Number of clusters.
    method : {"spectral", "blocks"}, optional
        The bound. None: from a summary the closest that it provides; from rows the closer of both, where blocks
        are all solved only if a few of them promise more than the spectrum does ("blocks" where one of their options is
        given).
    block_rows : int, default 400
        Rows of a block: ``max(1, rows // block_rows)`` equal blocks of every partition's rows, dealt by hash of
        `random_state`.
    confidence : float in (0, 1), optional
        None solves every block and proves the bound. A probability solves a share of the blocks, and the bound holds
        with that probability over their choice; where they are too few for it the certificate gives what is certain,
        and says so.
    fraction : float in (0, 1], optional
        Share of the blocks that are solved: all, or a quarter where a probability is enough.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative, where rows are read; the objective must be the weighted one. A summary has its own.
    prepare : sequence of str, optional
        Row steps, where rows are read.
    random_state : int
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
    bound at least that of the uncentred spectrum. With weights the same holds for the rows about the weighted
    mean, times the roots of their weights, with the vector of these roots in place of the ones.
    Cost: the spectrum of the sketch; for "blocks", which the default solves too where they promise more, one to three
    seconds of one core for 400 rows: minutes for 100,000 rows. ``method="spectral"`` solves none, ``confidence=0.99`` a
    quarter of them, ``fraction`` with it fewer; ``progress=True`` shows the time that the blocks will take.
    Source: Drineas et al. 2004, section 2; Ky Fan's inequality; Liberty 2013 for Delta; Peng and Wei 2007; Piccialli,
    Sudoso and Wiegele 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect import Moments
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> c = certify(Moments().from_block(X), 1.0, 2)
    >>> round(c.factor, 9), round(c.lower_bound, 9)
    (1.0, 1.0)
    >>> round(certify(X, 1.0, 2, method="blocks").factor, 6)
    1.0
    """
    n_clusters = require_positive("n_clusters", n_clusters)
    value = require_number("an objective", objective, least=0)
    if method is not None:
        require_method(method)
    blocks = BlockOptions(block_rows, confidence, fraction, random_state)
    if isinstance(source, (Summary, Mapping)):
        # A summary is not read, so options of reading would be ignored.
        reading = {"sample_weight": sample_weight, "prepare": prepare, "client": client, "checkpoint": checkpoint}
        given = blocks.chosen() | {name: value for name, value in reading.items() if value is not None}
        takes = ["confidence"] if method == "blocks" or BlockBound.kind in _kinds(source) else []
        require_unused(given, "for rows, and a summary was given", *takes)
        return _from_summary(source, value, n_clusters, method, confidence)
    with opened_rows(source, None, sample_weight, prepare, client, checkpoint, progress) as (rows, options):
        return bound_from_rows(rows, value, n_clusters, method, blocks, options)


def certify_labels(
    X: Any,
    labels: Any,
    n_clusters: int,
    method: str | None = None,
    *,
    block_rows: int = BlockOptions.block_rows,
    confidence: float | None = None,
    fraction: float | None = None,
    sample_weight: Any = None,
    prepare: Any = None,
    random_state: int = 0,
    client: Any = None,
    checkpoint: Any = None,
    progress: Any = False,
) -> Certificate:
    """Return how far a clustering, whoever made it, can be from the best one: one pass over the rows, or two.

    The objective of the labels, exact in all columns, over a lower bound of the best possible one; see `certify`.

    Parameters
    ----------
    X : path, URL, array or Matrix of shape (n_rows, n_features)
        Whatever `open_matrix` takes.
    labels : array, path or URL of shape (n_rows,)
        Whole numbers from 0 to `n_clusters` - 1, or from 1 to `n_clusters`, or text; also a ``.csv`` or ``.txt`` file.
    n_clusters : int
        Number of clusters of the clusterings compared with.
    method : {"spectral", "blocks"}, optional
        The bound; None takes the closer of both, as in `certify`.
    sample_weight : array, path or URL of shape (n_rows,), optional
        Row weights, not negative: objective and bound are those of weighted k-means, and rows of weight 0 do not count.
    block_rows, confidence, fraction, prepare, random_state, client, checkpoint, progress : optional
        As in `certify`.

    Returns
    -------
    Certificate

    Raises
    ------
    BadParameter
        If a row that was read has a negative label, or none: only a clustering of all rows can be certified.
    SourceError, BadBlock
        As `kmeans_objective`.

    Notes
    -----
    Cost: that of `kmeans_objective` and of the bound, with one reading or two. By default that is one to three seconds
    of one core for 400 rows, minutes for 100,000, most where the clusters are not those of the rows; `certify` says
    what makes it cheaper. Where the objective comes out as 0 the rows of each cluster are compared, in a further
    reading, since squares of differences below 1e-162 vanish.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> round(certify_labels(X, [0, 0, 1, 1], 2).factor, 6)
    1.0
    """
    n_clusters = require_positive("n_clusters", n_clusters)
    blocks = BlockOptions(block_rows, confidence, fraction, random_state)
    with opened_rows(X, labels, sample_weight, prepare, client, checkpoint, progress) as (rows, options):
        assert rows.target is not None
        rows = replace(rows, target=as_cluster_numbers(rows.target, n_clusters))
        return bound_from_rows(rows, None, n_clusters, method, blocks, options)


def bound_from_rows(
    rows: Source,
    objective: float | None,
    n_clusters: int,
    method: str | None,
    blocks: BlockOptions,
    options: PassOptions,
    *,
    spectrum: Any = None,
) -> Certificate:
    """Return the certificate of an objective, or of the labels that are the target of the rows; see `certify`.

    `spectrum`: Has the spectrum of the rows, so that no sketch is made.
    """
    began = time.perf_counter()
    if method is not None:
        require_method(method)
    if method == "spectral":
        blocks.require_unused('for method="blocks"')
    elif method is None and not blocks.dealing_only():
        method = "blocks"
    if method is None:
        return closest_certificate(rows, objective, n_clusters, blocks, options, spectrum=spectrum)
    members: dict[str, Summary[Any]] = {}
    if method == "blocks":
        members["blocks"] = blocks.description(n_clusters)
    if (method == "spectral" and spectrum is None) or (method == "blocks" and objective is not None):
        # A sketch of any size has the exact objective of one cluster, which blocks lack.
        members["sketch"] = FrequentDirections(size=sketch_rows(n_clusters) if method == "spectral" else 2)
    measurement = measured_bounds(rows, objective, n_clusters, members, options)
    if method == "spectral":
        return measured_certificate(measurement, spectrum or measurement.bounds["sketch"], n_clusters, began)
    if "sketch" in members:
        sketch = cast(FrequentDirections, measurement.bounds["sketch"])
        measurement = replace(measurement, scatter=sketch.centered_squared_norm)
    return measured_certificate(measurement, measurement.bounds["blocks"], n_clusters, began, blocks.confidence)


@contextmanager
def opened_rows(
    source: Any, labels: Any, sample_weight: Any, prepare: Any, client: Any, checkpoint: Any, progress: Any
) -> Iterator[tuple[Source, PassOptions]]:
    """Open rows with their labels and weights for the passes of a certificate.

    `labels`, `sample_weight`: One per row.
    `prepare`, `client`, `checkpoint`, `progress`: As in `sketchselect.summarize`.

    Yields
    ------
    The rows, with fitted steps, and the options of passes over them.
    """
    rows = open_source(source, labels, sample_weight, steps.resolve(prepare), target_name="labels")
    folder, reporting = as_checkpoint(checkpoint), make_progress(progress)
    with open_engine(client, rows.matrix, rows.target, rows.weight) as engine:
        options = PassOptions(engine, checkpoint=folder, progress=reporting)
        yield fitted_source(rows, options), options


def affordable_certificate(
    source: Any, objective: float, n_clusters: int, *, random_state: int = 0, client: Any = None
) -> Certificate:
    """Return the closer of the spectral bound and the bound of as many blocks of rows as a job solves by default.

    One pass. `source`: The rows, in the columns of the k-means. Others as in `certify`.
    """
    began = time.perf_counter()
    with opened_rows(source, None, None, None, client, None, False) as (rows, options):
        starts = n_starts("auto", n_clusters, rows.n_columns)
        blocks = affordable_blocks(rows, rows.n_columns, n_clusters, starts, BlockOptions(random_state=random_state))
        members: dict[str, Summary[Any]] = {"sketch": FrequentDirections(size=sketch_rows(n_clusters))}
        if blocks.description is not None:
            members["blocks"] = blocks.description
        measurement = measured_bounds(rows, objective, n_clusters, members, options)
    proofs = [
        measured_certificate(measurement, bound, n_clusters, began, blocks.confidence)
        for bound in (measurement.bounds[name] for name in members)
    ]
    return replace(min(proofs, key=lambda proof: proof.factor), scatter=proofs[0].scatter)


def _from_summary(
    source: Any, objective: float, n_clusters: int, method: str | None, confidence: float | None
) -> Certificate:
    """Return the certificate that a summary gives: of one method, or the closest that it provides."""
    began = time.perf_counter()
    kinds = _kinds(source)
    has_spectrum = not kinds.isdisjoint(SPECTRAL_KINDS)
    certificates = []
    if method == "spectral" or (method is None and (has_spectrum or BlockBound.kind not in kinds)):
        certificates.append(spectral_certificate(source, objective, n_clusters, began))
    if method == "blocks" or (method is None and BlockBound.kind in kinds):
        bound = pick(source, BlockBound.kind)
        assert isinstance(bound, BlockBound)
        if bound.n_clusters == n_clusters:
            certificate = blocks_certificate(bound, objective, confidence, began)
            scatter = certificates[0].scatter if certificates else None
            certificates.append(replace(certificate, scatter=scatter))
        elif not certificates:
            raise Incompatible(f"the block bound is of {bound.n_clusters} clusters, the clustering has {n_clusters}")
    return min(certificates, key=lambda c: c.factor)


def require_method(method: str) -> None:
    """Raise `BadParameter` unless this is the name of a bound."""
    if method not in METHODS:
        raise BadParameter(f"certify method {method!r} is not available; available: {', '.join(map(repr, METHODS))}")


def _kinds(source: Summary[Any] | Mapping[str, Any]) -> set[str]:
    """Return the kinds of summaries in a source."""
    return {source.kind} if isinstance(source, Summary) else {getattr(member, "kind", "") for member in source.values()}
