"""The report page of a run: its record kept as ``report.json``, drawn as ``report.html``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.cluster import Certificate
from sketchselect.errors import DamagedFile, NotOurFolder, SourceError
from sketchselect.report import (
    Agreement,
    ClusterCountRecord,
    ComparedRecord,
    ModelRecord,
    RunRecord,
    StageRecord,
    TimelineRecord,
    render,
)
from sketchselect.workflow.output.folder import MARKER, OutputFolder, open_folder, sealed, unsealed
from sketchselect.workflow.output.tables import plain_value

MAX_SPECTRUM = 512
"""Singular values shown."""

_RECORDS: dict[str, type[Any]] = {
    "model": ModelRecord,
    "timeline": TimelineRecord,
    "cluster_count": ClusterCountRecord,
    "known_labels": Agreement,
}


def publish_report(folder: OutputFolder, record: RunRecord) -> Path:
    """Write ``report.json``, the data of the page, and ``report.html``."""
    content = {**asdict(record), "certificates": [one.to_dict() for one in record.certificates]}
    folder.write("report.json", sealed(plain_value(content)))
    return folder.write("report.html", render(record))


def render_folder(path: Path) -> Path:
    """Draw ``report.html`` of an output folder again, from its ``report.json``.

    Raises `NotOurFolder` or `SourceError` or `DamagedFile` if there is nothing to draw it from.
    """
    if not path.is_dir():
        raise SourceError(f"{path}: no such folder")
    if not (path / MARKER).is_file():
        raise NotOurFolder(f"{path}: not an output folder of sketchselect; give the folder that a run wrote")
    source = path / "report.json"
    try:
        content = unsealed(source)
        record = record_of(content)
    except FileNotFoundError:
        if (path / "manifest.json").is_file():
            raise SourceError(f"{path}: the job had output.report = false; run it again with true") from None
        raise SourceError(f"{path}: no report.json: the run did not finish; run the job again to resume it") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedFile(f"{source}: damaged ({type(error).__name__}); run the job again") from None
    with open_folder(path) as folder:
        return folder.write("report.html", render(record))


def record_of(content: Mapping[str, Any]) -> RunRecord:
    """Return the record that `publish_report` wrote as JSON."""
    values = dict(content)
    values["scores"] = np.array([math.nan if v is None else v for v in values["scores"]], dtype=np.float64)
    values["stages"] = [StageRecord(**stage) for stage in values["stages"]]
    values["certificates"] = [Certificate.from_dict(entry) for entry in values["certificates"]]
    values["compared"] = [ComparedRecord(**entry) for entry in values["compared"]]
    for name, record_type in _RECORDS.items():
        if values[name] is not None:
            values[name] = record_type(**values[name])
    return RunRecord(**values)
