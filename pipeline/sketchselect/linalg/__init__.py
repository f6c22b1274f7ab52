"""Pure functions and compiled kernels on arrays: no state, no input or output, no imports from layers above."""

from sketchselect._deferred import NUMPY_PARTS, deferred

with deferred(*NUMPY_PARTS):
    import scipy.sparse  # noqa: F401 - before any other part of SciPy
