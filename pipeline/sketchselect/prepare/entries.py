"""Entries of a list of prepare steps, read as steps: names, names with parameters, mappings, labels of earlier runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from sketchselect._plugins import Registry
from sketchselect._text import did_you_mean
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.validation import Array
from sketchselect.prepare.fitted import Clip, Impute, PearsonResiduals, PilotScale, Scale, Standardise, TfIdf
from sketchselect.prepare.fourier import Fourier
from sketchselect.prepare.steps import BadEntry, Block, LibrarySize, Log1p, Replaced, Step, UnitRows
from sketchselect.prepare.tables import Dates, OneHot

STEPS: Registry[type[Step]] = Registry(
    "steps",
    Step,
    "name",
    (
        UnitRows,
        Log1p,
        LibrarySize,
        TfIdf,
        PearsonResiduals,
        Standardise,
        Scale,
        PilotScale,
        Clip,
        Impute,
        Fourier,
        OneHot,
        Dates,
    ),
)
"""Name in a job file -> step."""

ROW_STEPS = tuple(name for name, step in STEPS.items() if step.acts_on == "rows")
"""Names allowed in ``[prepare] rows``."""

COLUMN_STEPS = tuple(name for name, step in STEPS.items() if step.acts_on == "columns")
"""Names allowed in ``[prepare] columns``."""

_LABEL = re.compile(r"\s*([A-Za-z0-9_-]+)\s*(?:\((.*)\))?\s*(?:#([0-9a-f]+))?\s*", re.DOTALL)


def resolve(entries: Sequence[Any] | None, further: Sequence[Any] = ()) -> tuple[Step, ...]:
    """Return the steps that a list of entries asks for, in order.

    Parameters
    ----------
    entries : sequence of str, mapping or Step
        A name (``"l2"``), a name with parameters (``"library-size(target=1000)"``), a mapping (``{"step":
        "library-size", "target": 1000}``), or a step as it is. A label of a fitted step (``"tf-idf#..."``) gives a
        step that can only be fitted with the same statistics.
    further : sequence of str, mapping or Step
        Steps that come last, such as those of a method; one whose name is among the entries is left out.

    Raises
    ------
    BadParameter
        For an unknown step or parameter, a value out of range, or an impossible order; one line.

    Examples
    --------
    >>> [step.label for step in resolve(["l2", {"step": "clip", "high": 10}])]
    ['l2', 'clip(high=10.0)']
    >>> [step.label for step in resolve(["l2", "log1p"], further=["l2"])]
    ['l2', 'log1p']
    """
    if entries is None:
        entries = ()
    if isinstance(entries, (str, Mapping, Step)):
        _refuse_auto(entries)
        step = repr(entries) if isinstance(entries, str) else "step"
        raise BadParameter(f"prepare must be a list of steps, got one step; write [{step}]")
    if not isinstance(entries, Iterable):
        raise BadParameter(f"prepare must be a list of steps, got {entries!r:.40}")
    steps = tuple(_step(entry) for entry in entries)
    names = {step.name for step in steps}
    steps += tuple(step for step in map(_step, further) if step.name not in names)
    _require_order(steps)
    return steps


def _step(entry: Any) -> Step:
    if isinstance(entry, Step):
        return entry
    digest = None
    _refuse_auto(entry)
    if isinstance(entry, str):
        match = _LABEL.fullmatch(entry)
        if match is None:
            raise BadParameter(
                f"prepare step {entry!r}: expected a name, or a name with parameters such as library-size(target=1000)"
            )
        name, inner, digest = match.groups()
        parameters = _parameters(name, inner or "")
    elif isinstance(entry, Mapping):
        parameters = dict(entry)
        if "step" not in parameters:
            raise BadParameter('prepare step: the table has no "step"; add step = "NAME"')
        name = parameters.pop("step")
    else:
        raise BadParameter(f"prepare step: expected a name or a table, got {type(entry).__name__}")
    if not isinstance(name, str) or name not in STEPS:
        hint = did_you_mean(str(name), known := STEPS.known(), f"; known steps: {', '.join(known)}")
        raise BadParameter(f"unknown prepare step {name!r}{hint}")
    cls = STEPS[name]
    known = [f.name for f in fields(cls) if not f.kw_only]
    for key in parameters:
        if key not in known:
            hint = did_you_mean(str(key), known, f"; it has {', '.join(known) or 'none'}")
            raise BadParameter(f"prepare step {name!r}: unknown parameter {key!r}{hint}")
    return cls(**parameters, expected=digest)


def _refuse_auto(entry: Any) -> None:
    if isinstance(entry, str) and entry == "auto":
        raise BadParameter(
            'prepare: "auto" is for job files (steps = "auto" in [prepare]), and no step; in Python '
            "sketchselect.cluster.compare_preparations chooses the steps"
        )


def _parameters(name: str, text: str) -> dict[str, Any]:
    """Return the parameters of ``name(key=value, ...)``: numbers, true or false, otherwise text."""
    parameters: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, sign, value = (part.strip() for part in item.partition("="))
        if not sign:
            raise BadParameter(f"prepare step {name!r}: expected key=value in the parentheses, got {item!r}")
        value = value.strip("\"'")
        parameters[key] = {"true": True, "false": False}.get(value, value)
        for kind in (float, int):
            with contextlib.suppress(ValueError):
                parameters[key] = kind(value)
    return parameters


def _require_order(steps: Sequence[Step]) -> None:
    """Raise `BadParameter` where a step for counts follows one of negative values, or one for tables another."""
    signed = None
    for before, step in pairwise(steps):
        if step.encodes is not None and sum(other.encodes == step.encodes for other in steps) > 1:
            raise BadParameter(f"prepare step {step.name!r} is given twice; leave one out")
        if step.encodes is not None and before.encodes is None:
            raise BadParameter(
                f"prepare step {step.name!r} is for columns of a table as they are; put it before {before.name!r}"
            )
    for step in steps:
        if signed is not None and step.of_counts:
            raise BadParameter(
                f"prepare step {step.name!r} is defined for counts, and {signed!r} before it gives negative values; "
                f"put {step.name!r} first"
            )
        if not step.may_be_negative(signed is not None):
            signed = None
        elif signed is None:
            signed = step.name


def labels(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the labels of some steps, as in the `prepare` of a summary."""
    return tuple(step.label for step in steps)


def apply_steps(
    steps: Sequence[Step],
    block: Block,
    *,
    position: int | Array = 0,
    address: str | None = None,
    names: tuple[str, ...] | None = None,
    replaced: dict[tuple[int, int], Replaced] | None = None,
    filled: dict[int, Array] | None = None,
) -> Block:
    """Return the block after the steps, in order; the input is not changed.

    Parameters
    ----------
    steps : sequence of Step
        Fitted where they need to be.
    block : array or csr_array of shape (n_rows, n_columns)
        Canonical rows.
    position : int or array of int
        Global index of the first row, or of every row, for messages.
    address : str, optional
        Where the rows are from, for messages.
    names : tuple of str, optional
        Names of the columns before the steps, for messages.
    replaced : dict, optional
        Gets the entries that steps take for something else, by the step's place and the column before it.
    filled : dict, optional
        Gets the number of values of every column that a step fills, by the step's place.

    Raises
    ------
    BadBlock
        Where a step is not defined for an entry; names row and column.
    BadParameter
        For a step that is not fitted.
    """
    n_columns = block.shape[1]
    for i, step in enumerate(steps):
        if filled is not None and step.fills_missing:
            filled[i] = step.n_filled(block)
        if replaced is not None:
            for place, entries in step.replaced(block).items():
                rows = {code: _row(position, row) for code, row in entries.levels.items()}
                replaced[i, place] = Replaced(entries.n_rows, rows)
        try:
            block = step.apply(block)
        except BadEntry as error:
            before = names_after(steps[:i], names, n_columns)
            column = error.column if before is None else f"{before[error.column]!r:.80}"
            where = "" if address is None else f"{address}: "
            raise BadBlock(f"{where}row {_row(position, error.row)}, column {column}: {error.problem}") from None
    return block


def _row(position: int | Array, row: int) -> int:
    """Return the global index of a row of a block."""
    return int(position[row]) if isinstance(position, np.ndarray) else position + row


def widths(steps: Sequence[Step], n_columns: int) -> list[int]:
    """Return the number of columns before the first step, and after each."""
    counts = [n_columns]
    for step in steps:
        counts.append(step.n_columns(counts[-1]))
    return counts


def columns_after(steps: Sequence[Step], n_columns: int) -> int:
    """Return the number of columns after the steps."""
    return widths(steps, n_columns)[-1]


def names_after(steps: Sequence[Step], names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names of the columns after the steps."""
    for step in steps:
        names, n_columns = step.column_names(names, n_columns), step.n_columns(n_columns)
    return names


def encodings(steps: Sequence[Step], names: Sequence[str] | None = None) -> Collection[str]:
    """Return the kinds of columns of a table, besides numbers, that are to be read for these steps.

    With `names`, those of the table's columns, and fitted steps as a mapping to the names of the columns of each kind.
    """
    encoding = [step for step in steps if step.encodes is not None]
    if names is None or not encoding or any(step.values is None for step in encoding):
        return tuple(step.encodes for step in encoding if step.encodes is not None)
    places = {step.encodes: step.value("places").tolist() for step in encoding if step.encodes is not None}
    return {kind: tuple(names[j] for j in columns) for kind, columns in places.items()}


def check_steps(entries: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the labels of the steps, or raise `BadParameter` as `resolve` does."""
    return labels(resolve(entries))


def apply(entries: Sequence[Any], block: Block) -> Block:
    """Return the block after the steps of a list of entries (see `resolve`), in order; the input is not changed."""
    return apply_steps(resolve(entries), block)
