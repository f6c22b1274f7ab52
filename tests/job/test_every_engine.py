"""Every method, and k-means on its columns: the same bits on any scheduler and number of workers, and when verified."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.bits.cases import JOBS
from tests.estimator_checks import SHORT

import sketchselect as sks
from sketchselect.execution import LocalEngine, local_cluster
from sketchselect.selectors import METHODS
from sketchselect.workflow.folder import tree_digest
from sketchselect.workflow.verify import verify_run

pytestmark = pytest.mark.slow

NIGHTLY = {job["select"]["method"] for job in JOBS.values()} - {"greedy"}
"""Methods whose jobs `tests/bits` runs on two worker processes, too."""

FILES = ("selection.json", "scores.csv", "summary.sks", "features.zarr", "labels.zarr", "centers.zarr")


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Any]]:
    """Schedulers by name; those of Dask have one and three worker processes."""
    with ExitStack() as stack:
        clusters = {f"{n} workers": stack.enter_context(local_cluster(n)) for n in (1, 3)}
        yield {"serial": LocalEngine(kind="serial"), "threads": LocalEngine(kind="threads", n_threads=2), **clusters}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counts of 600 rows and 24 columns in three clusters, the same as sparse float32, and a target of two classes."""
    rng = np.random.default_rng(8)
    means = rng.gamma(2.0, 4.0, (3, 24))
    classes = rng.integers(3, size=600)
    rows = rng.poisson(means[classes]).astype(np.float32)
    path = tmp_path_factory.mktemp("engines")
    zarr.create_array(str(path / "rows.zarr"), data=rows, chunks=(50, 24))
    np.save(path / "classes.npy", (classes == 0).astype(np.int64))
    return path


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in METHODS]
)
def test_every_method_has_the_same_bits_on_every_engine(
    folder: Path, engines: dict[str, Any], method: str, tmp_path: Path
) -> None:
    select: dict[str, Any] = {"method": method, **SHORT.get(method, {})}
    if "n_features_to_select" in METHODS[method]().get_params():
        select["n_features"] = 6
    source = {"url": str(folder / "rows.zarr")}
    if METHODS[method].needs_target:
        source["target"] = str(folder / "classes.npy")
    digests: dict[str, set[str | None]] = {file: set() for file in FILES}
    for name, engine in engines.items():
        out = tmp_path / name
        job = {
            "input": source,
            "select": select,
            # Blocks are the same whatever selected the columns, and take as long as all the rest.
            "cluster": {"n_clusters": 3, "certificate": "blocks" if method == "greedy" else "spectral"},
            "execution": {"partition_bytes": "8KiB"},
            "output": {"dir": str(out), "report": False},
        }
        sks.run(job, client=engine)
        for file, ones in digests.items():
            ones.add(tree_digest(out / file) if (out / file).exists() else None)
    assert {file for file, ones in digests.items() if len(ones) > 1} == set()
    assert None not in digests["selection.json"] | digests["labels.zarr"]
    # On threads, but for one: a cluster that only verifies takes as long to start as all four jobs.
    cluster = {} if method == "greedy" else {"cluster": "threads"}
    assert [check for check in verify_run(out, execution=cluster) if check.holds is False] == []
