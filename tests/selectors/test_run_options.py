"""Options of passes in every estimator: client, partition_bytes, checkpoint and progress of fit, predict, transform."""

import warnings

import numpy as np
import pytest
import zarr
from tests.estimator_checks import SHORT, target_for
from tests.passing import Recorder

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.selectors import METHODS, SketchedPCA

N_ROWS, N_COLUMNS = 60, 12
PARTITION = 20 * N_COLUMNS * 8

ESTIMATORS = {
    **{
        name: cls(**({"trend": "quadratic"} if name == "hvg" else {}), **SHORT.get(name, {}))
        for name, cls in METHODS.items()
    },
    "k-means": sks.KMeans(3),
    "pca": SketchedPCA(2),
}


@pytest.fixture
def rows(tmp_path):
    """Counts in a store of three chunks of rows, and a target."""
    rng = np.random.default_rng(0)
    X = rng.poisson(5.0, (N_ROWS, N_COLUMNS)) + 20.0 * rng.integers(0, 3, N_ROWS)[:, None] * (np.arange(12) < 3)
    store = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(20, N_COLUMNS), dtype="float64")
    store[:] = X
    return str(tmp_path / "x.zarr"), X, X @ np.linspace(-1.0, 1.0, N_COLUMNS) + rng.standard_normal(N_ROWS)


@pytest.mark.share(8)
@pytest.mark.usefixtures("short_paths")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_fit_runs_its_passes_as_it_is_asked_to(name, rows, tmp_path):
    path, _, y = rows
    estimator, seen = ESTIMATORS[name], Recorder()
    y = target_for(name, y) if name in METHODS else y
    engine = sks.execution.LocalEngine(kind="serial")
    passes = []
    run = engine.run
    engine.run = lambda work: passes.append(work) or run(work)
    folder = sks.execution.Checkpoint(tmp_path / "checkpoints", min_bytes=0, state_ratio=0)
    options = {"client": engine, "partition_bytes": PARTITION, "progress": seen, "checkpoint": folder}
    estimator.fit(path, y, **options)
    assert len(passes) >= len(seen.starts) > 0  # over cached rows they report nothing
    assert {n for _, _, n in seen.starts} & {3}, "three chunks, three partitions"
    again = Recorder()
    estimator.fit(path, y, **{**options, "progress": again})
    if name != "k-means":  # small rows are read once; of its iterations those that took a second are saved
        assert any("resuming" in note for note in again.notes)
    with pytest.raises(TypeError, match="nonsense"):
        estimator.fit(path, y, nonsense=1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["variance", "lasso", "k-means", "pca"])
def test_what_is_made_of_a_store_takes_a_pass_like_any_other(name, rows):
    path, X, y = rows
    fitted = ESTIMATORS[name].fit(path, y)
    calls = {"transform": (path,)}
    if hasattr(fitted, "predict"):
        calls |= {"predict": (path,), "score": (path, y)}
    for method, arguments in calls.items():
        seen = Recorder()
        outcome = getattr(fitted, method)(*arguments, client="serial", partition_bytes=PARTITION, progress=seen)
        assert [n for _, _, n in seen.starts][-1] == 3, method
        np.testing.assert_allclose(outcome, getattr(fitted, method)(X, *arguments[1:]), rtol=1e-12)
        with pytest.raises(TypeError, match="checkpoint"):
            getattr(fitted, method)(*arguments, checkpoint="folder")


def test_options_where_no_pass_is_made_have_no_effect_and_unknown_ones_are_named(rows):
    import dask.array as da

    _, X, _ = rows
    lazy = da.from_array(X, chunks=(20, N_COLUMNS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen, km, pca = sks.VarianceSelector(2).fit(X), sks.KMeans(3).fit(X), SketchedPCA(2).fit(X)
    calls = [(chosen.transform, X), (chosen.transform, lazy), (km.predict, lazy), (km.transform, lazy)]
    for call, rows_of_it in [*calls, (pca.transform, lazy)]:
        np.testing.assert_array_equal(np.asarray(call(rows_of_it, client="threads")), np.asarray(call(rows_of_it)))
        with pytest.raises(TypeError, match="'nonsense' is not an option; known: client, partition_bytes, progress"):
            call(rows_of_it, nonsense=1)
    with pytest.raises(TypeError, match="'sample_weigth' is not an option; did you mean 'sample_weight'"):
        sks.VarianceSelector(2).fit(X, sample_weigth=np.ones(len(X)))
    with pytest.raises(TypeError, match="'verbose' is not an option; known: client"):
        sks.KMeans(3).fit(X, verbose=1)
    with pytest.raises(BadParameter, match="leave out progress"):
        sks.VarianceSelector(2).collect(lazy, compute=False, progress=True)
