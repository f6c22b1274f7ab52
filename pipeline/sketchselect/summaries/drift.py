"""Drift of new rows from earlier ones, as a number, from the summaries of both alone.

With P the projection on the top k principal directions of the base, A the new rows about their own mean::

    share = ||A - A P||_F^2 / ||A||_F^2,      shift = |mean of A - mean of the base| / sqrt(scatter of a base row)

The share is of the scatter alone: rows that move together leave it as it is, and show in the shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from scipy.sparse import issparse

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.spectrum import Spectrum, single_noise
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, require_number, require_positive
from sketchselect.summaries.base import Summary, differing
from sketchselect.summaries.containers import pick
from sketchselect.summaries.frequent_directions import DecayedDirections, FrequentDirections
from sketchselect.summaries.moment_forms import SINGLE_UNIT
from sketchselect.summaries.moments import DecayedMoments, Moments
from sketchselect.summaries.row_sample import RowSample

CONFIDENCE = 0.95
"""Of the interval of the share."""

LEVEL, QUIET_DAYS = 0.01, 200
"""Probability of any alarm in that many days without drift."""

_DAY = 0.01  # Rows of a day, as a share of the base's, for which the number of directions is chosen
_CANCELLED = 1e-8  # Squares outside the directions, of all, below which they are not the difference of two sums
_NEARLY_BEST = 0.9  # Of the standard errors of the best number of directions; the fewest with as many are taken
_ROWS_A_DIRECTION = 10  # Fewer rows for each direction do not determine them
_EDGE = 1.1  # Allowance for the largest and the smallest eigenvalue, which scatter about the edges of the law's
_EXACT = 1e-6  # Width of bounds that is rounding
_SAID_RISE = 1e-4  # Of the share by filled values, from which on it is said
_MANY_MORE = 10  # Times the rows of the base: more new rows were rather meant as the base
_SAMPLED_ROWS = 100  # Fewer rows of a sample say too little of the tails
_KINDS = (FrequentDirections.kind, Moments.kind, DecayedDirections.kind, DecayedMoments.kind)


@dataclass(frozen=True)
class Drift:
    """Part of the scatter of new rows outside the principal directions of a base, and the shift of their mean.

    Parameters
    ----------
    share : float
        ``||A - A P||_F^2 / ||A||_F^2`` of the new rows A about their mean; if they were sketched, or summed in float32,
        the middle of its bounds.
    at_least, at_most : float
        Proved bounds of the share of these very rows: equal, to rounding, unless they were sketched or summed in
        float32.
    low, high : float
        95 % interval for the share in endless rows of the same law: the bounds, widened by the sampling error.
    threshold : float
        Rows of the base's law exceed it with a probability of half the `level`; or the threshold that was passed.
    shift : float
        Distance between the means, in root mean squared distances of the base's rows to their mean.
    shift_threshold : float or None
        The same for the shift; None where a threshold was passed: then only the share gives the alarm.
    base_share : float
        The share of the base's own rows; if they were sketched or summed in float32, an upper bound of it.
    n_directions : int
        k.
    n_rows, base_rows : float
        Rows of both; the effective number where they lose weight with age.
    level : float
        Probability of an alarm without drift: 1 % in 200 days, half of it for the share and half for the shift.
    gaussian : bool
        Whether the sampling errors are those of Gaussian rows; False where a sample of the base's rows measured them.
    filled, base_filled : float
        Shares of the values that were missing and that a prepare step filled, in the new rows and in the base.
    filled_rise : float
        How much the other share of filled values raises the share of rows of the base's law; the threshold has it.
    rounding, base_rounding : float
        Bounds of the rounding of `share` and of `base_share` by products in float32; 0 without them.
    base_at_least : float
        Proved lower bound of the share of the base's own rows: `base_share`, to rounding, unless they were sketched or
        summed in float32.

    Examples
    --------
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> rng = np.random.default_rng(0)
    >>> sd = np.array([5.0, 5, 1, 1, 1])
    >>> base, today = (sks.Moments().from_block(rng.standard_normal((n, 5)) * sd) for n in (2000, 200))
    >>> drift = sks.summaries.drift(base, today)
    >>> drift.exceeded, drift.low < drift.share < drift.high
    (False, True)
    """

    share: float
    at_least: float
    at_most: float
    low: float
    high: float
    threshold: float
    shift: float
    shift_threshold: float | None
    base_share: float
    n_directions: int
    n_rows: float
    base_rows: float
    level: float
    gaussian: bool
    filled: float = 0.0
    base_filled: float = 0.0
    filled_rise: float = 0.0
    rounding: float = 0.0
    base_rounding: float = 0.0
    base_at_least: float = 0.0

    @property
    def shifted(self) -> bool:
        """Whether the mean moved by more than its threshold."""
        return self.shift_threshold is not None and self.shift > self.shift_threshold

    @property
    def exceeded(self) -> bool:
        """Whether there is an alarm: the share is above its threshold, or the shift above its own."""
        return self.share > self.threshold or self.shifted

    def __str__(self) -> str:
        return f"{'drift' if self.exceeded else 'no drift'}: {self.sentence()}"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, `exceeded`, `shifted` and `sentence`."""
        derived = {"exceeded": self.exceeded, "shifted": self.shifted, "sentence": self.sentence()}
        return {**asdict(self), **derived}

    def sentence(self) -> str:
        """Return the result in words: what is proved, what is estimated, and the alarms."""
        directions = f"the base's {self.n_directions} principal components"
        if self.n_directions == 1:
            directions = "the base's first principal component"
        interval = f"{CONFIDENCE:.0%} interval {_percent(self.low)} to {_percent(self.high)}"
        share = _percent(self.share)
        # No more than rounding: of a sketch, what it lost is in the bounds, too.
        if self.rounding > _EXACT and self.at_least == 0 and self.at_most <= 2 * self.rounding:
            share = f"An unknown part, at most {_percent(self.at_most)},"
            interval += "; products in float32 cannot tell it from none"
        elif self.at_most - self.at_least > _EXACT:
            interval += f"; proved for these very rows: {_percent(self.at_least)} to {_percent(self.at_most)}"
        most = "at most " if self.base_share - self.base_at_least > _EXACT else ""
        text = (
            f"{share} of the variance of {self.n_rows:,.6g} new rows lies outside {directions} ({interval}), "
            f"{most}{_percent(self.base_share)} in the base; the threshold is {_percent(self.threshold)}. "
            f"The mean moved by {self.shift:.3g} of the base's standard deviation"
        )
        limit = "" if self.shift_threshold is None else f"; the threshold is {self.shift_threshold:.3g}"
        text += f"{limit}."
        if self.filled_rise >= _SAID_RISE:
            text += (
                f" Of the new values {_percent(self.filled)} were missing and filled, of the base's "
                f"{_percent(self.base_filled)}: that alone raises the share by "
                f"{100 * self.filled_rise:.3g} percentage points"
            )
            text += ", which the threshold allows for." if self.shift_threshold is not None else "."
        if self.n_rows > _MANY_MORE * self.base_rows:
            text += f" The base has {self.base_rows:,.6g} rows, far fewer: give the earlier rows first."
        return text


def drift(base: Any, today: Any, *, threshold: float | None = None, n_directions: int | None = None) -> Drift:
    """Return the part of new rows' scatter outside the base's principal directions, and the shift of their mean.

    ``share = ||A - A P||_F^2 / ||A||_F^2`` with A the new rows about their own mean, and P the projection on the top k
    right singular vectors of the base's rows (of their sketch) about the base's mean.

    Parameters
    ----------
    base, today : FrequentDirections, Moments, or a mapping or Bundle with one
        Summaries of earlier and of new rows; their kinds and sizes may differ.
    threshold : float, optional
        Share from 0 to 1 above which there is an alarm. By default from the base: in 200 days of rows of its law there
        is an alarm, by the share or by the shift, with a probability of 1 %.
    n_directions : int, optional
        k. By default the fewest directions, at most half of the columns, by which rotations of pairs of directions are
        seen nearly best: the mean rise of the share, pairs weighing by the product of their scatter, over its standard
        error on a day of a hundredth of the base's rows, is at least 0.9 of the most. All directions of the base where
        these are no more than half of the columns.

    Returns
    -------
    Drift

    Raises
    ------
    Incompatible
        If columns, names or prepare steps differ, or values may be missing.
    EmptyInput
        If rows of either are all equal.
    BadParameter
        For a threshold or a number of directions out of range.

    Notes
    -----
    Rigorous: for a sketch B of the new rows, with shrinkage Delta and tail ``T = ||A||_F^2 - ||B||_F^2``, and V the k
    directions, ``||B V'||_F^2 <= ||A P||_F^2 <= ||B V'||_F^2 + min(k Delta, T)``; products in float32
    add at most the `single_rounding` on both sides, sqrt(k) times that of a Gram matrix. The same holds for the base's
    own share, whose upper bound begins the threshold; half the width of the new rows' bounds is added to it.
    Statistical: the odds ``share / (1 - share)`` of n Gaussian rows are those of the law times a variable of nearly the
    F distribution with ``n (sum l)^2 / sum l^2`` degrees of freedom, over the eigenvalues l outside and inside
    (Satterthwaite). For the threshold, ``1/n = 1/n_today + 1/n_base``, and the optimism of directions that were fitted
    to the base, ``sum_{i <= k < j} min(2 l_i l_j / (n_base (l_i - l_j)), l_i - l_j)``, is added; where all eigenvalues
    may be equal, the threshold begins at no less than ``1 - k / p``. A `RowSample` of at
    least 100 rows in the base replaces the Gaussian variance by that of its rows: take one for counts and other heavy
    tails (``summarize --sample 2000``). Rows that depend on one another, or have unequal weights in a sketch, are not
    covered. The shift's threshold is that of a chi-squared variable of matched moments, by the central limit theorem.
    Where new rows have other shares m_j of filled missing values than the base, with ``r_j`` the quotient of the shares
    that were there, rows of the base's law have ``r_j r_k S_jk`` off the diagonal of their scatter and ``r_j S_jj`` on
    it, if values are missing independently; the share of that is added to the threshold if it is larger, and its
    sampling error. Of values that are missing together it is too large, which hides small drifts and gives no alarm.
    A change of scale that is the same in all directions shows in neither number.
    Cost: the eigenvectors of the base once; 2 l k p flops for the new rows.
    Source: Satterthwaite 1946; Anderson 1963 (the errors of principal directions).

    Examples
    --------
    >>> import numpy as np, sketchselect as sks
    >>> rng = np.random.default_rng(0)
    >>> sd = np.repeat([5.0, 1.0], [2, 8])
    >>> base = sks.Moments().from_block(rng.standard_normal((5000, 10)) * sd)
    >>> quiet = sks.Moments().from_block(rng.standard_normal((200, 10)) * sd)
    >>> rotated = sks.Moments().from_block(rng.standard_normal((200, 10)) * sd[::-1])
    >>> drift(base, quiet).exceeded, drift(base, rotated).exceeded, drift(base, quiet).n_directions
    (False, True, 2)
    """
    old, new = _spectrum(base, "the base"), _spectrum(today, "the new rows")
    _require_comparable(old, new)
    if threshold is not None:
        threshold = require_number("threshold", threshold, least=0, most=1)
    base_rows, n_rows = _effective_rows(old), _effective_rows(new)
    with one_blas_thread():
        law = _Law.of(old, base_rows, n_directions)
        rates = [_filled_shares(one) for one in (old, new)]
        rise, spread = _rise_of_filled(old, law.k, *rates)
        vectors = old.centered_directions.vectors[: law.k]
        lowest, highest, inside, outside = _measured(new, vectors)
        tails = _tails(base, old, vectors, law)
    rounding = float(np.finfo(np.float64).eps) * old.n_features
    half, scale = (highest - lowest) / 2, 1.0 if tails is None else tails
    both, level = 1 / (1 / n_rows + 1 / base_rows), LEVEL / QUIET_DAYS
    if threshold is None:
        limit = law.above_share(scale * both, 1 - level / 2, rise, spread)
        share_limit, shift_limit = min(limit + half + rounding, 1.0), law.above_shift(both, level / 2)
    else:
        share_limit, shift_limit = threshold, None
    difference = new.mean - old.mean
    shift = float(np.linalg.norm(difference) / np.sqrt(old.centered_squared_norm / old.weight))
    tail = (1 - CONFIDENCE) / 2
    return Drift(
        share=lowest + half,
        at_least=lowest,
        at_most=highest,
        low=min(_odds_over(lowest, scale * n_rows, outside, inside, 1 - tail), lowest),
        high=max(_odds_over(highest, scale * n_rows, outside, inside, tail), highest),
        threshold=share_limit,
        shift=shift,
        shift_threshold=shift_limit,
        base_share=law.share,
        n_directions=law.k,
        n_rows=n_rows,
        base_rows=base_rows,
        level=level,
        gaussian=tails is None,
        filled=float(rates[1].mean()),
        base_filled=float(rates[0].mean()),
        filled_rise=rise,
        rounding=_single_share(new, vectors),
        base_rounding=_single_share(old, vectors),
        base_at_least=law.at_least,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _spectrum(source: Any, whose: str) -> Any:
    """Return the summary with a spectrum, an exact one if there is one."""
    members = list(source.values()) if isinstance(source, Mapping) else [source]
    spectral: list[Any] = [m for m in members if isinstance(m, Summary) and m.kind in _KINDS]
    if not spectral:
        spectral = [pick(source, *_KINDS)]  # raises the error that names what is there
    whole = [m for m in spectral if not m.accepts_missing]
    if not whole:
        raise Incompatible(f"drift: values may be missing in {whose}; directions need whole rows: impute or drop them")
    summary = next((m for m in whole if m.is_exact), whole[0])
    if summary.n_rows < 2 or not summary.centered_squared_norm > 0:
        raise EmptyInput(f"drift: no scatter in {whose}: {summary.n_rows} rows, all equal; at least two must differ")
    return summary


def _require_comparable(old: Any, new: Any) -> None:
    if old.n_features != new.n_features:
        raise Incompatible(
            f"drift: the base has {old.n_features} columns, the new rows have {new.n_features}"
            f"{differing(old.feature_names, new.feature_names)}"
        )
    names, others = old.feature_names, new.feature_names
    if names is not None and others is not None and names != others:
        j = next(i for i, (a, b) in enumerate(zip(names, others, strict=True)) if a != b)
        raise Incompatible(
            f"drift: column {j} is named {names[j]!r} in the base and {others[j]!r} in the new rows"
            f"{differing(names, others)}"
        )
    if old.prepare != new.prepare:
        raise Incompatible(
            f"drift: the base was prepared with {list(old.prepare)}, the new rows with {list(new.prepare)}; summarize "
            "both with the same steps (those fitted to rows: --fitted)"
        )


def _effective_rows(summary: Any) -> float:
    """Return ``(sum w)^2 / sum w^2`` where it is known: with moments, and for rows that lose weight with age."""
    if isinstance(summary, Moments):
        return float(summary.n_effective)
    if not summary.decays:
        return float(summary.n_rows)
    # Of w_i = g^i: W = (1 - g^n) / (1 - g), and W^2 / sum w^2 = W (1 + g) / (1 + g^n).
    g = float(np.exp2(-1 / summary.half_life)) if summary.decay is None else float(summary.decay)
    return float(summary.weight * (1 + g) / (2 - summary.weight * (1 - g)))


@dataclass(frozen=True)
class _Law:
    """What the base says of the share and the shift of further rows of its law.

    `values`, `counts`: Eigenvalues as shares of the scatter, descending, and their multiplicities; the first k inside.
    `at_least`, `share`: Bounds of the base's own share. `optimism`: See `drift`.
    """

    values: Floats
    counts: Floats
    k: int
    share: float
    at_least: float
    optimism: float

    @classmethod
    def of(cls, base: Spectrum, n_rows: float, n_directions: int | None) -> _Law:
        """Return the law with this number of directions, or with the best one."""
        squares, total, p = base.centered_directions.squares, base.centered_squared_norm, base.n_features
        values, counts = _eigenvalues(squares, total, base.shrinkage, p)
        noise = np.maximum(base.shrinkage, single_noise(base, base.centered_directions))
        real = np.flatnonzero(squares > noise)
        rank = int(real[-1]) + 1 if real.size else 0
        most = min(rank, p - 1)
        if n_directions is not None:
            last = require_positive("n_directions", n_directions)
            if last > most:
                raise BadParameter(f"n_directions is {last}, but the base has only {most} with scatter beside others")
        else:
            last = max(1, min(most, p // 2, int(n_rows / _ROWS_A_DIRECTION)))
        ks = np.arange(1, last + 1)
        tail = max(total - float(squares.sum()), 0.0)
        single = np.sqrt(ks) * base.single_rounding / total
        width = np.minimum(ks * base.shrinkage, tail) / total + single
        upper = np.clip(1 - np.cumsum(squares[:last]) / total + single, 0.0, 1.0)
        optimism = _optimism(values, counts, n_rows, last)
        may_be_equal = _may_be_equal(values, n_rows, p)
        if may_be_equal:
            optimism = np.maximum(optimism, 1 - ks / p - upper)
        inside = np.cumsum(values[:last] ** 2)
        outside = np.maximum(float(counts @ values**2) - inside, 0.0)
        share = 1 - np.cumsum(values[:last])
        variance = 2 * ((1 - share) ** 2 * outside + share**2 * inside)
        error = np.sqrt(variance * (1 + 1 / _DAY) / n_rows + optimism**2 + width**2)
        # Rotating a direction i <= k and one j > k into each other by an angle raises the share by
        # sin^2 (l_i - l_j); the mean over pairs that weigh l_i l_j, in standard errors:
        gain = np.maximum(inside * share - (1 - share) * outside, 0.0) / np.maximum(error, np.finfo(np.float64).eps)
        k = int(ks[-1]) if n_directions is not None else int(ks[np.argmax(gain >= _NEARLY_BEST * gain.max())])
        # Directions that leave nothing but rounding: any scatter outside them is seen.
        complete = share <= 8 * p * np.finfo(np.float64).eps
        if base.single_rounding > 0 and base.is_exact:
            complete |= ks == rank
        if n_directions is None and complete.any():
            k = int(ks[np.argmax(complete)])
        rounding = _single_share(base, base.centered_directions.vectors[:k])
        seen = 1 - float(squares[:k].sum()) / total
        proved = min(float(upper[k - 1]), max(seen + rounding, 0.0))
        at_least = min(max(seen - min(k * base.shrinkage, tail) / total - rounding, 0.0), proved)
        rise = float(optimism[k - 1])
        return cls(values, counts, k, proved, at_least, max(rise, 1 - k / p - proved) if may_be_equal else rise)

    def above_share(self, n_rows: float, probability: float, rise: float, spread: float) -> float:
        """Return the share that n rows are below with this probability.

        `rise`, `spread`: Of the share by filled values, and the relative variance of a row's part of that.
        """
        inside, outside = self.values[: self.k], self.values[self.k :]
        weights = self.counts[self.k :]
        center = min(self.share + self.optimism + rise, 1.0)
        degrees = [_degrees(weights, outside), _degrees(np.ones(self.k), inside)]
        if rise > 0:
            own = float(weights @ outside)
            variance = 2 * own**2 / degrees[0] + rise**2 * max(spread, 2 / degrees[0])
            degrees[0] = 2 * (own + rise) ** 2 / variance
        return _times_odds(center, float(scipy.special.fdtri(*(n_rows * d for d in degrees), probability)))

    def above_shift(self, n_rows: float, probability: float) -> float:
        """Return the shift that n rows are above with this probability."""
        degrees = _degrees(self.counts, self.values)
        return float(np.sqrt(scipy.special.chdtri(degrees, probability) / degrees / n_rows))


def _filled_shares(summary: Any) -> Floats:
    """Return the share of every column's values that were missing and that a prepare step filled."""
    filled = summary.context.filled
    return np.zeros(summary.n_features) if filled is None else np.asarray(filled) / summary.n_rows


def _rise_of_filled(base: Any, k: int, before: Floats, after: Floats) -> tuple[float, float]:
    """Return the rise of the share of rows of the base's law by filled values, and its relative variance for a row.

    `before`, `after`: Shares of filled values of every column, in the base and in the new rows.
    """
    there = np.divide(1 - after, 1 - before, out=np.ones_like(after), where=before < 1)
    if (there == 1).all():
        return 0.0, 0.0
    directions, total = base.centered_directions, base.centered_squared_norm
    vectors, squares = directions.vectors, directions.squares
    inner = vectors[:k]
    rest = max(total - float(squares.sum()), 0.0) / base.n_features  # What a sketch lost, evenly
    diagonal = squares @ vectors**2 + rest
    inside = float((squares @ ((vectors * there) @ inner.T) ** 2).sum()) + rest * float(((inner * there) ** 2).sum())
    inside += float((there - there**2) * diagonal @ (inner**2).sum(axis=0))
    rise = (float(squares[:k].sum()) + rest * k) / total - inside / float(there @ diagonal)
    if rise <= 0:
        return 0.0, 0.0
    # Of a filled Gaussian value the square is lost, and fourth moments are three times squared variances.
    lost = np.maximum(1 - there, 0.0)
    return rise, 3 * float(lost @ diagonal**2) / float(lost @ diagonal) ** 2


def _eigenvalues(squares: Floats, total: float, shrinkage: float, n_columns: int) -> tuple[Floats, Floats]:
    """Return eigenvalues as shares of the scatter, descending, with multiplicities that sum to the number of columns.

    What a sketch lost is given back evenly: at most the shrinkage to its own directions, and the rest to all others.
    """
    lost, m = max(total - float(squares.sum()), 0.0), squares.size
    back = min(shrinkage, lost / m)
    values, counts = squares + back, np.ones(m)
    if n_columns > m:
        values = np.append(values, (lost - m * back) / (n_columns - m))
        counts = np.append(counts, n_columns - m)
    return values / total, counts


def _optimism(values: Floats, counts: Floats, n_rows: float, last: int) -> Floats:
    """Return the expected rise of the share, from the rows that chose the directions to others, for k = 1 to last."""
    out, rise = np.zeros(last), 0.0
    for i in range(last):
        gaps = np.abs(values - values[i])
        with np.errstate(divide="ignore", invalid="ignore"):
            costs = np.fmin(2 * values[i] * values / (n_rows * gaps), gaps) * counts
        rise += float(costs[i + 1 :].sum() - costs[:i].sum())
        out[i] = rise
    return out


def _may_be_equal(values: Floats, n_rows: float, n_columns: int) -> bool:
    """Return whether all eigenvalues can be those of rows without any direction (Marchenko and Pastur 1967)."""
    ratio = float(np.sqrt(n_columns / n_rows))
    if ratio >= 1 or values.size < n_columns:
        return False
    return bool(values[0] <= _EDGE * ((1 + ratio) / (1 - ratio)) ** 2 * values[-1])


def _degrees(counts: Floats, values: Floats) -> float:
    """Return the degrees of freedom ``(sum l)^2 / sum l^2`` of a row's squared norm; 1, the fewest, without any."""
    squares = float(counts @ values**2)
    return float(counts @ values) ** 2 / squares if squares > 0 else 1.0


def _single_share(summary: Any, vectors: Floats) -> float:
    """Return the bound of the rounding of a share by products in float32, for some directions.

    With P = V'V and E the error, ``|tr(P E)| <= ||P||_F ||E||_F``, ``||P||_F = sqrt(k)``; what a sketch gained is
    at most its trace in any directions. E of a Gram matrix has no diagonal, and other entries of at most u d_i d_j, d
    the columns' norms and u the `SINGLE_UNIT`: ``|tr(P E)| <= u sum |P_ij| d_i d_j`` over i != j, little where
    few directions are left out.
    """
    single, total = summary.single_rounding, summary.centered_squared_norm
    bound = float(np.sqrt(len(vectors)) * single) if summary.is_exact else float(single)
    if bound > 0 and summary.is_exact:
        overlaps = np.abs(vectors.T @ vectors)
        np.fill_diagonal(overlaps, 0.0)
        norms = np.sqrt(summary.centered_column_squared_norms)
        bound = min(bound, SINGLE_UNIT * float(norms @ overlaps @ norms))
    return bound / float(total)


def _times_odds(share: float, factor: float) -> float:
    """Return the share whose odds are a multiple of those of this one."""
    return share * factor / (1 - share + share * factor) if share < 1 else 1.0


def _odds_over(share: float, n_rows: float, outside: float, inside: float, probability: float) -> float:
    """Return the share whose odds, times the quantile of F at this probability, are those of `share`."""
    factor = float(scipy.special.fdtri(n_rows * outside, n_rows * inside, probability))
    return _times_odds(share, 1 / factor) if factor > 0 else 1.0


def _measured(new: Any, vectors: Floats) -> tuple[float, float, float, float]:
    """Return the bounds of the share, and the degrees of freedom of a row's squared norm outside and inside."""
    k, total, lost = len(vectors), new.centered_squared_norm, 0.0
    gram = new.centered_gram
    if gram is not None:
        side = vectors @ gram
        of_inside = side @ vectors.T
        in_squares = float((of_inside**2).sum())
        squares = float((gram**2).sum())
        out_squares = squares - 2 * float((side**2).sum()) + in_squares
        if out_squares <= _CANCELLED * squares:  # as where one column is far larger than the others
            rest = gram - vectors.T @ side
            rest -= (rest @ vectors.T) @ vectors
            out_squares = float((rest**2).sum())
        scatter = float(gram.trace())
    else:
        rows = new.centered_sketch
        coordinates = rows @ vectors.T
        of_inside = coordinates.T @ coordinates
        rest = rows - coordinates @ vectors
        in_squares, out_squares = float((of_inside**2).sum()), float(((rest @ rest.T) ** 2).sum())
        scatter, lost = total, min(k * new.shrinkage, max(total - float((rows**2).sum()), 0.0))
    inside = float(of_inside.trace())
    rounding = _single_share(new, vectors)
    lowest = 1 - (inside + lost) / scatter - rounding
    highest = 1 - inside / scatter + rounding
    # Those of rounding are taken for the fewest, 1, with which the interval is widest.
    degrees_outside, degrees_inside = (
        max(part**2 / squares, 1.0) if squares > 0 and part > rounding * scatter else 1.0
        for part, squares in ((scatter - inside, out_squares), (inside, in_squares))
    )
    return max(lowest, 0.0), min(max(highest, 0.0), 1.0), degrees_outside, degrees_inside


def _tails(base: Any, old: Any, vectors: Floats, law: _Law) -> float | None:
    """Return the effective rows for each row: the Gaussian variance of the share over that of a sample of the base."""
    members = base.values() if isinstance(base, Mapping) else [base]
    sample = next((m for m in members if isinstance(m, RowSample) and m.n_features == old.n_features), None)
    if sample is None or sample.n_kept < _SAMPLED_ROWS:
        return None
    rows, weights = sample.rows, sample.weights / sample.weights.sum()
    if issparse(rows):
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    else:
        squares = np.einsum("ij,ij->i", rows, rows)
    norms = squares - 2 * (rows @ old.mean) + float(old.mean @ old.mean)
    inside = ((rows @ vectors.T - vectors @ old.mean) ** 2).sum(axis=1)
    share = 1 - float(weights @ inside) / float(weights @ norms)
    measured = float(weights @ ((1 - share) * norms - inside) ** 2) / float(weights @ norms) ** 2
    of_inside, of_all = float((law.values[: law.k] ** 2).sum()), float(law.counts @ law.values**2)
    gaussian = 2 * ((1 - law.share) ** 2 * (of_all - of_inside) + law.share**2 * of_inside)
    return gaussian / measured if measured > 0 and gaussian > 0 else None
