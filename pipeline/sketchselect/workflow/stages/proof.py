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
    if sizes.get("unproved") is not None:
        # No number of columns is proved, so that the estimate alone decides.
        selector.largest_objective = None
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
    is one for which it holds. Where it fails for the most columns too, all of them would prove nothing: those within
    `tolerance` by estimate are tried last, and it is said what is proved of them.
    """
    selector, tolerance = session.selector, session.config.select.tolerance_proved
    if tolerance is None or evaluation is None or session.has_preset:
        return False
    assert isinstance(selector, AutoSelector)
    state: dict[str, Any] = {"failed": 0, "proved": None, "unproved": None}
    state |= session.folder.finished(STAGE, _fingerprint(session)) or {}
    failed, proved, size = state["failed"], state["proved"], len(selector.support_)
    factor = min((one.factor for one in evaluation.certificates), default=float("inf"))
    sizes: tuple[int, int | None]
    text = f"{size} columns: proved within {_percent(factor)}"
    if (unproved := state["unproved"]) is not None:
        most, least_proved = unproved
        if factor > 1.0 + tolerance:
            session.note(
                f"no number of columns up to {most} is proved to be within {_percent(1.0 + tolerance)} of the optimum: "
                f"{most} are proved within {_percent(least_proved)}, and the {size} that `tolerance` chooses by "
                f"estimate within {_percent(factor)}; larger blocks, or reassign = true, may prove more"
            )
        return False
    if factor <= 1.0 + tolerance:
        proved, following = size, size - max(1, size // STEP)
        ends, word, sizes = following <= failed, "fewer", (following, following)
    elif proved is not None and size < proved:
        failed, ends, word, sizes = size, False, f"{proved} again", (proved, proved)
    elif size < selector.most_columns:
        failed, proved, ends, word = size, None, False, "more"
        sizes = size + max(1, size // STEP), None
    else:
        # JSON has no infinity, the factor where nothing is proved.
        unproved, sizes = (size, min(factor, 1e300)), (1, None)
        ends, word = False, "those within `tolerance` by estimate"
    if not ends:
        session.progress.note(f"{text}, asked for {_percent(1.0 + tolerance)}; trying {word}")
        _use(selector, {"least_columns": sizes[0], "largest_columns": sizes[1], "unproved": unproved})
    sought = {"least_columns": selector.least_columns, "largest_columns": selector.largest_columns}
    state = {"failed": failed, "proved": proved, "unproved": unproved, **sought}
    session.folder.finish(STAGE, _fingerprint(session), [], state)
    return not ends


def _percent(factor: float) -> str:
    return f"{100.0 * (factor - 1.0):.3g} %" if factor < 1e300 else "no factor at all"
