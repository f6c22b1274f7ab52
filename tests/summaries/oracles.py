"""What each kind of summary must be for given rows: oracles in extended precision, guarantees, brute force."""

from functools import lru_cache

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse

from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.summaries.leverage import AUTO_RIDGE


def exact_moments(Z, w):
    """Weighted mean and centred co-moment in extended precision: made once for all the trees over the same rows."""
    return _exact_moments(Z.tobytes(), Z.dtype.str, Z.shape, w.tobytes())


@lru_cache(maxsize=16)
def _exact_moments(values, dtype, shape, weights):
    Z = np.frombuffer(values, dtype).reshape(shape).astype(np.longdouble)
    w = np.frombuffer(weights).astype(np.longdouble)
    total = w.sum()
    mean = (w @ Z) / total if total > 0 else np.zeros(Z.shape[1], np.longdouble)
    D = Z - mean
    return float(total), mean.astype(float), ((D * w[:, None]).T @ D).astype(float)


def scatter_tolerance(Z, w):
    """What rounding may do to centred sums of squares: relative 1e-9 of them, plus eps times the offset squared."""
    Z = Z.astype(float)
    _, _, C = exact_moments(Z, w)
    eps = np.finfo(float).eps
    d = np.sqrt(np.maximum(np.diag(C), 0))
    off = np.sqrt(w.sum()) * np.abs(Z).max(axis=0, initial=0)
    return 1e-10 * np.outer(d, d) + 4 * eps * (np.outer(d, off) + np.outer(off, d)) + 40 * eps**2 * np.outer(off, off)


def check_directions(s, X, y, w):
    Z = X.astype(float) * np.sqrt(w)[:, None]
    total, mean, C = exact_moments(X, w)
    norm = float((Z**2).sum())
    spread = np.diag(scatter_tolerance(X, w))
    # About the mean the oracle is the scatter: against the raw norm nothing far from the origin could fail.
    slacks = (1e-10 * norm, 1e-10 * np.trace(C) + spread.sum())
    slack = slacks[1]
    assert s.weight == pytest.approx(total)
    assert np.allclose(s.mean, mean, rtol=1e-12, atol=1e-14 * np.abs(X.astype(float)).max(initial=0))
    assert s.squared_norm == pytest.approx(norm, rel=1e-12, abs=1e-300)
    assert (np.abs(s.centered_column_squared_norms - np.diag(C)) <= spread).all()
    for rows, gram, room in zip((s.sketch, s.centered_sketch), (Z.T @ Z, C), slacks, strict=True):
        gap = np.linalg.eigvalsh(gram - rows.T @ rows)
        assert gap[0] >= -room, "the sketch exceeds the data"
        assert gap[-1] <= s.shrinkage + room, "the error exceeds the shrinkage"
    if s.is_exact:
        assert s.shrinkage == 0
        assert s.sketch.shape[0] <= X.shape[1]
    else:
        assert s.sketch.shape[0] <= s.size
        assert s.centered_sketch.shape[0] <= s.size - 1
    tails = np.maximum(np.linalg.eigvalsh(C)[::-1], 0)
    for k in range(min(s.size, tails.size)):
        assert s.shrinkage <= tails[k:].sum() / (s.size - k) * (1 + 1e-9) + slack


def check_moments(s, X, y, w):
    Z = np.hstack([X.astype(float), y.reshape(len(X), -1)])
    total, mean, C = exact_moments(Z, w)
    p = X.shape[1]
    assert s.weight == pytest.approx(total, rel=1e-14)
    squared = float((w**2).sum())
    assert s.n_effective == pytest.approx(total**2 / squared if squared else 0.0, rel=1e-12)
    assert np.allclose(np.r_[s.mean, s.y_mean], mean, rtol=1e-12, atol=1e-14 * np.abs(Z).max())
    if total > 0:
        tol = scatter_tolerance(Z, w) / total
        if X.dtype == np.float32:
            # Products of float32 columns are made in float32; variances and whatever has a target are not.
            sd = np.sqrt(np.diag(C)[:p] / total)
            tol[:p, :p] += 3e-7 * np.outer(sd, sd) * (1 - np.eye(p))
        assert (np.abs(s.covariance() - C[:p, :p] / total) <= tol[:p, :p]).all()
        assert (np.abs(s.xy - C[:p, p:] / total) <= tol[:p, p:]).all()
        assert (np.abs(s.yy - C[p:, p:] / total) <= tol[p:, p:]).all()
        assert (np.diag(s.covariance()) >= 0).all()


def check_decayed(s, X, y, w):
    assert s.end == len(X)
    check_moments(s, X, y, w * 0.5 ** (np.arange(len(X))[::-1] / 20))


def check_scheduled(s, X, y, w):
    """Rates 1, 0.5, 0.4, and 0.1 for all later rows, each row's share written out."""
    rates = np.array([1, 0.5, 0.4, *[0.1] * len(X)])[: len(X)]
    shares = [rate * np.prod(1 - rates[i + 1 :]) for i, rate in enumerate(rates)]
    check_moments(s, X, y, w * np.array(shares) / rates[-1])


def check_batches(s, X, y, w):
    Z = X.astype(float) * np.sqrt(w)[:, None]
    squares = np.linalg.svd(Z, compute_uv=False) ** 2
    room = 1e-10 * squares.sum()
    assert s.weight == pytest.approx(w.sum())
    assert s.sketch.shape[0] < s.size
    gap = np.linalg.eigvalsh(Z.T @ Z - s.sketch.T @ s.sketch)
    assert -room <= gap[0] <= gap[-1] <= s.shrinkage + room
    for k in range(min(s.size, squares.size)):
        assert s.shrinkage <= squares[k:].sum() / (s.size - k) * (1 + 1e-9) + room


def check_decayed_directions(s, X, y, w):
    assert s.end == len(X)
    check_directions(s, X, y, w * 0.5 ** (np.arange(len(X))[::-1] / 20))


def check_labels(s, X, y, w):
    check_moments(s, X, (y[:, None] == np.arange(3)).astype(float), w)
    assert np.allclose(s.class_weights, [w[y == c].sum() for c in range(3)], rtol=1e-12, atol=1e-12 * w.sum())


def check_folds(s, X, y, w):
    folds = s.fold_of(np.arange(len(X), dtype=np.uint64))
    for i in range(len(s)):
        for part, rows in ((s[i], folds == i), (s.complement(i), folds != i)):
            assert part.n_rows == rows.sum()
            if rows.any():
                check_moments(part, X[rows], y[rows], w[rows])
    check_moments(s.total, X, y, w)


def check_products(s, X, y, w):
    """The linear part as ever; the standardised products against rows expanded in extended precision."""
    X = X.astype(float)
    check_moments(s, X, y, w)
    total, mean, C = exact_moments(X, w)
    if total == 0:
        return
    sd = np.sqrt(np.diag(C) / total)
    # What a constant column leaves after rounding is nobody's standard.
    clear = sd > 1e-6 * np.abs(X).max(axis=0)
    plain = s.expanded()
    wide = X.astype(np.longdouble)
    z = (wide - (w @ wide) / total) / np.where(clear, sd, 1)
    i, j = np.triu_indices(X.shape[1]) if s.products else (np.arange(X.shape[1]),) * 2
    Z = np.hstack([z, z[:, i] * z[:, j], y.astype(np.longdouble)])
    known = np.r_[clear, clear[i] & clear[j], np.ones(y.shape[1], bool)]
    total, mean, C = exact_moments(Z, w)
    room = 1e-11 + 1e-13 * (np.abs(X).max(axis=0) / np.where(clear, sd, np.inf)).max(initial=0)
    d = np.sqrt(np.maximum(np.diag(C), total))
    # Targets are as they come, far from zero: their rounding is that of `scatter_tolerance`.
    far = np.sqrt(total) * np.r_[np.zeros(clear.size + i.size), np.abs(y).max(axis=0)]
    slack = room * np.outer(d, d) + 4 * np.finfo(float).eps * (np.outer(d, far) + np.outer(far, d))
    assert (np.abs(plain.record.mean - mean) <= room * np.maximum(np.abs(mean), 1))[known].all()
    assert (np.abs(plain.record.comoment - C) <= slack)[np.ix_(known, known)].all()


def check_pairs(s, X, y, w):
    """Each covariance is that of the rows that have both columns."""
    Z = np.hstack([X, y])
    present = ~np.isnan(Z)
    shift = np.where(present.any(axis=0), np.nanmedian(np.where(present.any(axis=0), Z, 0), axis=0), 0)
    V = np.where(present, Z - shift, 0).astype(np.longdouble)
    seen = present.astype(np.longdouble)
    N = seen.T @ (w[:, None] * seen)
    safe = np.where(N > 0, N, 1)
    S = (w[:, None] * V).T @ seen / safe
    C = np.where(N > 0, (w[:, None] * V).T @ V - N * S * S.T, 0).astype(float)
    p = X.shape[1]
    record = s.record
    assert np.allclose(record.pair_weight[:p, :p], N[:p, :p].astype(float))
    some = np.diag(N) > 0
    reach = np.where(some, np.nanmax(np.abs(np.where(present, Z, 0)), axis=0), 0)
    assert np.allclose(
        record.mean[some], (shift + np.diag(S)).astype(float)[some], rtol=1e-12, atol=1e-14 * reach.max()
    )
    spread = np.where(present, Z - shift, 0)
    d = np.sqrt((w[:, None] * spread**2).sum(axis=0))
    off = np.sqrt(w.sum()) * reach
    eps = np.finfo(float).eps
    tol = 1e-10 * np.outer(d, d) + 4 * eps * (np.outer(d, off) + np.outer(off, d)) + 40 * eps**2 * np.outer(off, off)
    assert (np.abs(record.comoment - C) <= tol).all()


def check_panel(s, X, y, w):
    """Rows 1 to 4 of the co-moment, from the diagonal to the right."""
    Z = np.hstack([X.astype(float), y.reshape(len(X), -1)])
    _, mean, C = exact_moments(Z, w)
    assert np.allclose(s.record.mean, mean, rtol=1e-12, atol=1e-14 * np.abs(Z).max())
    rows = C[1:4, 1:]
    assert (
        np.abs(s.record.comoment[: rows.shape[0], : rows.shape[1]] - rows) <= scatter_tolerance(Z, w)[1:4, 1:]
    ).all()


def check_columns(s, X, y, w):
    X = X.astype(float)
    total, mean, C = exact_moments(X, w)
    assert np.array_equal(s.weight, np.full(X.shape[1], total))
    assert np.array_equal(s.missing, np.zeros(X.shape[1]))
    assert np.array_equal(s.nonzero, (X != 0).sum(axis=0))
    assert np.array_equal(s.minimum, X.min(axis=0))
    assert np.array_equal(s.maximum, X.max(axis=0))
    if total > 0:
        assert np.allclose(s.mean, mean, rtol=1e-12, atol=1e-14 * np.abs(X).max())
    constant = X.min(axis=0) == X.max(axis=0)
    assert (s.variance[constant] == 0).all()
    spread = np.diag(scatter_tolerance(X, w))
    assert (np.abs(s.centered_column_squared_norms - np.diag(C)) <= spread)[~constant].all()


def check_step_statistics(s, X, y, w):
    check_columns(s["0 tf-idf"], X, y, w)
    check_row_sample(s["2 fourier"], X, y, w)


def check_groups(s, X, y, w):
    for label, part in enumerate(s):
        check_columns(part, X[y == label], y, w[y == label]) if (y == label).any() else None
    check_columns(s.total, X, y, w)


def check_top(s, X, y, w):
    check_columns(s, X, y, w)
    rows, w = X.astype(float)[w > 0], w[w > 0]
    assert s.top.shape == (min(s.size, len(rows)), X.shape[1])
    for j, column in enumerate(rows.T):
        order = np.lexsort((-w, -column))[: s.size]
        assert (s.top[:, j] == column[order]).all()
        assert (s.top_weights[:, j] == w[order]).all()
    assert s.is_whole == bool((rows == np.floor(rows)).all())


def check_histogram(s, X, y, w):
    """Brute force: the bin of a value is the last one whose edge is not above it, or the first."""
    edges = np.broadcast_to(s.edges, (X.shape[1], s.n_bins))
    classes = y if s.target_edges is None else np.maximum((s.target_edges <= y[:, None]).sum(axis=1) - 1, 0)
    for j, column in enumerate(X.astype(float).T):
        bins = np.maximum((edges[j] <= column[:, None]).sum(axis=1) - 1, 0)
        expected = np.zeros((s.n_bins, s.n_classes))
        np.add.at(expected, (bins, classes), w)
        assert (s.counts[j] == expected).all()
        assert s.is_exact[j] == bool((edges[j][bins] == column)[w > 0].all())
    assert s.weight == w.sum()


def check_levels(s, X, y, w):
    """Brute force: the distinct values of a column, or none of too many, with counts of rows of positive weight."""
    for j, column in enumerate(X.astype(float)[w > 0].T):
        values, first, counts = np.unique(column, return_index=True, return_counts=True)
        assert s.is_crowded[j] == (values.size > s.limit)
        if s.is_crowded[j]:
            values, first, counts = values[:0], first[:0], counts[:0]
        assert (s.levels(j)[0] == values).all()
        assert (s.levels(j)[1] == counts).all()
        assert (s.first_rows(j) == np.flatnonzero(w > 0)[first]).all()


def check_bundle(s, X, y, w):
    check_columns(s["stats"], X, y, w)
    check_moments(s["moments"], X, y, w)


def check_centroids(s, X, y, w):
    X = X.astype(float)
    for j in range(3):
        rows, v = X[y == j], w[y == j]
        total, mean, C = exact_moments(rows, v)
        assert s.cluster_weights[j] == pytest.approx(total)
        if total > 0:
            assert np.allclose(s.cluster_means[j], mean, rtol=1e-12, atol=1e-13 * np.abs(rows).max())
            spread = np.diag(scatter_tolerance(rows, v)).sum()
            assert abs(s.within[j] - np.trace(C)) <= spread + 1e-300


def check_likelihood(s, X, y, w):
    """Sums of two softmax models of the first column in extended precision; the second leaves fold 1 out."""
    fold = s.fold_of(np.arange(len(X), dtype=np.uint64))
    ones = np.ones((len(X), 1), dtype=np.longdouble)
    Z = np.hstack([X.astype(np.longdouble), ones])
    eps = np.finfo(float).eps
    for i, v in enumerate((w, np.where(fold == 1, 0.0, w))):
        coef = np.zeros((3, X.shape[1] + 1), dtype=np.longdouble)
        at = s.coefficients.of_model(i)
        coef[s.coefficients.outputs[at], s.coefficients.columns[at]] = s.coefficients.values[at]
        margins = Z @ coef.T
        top = margins.max(axis=1, keepdims=True)
        shares = np.exp(margins - top)
        normal = shares.sum(axis=1, keepdims=True)
        shares /= normal
        each = (top + np.log(normal))[:, 0] - margins[np.arange(len(X)), y]
        # A margin is rounded by eps times its terms, and so is all that follows from it.
        slack = 8 * eps * (1 + np.abs(coef).max() * np.abs(Z[:, [0, -1]]).max(axis=1)) + 1e-14
        assert abs(s.losses[i] - (v * each).sum()) <= (v * (np.abs(each) * 1e-13 + 4 * slack)).sum()
        residuals = (shares - (y[:, None] == np.arange(3))) * v[:, None]
        room = (v[:, None] * np.abs(Z) * (1e-13 + 4 * slack[:, None])).sum(axis=0) + 1e-300
        assert (np.abs(s.gradients[i] - residuals.T @ Z) <= room).all()
        held = np.where((i == 1) & (fold == 1), w, 0.0)
        assert abs(s.record.held_out[i] - (held * each).sum()) <= (held * (np.abs(each) * 1e-13 + 4 * slack)).sum()
        # Rows whose largest outputs are alike up to rounding may fall on either side.
        highest = np.sort(margins, axis=1)
        unsure, wrong = highest[:, -1] - highest[:, -2] <= slack, margins.argmax(axis=1) != y
        for counted, weights in ((s.record.wrong[i], v), (s.record.held_out_wrong[i], held)):
            room = (weights * unsure).sum() + 1e-13 * weights.sum()
            assert abs(counted - (weights * wrong).sum()) <= room
    # The Hessian of the second model, of its terms; the first has none.
    columns, outputs = s.coefficients.columns[at], s.coefficients.outputs[at]
    between = np.einsum("i,ik,kl->ikl", v, shares, np.eye(3)) - np.einsum("i,ik,il->ikl", v, shares, shares)
    direct = np.einsum("iab,ia,ib->ab", between[:, outputs][:, :, outputs], Z[:, columns], Z[:, columns])
    sizes = np.abs(Z[:, columns])
    room = np.einsum("i,ia,ib->ab", v * (1e-13 + 8 * slack), sizes, sizes) + 1e-300
    assert (np.abs(s.hessian(1) - direct) <= room).all()
    assert s.model_weights == pytest.approx([w.sum(), w[fold != 1].sum()], rel=1e-12)
    assert s.record.responses == pytest.approx([w[y == c].sum() for c in range(3)], rel=1e-12, abs=1e-300)


def some_targets(X):
    """Two targets, one of them far from zero."""
    base = np.tanh(X.astype(float)).sum(axis=1)
    return np.stack([base, 1e6 + np.arange(len(X))], axis=1)


def three_labels(X):
    return np.arange(len(X)) * 7 % 3


def with_holes(X):
    """A fifth of the values missing, in patterns that differ from column to column; one column without any value."""
    X = X.astype(float)
    rng = np.random.default_rng(X.shape[1])
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, X.shape[1] // 2] = np.nan
    return X


def check_sample(s, X, y, w):
    Z = X.astype(float) * np.sqrt(w)[:, None]
    gram = Z.T @ Z
    assert s.squared_norm == pytest.approx((Z**2).sum(), rel=1e-12, abs=1e-300)
    assert s.seen.tolist() == list(range(len(X)))
    assert set(s.items) <= set(np.flatnonzero((Z != 0).any(axis=1)))
    assert (s.draws < s.probabilities).all()
    assert np.allclose(s.sample, Z[s.items] / np.sqrt(s.probabilities)[:, None], rtol=1e-13, atol=0)
    if s.squared_norm > 0:
        assert s.final_ridge == pytest.approx(AUTO_RIDGE * s.squared_norm)
        ridged = gram + s.final_ridge * np.eye(len(gram))
        exact = np.einsum("ij,ji->i", Z, np.linalg.solve(ridged, Z.T))
        assert ((1 + s.eps) * s.scores >= exact - 1e-9).all(), "a score is below what it must not be below"
        gap = np.linalg.eigvals(np.linalg.solve(ridged, s.sample.T @ s.sample - gram))
        assert np.abs(gap.real).max() <= s.eps, "the sample is farther from the data than promised"


def check_scores(s, X, y, w):
    Z = X.astype(float) * np.sqrt(w)[:, None]
    assert s.seen.tolist() == list(range(len(X)))
    exact = np.einsum("ij,ji->i", Z, np.linalg.solve(s.factor @ s.factor.T, Z.T))
    assert np.allclose(s.scores, np.minimum(exact, 1), rtol=1e-10, atol=1e-13)


def check_bound(s, X, y, w):
    """No clustering that is tried has an objective below the bound, whatever the blocks were."""
    Z = X.astype(float)
    assert s.weight == pytest.approx(w.sum())
    rounding = 1e-13 * float((w[:, None] * Z**2).sum())
    for labels in (np.zeros(len(Z), int), np.arange(len(Z)) % 3, np.minimum(np.arange(len(Z)) // 10, 2)):
        objective = 0.0
        for c in range(3):
            mine = w * (labels == c)
            if mine.sum() > 0:
                objective += float((mine[:, None] * (Z - mine @ Z / mine.sum()) ** 2).sum())
        assert 0.0 <= s.lower_bound() <= objective * (1 + 1e-9) + rounding
    assert s.record.spectral <= s.lower_bound()


def check_row_sample(s, X, y, w):
    """The rows of the smallest keys of all, by brute force; what they stand for, from the definition."""
    Z = X.astype(float)
    rates = w.copy()
    if s.center is not None:
        rates *= 1 + ((Z - s.center) ** 2).sum(axis=1) / s.spread
    draws = uniforms(derive_seed(s.seed, "row-sample"), np.arange(len(X), dtype=np.uint64))
    with np.errstate(divide="ignore", over="ignore"):
        keys = np.where(rates > 0, -np.log(draws) / rates, np.inf)
    order = np.argsort(keys, kind="stable")[: (rates > 0).sum()]
    assert s.indices.tolist() == order[: s.size].tolist()
    assert np.array_equal(s.rows.toarray() if issparse(s.rows) else s.rows, Z[s.indices])
    threshold = keys[order[s.size]] if order.size > s.size else np.inf
    assert s.threshold == pytest.approx(threshold, rel=1e-12)
    chance = -np.expm1(-rates[s.indices] * threshold)
    assert np.allclose(s.weights, w[s.indices] / chance, rtol=1e-10)
    if s.classes is not None:
        assert np.array_equal(np.asarray(s.classes)[s.labels], y[s.indices])
    if s.center is None and (w == 1).all():
        assert (s.weights >= 1).all()
        whole = s.from_block(as_csr(csr_array(X)) if s.is_sparse else X, y, start=0)
        assert whole == s, "the sample depends on blocks or order"


def relative_error(C, A, ridge=0.0):
    """Return the least e with |C'C - A'A| <= e (A'A + ridge), by a general eigenproblem."""
    gram = A.T @ A
    lam = eigh(C.T @ C - gram, gram + ridge * np.eye(len(gram)), eigvals_only=True)
    return max(-lam[0], lam[-1])
