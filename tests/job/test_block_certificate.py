"""`[cluster] certificate = "blocks"`: a pass of its own, shown in manifest and report, never above the objective."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sketchselect as sks


def test_the_job_proves_more_from_blocks(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job(cluster={"n_clusters": 6, "certificate": "blocks"}, output={"report": True}))
    spectral, blocks, drop = result.certificates
    assert (spectral.method, blocks.method, drop.method) == ("spectral", "blocks", "spectral+drop")
    assert spectral.lower_bound < blocks.lower_bound <= result.objective
    assert result.certificate is blocks
    assert blocks.confidence == 1.0
    assert blocks.details["n_blocks"] == blocks.details["n_solved"] == 1
    out = tmp_path / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    assert [c["method"] for c in manifest["certificates"]] == ["spectral", "blocks", "spectral+drop"]
    assert "block certificate" in [stage["name"] for stage in manifest["stages"]]
    assert "blocks" in (out / "report.html").read_text()
