"""A small source on disk, with a job on it, as a mapping and as a file."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from sketchselect.job.text import write_toml


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    assert root.handlers == handlers, "a run leaves the root logger as it was"


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    """300 rows of 12 columns in three clusters; the last four columns are small noise."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((3, 12)) * 4
    centres[:, 8:] = 0.0
    scale = np.r_[np.ones(8), np.full(4, 0.1)]
    return (centres[np.arange(300) % 3] + rng.standard_normal((300, 12)) * scale).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows as a Zarr store with chunks of 20 rows."""
    path = tmp_path / "rows.zarr"
    zarr.create_array(str(path), data=rows, chunks=(20, 12))
    return path


@pytest.fixture
def job(store: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a job as a mapping, with sections changed by keyword."""

    def build(**sections: dict[str, Any] | None) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "input": {"url": str(store)},
            "select": {"method": "sketched-ridge", "n_features": 5, "n_components": 2, "sketch_size": 6},
            "cluster": {"n_clusters": 3, "random_state": 0},
            "execution": {"cluster": "serial", "partition_bytes": "4KiB"},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
        for name, changes in sections.items():
            if changes is None:
                del whole[name]
            else:
                whole[name] = {**whole.get(name, {}), **changes}
        return whole

    return build


@pytest.fixture
def job_file(job: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., Path]:
    """Write the job, with sections changed, and return its path."""

    def build(**sections: dict[str, Any] | None) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(write_toml(job(**sections)))
        return path

    return build
