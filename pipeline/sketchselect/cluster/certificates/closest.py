"""The closer of both bounds: the spectral one first, and blocks of rows where a few of them promise more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sketchselect.cluster.certificates.block import BlockOptions, block_pass, blocks_certificate
from sketchselect.cluster.certificates.certificate import Certificate, compared, made_certificate, with_account
from sketchselect.cluster.certificates.labelled_rows import Measured, measure
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.execution import Source
from sketchselect.execution.options import PassOptions
from sketchselect.summaries import BlockBound, Bundle, FrequentDirections, Moments, Summary, pick

TRIAL_BLOCKS = 6
"""Blocks solved in the first pass, from which it is estimated what all of them prove."""

SKETCH_ROWS = 8
"""Rows of the sketch per cluster: the spectral bound is then within a few percent of the exact one."""


def sketch_rows(n_clusters: int) -> int:
    """Return the rows of a sketch that gives a spectral bound."""
    return max(SKETCH_ROWS * n_clusters, 2)


def spectral_certificate(source: Any, objective: float, n_clusters: int, began: float) -> Certificate:
    """Return the certificate that a summary with a spectrum gives; `began` is when `time.perf_counter` was asked."""
    summary = pick(source, "frequent-directions", "moments")
    assert isinstance(summary, (FrequentDirections, Moments))
    lower, details = spectral_bound(summary, n_clusters)
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
    measured = measured_bounds(rows, objective, n_clusters, members, options)
    cheap = measured_certificate(measured, spectrum or measured.bounds["sketch"], n_clusters, began)
    trial = cast(BlockBound, measured.bounds["blocks"])
    if trial.record.n_solved == trial.record.n_blocks:
        return min(cheap, measured_certificate(measured, trial, n_clusters, began), key=lambda c: c.factor)
    options.progress.note(f"spectral bound: {cheap.sentence()}")
    if trial.record.n_solved and _estimate(trial) <= cheap.lower_bound:
        tried = f"{trial.record.n_solved} of {trial.record.n_blocks} blocks of rows promise no larger bound"
        return replace(cheap, note=f"{tried}, so the others were not solved.")
    every = block_pass(rows, blocks.description(n_clusters), options)
    closer = measured_certificate(replace(measured, bounds={}), every.value, n_clusters, began)
    read = (measured.stats.rows_read + every.stats.rows_read, measured.stats.bytes_read + every.stats.bytes_read)
    best = min(cheap, replace(closer, scatter=cheap.scatter), key=lambda c: c.factor)
    return replace(best, rows_read=read[0], bytes_read=read[1], cost=time.perf_counter() - began)


def measured_bounds(
    rows: Source,
    objective: float | None,
    n_clusters: int,
    members: Mapping[str, Summary[Any]],
    options: PassOptions,
) -> Measured:
    """Return summaries of rows, and the objective of their labels unless it is passed; one pass."""
    if objective is None:
        return measure(rows, n_clusters, members, options, stage="certificate")
    reduced = block_pass(rows, Bundle(dict(members)), options)
    return Measured(objective, cast(Bundle, reduced.value), None, reduced.stats)


def measured_certificate(
    measured: Measured, bound: Any, n_clusters: int, began: float, confidence: float | None = None
) -> Certificate:
    """Return the certificate of a measured objective.

    `measured`: The objective, and the pass that measured it.
    `bound`: Of the same rows.
    `n_clusters`, `confidence`: As in `certify`.
    `began`: When `time.perf_counter` was asked.
    """
    if isinstance(bound, BlockBound):
        certificate = blocks_certificate(bound, measured.objective, confidence, began)
    else:
        certificate = spectral_certificate(bound, measured.objective, n_clusters, began)
    if certificate.scatter is None:
        certificate = replace(certificate, scatter=measured.scatter)
    certificate = certificate if measured.same_rows is None else compared(certificate, measured.same_rows)
    return with_account(certificate, measured.stats, began)


def _estimate(trial: BlockBound) -> float:
    """Return what all blocks would prove if the others gained as much as the solved ones."""
    record = trial.record
    return record.spectral + record.gained * record.n_blocks / record.n_solved
