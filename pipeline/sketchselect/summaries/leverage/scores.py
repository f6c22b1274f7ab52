"""LeverageScores: exact ridge leverage of rows with respect to a known scatter, the second of two passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats, canonical, global_rows, pieces, require_finite
from sketchselect.linalg.columns.leverage import scatter_scores
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries.base import Summary
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class ScoresRecord:
    """State of `LeverageScores`: index and score of every row, by ascending index."""

    n_rows: int
    n_features: int
    seen: NDArray[np.int64]
    scores: Floats


@register
class LeverageScores(Summary[ScoresRecord]):
    """Ridge leverage ``a'(A'A + ridge I)^-1 a`` of every row a, from the Cholesky factor of ``A'A + ridge I``.

    The relative error is at most ``2 eps (N + 2 n + 16) (||A||_F^2 + n ridge) / ridge`` with N rows of n values
    (`relative_error`): rounding counts by the condition number. The score of a row does not depend on blocks or order;
    with `sample_weight` w it is that of sqrt(w) a. For leverage of *columns* summarise
    `sketchselect.readers.transposed` of the matrix.

    Parameters
    ----------
    factor : array of shape (n_features, n_features)
        Lower triangular L with ``L L' = A'A + ridge I`` (`sketchselect.linalg.columns.leverage.ridge_factor`).
    ridge : float
        The ridge in the factor, stored with the scores.

    Notes
    -----
    Cost a row: n^2 flops. Bytes: 16 a row, and 8 n^2 for the factor.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> s = LeverageScores(np.linalg.cholesky(A.T @ A + 1e-9 * np.eye(2)), 1e-9).from_block(A)
    >>> s.scores.round(6).tolist()
    [1.0, 0.5, 0.5]
    """

    kind = "leverage-scores"
    record_type = ScoresRecord
    of_columns = True

    def __init__(self, factor: ArrayLike, ridge: float) -> None:
        array: Floats = canonical(factor, np.float64)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or not np.isfinite(array).all():
            raise BadParameter(f"factor must be a square matrix of finite numbers, got shape {array.shape}")
        if not (array.diagonal() > 0).all():
            raise BadParameter("factor must have a positive diagonal, as the factor of a matrix with a ridge has")
        self.factor = array.copy()
        self.factor.flags.writeable = False
        self.ridge = float(ridge)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of the scores of 4,096 rows; each further row has 16."""
        return 16 * 4096

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block`."""
        return 8 * n_features * n_features + 2 * 8 * PIECE_ROWS * n_features

    def _empty(self, n_features: int, n_targets: int) -> ScoresRecord:
        return ScoresRecord(0, n_features, np.zeros(0, dtype=np.int64), np.zeros(0))

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> ScoresRecord:
        if block.shape[1] != self.factor.shape[0]:
            raise Incompatible(f"the factor is for rows of {self.factor.shape[0]} values, these have {block.shape[1]}")
        index = global_rows(start, block.shape[0]).astype(np.int64)
        require_finite(block, int(index[0]))
        scores = np.empty(block.shape[0])
        with one_blas_thread():
            for a, b in pieces(block):
                rows = block[a:b].astype(np.float64)
                if weights is not None:
                    rows *= np.sqrt(weights[a:b])[:, None]
                scores[a:b] = scatter_scores(rows, self.factor)
        return _sorted(ScoresRecord(block.shape[0], block.shape[1], index, scores))

    def _combine(self, left: ScoresRecord, right: ScoresRecord) -> ScoresRecord:
        return _sorted(
            ScoresRecord(
                left.n_rows + right.n_rows,
                left.n_features,
                np.concatenate([left.seen, right.seen]),
                np.concatenate([left.scores, right.scores]),
            )
        )

    @property
    def seen(self) -> NDArray[np.int64]:
        """Global indices of all rows, ascending."""
        return self.record.seen

    @property
    def scores(self) -> Floats:
        """Score of each row, in the order of `seen`."""
        return self.record.scores

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of the scores, if the factor is that of all these rows in float64.

        The factor is exactly that of ``A'A + ridge I + F``. Products, means, the factorisation (Higham 2002, Theorem
        10.3) and the triangular solve each add at most some units of rounding a row or column, times the trace, to the
        norm of F, and ``|F| <= rho (A'A + ridge I)`` with ``rho = ||F|| / ridge``.
        """
        trace = float(np.einsum("ij,ij->", self.factor, self.factor))
        units = 2 * (self.n_rows + 2 * self.factor.shape[0] + 16)
        return float(units * np.finfo(np.float64).eps * trace / self.ridge)


def _sorted(record: ScoresRecord) -> ScoresRecord:
    order = np.argsort(record.seen, kind="stable")
    return ScoresRecord(record.n_rows, record.n_features, record.seen[order], record.scores[order])
