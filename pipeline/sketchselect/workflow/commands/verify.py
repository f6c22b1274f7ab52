"""The verb `verify` of the command line: a finished run, read and computed again, and compared with what it left."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.checkpoints.checkpoint import list_nodes, read_node
from sketchselect.execution.run import node_index, run_pass
from sketchselect.execution.summarize import SummaryPasses
from sketchselect.linalg.hashing import digest
from sketchselect.readers.base import Partitions
from sketchselect.summaries import CentroidSums, Summary, codec
from sketchselect.workflow.commands.certify import complete, job_of
from sketchselect.workflow.output import tables
from sketchselect.workflow.output.digests import file_digest
from sketchselect.workflow.output.folder import read_manifest
from sketchselect.workflow.stages import columns, preparing, proof
from sketchselect.workflow.stages.model import model_json, model_of
from sketchselect.workflow.stages.opening import open_session
from sketchselect.workflow.stages.session import Session

ROUNDING = 1e-9
"""Objectives of the same labels, summed in another order, differ by less."""


@dataclass(frozen=True)
class Check:
    """One statement of a run's folder, and whether it holds; None where it could not be checked."""

    name: str
    holds: bool | None
    text: str

    def line(self) -> str:
        """Return the outcome in one line."""
        return f"{ {True: 'holds', False: 'DIFFERS', None: 'not checked'}[self.holds]:<12} {self.name}: {self.text}"


def verify_run(
    path: Path, *, share: float = 1.0, execution: Mapping[str, Any] | None = None, progress: Any = False
) -> list[Check]:
    """Return what of a finished run still holds. Nothing in its folder is changed.

    Its files have the digests of the manifest; its source is what it was; rows that are read again give the bits of the
    summary; the summary gives the selection; the labels have the objective. With a `share` below 1 only this share of
    the parts in checkpoints is read again, chosen by hash, and the labels are not summed.

    Raises `SketchSelectError` where the run did not finish, its source cannot be opened, or a cluster is lost.
    """
    if not 0 < share <= 1:
        raise BadParameter(f"--share: must be above 0 and at most 1, got {share}")
    content = read_manifest(path, complete)
    checks = [_files(path, content)]
    with open_session(job_of(path, content, execution or {}), progress=progress) as session:
        checks.append(_source(session, content))
        unchanged = checks[-1].holds is not False
        build = next((stage["build"] for stage in content["stages"] if "build" in stage), None)
        same_build = build == list(session.engine.build())
        checks.append(_build(build, list(session.engine.build())))
        with _checking(checks, "preparation") as add:
            _use_statistics(session)
            same = list(session.prepare) == content["prepare"]
            steps = ", ".join(session.prepare) or "no steps"
            add(same, steps if same else f"{steps}; the run's are {', '.join(content['prepare'])}")
        with _checking(checks, "summary.sks") as add:
            summary = codec.load(path / "summary.sks")
            description = columns.description(session.config, session.selector, session.n_columns)
            source = session.rows if session.selects_apart else session.source
            if not (unchanged and same_build):
                add(None, "other rows or libraries give other bits")
            else:
                add(*_read_again(session, source, description, summary, share))
        with _checking(checks, "selection") as add:
            _selection(session, content, same_build, add)
        if "objective" in content:
            with _checking(checks, "objective") as add:
                if not unchanged or share < 1:
                    add(None, "it takes all rows (--share 1), as they were")
                else:
                    add(*_objective(session, content))
    return checks


@contextmanager
def _checking(checks: list[Check], name: str) -> Iterator[Callable[[bool | None, str], None]]:
    """Add the outcomes of one check; what cannot be read or computed again does not hold."""
    try:
        yield lambda holds, text: checks.append(Check(name, holds, text))
    except SketchSelectError as error:
        if error.exit_code != SketchSelectError.exit_code:  # the cluster was lost, or the user stopped it
            raise
        checks.append(Check(name, False, str(error)))


def _files(path: Path, content: Mapping[str, Any]) -> Check:
    digests = content.get("digests")
    if digests is None:
        return Check("files", None, "the manifest has no digests; it is of an earlier version")
    missing = [name for name in content["files"] if not (path / name).exists()]
    changed = [name for name in digests if name not in missing and file_digest(path / name) != digests[name]]
    if missing or changed:
        words = [f"{', '.join(names)} {what}" for names, what in ((missing, "missing"), (changed, "changed")) if names]
        return Check("files", False, "; ".join(words))
    return Check("files", True, f"{len(content['files'])} are there, {len(digests)} have the digests of the manifest")


def _source(session: Session, content: Mapping[str, Any]) -> Check:
    address, identity = session.matrix.address, content["source"]["identity"]
    if identity is None:
        return Check("source", None, f"the content of {address} has no identity")
    same = identity == session.identity
    return Check("source", same, f"{address} {'is as the run read it' if same else 'was rewritten since'}")


def _build(build: list[str] | None, here: list[str]) -> Check:
    if build is None:
        return Check("libraries", None, "the manifest does not say which made the bits; it is of an earlier version")
    other = sorted({*build} ^ {*here})
    if other:
        return Check("libraries", None, f"others made the bits, so none are compared ({'; '.join(other)})")
    return Check("libraries", True, "versions, BLAS and processor are those that made the bits")


def _use_statistics(session: Session) -> None:
    """Take the steps as the run fitted them."""
    if not session.is_prepared and session.statistics is None:
        session.use_fitted(*preparing.fit_with(session, codec.load(session.folder.path / preparing.FILE)))


def _read_again(
    session: Session, source: Source, description: Summary[Any], whole: Summary[Any], share: float
) -> tuple[bool | None, str]:
    """Return whether rows that are read again give the same bits: all rows, or those below some saved nodes."""
    options, n_rows = session.pass_options, source.n_rows
    if share == 1:
        again = summarize_source(source, description, options.but(checkpoint=None), stage="verify").value
        same = codec.encode(again) == codec.encode(whole)
        return same, f"of {n_rows:,} rows read again, {'every bit is the same' if same else 'the bits are others'}"
    passes, differing = SummaryPasses.of(source, description, options), list[str]()
    n_read = n_parts = n_saved = 0
    for described in passes.descriptions:
        work = passes.planned(described)
        index = node_index(work, options, passes.reduction(described).key)
        saved = {} if index is None else list_nodes(index.directory)
        names = {} if index is None else {node: index.name(node).name for node in work.tree.post_order()}
        nodes = [node for node in names if names[node] in saved]
        above = {node for node in nodes if any(names[child] in saved for child in work.tree.children(node))}
        lowest = sorted((n for n in nodes if n not in above), key=lambda n: len(work.tree.partitions(n)))
        n_saved += len(lowest)
        for node in [n for n in lowest if int(digest(names[n])[:8], 16) < share * 16**8] or lowest[:1]:
            below = work.tree.partitions(node)
            edges = work.partitions.edges[below.start : below.stop + 1]
            part = replace(
                work,
                tree=replace(work.tree, n_partitions=len(below)),
                partitions=Partitions(edges),
                stage="verify",
                token=uuid4().hex,
            )
            value = run_pass(part, options, None).output.value
            n_read, n_parts = n_read + edges[-1] - edges[0], n_parts + 1
            if codec.encode(value) != codec.encode(read_node(saved[names[node]])):
                differing.append(f"rows {edges[0]} to {edges[-1] - 1}")
    if not n_parts:
        return None, "no part of it is in the checkpoints; --share 1 reads all rows"
    if differing:
        return False, f"other bits from {', '.join(differing)}"
    return (
        True,
        f"of {n_read:,} of {n_rows:,} rows read again, {n_parts} of {n_saved} saved parts: every bit is the same",
    )


def _selection(
    session: Session, content: Mapping[str, Any], same_build: bool, add: Callable[[bool | None, str], None]
) -> None:
    """Select again from the summary, and compare the selection, and the model where there is one."""
    folder = session.folder.path
    if content["selection"]["given"]:
        return add(None, "the columns came from a file")
    origin = "columns.sks" if "columns.sks" in content["files"] else "summary.sks"
    proof.aim_again(session, tables.read_selection(folder / "selection.json"))
    fitted = columns.fitted(session, codec.load(folder / origin))
    texts = {"selection.json": tables.selection_json(fitted.selection_)}
    if "model.json" in content["files"]:
        model = model_of(fitted)
        texts["model.json"] = "" if model is None else model_json(model)
    for name, text in texts.items():
        before = (folder / name).read_text(encoding="utf-8")
        if text == before:
            add(True, f"{origin} gives {name} again, every byte the same")
        elif same_build or name == "model.json":
            add(False if same_build else None, f"{origin} gives another {name}")
        else:
            same = json.loads(text)["support"] == json.loads(before)["support"]
            add(same, f"{origin} gives {'the same columns again' if same else 'other columns'}")
    return None


def _objective(session: Session, content: Mapping[str, Any]) -> tuple[bool, str]:
    description = CentroidSums(content["clustering"]["n_clusters"])
    source = session.labelled_rows("labels.zarr")
    sums = summarize_source(source, description, session.pass_options.but(checkpoint=None), stage="verify")
    objective, stated = float(cast(CentroidSums, sums.value).objective), content["objective"]
    same = math.isclose(objective, stated, rel_tol=ROUNDING)
    return same, f"of {source.n_rows:,} labels {objective:.12g}, in the manifest {stated:.12g}"
