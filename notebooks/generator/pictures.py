"""Pictures of what methods select, on data that scikit-learn includes or that are drawn here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes, load_digits

from sketchselect.selectors.registry import METHODS

BLUE, GREY = "#2a6fb0", "#c9d3dc"
N_PIXELS = 16


def draw(name: str, path: Path) -> str:
    """Draw the picture of a method into an SVG file, and return its description."""
    mpl.rcParams["svg.hashsalt"] = "sketchselect"  # The same file every time
    cls = METHODS[name]
    kind = _path if cls.fits_model else _scores if cls.needs_target else _genes if cls.needs_counts else _pixels
    figure = plt.figure(figsize=(6.4, 2.8), layout="constrained")
    try:
        alt = kind(figure, name)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
    finally:
        plt.close(figure)
    return alt


def _pixels(figure: Any, name: str) -> str:
    """Draw the pixels that a method selects of pictures of digits, and the scores of all pixels."""
    X = load_digits().data
    selector = METHODS[name](n_features_to_select=N_PIXELS).fit(X)
    chosen = selector.get_support()
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.8])
    left.imshow(X.mean(axis=0).reshape(8, 8), cmap="Greys", alpha=0.5)
    for row, column in np.argwhere(chosen.reshape(8, 8)):
        left.add_patch(plt.Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=BLUE, edgecolor="white", alpha=0.85))
    left.set(xticks=[], yticks=[], title=f"{chosen.sum()} of 64 pixels")
    scores = np.asarray(selector.scores_, dtype=float)
    order = np.argsort(-scores, kind="stable")
    right.bar(np.arange(64), scores[order], color=np.where(chosen[order], BLUE, GREY))
    right.set(xlabel="pixels, best first", ylabel="score", title="scores; selected pixels in blue")
    return f"The {chosen.sum()} of 64 pixels that {name} selects of 1,797 digits, and the scores of all pixels"


def _genes(figure: Any, name: str) -> str:
    """Draw variances of made counts against their means, with the genes that a method selects."""
    rng = np.random.default_rng(0)
    n_genes = 400
    means = rng.gamma(1.0, 3.0, n_genes) + 0.05
    kind = rng.integers(3, size=600)
    factors = np.ones((3, n_genes))
    for j in range(3):
        factors[j, 10 * j : 10 * j + 10] = 4
    counts = rng.poisson(means * factors[kind]).astype(float)
    chosen = METHODS[name](n_features_to_select=30).fit(counts).get_support()
    axes = figure.subplots()
    for mask, color, label in ((~chosen, GREY, "other genes"), (chosen, BLUE, "selected")):
        axes.loglog(counts.mean(axis=0)[mask], counts.var(axis=0)[mask], ".", color=color, label=label)
    axes.set(xlabel="mean of the counts", ylabel="variance", title="30 of 400 genes")
    axes.legend()
    return f"Variances of 400 genes against their means, and the 30 that {name} selects: those above the trend"


def _scores(figure: Any, name: str) -> str:
    """Draw the scores of the columns for a target of ten columns, the selected ones in blue."""
    data = load_diabetes()
    selector = METHODS[name]().fit(data.data, data.target)
    order = np.argsort(-selector.scores_, kind="stable")
    axes = figure.subplots()
    colors = np.where(selector.get_support()[order], BLUE, GREY)
    axes.bar(np.array(data.feature_names)[order], selector.scores_[order], color=colors)
    axes.set(ylabel="score", title="scores; selected columns in blue")
    n_selected = len(selector.support_)
    return f"Scores of the ten columns of the diabetes data of scikit-learn, and the {n_selected} that {name} selects"


def _path(figure: Any, name: str) -> str:
    """Draw the coefficients of the models of every size for a target of ten columns."""
    X, y = load_diabetes(return_X_y=True)
    sizes = np.arange(1, X.shape[1] + 1)
    coefficients = np.zeros((len(sizes), X.shape[1]))
    for row, size in enumerate(sizes):
        selector = METHODS[name](n_features_to_select=int(size))
        is_of_classes = "family" in selector.get_params()
        model = selector.fit(X, y > np.median(y) if is_of_classes else y)
        coefficients[row] = np.asarray(model.coef_).ravel() * X.std(axis=0)
    axes = figure.subplots()
    axes.plot(sizes, coefficients, marker=".")
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set(xlabel="number of columns", ylabel="standardised coefficient", title="models of every size")
    return f"Coefficients of the models of one to ten columns that {name} makes for the diabetes data of scikit-learn"
