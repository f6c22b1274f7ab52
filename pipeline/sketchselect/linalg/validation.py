"""Parameters of constructors: whole numbers, numbers within limits, seeds, former names."""

from __future__ import annotations

import functools
import warnings
from numbers import Real
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter


def require_positive(name: str, value: Any, least: int = 1) -> int:
    """Return `value` as an int of at least `least`, or raise `BadParameter`."""
    if not _is_whole(value) or value < least:
        raise BadParameter(f"{name} must be a whole number of at least {least}, got {value!r:.40}")
    return int(value)


def require_number(
    name: str,
    value: Any,
    *,
    above: float = -np.inf,
    least: float = -np.inf,
    below: float = np.inf,
    most: float = np.inf,
) -> float:
    """Return `value` as a float within these limits, finite where `below` is left out, or raise `BadParameter`.

    Examples
    --------
    >>> require_number("decay", 0.5, above=0, most=1)
    0.5
    >>> require_number("decay", 2, above=0, most=1)
    Traceback (most recent call last):
        ...
    sketchselect.errors.BadParameter: decay must be a number above 0 and at most 1, got 2
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not (above < value < below and least <= value <= most):
        limits = {"above": above, "at least": least, "below": below, "at most": most}
        text = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if np.isfinite(limit))
        kind = f"a number {text}" if text else "a finite number"
        raise BadParameter(f"{name} must be {kind}, got {value!r:.40}")
    return float(value)


def require_seed(value: Any, name: str = "seed") -> int:
    """Return a seed as an int, or raise `BadParameter`: a whole number from 0 to 2^64 - 1, never a generator.

    Draws are hashed from seed and item (`hashing.uniforms`), so a seed must be the same in every process.
    """
    if not _is_whole(value) or not 0 <= value < 2**64:
        raise BadParameter(f"{name} must be a whole number from 0 to 2^64 - 1, got {value!r:.40}")
    return int(value)


def seed_of(random_state: Any) -> int:
    """Return the seed of a scikit-learn ``random_state``; a generator (or None, the global one) draws it.

    Raises `BadParameter` for a number that is no seed (`require_seed`), or an object that is no random state.
    """
    from sklearn.utils import check_random_state

    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        return require_seed(random_state, "random_state")
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def with_former_names(init: Any, renamed: dict[str, str]) -> Any:
    """Return a constructor that also takes parameters under their former names, and warns of them."""

    @functools.wraps(init)
    def constructor(self: Any, *args: Any, **keywords: Any) -> None:
        for name in renamed.keys() & keywords.keys():
            if renamed[name] in keywords:
                raise TypeError(f"{name!r} is the former name of {renamed[name]!r}; leave it out")
            warnings.warn(f"the parameter {name!r} is now called {renamed[name]!r}", FutureWarning, stacklevel=2)
            keywords[renamed[name]] = keywords.pop(name)
        init(self, *args, **keywords)

    return constructor


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
