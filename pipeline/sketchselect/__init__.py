"""Selection of columns from matrices too big for memory, and k-means on them, with proven bounds.

One pass over the data leaves small mergeable summaries; selection, clustering and certificates come from them.
"""

from __future__ import annotations

from sketchselect import _kernel_cache, _lazy

_kernel_cache.ensure_writable()

_FORMER = dict.fromkeys(("CentroidSums", "LeverageSample"), "sketchselect.summaries")

# Public names are imported when they are used, so that `import sketchselect` stays light.
__all__, __getattr__, __dir__ = _lazy.names_of_stub(globals(), _FORMER)
