"""Files of compiled kernels that are damaged, and a disk that has no room for them."""

import logging
import resource

import numba
import pytest

from sketchselect import _kernels
from sketchselect._kernels import kernel


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of compiled kernels."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    _kernels._warn_not_kept.cache_clear()


def double(x):
    return 2 * x


def n_loaded():
    """Return how many kernels another process would load instead of compiling, once it has called this one."""
    again = kernel()(double)
    assert again(2) == 4
    return sum(again.stats.cache_hits.values())


@pytest.mark.parametrize("share", [0.5, 0.0])
@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_a_file_of_a_compiled_kernel_that_was_cut_short_is_made_again(ending, share, tmp_path):
    assert [n_loaded(), n_loaded()] == [0, 1]
    (file,) = tmp_path.rglob("*" + ending)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert [n_loaded(), n_loaded()] == [0, 1]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_disk_without_room_for_compiled_kernels_ends_no_work(is_damaged, tmp_path, caplog):
    if is_damaged:
        n_loaded()
        for file in tmp_path.rglob("*.nbi"):
            file.write_bytes(b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    caplog.set_level(logging.INFO)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        assert [n_loaded(), n_loaded()] == [0, 0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (line,) = (text for text in caplog.messages if "cannot be kept" in text)
    assert "(File too large), and every process compiles them again; make room there, or set NUMBA_CACHE_DIR" in line
    assert [n_loaded(), n_loaded()] == [0, 1]
