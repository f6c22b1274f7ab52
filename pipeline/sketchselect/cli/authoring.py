"""Commands for the author of a job file: a first job for a source, the methods, the schema, and a forecast."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect as python_inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from sketchselect._text import did_you_mean, table_size
from sketchselect.cli.shell import FeatureNames, JobCluster, Key, Outcome, Sets, StorageOptions, Workers, command
from sketchselect.errors import SketchSelectError

if TYPE_CHECKING:
    from sketchselect.readers import Matrix
    from sketchselect.selectors.base import BaseSelector

JOB = """\
# {description}
# Run it:  sketchselect run {name}        Forecast memory and time:  sketchselect plan {name}

[input]
url = {url}
{key}{target}
{labels} # known classes, never used, only compared with at the end
{only_text}{row_names}{columns}
[prepare]
{prepare}
[select]
method = {method} # sketchselect methods lists all
{n_features} # of {n_columns}{fewest}
{normalize}
{cluster_section}[execution]
{cluster}

[output]
dir = {folder}
{anndata}"""

NO_TARGET = """\
# target = "y.npy"               # a file, array or column of the source; with a target take method = "{learning}",
                                 # or leave [cluster] out: beside [cluster], "auto" selects without the target"""

CLUSTER = """\
[cluster]                        # leave the section out to select only
n_clusters = {n_clusters}                   # a guess: put your number, or compare several with range = [2, 12]
certificate = "auto"             # "blocks" is closer and may take long, "spectral" takes nothing

"""

NORMALIZE = """\
normalize = false                # "l2" scales every row to length 1, as for texts and where only proportions matter
"""

WORKER_PROCESSES = """\
cluster = "local"                # "threads", or the address of a Dask scheduler"""
THREADS = """\
cluster = "threads"              # faster for so few rows; "local" starts worker processes"""

_SAMPLE_ROWS = 1000
_ROWS_AT_ONCE = 1 << 16
_LISTED = 20
_GENES = 2000  # as scanpy takes by default
_WORDS = 1000


@command
def init(
    source: Annotated[str, typer.Argument(help="A path or URL of a matrix.", metavar="SOURCE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The job file to write.")] = Path("job.toml"),
    key: Key = None,
    feature_names: FeatureNames = None,
    target: Annotated[
        str | None,
        typer.Option(help="What is to be predicted: a column of the source, or a file. Without it the job clusters."),
    ] = None,
    storage: StorageOptions = None,
) -> Outcome:
    """Look at a matrix and write a first job file for it, with comments."""
    import json

    import numpy as np

    from sketchselect.errors import BadParameter
    from sketchselect.execution import Source
    from sketchselect.job.load import storage_options
    from sketchselect.linalg.validation import is_csr
    from sketchselect.location import is_url, locate, location_of, write_atomically
    from sketchselect.prepare import resolve
    from sketchselect.prepare.fitted import Impute, Standardise
    from sketchselect.prepare.tables import MOST_LEVELS
    from sketchselect.readers import open_vector
    from sketchselect.readers.opening import format_of, is_converted_table, key_of_others, obs_columns
    from sketchselect.readers.tables import ENCODINGS
    from sketchselect.selectors import AutoSelector, GreedySelector, HighlyVariableGenes, TargetAutoSelector
    from sketchselect.workflow.session import suits_threads

    options = storage_options(storage)
    vectors = {} if target is None else {"target": target}
    given: dict[str, Any] = {"storage_options": options, "feature_names": feature_names, "vectors": vectors}
    matrix, encode = _opened(source, key=key, **given)
    if output.exists():
        raise BadParameter(f"{output}: exists already; choose another name with -o")
    location = location_of(os.path.expanduser(source))
    place = location if options is None else locate(source, options)
    if is_table := is_converted_table(place):
        matrix, encode = _opened(source, is_table, key=key, **given)
    refused = _mixed_dates(matrix)
    if 0 < len(refused) < matrix.shape[1]:
        key = key_of_others(list(refused), key)
        matrix, encode = _opened(source, is_table, key=key, **given)
    block = _first_rows(matrix)
    unlike = _unlike_columns(matrix, block)
    row_names = None
    if unlike and matrix.row_names is None:
        name, *unlike = unlike
        row_names = vectors["row_names"] = f"obs/{name}" if is_table else name
        matrix, encode = _opened(source, is_table, key=key, **given)
    crowded = [name for name in _crowded_columns(matrix) if name not in unlike]
    if 0 < len(unlike) + len(crowded) < matrix.shape[1]:
        refused |= dict.fromkeys(crowded, f"has more than {MOST_LEVELS:,} levels")
        key = key_of_others([*unlike, *crowded], key)
        matrix, encode = _opened(source, is_table, key=key, **given)
    if target is not None:
        open_vector(target, matrix.shape[0], matrix=matrix, storage_options=options, name="target")
    block = _first_rows(matrix)
    values = block.data if is_csr(block) else block
    kind = "sparse " if matrix.is_sparse else ""
    description = f"{matrix.address}: {table_size(*matrix.shape)}{_kinds(matrix)}, {kind}{matrix.dtype}"
    n_missing = int(np.count_nonzero(~np.isfinite(values)))
    counts = n_missing == 0 and bool(values.size and (values >= 0).all() and (values == np.rint(values)).all())
    sparse_counts = counts and matrix.is_sparse
    steps = [ENCODINGS[kind] for kind in encode]
    n_columns = matrix.shape[1]
    obs = obs_columns(place, None if is_table else key)
    # Counts in the layout of AnnData are of genes, others of words.
    method, number, of_counts = AutoSelector.method, 0, []
    if sparse_counts and obs is not None:
        method, number, of_counts = HighlyVariableGenes.method, _GENES, ["library-size", "log1p"]
    elif sparse_counts:
        method, number, of_counts = GreedySelector.method, _WORDS, ["tf-idf(sublinear=true)", "l2"]
    steps += [Impute.name] if n_missing else of_counts
    advice = f'or "auto"; for cells: ["library-size", "log1p"] and method = "{HighlyVariableGenes.method}"'
    if method == HighlyVariableGenes.method:
        advice = "of counts of cells: the same total in each, then log(1 + x)"
    elif method != GreedySelector.method:
        advice = f'such as "{Standardise.name}" for columns of different units'
    reason = ""
    if n_missing:
        entries = "1 entry is" if n_missing == 1 else f"{n_missing:,} entries are"
        reason = f"# {entries} missing or infinite in the first {block.shape[0]:,} rows: {Impute.name!r} fills them\n"
    unlike_units = _unlike_units(matrix, block)
    if not unlike_units and 0 < len(matrix.date_columns) < n_columns:
        unlike_units = "days since 1970-01-01, as dates are read, are of another unit than the other columns"
    if unlike_units:
        steps, advice = [*steps, Standardise.name], "gives each column the same weight"
        reason += f"# {unlike_units}\n"
    label, label_line = _labels(obs, matrix, options, "table's other columns" if is_table else "columns of obs")
    size = f"n_features = {max(1, min(number, n_columns // 2))}" if number else 'n_features = "auto"'
    target_line = NO_TARGET.format(learning=TargetAutoSelector.method)
    if target is not None:
        method, size = TargetAutoSelector.method, "# n_features = 10"
        is_file = is_url(target) or os.path.exists(os.path.expanduser(target))
        target_line = f"target = {json.dumps(_for_job(target, output) if is_file else target, ensure_ascii=False)}"
    cluster = WORKER_PROCESSES
    # A source that no pass can cut is for the job to refuse.
    with contextlib.suppress(SketchSelectError):
        cluster = THREADS if suits_threads(Source(matrix, prepare=resolve(steps))) else WORKER_PROCESSES
    text = JOB.format(
        description=description,
        name=output,
        url=json.dumps(_for_job(source, output)),
        key=_left_out(refused)
        + (f"key = {json.dumps(key, ensure_ascii=False)}\n" if key else "")
        + _key_hint(matrix, block, key, (file_format := format_of(place)) is None or file_format.takes_text)
        + (f"feature_names = {json.dumps(_for_job(feature_names, output))}\n" if feature_names else ""),
        labels=f"# labels = {json.dumps(label)}".ljust(32),
        columns=label_line,
        only_text=_only_text(matrix, label) if ENCODINGS["text"] in steps else "",
        row_names=""
        if row_names is None
        else f"row_names = {json.dumps(row_names, ensure_ascii=False)}".ljust(32)
        + " # a text of its own for every row seen, and so no feature\n",
        anndata=_annotations() if obs is not None and not is_table else "",
        prepare=reason + f"steps = {json.dumps(steps)}".ljust(32) + f" # {advice}\n",
        target=target_line,
        method=json.dumps(method).ljust(23),
        n_features=size.ljust(32),
        n_columns=n_columns,
        normalize="" if sparse_counts or target is not None else NORMALIZE,
        cluster_section=CLUSTER.format(n_clusters=min(8, -(-matrix.shape[0] // 2))) if target is None else "",
        fewest={
            AutoSelector.method: "; as few as its search finds within 5 % of clustering on all of them, or a number",
            GreedySelector.method: f', or "auto" with method = "{AutoSelector.method}"',
            TargetAutoSelector.method: "; by default as many as predict held-out rows best",
        }.get(method, ""),
        cluster=cluster,
        folder=json.dumps(f"{Path(source.rstrip('/')).name.partition('.')[0]}-selected"),
    )
    write_atomically(output, text.encode())
    choice = (
        ""
        if row_names is None
        else f"every row seen has a text of its own in {row_names!r}: taken as the names of the rows\n"
    )
    done = f"{description}\n{choice}{output} written; read it, then:  sketchselect run {output}"
    return Outcome(done, {"job": output, "source": description})


def _opened(source: str, is_table: bool = False, **inputs: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a matrix, and which of its columns are no numbers and have to be encoded: "text", "dates".

    `is_table`: Whether it is a store of a converted text file, whose text beside the numbers becomes features too.
    """
    from sketchselect.errors import SourceError
    from sketchselect.readers import open_matrix

    encode: tuple[str, ...]
    for encode in ((), ("text",), ("dates",), ("text", "dates")):
        try:
            matrix = open_matrix(source, nonfinite="missing", encode=encode, **inputs)
            break
        except SourceError as error:
            refusal = error
    else:
        raise refusal  # of the columns that no step can encode
    if is_table and (inputs["key"] or "-").startswith("-"):
        matrix = open_matrix(source, nonfinite="missing", encode=("text", "dates"), **inputs)
        kinds = {"text": matrix.text_columns, "dates": matrix.date_columns}
        encode = tuple(kind for kind, columns in kinds.items() if columns)
    return matrix, encode


def _kinds(matrix: Matrix) -> str:
    """Return how many columns are of numbers, text and dates; empty where all are of numbers."""
    n_text, n_dates = len(matrix.text_columns), len(matrix.date_columns)
    numbers = {"numbers": matrix.shape[1] - n_text - n_dates, "text": n_text, "dates": n_dates}
    parts = ", ".join(f"{n} of {what}" for what, n in numbers.items() if n)
    return f" ({parts})" if n_text or n_dates else ""


def _mixed_dates(matrix: Matrix) -> dict[str, str]:
    """Return the text columns that begin with a date and that the step for dates would refuse, and why."""
    from sketchselect.readers.tables import WithFields

    refused = {}
    for column in matrix.columns if isinstance(matrix, WithFields) else ():
        try:
            for start in range(0, column.n_rows if column.is_date else 0, _ROWS_AT_ONCE):
                column.numbers(start, start + _ROWS_AT_ONCE)
        except SketchSelectError:
            refused[column.name] = "begins with a date and has other text too"
    return refused


def _crowded_columns(matrix: Matrix) -> list[str]:
    """Return the columns of more levels than the step for text takes; all their rows are read."""
    from sketchselect.prepare.tables import MOST_LEVELS
    from sketchselect.readers.tables import text_of

    names, crowded = matrix.feature_names or (), []
    for j in matrix.text_columns:
        column, levels = matrix.levels[j].column, set[str]()
        for start in range(0, column.n_rows, _ROWS_AT_ONCE):
            texts = set(column.texts(start, min(start + _ROWS_AT_ONCE, column.n_rows)))
            levels |= {text_of(text) for text in texts if text is not None}
            if len(levels) > MOST_LEVELS:
                crowded.append(names[j])
                break
    return crowded


def _left_out(refused: Mapping[str, str]) -> str:
    """Return a line on the columns that the key leaves out because a prepare step would refuse them."""
    reasons = "; ".join(f"{name!r:.80} {why}" for name, why in refused.items())
    return f"# left out by the key: {reasons}\n" if refused else ""


def _first_rows(matrix: Matrix) -> Any:
    from sketchselect.readers import row_partitions

    start, stop = row_partitions(matrix, sparse=matrix.is_sparse)[0]
    return matrix.read_rows(start, min(stop, start + _SAMPLE_ROWS))


def _key_hint(matrix: Matrix, rows: Any, key: str | None, has_keys: bool) -> str:
    """Return a line that leaves out the columns that are as identifiers are; empty where there are none.

    `has_keys`: Whether `key` leaves columns of the source out.
    """
    import json

    import numpy as np

    from sketchselect.readers.opening import key_of_others
    from sketchselect.readers.tables import LEAST_COUNTED, different_columns, numbers_rows, rising_columns

    names = matrix.feature_names
    if not has_keys or names is None or not isinstance(rows, np.ndarray) or len(rows) < LEAST_COUNTED:
        return ""
    numbers = [j for j in range(len(names)) if j not in (*matrix.text_columns, *matrix.date_columns)]
    listed, values = [names[j] for j in numbers], rows[:, numbers]
    rising = [listed[j] for j in rising_columns(values).tolist()]
    different = different_columns(values, listed)
    if numbers and numbers[0] == 0 and numbers_rows(values[:, 0]):
        different.insert(0, names[0])  # The first column numbers the rows by any name
    identifiers = list(dict.fromkeys([*rising, *different]))
    if not identifiers or (key is not None and not key.startswith("-")):
        return ""
    line = f"# key = {json.dumps(key_of_others(identifiers, key), ensure_ascii=False)}".ljust(32)
    return f"{line} # a different whole number in every row seen, as identifiers do: this leaves it out\n"


def _unlike_units(matrix: Matrix, rows: Any) -> str:
    """Return which columns of numbers have nearly all of the variance in the first rows; empty where none have."""
    import numpy as np

    from sketchselect.prepare.units import outweighing

    if not isinstance(rows, np.ndarray):
        return ""
    numbers = [j for j in range(matrix.shape[1]) if j not in (*matrix.text_columns, *matrix.date_columns)]
    values = rows[:, numbers].astype(np.float64)
    finite = np.isfinite(values)
    n_finite = finite.sum(axis=0)
    means = np.where(finite, values, 0.0).sum(axis=0) / np.maximum(n_finite, 1)
    names = matrix.feature_names
    listed = [str(j) if names is None else names[j] for j, n in zip(numbers, n_finite, strict=True) if n]
    return outweighing(np.where(finite, values, means)[:, n_finite > 0], listed)


def _unlike_columns(matrix: Matrix, rows: Any) -> list[str]:
    """Return the text columns with an entry of its own in each of the first rows, as names of rows have.

    Not those of numbers written as text, and none if all columns would be.
    """
    import numpy as np

    from sketchselect.readers.tables import LEAST_COUNTED
    from sketchselect.readers.text import is_number

    if len(matrix.text_columns) == matrix.shape[1] or rows.shape[0] < LEAST_COUNTED:
        return []
    names = matrix.feature_names or ()

    def are_numbers(j: int) -> bool:
        few = rows[:LEAST_COUNTED, j].tolist()
        names_of_levels = matrix.levels[j].names(few, range(len(few)))
        # Digits alone may as well be a name.
        return all(is_number(text) and not text.isdigit() for text in names_of_levels)

    unlike = [j for j in matrix.text_columns if len(set(rows[:, j].tolist())) == rows.shape[0]]
    return [names[j] for j in unlike if not np.isnan(rows[:, j]).any() and not are_numbers(j)]


def _for_job(source: str, job: Path) -> str:
    """Return a path or URL as a job file names it: a relative path stays so, but is relative to the job file.

    So job and data can be moved together.
    """
    from sketchselect.location import location_of

    location = location_of(os.path.expanduser(source))
    relative = location.is_local and not os.path.isabs(os.path.expanduser(source))
    return os.path.relpath(location.url, job.absolute().parent) if relative else location.url


@command
def methods(
    name: Annotated[str | None, typer.Argument(help="A method; without it, a list of all.", metavar="[NAME]")] = None,
) -> Outcome:
    """List the methods of selection, or describe one: what it does, guarantees, takes and costs."""
    import json

    import sketchselect.selectors
    from sketchselect.errors import BadParameter
    from sketchselect.job.load import method_parameters
    from sketchselect.linalg.parameters import in_words
    from sketchselect.selectors import METHODS

    facts = method_facts()
    if name is None:
        width = max(map(len, METHODS))
        # A line each where a program reads them; on a terminal, what does not fit goes on below its own column.
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        lines = []
        for purpose in PURPOSES:
            lines.append(f"{purpose}:")
            for n, each in facts.items():
                if each["purpose"] == purpose:
                    text = each["does"] + (f" (needs {each['needs']})" if each["needs"] else "")
                    pieces = textwrap.wrap(text, columns - width - 4) if columns > width + 24 else [text]
                    lines += [f"  {n if i == 0 else '':<{width}}  {piece}" for i, piece in enumerate(pieces)]
        return Outcome("\n".join(lines), facts)
    if name not in METHODS:
        hint = did_you_mean(name, METHODS, "; `sketchselect methods` lists all")
        raise BadParameter(f"unknown selection method {name!r}{hint}")
    cls = METHODS[name]
    text = python_inspect.cleandoc(cls.__doc__ or "").partition("\nExamples\n")[0]
    signature = python_inspect.signature(cls).parameters
    for key, hint in method_parameters(name).items():
        if not {str, Any} & {hint, *get_args(hint)}:
            # The values of a key, in the words of the job file's check.
            default = "optional" if signature[key].default is None else f"default {json.dumps(signature[key].default)}"
            text = re.sub(rf"^{key} : .*$", f"{key} : {in_words(hint, none='')}, {default}", text, flags=re.M)
    text = re.sub("`+", "", text.replace("n_features_to_select", "n_features"))
    text = text.replace("Parameters\n----------", "Keys of [select]\n----------------")
    needed = f"needs {_needs(cls)}\n" if _needs(cls) else ""
    public = [module for module in (sketchselect, sketchselect.selectors) if cls.__name__ in module.__all__]
    package = public[0].__name__ if public else cls.__module__
    text = f"{name} (in Python {package}.{cls.__name__})\n{needed}\n{text.strip()}"
    return Outcome(text, {**facts[name], "description": text})


@command
def schema() -> Outcome:
    """Print the JSON schema of a job file, for editors that check and complete as one types."""
    import json

    from sketchselect.job.schema import JobConfig

    content = {"$schema": "https://json-schema.org/draft/2020-12/schema", **JobConfig.model_json_schema()}
    return Outcome(json.dumps(content, indent=1), content)


@command
def plan(
    job: Annotated[Path, typer.Argument(help="A job file, TOML or YAML; - is TOML from standard input.")],
    workers: Workers = None,
    cluster: JobCluster = None,
    settings: Sets = None,
    storage: StorageOptions = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="AMOUNT", min=0, help="Of a worker for an hour, in any currency.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time one partition of every pass, about 10 s at most.")
    ] = True,
) -> Outcome:
    """Forecast the passes, memory, traffic and time of a job. Nothing is written, and no cluster started.

    The exit code is 1 if the job's own memory limit is too low for it.

    The time is estimated from one timed partition and one merge of every pass: full waves of partitions on the workers,
    then merges up the tree; no less than the scheduler takes for all tasks.
    """
    from sketchselect.job.load import with_cluster, with_storage
    from sketchselect.workflow.plan.forecast import forecast_job

    overrides = with_storage(with_cluster(settings or (), cluster), storage)
    forecast = forecast_job(job, overrides=overrides, n_workers=workers, calibrate=calibrate, price=price)
    return Outcome(forecast.text(), forecast.to_dict(), is_good=forecast.refusal is None)


PURPOSES = ("to cluster rows", "to predict a target", "for counts", "for streams")
"""What methods select columns for, in the order of the lists of methods."""


def method_facts() -> dict[str, dict[str, Any]]:
    """Return the purpose, class, needs, guarantee and cost of each method, and whether it has weights."""
    from sketchselect.selectors import METHODS

    return {
        name: {
            "purpose": _purpose(cls),
            "does": re.sub("`+", "", (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")),
            "class": cls.__name__,
            "needs": _needs(cls),
            "guarantee": _note(cls, "Guarantee"),
            "cost": _note(cls, "Cost[^:]*"),
            "has_weights": cls.has_weights,
        }
        for name, cls in sorted(METHODS.items())
    }


def _purpose(cls: type[BaseSelector]) -> str:
    if cls.needs_target:
        return "to predict a target"
    if cls.needs_counts:
        return "for counts"
    return "for streams" if cls.axis == "columns" else "to cluster rows"


def _note(cls: type[BaseSelector], label: str) -> str | None:
    """Return the text after a label in the documentation of a method, or None."""
    match = re.search(
        rf"\b{label}: (.+?)(?:\s(?:Cost[^:]*|Source):|\n\n|\Z)", python_inspect.getdoc(cls) or "", re.DOTALL
    )
    return None if match is None else " ".join(match[1].replace("`", "").split())


def _needs(cls: type[BaseSelector]) -> str:
    needs = [word for word, is_needed in (("a target", cls.needs_target), ("counts", cls.needs_counts)) if is_needed]
    return " and ".join(needs)


def _labels(
    obs: list[str] | None, matrix: Matrix, storage_options: Mapping[str, Any] | None, listed: str
) -> tuple[str, str]:
    """Return a name for the labels, and a line with all columns of ``obs``.

    The name is the first text column with equal entries, if there is one; without ``obs``, the first text column that
    is a feature. `listed`: What the line calls the columns.
    """
    if not obs:
        texts = [] if matrix.feature_names is None else [matrix.feature_names[j] for j in matrix.text_columns]
        return texts[0] if texts else "labels.csv", ""
    few = obs[:_LISTED]
    entries = {name: _texts(name, matrix, storage_options) for name in few}
    unlike = [name for name, texts in entries.items() if texts and len(set(texts)) == len(texts)]
    labels = next((name for name, texts in entries.items() if texts and name not in unlike), few[0])
    return labels, f"# the {listed}: {', '.join(few)}{', ...' * (len(obs) > len(few))}\n"


def _only_text(matrix: Matrix, label: str) -> str:
    """Return a line that says what labels change that are the only column of text, which is a feature else."""
    if [(matrix.feature_names or ())[j] for j in matrix.text_columns] != [label.rpartition("/")[2]]:
        return ""
    return "# this text is a feature, by 'one-hot', unless it is named as labels: then leave 'one-hot' out of steps\n"


def _texts(name: str, matrix: Matrix, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the first entries of a column of ``obs``; none where it holds numbers or dates."""
    import numpy as np

    from sketchselect.readers import open_vector
    from sketchselect.readers.tables import parsed_times

    try:
        vector = open_vector(name, None, matrix=matrix, storage_options=storage_options)
    except SketchSelectError:
        return []  # neither numbers nor text, such as a date
    texts = vector.read(0, min(vector.shape[0], _SAMPLE_ROWS)).tolist() if vector.dtype.kind == "U" else []
    return texts if np.isnat(parsed_times(texts)).any() else []


def _annotations() -> str:
    comment = "annotations.h5ad, with the keys of scanpy"
    if importlib.util.find_spec("anndata") is None:
        return f'# anndata = true                 # {comment}; needs pip install "sketchselect[anndata]"\n'
    return f"anndata = true                   # {comment}\n"
