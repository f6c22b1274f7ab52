"""`greedy`, `pivoted-qr`: no column chosen is a multiple of one chosen before while another column is left.

For the first ``min(r, number of classes of columns that are multiples of each other)`` columns chosen, all classes are
different; columns of zeros are chosen last. About the mean, multiples plus any number are one class, and columns that
never vary are chosen last. Classes are known by construction, in exact multiples (powers of two).
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import EmptyInput

from .instances import each_instance, matrix


def instance(seed, shrunk, about):
    """Rows, the class of every column (-1 for one of no length), and whether some are nearly in two classes."""
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(40, 60)) if shrunk else int(rng.integers(2, 30))
    base = matrix(rng, int(rng.integers(max(n_classes // 2, 3), 80)), n_classes)
    base *= rng.choice([1.0, 0.8]) ** np.arange(n_classes)
    # Classes of the columns themselves: some kinds of matrices have copies already.
    varies = (base != base[0]).any(axis=0) if about == "mean" else base.any(axis=0)
    from_point = np.where(varies, base - (base.mean(axis=0) if about == "mean" else 0.0), 0.0)
    with np.errstate(invalid="ignore"):
        units = (from_point / np.linalg.norm(from_point, axis=0)).T
    apart = [np.linalg.norm(units[:, None] - sign * units[None], axis=2) for sign in (1, -1)]
    same = np.minimum(*apart) < 1e-12
    # A shrunk sketch cannot tell columns apart that differ by its rounding.
    near = shrunk and ((np.minimum(*apart) < 1e-4) & ~same).any()
    own = np.where(varies, same.argmax(axis=1), -1)
    which = np.r_[np.arange(n_classes), rng.integers(n_classes, size=2 * n_classes)]
    X = base[:, which] * 2.0 ** rng.integers(-3, 4, which.size) * rng.choice([-1, 1], which.size)
    if about == "mean":
        X += rng.choice([0.0, 1.0, 2.0], which.size) * X.std(axis=0)
    order = rng.permutation(which.size)
    return rng, X[:, order], own[which][order], near


@pytest.mark.share(4)
@each_instance
@pytest.mark.parametrize("about", ["mean", "zero"])
@pytest.mark.parametrize("shrunk", [False, True], ids=["exact", "shrunk"])
@pytest.mark.parametrize("parameters", [{}, {"noise": None}, {"method": "qr"}], ids=["greedy", "no-noise", "qr"])
def test_copies_are_chosen_last(seeds, shrunk, parameters, about):
    tried = 0
    for seed in seeds:
        rng, X, classes, near = instance(seed, shrunk, about)
        if near:
            continue
        tried += 1
        n_classes = len(set(classes[classes >= 0].tolist()))
        r = int(rng.integers(1, X.shape[1] + 1))
        cls = sks.PivotedQRSelector if parameters.get("method") == "qr" else sks.GreedySelector
        others = {k: v for k, v in parameters.items() if k != "method"}
        m = int(rng.integers(1, 6)) if rng.random() < 0.5 else None
        if shrunk and m is not None:
            m = min(m, 3)
        size = 8 if shrunk else None
        selector = cls(r, n_components=m, sketch_size=size, normalize=None, about=about, **others)
        if not n_classes:
            with pytest.raises(EmptyInput):
                selector.fit(X)
            continue
        chosen = selector.fit(X)
        order = np.argsort(-chosen.scores_, kind="stable")[:r]
        first = classes[order[: min(r, n_classes)]].tolist()
        assert -1 not in first, seed
        assert len(set(first)) == len(first), seed
        assert chosen.support_.size == r == len(set(chosen.support_.tolist()))
        assert chosen.selection_.diagnostics["n_copies"] == max(min(r, int((classes >= 0).sum())) - n_classes, 0)
    assert tried > 0.7 * len(seeds)


@each_instance
@pytest.mark.parametrize("cls", [sks.GreedySelector, sks.PivotedQRSelector])
def test_copies_in_other_units_stored_in_single_precision_are_chosen_last(seeds, cls):
    """Rounding to float32 is more of a deviation the farther the mean is."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        base = rng.standard_normal((int(rng.integers(20, 200)), 12)) + 10.0 ** rng.uniform(0, 2)
        X = np.hstack([base * unit for unit in rng.uniform(0.1, 10, 3)]).astype(np.float32)
        chosen = cls(12, n_components=2, normalize=None).fit(X)
        assert len({int(j) % 12 for j in chosen.support_}) == 12, seed
        assert chosen.selection_.diagnostics["n_copies"] == 0
        # What differs by more than rounding is not a copy.
        near = base + 1e-3 * rng.standard_normal(base.shape)
        chosen = cls(24, n_components=2, normalize=None).fit(np.hstack([base, near]))
        assert chosen.selection_.diagnostics["n_copies"] == 0
