"""The selection method of a job: its estimator, and what can be checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sketchselect.errors import BadParameter, ConfigError
from sketchselect.job.parameters import make_selector, method_parameters
from sketchselect.job.schema import JobConfig
from sketchselect.readers import Matrix, Vector
from sketchselect.selectors.registry import METHODS

if TYPE_CHECKING:
    from sketchselect.execution import Source
    from sketchselect.selectors import BaseSelector, Selection
    from sketchselect.summaries import Summary


def estimator(config: JobConfig, target: Vector | None = None) -> BaseSelector:
    """Return the unfitted selector that ``[select]`` describes; one that learns from a target has looked at it."""
    chosen = config.select
    try:
        selector = make_selector(chosen.method, chosen.n_features, with_clusters(config))
        if target is not None and selector.uses_target:
            selector.inspect_target(target)
    except (BadParameter, TypeError) as error:
        raise ConfigError(f"select: {_in_words_of_job(error)}") from None
    return selector


def with_clusters(config: JobConfig) -> dict[str, Any]:
    """Return the method's parameters; one that selects for so many clusters takes the number from ``[cluster]``."""
    parameters = dict(config.select.parameters)
    told = "n_clusters" in parameters or parameters.get("partition", "kmeans++") != "kmeans++"
    if config.cluster is not None and not told and "n_clusters" in method_parameters(config.select.method):
        parameters["n_clusters"] = config.cluster.n_clusters
    return parameters


def description(config: JobConfig, selector: BaseSelector, n_features: int) -> Summary[Any]:
    """Return the bundle of everything the job needs to know of the rows: one pass for all of it.

    Methods with passes of their own add nothing; jobs that learn from a target and cluster nothing need no sketch.
    """
    from sketchselect.cluster.certificates.closest import sketch_rows
    from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections

    members: dict[str, Summary[Any]] = {}
    if not selector.has_own_passes:
        own = selector.summary_description(n_features)
        members = dict(own.items()) if isinstance(own, Bundle) else {own.kind: own}
    kinds = {member.kind for member in members.values()}
    if ColumnStats.kind not in kinds:
        members[ColumnStats.kind] = ColumnStats()
    unsketched = selector.needs_target and config.cluster is None
    if FrequentDirections.kind not in kinds and not unsketched:
        n_clusters = config.cluster.n_clusters if config.cluster else 8
        size = max(2, min(sketch_rows(n_clusters), n_features))
        members[FrequentDirections.kind] = FrequentDirections(size=size)
    return Bundle(members)


def check_against_source(config: JobConfig, matrix: Matrix, n_columns: int | None = None) -> None:
    """Raise `ConfigError` with a line for everything in the job that this matrix makes impossible.

    `n_columns` is the number of columns after preparation, where it is another one.
    """
    n_rows = matrix.shape[0]
    n_columns = matrix.shape[1] if n_columns is None else n_columns
    address, select, problems = matrix.address, config.select, []
    if select.n_features is not None and select.n_features > (most := n_choices(select.parameters, n_columns)):
        what = "columns" if most == n_columns else "columns, squares and products"
        problems.append(f"select.n_features: {select.n_features} wanted, {address} has {most} {what}")
    rank = select.parameters.get("n_components")
    if METHODS[select.method].limits_components and isinstance(rank, int) and rank >= n_columns > 1:
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


def n_choices(parameters: Mapping[str, Any], n_columns: int) -> int:
    """Return how many features a method chooses from: the columns, or with ``degree = 2`` also their products."""
    return n_columns + n_columns * (n_columns + 1) // 2 if parameters.get("degree") == 2 else n_columns


def check_method(selector: BaseSelector, source: Source, partition_bytes: int | None) -> None:
    """Raise `ConfigError` where the method's parameters cannot work for this source."""
    matrix = source.matrix
    try:
        selector.check_parameters()
        selector.summary_description(source.n_columns)
    except BadParameter as error:
        where = f"{matrix.address} has {source.n_columns} columns"
        raise ConfigError(f"select: {_in_words_of_job(error)} ({where})") from None
    if selector.reads_columns:
        from sketchselect.readers import row_partitions
        from sketchselect.selectors.leverage.column_streams import column_source

        row_partitions(column_source(source, selector.method).matrix, column_partition_bytes(partition_bytes))


def column_partition_bytes(partition_bytes: int | None) -> int | None:
    """Return the size of a band of columns: a size that suits short rows would cut chunks of long columns too small."""
    from sketchselect.readers import DEFAULT_PARTITION_BYTES

    return None if partition_bytes is None else max(partition_bytes, DEFAULT_PARTITION_BYTES)


def _in_words_of_job(error: Exception) -> str:
    """Return what an estimator says of its parameters, with the name that a job file has for one of them."""
    return str(error).replace("n_features_to_select", "n_features")


def require_weights(config: JobConfig, selection: Selection | None = None) -> None:
    """Raise `ConfigError` where the job wants weighted columns and the method, or its selection, has no weights."""
    if config.cluster is None or config.cluster.weighted is False:
        return
    method = config.select.method if selection is None else selection.method
    if selection is None and METHODS[method].has_weights:
        return
    if selection is None or selection.weights is None:
        weighted = ", ".join(name for name, cls in METHODS.items() if cls.has_weights)
        raise ConfigError(
            f"cluster.weighted: a selection by {method} has no weights; leave the key out, or use one of {weighted}"
        )
