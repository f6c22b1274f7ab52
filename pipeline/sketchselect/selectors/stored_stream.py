"""A stream that is stored in few columns: those that were among the best ones at every step."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

from sketchselect.errors import BadParameter, NoData
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.selection import rank


class StoredStream:
    """Follow a stream with a selector, and store of every row only columns that can still be selected.

    With h columns wanted, ``columns_`` are the columns that were among the g h best ones after every batch, and
    `features` holds all rows seen in exactly these, so no row ever takes more than g h values. ``support_``, the h best
    of them by the scores of all rows, is the selector's own selection where ``n_lost_`` is 0; otherwise so many of the
    h best columns were not among the g h best ones at some step, and are not stored. Nothing is promised of how many
    that are: the scores of early batches decide, which is what g is for.

    Parameters
    ----------
    selector : BaseSelector
        Unfitted, with `n_features_to_select` (h) and `partial_fit` of rows, such as `SketchedRidgeSelector`.
    factor : int, default 4
        g.

    Attributes
    ----------
    selector : BaseSelector
        Fitted on all rows seen.
    columns_ : array of int
        Columns that are stored, ascending.
    support_ : array of int
        Columns selected of those stored, ascending; fewer than h if fewer are left.
    n_lost_ : int
        Columns of the selector's own selection that are not stored.

    Raises
    ------
    BadParameter
        For a selector without `n_features_to_select`, one of streams of columns, or one that learns from a target.

    Notes
    -----
    Cost a batch: that of the selector, and a copy of the stored columns. Source: Huang, Yoo and Kasiviswanathan, CIKM
    2015, section 5.5.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.selectors import SketchedRidgeSelector
    >>> rng = np.random.default_rng(0)
    >>> X = 0.1 * rng.standard_normal((400, 30))
    >>> X[:, [3, 17]] += 5 * rng.standard_normal((400, 2))
    >>> stream = StoredStream(SketchedRidgeSelector(2, n_components=2), factor=2)
    >>> for start in range(0, 400, 100):
    ...     stream = stream.partial_fit(X[start : start + 100])
    >>> stream.support_.tolist(), stream.selected().shape, stream.features().shape[1] <= 4
    ([3, 17], (400, 2), True)
    """

    columns_: NDArray[np.int64]
    support_: NDArray[np.int64]
    n_lost_: int

    def __init__(self, selector: BaseSelector, factor: int = 4) -> None:
        wanted = getattr(selector, "n_features_to_select", None)
        if wanted is None or selector.uses_target or selector.axis != "rows":
            raise BadParameter(
                "a stored stream needs a selector of streams of rows, without a target, that is told "
                "n_features_to_select"
            )
        self.factor = require_positive("factor", factor)
        self.selector = selector
        self._pieces: list[tuple[NDArray[np.int64], Any]] = []

    def partial_fit(self, X: Any) -> Self:
        """Add a batch of rows, an array, data frame or sparse matrix of shape (n_rows, n_features)."""
        self.selector.partial_fit(X)
        rows = check_array(X, accept_sparse="csr", dtype="numeric")
        selected = self.selector.support_
        best = np.sort(rank(self.selector.scores_)[: self.factor * selected.size])
        self.columns_ = np.intersect1d(self.columns_, best) if self._pieces else best
        self._pieces.append((self.columns_, rows[:, self.columns_].copy()))
        scores = self.selector.scores_[self.columns_]
        self.support_ = np.sort(self.columns_[rank(scores)[: selected.size]])
        self.n_lost_ = int(np.setdiff1d(selected, self.columns_).size)
        return self

    def features(self) -> Any:
        """Return all rows in the stored columns, shape (n_rows, len(columns_)): an array, or CSR if a batch was."""
        return self._stacked(None)

    def selected(self) -> Any:
        """Return all rows in the selected columns, shape (n_rows, len(support_))."""
        return self._stacked(self.support_ if self._pieces else None)

    def _stacked(self, wanted: NDArray[np.int64] | None) -> Any:
        if not self._pieces:
            raise NoData("this stream has seen no rows yet; use partial_fit")
        columns = self.columns_
        # What an earlier batch stored beyond the columns that are left is dropped for good.
        self._pieces = [(columns, _restricted(rows, held, columns)) for held, rows in self._pieces]
        parts = [rows if wanted is None else _restricted(rows, columns, wanted) for _, rows in self._pieces]
        if any(sparse.issparse(part) for part in parts):
            return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")
        return np.concatenate(parts)


def _restricted(rows: Any, held: NDArray[np.int64], wanted: NDArray[np.int64]) -> Any:
    """Return the columns `wanted` of rows that hold the columns `held`, both ascending."""
    return rows if held.size == wanted.size else rows[:, np.searchsorted(held, wanted)]
