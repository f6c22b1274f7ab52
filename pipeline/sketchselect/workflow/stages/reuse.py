"""Reuse of the stages of an earlier run: fingerprints, and what invalidates results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sketchselect.errors import Incompatible, SketchSelectError
from sketchselect.summaries import codec
from sketchselect.workflow.stages.session import Session


def reusable(session: Session, stage: str, fingerprint: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
    """Fill the entry from an earlier run's finished stage if it was made from the same."""
    result = session.folder.finished(stage, fingerprint)
    if result is None:
        changed = session.folder.differences(stage, fingerprint)
        if changed:
            session.progress.note(f"{stage}: done anew, changed since the last run here: {', '.join(changed)}")
        if stage not in ("prepare", "summarize"):
            invalidate_results(session)
        return False
    entry.update(result, reused=True)
    session.progress.note(f"{stage}: already done by an earlier run with the same input and settings")
    return True


def invalidate_results(session: Session) -> None:
    """Discard what says that the folder is whole, before anything that it speaks of changes."""
    session.folder.discard(("manifest.json", "certificate.json", "report.json", "report.html"))


def source_fingerprint(session: Session, **further: Any) -> dict[str, Any] | None:
    """Return what identifies the prepared rows, and further entries; None where the source cannot be identified."""
    if session.identity is None:
        return None
    inputs = session.config.input
    return {
        "version": version(),
        "source": session.identity,
        "shape": list(session.matrix.shape),
        "feature_names": names_digest(session.matrix.feature_names),
        "prepare": list(session.prepare),
        "policies": [inputs.nonfinite, inputs.missing_chunks],
        "partition_bytes": session.config.execution.partition_bytes,
        **further,
    }


def names_digest(names: Sequence[str] | None) -> str | None:
    """Return a digest of the columns' names, which are no part of a matrix's identity, None where they have none."""
    if names is None:
        return None
    return hashlib.blake2b(json.dumps(list(names)).encode(), digest_size=16).hexdigest()


def require_same_names(session: Session) -> None:
    """Raise `Incompatible` where rows were appended to a source whose columns have other names than before.

    PartitionedSummary of an earlier run would be merged with parts whose columns stand for something else.
    """
    before = session.folder.fingerprint("summarize")
    names = session.matrix.feature_names
    if before is None or names is None or before.get("feature_names") in (None, names_digest(names)):
        return
    rows, width = before["shape"]
    if width != len(names) or rows >= session.matrix.shape[0]:
        return
    try:
        old = codec.load(session.folder.path / "summary.sks").feature_names
    except SketchSelectError:
        return
    for j, (a, b) in enumerate(zip(old or (), names, strict=False)):
        if a != b:
            raise Incompatible(
                f"{session.matrix.address}: rows were appended since the last run here, and column {j}, which was "
                f"named {a!r}, is named {b!r} now; put the columns in the order they had, or start anew with --fresh"
            )


def target_fingerprint(session: Session) -> str | None:
    """Return what identifies the target, None where there is none."""
    target = session.vector("target")
    return None if target is None else target.identity()


def labels_fingerprint(session: Session) -> str | None:
    """Return what identifies the labels that a method was given as a file, None where it was given none."""
    labels = session.partition()
    return None if labels is None else labels.identity()


def version() -> str:
    """Return the version of everything that decides the bits of a result."""
    from sketchselect._version import __version__
    from sketchselect.execution.checkpoints.fingerprint import KERNEL_VERSION

    return f"{__version__}/{KERNEL_VERSION}"
