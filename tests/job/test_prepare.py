"""Prepare steps in a job and on the command line: fitted once, kept beside the result, used again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

import sketchselect as sks
from sketchselect.errors import BadBlock, ConfigError, Incompatible, SourceError
from sketchselect.job.load import job_toml, load_job
from sketchselect.prepare import apply_steps
from sketchselect.workflow.verify import verify_run

from .commands import cli, works

Job = Callable[..., dict[str, Any]]
TEXT: list[Any] = [{"step": "tf-idf", "sublinear": True}, "l2"]


@pytest.fixture(scope="session")
def documents() -> np.ndarray:
    """300 documents about three things, 30 words; nobody uses word 4."""
    rng = np.random.default_rng(2)
    rates = rng.gamma(0.3, 1.0, (3, 30)) + 0.05
    X = rng.poisson(rates[np.arange(300) % 3])
    X[:, 4] = 0
    return X.astype(np.int32)


def write(path: Path, values: np.ndarray) -> Path:
    zarr.create_array(str(path), data=values, chunks=(20, values.shape[1]))
    return path


@pytest.fixture
def text_job(job: Job, tmp_path: Path, documents: np.ndarray) -> Job:
    """Return a job on the documents, with sections changed by keyword."""
    path = str(write(tmp_path / "documents.zarr", documents))

    def build(**sections: Any) -> dict[str, Any]:
        return job(**{"input": {"url": path}, "prepare": {"steps": TEXT}, **sections})

    return build


def tf_idf(X: np.ndarray) -> np.ndarray:
    """Return sublinear tf-idf with rows of unit length, by scikit-learn."""
    return normalize(TfidfTransformer(norm=None, sublinear_tf=True).fit_transform(csr_array(X.astype(float)))).toarray()


def stages(result: Any) -> dict[str, bool]:
    return {entry["name"]: entry["reused"] for entry in result.manifest["stages"]}


def test_every_stage_works_on_the_prepared_rows(text_job: Job, documents: np.ndarray) -> None:
    result = sks.run(text_job(output={"report": True}))
    Z = tf_idf(documents)
    features: Any = zarr.open_array(str(result.folder / "features.zarr"), mode="r")
    np.testing.assert_allclose(features[:], Z[:, result.selection.support], atol=1e-12)
    direct = sks.SketchedRidgeSelector(5, n_components=2, sketch_size=6, normalize=None).fit(Z)
    assert result.selection.support.tolist() == direct.support_.tolist()
    means = np.array([Z[result.labels == j].mean(axis=0) for j in range(3)])
    assert result.objective == pytest.approx(((Z - means[result.labels]) ** 2).sum(), rel=1e-9)
    label, own = result.manifest["prepare"]
    assert label.startswith("tf-idf(sublinear=true)#")
    assert own == "l2", "the method asks for it too, and it is not done twice"
    assert sks.load(result.folder / "summary.sks").prepare == (label, own)
    assert result.selection.prepare == (label, own)
    assert "prepare.sks" in result.manifest["files"]
    assert "prepare, tf-idf: 1 column is zero in every row and stays zero" in result.manifest["notes"]
    page = (result.folder / "report.html").read_text()
    assert "tf-idf(sublinear=true), l2" in page


def test_rows_then_columns_are_the_same_as_one_list(text_job: Job, documents: np.ndarray, tmp_path: Path) -> None:
    lists = {"rows": ["library-size", "log1p"], "columns": ["standardise"]}
    one = {"steps": [*lists["rows"], *lists["columns"]]}
    prints = []
    for i, prepare in enumerate((lists, one)):
        result = sks.run(text_job(prepare=prepare, output={"dir": str(tmp_path / f"out{i}")}))
        prints.append((result.manifest["prepare"], (result.folder / "selection.json").read_bytes()))
    assert prints[0] == prints[1]
    assert [label.split("#")[0] for label in prints[0][0]] == ["library-size", "log1p", "standardise", "l2"]


def test_the_written_job_asks_for_the_same(text_job: Job, tmp_path: Path) -> None:
    config = load_job(text_job(prepare={"steps": [*TEXT, {"step": "clip", "high": 0.5}]}))
    (tmp_path / "again.toml").write_text(job_toml(config))
    assert load_job(tmp_path / "again.toml").prepare == config.prepare


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ({"rows": ["l22"]}, r"job: prepare\.rows: unknown prepare step 'l22'; did you mean 'l2'"),
        ({"rows": ["scale"]}, r"prepare\.rows: prepare step 'scale' acts on columns: move it to prepare\.columns"),
        ({"columns": ["l2"]}, r"prepare\.columns: prepare step 'l2' acts on rows: move it to prepare\.rows"),
        (
            {"columns": [{"step": "clip", "low": 2, "high": 1}]},
            r"prepare\.columns: prepare step 'clip': low = 2 is above",
        ),
        ({"steps": [{"step": "tf-idf", "sublin": True}]}, r"unknown parameter 'sublin'; did you mean 'sublinear'"),
        ({"steps": ["l2"], "rows": ["l2"]}, r"prepare\.steps: cannot be combined with rows or columns"),
        ({"steps": ["l2"], "fitted": "x.sks"}, r"prepare\.fitted: no step needs statistics; remove it"),
        ({"steps": "l2"}, r"prepare\.steps: expected a list of steps in order"),
        ({"step": ["l2"]}, r"prepare\.step: unknown key; did you mean 'steps'"),
        ({"steps": ["standardise", "log1p"]}, r"prepare\.steps: prepare step 'log1p' is defined for counts"),
    ],
)
def test_mistakes_are_named_with_their_key(text_job: Job, prepare: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_job(text_job(prepare=prepare) if "steps" in prepare else {**text_job(), "prepare": prepare})
    assert "\n" not in str(caught.value)


def test_a_second_run_reads_the_statistics_of_the_first(text_job: Job) -> None:
    first = sks.run(text_job())
    before = (first.folder / "prepare.sks").read_bytes()
    second = sks.run(text_job())
    assert stages(first)["prepare"] is False
    assert stages(second)["prepare"] is stages(second)["summarize"] is True
    assert second.manifest["prepare"] == first.manifest["prepare"]
    assert (second.folder / "prepare.sks").read_bytes() == before
    third = sks.run(text_job(prepare={"steps": ["tf-idf", "l2"]}))
    assert stages(third)["prepare"] is stages(third)["summarize"] is False
    fourth = sks.run(text_job(prepare={"steps": ["log1p", "l2"]}))
    assert "prepare" not in stages(fourth)
    assert not (fourth.folder / "prepare.sks").exists(), "nothing is left of what this job has not"
    assert "prepare.sks" not in fourth.manifest["files"]


def test_a_job_that_fails_takes_nothing_of_the_earlier_run_away(text_job: Job, documents: np.ndarray) -> None:
    first = sks.run(text_job())
    array: Any = zarr.open_array(text_job()["input"]["url"], mode="r+")
    array[57, 8] = -1
    with pytest.raises(BadBlock, match=r"documents\.zarr: partition \d+ .*row 57, column 8: a negative value"):
        sks.run(text_job(prepare={"steps": ["log1p", "scale"]}))
    assert (first.folder / "manifest.json").exists()
    assert (first.folder / "prepare.sks").exists()


def test_appended_rows_are_prepared_with_the_statistics_of_the_first_run(
    text_job: Job, documents: np.ndarray, tmp_path: Path
) -> None:
    first = sks.run(text_job())
    old = sks.load(first.folder / "summary.sks")["column-stats"]
    kept = first.folder / "prepare.sks"
    array: Any = zarr.open_array(text_job()["input"]["url"], mode="r+")
    array.resize((360, 30))
    array[300:] = documents[:60]
    # The same folder, and even discarding all that is in it: the file was read before.
    fitted = {"prepare": {"steps": TEXT, "fitted": str(kept)}}
    second = sks.run(text_job(**fitted), fresh=True)
    assert second.manifest["prepare"] == first.manifest["prepare"]
    assert "prepare" not in stages(second), "no pass"
    assert kept.exists()
    new = sks.summarize(documents[:60], sks.ColumnStats(), prepare=sks.fit_prepare(documents, TEXT).steps)
    outcome = sks.load(second.folder / "summary.sks")["column-stats"]
    np.testing.assert_allclose(outcome.mean, old.merge(new).mean, atol=1e-13)
    third = sks.run(text_job(output={"dir": str(tmp_path / "own")}))
    assert third.manifest["prepare"] != first.manifest["prepare"], "its own statistics, of all 360 rows"


@pytest.mark.parametrize(
    ("content", "message", "kind"),
    [
        (None, r"prepare\.fitted: .*/f\.sks: no such file", SourceError),
        (["scale"], r"prepare\.fitted: .*/f\.sks: .*none for prepare step '0 tf-idf\(sublinear=true\)'", Incompatible),
        ("summary", r"prepare\.fitted: .*/f\.sks: expected the statistics of prepare steps", Incompatible),
    ],
)
def test_statistics_that_do_not_fit_are_refused_before_anything(
    text_job: Job, documents: np.ndarray, tmp_path: Path, content: Any, message: str, kind: type[Exception]
) -> None:
    path = tmp_path / "f.sks"
    if content == "summary":
        sks.save(sks.ColumnStats().from_block(documents), path)
    elif content is not None:
        sks.save(sks.fit_prepare(documents, content).statistics, path)
    with pytest.raises(kind, match=message):
        sks.run(text_job(prepare={"steps": TEXT, "fitted": str(path)}))
    assert not (tmp_path / "out").exists()


def test_random_features_replace_the_columns(text_job: Job, documents: np.ndarray) -> None:
    steps = ["l2", {"step": "fourier", "n_components": 40}]
    result = sks.run(text_job(prepare={"steps": steps}, output={"report": True}))
    Z = apply_steps(sks.fit_prepare(documents, steps).steps, documents)
    assert result.selection.scores.size == result.manifest["prepared_columns"] == 40
    assert result.selection.feature_names[-1] == "fourier_39"
    features: Any = zarr.open_array(str(result.folder / "features.zarr"), mode="r")
    np.testing.assert_allclose(features[:], Z[:, result.selection.support], atol=1e-12)
    assert "selected 5 of 40 columns" in result.summary()
    assert any("features are selected, not columns of the source" in note for note in result.manifest["notes"])
    assert "40 columns" in (result.folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"select": {"n_features": 9}}, r"select\.n_features: 9 asked for, .*documents\.zarr has 8 columns"),
        ({"output": {"image_shape": [5, 6]}}, r"output\.image_shape: after 'fourier' the columns are others"),
        (
            {"select": {"method": "online-leverage"}},
            r"online-leverage: the step 'fourier' needs whole rows, but this method reads columns",
        ),
    ],
)
def test_what_makes_no_sense_with_random_features(text_job: Job, sections: Any, message: str) -> None:
    whole = text_job(prepare={"steps": ["fourier(n_components=8)"]}, **sections)
    if whole["select"]["method"] == "online-leverage":
        whole["select"] = {"method": "online-leverage"}
    with pytest.raises(Exception, match=message):
        sks.run(whole)


def test_halves_summarised_apart_merge_with_the_statistics_of_one(documents: np.ndarray, tmp_path: Path) -> None:
    a, b = (write(tmp_path / f"{i}.zarr", X) for i, X in enumerate((documents[:160], documents[160:])))
    common = ("--prepare", "tf-idf(sublinear=true)", "--prepare", "l2", "--cluster", "serial")
    made = works("summarize", a, "-o", tmp_path / "a.sks", "--write-fitted", tmp_path / "p.sks", *common)
    assert "in a pass of its own" in made.stderr
    works("summarize", b, "-o", tmp_path / "own.sks", *common)
    refused = cli("merge", tmp_path / "a.sks", tmp_path / "own.sks", "-o", tmp_path / "m.sks")
    assert refused.exit_code == 1
    assert refused.stderr.count("tf-idf(sublinear=true)#") == 2
    works("summarize", b, "-o", tmp_path / "b.sks", "--fitted", tmp_path / "p.sks", *common)
    works("merge", tmp_path / "a.sks", tmp_path / "b.sks", "-o", tmp_path / "m.sks")
    fitted = sks.fit_prepare(documents[:160], TEXT)
    expected = apply_steps(fitted.steps, documents)
    np.testing.assert_allclose(sks.load(tmp_path / "m.sks")["columns"].mean, expected.mean(axis=0), atol=1e-13)
    shown = cli("inspect", tmp_path / "p.sks")
    assert "step statistics of 1 summaries, 160 rows x 30 columns" in shown.stdout
    assert "0 tf-idf(sublinear=true):" in shown.stdout


def test_sites_with_two_fitted_steps_select_as_one_pass_over_all_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((360, 12)) * 10.0 ** rng.integers(-1, 3, 12) + 5
    X[rng.random(X.shape) < 0.05] = np.nan
    parts = {"all": X, "0": X[:60], "1": X[60:280], "2": X[280:]}
    sources = {name: write(tmp_path / f"{name}.zarr", rows) for name, rows in parts.items()}
    both = ("--prepare", "impute", "--prepare", "standardise")

    def each(letter: str, *options: Any) -> Path:
        for site in "012":
            file = tmp_path / f"{letter}{site}.sks"
            given = [file if option == "FILE" else option for option in options]
            output = file if "FILE" not in options else tmp_path / f"own-{file.name}"
            works("summarize", sources[site], "-o", output, "--moments", "--cluster", "serial", *given)
        works("merge", *(tmp_path / f"{letter}{site}.sks" for site in "012"), "-o", tmp_path / f"{letter}.sks")
        return tmp_path / f"{letter}.sks"

    with pytest.raises(AssertionError, match=r"up to 'impute' alone, then write these with --fitted MERGED"):
        each("own", *both, "--write-fitted", "FILE")
    means = each("means", "--prepare", "impute", "--write-fitted", "FILE")
    without = cli("summarize", sources["0"], "-o", tmp_path / "x.sks", "--fitted", means, *both, "--cluster", "serial")
    assert without.exit_code == 1
    assert "none for prepare step '1 standardise'" in without.stderr
    assert "--fitted FILE --write-fitted FILE" in without.stderr
    units = each("units", *both, "--fitted", means, "--write-fitted", "FILE")
    merged = each("merged", *both, "--fitted", units)
    whole = tmp_path / "whole.sks"
    works("summarize", sources["all"], "-o", whole, *both, "--moments", "--cluster", "serial")
    a, b = (sks.load(file)["moments"].covariance() for file in (merged, whole))
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    selections = []
    for file in (merged, whole):
        works("select", file, "--method", "greedy", "--n-features", 5, "-o", file.with_suffix(".json"))
        selections.append(json.loads(file.with_suffix(".json").read_text()))
    assert selections[0]["support"] == selections[1]["support"]
    np.testing.assert_allclose(selections[0]["scores"], selections[1]["scores"], rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prepare", "tfidf"], "did you mean 'tf-idf'"),
        (["--prepare", "l2", "--write-fitted", "{}/p.sks"], "--write-fitted: no prepare step needs statistics"),
        (["--prepare", "scale", "--write-fitted", "{}/p.txt"], "--write-fitted {}/p.txt: the name must end in .sks"),
        (["--prepare", "scale", "--fitted", "{}/none.sks"], "{}/none.sks: no such file"),
    ],
)
def test_mistakes_on_the_command_line(documents: np.ndarray, tmp_path: Path, arguments: Any, message: str) -> None:
    source = write(tmp_path / "x.zarr", documents)
    given = [text.format(tmp_path) for text in arguments]
    result = cli("summarize", source, "-o", tmp_path / "s.sks", "--cluster", "serial", *given)
    assert result.exit_code != 0
    [said] = [text for text in result.stderr.splitlines() if text.startswith("error: ")]
    assert message.format(tmp_path) in said


def test_new_rows_are_clustered_as_those_of_the_selection_were_prepared(
    text_job: Job, documents: np.ndarray, tmp_path: Path
) -> None:
    first = sks.run(text_job())
    new = write(tmp_path / "new.zarr", documents[50:170])
    common = ("--clusters", 3, "--cluster", "serial")
    selection = first.folder / "selection.json"
    works("cluster", new, "--selection", selection, "-o", tmp_path / "c", *common)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert manifest["prepare"] == first.manifest["prepare"]
    features: Any = zarr.open_array(str(tmp_path / "c" / "features.zarr"), mode="r")
    np.testing.assert_allclose(features[:], tf_idf(documents)[50:170, first.selection.support], atol=1e-12)
    # Elsewhere, without the statistics beside it, other rows would be prepared otherwise: refused, with the cure.
    alone = tmp_path / "alone" / "selection.json"
    alone.parent.mkdir()
    alone.write_bytes(selection.read_bytes())
    refused = cli("cluster", new, "--selection", alone, "-o", tmp_path / "d", *common)
    assert refused.exit_code == 1
    assert "was fitted with other rows: it is" in refused.stderr
    assert "prepare.sks" in refused.stderr
    works("cluster", new, "--selection", alone, "-o", tmp_path / "d", "--fitted", first.folder / "prepare.sks", *common)


@pytest.mark.parametrize("method", ["sketched-ridge", "auto"])
def test_an_empty_list_of_steps_means_none(tmp_path: Path, method: str) -> None:
    """The method's own step is not added in silence; where it is asked for by name, it is."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((60, 8)) + 5.0)

    def run(prepare: dict[str, Any], **select: Any) -> tuple[list[str], Any]:
        result = sks.run(
            {
                "input": {"url": str(tmp_path / "x.npy")},
                "prepare": prepare,
                "select": {"method": method, "n_features": 3, **select},
                "output": {"dir": str(tmp_path / "out"), "report": False},
                "execution": {"cluster": "serial"},
            },
            fresh=True,
        )
        assert all(check.holds is not False for check in verify_run(result.folder))
        return result.manifest["prepare"], result.selection

    prepared, selection = run({"steps": []})
    assert prepared == []
    assert selection.support.tolist() == run({}, normalize=False)[1].support.tolist()
    assert run({})[0] == run({"steps": []}, normalize="l2")[0] == ["l2"]
