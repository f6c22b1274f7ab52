"""The search for the fewest columns whose clustering is proved to be within a tolerance of the best one possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sketchselect.selectors import AutoSelector, Selection
from sketchselect.workflow.output.digests import file_digest
from sketchselect.workflow.stages.certificates import bound_of_blocks, solved_blocks
from sketchselect.workflow.stages.evaluation import Evaluation
from sketchselect.workflow.stages.session import VERSION, Session

STAGE = "proof"

STEP = 8
"""An eighth of the columns is added where a proof fails, and left out where it holds, until it does the other."""


def aim(session: Session) -> None:
    """Make the lower bound of all clusterings, and have the selector choose columns by it, if the job asks for it."""
    tolerance, settings, selector = session.config.select.tolerance_proved, session.config.cluster, session.selector
    if tolerance is None or session.has_preset:
        return
    assert settings is not None
    assert isinstance(selector, AutoSelector)
    planned = solved_blocks(session.config, session.rows, session.n_columns)
    assert planned.description is not None  # `load_job` refuses a job without
    bound = bound_of_blocks(session, session.rows, planned.description, "block certificate").value
    selector.largest_objective = (1.0 + tolerance) * bound.lower_bound(planned.confidence)
    # A job that is run again begins where it ended.
    _use(selector, session.folder.finished(STAGE, _fingerprint(session)) or {})


def _fingerprint(session: Session) -> dict[str, Any]:
    config = session.config
    settings = [one.model_dump(mode="json") for one in (config.select, config.cluster) if one is not None]
    return {"version": VERSION, "summary": file_digest(session.folder.path / "summary.sks"), "settings": settings}


def _use(selector: AutoSelector, sizes: Mapping[str, Any]) -> None:
    selector.least_columns = sizes.get("least_columns", 1)
    selector.largest_columns = sizes.get("largest_columns")


def aim_again(session: Session, selection: Selection) -> None:
    """Have the selector choose columns by the bound that an earlier selection was made by, if it was by one."""
    if isinstance(session.selector, AutoSelector) and "largest_objective" in selection.diagnostics:
        session.selector.largest_objective = selection.diagnostics["largest_objective"]
        _use(session.selector, selection.diagnostics)


def tries_again(session: Session, evaluation: Evaluation | None) -> bool:
    """Return whether another number of columns is to be tried, which the selector takes then.

    More where the proof failed, fewer where it holds, down to a number for which it failed; the last one that is tried
    is one for which it holds.
    """
    selector, tolerance = session.selector, session.config.select.tolerance_proved
    if tolerance is None or evaluation is None or session.has_preset:
        return False
    assert isinstance(selector, AutoSelector)
    state = {"failed": 0, "proved": None} | (session.folder.finished(STAGE, _fingerprint(session)) or {})
    failed, proved, size = state["failed"], state["proved"], len(selector.support_)
    factor = min((one.factor for one in evaluation.certificates), default=float("inf"))
    sizes: tuple[int, int | None]
    text = f"{size} columns: proved within {100.0 * (factor - 1.0):.3g} %"
    if factor <= 1.0 + tolerance:
        proved, following = size, size - max(1, size // STEP)
        ends, word, sizes = following <= failed, "fewer", (following, following)
    elif proved is not None and size < proved:
        failed, ends, word, sizes = size, False, f"{proved} again", (proved, proved)
    else:
        failed, proved, ends, word = size, None, size >= selector.most_columns, "more"
        sizes = size + max(1, size // STEP), None
        if ends:
            session.note(
                f"no number of columns up to {size} was proved to be within {100.0 * tolerance:.3g} % of the optimum: "
                f"the bound proves {100.0 * (factor - 1.0):.3g} %; larger blocks, or reassign = true, may prove more"
            )
    if not ends:
        session.progress.note(f"{text}, asked for {100.0 * tolerance:.3g} %; trying {word}")
        selector.least_columns, selector.largest_columns = sizes
    sought = {"least_columns": selector.least_columns, "largest_columns": selector.largest_columns}
    session.folder.finish(STAGE, _fingerprint(session), [], {"failed": failed, "proved": proved, **sought})
    return not ends
