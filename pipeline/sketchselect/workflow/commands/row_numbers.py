"""Row numbers across files: ages and draws depend on them, and every file begins at 0 by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sketchselect.errors import BadParameter, ConfigError
from sketchselect.summaries import Bundle, DecayedDirections, DecayedMoments, Summary


def check_options(half_life: float | None, after: int, numbered: bool) -> None:
    """Raise `ConfigError` for a half-life out of range, or rows that came before where no summary numbers its rows."""
    if half_life is None:
        if after and not numbered:
            raise ConfigError("--after: nothing here depends on row numbers; add --half-life, --folds or --sample")
        return
    try:
        DecayedMoments(half_life=half_life)
    except BadParameter as error:
        raise ConfigError(f"--half-life: {error}") from None


def overlap(left: Summary[Any], right: Summary[Any], file: Path) -> str | None:
    """Return a note where the rows of a file have numbers that earlier files had, so that they seem as old as those."""
    for before, after in zip(_fading(left), _fading(right), strict=False):
        if after.end - after.n_rows < before.end:
            return (
                f"note: rows {max(after.end - after.n_rows, 0)} to {after.end - 1} of {file} have numbers that other "
                "rows have too, so they are taken to be as old as those; if they came later, summarize them with "
                f"--after {before.end}"
            )
    return None


def _fading(summary: Summary[Any]) -> Iterator[DecayedDirections | DecayedMoments]:
    members = summary.values() if isinstance(summary, Bundle) else [summary]
    for member in members:
        if isinstance(member, (DecayedDirections, DecayedMoments)) and member.n_rows:
            yield member
