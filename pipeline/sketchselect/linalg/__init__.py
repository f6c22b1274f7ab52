"""Pure functions and compiled kernels on arrays: no state, no input or output, no imports from layers above."""
