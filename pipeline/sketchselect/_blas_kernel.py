"""The kernel of OpenBLAS that is fastest on this processor: measured once, remembered, set before NumPy is imported.

OpenBLAS takes its kernel from the model of the processor, and for models that are newer than itself an older one, at
half the speed. The variable ``OPENBLAS_CORETYPE`` names another one; processes started from here inherit it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from sketchselect.errors import BadParameter

VARIABLE = "OPENBLAS_CORETYPE"

CANDIDATES = ("SapphireRapids", "Cooperlake", "SkylakeX", "Zen", "Haswell")
"""Kernels of 64-bit x86 that are tried beside the one that OpenBLAS takes itself."""

GAIN = 0.9
"""Time, as a share of that of the kernel OpenBLAS takes, below which another one is used: less is noise."""

_TIMEOUT = 60.0

_PROGRAM = """
import json, time
import numpy as np
from threadpoolctl import threadpool_info
kernels = [library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"]
whole = np.arange(90000.0).reshape(300, 300) % 17
right = np.array_equal(whole @ whole, np.einsum("ij,jk", whole.astype(np.int64), whole.astype(np.int64)))
rows = np.sin(np.arange(400000.0)).reshape(400, 1000)
def once():
    start = time.perf_counter()
    product = rows @ rows.T
    rows.T @ rows
    rows.astype(np.float32) @ rows.T.astype(np.float32)
    np.linalg.eigh(product[:200, :200])
    return time.perf_counter() - start
once()
print(json.dumps({"kernel": kernels[0] if kernels else None, "right": right, "seconds": min(once() for _ in range(5))}))
"""


def use_kernel(kernel: str) -> str | None:
    """Set the kernel for processes that import NumPy from now on; return what to tell the user, if anything.

    `kernel` is "auto" (the fastest, measured where that is not remembered), "default" (that of OpenBLAS), or a name. A
    variable that the user has set stays, and so does the kernel of a process that has imported NumPy: the workers that
    it starts have to use the same one.
    """
    if VARIABLE in os.environ or kernel == "default" or _has_kernel():
        return None
    if kernel != "auto":
        timed = _timed(kernel)
        # A name that OpenBLAS does not know is its own choice under that name.
        if timed is None or not timed["right"] or (timed["kernel"] or kernel).lower() != kernel.lower():
            raise BadParameter(
                f"execution.blas_kernel = {kernel!r} does not compute on this processor; leave it out, or see "
                "`sketchselect doctor`"
            )
        os.environ[VARIABLE] = kernel
        return None
    known = remembered()
    note = None
    if known is None and platform.machine().lower() in ("x86_64", "amd64"):
        known = measure_kernels()
        if known.get("kernel"):
            note = describe_kernels(known)
    recall_kernel(known)
    return note


def recall_kernel(known: dict[str, Any] | None = None) -> None:
    """Set the kernel that is remembered as the fastest, if there is one and the user has set none."""
    fastest = (known or remembered() or {}).get("kernel")
    if fastest and VARIABLE not in os.environ and not _has_kernel():
        os.environ[VARIABLE] = fastest


def _has_kernel() -> bool:
    return "numpy" in sys.modules


def remembered() -> dict[str, Any] | None:
    """Return the measurement of this processor and NumPy, None where there is none."""
    try:
        known = json.loads(_file().read_text())
        return known if known["machine"] == _machine() else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None


def measure_kernels() -> dict[str, Any]:
    """Time every kernel in a process of its own, which some end, and remember the fastest that computes right.

    Nothing is measured where the result cannot be remembered.
    """
    result: dict[str, Any] = {"machine": _machine(), "kernel": None, "seconds": {}}
    try:
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except (OSError, RuntimeError):  # of a user without a home
        return result
    default = _timed(None)
    if default is not None and default["kernel"]:
        seconds = {default["kernel"]: default["seconds"]}
        for name in CANDIDATES:
            timed = _timed(name) if name not in seconds else None
            # A name that OpenBLAS does not know, or the processor does not support, is another kernel under its name.
            if timed is not None and timed["right"] and timed["kernel"] == name:
                seconds[name] = timed["seconds"]
        fastest = min(seconds, key=lambda name: seconds[name])
        if seconds[fastest] < GAIN * default["seconds"]:
            result["kernel"] = fastest
        result["default"], result["seconds"] = default["kernel"], seconds
    remember_kernel(result)
    return result


def remember_kernel(result: dict[str, Any]) -> None:
    """Save a measurement."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # a full disk
        part.write_text(json.dumps(result))
        part.replace(file)


def describe_kernels(known: dict[str, Any]) -> str:
    """Return a measurement in words."""
    seconds, default = known.get("seconds") or {}, known.get("default")
    if not default:
        return "OpenBLAS is not in use, or its kernels cannot be compared"
    others = ", ".join(f"{name} {value / seconds[default]:.2f}" for name, value in seconds.items() if name != default)
    times = f" (time as a share of it: {others})" if others else ""
    if known["kernel"]:
        return f"kernel {known['kernel']} of OpenBLAS is used, which takes {default} by itself{times}"
    return f"OpenBLAS takes its kernel {default}, and none is faster{times}"


def _timed(kernel: str | None) -> dict[str, Any] | None:
    # Without a kernel, that of OpenBLAS itself is timed, and not one that the user has set.
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"OPENBLAS_NUM_THREADS": "1"} | ({VARIABLE: kernel} if kernel else {})
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=_TIMEOUT
        )
        return dict(json.loads(done.stdout)) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sketchselect" / "blas-kernel.json"


def _machine() -> str:
    """Return the processor and the NumPy that a measurement is of."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{platform.node()} {model}, NumPy {metadata.version('numpy')}"
