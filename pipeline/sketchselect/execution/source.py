"""Sources, described by addresses and ranges, and their blocks of rows; those of a cached source stay in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect import prepare
from sketchselect._progress import Laps
from sketchselect.errors import BadParameter, Incompatible, NotFinite
from sketchselect.linalg.csr import as_csr, densify, finite_rows, first_nonfinite_entry, take_columns
from sketchselect.linalg.validation import Array, Floats, as_weights, canonical, first_nonfinite, global_rows, is_csr
from sketchselect.prepare import Step
from sketchselect.prepare.steps import Replaced, stored, with_stored
from sketchselect.readers.base import Matrix, MatrixView, Vector, finish
from sketchselect.readers.stored import MatrixMetadata


@dataclass(frozen=True)
class Block:
    """Some rows of a source, read, screened and prepared; or as sent to a task, which reads the parts that are None."""

    values: Any  # The prepared rows (of the chosen columns); CSR only where what works on the block takes it
    # target, weight: The targets and weights of the same rows
    target: Any
    weight: Any
    # start, stop: The partition's range of global row indices, dropped rows included
    start: int
    stop: int
    # Global index of each row of `values` where rows were dropped; None where none was
    surviving: NDArray[np.int64] | None = None
    # What steps took for something else, by step and column, where the source counts it
    replaced: Mapping[tuple[int, int], Replaced] = field(default_factory=dict)
    filled: NDArray[np.int64] | None = None  # Values of every column that were missing, if known and not 0

    @property
    def position(self) -> int | Array:
        """The `start` argument of `Summary.from_block`: the first row's global index, or every row's."""
        return self.start if self.surviving is None else self.surviving

    @property
    def row_indices(self) -> NDArray[np.uint64]:
        """Global index of each row."""
        return global_rows(self.position, self.values.shape[0])

    @property
    def row_weights(self) -> Floats:
        """Weight of each row; ones where rows have no weights."""
        weights = as_weights(self.weight, self.values.shape[0], self.position)
        return np.ones(self.values.shape[0]) if weights is None else weights

    @property
    def n_dropped(self) -> int:
        """Rows of the partition left out by the policy for non-finite values."""
        return self.stop - self.start - int(self.values.shape[0])


@dataclass(frozen=True)
class Source:
    """Everything a task needs to make blocks: a matrix, and the targets and weights of its rows."""

    matrix: Matrix  # Where the rows come from
    # target, weight: One entry per row of the matrix
    target: Vector | None = None
    weight: Vector | None = None
    # Steps applied to every block, before columns are chosen; entries as `prepare.resolve` takes them become steps
    prepare: tuple[Step, ...] = ()
    columns: tuple[int, ...] | None = None  # Columns kept after preparation, ascending; None keeps all
    # Whether what works on the blocks takes NaN as missing values; they get it only under the policy "missing"
    takes_missing: bool = False
    # Whether what works on the blocks takes CSR; otherwise a sparse matrix's blocks are made dense, and cut as such
    takes_sparse: bool = False
    # Whether prepared rows of float32 become float64, for what is more sensitive to rounding than they are
    in_double: bool = False
    first_row: int = 0  # Rows before are not read
    # Whether blocks say what their steps took for something else: missing values that they filled, or also levels
    counts: Literal["filled", "replaced"] | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(step, Step) for step in self.prepare):
            object.__setattr__(self, "prepare", prepare.resolve(self.prepare))
        if not isinstance(self.matrix, MatrixMetadata):
            steps = tuple(step if step.values is not None else step.seen(self.matrix) for step in self.prepare)
            object.__setattr__(self, "prepare", steps)
            self._require_encoded()

    def _require_encoded(self) -> None:
        """Raise an error unless text columns of the matrix, which are codes, are those that a step makes columns of."""
        matrix = self.matrix
        has_text_step = any(step.encodes == "text" for step in self.prepare)
        if matrix.text_columns and not has_text_step and self.columns != matrix.text_columns:
            name = _title(matrix, matrix.text_columns[0])
            raise BadParameter(f'{matrix.address}: {name} is text; add "{prepare.TEXT_STEP}" to the prepare steps')
        for step in self.prepare:
            if step.encodes is None or step.values is None:
                continue
            columns = matrix.text_columns if step.encodes == "text" else matrix.date_columns
            if other := set(step.value("places").tolist()) ^ set(columns):
                place = min(other)
                fitted = (s for s in self.prepare if s.encodes and s.values and place in s.value("places"))
                was = next((s.encodes for s in fitted), "numbers")
                now = "text" if place in matrix.text_columns else "dates" if place in matrix.date_columns else "numbers"
                raise Incompatible(
                    f"{matrix.address}: {_title(matrix, place)} was {was} when the prepare step {step.name!r} was "
                    f"fitted, and is {now} now; give it as {was} again"
                )

    @property
    def prepare_labels(self) -> tuple[str, ...]:
        """Labels of the steps: what a summary of the blocks is labelled with."""
        return prepare.labels(self.prepare)

    @property
    def n_rows(self) -> int:
        """Rows of the matrix."""
        return self.matrix.shape[0]

    @property
    def n_columns(self) -> int:
        """Columns of a block."""
        if self.columns is not None:
            return len(self.columns)
        return prepare.columns_after(self.prepare, self.matrix.shape[1])

    @property
    def n_targets(self) -> int:
        """Columns of the target; 0 without one."""
        if self.target is None:
            return 0
        return 1 if len(self.target.shape) == 1 else int(self.target.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether blocks are CSR all the way: read, prepared and handed on."""
        return self.matrix.is_sparse and self.takes_sparse and all(step.keeps_sparsity for step in self.prepare)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a block."""
        names = prepare.names_after(self.prepare, self.matrix.feature_names, self.matrix.shape[1])
        if names is None or self.columns is None:
            return names
        return tuple(names[j] for j in self.columns)

    def block(self, start: int, stop: int, sent: Block | None = None, laps: Laps | None = None) -> Block:
        """Return one block: read (unless it was `sent`), screened for non-finite values, and prepared.

        Raises `NotFinite` under the policy "error", naming the first bad row (global index) and column, and the counts;
        under "missing" for infinity, and for NaN where they are not taken as missing values.
        """
        sent, laps = sent or Block(None, None, None, start, stop), Laps() if laps is None else laps
        with laps.step("read"):
            matrix = self.matrix
            values = matrix.read_rows(start, stop) if sent.values is None else _received(matrix, sent)
            target = _entries(self.target, sent.target, start, stop)
            weight = _entries(self.weight, sent.weight, start, stop)
        with laps.step("prepare"):
            return self._screened(Block(values, target, weight, start, stop))

    def _screened(self, block: Block) -> Block:
        """Return a block that was read by the policy for non-finite values, and prepared."""
        values, target, weight, surviving = block.values, block.target, block.weight, None
        nonfinite = first_nonfinite_entry(values) if is_csr(values) else first_nonfinite(values)
        if nonfinite is not None and self.matrix.nonfinite == "drop_rows":
            finite = finite_rows(values) if is_csr(values) else np.isfinite(values).all(axis=1)
            values, surviving = values[finite], block.start + np.flatnonzero(finite)
            target, weight = (None if part is None else part[finite] for part in (target, weight))
        elif nonfinite is not None:
            self._refuse(nonfinite, block.start, block.stop)
        return self._prepared(Block(values, target, weight, block.start, block.stop, surviving))

    def _prepared(self, block: Block) -> Block:
        """Return the block prepared, with the chosen columns."""
        replaced: dict[tuple[int, int], Replaced] = {}
        filled: dict[int, Array] = {}
        values = prepare.apply_steps(
            self.prepare,
            block.values,
            position=block.position,
            address=self.matrix.address,
            names=self.matrix.feature_names,
            replaced=replaced if self.counts == "replaced" else None,
            filled=filled if self.counts == "filled" else None,
        )
        sparse = is_csr(values)
        if self.columns is not None:
            if sparse:
                values = take_columns(values, self.columns)
            else:
                values = np.ascontiguousarray(values[:, list(self.columns)])
        if sparse and not self.takes_sparse:
            values = densify(values)
        if self.in_double and values.dtype == np.float32:
            values = with_stored(values, stored(values).astype(np.float64))
        return replace(block, values=values, replaced=replaced, filled=self._filled(filled))

    def _filled(self, by_step: Mapping[int, Array]) -> NDArray[np.int64] | None:
        """Return how many values of every column of a block were missing; None without any, or of mixed columns."""
        if not any(counts.any() for counts in by_step.values()):
            return None
        filled = np.zeros(self.matrix.shape[1], dtype=np.int64)
        for i, step in enumerate(self.prepare):
            if i in by_step:
                filled += by_step[i]
            if step.encodes == "text":
                widths = np.ones(filled.size, dtype=np.int64)
                widths[step.value("places")] = step.value("n_outputs")
                filled = np.repeat(filled, widths)
            elif step.acts_on == "columns" and not step.is_by_column:
                return None
        return filled if self.columns is None else filled[list(self.columns)]

    def _refuse(self, nonfinite: tuple[int, int, int, int], start: int, stop: int) -> None:
        """Raise `NotFinite`, unless all of them are NaN and count as missing values."""
        row, column, n_nan, n_inf = nonfinite
        filled = next((i for i, step in enumerate(self.prepare) if step.fills_missing), None)
        allowed = self.matrix.nonfinite == "missing" or filled is not None
        undefined = next((step for step in self.prepare[:filled] if not step.takes_missing), None)
        if allowed and (self.takes_missing or filled is not None) and not n_inf and undefined is None:
            return
        cure = 'clean the data, or set nonfinite = "drop_rows" to leave such rows out'
        if not n_inf and filled is None:
            cure = f"clean the data, fill missing values with {prepare.FILLING_STEP}, or set nonfinite = "
            cure += '"drop_rows" to leave such rows out'
        if self.takes_missing and not allowed:
            cure = f"fill missing values with {prepare.FILLING_STEP}, or set nonfinite = "
            cure += '"missing" to count them as missing, or "drop_rows" to leave such rows out'
        elif allowed and not n_inf:
            why = "what is computed here is"
            if undefined is not None:
                why = f"the step {undefined.name!r} is"
            cure = (
                f"{why} not defined for rows with missing values; fill them by {prepare.FILLING_STEP} before it, or "
                'set nonfinite = "drop_rows" to leave them out'
            )
        axis, other = self.matrix.axes
        place = f"{other} {column}"
        if axis == "column":
            cure = "clean the data"
        elif self.matrix.feature_names is not None:
            place = _title(self.matrix, column)
        raise NotFinite(
            f"{self.matrix.address}: {n_nan} NaN and {n_inf} infinite values in {axis}s {start} to {stop - 1}, "
            f"the first at {axis} {start + row}, {place}; {cure}"
        )


def _title(matrix: Matrix, column: int) -> str:
    names = matrix.feature_names
    return f"column {column if names is None or column >= len(names) else repr(names[column])}"


def aligned(values: Any) -> Any:
    """Return a block with canonical arrays: arrays received in a message are not always aligned."""
    if not is_csr(values):
        return canonical(values)
    parts = (values.data, values.indices, values.indptr)
    better = tuple(map(canonical, parts))
    if all(a is b for a, b in zip(better, parts, strict=True)):
        return values
    out = csr_array(better, shape=values.shape)
    out.has_canonical_format = True
    return out


def _received(matrix: Matrix, block: Block) -> Any:
    """Return rows that came with the task as the matrix itself would have read them."""
    values = block.values
    if matrix.is_sparse:
        values = as_csr(values, matrix.address, block.start)
    else:
        values = finish(values.toarray() if hasattr(values, "toarray") else values, matrix.address)
    return matrix.checked(values, block.start, block.stop)


def _entries(vector: Vector | None, entries: Any, start: int, stop: int) -> Any:
    if entries is not None:
        return canonical(np.asarray(entries))
    return None if vector is None else vector.read(start, stop)


@dataclass(frozen=True)
class CachedBlock(Block):
    """A block in memory, and what a computation remembers of its rows from one pass to the next.

    The memory is whatever a leaf puts there. It may be empty again in the next pass (it is never sent, nor written), so
    results must not depend on it; only one task at a time works on a block.
    """

    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, block: Block) -> CachedBlock:
        """Return the block with an empty memory."""
        return cls(**vars(block))

    def __sizeof__(self) -> int:
        # The size by which Dask decides where to run the tasks that need the block.
        values = self.values
        arrays = [values.data, values.indices, values.indptr] if is_csr(values) else [values]
        arrays += [self.target, self.weight, self.surviving]
        return object.__sizeof__(self) + sum(int(getattr(array, "nbytes", 0)) for array in arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": {}}

    def aligned(self) -> CachedBlock:
        """Return the block with aligned arrays; the memory stays."""
        values, weight = aligned(self.values), None if self.weight is None else canonical(self.weight)
        return self if values is self.values and weight is self.weight else replace(self, values=values, weight=weight)


class CachedMatrix(MatrixView):
    """The matrix of a cached source: planned by like the one inside, and never read again."""

    in_memory = True
    is_remote = False

    def read_rows(self, start: int, stop: int) -> Any:
        """Refuse: tasks are handed the blocks."""
        raise NotImplementedError("cached blocks are not read from their matrix")

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: what is cached is not saved."""
        return None

    def dask_rows(self) -> Any | None:
        """Return None: rows from a graph are cached too."""
        return None


@dataclass(frozen=True)
class CachedSource(Source):
    """A source whose blocks have been read, screened and prepared.

    They are in this process, or futures of blocks on the workers of a Dask cluster; by their partition, (start, stop).
    """

    blocks: Mapping[tuple[int, int], Any] = field(default_factory=dict)
    held_nbytes: int = 0  # Bytes of the blocks in each process that has some

    @classmethod
    def of(cls, source: Source, blocks: Mapping[tuple[int, int], Any], held_nbytes: int) -> Self:
        """Return the source with the blocks of its partitions."""
        cached = {**vars(source), "matrix": CachedMatrix(source.matrix), "target": None}
        return cls(**cached, blocks=blocks, held_nbytes=held_nbytes)

    def block(self, start: int, stop: int, sent: Block | None = None, laps: Laps | None = None) -> Block:
        """Return one block, which must be in this process."""
        block: CachedBlock = self.blocks[start, stop]
        return block.aligned()


def cache_block(block: Block) -> dict[tuple[int, int], CachedBlock]:
    """Leaf of the pass that reads what is cached in this process."""
    return {(block.start, block.stop): CachedBlock.of(block)}
