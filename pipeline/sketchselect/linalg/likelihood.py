"""Sums over rows of negative log likelihoods of generalised linear models, their gradients and Hessians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchselect.linalg.validation import Floats

Family = Literal["binomial", "multinomial", "poisson"]

INTERCEPT = -1
"""The column of intercepts in `Terms`."""

_PIECE_VALUES = 1 << 19  # Numbers in one array of a piece of rows, 4 MiB; several such arrays are in memory at a time
_MOST_MARGIN = 300.0  # Of a Poisson model: a mean of e^300 leaves room for sums and squares in float64


@dataclass(frozen=True)
class Terms:
    """The coefficients of several models, in one list: those of a model together, ascending by model and output.

    A model has the outputs 0, ..., q - 1: one, or for a multinomial model one for each class. A coefficient in the list
    may be zero.
    """

    # Each of shape (n_terms,)
    models: NDArray[np.int64]
    columns: NDArray[np.int64]  # INTERCEPT for an intercept
    outputs: NDArray[np.int64]
    values: Floats

    def of_model(self, model: int) -> slice:
        """Return where the terms of a model are."""
        first, last = np.searchsorted(self.models, [model, model + 1])
        return slice(int(first), int(last))


@dataclass(frozen=True)
class Sums:
    """Sums over rows for each model, each row times its weight for that model."""

    losses: Floats  # shape (n_models,): Negative log likelihood, without what does not depend on the model
    held_out: Floats  # shape (n_models,): The same of the rows that the model leaves out
    gradients: Floats  # shape (n_models, n_outputs, p + 1): By the coefficients, the intercept last
    hessians: Floats  # The curved models' matrices, one row and column for each term, flattened and concatenated
    # Each of shape (n_models,): Weight of misclassified rows, and of those that the model leaves out; None for counts
    wrong: Floats | None
    held_out_wrong: Floats | None


def n_outputs(family: Family, n_classes: int) -> int:
    """Return the number of outputs of a model."""
    return n_classes if family == "multinomial" else 1


def mean_response(family: Family, margins: Floats) -> Floats:
    """Return the mean of the target: the probability of the second class, of each class (last axis), or the rate."""
    if family == "binomial":
        return np.asarray(scipy.special.expit(margins))
    if family == "poisson":
        return np.asarray(np.exp(np.minimum(margins, _MOST_MARGIN)))
    shifted = np.exp(margins - margins.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def losses(family: Family, margins: Floats, y: Floats) -> Floats:
    """Return the negative log likelihood of each row and model.

    `margins`, shape (n_rows, n_models, n_outputs).
    `y`, shape (n_rows, n_outputs): 0 or 1 for the second of two classes, indicators of classes, or counts.
    """
    if family == "binomial":
        return np.asarray(np.logaddexp(0.0, margins[..., 0]) - y * margins[..., 0])
    if family == "poisson":
        return np.asarray(mean_response(family, margins)[..., 0] - y * margins[..., 0])
    return np.asarray(scipy.special.logsumexp(margins, axis=-1) - np.einsum("ik,imk->im", y, margins))


def misclassified(family: Family, margins: Floats, y: Floats) -> NDArray[np.bool_]:
    """Return whether the class that each model predicts of a row is another one, shape (n_rows, n_models).

    `margins`, `y`: As in `losses`, of a family of classes.
    """
    if family == "binomial":
        return np.asarray((margins[..., 0] > 0) != (y > 0.5))
    return np.asarray(margins.argmax(axis=-1) != y.argmax(axis=-1)[:, None])


def saturated_loss(family: Family, y: Floats) -> Floats:
    """Return the least negative log likelihood of each row that any model can have."""
    return (y - scipy.special.xlogy(y, y))[:, 0] if family == "poisson" else np.zeros(y.shape[0])


def likelihood_sums(
    rows: Any,
    y: Floats,
    weights: Floats,
    fold: NDArray[np.intp],
    folds: NDArray[np.int64],
    family: Family,
    terms: Terms,
    curved: NDArray[np.bool_],
) -> Sums:
    """Return the losses, gradients and Hessians of several models, summed over rows.

    `rows`, shape (n_rows, p): Standardised; a callable ``(start, stop) -> array`` makes them piece by piece.
    `y`, shape (n_rows, n_outputs): As in `losses`.
    `weights`, `fold`, shape (n_rows,): Weight of a row, and its fold.
    `folds`, shape (n_models,): Fold that a model leaves out.
    `curved`, shape (n_models,): Models whose Hessian is computed.
    """
    n_rows, n_models = weights.size, folds.size
    q = y.shape[1]
    pieces = rows if callable(rows) else (lambda a, b: rows[a:b])
    p = pieces(0, 0).shape[1]
    curved_models = np.flatnonzero(curved).tolist()
    own_terms = [terms.of_model(i) for i in curved_models]
    used = np.unique(terms.columns)
    coef = np.zeros((used.size, n_models * q))
    coef[np.searchsorted(used, terms.columns), terms.models * q + terms.outputs] = terms.values
    gradients = np.zeros((n_models, q, p + 1))
    loss_sums, held_sums, wrong, held_wrong = (np.zeros(n_models) for _ in range(4))
    sides = [own.stop - own.start for own in own_terms]
    edges = np.cumsum([0, *(side * side for side in sides)])
    flat = np.zeros(edges[-1])
    hessians = [flat[a:b].reshape(side, side) for a, b, side in zip(edges, edges[1:], sides, strict=False)]
    height = max(_PIECE_VALUES // max(n_models * q, p + 1), 16)
    for start in range(0, n_rows, height):
        stop = min(start + height, n_rows)
        design = np.ones((stop - start, p + 1))
        design[:, :p] = pieces(start, stop)
        y_piece, left_out = y[start:stop], fold[start:stop, None] == folds
        w, held = (np.where(where, weights[start:stop, None], 0.0) for where in (~left_out, left_out))
        margins = (design[:, used] @ coef).reshape(stop - start, n_models, q)
        row_losses = losses(family, margins, y_piece)
        means = mean_response(family, margins)
        residuals = ((means - y_piece[:, None, :]) * w[:, :, None]).reshape(stop - start, n_models * q)
        loss_sums += np.einsum("im,im->m", row_losses, w)
        held_sums += np.einsum("im,im->m", row_losses, held)
        gradients += (residuals.T @ design).reshape(n_models, q, p + 1)
        if family != "poisson":
            errors = misclassified(family, margins, y_piece)
            wrong += np.einsum("im,im->m", errors, w)
            held_wrong += np.einsum("im,im->m", errors, held)
        for i, own, hessian in zip(curved_models, own_terms, hessians, strict=True):
            _add_hessian(hessian, design, terms.columns[own], terms.outputs[own], family, margins[:, i], w[:, i])
    counts = (None, None) if family == "poisson" else (wrong, held_wrong)
    return Sums(loss_sums, held_sums, gradients, flat, *counts)


def _add_hessian(
    out: Floats,
    design: Floats,
    columns: NDArray[np.int64],
    outputs: NDArray[np.int64],
    family: Family,
    margins: Floats,
    weights: Floats,
) -> None:
    """Add to `out` the Hessian of one model on some rows, by its own terms."""
    chosen = design[:, columns]
    if family != "multinomial":
        if family == "poisson":
            variance = mean_response(family, margins)[:, 0]
        else:
            variance = scipy.special.expit(margins[:, 0]) * scipy.special.expit(-margins[:, 0])
        scaled = chosen * np.sqrt(weights * variance)[:, None]
        out += scaled.T @ scaled
        return
    # diag(pi) - pi pi' between the outputs.
    roots = np.sqrt(weights)[:, None]
    shares = mean_response(family, margins)
    for k in np.unique(outputs):
        at = outputs == k
        scaled = chosen[:, at] * (roots * np.sqrt(shares[:, [k]]))
        out[np.ix_(at, at)] += scaled.T @ scaled
    chosen *= roots * shares[:, outputs]
    out -= chosen.T @ chosen
