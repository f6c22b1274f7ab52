"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run, and none that fails because the machine was busy.
settings.register_profile("sketchselect", deadline=None, derandomize=True)
settings.load_profile("sketchselect")
