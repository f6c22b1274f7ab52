"""Lloyd's k-means over any engine, and the nearest centre of every row.

Every iteration is one reduction to `CentroidSums`, which a checkpoint may keep. Labels are in memory, a Dask array, or
a Zarr array that the tasks write.
"""

from __future__ import annotations

import contextlib
import operator
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from sketchselect._progress import Progress, give_detail, surrounding_tasks
from sketchselect._text import counted
from sketchselect.cluster.kmeans import seeding
from sketchselect.cluster.kmeans.passes import Passes, assign_block, open_passes
from sketchselect.cluster.kmeans.seeding import Seeding, checked_centers
from sketchselect.errors import BadParameter, SketchSelectError, warn
from sketchselect.execution.checkpoints import Checkpoint, entries_identity, list_nodes, read_node, write_node
from sketchselect.execution.engine import PassOptions, reduce_blocks, source_partitions
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import summary_reduction
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.csr import as_csr, densify, require_ordinary, row_pieces, take_rows
from sketchselect.linalg.hashing import derive_seed, fingerprint
from sketchselect.linalg.kmeans.assignment import distances_to
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import (
    MOST_TIMES,
    Floats,
    as_block,
    is_csr,
    require_finite,
    require_number,
    require_positive,
    require_seed,
    whole_in_words,
)
from sketchselect.location import Location, location_of
from sketchselect.readers.arrays import in_scipy
from sketchselect.readers.writing import create_array, put_in_place
from sketchselect.summaries import CentroidSums


@dataclass(frozen=True)
class RowLabels:
    """Labels of consecutive rows, and the sums that go with them."""

    sums: CentroidSums
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class LabelBlock:
    """Leaf of the labelling pass."""

    description: CentroidSums

    def __call__(self, block: Block) -> RowLabels:
        """Return the labels of one block's rows, -1 for those dropped, and their sums."""
        nearest, sums = assign_block(self.description, block)
        return RowLabels(sums, with_dropped_rows(nearest, block))


def with_dropped_rows(labels: NDArray[np.int32], block: Block) -> NDArray[np.int32]:
    """Return a copy of the labels of a block's rows, with -1 for each row that was dropped."""
    out = np.full(block.stop - block.start, -1, dtype=np.int32)
    out[slice(None) if block.surviving is None else block.surviving - block.start] = labels
    return out


def merge_labels(left: RowLabels, right: RowLabels) -> RowLabels:
    """Return the labels of both, one behind the other, and their sums."""
    return RowLabels(left.sums.merge(right.sums), np.concatenate([left.labels, right.labels]))


def label_rows(passes: Passes, centers: Floats) -> RowLabels:
    """Return every row's nearest centre and the sums of that assignment; one pass."""
    return passes.reduce(label_reduction(passes.source, CentroidSums(centers=centers)))


def label_reduction(source: Source, description: CentroidSums) -> Reduction[RowLabels]:
    """Return the reduction of a source to every row's nearest centre and the sums of that assignment."""
    return summary_reduction(source, description, "k-means: labels", LabelBlock(description), merge_labels)


@dataclass(frozen=True)
class WriteBlock:
    """Leaf that writes labels to a Zarr array whose chunks begin where partitions begin; no two tasks share one."""

    labels: LabelBlock
    location: Location

    def __call__(self, block: Block) -> int:
        """Write one block's labels and return how many. Writing again writes the same."""
        import zarr

        from sketchselect.readers.zarr.store import make_store

        labels = self.labels(block).labels
        array: Any = zarr.open_array(make_store(self.location, read_only=False), mode="r+")
        if labels.size:
            array[block.start : block.stop] = labels
        return int(labels.size)


def write_labels(source: Source, centers: Floats, out: Location, options: PassOptions) -> None:
    """Write every row's nearest centre (-1: dropped) as a Zarr array of int32.

    The array appears under its name only when it is whole; an older array is replaced only if we wrote it.
    """
    description = CentroidSums(centers=centers)
    partitions = source_partitions(source, options.partition_bytes)
    reduction: Reduction[Any] = label_reduction(source, description)
    height = partitions.edges[1]
    regular = all(edge % height == 0 for edge in partitions.edges[:-1])
    with put_in_place(out) as temporary:
        array = create_array(temporary, (source.n_rows,), (height,), np.int32)
        if regular:
            reduction = replace(reduction, leaf=WriteBlock(LabelBlock(description), temporary), merge=operator.add)
        result = reduce_blocks(source, reduction, options, partitions=partitions)
        if not regular:
            array[:] = result.value.labels


def dense_distances(rows: Any, centers: Floats) -> Floats:
    """Return the Euclidean distances of rows, dense or CSR, to every centre."""
    if not is_csr(rows):
        return np.sqrt(distances_to(rows, centers))
    pieces = [distances_to(densify(take_rows(rows, a, b)), centers) for a, b in row_pieces(rows)]
    return np.sqrt(np.concatenate(pieces)) if pieces else np.empty((0, centers.shape[0]))


@dataclass(frozen=True)
class DistanceBlock:
    """Leaf of `transform`: distances to every centre."""

    centers: Floats

    def __call__(self, block: Block) -> Floats:
        """Return the distances of one block."""
        return dense_distances(block.values, self.centers)


def lazy_labels(X: Any, centers: Floats) -> Any:
    """Return the labels of a Dask array as one that is computed when it is asked for, block by block."""
    rows = X.rechunk({1: -1})
    return rows.map_blocks(_label_piece, centers, dtype=np.int32, drop_axis=1, meta=np.empty(0, np.int32))


def lazy_distances(X: Any, centers: Floats) -> Any:
    """Return the distances of the rows of a Dask array to every centre, computed when they are asked for."""
    rows = X.rechunk({1: -1})
    widths = (rows.chunks[0], (centers.shape[0],))
    return rows.map_blocks(_distance_piece, centers, dtype=np.float64, chunks=widths, meta=np.empty((0, 0)))


def _label_piece(rows: Any, centers: Floats) -> NDArray[np.int32]:
    return CentroidSums(centers=centers).label_block(_as_rows(rows))[0]


def _distance_piece(rows: Any, centers: Floats) -> Floats:
    block = _as_rows(rows)
    (require_ordinary if is_csr(block) else require_finite)(block)
    return dense_distances(block, centers)


def _as_rows(chunk: Any) -> Any:
    """Return a chunk of a Dask array, of any kind that `fit` takes, as a dense or CSR block."""
    rows = in_scipy(chunk, "Dask array") if hasattr(chunk, "to_scipy_sparse") else chunk
    return as_csr(rows) if issparse(rows) else as_block(rows)


LAST_SAVED = 100_000  # No later iteration is saved: for each that may be, a file of its name is looked for
KEEP_SECONDS = 1.0  # Least time between two saved iterations: faster ones are not worth a file each


class Iterations:
    """The checkpoint files of one start: the latest sums, from which the next centres follow to the bit.

    `checkpoint`: Where they are; None saves nothing.
    `source`: Whose rows are clustered; without an identity of its content nothing is saved.
    `settings`: All that decides the bits besides the source: parameters, seed, partitions, build.
    `progress`: Where faults are reported.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, source: Source, settings: tuple[Any, ...], progress: Progress
    ) -> None:
        self._progress = progress
        self._directory: str | None = None
        self._saved: str | None = None
        self._last = time.monotonic()
        if checkpoint is None:
            return
        rows = source.matrix.identity(0, source.n_rows)
        if rows is None or (source.weight is not None and source.weight.identity() is None):
            progress.note(f"{source.matrix.address}: iterations are not saved, its content has no identity")
            return
        self._directory = os.fspath(checkpoint.directory)
        weights = entries_identity(source.weight, [(0, source.n_rows)])
        view = (source.prepare_labels, source.columns, source.matrix.nonfinite, source.matrix.shape[1])
        self._key = fingerprint("k-means iterations", rows, weights, view, settings)

    def _name(self, iteration: int) -> str:
        return fingerprint(self._key, iteration)

    def resume(self, most: int, n_features: int) -> tuple[int, CentroidSums] | None:
        """Return the latest saved iteration, at most `most`, and its sums; None if nothing is saved.

        Iteration 0 are the first centres: sums of no rows.
        """
        if self._directory is None:
            return None
        try:
            listing = list_nodes(self._directory)
        except (OSError, ImportError, ValueError) as error:
            self._progress.note(
                f"{self._directory}: checkpoints cannot be read ({type(error).__name__}); starting from the beginning"
            )
            return None
        for iteration in range(min(most, LAST_SAVED) if listing else -1, -1, -1):
            path = listing.get(self._name(iteration))
            if path is None:
                continue
            try:
                sums = read_node(path)
            except (OSError, SketchSelectError) as error:
                self._progress.note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
                continue
            if isinstance(sums, CentroidSums) and sums.n_features == n_features and sums.centers is not None:
                self._saved = path
                return iteration, sums
        return None

    def keep(self, iteration: int, sums: CentroidSums) -> None:
        """Write the state after an iteration, if enough time has passed since the last, and remove the last one."""
        if self._directory is None or iteration > LAST_SAVED or time.monotonic() - self._last < KEEP_SECONDS:
            return
        name = self._name(iteration)
        trouble = write_node(sums, self._directory, name)
        self._last = time.monotonic()
        if trouble is not None:
            self._progress.note(trouble)
            self._directory = None
            return
        before, self._saved = self._saved, list_nodes(f"{self._directory}/{name[:2]}").get(name)
        if before is not None and before != self._saved:
            with contextlib.suppress(OSError):
                location_of(before).remove()


# Movement of all centres, relative to the spread of the rows, that rounding of equal sums can make.
SUM_ROUNDING = 1e-12

# Movement of one centre, relative to its norm, that rounding to float64 can make.
CENTER_ROUNDING = 4 * float(np.finfo(np.float64).eps)

MOST_REPAIRS = 10  # How often clusters left empty at the very end are reseeded


class FewerClusters(UserWarning):
    """There are fewer distinct rows than clusters asked for, so there are fewer clusters.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = sks.KMeans(3, random_state=0).fit(np.repeat([[0.0, 1.0], [5.0, 2.0]], 10, axis=0))
    >>> caught[0].category.__name__, len(model.cluster_centers_)
    ('FewerClusters', 2)
    """


@dataclass(frozen=True)
class KMeansParameters:
    """Parameters of `fit_kmeans`.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    init : {"k-means||", "k-means++", "random"}, function or array of shape (n_clusters, n_features)
        Where to start.
    n_init : int or "auto"
        Starts compared on a coreset, of which the best is run on all rows; given centres are one start. "auto": 10, and
        fewer of wide rows or many clusters; see `KMeans`.
    max_iter : int
        Most iterations.
    tol : float
        Stop when the squared movement of all centres together is at most `tol` times the mean variance of the columns
        (as in scikit-learn), or no label changes any more.
    random_state : int
        Seed.
    proposal : array of shape (n_clusters, n_features), optional
        Centres that compete with the starts that are drawn; not for a given `init`.
    """

    n_clusters: int = 8
    init: str | Seeding | ArrayLike = "k-means||"
    n_init: int | str = "auto"
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 0
    proposal: ArrayLike | None = None

    def checked(self, n_features: int) -> KMeansParameters:
        """Return the parameters, centres as float64, or raise `BadParameter`."""
        require_positive("n_clusters", self.n_clusters)
        if isinstance(self.n_init, str):
            if self.n_init != "auto":
                raise BadParameter(f'n_init must be "auto" or {whole_in_words(1, MOST_TIMES)}, got {self.n_init!r}')
        else:
            require_positive("n_init", self.n_init, most=MOST_TIMES)
        require_positive("max_iter", self.max_iter)
        tol, seed = require_number("tol", self.tol, least=0), require_seed(self.random_state, "random_state")
        init = self.init
        if isinstance(init, str):
            if init not in seeding.METHODS:
                raise BadParameter(
                    f"init must be one of {', '.join(seeding.METHODS)}, a function or an array of centres, got {init!r}"
                )
        elif not callable(init):
            init = checked_centers(init, self.n_clusters, n_features)
        proposal = None if self.proposal is None else checked_centers(self.proposal, self.n_clusters, n_features)
        return replace(self, init=init, tol=tol, random_state=seed, proposal=proposal)


@dataclass(frozen=True)
class KMeansResult:
    """A clustering.

    Parameters
    ----------
    labels : int32 array of shape (n_rows,)
        Cluster of each row of the source; -1 where the row was dropped. The nearest of `centers`.
    centers : array of shape (n_clusters, n_features)
        float64; every one has rows.
    inertia : float
        Weighted sum of squared distances of the rows to their centre: of exactly these labels and centres.
    n_iter : int
        Lloyd iterations of the winning start.
    cluster_weights : array of shape (n_clusters,)
        Total weight of each cluster.
    converged : bool
        Whether the iteration stopped before `max_iter`.
    """

    labels: NDArray[np.int32]
    centers: Floats
    inertia: float
    n_iter: int
    cluster_weights: Floats
    converged: bool

    @property
    def n_clusters(self) -> int:
        """Number of clusters found."""
        return int(self.centers.shape[0])


def fit_kmeans(
    source: Source,
    parameters: KMeansParameters | Mapping[str, Any],
    options: PassOptions,
    on_iteration: Callable[[Floats], bool] | None = None,
) -> KMeansResult:
    """Cluster the (prepared, chosen) rows of a source; the same bits on every engine.

    Parameters
    ----------
    source : Source
        Rows, and weights if it has any.
    parameters : KMeansParameters or mapping
        See there.
    options : PassOptions
        Small data are cached and clustered in this process even where a cluster is given. A checkpoint keeps the sums
        of each iteration (where a second or more has passed since the last ones), and parts of passes that are worth
        saving; a run that was killed resumes from there.
    on_iteration : function, optional
        Called with the centres after each iteration; says whether to stop there.

    Returns
    -------
    KMeansResult

    Raises
    ------
    BadParameter
        For parameters out of range, or fewer rows than clusters.

    Notes
    -----
    Cost: one pass to survey (none for given centres of rows without weights), six to seed by k-means|| (one by the
    others, for the coreset), one per iteration and one for the labels, unless they stayed the same. Centres go out with
    the tasks of a pass and sums come back, merged in a tree; no rows.
    Source: Lloyd 1982; Bahmani et al. 2012 (k-means||).
    """
    if isinstance(parameters, Mapping):
        parameters = KMeansParameters(**parameters)
    checked = parameters.checked(source.n_columns)
    progress = options.progress
    with open_passes(source, checked.n_clusters, options) as passes:
        seed = derive_seed(checked.random_state, "k-means", 0)
        init = checked.init
        assert isinstance(init, (str, np.ndarray)) or callable(init)
        is_array, folder = isinstance(init, np.ndarray), options.checkpoint
        starts = 1 if is_array else seeding.n_starts(checked.n_init, checked.n_clusters, source.n_columns)
        if callable(init) and folder is not None:
            progress.note("k-means: iterations are not saved, because a function as init has no identity")
            folder = None
        proposal = checked.proposal
        assert proposal is None or isinstance(proposal, np.ndarray)
        settings: tuple[Any, ...] = (
            checked.n_clusters,
            init,
            starts,
            seed,
            passes.options.partition_bytes,
            passes.options.engine.build(),
        )
        if proposal is not None:
            settings = (*settings, proposal)
        iterations = Iterations(folder, source, settings, progress)
        state = iterations.resume(checked.max_iter, source.n_columns)
        if state is not None and state[0]:
            progress.note(f"k-means: resuming after iteration {state[0]} from a checkpoint")
        if isinstance(init, np.ndarray) and source.weight is None:
            # The first iteration has the numbers of a survey, to the bit the same when repeated.
            is_resumed = state is not None and state[0] > 0
            stage = "k-means: survey" if is_resumed else "k-means: iteration 1"
            first = passes.iterate(CentroidSums(centers=init), stage)
            seeding.require_rows(passes, first.n_rows, checked.n_clusters)
            variance = _scatter(first) / first.n_rows
            if state is None or not is_resumed:
                state = 1, first
                iterations.keep(*state)
        else:
            survey = seeding.survey(passes, init, checked.n_clusters, seed, starts)
            variance = survey.sums.objective / survey.sums.n_rows
            if state is None:
                centers = seeding.initial_centers(passes, init, checked.n_clusters, seed, survey, starts, proposal)
                state = 0, CentroidSums(centers=centers).empty(source.n_columns)
                iterations.keep(*state)
        # When labels do not change any more, the means move by rounding alone; a row that changes moves them by more.
        with one_blas_thread():
            norm = float(np.linalg.norm(np.asarray(state[1].centers)))
        rounding = SUM_ROUNDING**2 * variance + (CENTER_ROUNDING * norm) ** 2
        tolerance = checked.tol * variance / source.n_columns
        result = _run(passes, state, checked.max_iter, tolerance, rounding, iterations, on_iteration)
    if result.n_clusters < checked.n_clusters:
        warn(
            f"{source.matrix.address}: there are fewer distinct rows than n_clusters={checked.n_clusters}, so only "
            f"{result.n_clusters} cluster{'s were' if result.n_clusters > 1 else ' was'} made",
            FewerClusters,
        )
    at_most = result.n_iter >= checked.max_iter
    how = "converged" if result.converged else "stopped at max_iter" if at_most else "stopped by a callback"
    cluster_count, iteration_count = counted(result.n_clusters, "cluster"), counted(result.n_iter, "iteration")
    give_detail(progress, f"k-means: {cluster_count}, {iteration_count}, {how}")
    return result


def _run(
    passes: Passes,
    state: tuple[int, CentroidSums],
    max_iter: int,
    tolerance: float,
    rounding: float,
    iterations: Iterations,
    on_iteration: Callable[[Floats], bool] | None,
) -> KMeansResult:
    """Iterate from the state after some iteration until centres move no more than the tolerance (squared, in all).

    A movement of at most `rounding` is none.
    """
    n_iter, sums = state
    centers, converged = _after(sums, tolerance, rounding)
    tasks, is_stopped = surrounding_tasks() or Progress(), False
    tasks.start("k-means: iterations", 0, max_iter)
    try:
        while n_iter < max_iter and not converged and not is_stopped:
            n_iter += 1
            sums = passes.iterate(CentroidSums(centers=centers), f"k-means: iteration {n_iter}")
            iterations.keep(n_iter, sums)
            centers, converged = _after(sums, tolerance, rounding)
            is_stopped = on_iteration is not None and on_iteration(centers)
    finally:
        tasks.finish("k-means: iterations")
    final = label_rows(passes, centers)
    for repair in range(MOST_REPAIRS):
        empty = final.sums.cluster_weights == 0
        if not empty.any():
            break
        if final.sums.farthest_points.shape[0] and repair < MOST_REPAIRS - 1:
            centers = np.where(empty[:, None], _reseeded(final.sums, centers), centers)
        else:
            # All rows coincide with a centre; empty ones are dropped.
            centers = centers[~empty]
        final = label_rows(passes, centers)
    last = final.sums
    return KMeansResult(final.labels, centers, last.inertia(), n_iter, last.cluster_weights, converged)


def _after(sums: CentroidSums, tolerance: float, rounding: float) -> tuple[Floats, bool]:
    """Return the centres that follow from an iteration's sums, and whether they moved no more than the tolerance.

    If the movement is rounding, the old centres are returned: labels and sums of all rows are known for these.
    """
    assert sums.centers is not None
    if not sums.n_rows:
        return sums.centers, False
    new_centers = _reseeded(sums, sums.centers)
    movement = float(((new_centers - sums.centers) ** 2).sum())
    return sums.centers if movement <= rounding else new_centers, movement <= max(tolerance, rounding)


def _scatter(sums: CentroidSums) -> float:
    """Return the sum of squared distances of all rows to their mean, from the clusters."""
    weights, means, correction = sums.cluster_weights, sums.cluster_means, sums.record.correction
    heaviest = weights.argmax()
    steps = (means - means[heaviest]) + (correction - correction[heaviest])
    return sums.objective + float(weights @ np.square(steps - weights @ steps / weights.sum()).sum(axis=1))


def _reseeded(sums: CentroidSums, centers: Floats) -> Floats:
    """Return the means; empty clusters get the farthest rows, and stay where they are when there are none."""
    empty = np.flatnonzero(sums.cluster_weights == 0)
    new_centers = np.where(sums.cluster_weights[:, None] > 0, sums.cluster_means, centers)
    if empty.size:
        far = seeding.distinct(sums.farthest_points)[: empty.size]
        new_centers[empty[: far.shape[0]]] = far
    return new_centers
