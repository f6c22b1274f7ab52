"""The search for the fewest columns whose clustering is proved to be within a tolerance of the best one possible."""

from __future__ import annotations

from typing import Any

from sketchselect.selectors import AutoSelector, Selection
from sketchselect.workflow.output.digests import file_digest
from sketchselect.workflow.stages.certificates import bound_of_blocks
from sketchselect.workflow.stages.evaluation import Evaluation
from sketchselect.workflow.stages.session import VERSION, Session

STAGE = "proof"

STEP = 8
"""Where a proof fails, an eighth of the columns is added."""


def aim(session: Session) -> None:
    """Make the lower bound of all clusterings, and have the selector choose columns by it, if the job asks for it."""
    tolerance, settings, selector = session.config.select.tolerance_proved, session.config.cluster, session.selector
    if tolerance is None or session.has_preset:
        return
    assert settings is not None
    assert settings.certificate_settings is not None
    assert isinstance(selector, AutoSelector)
    options, k, seed = settings.certificate_settings, settings.n_clusters, settings.random_state
    bound = bound_of_blocks(session, session.rows, options, k, seed, "block certificate").value
    selector.largest_objective = (1.0 + tolerance) * bound.lower_bound(options.confidence)
    # A job that is run again begins where it ended.
    selector.least_columns = (session.folder.finished(STAGE, _fingerprint(session)) or {}).get("least_columns", 1)


def _fingerprint(session: Session) -> dict[str, Any]:
    config = session.config
    settings = [one.model_dump(mode="json") for one in (config.select, config.cluster) if one is not None]
    return {"version": VERSION, "summary": file_digest(session.folder.path / "summary.sks"), "settings": settings}


def aim_again(session: Session, selection: Selection) -> None:
    """Have the selector choose columns by the bound that an earlier selection was made by, if it was by one."""
    if isinstance(session.selector, AutoSelector) and "largest_objective" in selection.diagnostics:
        session.selector.largest_objective = selection.diagnostics["largest_objective"]
        session.selector.least_columns = selection.diagnostics["least_columns"]


def needs_more(session: Session, evaluation: Evaluation | None) -> bool:
    """Return whether the proof failed and more columns may help; the selector takes more of them then."""
    selector, tolerance = session.selector, session.config.select.tolerance_proved
    if tolerance is None or evaluation is None or session.has_preset:
        return False
    assert isinstance(selector, AutoSelector)
    factor = min((one.factor for one in evaluation.certificates), default=float("inf"))
    size = len(selector.support_)
    if factor <= 1.0 + tolerance:
        return False
    if size >= selector.most_columns:
        session.note(
            f"no number of columns up to {size} was proved to be within {tolerance:.3g} of the optimum: the bound "
            f"proves {factor - 1.0:.3g}; larger blocks, or reassign = true, may prove more"
        )
        return False
    session.progress.note(f"{size} columns: proved within {factor - 1.0:.3g}, more than {tolerance:.3g}; trying more")
    selector.least_columns = size + max(1, size // STEP)
    least = {"least_columns": selector.least_columns}
    session.folder.finish(STAGE, _fingerprint(session), [], least)
    return True
