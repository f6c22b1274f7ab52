"""The committed digests, and the environment that each was made in."""

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from threadpoolctl import threadpool_info

FILE = Path(__file__).with_name("reference.json")


def environment() -> str:
    """Return all that decides the bits of a result beside our own code and the input.

    The kernels of the BLAS libraries, the processor that Numba compiles for (our kernels let it contract and reorder
    some sums), the vector instructions that NumPy takes, and the versions of all of them.
    """
    import scipy.linalg  # noqa: F401  # loads the BLAS of SciPy
    import sklearn  # noqa: F401

    libraries = {
        f"{lib['internal_api']} {lib['version']} {lib.get('architecture', '')}".strip()
        for lib in threadpool_info()
        if lib["user_api"] == "blas"
    }
    found: Any = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    processor = numba.config.CPU_NAME or binding.get_host_cpu_name()
    versions = [f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "numba", "scikit-learn")]
    vectors = f"NumPy's {found[-1]}" if found else "NumPy's baseline"
    return ", ".join([platform.machine(), processor, vectors, *sorted(libraries), *versions])


def read() -> tuple[dict[str, str], dict[str, dict[str, dict[str, str]]]]:
    """Return environment -> name of its set, and name of a set -> case -> artefact -> digest."""
    if not FILE.exists():
        return {}, {}
    content = json.loads(FILE.read_text())
    return content["environments"], content["sets"]


def expected(key: str | None = None) -> dict[str, dict[str, str]] | None:
    """Return case -> artefact -> digest of an environment, by default this one; None where there is no reference."""
    environments, sets = read()
    name = environments.get(key or environment())
    return None if name is None else sets[name]
