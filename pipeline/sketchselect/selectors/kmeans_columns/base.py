"""The base of selectors that keep actual columns, with weights and a certificate for k-means (Boutsidis 2012)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.kmeans_columns.certificate import SelectionCertificate, certify_selection
from sketchselect.selectors.kmeans_columns.subspace import ColumnSubspace, column_subspace
from sketchselect.selectors.selection import Selection
from sketchselect.summaries import Bundle, CentroidSums, FrequentDirections, Summary, pick


class ColumnSelector(BaseSelector):
    """Base of `DeterministicSelector`, `RandomizedSelector` and `HybridSelector`.

    A subclass implements `_sample`: weights of at most r columns from the top directions. Exactly r distinct columns,
    merged weights, scores and the certificate follow.

    Attributes
    ----------
    weights_ : array of shape (n_selected,)
        sqrt(s_i^2): ``X[:, support_] * weights_`` is the C of the theory.
    certificate_ : SelectionCertificate
        ``certificate_.bound(F)``: an upper bound of the k-means objective in all columns from F, that in the weighted
        selected ones.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "moments")

    n_features_to_select: int | None
    n_clusters: int | None
    sketch_size: int | None
    certificate_: SelectionCertificate

    @abstractmethod
    def _sample(
        self, subspace: ColumnSubspace, summary: Any, n_select: int, n_clusters: int
    ) -> tuple[Floats, dict[str, Any]]:
        """Return s_i^2 of every column, at most `n_select` of them positive, and what is to be told about it."""

    def _subspace(self, summary: Any, n_clusters: int) -> ColumnSubspace:
        return column_subspace(summary, n_clusters)

    def _own_parameters(self, summary: Any) -> dict[str, Any]:
        """Return the resolved parameters beyond those that all of these selectors have."""
        return {}

    def _n_select(self, n_features: int) -> int:
        if self.n_features_to_select is not None:
            return super()._n_select(n_features)
        return self._default_select(n_features, _partition_clusters(self.summary_))

    def _default_select(self, n_features: int, found: int | None) -> int:
        k = found if self.n_clusters is None else require_positive("n_clusters", self.n_clusters)
        return min(max(n_features // 2, 2 if k is None else k + 1), n_features)

    def _clusters(self, n_features: int, found: int | None = None) -> int:
        """Return k; `found` is that of the partition, where there is one."""
        wanted = self.n_features_to_select
        if wanted is None:
            wanted = self._default_select(n_features, found)
        wanted = min(require_positive("n_features_to_select", wanted), n_features)
        k = found if self.n_clusters is None else self.n_clusters
        if k is None:
            # Half of the columns: with k near r, sqrt(k / r) near 1, nothing much is proved.
            return max(min(8, wanted // 2), 1)
        k = require_positive("n_clusters", k)
        if k >= n_features:
            raise BadParameter(f"n_clusters = {k} must be below the number of columns: n_features = {n_features}")
        if wanted <= k:
            raise BadParameter(
                f"n_features_to_select = {wanted} must exceed n_clusters = {k}: as many columns as clusters, or fewer, "
                "carry no guarantee"
            )
        return k

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of the size asked for; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        self.check_parameters()
        return self._sketch(n_features, self._clusters(n_features))

    def _sketch(self, n_features: int, k: int) -> FrequentDirections:
        if self.sketch_size is None:
            return FrequentDirections(size=max(min(n_features, max(8 * k, 64)), k + 1, 2))
        sketch = FrequentDirections(size=self.sketch_size)
        if sketch.size <= k:
            raise BadParameter(
                f"sketch_size ({sketch.size}) must exceed n_clusters ({k}): a sketch keeps size - 1 directions"
            )
        return sketch

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        sketch: Any = pick(summary, *self.requires) if isinstance(summary, Bundle) else summary
        p = sketch.n_features
        k = self._clusters(p, _partition_clusters(summary))
        if isinstance(sketch, FrequentDirections) and sketch.size <= k and not sketch.is_exact:
            raise BadParameter(
                f"n_clusters = {k}, but a sketch of size {sketch.size} keeps only {sketch.size - 1} directions; "
                "make the sketch larger"
            )
        subspace = self._subspace(sketch, k)
        if subspace.vectors.shape[1] == 0 and sketch.n_rows > 1:
            raise BadParameter(f"all {p} columns are constant over {sketch.n_rows} rows: there is nothing to select by")
        told: dict[str, Any] = {}
        if n_select == p or subspace.vectors.shape[1] == 0:
            squares = np.zeros(p)
            squares[by_leverage(subspace)[:n_select]] = 1.0
        else:
            squares, told = self._sample(subspace, summary, n_select, k)
        support: NDArray[np.int64] = np.flatnonzero(squares)
        self.certificate_ = certify_selection(subspace, support, squares[support], k)
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
            parameters=parameters | self._own_parameters(summary),
            diagnostics={"shrinkage": subspace.shrinkage, "subspace_angle": subspace.angle}
            | self.certificate_.to_dict()
            | told,
        )


def _partition_clusters(summary: Any) -> int | None:
    if not isinstance(summary, Bundle):
        return None
    sums = pick(summary, "centroid-sums")
    assert isinstance(sums, CentroidSums)
    return sums.n_clusters


def by_leverage(subspace: ColumnSubspace) -> NDArray[np.int64]:
    """Return the columns, those to be added first leading: by leverage, then scatter, then index."""
    order: NDArray[np.int64] = np.lexsort((-subspace.scatter, -subspace.leverage))
    return order


def seed_of(random_state: Any) -> int:
    """Return the seed of a scikit-learn random state."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def require_svd(svd: Any, epsilon: Any) -> None:
    """Raise `BadParameter` for an unknown way to singular vectors or an epsilon out of range."""
    if svd not in ("exact", "fast"):
        raise BadParameter(f'svd must be "exact" or "fast", got {svd!r}')
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float, np.number)) or not 0 < float(epsilon) < 1:
        raise BadParameter(f"epsilon must lie strictly between 0 and 1, got {epsilon!r}")
