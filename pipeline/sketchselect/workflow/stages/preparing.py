"""The stage before the first pass: what prepare steps need to know of all rows, published as ``prepare.sks``."""

from __future__ import annotations

from typing import Any

from sketchselect.errors import SketchSelectError
from sketchselect.summaries import StepStatistics, Summary, codec
from sketchselect.workflow.stages.session import Session

FILE = "prepare.sks"
"""Name of the file of statistics in an output folder."""


def use_earlier(session: Session) -> None:
    """Fit the steps with the file of ``[prepare] fitted``; the source is not read.

    Raises `SketchSelectError` if there is no such file, or it holds statistics of other steps or columns.
    """
    path = session.config.prepare.fitted
    assert path is not None
    try:
        session.use_fitted(*fit_with(session, codec.load(path)))
    except SketchSelectError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise type(error)(f"prepare.fitted: {path}: {reason}") from None


def fit_with(session: Session, statistics: Summary[Any]) -> tuple[Any, StepStatistics | None]:
    """Return the steps, fitted with statistics that exist already, and these."""
    from sketchselect.execution import LocalEngine, PassOptions, fit_steps

    fitted = fit_steps(session.source, PassOptions(LocalEngine(kind="serial")), statistics=statistics)
    return fitted.steps, fitted.statistics


def prepare(session: Session) -> None:
    """Fit the steps that need statistics of all rows, one pass each, and publish what they were fitted from.

    Nothing is done where no step needs any. What an earlier run of the same steps on the same source published is used
    again; so is the file of ``[prepare] fitted``, which makes appended rows cost only themselves.
    """
    if session.statistics is not None:
        _publish_earlier(session)
    elif not session.is_prepared:
        _fit(session)


def _publish_earlier(session: Session) -> None:
    """Keep a copy of the statistics given beside what is made with them."""
    assert session.statistics is not None
    raw, path = codec.encode(session.statistics), session.folder.path / FILE
    if not path.exists() or path.read_bytes() != raw:
        session.folder.invalidate_results()
        session.folder.write(FILE, raw)
    session.progress.note(f"prepare: fitted with the statistics of {session.config.prepare.fitted}; nothing is read")


def _fit(session: Session) -> None:
    from sketchselect.execution import fit_steps

    fingerprint = session.source_fingerprint()
    with session.stage("prepare") as entry:
        if session.reusable("prepare", fingerprint, entry):
            session.use_fitted(*fit_with(session, codec.load(session.folder.path / FILE)))
            return
        options = session.pass_options.but(account=lambda stats: session.account(entry, stats))
        fitted = fit_steps(session.source, options)
        assert fitted.statistics is not None
        session.require_unchanged()
        session.folder.invalidate_results()
        session.folder.write(FILE, codec.encode(fitted.statistics))
        session.folder.finish("prepare", fingerprint, [FILE], entry)
        session.use_fitted(fitted.steps, fitted.statistics)


def discard(session: Session) -> None:
    """Delete the statistics of an earlier job, where this one's steps need none."""
    if session.statistics is None:
        session.folder.discard((FILE,))


def beside(selection_folder: Any, labels: Any) -> str | None:
    """Return the file of statistics beside a selection whose rows were prepared with fitted steps; None without."""
    path = selection_folder / FILE
    return str(path) if path.exists() and any("#" in label for label in labels) else None
