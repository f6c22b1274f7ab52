"""``[timeline]`` and ``[select] half_life`` of a job, appended rows, and summaries of two days on the command line."""

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests import passing

import sketchselect as sks
from sketchselect.errors import BadParameter, ConfigError, Incompatible
from sketchselect.readers.stored import StoredMatrix
from sketchselect.report.charts import timeline_section
from sketchselect.report.tables import check_timeline

from .commands import cli, works

Job = Callable[..., dict[str, Any]]
ROWS, COLUMNS = 240, 30
drifting = partial(passing.drifting, n=ROWS, p=COLUMNS, seed=0, sizes=(3, 5), late=(11, 20))


def put(path: Path, X: np.ndarray, names: list[str] | None = None) -> Path:
    array = zarr.create_array(str(path), shape=X.shape, chunks=(10, COLUMNS), dtype="float64")
    array[:] = X
    if names is not None:
        array.attrs["feature_names"] = names
    return path


@pytest.fixture
def drift(tmp_path: Path) -> Path:
    return put(tmp_path / "drift.zarr", drifting())


@pytest.fixture
def along(job: Job, drift: Path) -> Job:
    """A job with a timeline on the drifting rows, twenty to a partition."""

    def build(**sections: Any) -> dict[str, Any]:
        select = {"method": "sketched-ridge", "n_features": 2, "n_components": 2, "sketch_size": 6, "normalize": False}
        given = {
            "input": {"url": str(drift)},
            "select": select,
            "cluster": None,
            "execution": {"partition_bytes": 8 * COLUMNS * 20},
            "timeline": {},
        }
        return job(**{**given, **sections})

    return build


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "timeline.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_holds_what_the_rows_up_to_each_point_give(along: Job) -> None:
    result = sks.run(along())
    lines = table(result.folder)
    assert "timeline.csv" in result.paths
    assert list(lines[0]) == ["first_row", "end_row", "column", "name", "score", "rank", "selected"]
    ever = {2, 5, 11, 20}
    assert {int(line["column"]) for line in lines} == ever
    assert len(lines) == 12 * len(ever)
    X = drifting()
    for stop in range(20, ROWS + 1, 20):
        here = sks.SketchedRidgeSelector(2, 2, sketch_size=6, normalize=None).fit(X[:stop])
        ranks = np.empty(COLUMNS, int)
        ranks[np.argsort(-here.scores_, kind="stable")] = np.arange(1, COLUMNS + 1)
        for line in (line for line in lines if int(line["end_row"]) == stop):
            j = int(line["column"])
            assert int(line["first_row"]) == 0
            assert float(line["score"]) == pytest.approx(here.scores_[j], rel=1e-6, abs=1e-9)
            assert (line["selected"] == "1") == (j in here.support_)
            if line["selected"] == "1":
                assert int(line["rank"]) == ranks[j]
    stage = next(stage for stage in result.manifest["stages"] if stage["name"] == "timeline")
    assert stage["n_points"] == 12
    assert "record" not in stage


def test_points_windows_and_half_life_of_a_job(along: Job, tmp_path: Path) -> None:
    fading = along(
        timeline={"points": 4, "window": 50},
        select={
            "method": "greedy",
            "n_features": 2,
            "n_components": 2,
            "sketch_size": 6,
            "normalize": False,
            "half_life": 15,
        },
    )
    result = sks.run(fading)
    lines = table(result.folder)
    assert sorted({(int(line["first_row"]), int(line["end_row"])) for line in lines}) == [
        (0, 60),
        (60, 120),
        (120, 180),
        (180, 240),
    ]
    assert result.selection.support.tolist() == [11, 20]
    assert result.selection.parameters["half_life"] == 15.0
    # The same job without its half-life selects what carried most over all rows: the table says that it changed.
    assert {line["column"] for line in lines if line["end_row"] == "60" and line["selected"] == "1"} == {"2", "5"}
    again = sks.run(fading)
    assert all(stage["reused"] for stage in again.manifest["stages"] if stage["name"] in ("summarize", "timeline"))


def test_without_the_section_there_is_no_table(along: Job) -> None:
    folder = sks.run(along()).folder
    assert (folder / "timeline.csv").exists()
    without = along()
    del without["timeline"]
    sks.run(without)
    assert not (folder / "timeline.csv").exists()


def test_the_report_draws_what_rose_and_fell(along: Job) -> None:
    names = [f"word <{j}>" for j in range(COLUMNS)]
    folder = Path(along()["output"]["dir"])
    source = put(folder.parent / "named.zarr", drifting(), names)
    result = sks.run(along(input={"url": str(source)}, output={"report": True}))
    page = (result.folder / "report.html").read_text()
    section = page.split('id="timeline"')[1].split("</section>")[0]
    assert "<svg" in section
    rose, fell = section.split("<b>Fell:</b>")
    for j in (11, 20):
        assert f"word &lt;{j}&gt;" in rose
    for j in (2, 5):
        assert f"word &lt;{j}&gt;" in fell
    before = page
    from sketchselect.workflow.job import render_folder

    render_folder(result.folder)
    assert (result.folder / "report.html").read_text() == before


def test_only_appended_rows_are_read_by_a_second_run(along: Job, drift: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, int]] = []
    plain = StoredMatrix.read_rows

    def counted(self: StoredMatrix, start: int, stop: int) -> Any:
        reads.append((start, stop))
        return plain(self, start, stop)

    monkeypatch.setattr(StoredMatrix, "read_rows", counted)
    long_job = along(timeline={"window": 60}, output={"features": False})
    kept = str(drift.parent / "kept")
    long_job["execution"]["checkpoint"] = kept
    sks.run(long_job)
    assert {(start, start + 20) for start in range(0, ROWS, 20)} <= set(reads)
    array = zarr.open_array(str(drift), mode="r+")
    array.append(drifting(n=60, seed=1))
    reads.clear()
    selector = sks.SketchedRidgeSelector(2, 2, sketch_size=6, normalize=None)
    options = {"partition_bytes": 8 * COLUMNS * 20, "client": "serial"}
    outcome = sks.timeline(str(drift), selector, window=60, checkpoint=kept, **options)
    assert sorted(set(reads)) == [(240, 260), (260, 280), (280, 300)]
    assert np.array_equal(outcome.scores, sks.timeline(str(drift), selector, window=60, **options).scores)
    reads.clear()
    result = sks.run(long_job)
    stage = next(stage for stage in result.manifest["stages"] if stage["name"] == "timeline")
    assert stage["rows_read"] == 0
    assert len({line["end_row"] for line in table(result.folder)}) == 15


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"timeline": {"points": 0}}, "timeline.points: expected a whole number of at least 1, got the number 0"),
        ({"timeline": {"window": "week"}}, "timeline.window: expected a whole number of rows"),
        ({"timeline": {"every": 3}}, "timeline.every: unknown key"),
        ({"select": {"half_life": 0}}, "select.half_life: expected a number above 0"),
        ({"select": {"half_life": -2.5}}, "select.half_life"),
        ({"select": {"half_life": "long"}}, "select.half_life: expected a number above 0 or false"),
        ({"select": {"method": "online-leverage"}}, "timeline: online-leverage reads the source in passes of its own"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(along: Job, sections: dict[str, Any], named: str) -> None:
    whole = along()
    for name, changes in sections.items():
        whole[name] = changes if "method" in changes else {**whole[name], **changes}
    with pytest.raises(ConfigError) as caught:
        sks.run(whole)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path(whole["output"]["dir"]).exists()


def test_a_timeline_that_contradicts_itself_is_refused_and_no_movement_is_no_figure() -> None:
    flat = {"rows": [5], "n_selected": [2], "n_ever": 2, "n_always": 2, "names": [], "n_risen": 0, "ranks": [[]]}
    section = timeline_section(flat)
    assert section["svg"] is None
    assert "2 columns were selected at some point, 2 of them at every point" in section["sentence"]
    sentence = timeline_section({**flat, "period": "day", "window": 1})["sentence"]
    assert "at 1 point along the rows, each the end of a day, from the rows of that day." in sentence
    sentence = timeline_section({**flat, "period": "week", "window": 3})["sentence"]
    assert "each the end of a week, from the rows of that week and the 2 with rows before it." in sentence
    for wrong in ({"rows": []}, {"n_selected": [1, 2]}, {"n_risen": 1}, {"names": ["a"], "ranks": [[1, 2]]}):
        with pytest.raises(ValueError, match="timeline"):
            check_timeline({**flat, **wrong})


# --- two days on the command line --------------------------------------------------------------------------------


def days(tmp_path: Path, names: tuple[list[str] | None, list[str] | None] = (None, None)) -> tuple[Path, Path]:
    X = drifting()
    return put(tmp_path / "monday.zarr", X[:140], names[0]), put(tmp_path / "tuesday.zarr", X[140:], names[1])


def summed(source: Path, output: Path, *options: Any) -> Any:
    return cli("summarize", source, "-o", output, "--size", 6, "--cluster", "serial", *options)


@pytest.mark.parametrize("half_life", [None, 25])
def test_two_days_merged_are_one(tmp_path: Path, half_life: int | None) -> None:
    fading = [] if half_life is None else ["--half-life", half_life]
    monday, tuesday = days(tmp_path)
    assert summed(monday, tmp_path / "a.sks", "--moments", *fading).exit_code == 0
    later = [] if half_life is None else [*fading, "--after", 140]
    assert summed(tuesday, tmp_path / "b.sks", "--moments", *later).exit_code == 0
    done = works("merge", tmp_path / "a.sks", tmp_path / "b.sks", "-o", tmp_path / "both.sks")
    assert "note" not in done.stdout
    both = sks.load(tmp_path / "both.sks")
    X = drifting()
    weights = np.ones(ROWS) if half_life is None else 0.5 ** (np.arange(ROWS)[::-1] / half_life)
    assert np.allclose(both["moments"].covariance(), np.cov(X.T, ddof=0, aweights=weights), rtol=1e-10, atol=1e-14)
    A = X * np.sqrt(weights)[:, None]
    gap = np.linalg.eigvalsh(A.T @ A - both["sketch"].sketch.T @ both["sketch"].sketch)
    assert gap[0] >= -1e-10 * (A**2).sum()
    assert gap[-1] <= both["sketch"].shrinkage + 1e-10 * (A**2).sum()
    options = ["--set", "normalize=false", "--set", "n_components=2"]
    if half_life is not None:
        options += ["--set", f"half_life={half_life}"]
    words = ["--method", "sketched-ridge", "--n-features", 2, "-o", tmp_path / "s.json", *options]
    works("select", tmp_path / "both.sks", *words)
    assert json.loads((tmp_path / "s.json").read_text())["support"] == [11, 20]


def test_rows_that_seem_to_be_of_the_same_age_are_pointed_out(tmp_path: Path) -> None:
    monday, tuesday = days(tmp_path)
    for source, name in ((monday, "a.sks"), (tuesday, "b.sks")):
        assert summed(source, tmp_path / name, "--half-life", 25).exit_code == 0
    done = works("merge", tmp_path / "a.sks", tmp_path / "b.sks", "-o", tmp_path / "both.sks")
    assert "rows 0 to 99" in done.stdout
    assert "--after 140" in done.stdout
    assert list(sks.load(tmp_path / "a.sks")) == ["columns", "sketch"]


def test_days_whose_columns_differ_are_refused_in_one_line(tmp_path: Path) -> None:
    names = [f"gene{j}" for j in range(COLUMNS)]
    others = [*names[:7], "other", *names[8:]]
    monday, tuesday = days(tmp_path, (names, others))
    for source, name in ((monday, "a.sks"), (tuesday, "b.sks")):
        assert summed(source, tmp_path / name).exit_code == 0
    done = cli("merge", tmp_path / "a.sks", tmp_path / "b.sks", "-o", tmp_path / "both.sks")
    assert done.exit_code == Incompatible.exit_code
    assert "column 7 is named 'gene7' and 'other'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    stream = sks.SketchedRidgeSelector(2).partial_fit(str(monday))
    with pytest.raises(BadParameter, match=r"tuesday\.zarr: column 7 is named 'other', .* 'gene7'") as caught:
        stream.partial_fit(str(tuesday))
    assert "\n" not in str(caught.value)
    assert stream.summary_.n_rows == 140


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--half-life", 0], "--half-life: half_life must be a number above 0"),
        (["--half-life", -3], "--half-life"),
        (["--after", 10], "--after: nothing here depends on row numbers; add --half-life, --folds or --sample"),
    ],
)
def test_options_out_of_range(tmp_path: Path, options: list[Any], named: str) -> None:
    done = summed(days(tmp_path)[0], tmp_path / "a.sks", *options)
    assert done.exit_code == 2
    assert named in done.stderr
    assert not (tmp_path / "a.sks").exists()


def test_a_job_with_dates_has_points_at_the_ends_of_periods(job: Job, tmp_path: Path) -> None:
    import pandas as pd

    days = pd.Timestamp("2024-01-29") + pd.to_timedelta(np.arange(ROWS) // 4, "D")
    frame = pd.DataFrame(drifting(), columns=[f"c{j}" for j in range(COLUMNS)]).assign(when=days)
    frame.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=40)

    def by_date(timeline: dict[str, Any], **parameters: Any) -> dict[str, Any]:
        select = {"method": "variance", "n_features": 2, "normalize": False, **parameters}
        source = {"url": str(tmp_path / "t.parquet")}
        whole = job(input=source, cluster=None, output={"report": True}, timeline=timeline)
        return {**whole, "select": select}

    result = sks.run(by_date({"dates": "when", "period": "month", "window": 2}))
    lines = table(result.folder)
    points = sorted({(line["date"], int(line["first_row"]), int(line["end_row"])) for line in lines})
    assert points == [("2024-01-01", 0, 12), ("2024-02-01", 0, 128), ("2024-03-01", 12, 240)]
    assert "when" not in (result.selection.feature_names or ())
    page = (result.folder / "report.html").read_text()
    assert [name for name in ("2023-12", "2024-01", "2024-02", "2024-03", "2024-04") if f">{name}<" in page] == [
        "2024-01",
        "2024-02",
        "2024-03",
    ]
    assert "window is" not in " ".join(result.manifest["notes"])
    result = sks.run(by_date({"dates": "when", "period": "month", "window": 30}))
    assert "window is 30 months, and there are 3 months" in " ".join(result.manifest["notes"])
    with pytest.raises(ConfigError, match=r"timeline\.period.*timeline\.dates"):
        sks.run(by_date({"period": "month"}))
    with pytest.raises(ConfigError, match=r"select\.window.*timeline\.window"):
        sks.run(by_date({"dates": "when"}, window=50))


def test_a_window_longer_than_any_source_is_of_all_rows(job: Job, drift: Path) -> None:
    select = {"method": "greedy", "n_features": 2}
    lines = []
    for name, window in (("all", None), ("long", 99_999_999_999_999_999_999)):
        given = {"points": 4} if window is None else {"points": 4, "window": window}
        whole = job(input={"url": str(drift)}, cluster=None, timeline=given, output={"dir": str(drift.parent / name)})
        sks.run({**whole, "select": select})
        lines.append((drift.parent / name / "timeline.csv").read_text())
    assert lines[0] == lines[1]


def test_a_half_life_is_a_float_however_it_is_written(job: Job, drift: Path) -> None:
    def select(half_life: float) -> Any:
        whole = job(input={"url": str(drift)}, cluster=None)
        return sks.run({**whole, "select": {"method": "greedy", "n_features": 2, "half_life": half_life}}, fresh=True)

    assert np.array_equal(select(99_999_999_999_999_999_999).selection.scores, select(1e20).selection.scores)
    with pytest.raises(ConfigError, match="half_life: expected a number above 0"):
        select(10**400)
