"""Chunks that are taller than a partition, in a store far away: fetched once by a process, and never out of date."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from zarr.storage import FsspecStore

import sketchselect as sks
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.execution.summarize import summary_projection
from sketchselect.readers import open_matrix
from sketchselect.readers.zarr import store as stores

ROWS = np.random.default_rng(0).standard_normal((240, 16))
PIECES = [(start, start + 30) for start in range(0, 240, 30)]
"""Partitions of a quarter of a chunk."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    url = f"memory://{tmp_path.name}/tall.zarr"
    write(url, ROWS)
    yield url
    MemoryFileSystem().rm(f"/{tmp_path.name}", recursive=True)


def write(url: str, rows: np.ndarray) -> None:
    zarr.create_array(FsspecStore.from_url(url), data=rows, chunks=(120, 8), overwrite=True, compressors=None)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each chunk was fetched."""
    counts: Counter[str] = Counter()
    original = MemoryFileSystem.cat_file

    def cat_file(self: MemoryFileSystem, path: str, *args: Any, **options: Any) -> bytes:
        if "/c/" in path:
            counts[path.rpartition("/c/")[2]] += 1
        content: bytes = original(self, path, *args, **options)
        return content

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    return counts


def test_the_projected_memory_includes_what_is_remembered(url: str) -> None:
    source, n_bytes = Source(open_matrix(url)), 240 * 16 * 8

    def process(partition_bytes: int) -> int:
        options = PassOptions(LocalEngine(kind="serial"), partition_bytes)
        return summary_projection(source, sks.Moments(), options)[0].process

    assert process(30 * 16 * 8) == process(n_bytes // 2) + stores.RECENT_NBYTES


@pytest.mark.parametrize("client", ["serial", "threads"])
def test_a_pass_fetches_every_chunk_once(url: str, fetched: Counter[str], client: str) -> None:
    summary = sks.summarize(url, sks.Moments(), client=client, partition_bytes=30 * 16 * 8)
    assert fetched == {"0/0": 1, "0/1": 1, "1/0": 1, "1/1": 1}
    np.testing.assert_allclose(summary.mean, ROWS.mean(axis=0), atol=1e-12)


def test_a_chunk_that_is_rewritten_is_fetched_again(url: str, fetched: Counter[str]) -> None:
    matrix = open_matrix(url)
    assert np.array_equal(matrix.read_rows(0, 30), ROWS[:30])
    other = ROWS.copy()
    other[:60, :8] += 1.0
    zarr.open_array(FsspecStore.from_url(url), mode="r+")[:120, :8] = other[:120, :8]
    fetched.clear()
    assert np.array_equal(matrix.read_rows(30, 60), other[30:60])
    assert fetched == {"0/0": 1}


def test_no_more_is_remembered_than_the_limit(url: str, fetched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "RECENT_NBYTES", 2 * 120 * 8 * 8)
    matrix = open_matrix(url)
    for start, stop in PIECES:
        assert np.array_equal(matrix.read_rows(start, stop), ROWS[start:stop])
    assert set(fetched.values()) == {1}
    assert np.array_equal(matrix.read_rows(0, 30), ROWS[:30])
    assert fetched["0/0"] + fetched["0/1"] == 4
    monkeypatch.setattr(stores, "RECENT_NBYTES", 100)
    assert np.array_equal(matrix.read_rows(130, 150), ROWS[130:150])
    assert np.array_equal(matrix.read_rows(150, 170), ROWS[150:170])
    assert fetched["1/0"] == 3


def test_all_stores_of_a_process_share_the_limit(
    tmp_path: Path, fetched: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "RECENT_NBYTES", 3 * 120 * 8 * 8)
    for number in range(5):
        write(url := f"memory://{tmp_path.name}/{number}.zarr", ROWS + number)
        assert np.array_equal(open_matrix(url).read_rows(0, 30), ROWS[:30] + number)
    remembered = sum(len(content) for _, content in stores._RECENT.values())
    assert stores.RECENT_NBYTES / 2 < remembered == stores.RecentStore.nbytes <= stores.RECENT_NBYTES
    MemoryFileSystem().rm(f"/{tmp_path.name}", recursive=True)


def test_a_store_without_versions_is_read_every_time(
    url: str, fetched: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MemoryFileSystem.info

    def info(self: MemoryFileSystem, path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = original(self, path, **options)
        return {name: value for name, value in answer.items() if name != "created"}

    matrix = open_matrix(url)
    monkeypatch.setattr(MemoryFileSystem, "info", info)
    for start, stop in PIECES[:2]:
        assert np.array_equal(matrix.read_rows(start, stop), ROWS[start:stop])
    assert fetched == {"0/0": 2, "0/1": 2}


def test_accepted_size_are_not_remembered(url: str, fetched: Counter[str]) -> None:
    matrix = open_matrix(url)
    for _ in range(2):
        assert np.array_equal(matrix.read_rows(120, 240), ROWS[120:])
    assert fetched == {"1/0": 2, "1/1": 2}
