"""What decides whether a stage of an earlier run may be used again."""

from __future__ import annotations

from typing import Any

from sketchselect.workflow.session import Session


def reusable(session: Session, stage: str, fingerprint: dict[str, Any] | None, entry: dict[str, Any]) -> bool:
    """Fill the entry from an earlier run's finished stage if it was made from the same."""
    found = session.folder.finished(stage, fingerprint)
    if found is None:
        changed = session.folder.differences(stage, fingerprint)
        if changed:
            session.progress.note(f"{stage}: done anew, changed since the last run here: {', '.join(changed)}")
        if stage not in ("prepare", "summarize"):
            outdate(session)
        return False
    entry.update(found, reused=True)
    session.progress.note(f"{stage}: already done by an earlier run with the same input and settings")
    return True


def outdate(session: Session) -> None:
    """Discard what says that the folder is whole, before anything that it speaks of changes."""
    session.folder.discard(("manifest.json", "certificate.json", "report.json", "report.html"))


def source_print(session: Session) -> dict[str, Any] | None:
    """Return what identifies the prepared rows, or None where the source cannot be identified."""
    if session.identity is None:
        return None
    given = session.config.input
    return {
        "version": version(),
        "source": session.identity,
        "shape": list(session.matrix.shape),
        "prepare": list(session.prepare),
        "policies": [given.nonfinite, given.missing_chunks],
        "partition_bytes": session.config.execution.partition_bytes,
    }


def target_print(session: Session) -> str | None:
    """Return what identifies the target, None where there is none."""
    target = session.vector("target")
    return None if target is None else target.identity()


def partition_print(session: Session) -> str | None:
    """Return what identifies the labels that a method was given as a file, None where it was given none."""
    labels = session.partition()
    return None if labels is None else labels.identity()


def version() -> str:
    """Return the version of everything that decides the bits of a result."""
    from sketchselect import __version__
    from sketchselect.execution.fingerprint import KERNEL_VERSION

    return f"{__version__}/{KERNEL_VERSION}"
