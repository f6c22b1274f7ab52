"""Options of the command line that are checked as a job file is.

Outcome of a command: for people in words, for programs as plain data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sketchselect.errors import ConfigError, DamagedFile, NotOurFolder, SketchSelectError, SourceError
from sketchselect.job.load import load_job
from sketchselect.job.schema import JobConfig


def require_replaceable(path: Path, suffix: str, start: bytes, option: str = "-o") -> None:
    """Raise unless `path` is free, or a file of the kind that is about to be written there."""
    if path.suffix != suffix:
        raise ConfigError(f"{option} {path}: the name must end in {suffix}")
    if path.is_dir():
        raise NotOurFolder(f"{path}: a folder is there; choose another name")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: the folder {path.parent} does not exist; make it first")
    try:
        # A folder's rights do not tell what a network file system or a full disk will do.
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise SketchSelectError(f"{path}: cannot be written: {error.strerror}") from None
    if not path.exists():
        return
    with path.open("rb") as stream:
        head = stream.read(len(start))
    if head and head != start:
        raise DamagedFile(
            f"{path}: exists and is not a {suffix} file of ours, so it is not overwritten; choose another name"
        )


def job_of(
    source: str,
    options: Mapping[str, Any],
    prepare: Sequence[str] | Mapping[str, Any],
    execution: Mapping[str, Any],
    **sections: Mapping[str, Any],
) -> JobConfig:
    """Return the command line's options as a checked job, so that they get the job file's messages.

    The job's method is never used: these commands select nothing.
    """
    from sketchselect.selectors.sketched import VarianceSelector

    return load_job(
        {
            "input": {"url": source, **{k: v for k, v in options.items() if v is not None}},
            "prepare": dict(prepare) if isinstance(prepare, Mapping) else {"steps": list(prepare)},
            "select": {"method": VarianceSelector.method},
            "execution": {k: v for k, v in execution.items() if v is not None},
            **sections,
        }
    )
