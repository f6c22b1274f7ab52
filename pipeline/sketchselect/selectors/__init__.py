"""Selectors: scikit-learn estimators around pure functions ``summary -> Selection``; and components of a sketch."""

from __future__ import annotations

from sketchselect import _lazy

# A selector is imported when it is used: the others take as long as a fit of a small array.
__all__, __getattr__, __dir__ = _lazy.names_of_stub(globals())
