"""The kernel of OpenBLAS that a job uses: measured, remembered, or named."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchselect
from sketchselect import _blas_kernel
from sketchselect.errors import BadParameter, ConfigError
from sketchselect.workflow import run


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str | None, dict[str, Any] | None]:
    """Return what each kernel does on a processor of ours: a kernel that is not listed ends its process."""
    kernels: dict[str | None, dict[str, Any] | None] = {
        None: {"kernel": "Haswell", "right": True, "seconds": 1.0},
        "Haswell": {"kernel": "Haswell", "right": True, "seconds": 1.0},
    }
    monkeypatch.setattr(_blas_kernel, "_timed", kernels.get)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(_blas_kernel.VARIABLE, "")
    monkeypatch.delenv(_blas_kernel.VARIABLE)
    monkeypatch.setattr(_blas_kernel, "_has_kernel", lambda: False)
    return kernels


def test_the_fastest_kernel_is_used_and_remembered(processor: dict[str | None, Any]) -> None:
    processor["SkylakeX"] = {"kernel": "SkylakeX", "right": True, "seconds": 0.6}
    note = _blas_kernel.use_kernel("auto")
    assert note is not None
    assert "SkylakeX of OpenBLAS is used, which takes Haswell by itself" in note
    assert os.environ[_blas_kernel.VARIABLE] == "SkylakeX"
    del os.environ[_blas_kernel.VARIABLE]
    processor.clear()  # nothing is measured again
    assert _blas_kernel.use_kernel("auto") is None
    assert os.environ[_blas_kernel.VARIABLE] == "SkylakeX"


@pytest.mark.parametrize(
    "other",
    [
        None,
        {"kernel": "SkylakeX", "right": True, "seconds": 0.95},
        {"kernel": "SkylakeX", "right": False, "seconds": 0.1},
        {"kernel": "Haswell", "right": True, "seconds": 0.1},
    ],
    ids=["ends its process", "no faster", "computes wrong", "not supported"],
)
def test_other_kernels_are_not_used(processor: dict[str | None, Any], other: dict[str, Any] | None) -> None:
    processor["SkylakeX"] = other
    assert _blas_kernel.use_kernel("auto") is None
    assert _blas_kernel.VARIABLE not in os.environ
    assert _blas_kernel.measure_kernels()["kernel"] is None


def test_a_measurement_of_another_machine_is_not_used(
    processor: dict[str | None, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor["Zen"] = {"kernel": "Zen", "right": True, "seconds": 0.5}
    _blas_kernel.measure_kernels()
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert _blas_kernel.remembered() is None


def test_the_variable_of_the_user_stays(processor: dict[str | None, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    processor["Zen"] = {"kernel": "Zen", "right": True, "seconds": 0.5}
    monkeypatch.setenv(_blas_kernel.VARIABLE, "Haswell")
    assert _blas_kernel.use_kernel("auto") is None
    assert os.environ[_blas_kernel.VARIABLE] == "Haswell"


def test_a_process_that_has_imported_numpy_leaves_its_workers_the_same_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_blas_kernel.VARIABLE, raising=False)
    monkeypatch.setattr(_blas_kernel, "remembered", lambda: {"kernel": "SkylakeX"})
    for kernel in ("auto", "SkylakeX"):
        assert _blas_kernel.use_kernel(kernel) is None
    _blas_kernel.recall_kernel()
    assert _blas_kernel.VARIABLE not in os.environ


def test_nothing_is_measured_where_it_cannot_be_remembered(
    processor: dict[str | None, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    processor["Zen"] = {"kernel": "Zen", "right": True, "seconds": 0.5}
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _blas_kernel.use_kernel("auto") is None
    assert _blas_kernel.VARIABLE not in os.environ


def test_a_name_that_openblas_does_not_know_is_refused(processor: dict[str | None, Any]) -> None:
    processor["Hasvell"] = {"kernel": "SkylakeX", "right": True, "seconds": 1.0}
    with pytest.raises(BadParameter, match="blas_kernel = 'Hasvell' does not compute on this processor"):
        _blas_kernel.use_kernel("Hasvell")
    processor["haswell"] = processor["Haswell"]
    assert _blas_kernel.use_kernel("haswell") is None
    assert os.environ[_blas_kernel.VARIABLE] == "haswell"


def _job(folder: Path, kernel: str) -> Path:
    np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((50, 8)))
    job = folder / "job.toml"
    job.write_text(
        f'[input]\nurl = "{folder / "rows.npy"}"\n[select]\nmethod = "variance"\nn_features = 2\n'
        f'[execution]\ncluster = "serial"\nblas_kernel = "{kernel}"\n[output]\ndir = "{folder / "out"}"\n'
    )
    return job


def test_a_process_that_uses_another_kernel_than_the_job_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"blas_kernel = 'VIA'.*OPENBLAS_CORETYPE=VIA before Python imports NumPy"):
        run(_job(tmp_path, "VIA"))


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel is one of 64-bit x86")
def test_the_command_line_uses_the_kernel_that_the_job_names(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != _blas_kernel.VARIABLE}
    environment["PYTHONPATH"] = str(Path(sketchselect.__file__).parent.parent)
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        _blas_kernel.remember_kernel({"machine": _blas_kernel._machine(), "kernel": "Sandybridge"})

    def kernels(kernel: str) -> str:
        command = [sys.executable, "-m", "sketchselect", "run", str(_job(tmp_path, kernel)), "--fresh"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.dumps(json.loads((tmp_path / "out" / "manifest.json").read_text()))

    assert "Nehalem" in kernels("Nehalem")
    assert "Sandybridge" in kernels("auto")
    assert "Sandybridge" not in kernels("default")


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel is one of 64-bit x86")
def test_the_kernel_of_openblas_itself_is_timed_whatever_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_blas_kernel.VARIABLE, raising=False)
    own = _blas_kernel._timed(None)
    monkeypatch.setenv(_blas_kernel.VARIABLE, "Nehalem")
    timed = _blas_kernel._timed(None)
    assert own is not None
    assert timed is not None
    assert timed["kernel"] == own["kernel"]
