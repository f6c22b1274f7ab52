"""Schema of a job file: strict, checked as a whole before anything starts; and the parts of its error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from sketchselect._text import did_you_mean, without_credentials
from sketchselect.errors import BadParameter
from sketchselect.job.text import JobText, KeyPath
from sketchselect.linalg.validation import MOST_TIMES, whole_in_words
from sketchselect.location import SCHEMES, is_url


class Problem(ValueError):
    """A refusal with a complete message."""


class Expectation(ValueError):
    """A refusal whose message states the expected value."""


def _plain(value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise Expectation("a string without control characters")
    return value


def _address(value: str) -> str:
    allowed = (*SCHEMES, "http", "https")
    if "::" in value or (is_url(value) and value.partition(":")[0].lower() not in allowed):
        raise Expectation(f"a path or a URL of one of the schemes {', '.join(allowed)}, without '::'")
    return value


def _folder(value: str) -> str:
    if is_url(value) or "::" in value:
        raise Expectation("a local folder, not a URL: its locks and renames need a disk; copy the finished folder")
    return value


def _bytes(value: Any) -> Any:
    from sketchselect.readers import parse_bytes

    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("a size")
    try:
        return parse_bytes(value)
    except BadParameter:
        raise ValueError("a size") from None


def _steps(value: list[Any]) -> list[Any]:
    from sketchselect.prepare import resolve

    if "auto" in value:
        raise Problem('"auto" is no step of a list; write steps = "auto", and no other steps')
    try:
        resolve(value)
    except BadParameter as error:
        raise Problem(str(error)) from None
    return value


def _acting_on(axis: str, value: list[Any]) -> list[Any]:
    from sketchselect.prepare import resolve

    for step in resolve(_steps(value)):
        if step.acts_on != axis:
            raise Problem(
                f"prepare step {step.name!r} acts on {step.acts_on}: move it to prepare.{step.acts_on}, or list all "
                "steps in order in prepare.steps"
            )
    return value


def _method(value: str) -> str:
    from sketchselect.selectors import METHODS

    if value not in METHODS:
        raise Problem(
            f"{value!r} is not a method{did_you_mean(value, METHODS.known())}; available: {', '.join(METHODS.known())}"
        )
    return value


def _flattened(schema: dict[str, Any]) -> None:
    """Make the schema of ``[select]`` that of the file, where the method's parameters stand next to its name."""
    from sketchselect.selectors import METHODS

    del schema["properties"]["parameters"]
    schema["properties"]["method"]["enum"] = sorted(METHODS)
    schema["additionalProperties"] = True


def _ascending(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(values) < 2 or list(values) != sorted(set(values)):
        raise ValueError("numbers of clusters must ascend: [from, to], or three or more")
    return values


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _checkpoint(value: Any) -> Any:
    if value is not False and not isinstance(value, str):
        raise ValueError("a place")
    if isinstance(value, str) and "::" in value:
        raise Expectation("a folder or a URL, without '::'")
    return value


Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_plain)]
Address = Annotated[Text, AfterValidator(_address)]
Size = Annotated[int, Field(gt=0), BeforeValidator(_bytes), WithJsonSchema({"type": ["integer", "string"]})]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63, description="a whole number of at least 0")]

_A_SIZE = 'a size such as "128MiB" or a number of bytes above 0'
_A_COUNT = "a whole number of at least 1"
_A_SHARE = "a number above 0, such as 0.05"


class Section(BaseModel):
    """One table of a job file; every field's description is the "expected ..." of its error message."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class InputSettings(Section):
    """``[input]``: where the rows are."""

    url: Address = Field(description="a path or URL of a matrix")
    key: Text | None = Field(default=None, description="the name of an array inside the store")
    target: Address | None = Field(
        default=None, description="a file, or an array in the store, with one target per row"
    )
    cv_groups: Address | None = Field(
        default=None, description="a file, or an array in the store, with one group per row"
    )
    labels: Address | None = Field(default=None, description="a file, or an array in the store, with one label per row")
    row_names: Address | None = Field(
        default=None, description="a file, or an array or column of the source, with one name per row"
    )
    feature_names: Address | None = Field(default=None, description="a text file with one name per column")
    storage_options: dict[str, Any] = Field(default_factory=dict, description="a table of options of the file system")
    missing_chunks: Literal["error", "fill"] = Field(default="error", description='"error" or "fill"')
    nonfinite: Literal["error", "drop_rows", "missing"] = Field(
        default="error", description='"error", "drop_rows" or "missing"'
    )
    max_dropped: float = Field(default=0.2, ge=0, le=1, description="a share of the rows, from 0 to 1")

    @property
    def vectors(self) -> dict[str, str | None]:
        """Keys that name values per row, which may be columns of the same source that are then not features."""
        return {name: getattr(self, name) for name in ("target", "cv_groups", "labels", "row_names")}


Steps = list[str | dict[str, Any]]


class PrepareSettings(Section):
    """``[prepare]``: the steps that every block goes through: `rows` and then `columns`, or `steps` in any order."""

    rows: Annotated[Steps, AfterValidator(partial(_acting_on, "rows"))] = Field(
        default_factory=list, description='a list of row steps, such as ["l2"]'
    )
    columns: Annotated[Steps, AfterValidator(partial(_acting_on, "columns"))] = Field(
        default_factory=list, description='a list of column steps, such as ["standardise"]'
    )
    # An empty list means none, not even the method's own; None leaves those to the method.
    steps: Annotated[Steps, AfterValidator(_steps)] | Literal["auto"] | None = Field(
        default=None, description='a list of steps in order, such as ["tf-idf", "l2"], or "auto"'
    )
    fitted: Address | None = Field(
        default=None, description="the prepare.sks of an earlier run, whose statistics are reused"
    )

    @property
    def entries(self) -> Steps:
        """All steps in order; none before ``steps = "auto"`` is decided."""
        return [*self.rows, *self.columns, *((self.steps or ()) if self.steps != "auto" else ())]


SELECT_KEYS = ("method", "n_features", "tolerance", "tolerance_proved")
"""Keys of ``[select]`` that are not parameters of its method."""


class SelectSettings(Section):
    """``[select]``: the method, the number of columns, and the method's parameters."""

    model_config = ConfigDict(json_schema_extra=_flattened)

    method: Annotated[str, AfterValidator(_method)] = Field(description="the name of a method")
    n_features: Count | Literal["auto"] | None = Field(default=None, description=f'{_A_COUNT}, or "auto"')
    tolerance: float | None = Field(default=None, gt=0, description=_A_SHARE)
    tolerance_proved: float | None = Field(default=None, gt=0, description=_A_SHARE)
    parameters: dict[str, Any] = Field(default_factory=dict, description="the method's parameters")

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        section = {k: v for k, v in values.items() if k in SELECT_KEYS}
        return {**section, "parameters": {k: v for k, v in values.items() if k not in section}}


class CertificateSettings(Section):
    """``[cluster] certificate`` as a table: the method, and the blocks of rows that it solves."""

    method: Literal["auto", "spectral", "blocks"] = "blocks"
    block_rows: int | None = Field(default=None, ge=2)
    confidence: float | None = Field(default=None, gt=0, lt=1)
    fraction: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _only_for_blocks(self) -> CertificateSettings:
        if self.method == "spectral" and (names := self.blocks):
            raise ValueError(f"{', '.join(names)} only for blocks")
        if self.method == "auto" and self.fraction is not None:
            raise ValueError('fraction only for "blocks"')
        return self

    @property
    def blocks(self) -> dict[str, Any]:
        """The settings of the blocks as keywords of `BlockOptions`, which has the defaults."""
        return self.model_dump(exclude={"method"}, exclude_none=True)


class ClusterSettings(Section):
    """``[cluster]``: k-means on the selected columns; without this section nothing is clustered."""

    n_clusters: Count = Field(default=8, description=_A_COUNT)
    init: Literal["auto", "k-means||", "k-means++", "random"] = Field(
        default="auto", description='"auto", "k-means||", "k-means++" or "random"'
    )
    n_init: Annotated[Count, Field(le=MOST_TIMES)] | Literal["auto"] = Field(
        default="auto", description=f'{whole_in_words(1, MOST_TIMES)}, or "auto"'
    )
    max_iter: Count = Field(default=300, description=_A_COUNT)
    tol: float = Field(default=1e-4, ge=0, description="a number of at least 0")
    random_state: Seed = 0
    weighted: bool | Literal["both"] = Field(default=False, description='true, false or "both"')
    metric: Literal["euclidean", "least-squares"] = Field(
        default="euclidean", description='"euclidean" or "least-squares"'
    )
    compare_all_columns: bool = Field(default=False, description="true or false")
    certificate: Literal["auto", "spectral", "blocks", False] | CertificateSettings = Field(
        default="auto",
        description='"auto", "spectral", "blocks", false, or a table such as '
        '{method = "blocks", block_rows = 400, confidence = 0.99, fraction = 0.25}',
    )
    reassign: bool = Field(default=False, description="true or false")
    range: Annotated[tuple[Count, ...], BeforeValidator(_as_tuple), AfterValidator(_ascending)] | None = Field(
        default=None,
        description="[from, to], or a list of three or more numbers of clusters, ascending from at least 1",
    )

    @property
    def starts_open(self) -> bool:
        """Whether k-means may start from clusters of the summary's rows."""
        return self.init == self.n_init == "auto"

    @property
    def seeding(self) -> Literal["k-means||", "k-means++", "random"]:
        """How starts are drawn if the summary of the rows has no clusters to start from."""
        return "k-means||" if self.init == "auto" else self.init

    @property
    def variants(self) -> tuple[Literal["unweighted", "weighted", "least-squares"], ...]:
        """The clusterings that `weighted` and `metric` ask for."""
        if self.metric == "least-squares":
            return ("least-squares",)
        if self.weighted == "both":
            return "unweighted", "weighted"
        return ("weighted",) if self.weighted else ("unweighted",)

    @property
    def certificate_settings(self) -> CertificateSettings | None:
        """The certificate as a table; None for no certificate."""
        if self.certificate is False or isinstance(self.certificate, CertificateSettings):
            return self.certificate or None
        return CertificateSettings(method=self.certificate)


_OF_DATES = ["dates", "period"]


class TimelineSettings(Section):
    """``[timeline]``: the selection repeated along the rows; without this section it is made once, from all rows."""

    points: Count | None = Field(default=None, description=_A_COUNT)
    window: Count | None = Field(
        default=None, description="a whole number of rows (with dates, of periods), at least 1"
    )
    dates: Address | None = Field(
        default=None, description="a file, or an array or column of the source, with one date per row, ascending"
    )
    period: Literal["day", "week", "month", "year"] = Field(
        default="day", description='"day", "week", "month" or "year", with dates'
    )

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys without those of dates, where there are none: as before there were such keys."""
        values: dict[str, Any] = write(self)
        if not self.dates:
            for name in _OF_DATES:
                values.pop(name, None)
        return values


class ExecutionSettings(Section):
    """``[execution]``: where and how the passes run."""

    cluster: Text = Field(
        default="local",
        description='"local", "threads", "serial", "env", the address of a scheduler or its scheduler file (.json)',
    )
    n_workers: Count | None = Field(default=None, description=_A_COUNT)
    memory_limit: Size | None = Field(default=None, description=_A_SIZE)
    partition_bytes: Size | None = Field(default=None, description=_A_SIZE)
    checkpoint: Annotated[Text | Literal[False], BeforeValidator(_checkpoint)] = Field(
        default="auto", description='"auto", false or a folder'
    )
    checkpoint_seconds: float | None = Field(default=None, ge=0, description="a number of seconds, at least 0")
    retries: int = Field(default=2, ge=0, le=100, description="a whole number from 0 to 100")
    stall_timeout: float = Field(default=300.0, gt=0, description="a number of seconds above 0")
    worker_ttl: float | None = Field(default=None, ge=15, description="a number of seconds, at least 15")
    blas_kernel: Text = Field(default="auto", description='"auto", "default" or the name of a kernel of OpenBLAS')
    tls_ca: Text | None = Field(default=None, description="the path of a PEM file")
    tls_cert: Text | None = Field(default=None, description="the path of a PEM file")
    tls_key: Text | None = Field(default=None, description="the path of a PEM file")


class OutputSettings(Section):
    """``[output]``: the folder, and the files written there in addition to the selection."""

    dir: Annotated[Text, AfterValidator(_folder)] = Field(default="out", description="the path of a folder")
    report: bool = Field(default=True, description="true or false")
    features: bool = Field(default=True, description="true or false")
    anndata: bool = Field(default=False, description="true or false")
    metrics: Annotated[Text, AfterValidator(_folder)] | None = Field(default=None, description="the path of a file")
    image_shape: Annotated[tuple[Count, Count], BeforeValidator(_as_tuple)] | None = Field(
        default=None, description="[height, width], two whole numbers of at least 1"
    )


class JobConfig(Section):
    """A whole checked job, as `load_job` returns it and the verbs of `sketchselect.workflow` take it."""

    input: InputSettings = Field(description="the section [input]")
    prepare: PrepareSettings = Field(default_factory=PrepareSettings, description="the section [prepare]")
    select: SelectSettings = Field(description="the section [select]")
    cluster: ClusterSettings | None = Field(default=None, description="the section [cluster]")
    timeline: TimelineSettings | None = Field(default=None, description="the section [timeline]")
    execution: ExecutionSettings = Field(default_factory=ExecutionSettings, description="the section [execution]")
    output: OutputSettings = Field(default_factory=OutputSettings, description="the section [output]")


SECTIONS: dict[str, type[Section]] = {
    "input": InputSettings,
    "prepare": PrepareSettings,
    "select": SelectSettings,
    "cluster": ClusterSettings,
    "timeline": TimelineSettings,
    "execution": ExecutionSettings,
    "output": OutputSettings,
}
"""Name of a section -> its schema."""


def at_key(text: JobText, path: KeyPath, problem: str) -> str:
    """Return the message about one key."""
    return f"{text.name}: {'.'.join(path)}: {problem}{text.where(path)}"


def describe(value: Any) -> str:
    """Return the kind of a value and the value itself, shortened."""
    if isinstance(value, dict):
        return "a section"
    kinds = {bool: "boolean", str: "string", int: "number", float: "number"}
    kind = kinds.get(type(value), type(value).__name__)
    text = str(value).lower() if isinstance(value, bool) else without_credentials(repr(value))
    return f"the {kind} {text if len(text) <= 80 else text[:77] + '...'}"


def yaml_note(text: JobText, value: Any) -> str:
    """Return a note if YAML probably reads a value differently than intended."""
    if not text.is_yaml:
        return ""
    if isinstance(value, bool):
        return "; YAML reads unquoted yes, no, on and off as booleans: quote them"
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value):
        return "; YAML reads a number like 1e-5 as a string: write 1.0e-5"
    return ""


def suggestion(path: KeyPath, known: Iterable[str] | None = None) -> str:
    """Return where an unknown key belongs, the known key nearest to it, or all known keys."""
    *_, key = path
    if homes := [f"[{name}]" for name, section in SECTIONS.items() if key in keys(section)]:
        return f"; it belongs in {' or '.join(homes)}"
    if known is None:
        known = SECTIONS if len(path) == 1 else keys(SECTIONS[path[0]])
    return did_you_mean(key, known, f"; known {'sections' if len(path) == 1 else 'keys'}: {', '.join(known)}")


def keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a section."""
    return [name for name in model.model_fields if name != "parameters"]
