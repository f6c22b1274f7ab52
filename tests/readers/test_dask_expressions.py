"""Dask arrays that are expressions (``array.query-planning``): the results of arrays that are graphs."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import dask.array as da, numpy as np, sketchselect as sks
from sketchselect.summaries import ColumnStats, Moments

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 12))
y = X[:, 3] - X[:, 7] + rng.standard_normal(200)
A, b = da.from_array(X, chunks=(50, 6)) * 1.0, da.from_array(y, chunks=40) + 0.0
assert hasattr(A, "expr"), "the option is off"
assert (sks.GreedySelector(4).fit(A).support_ == sks.GreedySelector(4).fit(X).support_).all()
lasso = sks.LassoPath(n_features_to_select=2)
assert lasso.fit(A, b).support_.tolist() == lasso.fit(X, y).support_.tolist() == [3, 7]
assert np.allclose(sks.summarize(A, Moments(), y=b).mean, X.mean(axis=0))
assert sks.summarize(A.rechunk((200, 12)), ColumnStats(), sample_weight=da.ones(200, chunks=70)).n_rows == 200
model, whole = sks.KMeans(3, random_state=0).fit(A), sks.KMeans(3, random_state=0).fit(X)
assert (model.labels_.compute() == whole.labels_).all()
assert (model.predict(A).compute() == whole.predict(X)).all()
assert sks.GreedySelector(4).fit_transform(A).compute().shape == (200, 4)
print("all equal")
"""


@pytest.mark.slow
def test_expressions_give_the_results_of_graphs(tmp_path):
    environment = {**os.environ, "DASK_ARRAY__QUERY_PLANNING": "True"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    if "the option is off" in ran.stderr:
        pytest.skip("this Dask has no array expressions")
    assert "all equal" in ran.stdout, ran.stderr
