"""LikelihoodSums: log likelihood, gradient and Hessian of generalised linear models with given coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.likelihood import Family, Terms, likelihood_sums, n_outputs, saturated_loss
from sketchselect.linalg.validation import (
    MOST_TIMES,
    Array,
    Floats,
    as_targets,
    canonical,
    global_rows,
    number_of,
    require_number,
    require_positive,
    require_seed,
    without_groups,
)
from sketchselect.summaries.base import Summary, as_classes, register
from sketchselect.summaries.moments import encode_labels
from sketchselect.summaries.partitioned import fold_numbers

ALL_ROWS = -1
"""The fold of a model that leaves no rows out."""

_ROUNDING = 1e-13
"""Share of two losses below which their difference is that of their rounding."""

_WORKING_NBYTES = 64 << 20
"""Bytes of the pieces of rows that `likelihood_sums` works on."""


@dataclass(frozen=True)
class LikelihoodRecord:
    """State of `LikelihoodSums`: sums over rows for each model, and weights of the folds."""

    n_rows: int
    n_features: int
    fold_weights: Floats  # shape (max(n_folds, 1),)
    saturated: Floats  # Of the same shape: loss of a model that fits every row
    responses: Floats  # shape (n_outputs,): Sum of the targets, as outputs
    squared_weight: float
    losses: Floats
    held_out: Floats
    gradients: Floats
    hessians: Floats
    # Of classes, shape (n_models,): weight of the misclassified rows; format versions 1 and 2 have none
    wrong: Floats | None = None
    held_out_wrong: Floats | None = None


class Targets(NamedTuple):
    """Targets as the outputs of a model, and the words of the groups of their rows."""

    y: Floats
    groups: NDArray[np.uint64] | None


@register
class LikelihoodSums(Summary[LikelihoodRecord]):
    """Negative log likelihood, gradient and Hessian of generalised linear models, at given coefficients.

    All that a step of Newton's method needs of the rows, for several models in one pass: for each model the sums of
    ``w l(y, eta)``, ``w (mu - y) z`` and ``w z V(mu) z'`` over its rows, with ``eta = b0 + z'b`` of the standardised
    row z. With folds a model can leave one out; its losses on the rows left out are summed too. Of classes, the rows
    that a model takes for another class are counted.

    Parameters
    ----------
    family : {"binomial", "multinomial", "poisson"}
        Two classes by the log odds of the second; classes by softmax of one output each; counts by their logarithm.
    models : array of shape (n_models, 3)
        For each model the strength alpha of its penalty, the fold it leaves out (-1 for none), and 1 where its Hessian
        is computed, else 0.
    terms : array of shape (n_terms, 4)
        Model, column (-1 for the intercept), output and value of the coefficients of standardised columns; sorted by
        model and output. The Hessian of a model is that of its terms, which may be zero.
    mean, scale : array of shape (n_features,), optional
        ``z = (x - mean) / scale``, 0 where the scale is 0; the rows themselves by default.
    classes : sequence, optional
        Labels in y, for the first two families.
    l1_ratio : float or array of shape (n_models,)
        Share of the lasso in the penalty of the models, or of each, for those who read the summary.
    n_folds, seed, groups : int, int, bool
        Folds as in `Folds`; 0 for none.

    Raises
    ------
    BadParameter
        For arrays that do not belong together, or classes that do not go with the family.

    Notes
    -----
    Cost a row: 4 m p flops for m models (times outputs), and 2 s^2 for each Hessian of s terms.
    Bytes: 8 m p and 8 s^2 for each Hessian.
    Source: McCullagh and Nelder 1989, section 2.5 (the sums of iteratively reweighted least squares).

    Examples
    --------
    >>> import numpy as np
    >>> null = LikelihoodSums("binomial", [[0.1, -1, 1]], [[0, -1, 0, 0.0]], classes=["no", "yes"])
    >>> s = null.from_block(np.array([[1.0], [3.0]]), ["no", "yes"])
    >>> s.losses.round(3).tolist(), s.gradients.ravel().tolist(), s.hessian(0).tolist()
    ([1.386], [-1.0, 0.0], [[0.5]])
    """

    kind = "likelihood-sums"
    format_version = 3
    record_type = LikelihoodRecord
    takes_groups = True

    def __init__(
        self,
        family: Family,
        models: ArrayLike,
        terms: ArrayLike,
        mean: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        classes: Sequence[Any] | Array | None = None,
        l1_ratio: float | ArrayLike = 1.0,
        n_folds: int = 0,
        seed: int = 0,
        groups: bool = False,
    ) -> None:
        if family not in ("binomial", "multinomial", "poisson"):
            raise BadParameter(f'family must be "binomial", "multinomial" or "poisson", got {family!r:.40}')
        self.family: Family = family
        self.classes = as_classes(classes)
        if (self.classes is None) != (family == "poisson"):
            raise BadParameter(f"family={family!r}: classes are for binomial and multinomial models, which need them")
        if family == "binomial" and len(self.classes or ()) != 2:
            raise BadParameter(f"a binomial model has two classes, got {len(self.classes or ())}")
        self.models = _array("models", models, 3)
        self.terms = _array("terms", terms, 4)
        self.mean = None if mean is None else canonical(np.asarray(mean), np.float64)
        self.scale = None if scale is None else canonical(np.asarray(scale), np.float64)
        self.l1_ratio: float | Floats = _ratios(l1_ratio, len(self.models))
        self.n_folds = require_positive("n_folds", n_folds, 0, MOST_TIMES)
        self.seed = require_seed(seed)
        self.groups = bool(groups)
        owner, column, output = self.terms[:, :3].astype(np.int64).T if self.terms.size else np.zeros((3, 0), np.int64)
        order = np.lexsort((column, output, owner))
        if (order != np.arange(order.size)).any():
            raise BadParameter("terms must be sorted by model, output and column")
        if owner.size and not (owner[0] >= 0 and owner[-1] < len(self.models) and output.max() < self.n_outputs):
            raise BadParameter("terms name a model or an output that there is not")
        if (
            self.models.size
            and not ((self.models[:, 1] >= ALL_ROWS) & (self.models[:, 1] < max(self.n_folds, 0.5))).all()
        ):
            raise BadParameter(f"models name a fold that there is not: there are {self.n_folds}")

    @property
    def written_version(self) -> int:
        """The format version in files: 3 of classes with counts of errors, 2 of several l1_ratios, else 1."""
        counts = self.record.wrong is not None if self.has_data else self.classes is not None
        if counts:
            return 3
        return 1 if isinstance(self.l1_ratio, float) else 2

    @property
    def n_outputs(self) -> int:
        """Outputs of a model: 1, or for a multinomial one the number of classes."""
        return n_outputs(self.family, len(self.classes or ()))

    @property
    def alphas(self) -> Floats:
        """Strength of the penalty of each model."""
        return self.models[:, 0]

    @property
    def l1_ratios(self) -> Floats:
        """Share of the lasso in the penalty of each model."""
        return np.broadcast_to(self.l1_ratio, self.alphas.shape)

    @property
    def folds(self) -> NDArray[np.int64]:
        """Fold that each model leaves out; -1 for none."""
        return self.models[:, 1].astype(np.int64)

    @cached_property
    def coefficients(self) -> Terms:
        """The terms of the models."""
        owner, column, output = (self.terms[:, i].astype(np.int64) for i in range(3))
        return Terms(owner, column, output, self.terms[:, 3].copy())

    @cached_property
    def _hessian_edges(self) -> NDArray[np.int64]:
        """Where the Hessian of each model begins in the flat array, and where the last one ends."""
        sizes = np.bincount(self.coefficients.models, minlength=len(self.models)) * (self.models[:, 2] > 0)
        return np.concatenate([[0], np.cumsum(sizes.astype(np.int64) ** 2)])

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        n_sums = len(self.models) * (self.n_outputs * (n_features + 1) + 4) + self.n_outputs
        return 8 * (n_sums + int(self._hessian_edges[-1]) + 2 * max(self.n_folds, 1)) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        return _WORKING_NBYTES + 16 * len(self.models) * self.n_outputs * (n_features + 1)

    def _empty(self, n_features: int, n_targets: int) -> LikelihoodRecord:
        m, folds = len(self.models), np.zeros(max(self.n_folds, 1))
        gradients = np.zeros((m, self.n_outputs, n_features + 1))
        return LikelihoodRecord(
            n_rows=0,
            n_features=n_features,
            fold_weights=folds,
            saturated=folds,
            responses=np.zeros(self.n_outputs),
            squared_weight=0.0,
            losses=np.zeros(m),
            held_out=np.zeros(m),
            gradients=gradients,
            hessians=np.zeros(self._hessian_edges[-1]),
            wrong=None if self.classes is None else np.zeros(m),
            held_out_wrong=None if self.classes is None else np.zeros(m),
        )

    def _empty_like(self, record: LikelihoodRecord) -> LikelihoodRecord:
        empty = super()._empty_like(record)
        return empty if record.wrong is not None else replace(empty, wrong=None, held_out_wrong=None)

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> Targets:
        entries, groups = without_groups(y)
        if self.groups != (groups is not None) and (groups is None or self.n_folds):
            cure = "need every row's group, as of readers.grouped" if self.groups else "are of rows; leave out groups"
            raise BadBlock(f"these folds {cure}")
        if self.classes is not None:
            codes = encode_labels(entries, self.classes, n_rows, start)
            # Of two classes there is one column of +-1.
            if len(self.classes) == 2:
                codes = (1.0 + codes) / 2.0
                codes = np.hstack([1.0 - codes, codes]) if self.n_outputs == 2 else codes
            return Targets(codes, groups)
        counts = as_targets(entries, n_rows, start)
        if counts.shape[1] != 1:
            raise BadBlock(f"a Poisson model has one target, got {counts.shape[1]} columns")
        if (counts < 0).any():
            row = number_of(int(np.argmax(counts[:, 0] < 0)), start)
            raise BadBlock(f"a Poisson model needs targets of at least 0, unlike that of row {row}")
        return Targets(counts, groups)

    def encoded(self, y: Any) -> Targets:
        """Return targets as the outputs of a model, and the groups of their rows; see `from_block` for errors."""
        return self._targets(y, len(y))

    def standardised(self, block: Any) -> Any:
        """Return rows standardised."""
        rows = np.asarray(block, dtype=np.float64)
        if self.mean is not None:
            rows = rows - self.mean
        if self.scale is not None:
            rows = np.divide(rows, self.scale, out=np.zeros(rows.shape), where=self.scale > 0)
        return rows

    def fold_of(self, rows: Any, groups: NDArray[np.uint64] | None = None) -> NDArray[np.intp]:
        """Return the fold of each row, from its global index, or the word of its group; 0 without folds."""
        if not self.n_folds:
            return np.zeros(len(rows), dtype=np.intp)
        return fold_numbers(self.seed, self.n_folds, rows if groups is None else groups)

    def _summarise(self, block: Array, targets: Targets, start: int | Array, weights: Floats | None) -> Any:
        n_rows, p = block.shape
        width = None if self.mean is None else self.mean.size
        if width not in (None, p):
            raise BadBlock(f"the models are of {width} columns, the block has {p}")
        fold = self.fold_of(global_rows(start, n_rows), targets.groups)
        row_weights = np.ones(n_rows) if weights is None else weights
        sums = likelihood_sums(
            lambda a, b: self.standardised(block[a:b]),
            targets.y,
            row_weights,
            fold,
            self.folds,
            self.family,
            self.coefficients,
            self.models[:, 2] > 0,
        )
        n_folds = max(self.n_folds, 1)
        by_fold = np.bincount(fold, row_weights, minlength=n_folds).astype(np.float64)
        losses = row_weights * saturated_loss(self.family, targets.y)
        saturated = np.bincount(fold, losses, minlength=n_folds).astype(np.float64)
        responses, squared = row_weights @ targets.y, float(row_weights @ row_weights)
        return LikelihoodRecord(n_rows, p, by_fold, saturated, responses, squared, **vars(sums))

    def _combine(self, left: LikelihoodRecord, right: LikelihoodRecord) -> LikelihoodRecord:
        pairs = ((name, a, vars(right)[name]) for name, a in vars(left).items() if name != "n_features")
        sums: dict[str, Any] = {name: None if a is None or b is None else a + b for name, a, b in pairs}
        return LikelihoodRecord(n_features=left.n_features, **sums)

    @classmethod
    def joined(cls, groups: Sequence[LikelihoodSums]) -> LikelihoodSums:
        """Return the sums of the models of several groups over the same rows, without the Hessians."""
        first, n_before = groups[0], np.cumsum([0, *(len(group.models) for group in groups)])
        models = np.concatenate([group.models for group in groups])
        models[:, 2] = 0
        terms = [group.terms + np.array([n, 0, 0, 0]) for group, n in zip(groups, n_before, strict=False)]
        parameters = first.parameters() | {"models": models, "terms": np.concatenate(terms)}
        if not isinstance(first.l1_ratio, float):
            parameters["l1_ratio"] = np.concatenate([group.l1_ratios for group in groups])
        by_model = ("losses", "held_out", "gradients", "wrong", "held_out_wrong")
        sums = {name: [getattr(group.record, name) for group in groups] for name in by_model}
        together: dict[str, Any] = {
            name: None if arrays[0] is None else np.concatenate(arrays) for name, arrays in sums.items()
        }
        return cls(**parameters)._with(replace(first.record, hessians=np.zeros(0), **together), first.context)

    # --- answers -----------------------------------------------------------------------------------------------

    def details(self) -> Iterator[str]:
        """Yield the number and the family of the models."""
        folds = f", {self.n_folds} folds" if self.n_folds else ""
        yield f"{len(self.models)} {self.family} models{folds}"

    @property
    def weight(self) -> float:
        """Total weight of the rows."""
        return float(self.record.fold_weights.sum())

    @property
    def n_effective(self) -> float:
        """Effective number of rows, ``(sum w)^2 / sum w^2``; 0 without weight."""
        squared = self.record.squared_weight
        return self.weight * (self.weight / squared) if squared > 0 else 0.0

    @property
    def model_weights(self) -> Floats:
        """Total weight of the rows of each model, shape (n_models,)."""
        by_fold = self.record.fold_weights
        out: Floats = np.where(self.folds >= 0, self.weight - by_fold[np.maximum(self.folds, 0)], self.weight)
        return out

    @property
    def losses(self) -> Floats:
        """Sum of the negative log likelihood over the rows of each model, shape (n_models,)."""
        return self.record.losses

    @property
    def gradients(self) -> Floats:
        """Derivatives of `losses` by coefficients, shape (n_models, n_outputs, n_features + 1); intercepts last."""
        return self.record.gradients

    def hessian(self, model: int) -> Floats:
        """Return the second derivatives of a model's loss by its terms, shape (n_terms, n_terms)."""
        first, last = self._hessian_edges[model : model + 2]
        side = math.isqrt(last - first)
        return self.record.hessians[first:last].reshape(side, side)

    @property
    def deviances(self) -> Floats:
        """Mean deviance of each model on its rows, shape (n_models,)."""
        best = self.record.saturated
        left_out = np.where(self.folds >= 0, best[np.maximum(self.folds, 0)], 0.0)
        return 2.0 * _ratio(self.losses - (best.sum() - left_out), self.model_weights)

    @property
    def null_deviance(self) -> float:
        """Least mean deviance of a model without columns, on all rows; 0 without weight."""
        if not self.weight > 0:
            return 0.0
        mean = self.record.responses / self.weight
        if self.family == "poisson":
            loss = float(mean[0] - scipy.special.xlogy(mean[0], mean[0]))
        else:
            loss = -float(scipy.special.xlogy(mean, mean).sum())
            loss -= float(scipy.special.xlogy(1.0 - mean[0], 1.0 - mean[0])) if self.family == "binomial" else 0.0
        least = float(self.record.saturated.sum()) / self.weight
        difference = loss - least
        return 2.0 * difference if difference > _ROUNDING * (abs(loss) + abs(least)) else 0.0

    @property
    def held_out_deviances(self) -> Floats:
        """Mean deviance of each model on the rows that it leaves out, shape (n_models,); NaN if there are none."""
        at = np.maximum(self.folds, 0)
        losses = self.record.held_out - self.record.saturated[at]
        out: Floats = np.where(self.folds >= 0, 2.0 * _ratio(losses, self.record.fold_weights[at]), np.nan)
        return out

    @property
    def misclassification_rates(self) -> Floats | None:
        """Share of the rows of each model that it takes for another class; None of counts, and of older files."""
        wrong = self.record.wrong
        return None if wrong is None else _ratio(wrong, self.model_weights)

    @property
    def held_out_misclassification_rates(self) -> Floats | None:
        """The same of the rows that each model leaves out; NaN if there are none."""
        wrong = self.record.held_out_wrong
        if wrong is None:
            return None
        out: Floats = np.where(
            self.folds >= 0, _ratio(wrong, self.record.fold_weights[np.maximum(self.folds, 0)]), np.nan
        )
        return out


def _ratio(sums: Floats, weights: Floats) -> Floats:
    out: Floats = np.divide(sums, weights, out=np.full(sums.shape, np.nan), where=weights > 0)
    return out


def _array(name: str, values: ArrayLike, width: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != width or not np.isfinite(array).all():
        raise BadParameter(f"{name} must be finite numbers of shape (n, {width}), got {array.shape}")
    array = canonical(array).copy()
    array.flags.writeable = False
    return array


def _ratios(values: float | ArrayLike, n_models: int) -> float | Floats:
    if not np.ndim(values):
        return require_number("l1_ratio", values, above=0, most=1)
    array = canonical(np.asarray(values, dtype=np.float64)).copy()
    if array.shape != (n_models,) or not ((array > 0) & (array <= 1)).all():
        raise BadParameter(f"l1_ratio must be above 0 and at most 1, one number or one of each of {n_models} models")
    array.flags.writeable = False
    return array
