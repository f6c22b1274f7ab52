"""How many blocks a certificate may solve beside a run: a function of the shape and the job, at most its share."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect._text import format_seconds
from sketchselect.cluster.certificates.block import CONFIDENCE, SHARE, Affordable, BlockOptions, affordable_blocks
from sketchselect.execution import Source
from sketchselect.readers import open_matrix


def planned(n_rows: int, n_columns: int, **options: object) -> Affordable:
    """Return what is solved of rows that take no memory."""
    rows = np.broadcast_to(np.float32(1), (n_rows, n_columns))
    every = bool(options.pop("every", False))
    source = Source(open_matrix(rows))
    return affordable_blocks(source, min(50, n_columns), 10, 1, BlockOptions(**options), every=every)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(60, 5), (1797, 64), (9298, 256), (72, 7129)])
def test_all_blocks_of_small_data_are_solved(shape: tuple[int, int]) -> None:
    found = planned(*shape)
    assert found.description is not None
    assert found.description.fraction == 1.0
    assert found.confidence is None
    assert found.n_solved == found.n_blocks == max(1, shape[0] // 400)


def test_more_blocks_are_sampled_with_a_confidence_that_is_said() -> None:
    found = planned(70_000, 784)
    assert found.description is not None
    assert (found.description.spectral, found.confidence) == (True, CONFIDENCE)
    assert found.n_blocks == 175
    assert found.description.fraction == pytest.approx(found.n_solved / 175)
    assert f"about {found.n_solved} of 175 blocks" in found.sentence()
    assert planned(70_000, 784, confidence=0.9).confidence == 0.9
    assert planned(70_000, 784) == found
    every = planned(70_000, 784, every=True)
    assert (every.n_solved, every.confidence) == (175, None)
    assert every.cost_share > found.cost_share


def test_a_sample_of_nearly_all_blocks_is_all_of_them() -> None:
    solved = [planned(400 * n, 64) for n in range(10, 200)]
    assert {one.confidence for one in solved} == {None, CONFIDENCE}
    for n, one in enumerate(solved, 10):
        assert one.n_solved == n if one.confidence is None else one.n_solved < 0.9 * n


def test_the_cost_is_said_in_seconds_and_as_a_share_only_below_all() -> None:
    small, large = planned(2800, 64), planned(20_000_000, 300)
    assert small.cost_share > 1
    assert f"all 7 blocks of rows are solved, for about {format_seconds(small.seconds)} of one core" in small.sentence()
    assert "%" not in small.sentence()
    assert large.sentence().endswith(
        f"one core, {100 * large.cost_share:.0f} % of what this run is estimated to cost without them"
    )


def test_of_very_many_rows_only_the_sample_is_computed_on_and_the_share_is_kept() -> None:
    found = planned(20_000_000, 300)
    assert found.description is not None
    assert not found.description.spectral
    assert found.n_solved > planned(2_000_000, 300).n_solved
    assert 0 < found.cost_share <= SHARE


def test_blocks_too_large_for_memory_are_left_out() -> None:
    found = planned(2000, 200_000)
    assert found.description is None
    assert (found.n_blocks, found.n_solved, found.cost_share) == (5, 0, 0.0)
    assert "spectrum alone" in found.sentence()
