"""Pure kernels on arrays: no state, no input or output, nothing of the package above them."""
