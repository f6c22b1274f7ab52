"""Moments: weight, mean and centred co-moment of features and targets, merged pairwise without cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.moments.single_precision import SINGLE_ROUNDING
from sketchselect.linalg.moments.triangular import factor_least_squares
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries.moments.base import JointMoments
from sketchselect.summaries.moments.classes import as_classes
from sketchselect.summaries.moments.forms import Comoment, Factor, Form, MomentsRecord
from sketchselect.summaries.moments.pairwise import Pairwise, pairs_of
from sketchselect.summaries.moments.polynomial import polynomial_names, recentre
from sketchselect.summaries.moments.products import Products
from sketchselect.summaries.registry import register


@register
class Moments(JointMoments[MomentsRecord]):
    """First and second moments of the rows [x, y], sufficient for linear models.

    The state is ``C = sum w (z - mean)(z - mean)'`` for z = [x, y]; merged with
    ``C = C_a + C_b + (W_a W_b / W) (mean_b - mean_a)(mean_b - mean_a)'``. Relative error of variances about
    1e-11 at mean/sd = 1e8, where raw sums of squares have no correct digit. Covariances of two float32 columns that are
    not whole numbers are exact to some ``6e-8 sqrt(C_ii C_jj)``, in blocks of at least 128 rows; their means, variances
    and covariances with a target are summed in float64, like those of other data. Coefficients multiply that error by
    the condition number: supervised selectors read float32 rows as float64.

    Parameters
    ----------
    method : {"comoment", "qr"}
        The state: C, or its triangular factor R (``R'R = C``) at twice the cost, for problems too ill-conditioned for
        C, whose condition number is the square of that of R.
    degree : {1, 2}
        With 2, also the moments of all squares and products of columns, for the moments of the standardised polynomial
        features (`expanded`): (p + p (p + 1) / 2)^2 numbers.
    missing : {None, "pairwise"}
        With "pairwise", NaN in X is a missing value, and each covariance is that of the rows with a value in both
        columns (three numbers for each pair). Such a matrix need not be positive semidefinite.
    classes : sequence of str, int, bool or float, optional
        The labels in y. Targets are then -1 and +1 for two classes (+1 for the second), otherwise one indicator column
        for each class.

    Notes
    -----
    Cost a row: (p + q)^2 flops. Bytes: 8 (p + q)^2.
    Source: Chan, Golub and LeVeque 1983; used as in Sun, Guo and Barbu 2019, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> X = 1e8 + np.arange(6.0).reshape(3, 2)
    >>> m = Moments().from_block(X[:1]).merge(Moments().from_block(X[1:]))
    >>> m.covariance().diagonal().round(6).tolist()
    [2.666667, 2.666667]
    """

    kind = "moments"
    format_version = 2
    record_type = MomentsRecord

    def __init__(
        self,
        method: str = "comoment",
        degree: int = 1,
        missing: str | None = None,
        classes: Sequence[Any] | Array | None = None,
    ) -> None:
        if method not in ("comoment", "qr"):
            raise BadParameter(f'method must be "comoment" or "qr", got {method!r:.40}')
        if isinstance(degree, bool) or degree not in (1, 2):
            raise BadParameter(f"degree must be 1 or 2, got {degree!r:.40}")
        if missing not in (None, "pairwise"):
            raise BadParameter(f'missing must be None or "pairwise", got {missing!r:.40}')
        if (method == "qr") + (degree == 2) + (missing is not None) > 1:
            raise BadParameter('method="qr", degree=2 and missing="pairwise" exclude each other; choose one')
        self.method = method
        self.degree = int(degree)
        self.missing = missing
        self.classes = as_classes(classes)

    @cached_property
    def _form(self) -> Form:
        if self.method == "qr":
            return Factor()
        if self.missing is not None:
            return Pairwise()
        return Products() if self.degree == 2 else Comoment()

    @property
    def accepts_sparse(self) -> bool:
        """Whether CSR blocks are summarised as they are, which depends on the form."""
        return self._form.accepts_sparse

    @property
    def accepts_missing(self) -> bool:
        """Whether NaN is a missing value."""
        return self.missing is not None

    @property
    def has_panels(self) -> bool:
        """Whether the state is one co-moment of the columns as they are."""
        return (self.method, self.degree, self.missing) == ("comoment", 1, None)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return self._form.nbytes(*self._n_joint(n_features, n_targets))

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        return self._form.working_nbytes(*self._n_joint(n_features, n_targets))

    def _empty(self, n_features: int, n_targets: int) -> MomentsRecord:
        return self._form.empty(*self._n_joint(n_features, n_targets))

    def _summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        return self._form.summarise(block, targets, start, weights)

    def _combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        return self._form.combine(left, right)

    def _joint_mean(self) -> Floats:
        return self._form.mean(self.record)

    def _scatter(self) -> Floats:
        return self._form.scatter(self.record)

    def unmerge(self, part: Self) -> Self:
        """Return the moments of the rows that are not in `part`: the inverse of `merge`.

        Exact to rounding of the total; a remainder far smaller than the total has fewer correct digits.

        Raises
        ------
        Incompatible
            If `part` has more rows, other columns or parameters, or is not a part of these rows (a variance would be
            negative), or for method="qr".
        """
        self.require_mergeable(part)
        if part.n_rows > self.n_rows:
            raise Incompatible(f"{part.n_rows} rows cannot be subtracted from {self.n_rows} rows")
        if part.n_rows == 0:
            return self
        remainder = self._form.remove(self.record, part.record)
        if remainder.n_rows == 0:
            return self.empty(self.n_features, self.n_targets)
        return self._with(remainder, self.context)

    @property
    def single_rounding(self) -> float:
        """Bound, in the spectral norm, of the error of the scatter from products in float32; 0 for other data."""
        return SINGLE_ROUNDING * self.record.single_scatter

    # --- answers of one form -----------------------------------------------------------------------------------

    @property
    def factor(self) -> Floats:
        """Upper-triangular R of the centred [X y], with ``R'R = W x covariance``; for method="qr".

        Shape (min(n_rows, d), d) with d = n_features + n_targets.
        """
        if self.record.factor is None:
            raise BadParameter('these moments have no factor; create them as Moments(method="qr")')
        return self.record.factor

    def least_squares(self, columns: Any = None) -> tuple[Floats, Floats]:
        """Return coefficients (n_columns, n_targets) and intercepts (n_targets,) of least squares, from the factor.

        Parameters
        ----------
        columns : array of int, optional
            Features of the model; all by default.

        Raises
        ------
        BadParameter
            If columns are linearly dependent to working precision, or the method is not "qr".

        Examples
        --------
        >>> import numpy as np
        >>> x = np.arange(20.0)[:, None] ** np.arange(1, 6)
        >>> coef, intercept = Moments(method="qr").from_block(x, 1 + x.sum(axis=1)).least_squares()
        >>> bool(np.allclose(coef, 1, rtol=1e-7))
        True
        """
        chosen = np.arange(self.n_features) if columns is None else np.asarray(columns, dtype=np.intp)
        with one_blas_thread():
            coef = factor_least_squares(self.factor, self.n_features, chosen)
        return coef, self.y_mean - self.mean[chosen] @ coef

    @property
    def pair_weights(self) -> Floats:
        """Total weight of the rows with a value in both columns, shape (n_features, n_features)."""
        p = self.n_features
        if self.record.pair_weight is None:
            return np.full((p, p), self.weight)
        return self.record.pair_weight[:p, :p]

    def _divided(self, rows: slice, columns: slice, ddof: float = 0) -> Floats:
        if self.missing is None:
            return super()._divided(rows, columns, ddof)
        pairs = pairs_of(self.record)
        divisor = pairs.weight[rows, columns] - ddof
        if (divisor <= 0).any():
            i, j = np.argwhere(divisor <= 0)[0]
            empty = pairs.weight.diagonal() <= ddof
            if empty.any():
                raise BadParameter(
                    f"column {int(empty.argmax())} has too few values that are not missing for a variance; leave it out"
                )
            raise BadParameter(
                f"columns {int(i)} and {int(j)} have no covariance: the rows with values in both have a weight of "
                f"{float(divisor[i, j]) + ddof:g}; leave one out"
            )
        out: Floats = pairs.scatter[rows, columns] / divisor
        return out

    def gram(self) -> Floats:
        """Return ``A'A = sum w x x'``, about zero; shape (n_features, n_features)."""
        if self.missing is not None:
            raise BadParameter("rows with missing values have no Gram matrix; use covariance()")
        return super().gram()

    def expanded(self, mean: Floats | None = None, scale: Floats | None = None) -> Moments:
        """Return the moments of the standardised polynomial features, for degree=2, as plain `Moments`.

        The features are z_i = (x_i - mean_i) / sd_i (population sd; zeros for a constant column), then z_i z_j for
        i <= j row by row; they have names. ``polynomial.expand(X, mean, sd)`` computes them for other rows.

        Parameters
        ----------
        mean, scale : arrays of shape (n_features,), optional
            Mean and sd of other rows, for the same features in several parts; by default those of these rows.

        Notes
        -----
        Exact to rounding, since products about any point are an affine function of those about another.
        Cost: about 8 sweeps over (p + p (p + 1) / 2)^2 numbers.
        """
        if self.degree != 2:
            raise BadParameter("these moments have no products of columns; create them as Moments(degree=2)")
        record = self.record
        assert record.comoment is not None
        assert record.shift is not None
        p = self.n_features
        offset = record.mean[:p] if mean is None else np.asarray(mean) - record.shift
        units = np.sqrt(self.covariance().diagonal()) if scale is None else np.asarray(scale)
        moved, comoment = recentre(record.mean, record.comoment, offset, units)
        plain = MomentsRecord(record.n_rows, record.n_targets, record.weight, record.squared_weight, moved, comoment)
        labelled = Moments(classes=self.classes)._with(plain, self.context)
        return labelled.with_context(prepare=self.prepare, feature_names=polynomial_names(self.feature_names, p))
