"""Versions of the package and of its kernels."""

__version__ = "0.1.0"

KERNEL_VERSION = 10
"""Raised when the bits that a kernel or the merge tree gives for the same input change."""
