"""Directions of a sketch in panels of columns, and columns chosen from them, without the sketch in one place.

With R the rows of the sketch and R_j those of panel j, the Gram matrix ``R R' = sum_j R_j R_j'`` gives the singular
values and a small matrix T with ``T R`` the right singular vectors. Every column of these is computed in its panel, and
so is what depends on one column alone. To choose columns one by one, each panel names its best ones, a few numbers are
compared, and all panels learn of the column chosen. Sums over panels are in their order, so results do not depend on
where panels are; from the selection on the whole sketch they differ by the rounding of the Gram matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import ClusterLost
from sketchselect.linalg.pivoting import CLOSE, EXHAUSTED, REFRESH, TIE, Indices, Mask
from sketchselect.linalg.sparse_shrink import SketchPanel
from sketchselect.linalg.spectrum import About, Directions, gram_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats

BAND = 4096
"""Columns of a panel whose singular vectors are computed at a time."""

ROWS_NBYTES = 64 << 20
"""Bytes of rows that are put together from all panels at a time."""

_EPS = float(np.finfo(np.float64).eps)

Step = Callable[..., tuple[Any, Any]]
"""``(panel, state, *each, *shared) -> (state, answer)``: pure; the first state is None."""

Each = Sequence[tuple[Any, ...]] | None
"""Further arguments of every panel."""


class Panels(ABC):
    """The panels of a sketch, wherever they are."""

    def __init__(self, edges: Sequence[int]) -> None:
        self.edges = tuple(edges)  # First column of every panel, and the number of columns

    def map(
        self, function: Callable[..., Any], *shared: Any, each: Each = None, only: Sequence[int] | None = None
    ) -> list[Any]:
        """Return ``function(panel, *each[j], *shared)`` of all panels j, in order, or of `only` some."""
        return self._map(function, range(len(self.edges) - 1) if only is None else only, each, shared)

    def run(self) -> PanelRun:
        """Return a run of steps over the panels, none of which has a state yet."""
        return PanelRun(self)

    @abstractmethod
    def drained(self) -> Iterator[SketchPanel]:
        """Yield the panels in order; they may be let go of."""

    @abstractmethod
    def _map(self, function: Callable[..., Any], places: Sequence[int], each: Each, shared: Any) -> list[Any]:
        """Return the results of a function for some panels."""

    @abstractmethod
    def _step(self, function: Step, states: Any, each: Each, shared: Any) -> tuple[Any, list[Any]]:
        """Return the states after a step, in whatever form they are held, and the answers; the first state is None."""


class PanelRun:
    """One state for each panel, kept where the panel is and changed by steps."""

    def __init__(self, panels: Panels) -> None:
        self._panels = panels
        self._first: Any = None
        self._states: Any = None

    def step(self, function: Step, *shared: Any, each: Each = None, from_first: bool = False) -> list[Any]:
        """Return the answers of the panels, in order; `each` are further arguments of every panel.

        The step goes on from the states of the last one, or with `from_first` from those of the first one; then the
        steps between need not be remembered.
        """
        before = self._first if from_first else self._states
        self._states, answers = self._panels._step(function, before, each, shared)
        self._first = self._states if self._first is None else self._first
        return answers


class LocalPanels(Panels):
    """Panels in this process."""

    def __init__(self, panels: Sequence[SketchPanel], edges: Sequence[int]) -> None:
        super().__init__(edges)
        self._panels = list(panels)

    def drained(self) -> Iterator[SketchPanel]:
        """Yield the panels."""
        yield from self._panels

    def _map(self, function: Callable[..., Any], places: Sequence[int], each: Each, shared: Any) -> list[Any]:
        return map_panels(function, [self._panels[j] for j in places], own_arguments(each, places), shared)

    def _step(self, function: Step, states: Any, each: Each, shared: Any) -> tuple[list[Any], list[Any]]:
        return step_panels(function, self._panels, states, each, shared)


class StoredPanels(Panels):
    """Panels in a file; an engine loads them when they are needed, and `let_go` frees them again.

    `read` yields them from the file; `hold` gives them to the engine; `held` are those that the engine has already.
    """

    def __init__(
        self,
        edges: Sequence[int],
        read: Callable[[], Iterator[SketchPanel]],
        hold: Callable[[Iterator[SketchPanel], Sequence[int]], Panels],
        held: Panels | None = None,
    ) -> None:
        super().__init__(edges)
        self._read, self._hold, self._held = read, hold, held

    def let_go(self) -> None:
        """Free the memory that the panels take where the engine computes."""
        self._held = None

    def drained(self) -> Iterator[SketchPanel]:
        """Yield the panels from the file."""
        yield from self._read()

    @property
    def _here(self) -> Panels:
        if self._held is None:
            self._held = self._hold(self._read(), self.edges)
        return self._held

    def _map(self, function: Callable[..., Any], places: Sequence[int], each: Each, shared: Any) -> list[Any]:
        return self._here._map(function, places, each, shared)

    def _step(self, function: Step, states: Any, each: Each, shared: Any) -> tuple[Any, list[Any]]:
        return self._here._step(function, states, each, shared)


class PanelRows:
    """The matrix of the rows of a sketch in panels, `height` of them."""

    def __init__(self, panels: Panels, height: int) -> None:
        self.panels = panels
        self.shape = (height, panels.edges[-1])

    def __iter__(self) -> Iterator[Floats]:
        """Yield some rows at a time, whole: they come from all panels."""
        n_rows, n_columns = self.shape
        count = max(1, ROWS_NBYTES // (8 * n_columns))
        for a in range(0, n_rows, count):
            yield np.concatenate(self.panels.map(_some_rows, a, min(a + count, n_rows)), axis=1)


def _some_rows(panel: SketchPanel, first: int, last: int) -> Floats:
    return np.ascontiguousarray(panel.rows[:, first:last].T)


class NoPanels(Panels):
    """Panels that are gone: every use raises an error that says why."""

    def __init__(self, edges: Sequence[int], why: str) -> None:
        super().__init__(edges)
        self.why = why

    def drained(self) -> Iterator[SketchPanel]:
        """Raise `ClusterLost`."""
        raise ClusterLost(self.why)

    def _map(self, *asked: Any) -> list[Any]:
        raise ClusterLost(self.why)

    def _step(self, *asked: Any) -> tuple[Any, list[Any]]:
        raise ClusterLost(self.why)


def own_arguments(each: Each, places: Sequence[int]) -> Each:
    """Return the further arguments of some panels."""
    return None if each is None else [each[j] for j in places]


def map_panels(function: Callable[..., Any], panels: Sequence[SketchPanel], each: Each, shared: Any) -> list[Any]:
    """Return a function of some panels."""
    arguments = [()] * len(panels) if each is None else each
    with one_blas_thread():
        return [function(panel, *own, *shared) for panel, own in zip(panels, arguments, strict=True)]


def step_panels(
    function: Step, panels: Sequence[SketchPanel], states: Sequence[Any] | None, each: Each, shared: Any
) -> tuple[list[Any], list[Any]]:
    """Return the states and the answers of some panels after a step; before the first one there are no states."""
    arguments = [()] * len(panels) if each is None else each
    with_states = [(state, *own) for state, own in zip(states or [None] * len(panels), arguments, strict=True)]
    pairs = map_panels(function, panels, with_states, shared)
    return [state for state, _ in pairs], [answer for _, answer in pairs]


def sliced(edges: Sequence[int], *columns: NDArray[Any]) -> list[tuple[NDArray[Any], ...]]:
    """Return the parts of arrays of all columns (the last axis) that are of each panel."""
    return [tuple(values[..., a:b] for values in columns) for a, b in pairwise(edges)]


def _by_panel(edges: Sequence[int], columns: NDArray[np.integer]) -> list[tuple[Any]]:
    """Return some columns, ascending, by the panel that they are in, counted from its first one."""
    cuts = np.searchsorted(columns, edges)
    return [(columns[a:b] - first,) for (a, b), first in zip(pairwise(cuts), edges[:-1], strict=True)]


def _of_columns(panels: Panels, function: Callable[..., Floats], columns: NDArray[np.integer], *shared: Any) -> Floats:
    """Return the results of ``function(panel, columns, *shared)`` for some columns, ascending, at least one."""
    each = _by_panel(panels.edges, columns)
    only = [j for j, (own,) in enumerate(each) if own.size]
    return np.concatenate(panels.map(function, *shared, each=each, only=only))


def bands(n_columns: int) -> Iterator[slice]:
    """Yield the parts of a panel whose vectors are made at a time."""
    for a in range(0, n_columns, BAND):
        yield slice(a, min(a + BAND, n_columns))


@dataclass(frozen=True)
class View:
    """The rows of a sketch about the means, or about zero, where the mean is one more row.

    Columns that vary by rounding alone are zero about the means; about zero only columns of zeros are.
    """

    about: About
    weight: float

    def are_zero(self, panel: SketchPanel, part: slice | Indices) -> Mask:
        """Return which of some columns are zero."""
        mean, squares = panel.mean[part], panel.squares[part]
        rounding = 4.0 * _EPS * mean
        return (squares == 0) & (mean == 0) if self.about == "zero" else squares <= self.weight * rounding * rounding

    def columns(self, panel: SketchPanel, part: slice | Indices) -> Floats:
        """Return some columns of the sketch as rows."""
        rows = panel.rows[part]
        if self.about == "zero":
            rows = np.column_stack([rows, np.sqrt(self.weight) * panel.mean[part]])
        zero = self.are_zero(panel, part)
        return np.where(zero[:, None], 0.0, rows) if zero.any() else rows

    def times(self, panel: SketchPanel, vectors: Floats) -> Floats:
        """Return the products of all columns with some vectors, shape (n_columns, len(vectors))."""
        out: Floats = panel.rows @ vectors[:, : panel.rows.shape[1]].T
        if self.about == "zero":
            out += np.multiply.outer(np.sqrt(self.weight) * panel.mean, vectors[:, -1])
        out[self.are_zero(panel, slice(None))] = 0.0
        return out


def _gram(panel: SketchPanel, view: View, turn: Floats | None) -> Floats:
    total: Floats | None = None
    for part in bands(panel.mean.size):
        columns = view.columns(panel, part)
        columns = columns if turn is None else columns @ turn.T
        product = columns.T @ columns
        total = product if total is None else total + product
    assert total is not None  # a panel has columns
    return total


def _applied(
    panel: SketchPanel, *arguments: Any, n_columns: int, view: View, squares: Floats, turn: Floats, function: Any
) -> Floats:
    columns = arguments[:n_columns]
    parts = []
    for part in bands(panel.mean.size):
        vectors = np.ascontiguousarray((view.columns(panel, part) @ turn.T).T)
        parts.append(function(Directions(squares, vectors), *(values[..., part] for values in columns)))
    return np.concatenate(parts, axis=-1)


@dataclass(frozen=True)
class PanelDirections:
    """Squared singular values of a sketch in panels, and the matrix that makes its right singular vectors."""

    squares: Floats
    turn: Floats  # shape (m, rows of the sketch)
    view: View
    panels: Panels
    # Answers that are a few vectors, so that whoever asks again needs no panels
    _known: dict[Any, Floats] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, panels: Panels, view: View) -> PanelDirections:
        """Return those of a sketch."""

        def gram(turn: Floats | None) -> Floats:
            return reduce(np.add, panels.map(_gram, view, turn))

        squares, turn = gram_directions(gram)
        return cls(squares, turn, view, panels)

    def apply(self, function: Callable[..., Floats], *columns: Floats) -> Floats:
        """Return ``function(directions, *columns)``, of which each column depends on that of its arguments alone.

        `columns` are arrays of one entry for every column, and the last axis of the result is that of the columns.
        """
        each = sliced(self.panels.edges, *columns)
        applied = partial(
            _applied, n_columns=len(columns), view=self.view, squares=self.squares, turn=self.turn, function=function
        )
        return np.concatenate(self.panels.map(applied, each=each), axis=-1)

    def remembered(self, function: Callable[..., Floats], **arguments: float) -> Floats:
        """Return ``apply(function)`` with these arguments, computed once."""
        key = (function, *arguments.items())
        if key not in self._known:
            self._known[key] = self.apply(partial(function, **arguments))
        return self._known[key]

    def columns(self, columns: NDArray[np.integer]) -> Floats:
        """Return the entries of the vectors in some columns, shape (m, len(columns))."""
        key = columns.tobytes()
        if key not in self._known:
            order = np.argsort(columns)
            vectors = np.empty((columns.size, self.squares.size))
            if columns.size:
                vectors[order] = _of_columns(self.panels, _vectors_of, columns[order], self.view, self.turn)
            self._known[key] = np.ascontiguousarray(vectors.T)
        return self._known[key]

    def scaled(self, roots: Floats) -> Floats:
        """Return the matrix whose products with the sketch are ``roots_i v_i``."""
        return roots[:, None] * self.turn[: roots.size]


def _vectors_of(panel: SketchPanel, columns: Indices, view: View, turn: Floats) -> Floats:
    return view.columns(panel, columns) @ turn.T


def _squares_of(panel: SketchPanel) -> Floats:
    return np.concatenate(
        [np.einsum("ij,ij->i", panel.rows[part], panel.rows[part]) for part in bands(len(panel.rows))]
    )


def _times(panel: SketchPanel, vector: Floats) -> Floats:
    return np.concatenate([panel.rows[part] @ vector for part in bands(len(panel.rows))])


def _height(panel: SketchPanel) -> int:
    return int(panel.rows.shape[1])


def _column(panel: SketchPanel, j: int) -> Floats:
    column: Floats = panel.rows[j].copy()
    return column


def _products_with(panel: SketchPanel, columns: Indices, vector: Floats) -> Floats:
    return np.concatenate([panel.rows[columns[part]] @ vector for part in bands(columns.size)])


class PanelColumns:
    """The columns of a sketch about the means, for `ColumnCopies`."""

    def __init__(self, panels: Panels) -> None:
        self.panels = panels

    @property
    def height(self) -> int:
        """Rows of the sketch."""
        (height,) = self.panels.map(_height, only=[0])
        return int(height)

    def squares(self) -> Floats:
        """Return the squared norms of the columns."""
        return np.concatenate(self.panels.map(_squares_of))

    def times(self, vector: Floats) -> Floats:
        """Return the products of all columns with a vector."""
        return np.concatenate(self.panels.map(_times, vector))

    def products(self, columns: Indices, j: int) -> Floats:
        """Return the products of some columns, ascending, with column j."""
        edges = self.panels.edges
        panel = int(np.searchsorted(edges, j, side="right")) - 1
        (vector,) = self.panels.map(_column, each=[(j - a,) for a in edges[:-1]], only=[panel])
        return _of_columns(self.panels, _products_with, columns, vector)


# --- columns chosen one by one -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The best value of a panel, and the columns among which the rule of ties may choose."""

    best: float
    # indices, values: The columns close to the best one that are larger than all before them
    indices: Indices
    values: Floats
    columns: Floats  # shape (number of candidates, m): Of the factor

    @classmethod
    def of(cls, panel: SketchPanel, factor: Factored, best: float, close: Mask, values: Floats) -> Candidates:
        """Return the columns that are `close` and larger than all such columns before them."""
        places = np.flatnonzero(close)
        first = np.ones(places.size, dtype=np.bool_)
        first[1:] = values[places[1:]] > np.maximum.accumulate(values[places])[:-1]
        places = places[first]
        return cls(best, places, values[places], factor.columns(panel, places))


@dataclass(frozen=True)
class Factored:
    """A factor C of a sketch in panels: ``C = turn R``."""

    view: View
    turn: Floats

    def columns(self, panel: SketchPanel, part: slice | Indices) -> Floats:
        """Return some columns of C as rows."""
        return self.view.columns(panel, part) @ self.turn.T

    def times(self, panel: SketchPanel, *vectors: Floats) -> Floats:
        """Return the products of all columns with vectors, shape (n_columns, number of vectors)."""
        return self.view.times(panel, np.stack(vectors) @ self.turn)


@dataclass(frozen=True)
class _Gains:
    alive: Mask
    noise: Floats
    factor: Factored
    second: Floats
    variance: Floats
    reach: Floats


def _start_gains(
    panel: SketchPanel, state: None, alive: Mask, noise: Floats, factor: Factored, second: Floats
) -> tuple[_Gains, Candidates]:
    gains = _Gains(alive, noise, factor, second, *_forms(panel, factor, np.eye(second.shape[0]), second))
    return gains, _best_gains(panel, gains)


def _without(alive: Mask, excluded: Indices) -> Mask:
    alive = alive.copy()
    alive[excluded] = False
    return alive


def _step_gains(
    panel: SketchPanel, state: _Gains, excluded: Indices, u: Floats, moved: Floats, scale: float, curvature: float
) -> tuple[_Gains, Candidates]:
    """Return the gains after one more column, whose ``M c`` is u, by a change of those before."""
    along, across = state.factor.times(panel, u, moved).T
    share = along / scale
    variance = state.variance - share * along
    reach = state.reach + share * (share * curvature - 2.0 * across)
    state = replace(state, alive=_without(state.alive, excluded), variance=variance, reach=reach)
    return state, _best_gains(panel, state)


def _renewed_gains(
    panel: SketchPanel, first: _Gains, excluded: Indices, posterior: Floats
) -> tuple[_Gains, Candidates]:
    """Return the gains computed anew, of columns without those excluded since the first step."""
    variance, reach = _forms(panel, first.factor, posterior, first.second)
    state = replace(first, alive=_without(first.alive, excluded), variance=variance, reach=reach)
    return state, _best_gains(panel, state)


def _forms(panel: SketchPanel, factor: Factored, posterior: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Return ``c' M c`` and ``c' M S M c`` of all columns."""
    variance, reach = np.empty((2, panel.mean.size))
    for part in bands(panel.mean.size):
        columns = factor.columns(panel, part)
        moved = columns @ posterior
        variance[part] = np.einsum("ij,ij->i", moved, columns)
        reach[part] = np.einsum("ij,ij->i", moved @ second, moved)
    return variance, reach


def _gains(state: _Gains) -> tuple[Floats, Mask]:
    counts = state.alive & (state.variance > EXHAUSTED)
    gains = np.zeros(counts.size)
    np.divide(state.reach, state.noise + state.variance, out=gains, where=counts)
    return gains, counts


def _best_gains(panel: SketchPanel, state: _Gains, best: float | None = None) -> Candidates:
    gains, counts = _gains(state)
    best = float(gains.max(initial=0.0)) if best is None else best
    close = counts & (gains >= best * (1.0 - CLOSE)) if best > EXHAUSTED else np.zeros(counts.size, np.bool_)
    return Candidates.of(panel, state.factor, best, close, state.variance)


def _close_gains(panel: SketchPanel, state: _Gains, best: float) -> tuple[_Gains, Candidates]:
    return state, _best_gains(panel, state, best)


class PanelGains:
    """Gains of the columns of a factor in panels; the largest is chosen again and again, as by `GreedyGains`.

    `noise` of shape (p,): Squared norms, not negative.
    `second` of shape (m, m): ``C C'``.
    Cost: a column takes one product of the whole sketch with two vectors, and one exchange with all panels. The first
    states hold what does not change, and a step sends vectors; every `REFRESH` steps begin from the first states, so
    that a cluster need not remember more steps than that.
    """

    def __init__(self, panels: Panels, factor: Factored, noise: Floats, second: Floats) -> None:
        self.panels, self.factor, self.noise, self.second = panels, factor, noise, second

    def start(self, alive: Mask) -> None:
        """Begin again, with the columns of `alive`."""
        self._run = self.panels.run()
        each = sliced(self.panels.edges, alive, self.noise)
        self._answers = self._run.step(_start_gains, self.factor, self.second, each=each)
        self._posterior: Floats = np.eye(self.second.shape[0])
        self._step = 0
        self._update: tuple[Floats, Floats, float, float] | None = None
        self._excluded: list[Indices] = []
        self._n_sent = 0

    def exclude(self, columns: Indices) -> None:
        """Leave columns out from now on."""
        self._excluded.append(columns)

    def take(self) -> int:
        """Return the column of the largest gain and add it; -1 if all gains are rounding."""
        if self._update is not None:
            renews = self._step % REFRESH == 0
            excluded = np.unique(np.concatenate(self._excluded[0 if renews else self._n_sent :]))
            each = _by_panel(self.panels.edges, excluded)
            if renews:
                self._answers = self._run.step(_renewed_gains, self._posterior, each=each, from_first=True)
            else:
                self._answers = self._run.step(_step_gains, *self._update, each=each)
            self._n_sent = len(self._excluded)
        best = max(answer.best for answer in self._answers)
        if not best > EXHAUSTED:
            return -1
        answers = self._answers
        if any(best * (1.0 - CLOSE) <= answer.best < best for answer in answers):
            answers = self._run.step(_close_gains, best)
        chosen, largest, column = -1, 0.0, np.zeros(0)
        for first, answer in zip(self.panels.edges, answers, strict=False):
            if answer.best < best:
                continue
            for j, variance, candidate in zip(answer.indices, answer.values, answer.columns, strict=True):
                if variance > max(EXHAUSTED, largest * (1.0 + TIE)):
                    chosen, largest, column = first + int(j), float(variance), candidate
        self._add(chosen, column)
        return chosen

    def _add(self, chosen: int, column: Floats) -> None:
        u = self._posterior @ column
        scale = float(self.noise[chosen]) + float(column @ u)
        moved = self.second @ u
        self._update = u, self._posterior @ moved, scale, float(u @ moved)
        self._posterior = self._posterior - np.outer(u, u / scale)
        self._step += 1
        self._excluded.append(np.array([chosen], dtype=np.int64))


@dataclass(frozen=True)
class _Distances:
    alive: Mask
    factor: Factored
    squares: Floats  # Squared distances from the span of the columns chosen


def _start_distances(panel: SketchPanel, state: None, alive: Mask, factor: Factored) -> tuple[_Distances, Candidates]:
    distances = _Distances(alive, factor, _outside(panel, factor, np.zeros((0, factor.turn.shape[0]))))
    return distances, _farthest(panel, distances)


def _step_distances(
    panel: SketchPanel, state: _Distances, chosen: Indices, direction: Floats
) -> tuple[_Distances, Candidates]:
    """Return the distances from a span that has one more direction."""
    squares = state.squares - state.factor.times(panel, direction)[:, 0] ** 2
    state = replace(state, alive=_without(state.alive, chosen), squares=squares)
    return state, _farthest(panel, state)


def _renewed_distances(
    panel: SketchPanel, first: _Distances, chosen: Indices, basis: Floats
) -> tuple[_Distances, Candidates]:
    """Return the distances computed anew, of columns without those chosen since the first step."""
    squares = _outside(panel, first.factor, basis)
    state = replace(first, alive=_without(first.alive, chosen), squares=squares)
    return state, _farthest(panel, state)


def _outside(panel: SketchPanel, factor: Factored, basis: Floats) -> Floats:
    """Return the squared distances of all columns from the span of some orthonormal rows."""
    squares = np.empty(panel.mean.size)
    for part in bands(squares.size):
        columns = factor.columns(panel, part)
        for _ in range(2 if len(basis) else 0):  # Once more, for what rounding left.
            columns = columns - (columns @ basis.T) @ basis
        squares[part] = np.einsum("ij,ij->i", columns, columns)
    return squares


def _farthest(panel: SketchPanel, state: _Distances) -> Candidates:
    squares = np.where(state.alive, state.squares, -1.0)
    best = float(squares.max())
    close = state.alive & (squares >= best * (1.0 - TIE))
    return Candidates.of(panel, state.factor, best, close, squares)


_DIGITS = 1e-3
"""Share of the largest distance below which distances are computed anew: they lose digits as they shrink."""


def panel_pivots(panels: Panels, factor: Factored, alive: Mask, n_pivots: int) -> list[int]:
    """Return the first pivots of QR with column pivoting, as `pivots`; fewer where the others are rounding.

    Cost: a pivot takes one product of the whole sketch with a vector, and one exchange with all panels.
    """
    m = factor.turn.shape[0]
    run, basis, order = panels.run(), np.zeros((0, m)), list[int]()
    answers = run.step(_start_distances, factor, each=sliced(panels.edges, alive))
    largest = since = max(answer.best for answer in answers)
    while len(order) < min(n_pivots, m):
        best = max(answer.best for answer in answers)
        if len(basis) and best < _DIGITS * since:
            each = _by_panel(panels.edges, np.sort(np.array(order, dtype=np.int64)))
            answers = run.step(_renewed_distances, basis, each=each, from_first=True)
            best = since = max(answer.best for answer in answers)
        if not best > EXHAUSTED * largest:
            break
        place, chosen, column = _lowest(answers, best * (1.0 - TIE))
        order.append(panels.edges[place] + chosen)
        for _ in range(2):
            column = column - (column @ basis.T) @ basis
        basis = np.vstack([basis, column / np.linalg.norm(column)])
        answers = run.step(_step_distances, basis[-1], each=_by_panel(panels.edges, np.array(order[-1:])))
    return order


def _lowest(answers: Sequence[Candidates], least: float) -> tuple[int, int, Floats]:
    """Return panel, place in it, and column of the first candidate of at least this value."""
    for place, answer in enumerate(answers):
        for j, value, column in zip(answer.indices, answer.values, answer.columns, strict=True):
            if value >= least:
                return place, int(j), column
    raise AssertionError("the best column is a candidate of its panel")
