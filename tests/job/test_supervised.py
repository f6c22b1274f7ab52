"""Jobs that learn from a target, and the same from saved moments on the command line."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import sketchselect as sks
from sketchselect.errors import ConfigError, NotFinite, SourceError
from sketchselect.job.load import load_job
from sketchselect.readers import open_vector
from sketchselect.selectors import METHODS
from sketchselect.workflow import tables

from .commands import cli, works

Job = Callable[..., dict[str, Any]]
SUPERVISED = sorted(name for name, cls in METHODS.items() if cls.fits_model and cls().task == "regression")
USED = [1, 4, 6]


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    """300 rows of 12 unrelated columns, in place of the clusters that the other jobs run on."""
    return np.random.default_rng(2).standard_normal((300, 12)).astype(np.float32)


@pytest.fixture(scope="session")
def target(rows: np.ndarray) -> np.ndarray:
    """A target that three columns explain, but for noise."""
    noise = np.random.default_rng(11).standard_normal(len(rows))
    return 2.0 * rows[:, 1] - 1.5 * rows[:, 4] + rows[:, 6] + 0.5 * noise + 7.0


@pytest.fixture
def supervised(job: Job, target: np.ndarray, tmp_path: Path) -> Job:
    """Return a job with a target and without clustering."""
    np.save(tmp_path / "y.npy", target)

    def build(method: str, select: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
        given = {"target": str(tmp_path / "y.npy"), **sections.pop("input", {})}
        whole = job(input=given, cluster=sections.pop("cluster", None), **sections)
        return {**whole, "select": {"method": method, **(select or {})}}

    return build


def model_of(folder: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return model


def predicted(model: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """What a reader of ``model.json`` computes, with nothing but the file and the rows."""
    columns = rows.astype(np.float64)
    if model["scaling"] is not None:
        used, scaling = model["scaling"]["columns"], model["scaling"]
        columns[:, used] = (columns[:, used] - scaling["mean"]) / np.array(scaling["scale"])
    terms = np.array([columns[:, term].prod(axis=1) for term in model["terms"]]).reshape(len(model["terms"]), -1).T
    return np.asarray(terms @ np.array(model["coefficients"]).reshape(len(model["terms"]), -1) + model["intercepts"])


def path_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "path.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.mark.share(2)
@pytest.mark.parametrize("method", SUPERVISED)
def test_a_job_leaves_the_model_that_the_estimator_fits(
    supervised: Job, rows: np.ndarray, target: np.ndarray, method: str, tmp_path: Path
) -> None:
    result = sks.run(supervised(method, {"n_features": 3}))
    assert result.selection.support.tolist() == USED
    fitted = METHODS[method](n_features_to_select=3).fit(rows, target)
    model = model_of(result.folder)
    # Products of float32 blocks are rounded by block, and the job's blocks are other ones.
    assert predicted(model, rows)[:, 0] == pytest.approx(fitted.predict(rows), abs=1e-4)
    residual = target - predicted(model, rows)[:, 0]
    assert model["mean_squared_residual"] == pytest.approx(float((residual**2).mean()), rel=1e-4)
    assert model["r2"] == pytest.approx(1 - float((residual**2).mean()) / float(target.var()), rel=1e-5)
    assert (model["task"], model["n_rows"], model["n_terms"], model["cv"]) == ("regression", 300, 3, None)
    assert result.manifest["model"]["chosen_by"] == "the number of columns asked for"
    assert {"model.json", "path.csv", "selection.json", "features.zarr"} <= set(result.manifest["files"])
    assert "labels.zarr" not in result.manifest["files"]
    lines = path_of(result.folder)
    (chosen,) = [line for line in lines if line["chosen"] == "1"]
    assert [int(j) for j in chosen["terms"].split()] == USED
    assert float(chosen["mean_squared_residual"]) == model["mean_squared_residual"]
    assert "model: 3 columns" in result.summary()
    assert tables.read_selection(tmp_path / "out" / "selection.json").support.tolist() == USED


@pytest.mark.share(2)
@pytest.mark.parametrize("method", SUPERVISED)
def test_cross_validation_chooses_on_rows_held_out(
    supervised: Job, rows: np.ndarray, target: np.ndarray, method: str
) -> None:
    result = sks.run(supervised(method, {"cv": 4, "random_state": 3}))
    assert set(USED) <= set(result.selection.support.tolist())
    lines, model = path_of(result.folder), model_of(result.folder)
    errors = np.array([float(line["cv_error"]) for line in lines])
    chosen = [line["chosen"] for line in lines].index("1")
    assert chosen == errors.argmin()
    assert model["cv"]["mean_squared_error"] == errors.min()
    assert model["cv"]["n_folds"] == 4
    assert model["chosen_by"] == "4-fold cross-validation"
    # Rows that a model has not seen are predicted about as well as the noise of variance 1/4 allows.
    assert 0.15 < errors.min() < 0.5 < float(target.var()) / 4
    one_se = sks.run(supervised(method, {"cv": 4, "random_state": 3, "cv_rule": "1se"}))
    assert model_of(one_se.folder)["n_terms"] <= model["n_terms"]
    assert one_se.manifest["stages"][0]["reused"] is True, "the folds of the first run serve both rules"


@pytest.mark.parametrize("labels", ["text", "numbers", "three"])
def test_classes_may_be_text_or_numbers(
    supervised: Job, rows: np.ndarray, target: np.ndarray, labels: str, tmp_path: Path
) -> None:
    high = target > np.median(target)
    values: Any = {
        "text": np.where(high, "tall", "small"),
        "numbers": high.astype(np.int64) * 5,
        "three": np.digitize(target, np.quantile(target, [0.33, 0.66])),
    }[labels]
    np.save(tmp_path / "classes.npy", values)
    given = {"target": str(tmp_path / "classes.npy")}
    job = supervised("thresholded-ols", {"n_features": 3, "task": "classification"}, input=given)
    job["output"] = {**job["output"], "report": True}
    result = sks.run(job)
    model = model_of(result.folder)
    assert model["classes"] == sorted(set(values.tolist()))
    scores = predicted(model, rows)
    assert scores.shape == (300, 3 if labels == "three" else 1)
    choice = scores.argmax(axis=1) if labels == "three" else (scores[:, 0] > 0).astype(int)
    assert (np.array(model["classes"])[choice] == values).mean() > 0.8
    page = (result.folder / "report.html").read_text()
    assert f"tell the {'3' if labels == 'three' else 'two'} classes apart" in page
    assert "R2" not in result.summary()
    assert (model["misclassification"]["held_out"], model["misclassification"]["counted"]) == (None, False)
    assert (
        f"misclassification rate: {100 * model['misclassification']['fitted']:.1f} % on the fitted rows"
        in result.summary()
    )
    assert "of the predictions of these rows are expected to be wrong" in page


@pytest.mark.parametrize("method", ["lasso", "thresholded-ols", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_share_of_wrong_predictions_is_stated_wherever_classes_are_predicted(
    supervised: Job, target: np.ndarray, method: str, tmp_path: Path, store: Path
) -> None:
    np.save(tmp_path / "classes.npy", target > np.median(target))
    select = {"task": "classification"}
    job = supervised(method, select, input={"target": str(tmp_path / "classes.npy")}, output={"report": True})
    result = sks.run(job)
    rates = model_of(result.folder)["misclassification"]
    saved = json.loads((result.folder / "selection.json").read_text())
    assert saved["diagnostics"]["misclassification"] == result.manifest["model"]["misclassification"] == rates
    assert rates["counted"] == (method == "auto")
    kind = "counted " if rates["counted"] else ""
    stated = f"{100 * rates['held_out']:.1f} % {kind}on held-out folds"
    assert stated in result.summary()
    assert "where they are not, more or fewer may be wrong" in result.summary()
    assert ("misclassification rate: " + stated in result.summary()) == rates["counted"], "what was counted is first"
    page = (result.folder / "report.html").read_text()
    assert f"of the predictions of held-out rows are {'' if rates['counted'] else 'expected to be '}wrong" in page
    assert stated in works("inspect", result.folder).stdout
    assert "are mean squared ones of the codes of the classes, and no shares of wrong predictions" in page
    done = works("assign", result.folder, store, "-o", tmp_path / "new.csv")
    assert stated in done.stdout
    other = sks.run({**job, "output": {"dir": str(tmp_path / "other")}})
    table = works("compare", result.folder, other.folder).stdout
    (line,) = (line for line in table.splitlines() if line.startswith("misclassification rate on held-out rows"))
    assert line.split()[-2:] == [f"{rates['held_out']:.6g}"] * 2
    (line,) = (line for line in table.splitlines() if line.startswith("how this rate was measured"))
    assert line.split()[-2:] == ["counted" if rates["counted"] else "expected"] * 2
    assert table.index("misclassification rate") < table.index("measure of the model")


def test_a_regression_on_zeros_and_ones_names_the_classification(
    supervised: Job, target: np.ndarray, tmp_path: Path
) -> None:
    hint = 'task = "classification" in [select] predicts these as classes, and states the share of wrong predictions'

    def is_noted(values: np.ndarray, **select: Any) -> bool:
        np.save(tmp_path / "codes.npy", values)
        result = sks.run(supervised("lasso", select, input={"target": str(tmp_path / "codes.npy")}))
        return any(hint in note for note in result.manifest["notes"])

    high = target > np.median(target)
    assert is_noted(high.astype(np.int64))
    assert not is_noted(high.astype(np.int64), task="classification")
    standardised = (target - target.mean()) / target.std()
    assert not is_noted(standardised)
    assert not is_noted(1e-5 * standardised)
    assert not is_noted(1.0 + 1e-5 * standardised)
    assert not is_noted(np.digitize(target, np.quantile(target, [0.33, 0.66])))


def test_squares_and_products_are_told_apart_in_the_files(
    supervised: Job, rows: np.ndarray, target: np.ndarray, tmp_path: Path
) -> None:
    bent = rows[:, 1] * rows[:, 4] + 0.1 * target
    np.save(tmp_path / "bent.npy", bent)
    job = supervised("thresholded-ols", {"n_features": 4, "degree": 2}, input={"target": str(tmp_path / "bent.npy")})
    result = sks.run(job)
    model = model_of(result.folder)
    assert [1, 4] in model["terms"]
    assert model["n_terms"] == 4
    residual = bent - predicted(model, rows)[:, 0]
    assert float((residual**2).mean()) == pytest.approx(model["mean_squared_residual"], rel=1e-5)
    assert "1*4" in path_of(result.folder)[-1]["terms"].split()
    assert sks.run({**job, "select": {**job["select"], "n_features": 30}}).model.terms.size == 30
    with pytest.raises(ConfigError, match="n_features"):
        sks.run({**job, "select": {**job["select"], "n_features": 1000}})


def test_rows_that_fade(supervised: Job, rows: np.ndarray, target: np.ndarray) -> None:
    result = sks.run(supervised("thresholded-ols", {"n_features": 3, "half_life": 40.0}))
    weights = 0.5 ** ((299 - np.arange(300)) / 40.0)
    direct = LinearRegression().fit(rows[:, USED].astype(np.float64), target, sample_weight=weights)
    assert np.ravel(model_of(result.folder)["coefficients"]) == pytest.approx(direct.coef_, rel=1e-5)


def test_the_target_decides_what_is_done_again(supervised: Job, target: np.ndarray, tmp_path: Path) -> None:
    first = sks.run(supervised("thresholded-ols", {"n_features": 3}))
    more = sks.run(supervised("thresholded-ols", {"n_features": 5}))
    assert more.manifest["stages"][0]["reused"] is True, "another number of columns needs no further pass"
    assert more.selection.support.size == 5
    np.save(tmp_path / "y.npy", -target)
    turned = sks.run(supervised("thresholded-ols", {"n_features": 3}))
    assert turned.manifest["stages"][0]["reused"] is False
    before, after = np.ravel(first.model.coefficients), np.ravel(turned.model.coefficients)
    assert after == pytest.approx(-before, rel=1e-5)


def test_without_features_the_rows_are_read_once(supervised: Job) -> None:
    result = sks.run(supervised("thresholded-ols", {"n_features": 3}, output={"features": False, "report": True}))
    assert [s["name"] for s in result.manifest["stages"]] == ["summarize", "select"]
    assert not (result.folder / "features.zarr").exists()
    assert 'id="rows"' not in (result.folder / "report.html").read_text()
    with pytest.raises(ConfigError, match=r"output\.features: false, but \[cluster\]"):
        load_job(supervised("thresholded-ols", cluster={"n_clusters": 2}, output={"features": False}))


def test_a_supervised_job_may_cluster_too(supervised: Job) -> None:
    result = sks.run(supervised("thresholded-ols", {"n_features": 3}, cluster={"n_clusters": 3}))
    assert result.labels is not None
    assert len(result.certificates) == 3
    assert result.model.terms.tolist() == USED


def test_another_method_takes_the_model_away(supervised: Job, job: Job) -> None:
    result = sks.run(supervised("thresholded-ols", {"n_features": 3}))
    assert (result.folder / "model.json").exists()
    again = sks.run(job(select={"method": "variance"}, cluster=None) | {"select": {"method": "variance"}})
    assert again.model is None
    assert not (result.folder / "model.json").exists()
    assert not (result.folder / "path.csv").exists()


def test_a_missing_target_is_named_before_anything_is_read(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[input]\nurl = "nowhere.zarr"\n\n[select]\nmethod = "thresholded-ols"\n')
    with pytest.raises(ConfigError, match=r"input\.target: missing; thresholded-ols learns from a target.*\(line 1\)"):
        load_job(path)


@pytest.mark.parametrize(
    ("values", "select", "error", "message"),
    [
        (np.where(np.arange(300) == 137, np.nan, 0.0), {}, NotFinite, r"rows \d+ to \d+\).*the first at row 137,"),
        (np.zeros(299), {}, SourceError, r"299.*300 rows"),
        (np.array(["a", "b"] * 150), {}, ConfigError, "is text; set task"),
        (np.linspace(0, 1, 300), {"task": "classification"}, ConfigError, "no classes"),
        (np.zeros(300, int), {"task": "classification"}, ConfigError, "one class"),
    ],
    ids=["nan", "length", "text", "continuous", "one class"],
)
def test_targets_that_cannot_be(
    supervised: Job, values: np.ndarray, select: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "bad.npy", values)
    job = supervised("thresholded-ols", {"n_features": 3, **select}, input={"target": str(tmp_path / "bad.npy")})
    with pytest.raises(error, match=message) as caught:
        sks.run(job)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "model.json").exists()


def test_missing_values_are_told_to_the_method(supervised: Job, store: Path, rows: np.ndarray) -> None:
    import zarr

    array: Any = zarr.open_array(str(store), mode="r+")
    array[10, 0] = array[250, 4] = np.nan
    with pytest.raises(ConfigError, match=r'input\.nonfinite: "missing" needs .*select\.missing'):
        load_job(supervised("thresholded-ols", {"n_features": 3}, input={"nonfinite": "missing"}))
    pairwise = {"n_features": 3, "missing": "pairwise"}
    with pytest.raises(ConfigError, match="k-means needs"):
        load_job(supervised("thresholded-ols", pairwise, input={"nonfinite": "missing"}, cluster={"n_clusters": 2}))
    result = sks.run(supervised("thresholded-ols", pairwise, input={"nonfinite": "missing"}))
    assert result.selection.support.tolist() == USED
    assert result.manifest["stages"][0]["rows_dropped"] == 0


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def folds(supervised: Job, store: Path, tmp_path: Path) -> Path:
    supervised("thresholded-ols")  # writes the target
    file = tmp_path / "folds.sks"
    works(
        *("summarize", store, "-o", file, "--target", tmp_path / "y.npy", "--folds", 5, "--cluster", "serial"),
        *("--partition-bytes", "4KiB"),
    )
    return file


@pytest.mark.share(2)
@pytest.mark.parametrize("method", SUPERVISED)
def test_any_number_of_columns_from_one_file(folds: Path, method: str, rows: np.ndarray, tmp_path: Path) -> None:
    for n_features in (2, 3, 8):
        out, model = tmp_path / f"{n_features}.json", tmp_path / f"model{n_features}.json"
        done = works("select", folds, "--method", method, "--n-features", n_features, "-o", out, "--model", model)
        assert f"selected {n_features} of 12 columns" in done.output
        assert len(tables.read_selection(out).support) == n_features
        assert len(json.loads(model.read_text())["terms"]) == n_features
    done = works("select", folds, "--method", method, "-o", tmp_path / "cv.json", "--set", "cv=5")
    assert "chosen by 5-fold cross-validation" in done.output
    assert set(USED) <= set(tables.read_selection(tmp_path / "cv.json").support.tolist())


def test_what_a_summary_file_cannot_give(folds: Path, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    for args, expected in [
        (["--method", "thresholded-ols", "--set", "cv=4"], "holds 5 folds"),
        (["--method", "thresholded-ols", "--n-features", "13"], "--n-features: 13 asked for"),
        (["--method", "thresholded-ols", "--set", "task=classification"], "target of this summary is numeric"),
        (["--method", "thresholded-ols", "--set", "cv=1"], "cv must be"),
        (["--method", "variance", "--model", tmp_path / "m.json"], "--model: variance fits no model"),
    ]:
        done = cli("select", folds, "-o", out, *args)
        assert done.exit_code in (1, 2), (args, done.output)
        assert expected in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert not out.exists()
    plain = tmp_path / "plain.sks"
    works("summarize", store, "-o", plain, "--moments", "--cluster", "serial")
    done = cli("select", plain, "--method", "thresholded-ols", "--n-features", 3, "-o", out)
    assert done.exit_code == 1
    assert "has no target" in done.stderr


def test_options_that_contradict_each_other(store: Path, target: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", np.where(target > 7, "a", "b"))
    words = ["--target", tmp_path / "words.npy"]
    for args, expected in [
        (words, "holds text; add --classes"),
        (["--classes", "--moments"], "add --target"),
        ([*words, "--moments"], "holds text; add --classes"),
        (["--half-life", "10", "--folds", "3"], "--half-life: goes with neither"),
        (["--nonfinite", "missing"], "--moments --no-sketch"),
        (["--degree", "2"], "--degree: only moments"),
    ]:
        done = cli("summarize", store, "-o", tmp_path / "x.sks", "--cluster", "serial", *args)
        assert done.exit_code == 2, (args, done.output)
        assert expected in done.stderr
    assert not (tmp_path / "x.sks").exists()


def test_inspect_says_what_moments_know(folds: Path, store: Path, target: np.ndarray, tmp_path: Path) -> None:
    shown = cli("inspect", folds).output
    assert "5 folds of " in shown
    assert "target: numbers" in shown
    np.save(tmp_path / "words.npy", np.where(target > 7, "high", "low"))
    file = tmp_path / "classes.sks"
    options = ["--moments", "--classes", "--target", tmp_path / "words.npy", "--no-sketch", "--cluster", "serial"]
    works("summarize", store, "-o", file, *options)
    assert "target: 2 classes (high, low)" in cli("inspect", file).output
    fading = tmp_path / "fading.sks"
    options = ["--half-life", "50", "--target", tmp_path / "y.npy", "--cluster", "serial"]
    works("summarize", store, "-o", fading, *options)
    assert "before row 300" in cli("inspect", fading).output


@pytest.mark.parametrize("clusters", [None, {"n_clusters": 3}])
def test_every_vector_of_a_job_is_opened_once(
    supervised: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clusters: dict[str, Any] | None
) -> None:
    settings = {name: str(tmp_path / f"{name}.npy") for name in ("labels", "row_names")}
    for path in settings.values():
        np.save(path, np.arange(300))
    opened: Counter[str] = Counter()

    def count(address: str, *arguments: Any, **options: Any) -> Any:
        opened[address] += 1
        return open_vector(address, *arguments, **options)

    monkeypatch.setattr("sketchselect.workflow.session.open_vector", count)
    job = supervised("lasso", {"n_features": 3}, cluster=clusters, input=settings)
    sks.run(job)
    for path in (job["input"]["target"], *settings.values()):
        assert opened[path] == 1


def test_tests_name_their_target_beside_others(supervised: Job, tmp_path: Path) -> None:
    for name in ("first", "second"):
        sks.run(supervised("univariate", {"n_features": 3}, output={"dir": str(tmp_path / name)}))
    table = works("compare", tmp_path / "first", tmp_path / "second").stdout
    (line,) = (line for line in table.splitlines() if line.startswith("target"))
    assert line.split()[1:] == [str(tmp_path / "y.npy")] * 2
