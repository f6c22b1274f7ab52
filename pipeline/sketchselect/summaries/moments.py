"""Moments: weight, mean and centred co-moment of features and targets, merged pairwise without cancellation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.comoments import SINGLE_ROUNDING, factor_least_squares
from sketchselect.linalg.spectrum import Directions, symmetric_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Array, Floats, as_labels, as_targets, number_of
from sketchselect.summaries.base import DecayingSummary, Label, Summary, as_classes, register
from sketchselect.summaries.moment_forms import (
    SINGLE_UNIT,
    Factor,
    Form,
    MomentsRecord,
    Pairwise,
    Products,
    RowsOrComoment,
    count_weightless,
    n_polynomial,
    pair_indices,
    pairs_of,
    polynomial_names,
    recentre,
)


def n_class_targets(classes: tuple[Label, ...]) -> int:
    """Return the number of target columns: one for two classes, else one for each class."""
    return 1 if len(classes) == 2 else len(classes)


def encode_labels(labels: Any, classes: tuple[Label, ...], n_rows: int, start: int | Array = 0) -> Floats:
    """Return labels as targets: -1 for the first of two classes and +1 for the second, else indicator columns.

    Raises `BadBlock` if the number or type of the labels is wrong, or a label is not among the classes, naming its row.
    `start`: Global index of the first row, or of every row, for messages.
    """
    if labels is None:
        raise BadBlock("moments with classes need a label for every row; pass y")
    values = as_labels(labels, n_rows)
    if values.dtype.kind == "O":
        values = np.array(values.tolist()) if n_rows else values
    text = isinstance(classes[0], str)
    if n_rows and values.dtype.kind not in ("UT" if text else "fiub"):
        raise BadBlock(f"the labels are of type {values.dtype}, the classes are {'text' if text else 'numbers'}")
    out = np.zeros((n_rows, len(classes)))
    for column, label in enumerate(classes):
        out[:, column] = values == label
    unknown = np.flatnonzero(out.sum(axis=1) != 1)
    if unknown.size:
        raise BadBlock(
            f"the label of row {number_of(int(unknown[0]), start)} is none of the {len(classes)} classes "
            f"({counted(unknown.size, 'such row')} in its block); list every class that occurs"
        )
    return out[:, 1:] - out[:, :1] if len(classes) == 2 else out


S = TypeVar("S")


class ClassTargets(Summary[S]):
    """Mixin of the summaries whose targets are numbers, or the codes of class labels."""

    classes: tuple[Label, ...] | None = None
    """Class labels if y are labels; the targets are then their codes."""

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> Floats:
        if self.classes is None:
            return as_targets(y, n_rows, start)
        return encode_labels(y, self.classes, n_rows, start)

    def _n_joint(self, n_features: int, n_targets: int) -> tuple[int, int]:
        """Return the numbers of features and of target columns, which classes determine."""
        return n_features, n_targets if self.classes is None else n_class_targets(self.classes)


@register
class Moments(ClassTargets[MomentsRecord], DecayingSummary[MomentsRecord]):
    """First and second moments of the rows [x, y], sufficient for linear models.

    The state is ``C = sum w (z - mean)(z - mean)'`` for z = [x, y]; merged with
    ``C = C_a + C_b + (W_a W_b / W) (mean_b - mean_a)(mean_b - mean_a)'``. Relative error of variances about
    1e-11 at mean/sd = 1e8, where raw sums of squares have no correct digit. Covariances of two float32 columns that are
    not whole numbers are exact to some ``6e-8 sqrt(C_ii C_jj)``, in blocks of at least 128 rows; their means, variances
    and covariances with a target are summed in float64, like those of other data. Coefficients multiply that error by
    the condition number: supervised selectors read float32 rows as float64.

    With a `half_life`, `decay` or `rates`, the row with global index i weighs ``g^(end - 1 - i)``, times its sample
    weight. `merge` scales both sides to the later `end`: exact, for any merge tree, and across gaps in the rows. All
    is normalised by the total weight W, so unbiased from the first row on. The age of a row is known from its global
    index alone, so `from_block` needs `start`; `update` continues from `end`.

    Parameters
    ----------
    method : {"comoment", "qr"}
        The state: C, or its triangular factor R (``R'R = C``) at twice the cost, for problems too ill-conditioned for
        C, whose condition number is the square of that of R.
    degree : {1, 2}
        With 2, also the moments of all squares and products of columns, for the moments of the standardised polynomial
        features (`expanded`): (p + p (p + 1) / 2)^2 numbers.
    products : bool
        With ``degree=2``, whether products of different columns are there; otherwise only squares: (2 p)^2 numbers.
    missing : {None, "pairwise"}
        With "pairwise", NaN in X is a missing value, and each covariance is that of the rows with a value in both
        columns (three numbers for each pair). Such a matrix need not be positive semidefinite.
    classes : sequence of str, int, bool or float, optional
        The labels in y. Targets are then -1 and +1 for two classes (+1 for the second), otherwise one indicator column
        for each class.
    half_life : float, optional
        Rows after which the weight of a row is halved: ``g = 2^(-1 / half_life)``. For complete rows, the co-moment and
        degree 1.
    decay : float, optional
        The factor g itself, in (0, 1], instead of a half-life; 1 - g is the rate alpha of the papers.
    rates : sequence of float, optional
        The rates alpha_n of rows 0, 1, ... instead, the last for all later rows too: the mean after row n
        is ``(1 - alpha_n)`` times the one before plus alpha_n times row n. Between 0 and 1; the first may be 1.

    Notes
    -----
    Cost a row: (p + q)^2 flops. Bytes: 8 (p + q)^2. With method="comoment", degree 1 and p + q of at least 1,024, the
    state is centred rows, whose product is C, while they are at most a quarter of p + q: those of each block, and one
    for each merge, so that updates by single rows reach that at an eighth of p + q.
    With a decay, the effective number of rows (`n_effective`) approaches (1 + g) / (1 - g), their mean age g / (1 - g),
    and files and messages call the kind "decayed-moments". With rates, row i weighs ``(alpha_i / alpha_e) prod_{i < j
    <= e} (1 - alpha_j)`` of the last row e.
    Source: Chan, Golub and LeVeque 1983; used as in Sun, Guo and Barbu 2019, section 2, and with a decay eq. 13, a rate
    for each observation, normalised.

    Examples
    --------
    >>> import numpy as np
    >>> X = 1e8 + np.arange(6.0).reshape(3, 2)
    >>> m = Moments().from_block(X[:1]).merge(Moments().from_block(X[1:]))
    >>> m.covariance().diagonal().round(6).tolist()
    [2.666667, 2.666667]
    >>> d = Moments(half_life=1).from_block(np.array([[0.0], [3.0]]))
    >>> d.weight, d.mean.tolist(), d.update(np.array([[3.0]])).weight
    (1.5, [2.0], 1.75)
    >>> Moments(rates=[1, 0.5, 0.25]).from_block(np.array([[0.0], [4.0], [6.0], [1.0]])).mean.tolist()
    [2.5]
    """

    kind = "moments"
    decayed_kind = "decayed-moments"
    format_version = 4
    record_type = MomentsRecord
    keeps_filled = True
    later_parameters: ClassVar[Mapping[str, Any]] = {"products": True}

    # The form of moments with a decay, whose files hold neither
    method = "comoment"
    degree = 1
    products = True
    missing: str | None = None

    def __init__(
        self,
        method: str = "comoment",
        degree: int = 1,
        missing: str | None = None,
        classes: Sequence[Any] | Array | None = None,
        half_life: float | None = None,
        decay: float | None = None,
        rates: Sequence[float] | Floats | None = None,
        products: bool = True,
    ) -> None:
        if method not in ("comoment", "qr"):
            raise BadParameter(f'method must be "comoment" or "qr", got {method!r:.40}')
        if isinstance(degree, bool) or degree not in (1, 2):
            raise BadParameter(f"degree must be 1 or 2, got {degree!r:.40}")
        if missing not in (None, "pairwise"):
            raise BadParameter(f'missing must be None or "pairwise", got {missing!r:.40}')
        if (method == "qr") + (degree == 2) + (missing is not None) > 1:
            raise BadParameter('method="qr", degree=2 and missing="pairwise" exclude each other; choose one')
        if not products and degree != 2:
            raise BadParameter("products=False keeps squares without products, which needs degree=2")
        self.method = method
        self.degree = int(degree)
        self.products = bool(products)
        self.missing = missing
        self.classes = as_classes(classes)
        self._set_decay(half_life, decay, rates)
        if self.decays and (method, degree, missing) != ("comoment", 1, None):
            raise BadParameter('half_life, decay and rates go with neither method="qr" nor degree=2 nor missing')

    def parameters(self) -> dict[str, Any]:
        """Return the form and the classes, or the decay of rows that lose weight and the classes."""
        if self.decays:
            names = ("half_life", "decay", "classes", "rates")
        else:
            names = ("method", "degree", "missing", "classes", *(("products",) if self.degree == 2 else ()))
        return {name: getattr(self, name) for name in names}

    @cached_property
    def _form(self) -> Form:
        if self.method == "qr":
            return Factor()
        if self.missing is not None:
            return Pairwise()
        return Products(self.products) if self.degree == 2 else RowsOrComoment()

    @property
    def written_version(self) -> int:
        """The version in files: 4 with rows of weight 0, else 3 of centred rows and squares without products, or 2."""
        if self.has_data and self.record.n_weightless is not None:
            return 4
        as_rows = self.has_data and self.record.factor is not None and isinstance(self._form, RowsOrComoment)
        return 3 if as_rows or not self.products else 2

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
        """Whether the state is one co-moment of the columns as they are, and none of the rows loses weight."""
        return (self.method, self.degree, self.missing) == ("comoment", 1, None) and not self.decays

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return self._form.nbytes(*self._n_joint(n_features, n_targets))

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        # With a decay, two states are scaled too.
        scaled = 2 * self.projected_nbytes(n_features, n_targets) if self.decays else 0
        return scaled + self._form.working_nbytes(*self._n_joint(n_features, n_targets))

    def _empty_like(self, record: Any) -> MomentsRecord:
        columns = self._n_joint(record.n_features, record.n_targets)
        if isinstance(self._form, RowsOrComoment):
            empty = self._form.empty_as(record.factor is not None, *columns)
        else:
            empty = self._form.empty(*columns)
        return replace(self._timed(empty), n_weightless=None if record.n_weightless is None else 0)

    def _empty(self, n_features: int, n_targets: int) -> MomentsRecord:
        return self._timed(self._form.empty(*self._n_joint(n_features, n_targets)))

    def _timed(self, empty: MomentsRecord) -> MomentsRecord:
        return replace(empty, end=0) if self.decays else empty

    def _summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        # Before weights decay: how many of old rows become 0 depends on the block.
        n_weightless = count_weightless(weights)
        end, weights = self._row_weights(start, block.shape[0], weights)
        record = self._form.summarise(block, targets, start, weights)
        return replace(record, end=end, n_weightless=n_weightless)

    def _combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        return self._form.combine(*self._aligned(left, right))

    def _scaled(self, record: MomentsRecord, factor: float, end: int) -> MomentsRecord:
        return replace(
            record,
            weight=record.weight * factor,
            squared_weight=record.squared_weight * factor * factor,
            comoment=None if record.comoment is None else record.comoment * factor,
            factor=None if record.factor is None else record.factor * np.sqrt(factor),
            single_scatter=record.single_scatter * factor,
            end=end,
        )

    def _joint_mean(self) -> Floats:
        return self._form.mean(self.record)

    def _scatter(self) -> Floats:
        return self._form.scatter(self.record)

    # --- answers -----------------------------------------------------------------------------------------------

    def details(self) -> Iterator[str]:
        """Yield the effective number of rows that lose weight, and the kind of target."""
        if self.decays:
            yield f"{self.n_effective:.6g} effective rows, weights decaying with age before row {self.end}"
        count = self.n_targets
        kind = "none" if count == 0 else "numbers" if count == 1 else f"{count} columns of numbers"
        if self.classes is not None:
            shown = ", ".join(f"{label!s:.40}" for label in self.classes[:5])
            kind = f"{len(self.classes)} classes ({shown}{', ...' if len(self.classes) > 5 else ''})"
        yield f"target: {kind}"

    @property
    def weight(self) -> float:
        """Total weight of the rows; their number by default."""
        return self.record.weight

    @property
    def n_effective(self) -> float:
        """Effective number of rows, ``(sum w)^2 / sum w^2``; 0 without weight."""
        squared = self.record.squared_weight
        return self.weight * (self.weight / squared) if squared > 0 else 0.0

    @property
    def n_weighted_rows(self) -> int:
        """Number of rows of positive weight; files from before version 4 count all rows, but for weights of 0 and 1."""
        record = self.record
        if record.n_weightless is None and record.weight == record.squared_weight == round(record.weight):
            return round(record.weight)  # all weights are 0 or 1
        return record.n_rows - (record.n_weightless or 0)

    @property
    def n_targets(self) -> int:
        """Number of target columns."""
        return self.record.n_targets

    @property
    def mean(self) -> Floats:
        """Means of the features, shape (n_features,)."""
        return self._joint_mean()[: self.n_features]

    @property
    def y_mean(self) -> Floats:
        """Means of the targets, shape (n_targets,)."""
        return self._joint_mean()[self.n_features :]

    @property
    def class_weights(self) -> Floats:
        """Total weight of the rows of each class, in the order of `classes`.

        Raises `BadParameter` if the targets are not class labels.
        """
        if self.classes is None:
            raise BadParameter("these moments have no classes; create them as Moments(classes=...)")
        shares = self.y_mean
        if len(self.classes) == 2:
            shares = np.array([(1 - shares[0]) / 2, (1 + shares[0]) / 2])
        return self.weight * shares

    def covariance(self, ddof: float = 0, columns: Any = None) -> Floats:
        """Return ``sum w (x - mean)(x - mean)' / (W - ddof)``, shape (n_features, n_features); or of some features.

        Raises `BadParameter` without more weight than `ddof`, or if `columns` are not indices of features.
        """
        x = slice(0, self.n_features)
        if columns is None:
            return self._divided(x, x, ddof)
        columns = self._features(columns)
        if self.missing is not None:
            # Each pair of columns is of other rows, and an error names a pair of all columns.
            return self._divided(x, x, ddof)[np.ix_(columns, columns)]
        rows, others = np.ix_(columns, columns)
        return self._divided(rows, others, ddof)

    @property
    def xy(self) -> Floats:
        """``(1/W) sum w (x - mean)(y - y_mean)'``, shape (n_features, n_targets)."""
        return self._divided(slice(0, self.n_features), slice(self.n_features, None))

    @property
    def yy(self) -> Floats:
        """``(1/W) sum w (y - y_mean)(y - y_mean)'``, shape (n_targets, n_targets)."""
        y = slice(self.n_features, None)
        return self._divided(y, y)

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Squared norms of the feature columns about their means."""
        return self._form.squares(self.record)[: self.n_features].copy()

    @property
    def centered_squared_norm(self) -> float:
        """Total scatter of the features about their mean."""
        return float(self.centered_column_squared_norms.sum())

    @cached_property
    def centered_directions(self) -> Directions:
        """Squared singular values and right singular vectors of the centred feature matrix, descending; exact."""
        p = self.n_features
        with one_blas_thread():
            return symmetric_directions(self._scatter()[:p, :p])

    @property
    def single_rounding(self) -> float:
        """Bound, in the Frobenius norm, of the error of the scatter from products in float32; 0 for other data."""
        return SINGLE_UNIT * self.record.single_scatter

    # --- as a `Spectrum` ---------------------------------------------------------------------------------------

    size: ClassVar[None] = None
    is_exact: ClassVar[bool] = True
    shrinkage: ClassVar[float] = 0.0

    @property
    def product_rounding(self) -> float:
        """Relative rounding of the products: that of float32, or 0 for float64."""
        if self.single_rounding == 0:
            return 0.0
        # Files of earlier versions may state more.
        return max(SINGLE_ROUNDING, self.single_rounding / self.centered_squared_norm)

    @property
    def directions(self) -> Directions:
        """Squared singular values and right singular vectors of the feature matrix, descending."""
        with one_blas_thread():
            return symmetric_directions(self.gram())

    @property
    def column_squared_norms(self) -> Floats:
        """Squared norms of the columns."""
        return self.gram().diagonal().copy()

    @property
    def centered_gram(self) -> Floats:
        """Covariance of the columns: the Gram matrix about the mean, divided by the weight."""
        return self.covariance()

    @property
    def centered_sketch(self) -> Floats:
        """Rows with the Gram matrix of the centred rows: singular values times singular vectors."""
        directions = self.centered_directions
        rows: Floats = np.sqrt(directions.squares)[:, None] * directions.vectors
        return rows

    # --- answers of one form -----------------------------------------------------------------------------------

    @property
    def few_rows(self) -> Floats | None:
        """Rows B with ``B'B = sum w (x - mean)(x - mean)'``, if there are at most a quarter as many as columns."""
        rows = self._form.few_rows(self.record)
        return None if rows is None else rows[:, : self.n_features]

    @property
    def factor(self) -> Floats:
        """Upper-triangular R of the centred [X y], with ``R'R = W x covariance``; for method="qr".

        Shape (min(n_rows, d), d) with d = n_features + n_targets.
        """
        if self.method != "qr" or self.record.factor is None:
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
            If columns are linearly dependent to working precision or not indices of features, or the method is not
            "qr".

        Examples
        --------
        >>> import numpy as np
        >>> x = np.arange(20.0)[:, None] ** np.arange(1, 6)
        >>> coef, intercept = Moments(method="qr").from_block(x, 1 + x.sum(axis=1)).least_squares()
        >>> bool(np.allclose(coef, 1, rtol=1e-7))
        True
        """
        chosen = np.arange(self.n_features) if columns is None else self._features(columns)
        with one_blas_thread():
            coef = factor_least_squares(self.factor, self.n_features, chosen)
        return coef, self.y_mean - self.mean[chosen] @ coef

    def _features(self, columns: Any) -> NDArray[np.intp]:
        """Return the indices of some features, which may be counted from the last; never that of a target."""
        try:
            chosen: NDArray[np.intp] = np.atleast_1d(np.arange(self.n_features)[columns])
        except IndexError as error:
            raise BadParameter(f"columns must be indices of the {self.n_features} features: {error}") from None
        return chosen

    def _divided(self, rows: slice | Array, columns: slice | Array, ddof: float = 0) -> Floats:
        if self.missing is None:
            divisor = self.weight - ddof
            if divisor <= 0:
                raise BadParameter(f"covariance of total weight {self.weight:g} with ddof = {ddof:g} is undefined")
            return self._form.scatter_of(self.record, rows, columns) / divisor
        pairs = pairs_of(self.record)
        divisors = pairs.weight[rows, columns] - ddof
        if (divisors <= 0).any():
            i, j = np.argwhere(divisors <= 0)[0]
            empty = pairs.weight.diagonal() <= ddof
            if empty.any():
                raise BadParameter(
                    f"column {int(empty.argmax())} has too few values that are not missing for a variance; leave it out"
                )
            raise BadParameter(
                f"columns {int(i)} and {int(j)} have no covariance: the rows with values in both have a weight of "
                f"{float(divisors[i, j]) + ddof:g}; leave one out"
            )
        out: Floats = pairs.scatter[rows, columns] / divisors
        return out

    def gram(self) -> Floats:
        """Return ``A'A = sum w x x'``, about zero; shape (n_features, n_features)."""
        if self.missing is not None:
            raise BadParameter("rows with missing values have no Gram matrix; use covariance()")
        p = self.n_features
        return self._scatter()[:p, :p] + np.outer(self.weight * self.mean, self.mean)

    def expanded(
        self, mean: Floats | None = None, scale: Floats | None = None, products: bool | None = None
    ) -> Moments:
        """Return the moments of the standardised polynomial features, for degree=2, as plain `Moments`.

        The features are z_i = (x_i - mean_i) / sd_i (population sd; zeros for a constant column), then z_i z_j for
        i <= j row by row; they have names. ``moment_forms.expand(X, mean, sd)`` computes them for other rows.

        Parameters
        ----------
        mean, scale : arrays of shape (n_features,), optional
            Mean and sd of other rows, for the same features in several parts; by default those of these rows.
        products : bool, optional
            False: only z_i and z_i^2. By default products too, if these moments have them.

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
        moved, comoment = recentre(record.mean, record.comoment, offset, units, self.products)
        with_products = self.products if products is None else bool(products)
        if with_products and not self.products:
            raise BadParameter("these moments have squares and no products; create them as Moments(degree=2)")
        if self.products and not with_products:
            first, second = pair_indices(p)
            squares = p + np.flatnonzero(first == second)
            columns = np.concatenate([np.arange(p), squares, np.arange(n_polynomial(p), moved.size)])
            moved, comoment = moved[columns], comoment[np.ix_(columns, columns)]
        plain = MomentsRecord(
            record.n_rows,
            record.n_targets,
            record.weight,
            record.squared_weight,
            moved,
            comoment,
            n_weightless=record.n_weightless,
        )
        moments = Moments(classes=self.classes)._with(plain, self.context)
        return moments.with_context(
            prepare=self.prepare, feature_names=polynomial_names(self.feature_names, p, with_products)
        )


@register
class DecayedMoments(Moments):
    """`Moments` with a `half_life`, `decay` or `rates`, by its former name; files of that kind are loaded as this.

    Parameters
    ----------
    half_life, decay, classes, rates
        As in `Moments`; one of `half_life`, `decay` and `rates`.
    """

    kind = "decayed-moments"
    later_parameters: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        half_life: float | None = None,
        decay: float | None = None,
        classes: Sequence[Any] | Array | None = None,
        rates: Sequence[float] | Floats | None = None,
    ) -> None:
        super().__init__(classes=classes, half_life=half_life, decay=decay, rates=rates)
        self._require_decay()
