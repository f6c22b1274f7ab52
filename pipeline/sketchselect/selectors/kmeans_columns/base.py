"""Base class of selectors of weighted columns with a certificate for k-means (Boutsidis 2012)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.kmeans_columns.certificate import SelectionCertificate, certify_weighted_columns
from sketchselect.selectors.kmeans_columns.subspace import ColumnSubspace, column_subspace
from sketchselect.selectors.parameters import as_count
from sketchselect.selectors.selection import Selection
from sketchselect.summaries import Bundle, CentroidSums, FrequentDirections, Summary, pick


class ColumnSelector(BaseSelector):
    """Base of `DeterministicSelector`, `RandomizedSelector` and `HybridSelector`.

    A subclass implements `_sample`: weights of at most r columns from the top directions. Scores and the certificate
    follow.

    Parameters
    ----------
    n_features_to_select : int, optional
        r > k; half of the columns by default. Exactly as many distinct columns are selected.
    n_clusters : int, optional
        k; min(8, r // 2) by default.
    sketch_size : int, optional
        Rows l of the sketch, more than k; min(n_features, max(8 k, 64)) by default.

    Attributes
    ----------
    weights_ : array of shape (n_selected,)
        sqrt(s_i^2): ``X[:, support_] * weights_`` is the C of the theory.
    certificate_ : SelectionCertificate
        ``certificate_.bound(F)``: an upper bound of the k-means objective in all columns from F, that in the weighted
        selected ones.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "moments")
    has_weights: ClassVar[bool] = True

    n_features_to_select: float | None
    n_clusters: int | None
    sketch_size: int | None
    certificate_: SelectionCertificate

    @abstractmethod
    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        """Return s_i^2 of every column, at most `n_select` of them positive, and diagnostics."""

    def _subspace(self, summary: Any, n_clusters: int) -> ColumnSubspace:
        return column_subspace(summary, n_clusters)

    def _further_parameters(self, summary: Any) -> dict[str, Any]:
        """Return the resolved parameters that not all of these selectors have."""
        return {}

    def _n_select(self, n_features: int) -> int:
        if self.n_features_to_select is not None:
            return super()._n_select(n_features)
        return self._default_select(n_features, _partition_clusters(self.summary_))

    def _default_select(self, n_features: int, n_parts: int | None) -> int:
        k = n_parts if self.n_clusters is None else require_positive("n_clusters", self.n_clusters)
        return min(max(n_features // 2, 2 if k is None else k + 1), n_features)

    def _clusters(self, n_features: int, n_parts: int | None = None) -> int:
        """Return k; `n_parts` is that of the partition, if there is one."""
        n_select = self.n_features_to_select
        if n_select is None:
            n_select = self._default_select(n_features, n_parts)
        n_select = min(as_count(n_select, n_features), n_features)
        k = n_parts if self.n_clusters is None else self.n_clusters
        if k is None:
            # Half of the columns: with k near r, sqrt(k / r) near 1, the bounds are weak.
            return max(min(8, n_select // 2), 1)
        k = require_positive("n_clusters", k)
        if k >= n_features:
            raise BadParameter(f"n_clusters = {k} must be below the number of columns: n_features = {n_features}")
        if n_select <= k:
            raise BadParameter(
                f"n_features_to_select = {n_select} must exceed n_clusters = {k}: fewer columns have no guarantee"
            )
        return k

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        self.check_parameters()
        return self._sketch(n_features, self._clusters(n_features))

    def _sketch(self, n_features: int, k: int) -> FrequentDirections:
        if self.sketch_size is None:
            return FrequentDirections(size=max(min(n_features, max(8 * k, 64)), k + 1, 2))
        sketch = FrequentDirections(size=self.sketch_size)
        if sketch.size <= k:
            raise BadParameter(
                f"sketch_size ({sketch.size}) must exceed n_clusters ({k}): a sketch has size - 1 directions"
            )
        return sketch

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        sketch: Any = pick(summary, *self.requires) if isinstance(summary, Bundle) else summary
        p = sketch.n_features
        k = self._clusters(p, _partition_clusters(summary))
        if isinstance(sketch, FrequentDirections) and sketch.size <= k and not sketch.is_exact:
            raise BadParameter(
                f"n_clusters = {k}, but a sketch of size {sketch.size} has only {sketch.size - 1} directions; "
                "make the sketch larger"
            )
        subspace = self._subspace(sketch, k)
        if subspace.vectors.shape[1] == 0 and sketch.n_rows > 1:
            raise BadParameter(f"all {p} columns are constant over {sketch.n_rows} rows: there is nothing to select")
        diagnostics: dict[str, Any] = {}
        if n_select == p or subspace.vectors.shape[1] == 0:
            squares = np.zeros(p)
            squares[by_leverage(subspace)[:n_select]] = 1.0
        else:
            squares, diagnostics = self._sample(subspace, summary, n_select, k)
        support: NDArray[np.int64] = np.flatnonzero(squares)
        self.certificate_ = certify_weighted_columns(subspace, support, squares[support], k)
        parameters = {
            "n_features_to_select": n_select,
            "n_clusters": k,
            "sketch_size": sketch.size if isinstance(sketch, FrequentDirections) else None,
            "normalize": self._normalized(summary),
        }
        return Selection(
            method=self.method,
            support=support,
            # A column's part of the squared norm of Z' Omega S.
            scores=squares * subspace.leverage,
            weights=np.sqrt(squares[support]),
            feature_names=summary.feature_names,
            parameters=parameters | self._further_parameters(summary),
            diagnostics={"shrinkage": subspace.shrinkage, "subspace_angle": subspace.angle}
            | self.certificate_.to_dict()
            | diagnostics,
        )


def _partition_clusters(summary: Any) -> int | None:
    if not isinstance(summary, Bundle):
        return None
    sums = pick(summary, "centroid-sums")
    assert isinstance(sums, CentroidSums)
    return sums.n_clusters


def by_leverage(subspace: ColumnSubspace) -> NDArray[np.int64]:
    """Return the columns in the order of leverage, then scatter (both descending), then index."""
    order: NDArray[np.int64] = np.lexsort((-subspace.scatter, -subspace.leverage))
    return order


def require_svd(svd: Any, epsilon: Any) -> None:
    """Raise `BadParameter` for an unknown `svd` or an `epsilon` out of range."""
    if svd not in ("exact", "fast"):
        raise BadParameter(f'svd must be "exact" or "fast", got {svd!r}')
    require_number("epsilon", epsilon, above=0, below=1)
