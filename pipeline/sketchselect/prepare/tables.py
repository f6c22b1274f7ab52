"""Steps for columns of tables that are no numbers: indicators of the levels of text, and dates as days."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from sketchselect._text import counted, first_few, first_names
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.hashing import MISSING_LEVEL
from sketchselect.linalg.parameters import Count, Limits
from sketchselect.linalg.validation import Array, is_number
from sketchselect.prepare.steps import LISTED_LEVELS, BadEntry, Block, Need, Replaced, Step, as_floats, dense

MANY_LEVELS = 100
"""Text columns of more levels than this have a note: they may name the rows."""

MOST_LEVELS = 1000
"""Most levels of a column that become columns, grouped ones apart."""

_NONE = -1
_LIKE_DATE = re.compile(r"\d{4}([-/.])\d\d?\1\d\d?(?!\d)|\d\d?([-/.])\d\d?\2(\d\d|\d{4})(?!\d)")


_Rows = Annotated[
    int | float,
    Limits(
        "a number of rows, or a share below 1",
        lambda value: is_number(value, above=0) and (value < 1 or value == int(value)),
    ),
]


@dataclass(frozen=True, eq=False)
class OneHot(Step):
    """Text columns of a table replaced by columns of 0 and 1, one for each level, named ``column=level``.

    Levels are in the order of their text, whatever the order of the rows, then one of rare levels that are grouped
    (``column=other``) and one of missing entries (``column=missing``). Text, categories and truth values are text;
    numbers stay as they are. The levels are those of all rows, from a pass of exact counts, and the step comes before
    those for numbers.

    Parameters
    ----------
    min_frequency : int or float, optional
        Put the levels together that fewer rows have than this number, or than this share of the rows (below 1).
    max_categories : int, optional
        At most this many columns for the levels of a column, ``other`` among them: the most frequent levels stay, of
        equally frequent ones the last. Both as of scikit-learn's `OneHotEncoder`.
    missing : {"level", "zero", "error"}
        What a missing entry is: a level of its own, zero in all columns, or an error.
    unknown : {"zero", "other", "error"}
        What a level is that the rows of the fit did not have: zero in all columns, one of those put together (zero
        where there are none), or an error.
    drop : {"first"}, optional
        Leave the first level of every column of at least two out, so that its columns do not add up to 1 in every row,
        as of scikit-learn's `OneHotEncoder`. Zero in all columns is then that level: by ``unknown="zero"`` a level that
        the rows of the fit did not have is read as it, and by ``missing="zero"`` a missing entry. The notes of a job
        name the levels left out.

    Notes
    -----
    A column with more than 1,000 levels that are not grouped is refused.
    Cost a row: a binary search for each text column.
    """

    name: ClassVar[str] = "one-hot"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    encodes: ClassVar[str | None] = "text"
    keeps_sparsity = False
    needs = Need("level-counts", weighted=False)

    min_frequency: _Rows | None = None
    max_categories: Count | None = None
    missing: Literal["level", "zero", "error"] = "level"
    unknown: Literal["zero", "other", "error"] = "zero"
    drop: Literal["first"] | None = None

    def completed(self, summary: Any, matrix: Any) -> Any:
        """Return the counts with the texts of the levels, looked up in the source."""
        names = []
        for column, place in enumerate(matrix.text_columns):
            codes, rows = summary.levels(column)[0].tolist(), summary.first_rows(column).tolist()
            n_missing = codes[:1].count(MISSING_LEVEL)
            texts = matrix.levels[place].names(codes[n_missing:], rows[n_missing:])
            names.append([""] * n_missing + texts)
        return summary.named(names, matrix.text_columns)

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return for every text column the codes of its levels and their outputs, and the names of the outputs.

        Raises `BadParameter` naming a column of too many levels.
        """
        levels: list[dict[float, int]] = []
        labels: list[list[str]] = []
        left_out: list[str] = []
        others = np.full(summary.n_features, _NONE)
        for column in range(summary.n_features):
            frequent, rare, has_missing = self._chosen(summary, column)
            of_column, texts_of_levels = [text for text, _ in frequent], {text for text, _ in (*frequent, *rare)}
            outputs = {code: output for output, (_, code) in enumerate(frequent)}
            if rare:
                others[column] = len(of_column)
                outputs |= {code: len(of_column) for _, code in rare}
                of_column.append(_free("other", texts_of_levels))
            if has_missing:
                outputs[MISSING_LEVEL] = len(of_column)
                of_column.append(_free("missing", texts_of_levels))
            if self.drop and len(of_column) > 1:
                # The output of the first level becomes _NONE.
                outputs = {code: output - 1 for code, output in outputs.items()}
                others[column] = max(others[column] - 1, _NONE)
                left_out.append(of_column.pop(0))
            levels.append(dict(sorted(outputs.items())))
            labels.append(of_column)
        return {
            "places": summary.places,
            "codes": np.array([code for of_column in levels for code in of_column], dtype=np.float64),
            "outputs": np.array([i for of_column in levels for i in of_column.values()], dtype=np.int64),
            "n_codes": np.array([len(of_column) for of_column in levels], dtype=np.int64),
            "n_outputs": np.array([len(of_column) for of_column in labels], dtype=np.int64),
            "others": others.astype(np.int64),
            **_packed([label for of_column in labels for label in of_column]),
            **({f"left_out_{name}": part for name, part in _packed(left_out).items()} if self.drop else {}),
        }

    def _chosen(self, summary: Any, column: int) -> tuple[list[tuple[str, float]], list[tuple[str, float]], bool]:
        """Return the levels of a column that stay and those that are put together, by text; and if one is missing."""
        codes, counts = summary.levels(column)
        levels = sorted(zip(summary.names(column), codes.tolist(), counts.tolist(), strict=True))
        missing = [level for level in levels if level[1] == MISSING_LEVEL]
        levels = [level for level in levels if level[1] != MISSING_LEVEL]
        rare = set[int]()
        if self.min_frequency is not None:
            least = self.min_frequency * (summary.n_rows if self.min_frequency < 1 else 1)
            rare = {i for i, (_, _, count) in enumerate(levels) if count < least}
        if self.max_categories is not None and len(levels) - len(rare) + bool(rare) > self.max_categories:
            by_count = sorted(range(len(levels)), key=lambda i: levels[i][2])
            rare |= set(by_count[: len(levels) - self.max_categories + 1])
        n_frequent = len(levels) - len(rare)
        if summary.is_crowded[column] or n_frequent > MOST_LEVELS:
            names = summary.feature_names
            title = f"column {summary.places[column]}" if names is None else f"column {names[column]!r:.80}"
            crowded = bool(summary.is_crowded[column])
            many = f"more than {summary.limit:,}" if crowded else f"{n_frequent:,}"
            cure = "" if crowded else f"put rare ones together, as in {self.name}(max_categories=50), or "
            if levels and all(_LIKE_DATE.match(text) for text, _, _ in levels):
                cure = f'they look like dates: pass them as dates (pandas.to_datetime) for the step "{Dates.name}", or '
            where = ""
            if names is not None:
                name = f"{names[column]:.80}"
                where = (
                    f" (in Python: frame.drop({name!r}) of polars, frame.drop(columns={name!r}) of pandas; in a job: "
                    f'input.key = "-{name}")'
                )
            raise BadParameter(
                f"prepare step {self.name!r}: {title} has {many} levels, and at most {MOST_LEVELS:,} become columns; "
                f"{cure}leave the column out{where}"
            )
        pairs = [(text, code) for text, code, _ in levels]
        frequent = [pair for i, pair in enumerate(pairs) if i not in rare]
        return frequent, [pairs[i] for i in sorted(rare)], bool(missing) and self.missing == "level"

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Return a note on the text columns and the number of columns made, and one on all of many levels."""
        places, n_outputs = self.value("places").tolist(), self.value("n_outputs").tolist()
        listed = "" if names is None else f" ({first_names([names[place] for place in places], 8)})"
        notes = [
            f"prepare, {self.name}: {counted(len(places), 'text column')}{listed} became "
            f'{counted(sum(n_outputs), "column")} of levels; input.key = "-NAME,NAME" leaves columns out'
        ]
        wide = [(place, n) for place, n in zip(places, n_outputs, strict=True) if n > MANY_LEVELS]
        if wide:
            of = [f"{place if names is None else repr(names[place])!s:.80} ({n})" for place, n in wide]
            notes.append(
                f"prepare, {self.name}: more than {MANY_LEVELS} levels in {first_few(of, 8)}; leave out what names the "
                "rows, and put rare levels of others together with min_frequency or max_categories"
            )
        return notes + ([] if (left_out := self._left_out(names)) is None else [left_out])

    def _left_out(self, names: Sequence[str] | None) -> str | None:
        """Return the note on the levels that `drop` left out; None where it left out none."""
        if self.drop is None or not self.value("left_out_ends").size:
            return None
        has = [bool((self.value("outputs")[span] == _NONE).any()) for span in self._spans()]
        places = self.value("places")[has].tolist()
        columns = [f"column {place}" if names is None else names[place] for place in places]
        levels = _unpacked(self.value("left_out_text"), self.value("left_out_ends"))
        listed = first_names([f"{column}={level}" for column, level in zip(columns, levels, strict=True)], 8)
        entries = ["the level left out"]
        if self.unknown == "zero" or (self.unknown == "other" and (self.value("others") == _NONE).any()):
            entries.append("one that the rows of the fit did not have")
        if self.missing == "zero":
            entries.append("missing")
        return (
            f'prepare, {self.name}: drop = "{self.drop}" left out {listed}; where all columns of a text column are 0, '
            f"the entry is {' or '.join(entries)}"
        )

    def n_columns(self, n_columns: int) -> int:
        """Return the number of columns after the step; before it is fitted, that of the table."""
        if self.values is None:
            return n_columns
        return n_columns - len(self.value("places")) + int(self.value("n_outputs").sum())

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
        """Return the names, ``column=level`` in the place of a text column."""
        if self.values is None:
            return names
        before = names or tuple(f"x{j}" for j in range(n_columns))
        labels, n_outputs = iter(self._labels()), self._n_outputs()
        out: list[str] = []
        for j, name in enumerate(before):
            out += [f"{name}={next(labels)}" for _ in range(n_outputs[j])] if j in n_outputs else [name]
        if len(set(out)) < len(out):
            twice = Counter(out).most_common(1)[0][0]
            columns = first_names([name for name in before if twice == name or twice.startswith(f"{name}=")])
            raise BadParameter(
                f"prepare step {self.name!r}: two columns would be named {twice!r:.80}, of {columns}; rename one of "
                "these"
            )
        return tuple(out)

    def names_before(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the table's columns."""
        labels, n_outputs, after = iter(self._labels()), self._n_outputs(), iter(names)
        out: list[str] = []
        for name in after:
            for _ in range(n_outputs.get(len(out), 1) - 1):
                next(after)
            if len(out) in n_outputs:
                name = name.removesuffix(f"={next(labels)}")
                for _ in range(n_outputs[len(out)] - 1):
                    next(labels)
            out.append(name)
        return tuple(out)

    def _labels(self) -> list[str]:
        """Return the names of the levels, of one text column after the other."""
        return _unpacked(self.value("text"), self.value("ends"))

    def _n_outputs(self) -> dict[int, int]:
        """Return the number of columns that each text column became."""
        return dict(zip(self.value("places").tolist(), self.value("n_outputs").tolist(), strict=True))

    def apply(self, block: Block) -> Array:
        """Return the columns of numbers as they are, and those of levels."""
        rows, places = as_floats(dense(block)), self.value("places")
        if places.size and places.max() >= rows.shape[1]:
            raise Incompatible(
                f"prepare step {self.label!r} was fitted with more columns than the rows have, {rows.shape[1]}"
            )
        widths = np.ones(rows.shape[1], dtype=np.int64)
        widths[places] = self.value("n_outputs")
        starts = np.cumsum(widths) - widths
        out = np.zeros((len(rows), int(widths.sum())), dtype=rows.dtype)
        numbers = np.setdiff1d(np.arange(rows.shape[1]), places)
        out[:, starts[numbers]] = rows[:, numbers]
        for i, (place, span) in enumerate(zip(places.tolist(), self._spans(), strict=True)):
            self._indicate(rows[:, place], span, place, out[:, starts[place] :], int(self.value("others")[i]))
        return out

    def replaced(self, block: Block) -> dict[int, Replaced]:
        """Return the entries of every text column whose level the rows of the fit did not have."""
        rows, out = as_floats(dense(block)), {}
        for place, span in zip(self.value("places").tolist(), self._spans(), strict=True):
            entries = rows[:, place]
            is_new = ~_known(entries, self.value("codes")[span])[0]
            if self.missing != "level":
                is_new &= entries != MISSING_LEVEL
            if is_new.any():
                codes, first, counts = np.unique(entries[is_new], return_index=True, return_counts=True)
                at = np.flatnonzero(is_new)[first]
                levels = {float(codes[i]): int(at[i]) for i in np.argsort(at)[:LISTED_LEVELS]}
                out[place] = Replaced(int(counts.sum()), levels)
        return out

    def _spans(self) -> list[slice]:
        """Return where the codes of every text column are."""
        ends = np.cumsum(self.value("n_codes")).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def _indicate(self, entries: Array, span: slice, place: int, out: Array, other: int) -> None:
        """Write the ones of a text column."""
        codes, outputs = self.value("codes")[span], self.value("outputs")[span]
        known, at = _known(entries, codes)
        shown = known & (outputs[at] != _NONE) if codes.size else known
        out[shown, outputs[at[shown]]] = 1.0
        is_missing = entries == MISSING_LEVEL
        unknown = ~known & ~is_missing
        if self.missing == "error" and is_missing.any():
            problem = "a missing entry of a text column; set missing to another than error"
            raise BadEntry(int(is_missing.argmax()), place, problem)
        refused = ~known if self.missing == "level" else unknown
        if self.unknown == "error" and refused.any():
            problem = "a level that the rows of the fit did not have; set unknown to another than error"
            if is_missing[refused.argmax()]:
                problem = "a missing entry, and the rows of the fit had none; set unknown to another than error"
            raise BadEntry(int(refused.argmax()), place, problem)
        if self.unknown == "other" and other != _NONE:
            out[unknown, other] = 1.0


def _known(entries: Array, codes: Array) -> tuple[Array, Array]:
    """Return which entries have one of some sorted codes, and its place."""
    at = np.minimum(np.searchsorted(codes, entries), max(codes.size - 1, 0))
    return codes[at] == entries if codes.size else np.zeros(entries.size, dtype=bool), at


def _packed(texts: Sequence[str]) -> dict[str, Array]:
    """Return texts as one run of bytes, and where each ends."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"text": np.frombuffer(b"".join(encoded), dtype=np.uint8), "ends": ends}


def _unpacked(text: Array, ends: Array) -> list[str]:
    """Return the texts that `_packed` took."""
    raw = text.tobytes()
    return [raw[a:b].decode() for a, b in zip([0, *ends.tolist()], ends.tolist(), strict=False)]


def _free(label: str, levels: set[str]) -> str:
    """Return the label, in parentheses where it is the text of a level."""
    while label in levels:
        label = f"({label})"
    return label


@dataclass(frozen=True, eq=False)
class Dates(Step):
    """Dates and times of a table as days since 1970-01-01, parts of days included; those with a zone in UTC.

    Missing ones are missing values (NaN). Other columns stay as they are.
    """

    name: ClassVar[str] = "dates"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    is_by_column: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    keeps_units: ClassVar[bool] = True
    encodes: ClassVar[str | None] = "dates"

    def seen(self, matrix: Any) -> Self:
        """Return the step with the columns that hold dates in the source of its fit."""
        return self.with_values({"places": np.array(matrix.date_columns, dtype=np.int64)})

    def apply(self, block: Block) -> Block:
        """Return the block as it is: the table is read so."""
        return block


TEXT_STEP = OneHot.name
"""What messages advise for text."""
