"""Verbs for the author of a job file, and the examples of every command's help, run as they stand."""

import json
import re
import shlex
import shutil
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import typer.main
import zarr

from sketchselect.cli import GROUPS, app
from sketchselect.cli.authoring import PURPOSES
from sketchselect.selectors import METHODS

from .commands import cli, works

ELSEWHERE = {"demo", "doctor", "plan"}
"""Commands whose examples other tests run."""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A matrix with three groups of rows in ``rows.zarr``, in the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 50)) + 4 * rng.normal(size=(3, 50))[np.arange(200) % 3]
    zarr.create_array("rows.zarr", data=values, chunks=(50, 50))
    return values


@pytest.mark.slow
def test_the_examples_of_the_help_run(rows: np.ndarray) -> None:
    np.savetxt("table.csv", rows[:20, :4], delimiter=",")
    np.save("labels.npy", np.arange(200) % 3)
    np.save("truth.npy", np.arange(200) % 3)
    works("summarize", "rows.zarr", "-o", "monday.sks", "--cluster", "serial")
    np.save("tuesday.npy", rows + 1)
    zarr.create_array("new.zarr", data=rows[:50])
    works("summarize", "tuesday.npy", "-o", "tuesday.sks", "--cluster", "serial")
    commands = [(f, example) for group in GROUPS.values() for f, example in group.items()]
    order = ["convert", "inspect", "summarize", "merge", "select", "cluster", "certify", "evaluate", "init", "methods"]
    order += ["run", "assign", "report", "schema", "verify", "compare", "drift"]
    for name in ("year", "today"):
        shutil.copy("monday.sks", f"{name}.sks")
    assert {f.__name__ for f, _ in commands} == {*order, *ELSEWHERE}
    examples = {f.__name__: example for f, example in commands}
    for name in order:
        example = examples[name]
        words = shlex.split(example.partition(" > ")[0])[1:]
        target = ["rows2.zarr" if word == "rows.zarr" and words[0] == "convert" else word for word in words]
        serial = ["--cluster", "serial"] if words[0] in ("summarize", "cluster", "certify", "assign") else []
        serial += ["--set", "execution.cluster=serial"] if words[0] in ("run", "compare") else []
        works(*target, *serial)
        assert f"Example: {example[:40]}" in " ".join(cli(words[0], "--help").stdout.split())


def test_the_help_says_what_kind_of_value_an_option_takes() -> None:
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag:
                own = {word.lstrip("-").replace("-", "_").upper() for word in option.opts}
                assert option.metavar not in own, (name, option.opts)
    text = " ".join(cli("summarize", "--help").stdout.split())
    for shown in ("--size N ", "--target FILE|NAME ", "--output FILE ", "--nonfinite error|drop_rows|missing "):
        assert shown in text


def test_a_seed_has_one_name() -> None:
    for name in ("summarize", "cluster", "certify"):
        text = cli(name, "--help").stdout
        assert "--random-state N" in text
        assert "--seed" not in text


def test_a_method_says_which_values_its_keys_take() -> None:
    keys = dict(line.split(" : ", 1) for line in cli("methods", "stability").stdout.splitlines() if " : " in line)
    assert keys["threshold"] == "a number above 0.5 and at most 1, default 0.8"
    assert keys["max_false"] == "a number above 0, optional"
    assert keys["task"] == '"regression" or "classification", optional'


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_described(name: str) -> None:
    text = cli("methods", name).stdout
    assert text.startswith(f"{name} (in Python sketchselect.")
    assert METHODS[name].__name__ in text.splitlines()[0]
    assert "Keys of [select]" in text
    assert "Examples" not in text
    facts = json.loads(cli("methods", name, "--json").stdout)
    assert facts["cost"] or name == "online-leverage"
    assert facts["guarantee"][:30] in " ".join(text.split())
    assert "Guarantee: " in text
    assert not re.search("Cost|Source|`", facts["guarantee"])
    assert "`" not in text
    assert ("needs a target" in text) == METHODS[name].needs_target
    assert f"{name} " in cli("methods").stdout


def test_an_unknown_method_is_named_with_the_closest() -> None:
    lines = cli("methods").stdout.splitlines()
    assert [line.rstrip(":") for line in lines if not line.startswith(" ")] == list(PURPOSES)
    done = cli("methods", "gredy")
    assert done.exit_code == 2
    assert "unknown selection method 'gredy'" in done.stderr
    assert "'greedy'" in done.stderr


def test_the_schema_is_that_of_the_file() -> None:
    schema = json.loads(cli("schema").stdout)
    assert set(schema["properties"]) == {"input", "prepare", "select", "cluster", "timeline", "execution", "output"}
    select = schema["$defs"]["SelectSettings"]
    assert select["properties"]["method"]["enum"] == sorted(METHODS)
    assert select["additionalProperties"] is True
    assert "parameters" not in select["properties"]
    sizes = schema["$defs"]["ExecutionSettings"]["properties"]["partition_bytes"]
    assert {"type": ["integer", "string"]} in sizes["anyOf"]


@pytest.mark.slow
def test_a_first_job_says_what_was_seen(rows: np.ndarray) -> None:
    rows[3, 5] = np.nan
    np.save("gaps.npy", rows)
    works("init", "gaps.npy", "-o", "gaps.toml")
    job = tomllib.loads(Path("gaps.toml").read_text())
    assert "200 rows x 50 columns, float64" in Path("gaps.toml").read_text()
    assert "nonfinite" not in job["input"]  # the step fills what is missing
    assert "1 entry is missing or infinite" in Path("gaps.toml").read_text()
    assert job["prepare"]["steps"] == ["impute"]
    works("run", "gaps.toml", "--set", "execution.cluster=serial")
    counts = sp.random(300, 80, 0.2, format="csr", random_state=0, data_rvs=lambda n: np.arange(n) % 7 + 1)
    sp.save_npz("words.npz", counts)
    works("init", "words.npz", "-o", "words.toml")
    job = tomllib.loads(Path("words.toml").read_text())
    assert job["prepare"]["steps"] == ["tf-idf(sublinear=true)", "l2"]
    assert job["select"] == {"method": "greedy", "n_features": 40}
    works("run", "words.toml", "--set", "execution.cluster=serial")
    again = cli("init", "words.npz", "-o", "words.toml")
    assert again.exit_code == 2
    assert "words.toml: exists already" in again.stderr


@pytest.mark.slow
def test_a_first_job_says_which_method_learns_from_a_target(rows: np.ndarray) -> None:
    np.save("rows.npy", rows)
    np.save("y.npy", rows[:, 3])
    works("init", "rows.npy", "-o", "first.toml")
    text = Path("first.toml").read_text()
    assert 'with a target take method = "auto-target",' in text
    Path("first.toml").write_text(text.replace("# target = ", "target = "))
    serial = ("--set", "execution.cluster=serial", "--set", "select.n_features=3", "--fresh")
    without = works("run", "first.toml", *serial)
    assert 'method = "auto-target" learns from it, as "auto" does without [cluster]' in without.stderr
    assert "input.target" not in works("run", "first.toml", *serial, "--set", "select.method=auto-target").stderr


@pytest.mark.filterwarnings("ignore:.*'patient' names the rows")
@pytest.mark.parametrize("source", ["table.parquet", pytest.param("table.zarr", marks=pytest.mark.slow), "rows.npy"])
def test_a_first_job_for_a_target_predicts_it(rows: np.ndarray, source: str) -> None:
    table = pd.DataFrame(rows, columns=[f"c{j}" for j in range(rows.shape[1])]).assign(dose=rows[:, 3] * 2)
    table.insert(0, "patient", [f"p{i}" for i in range(len(table))])
    table.to_parquet("table.parquet", index=False)
    table.to_csv("table.csv", index=False)
    works("convert", "table.csv", "table.zarr")
    np.save("rows.npy", rows)
    np.save("dose.npy", rows[:, 3] * 2)
    target = "dose.npy" if source == "rows.npy" else "dose"
    works("init", source, "--target", target, "-o", "predict.toml")
    job = tomllib.loads(Path("predict.toml").read_text())
    assert job["input"]["target"] == target
    assert job["select"] == {"method": "auto-target"}
    assert "cluster" not in job
    works("run", "predict.toml", "--set", "execution.cluster=serial")
    assert json.loads((Path(job["output"]["dir"]) / "selection.json").read_text())["support"] == [3]
    again = cli("init", source, "--target", "doze", "-o", "other.toml")
    assert again.exit_code == 1
    assert ("did you mean 'dose'" if source == "table.parquet" else "doze") in again.stderr
    assert not Path("other.toml").exists()


@pytest.mark.parametrize(("n_rows", "cluster"), [(2_000, "threads"), (400_000, "local")])
def test_a_first_job_starts_processes_only_for_many_rows(
    n_rows: int, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.lib.format.open_memmap("rows.npy", mode="w+", dtype=np.float32, shape=(n_rows, 200)).flush()
    works("init", "rows.npy")
    assert tomllib.loads(Path("job.toml").read_text())["execution"] == {"cluster": cluster}


@pytest.mark.parametrize("n_rows", [2, 3, 9])
def test_a_first_job_for_few_rows_asks_for_fewer_clusters_and_runs(
    n_rows: int, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", rows[:n_rows])
    works("init", "few.npy")
    assert tomllib.loads(Path("job.toml").read_text())["cluster"]["n_clusters"] == (n_rows + 1) // 2
    works("run", "job.toml")


@pytest.mark.parametrize("store", ["cells.h5ad", "cells.zarr", "both.h5mu"])
def test_a_first_job_for_cells_names_a_column_of_obs_and_writes_annotations(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anndata
    import h5py

    monkeypatch.chdir(tmp_path)
    counts = sp.random(90, 60, 0.2, format="csr", random_state=0, data_rvs=lambda n: np.arange(n) % 7 + 1.0)
    obs = pd.DataFrame({"depth": np.ravel(counts.sum(axis=1)), "kind": pd.Categorical(["u", "v", "w"] * 30)})
    obs.index, names = [f"c{i}" for i in range(90)], pd.DataFrame(index=[f"g{i}" for i in range(60)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = anndata.AnnData(counts, obs=obs, var=names)
        if store == "both.h5mu":
            pytest.importorskip("mudata").MuData({"rna": cells}).write(store)
        elif store == "cells.zarr":
            cells.write_zarr(store)
        else:
            cells.write_h5ad(store)
    prefix = "mod/rna/obs" if store == "both.h5mu" else "obs"
    works("init", store, "-o", "cells.toml")
    text = Path("cells.toml").read_text()
    assert f"# the columns of obs: {prefix}/depth, {prefix}/kind" in text
    assert tomllib.loads(text)["output"]["anndata"] is True
    Path("labelled.toml").write_text(text.replace("# labels = ", "labels = "))
    assert tomllib.loads(Path("labelled.toml").read_text())["input"]["labels"] == f"{prefix}/kind"
    done = works("run", "labelled.toml", "--set", "execution.cluster=serial")
    assert "NMI of the clusters with the given labels" in done.stdout
    folder = Path(tomllib.loads(text)["output"]["dir"])
    with h5py.File(folder / "annotations.h5ad") as file:
        assert "highly_variable" in file["var"]


@pytest.mark.parametrize("ending", ["parquet", "zarr"])
@pytest.mark.filterwarnings("ignore:.*columns are text")
def test_labels_that_are_the_only_text_are_told_from_a_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = np.arange(60) % 2
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)) + 9 * kinds[:, None], columns=list("abc"))
    frame.insert(0, "id", [f"q{i}" for i in range(60)])
    frame = frame.assign(kind=np.where(kinds, "y", "x"))
    frame.to_parquet("rows.parquet")
    frame.to_csv("rows.csv", index=False)
    works("convert", "rows.csv", "rows.zarr")
    works("init", f"rows.{ending}", "-o", "job.toml")
    text = Path("job.toml").read_text()
    assert 'steps = ["one-hot"]' in text
    assert "# this text is a feature, by 'one-hot', unless it is named as labels" in text
    Path("job.toml").write_text(text.replace("# labels = ", "labels = ").replace('["one-hot"]', "[]"))
    done = works("run", "job.toml", "--set", "execution.cluster=serial", "--set", "cluster.n_clusters=2")
    assert "NMI of the clusters with the given labels: 1.0" in done.stdout


@pytest.mark.filterwarnings("ignore")
def test_a_first_job_for_cells_without_columns_of_obs_is_for_genes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anndata

    monkeypatch.chdir(tmp_path)
    counts = sp.random(90, 60, 0.2, format="csr", random_state=0, data_rvs=lambda n: np.arange(n) % 7 + 1.0)
    anndata.AnnData(counts).write_h5ad("cells.h5ad")
    works("init", "cells.h5ad", "-o", "cells.toml")
    job = tomllib.loads(Path("cells.toml").read_text())
    assert job["select"]["method"] == "hvg"
    assert job["output"]["anndata"] is True
    assert re.search(r'\nsteps = \["library-size", "log1p"\] +# of counts of cells: ', Path("cells.toml").read_text())


def test_a_first_job_names_its_source_from_its_own_folder(rows: np.ndarray) -> None:
    Path("jobs").mkdir()
    works("init", "rows.zarr", "-o", "jobs/first.toml")
    job = tomllib.loads(Path("jobs/first.toml").read_text())
    assert job["input"]["url"] == "../rows.zarr"
    np.save("rows.npy", rows)
    Path("words.txt").write_text("\n".join(f"w{j}" for j in range(rows.shape[1])))
    works("init", "rows.npy", "-o", "jobs/named.toml", "--feature-names", "words.txt")
    assert tomllib.loads(Path("jobs/named.toml").read_text())["input"]["feature_names"] == "../words.txt"
    assert job["select"] == {"method": "auto", "n_features": "auto", "normalize": False}
    works("init", str(Path("rows.zarr").absolute()), "-o", "absolute.toml")
    assert tomllib.loads(Path("absolute.toml").read_text())["input"]["url"] == str(Path("rows.zarr").absolute())


def test_a_source_that_is_not_there_is_named_before_the_job_that_is(rows: np.ndarray) -> None:
    Path("job.toml").write_text("")
    done = cli("init", "nope.npy")
    assert done.exit_code != 0
    assert "nope.npy: no such file" in done.stderr
    assert "exists already" not in done.stderr


def test_a_first_job_gives_dates_the_weight_of_the_other_columns(rows: np.ndarray) -> None:
    table = pd.DataFrame(rows[:, :6], columns=list("abcdef"))
    table.assign(day=pd.date_range("2024-01-01", periods=200)).to_parquet("days.parquet")
    works("init", "days.parquet", "-o", "days.toml")
    assert tomllib.loads(Path("days.toml").read_text())["prepare"]["steps"] == ["dates", "standardise"]


def test_a_first_job_gives_columns_of_unlike_units_the_same_weight(rows: np.ndarray) -> None:
    table = np.column_stack([rows[:, :5], 1e5 * rows[:, 5]])
    table[3, 1] = np.nan
    names = ["age", "dose", "crp", "size", "weight", "income"]
    pd.DataFrame(table, columns=names).to_parquet("table.parquet")
    works("init", "table.parquet", "-o", "table.toml")
    text = Path("table.toml").read_text()
    assert tomllib.loads(text)["prepare"]["steps"] == ["impute", "standardise"]
    assert re.search(r'\nsteps = \["impute", "standardise"\] +# gives each', text)
    assert "# Column 'income' has 100.0 % of the variance of all 6 columns; if they are of different units" in text
    assert re.search(r"n_clusters = 8 +# a guess: put your number, or compare several with range = \[2, 12\]", text)
    pd.DataFrame(table[:, :1], columns=names[:1]).to_parquet("one.parquet")
    assert "200 rows x 1 column, " in works("init", "one.parquet", "-o", "one.toml").stdout
    assert "200 rows x 1 column, " in works("inspect", "one.parquet").stdout
