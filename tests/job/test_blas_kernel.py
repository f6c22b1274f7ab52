"""The kernels of OpenBLAS: `doctor` compares them, and a job says where it runs on another than it names."""

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
from sketchselect.workflow import run


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, dict[str, Any] | None]:
    """Return what each kernel does on a processor of ours: a kernel that is not listed ends its process."""
    own = {"kernel": "Haswell", "right": True, "seconds": 1.0}
    kernels: dict[str | None, dict[str, Any] | None] = {None: own, "Haswell": own}
    monkeypatch.setattr(_blas_kernel, "_timed", kernels.get)
    monkeypatch.delenv(_blas_kernel.VARIABLE, raising=False)
    return kernels


def test_the_variable_that_names_the_fastest_kernel_is_told_and_not_set(
    processor: dict[str | None, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor["SkylakeX"] = {"kernel": "SkylakeX", "right": True, "seconds": 0.6}
    told = _blas_kernel.compare_kernels()
    assert "set OPENBLAS_CORETYPE=SkylakeX" in told
    assert "SkylakeX 0.60" in told
    assert _blas_kernel.VARIABLE not in os.environ
    monkeypatch.setenv(_blas_kernel.VARIABLE, "SkylakeX")
    assert "OPENBLAS_CORETYPE=SkylakeX names the fastest" in _blas_kernel.compare_kernels()


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
def test_other_kernels_are_not_recommended(processor: dict[str | None, Any], other: dict[str, Any] | None) -> None:
    processor["SkylakeX"] = other
    assert _blas_kernel.VARIABLE not in _blas_kernel.compare_kernels()


def test_an_installation_without_openblas_is_said_to_be_one(processor: dict[str | None, Any]) -> None:
    processor[None] = {"kernel": None, "right": True, "seconds": 1.0}
    assert "not in use" in _blas_kernel.compare_kernels()


def _job(folder: Path, kernel: str) -> Path:
    np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((50, 8)))
    job = folder / "job.toml"
    job.write_text(
        f'[input]\nurl = "{folder / "rows.npy"}"\n[select]\nmethod = "variance"\nn_features = 2\n'
        f'[execution]\ncluster = "serial"\nblas_kernel = "{kernel}"\n[output]\ndir = "{folder / "out"}"\n'
    )
    return job


def test_a_job_that_names_another_kernel_runs_and_notes_it(tmp_path: Path) -> None:
    notes = " ".join(run(_job(tmp_path, "VIA")).manifest["notes"])
    assert "execution.blas_kernel = 'VIA'" in notes
    assert "OPENBLAS_CORETYPE=VIA" in notes
    for kernel in ("auto", "default"):
        assert "blas_kernel" not in " ".join(run(_job(tmp_path, kernel)).manifest["notes"])


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel is one of 64-bit x86")
def test_the_command_line_uses_the_kernel_of_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sketchselect", "run", str(_job(tmp_path, "Nehalem"))]
    environment = os.environ | {"PYTHONPATH": str(Path(sketchselect.__file__).parent.parent)}
    environment |= {_blas_kernel.VARIABLE: "Nehalem"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "Nehalem" in manifest["versions"]["blas"]
    assert "blas_kernel" not in " ".join(manifest["notes"])


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
