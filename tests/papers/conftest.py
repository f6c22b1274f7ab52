"""What the tests of several papers use."""

import importlib
import sys
from pathlib import Path

import pytest

from sketchselect.solvers import standardize

BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "papers"


@pytest.fixture(scope="module")
def script():
    """Return an importer of the modules of the benchmarks, which lie side by side."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


def problem_of(m):
    """Return the standardised problem of moments."""
    return standardize(m.covariance(), m.xy, m.yy, mean=m.mean, y_mean=m.y_mean, n=m.n_effective)
