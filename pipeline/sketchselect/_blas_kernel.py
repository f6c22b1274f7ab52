"""Speeds of the kernels of OpenBLAS on this processor, for `sketchselect doctor`.

OpenBLAS takes its kernel from the model of the processor, and for models that are newer than itself an older kernel, at
half the speed. The environment variable ``OPENBLAS_CORETYPE`` names another; nothing here sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

VARIABLE = "OPENBLAS_CORETYPE"

CANDIDATES = ("SapphireRapids", "Cooperlake", "SkylakeX", "Zen", "Haswell")
"""Kernels of 64-bit x86 that are compared with the one that OpenBLAS takes by itself."""

GAIN = 0.9
"""Time, as a share of that of OpenBLAS's own kernel, below which another is recommended: less is noise."""

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


def compare_kernels() -> str:
    """Time every kernel in a process of its own, which some end, and return in words which one to name, if any."""
    own = _timed(None)
    if own is None or not own["kernel"]:
        return "OpenBLAS is not in use, or its kernels cannot be compared"
    default, seconds = own["kernel"], {own["kernel"]: own["seconds"]}
    for name in CANDIDATES:
        timed = _timed(name) if name not in seconds else None
        # A name that OpenBLAS does not know, or the processor does not support, is another kernel under its name.
        if timed is not None and timed["right"] and timed["kernel"] == name:
            seconds[name] = timed["seconds"]
    others = ", ".join(f"{name} {value / seconds[default]:.2f}" for name, value in seconds.items() if name != default)
    times = f" (time as a share of its own: {others})" if others else ""
    fastest = min(seconds, key=lambda name: seconds[name])
    advice = "none is faster"
    if seconds[fastest] < GAIN * seconds[default]:
        advice = f"{fastest} is faster: set {VARIABLE}={fastest}, for workers on other machines too"
        if os.environ.get(VARIABLE, "").casefold() == fastest.casefold():
            advice = f"{VARIABLE}={fastest} names the fastest"
    return f"OpenBLAS takes its kernel {default} by itself, and {advice}{times}"


def _timed(kernel: str | None) -> dict[str, Any] | None:
    # Without a kernel, that of OpenBLAS itself is timed, and not one that the user has set.
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"OPENBLAS_NUM_THREADS": "1"} | ({VARIABLE: kernel} if kernel else {})
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=_TIMEOUT
        )
        return dict(json.loads(done.stdout)) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
