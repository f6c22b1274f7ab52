"""The selection method of a job: its estimator, and what can be checked before anything is read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sketchselect.config import JobConfig
from sketchselect.errors import BadParameter, ConfigError
from sketchselect.jobfile import selector_parameters
from sketchselect.readers import Matrix

if TYPE_CHECKING:
    from sketchselect.summaries import Summary

CERTIFICATE_ROWS_PER_CLUSTER = 8
"""Rows of the certificate's sketch per cluster: the spectral bound is then within a few percent of the exact one."""


def estimator(config: JobConfig) -> Any:
    """Return the unfitted selector that ``[select]`` describes."""
    from sketchselect import selectors

    try:
        return selectors.make(
            config.select.method,
            n_features_to_select=config.select.n_features,
            **selector_parameters(config.select.method, config.select.parameters),
        )
    except (BadParameter, TypeError) as error:
        raise ConfigError(f"select: {error}") from None


def description(config: JobConfig, n_features: int) -> Summary[Any]:
    """Return the bundle of everything the job needs to know of the rows: one pass for all of it."""
    from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections

    own = estimator(config).summary_description(n_features)
    members = dict(own.items()) if isinstance(own, Bundle) else {own.kind: own}
    kinds = {member.kind for member in members.values()}
    if ColumnStats.kind not in kinds:
        members[ColumnStats.kind] = ColumnStats()
    if FrequentDirections.kind not in kinds:
        n_clusters = config.cluster.n_clusters if config.cluster else 8
        size = max(2, min(CERTIFICATE_ROWS_PER_CLUSTER * n_clusters, n_features))
        members[FrequentDirections.kind] = FrequentDirections(size=size)
    return Bundle(members)


def check_against_source(config: JobConfig, matrix: Matrix) -> None:
    """Raise `ConfigError` with a line for everything in the job that this matrix makes impossible."""
    n_rows, n_columns = matrix.shape
    address, select, problems = matrix.address, config.select, []
    if select.n_features is not None and select.n_features > n_columns:
        problems.append(f"select.n_features: {select.n_features} wanted, {address} has {n_columns} columns")
    rank = select.parameters.get("n_components")
    if isinstance(rank, int) and rank >= n_columns > 1:
        problems.append(f"select.n_components: must be below the {n_columns} columns of {address}, got {rank}")
    if config.cluster is not None and config.cluster.n_clusters > n_rows:
        problems.append(f"cluster.n_clusters: {config.cluster.n_clusters} wanted, {address} has {n_rows} rows")
    shape = config.output.image_shape
    if shape is not None and math.prod(shape) != n_columns:
        problems.append(
            f"output.image_shape: {list(shape)} is {math.prod(shape)} pixels, {address} has {n_columns} columns"
        )
    if problems:
        raise ConfigError("\n".join(problems))
