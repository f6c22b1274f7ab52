"""Global row indices of merged sources: summaries whose draws depend on them never share one.

    merge refused  <=>  the sets of indices intersect
    E sum_i weights_i f(x_i) = sum_i v_i f(x_i) over the rows of all sources          (RowSample)
    E C'C = A'A over the columns of all sources                                       (LeverageSample)
    P(bound > bound of all blocks solved) <= 1 - confidence                           (BlockBound)

The first is compared with sets of indices; the others are simulated over seeds, within five standard errors.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Checkpoint
from sketchselect.summaries import BlockBound, Bundle, Folds, Groups, LeverageSample, Moments, RowSample, block_bound
from sketchselect.summaries.block_bound import PartitionBound

from .instances import each_number

FAST, ALL = range(60), range(60, 400)
whole = each_number(FAST, ALL)

KEYED = {
    "row-sample": RowSample(5),
    "block-bound": BlockBound(2, block_rows=2, fraction=0.5),
    "leverage-sample": LeverageSample(sampling_rate=2.0),
    "bundle": Bundle(sample=RowSample(5), moments=Moments()),
    "folds": Folds(RowSample(3), 2),
}


def rows_at(indices: Any) -> Any:
    """Return the rows with these global indices: a formula, so that no source has to be there."""
    i = np.asarray(indices, dtype=float)
    return np.column_stack([np.sin(i), np.cos(3 * i), i % 5])


def of_source(description: Any, start: int, n_rows: int, scattered: bool) -> Any:
    """Return the summary of rows `start` to `start + n_rows`, as one source or as rows with indices of their own."""
    indices = np.arange(start, start + n_rows)
    if scattered:
        return description.from_block(rows_at(indices), start=indices)
    return sks.summarize(rows_at(indices), description, start=start, client="serial", partition_bytes=48)


@whole
def test_merges_are_refused_exactly_where_sources_share_an_index(number: int) -> None:
    """Sources of random ranges, merged in random order, against the sets of their indices."""
    rng = np.random.default_rng(number)
    kind = list(KEYED)[number % len(KEYED)]
    # Rows with indices of their own are compared one by one where all of them are there.
    scattered = kind == "leverage-sample" and bool(rng.integers(2))
    merged, seen = None, set()
    for _ in range(int(rng.integers(2, 7))):
        start, n_rows = int(rng.integers(0, 60)), int(rng.integers(1, 12))
        mine = set(range(start, start + n_rows))
        summary = of_source(KEYED[kind], start, n_rows, scattered)
        if merged is None:
            merged, seen = summary, mine
        elif seen & mine:
            with pytest.raises(Incompatible, match="share row indices"):
                merged.merge(summary)
            with pytest.raises(Incompatible, match="share row indices"):
                summary.merge(merged)
        else:
            merged = merged.merge(summary) if rng.integers(2) else summary.merge(merged)
            seen |= mine
    assert merged.n_rows == len(seen)


@whole
def test_a_sample_of_merged_sources_is_that_of_all_rows_to_the_bit(number: int) -> None:
    rng = np.random.default_rng(number)
    edges = [0, *np.sort(rng.choice(np.arange(1, 40), 3, replace=False)).tolist(), 40]
    starts = {a: a for a in edges[:-1]}
    order = rng.permutation(edges[:-1]).tolist()
    sample = RowSample(7, seed=number)
    parts = [of_source(sample, starts[a], edges[edges.index(a) + 1] - a, False) for a in order]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert merged == sample.from_block(rows_at(np.arange(40)))
    assert merged.context.rows == ((0, 40),)


def within(estimates: Any, truth: float) -> bool:
    """Return whether a mean of independent estimates is within five standard errors of the truth."""
    values = np.asarray(estimates, dtype=float)
    return bool(abs(values.mean() - truth) <= 5 * values.std(ddof=1) / math.sqrt(len(values)))


@pytest.mark.share(1)
@pytest.mark.parametrize("size", [3, 5, 12])
def test_a_sample_of_merged_sources_estimates_their_sums_without_bias(size: int) -> None:
    """Two sources of 20 rows; with equal indices and a size of 5, 50 rows were estimated."""
    X = rows_at(np.arange(20))
    counts, sums = [], []
    for seed in range(2000):
        a, b = (RowSample(size, seed).from_block(X, start=start) for start in (0, 20))
        merged = a.merge(b)
        counts.append(merged.weights.sum())
        sums.append(merged.weights @ merged.rows[:, 2])
    assert within(counts, 40.0)
    assert within(sums, 2 * float(X[:, 2].sum()))


def test_two_sources_with_the_same_indices_do_not_merge() -> None:
    """The smallest examples: default starts, in memory and by `summarize`."""
    X = rows_at(np.arange(20))
    for description in KEYED.values():
        a, b = sks.summarize(X, description), sks.summarize(X + 1, description)
        with pytest.raises(Incompatible, match=r"rows? 0 .*start=20 \(--after 20"):
            a.merge(b)
        assert a.merge(sks.summarize(X + 1, description, start=20)).n_rows == 40


def test_kinds_that_draw_nothing_by_row_merge_whatever_their_indices() -> None:
    X = rows_at(np.arange(20))
    for description in (Moments(), Folds(Moments(), 2), BlockBound(2, block_rows=4), sks.FrequentDirections(2)):
        a, b = sks.summarize(X, description), sks.summarize(X + 1, description)
        assert a.merge(b).n_rows == 40


def leverage_error(seed: int, starts: tuple[int, int], A: Any, B: Any) -> Any:
    """Return C'C - A'A of a sample of two sources of columns."""
    description = LeverageSample(sampling_rate=1.5, ridge=1.0, seed=seed)
    merged = description.from_block(A, start=starts[0]).merge(description.from_block(B, start=starts[1]))
    return merged.sample.T @ merged.sample - A.T @ A - B.T @ B


@pytest.mark.slow
def test_a_leverage_sample_of_merged_sources_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((30, 2)), rng.standard_normal((30, 2))
    errors = np.array([leverage_error(seed, (0, 30), A, B) for seed in range(1000)])
    for i, j in ((0, 0), (0, 1), (1, 1)):
        assert within(errors[:, i, j], 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.9, pytest.param(0.99, marks=pytest.mark.nightly)])
def test_the_confidence_of_sampled_blocks_holds_for_merged_sources(
    confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty files of the same 16 rows: with equal indices the bound failed for 36 of 200 seeds at 0.99."""

    def solved(rows: Any, k: int, weights: Any, iterations: int, triangles: bool) -> PartitionBound:
        # What a block gains is its first column: the statement is of any gains.
        return PartitionBound(float(rows[:, 0].sum()) + 0.1, 0.0, float(rows.sum()))

    monkeypatch.setattr(block_bound, "partition_bound", solved)
    X = np.column_stack([np.arange(16) % 4 == 0, np.arange(16)]).astype(float)
    failures, n_seeds = 0, 400
    for seed in range(n_seeds):
        some, every = (BlockBound(2, block_rows=4, fraction=share, seed=seed) for share in (0.5, 1.0))
        merged, complete = (one.from_block(X) for one in (some, every))
        for i in range(1, 20):
            merged = merged.merge(some.from_block(X, start=16 * i))
            complete = complete.merge(every.from_block(X, start=16 * i))
        failures += merged.lower_bound(confidence) > complete.lower_bound()
    allowed = 1 - confidence
    assert failures <= n_seeds * allowed + 4 * math.sqrt(n_seeds * allowed * confidence)


def test_indices_of_rows_survive_files_and_are_not_asked_of_old_ones(tmp_path: Path) -> None:
    X = rows_at(np.arange(20))
    for name, description in KEYED.items():
        summary = sks.summarize(X, description, start=7)
        sks.save(summary, tmp_path / f"{name}.sks")
        loaded = sks.load(tmp_path / f"{name}.sks")
        assert loaded == summary
        with pytest.raises(Incompatible, match=r"rows? 7 "):
            loaded.merge(sks.summarize(X, description))
        assert loaded.merge(sks.summarize(X, description, start=27)).n_rows == 40
    # Moments of any start are the same file.
    sks.save(sks.summarize(X, Moments()), tmp_path / "a.sks")
    sks.save(sks.summarize(X, Moments(), start=7), tmp_path / "b.sks")
    assert (tmp_path / "a.sks").read_bytes() == (tmp_path / "b.sks").read_bytes()


def test_rows_that_follow_continue_after_the_last_index() -> None:
    X = rows_at(np.arange(40))
    for description in KEYED.values():
        if description.kind == "leverage-sample":
            continue
        at_once = description.from_block(X[:30], start=100).merge(description.from_block(X[30:], start=130))
        assert description.from_block(X[:30], start=100).update(X[30:]) == at_once
    grown = LeverageSample(sampling_rate=2.0).from_block(X[:30], start=100).update(X[30:])
    assert grown.seen.tolist() == list(range(100, 140))
    with pytest.raises(Incompatible, match="share row indices"):
        grown.update(X[:1], start=139)


def test_dropped_rows_have_indices_that_no_other_source_may_have() -> None:
    X = rows_at(np.arange(20))
    X[[3, 19]] = np.nan
    matrix = sks.open_matrix(X, nonfinite="drop_rows")
    first = sks.summarize(matrix, RowSample(5))
    assert first.n_rows == 18
    assert first.context.rows == ((0, 20),)
    with pytest.raises(Incompatible, match="row 19 is"):
        first.merge(sks.summarize(rows_at(np.arange(5)), RowSample(5), start=19))
    assert first.update(rows_at([0.0])).indices.max() <= 20


def test_groups_of_several_sources_are_compared_as_a_whole() -> None:
    X, y = rows_at(np.arange(20)), np.arange(20) % 2
    groups = Groups(RowSample(3), [0, 1])
    a = sks.summarize(X, groups, y=y)
    with pytest.raises(Incompatible, match="share row indices"):
        a.merge(sks.summarize(X, groups, y=y, start=10))
    both = a.merge(sks.summarize(X, groups, y=y, start=20))
    assert both.total.n_rows == 40
    with pytest.raises(Incompatible, match="share row indices"):
        both.total.merge(a.total)


def test_a_checkpoint_is_resumed_only_with_the_same_start(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", rows_at(np.arange(60)))
    place = Checkpoint(tmp_path / "ckpt", min_bytes=0, state_ratio=0.0, min_seconds=0.0)
    options: dict[str, Any] = {"checkpoint": place, "partition_bytes": 240, "client": "serial"}
    runs = [sks.summarize(str(tmp_path / "x.npy"), RowSample(5), start=s, **options) for s in (0, 60, 0, 60)]
    assert runs[0] == runs[2]
    assert runs[1] == runs[3]
    assert runs[1].indices.min() >= 60
    assert runs[0].merge(runs[1]) == RowSample(5).from_block(np.vstack([rows_at(np.arange(60))] * 2))


def test_lazy_summaries_have_the_same_indices() -> None:
    X = rows_at(np.arange(20))
    for description in KEYED.values():
        lazy = sks.summarize(X, description, start=50, compute=False).compute(scheduler="synchronous")
        eager = sks.summarize(X, description, start=50)
        assert lazy == eager
        assert lazy.context.rows == eager.context.rows


@pytest.mark.parametrize("start", [-1, 0.5, True, "0"])
def test_a_start_that_is_not_a_whole_number_is_refused(start: Any) -> None:
    with pytest.raises(BadParameter, match="start"):
        sks.summarize(np.eye(3), RowSample(2), start=start)


def test_ages_count_from_the_start_of_a_source() -> None:
    X = rows_at(np.arange(20))
    fading = sks.summaries.DecayedMoments(half_life=5)
    parts = [sks.summarize(X[a : a + 10], fading, start=a) for a in (0, 10)]
    for left, right in itertools.permutations(parts):
        merged = left.merge(right)
        assert np.allclose(merged.mean, fading.from_block(X).mean, rtol=1e-14)
        assert merged.end == 20
