"""Rows added to a summary that knows how its rows were prepared and what its columns are called."""

from __future__ import annotations

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import Incompatible
from sketchselect.summaries import FrequentDirections, Moments

X = np.random.default_rng(0).standard_normal((30, 3)) * [1.0, 10.0, 100.0]


def test_raw_rows_do_not_get_into_a_summary_of_prepared_ones():
    prepared = sks.summarize(X, FrequentDirections(3), prepare=["l2"])
    with pytest.raises(Incompatible, match=r"differently prepared rows: \['l2'\] and \[\]"):
        prepared.update(X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    twice = prepared.update(unit, prepare=prepared.prepare)
    assert twice.prepare == ("l2",)
    assert twice.squared_norm == pytest.approx(60)


def test_columns_of_a_data_frame_are_not_mixed_up():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    seen = Moments().from_block(frame)
    assert seen.feature_names == ("a", "b", "c")
    assert seen.update(frame).mean.tolist() == pytest.approx(X.mean(axis=0).tolist())
    assert seen.update(X).n_rows == 60
    for other in (frame[["c", "b", "a"]], frame.rename(columns={"a": "A"})):
        with pytest.raises(Incompatible, match="column 0 is named 'a' and"):
            seen.update(other)


def test_numbered_columns_are_no_names():
    pandas = pytest.importorskip("pandas")
    assert Moments().from_block(pandas.DataFrame(X)).feature_names is None
