"""Job files: what is right is read as it was meant, what is wrong is named with key, value, expectation and line."""

import re
from pathlib import Path

import pytest

from sketchselect.errors import ConfigError
from sketchselect.job.load import job_toml, load_job, with_cluster

GOOD = {
    "input.url": '"a.zarr"',
    "select.method": '"sketched-ridge"',
    "select.n_features": "5",
    "cluster.n_clusters": "3",
}


def toml(changes: dict[str, str | None]) -> str:
    """Return the good job with keys changed (or, with None, left out) as TOML."""
    sections: dict[str, list[str]] = {}
    for key, value in {**GOOD, **changes}.items():
        section, _, name = key.partition(".")
        if value is not None:
            sections.setdefault(section, []).append(f"{name} = {value}")
    return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items()) + "\n"


def complaints(tmp_path: Path, text: str, name: str = "job.toml") -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    assert caught.value.exit_code == 2
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{name}: ") for line in lines), lines
    return lines


def test_whole_job_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        toml(
            {
                "input.labels": '"y.npy"',
                "prepare.rows": '["l2"]',
                "select.alpha": "2",
                "select.normalize": "false",
                "cluster.tol": "0",
                "cluster.certificate": "false",
                "execution.memory_limit": '"2GiB"',
                "execution.partition_bytes": "4096",
                "execution.checkpoint": "false",
                "output.image_shape": "[2, 3]",
            }
        )
    )
    job = load_job(path)
    assert job.input.url == str(tmp_path / "a.zarr")
    assert job.input.labels == "y.npy", "no such file: it may be an array in the store"
    assert job.prepare.rows == ["l2"]
    assert job.select.parameters == {"alpha": 2, "normalize": False}
    assert job.cluster is not None
    assert (job.cluster.n_clusters, job.cluster.tol, job.cluster.certificate) == (3, 0.0, False)
    assert (job.execution.memory_limit, job.execution.partition_bytes) == (2 * 2**30, 4096)
    assert job.execution.checkpoint is False
    assert job.output.image_shape == (2, 3)
    assert job.output.dir == str(tmp_path / "out")


def test_no_scaling_is_true_of_every_method() -> None:
    """Methods that scale no rows take ``normalize = false``, which the file of `init` has, and no other value."""
    job = {"input": {"url": "a", "target": "y.npy"}, "select": {"method": "lasso", "normalize": False}}
    assert load_job(job).select.parameters == {}
    with pytest.raises(ConfigError, match=r"select\.normalize: unknown key"):
        load_job(job | {"select": {"method": "lasso", "normalize": "l2"}})


def test_an_unknown_key_of_auto_with_a_target_is_compared_with_the_keys_of_auto_target() -> None:
    job = {"input": {"url": "a", "target": "y.npy"}, "select": {"method": "auto", "cvv": 5}}
    with pytest.raises(ConfigError, match=r"select\.cvv: unknown key; did you mean 'cv'\?"):
        load_job(job)
    # What is sound with a target is not called unknown because of another mistake.
    with pytest.raises(ConfigError) as raised:
        load_job(job | {"select": {"method": "auto", "cv": 5, "cvv": 5}})
    assert "select.cv:" not in str(raised.value)
    for name, value in {"tolerance": 0.05, "methods": ["greedy"], "n_clusters": 3, "sample_rows": 100}.items():
        with pytest.raises(ConfigError, match=rf"select\.cv: is for learning from the target, and {name} for choosing"):
            load_job(job | {"select": {"method": "auto", "cv": 5, name: value}})
    with pytest.raises(ConfigError, match="known keys: ") as raised:
        load_job({"input": {"url": "a"}, "select": {"method": "auto", "qqqqqq": 5}})
    names = str(raised.value).partition("known keys: ")[2].partition(" (")[0].split(", ")
    assert len(names) == len(set(names)), "each key once"


def test_no_cluster_section_means_no_clustering() -> None:
    assert load_job({"input": {"url": "a"}, "select": {"method": "variance"}}).cluster is None


def test_paths_are_relative_to_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "y.npy").write_bytes(b"")
    path = folder / "job.toml"
    path.write_text(toml({"input.labels": '"y.npy"', "output.dir": '"../out"', "input.url": '"s3://bucket/x.zarr"'}))
    monkeypatch.chdir(tmp_path)
    job = load_job("jobs/job.toml")
    assert job.input.url == "s3://bucket/x.zarr"
    assert job.input.labels == str(folder / "y.npy")
    assert job.output.dir == str(tmp_path / "out")


def test_job_toml_repeats_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    odd = 'a "quoted"\\ \u00e9.zarr'
    path.write_text(toml({"input.url": "'" + odd + "'", "select.alpha": '"paper"', "output.image_shape": "[4, 4]"}))
    first = load_job(path)
    again = tmp_path / "again.toml"
    again.write_text(job_toml(first))
    assert load_job(again) == first


def test_storage_options_are_never_repeated(tmp_path: Path) -> None:
    job = load_job(
        {"input": {"url": "s3://b/x", "storage_options": {"secret": "hunter2"}}, "select": {"method": "variance"}}
    )
    assert job.input.storage_options == {"secret": "hunter2"}
    assert "hunter2" not in job_toml(job)


WRONG = [
    ("select.n_featurs", "5", "unknown key; did you mean 'n_features'?"),
    ("select.n_features_to_select", "5", "it is called 'n_features'"),
    ("select.n_clusters", "5", "it belongs in [cluster]"),
    ("input.zzz", "5", "known keys: url, key, target"),
    ("ouput.dir", '"x"', "did you mean 'output'?"),
    ("input.url", "3", "expected a path or URL of a matrix, got the number 3"),
    ("input.url", '""', "expected a path or URL"),
    ("input.url", '"ftp://host/x"', "schemes"),
    ("input.url", '"simplecache::s3://b/x"', "without '::'"),
    ("input.url", '"a\\u0000b"', "without control characters"),
    ("input.missing_chunks", '"ignore"', 'expected "error" or "fill"'),
    ("input.nonfinite", "true", "got the boolean true"),
    ("prepare.rows", '["l3"]', "unknown prepare step 'l3'; known steps: "),
    ("prepare.steps", '["auto"]', '"auto" is no step of a list; write steps = "auto"'),
    ("prepare.rows", '"l2"', "expected a list of row steps"),
    ("prepare.columns", '["standardize"]', "unknown prepare step 'standardize'; did you mean 'standardise'"),
    ("select.method", '"sketched-rigde"', "did you mean 'sketched-ridge'?"),
    ("select.method", '"nonsense"', "'nonsense' is not a method; available: "),
    ("select.batches", "true", "unknown key"),
    ("select.n_features", "0", 'expected a whole number of at least 1, or "auto", got the number 0'),
    ("select.n_features", "5.0", "got the number 5.0"),
    ("select.n_features", "true", "got the boolean true"),
    ("select.n_components", "-1", "at least 1"),
    ("select.n_components", '"ten"', "a whole number of at least 1 or false, got the string 'ten'"),
    ("select.alpha", '"atuo"', '"auto" or "paper"'),
    ("select.alpha", "nan", "got the number nan"),
    ("select.combine", '"min"', "select.combine: expected"),
    ("select.sketch_size", "2", "must exceed n_components"),
    ("cluster.n_clusters", "0", "at least 1"),
    ("cluster.range", "[0, 4]", "three or more numbers of clusters, ascending from at least 1, got the list [0, 4]"),
    ("cluster.n_clusters", '"10"', "got the string '10'"),
    ("cluster.n_init", str(10**30), 'expected a whole number from 1 to 10000, or "auto", got the number 10000'),
    ("cluster.random_state", "-1", "expected a whole number of at least 0, got the number -1"),
    ("cluster.tol", "-0.5", "at least 0"),
    ("cluster.tol", "inf", "got the number inf"),
    ("cluster.init", '"kmeans++"', '"k-means++"'),
    ("cluster.certificate", "true", 'expected "auto", "spectral", "blocks", false, or a table such as'),
    ("cluster.weighted", '"yes"', 'expected true, false or "both", got the string'),
    ("execution.cluster", '"locl"', "did you mean 'local'?"),
    (
        "execution.cluster",
        '"http://host:8787/status"',
        "dashboard; give that of the scheduler itself, such as tcp://host:8786",
    ),
    ("execution.cluster", '"https://ann:word@host"', "host: a scheduler's address has no user and password"),
    ("execution.cluster", '"TCP://host:8786"', "TCP://host:8786: this is not the address of a scheduler"),
    ("execution.memory_limit", '"2 gigs"', 'a size such as "128MiB"'),
    ("execution.partition_bytes", "0", "above 0"),
    ("execution.partition_bytes", "1.5", "a size"),
    ("execution.retries", "1000", "from 0 to 100"),
    ("execution.stall_timeout", "0", "above 0"),
    ("execution.checkpoint_seconds", "-1", "at least 0"),
    ("execution.tls_ca", '"ca.pem"', "missing: tls_cert, tls_key"),
    ("execution.checkpoint", "true", 'expected "auto", false or a folder'),
    ("output.dir", '"s3://bucket/out"', "not a URL"),
    ("output.report", '"yes"', "expected true or false"),
    ("output.image_shape", "[28]", "two whole numbers"),
    ("output.image_shape", "[0, 4]", "two whole numbers"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG, ids=[f"{k}={v}" for k, v, _ in WRONG])
def test_every_mistake_is_named(tmp_path: Path, key: str, value: str, expected: str) -> None:
    text = toml({key: value})
    [line] = complaints(tmp_path, text)
    section, _, name = key.partition(".")
    assert line.startswith((f"job.toml: {key}: ", f"job.toml: {section}: ")), line
    assert expected in line
    # The line that is named is the one where the key (or its table) is.
    number = int(re.search(r"\(line (\d+)\)$", line)[1])  # type: ignore[index]
    named = text.splitlines()[number - 1]
    assert named.startswith((f"{name} = ", f"[{section}]")), named


def test_a_former_name_of_a_parameter_is_taken_with_a_warning_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(toml({"select.score": '"l2"'}))
    with pytest.warns(UserWarning, match=r"job\.toml: select\.score: the key is now called 'combine' \(line 6\)"):
        assert load_job(path).select.parameters == {"combine": "l2"}
    [line] = complaints(tmp_path, toml({"select.score": '"l2"', "select.combine": '"l2"'}))
    assert line.startswith("job.toml: select.score: unknown key")


@pytest.mark.parametrize("method", ["lasso", "deterministic", "leverage", "mcfs"])
@pytest.mark.parametrize("value", [-1, 1.5, False, 2**63])
def test_seeds_of_all_methods_are_the_same_numbers(method: str, value: object) -> None:
    job = {"input": {"url": "a", "target": "y.npy"}, "select": {"method": method, "random_state": value}}
    with pytest.raises(ConfigError, match=r"select\.random_state: expected a whole number of at least 0, got"):
        load_job(job)
    assert load_job({**job, "select": {"method": method, "random_state": 7}}).select.parameters == {"random_state": 7}


@pytest.mark.parametrize(("key", "path"), [("input.url", "input"), ("select.method", "select")])
def test_missing_keys_and_sections(tmp_path: Path, key: str, path: str) -> None:
    changes: dict[str, str | None] = {k: None for k in GOOD if k.startswith(path)}
    assert complaints(tmp_path, toml(changes)) == [f"job.toml: {path}: missing; expected the section [{path}]"]
    [line] = complaints(tmp_path, toml({key: None}) if path == "select" else f"[input]\nkey = 'x'\n{toml(changes)}")
    assert line.startswith(f"job.toml: {key}: missing; expected")


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    lines = complaints(
        tmp_path, toml({"input.url": "1", "select.n_featurs": "2", "cluster.tol": "-1", "output.dir": "4"})
    )
    assert {line.split(": ")[1] for line in lines} == {"input.url", "select.n_featurs", "cluster.tol", "output.dir"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[input\n", "line 1"),
        (
            "[input]\nurl = 'a'\nurl = 'b'\n",
            "not valid TOML: the key url is there twice; remove one of the two (at line 3, column",
        ),
        (
            "[input]\nurl = 'a'\n[output]\n[input] # again\nkey = 'b'\n",
            "not valid TOML: the section [input] is there twice; put all of its keys into one (at line 4, column",
        ),
        (
            "[prepare]\nsteps = [\n 'l2',\n]\nsteps = [\n 'l2',\n]\n[output]\n",
            "the key steps is there twice; remove one of the two (at line 7, column",
        ),
        ("# \u2028\n[input]\nurl = 'a'\nurl = 'b'\n", "the key url is there twice; remove one of the two (at line 4"),
        ("input = 3\n[input]\nurl = 'a'\n", "(at line 2"),
        ("a = 3\na.b = 4\n", "(at line 2"),
        ("[input]\nurl = 'a'\nurl = '''\nx = 3\n'''\n", "TOML: Cannot overwrite a value (at line 5"),
        ("[a.b]\nc = 1\n[a]\nb = 3\n", "TOML: Cannot overwrite a value (at line 4"),
        ("x = " + "[" * 5000, "nested too deeply"),
        ("\n\nurl == 3\n", "line 3"),
    ],
)
def test_broken_toml(tmp_path: Path, text: str, expected: str) -> None:
    [line] = complaints(tmp_path, text)
    assert expected in line


BASE = "input: {url: a.zarr}\nselect: {method: variance}\n"

YAML = [
    ("input: {url: no}\nselect: {method: variance}\n", "quote them (line 1)"),
    ("input:\n  url: a\n  url: b\n", "line 3: key 'url' appears twice"),
    (BASE + "cluster:\n  tol: 1e-5\n", "YAML reads a number like 1e-5 as a string: write 1.0e-5 (line 4)"),
    (BASE + "cluster:\n  n_clusters: 010\n", "line 4: YAML reads 010 as 8 (octal or base 60)"),
    (BASE + "cluster:\n  n_clusters: 1:30\n", "line 4: YAML reads 1:30 as 90"),
    (BASE + "cluster: {tol: .nan}\n", "got the number nan (line 3)"),
    ("a: &x [1, 2]\nb: *x\n", "line 2: aliases"),
    ("a: &a [*a]\n", "aliases"),
    ("no: {url: a}\n", "line 1: YAML reads this key as False"),
    ("input: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
    ("- input\n", "expected sections"),
    ("just text", "expected sections"),
    ("input: {url: 'a\n", "line 2: found unexpected end of stream"),
    ("input: [\n", "line 2: "),
    ("---\na: 1\n---\nb: 2\n", "line 3: but found another document"),
    ("[" * 5000, "nested too deeply"),
    (BASE + "# \x00\n", "line 3: the character '\\x00' is not allowed in YAML"),
    ("a: 2026-13-45\n", "not valid YAML: month must be in 1..12"),
]


@pytest.mark.parametrize(("text", "expected"), YAML, ids=range(len(YAML)))
def test_yaml_traps(tmp_path: Path, text: str, expected: str) -> None:
    lines = complaints(tmp_path, text, "job.yaml")
    assert any(expected in line for line in lines), lines


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    one, two = tmp_path / "job.yaml", tmp_path / "job.toml"
    one.write_text(
        "input: {url: a.zarr}\ncluster: {n_clusters: 3}\n"
        "select: {method: sketched-ridge, n_features: 5, alpha: 1.0e-5}\n"
    )
    two.write_text(toml({"select.alpha": "1e-5"}))
    assert load_job(one) == load_job(two)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("job.ini", b"", "ends in .toml, .yaml or .yml"),
        ("job.toml", b"[input]\nurl = '\xff'\n", "line 2: not UTF-8"),
        ("job.toml", b"#" * (2 << 20), "larger than"),
        ("job.toml", None, "no such job file"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes | None, expected: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        load_job(tmp_path / name)


def test_a_folder_in_place_of_a_job_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        with pytest.raises(ConfigError, match=f"^{re.escape(folder)}: a folder; name a job file"):
            load_job(folder)


def test_byte_order_mark_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf" + toml({}).encode())
    assert load_job(path).select.n_features == 5


def test_overrides_win_and_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(toml({}))
    job = load_job(path, ["select.n_features=7", "output.dir=some where", "cluster.certificate=false", "input.key='k'"])
    assert job.cluster is not None
    assert (job.select.n_features, job.cluster.certificate, job.input.key) == (7, False, "k")
    assert job.output.dir == str(tmp_path / "some where")
    with pytest.raises(ConfigError, match=r"select\.n_features: .* got the string 'many' \(from --set\)"):
        load_job(path, ["select.n_features=many"])
    for bad in ("n_features=3", "select.n_features", "=3", "input.url.x=3", "select..x=3"):
        with pytest.raises(ConfigError, match="--set"):
            load_job(path, [bad])


def test_another_cluster_drops_what_was_said_of_the_own_one(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(toml({"execution.n_workers": "2", "execution.memory_limit": '"1GiB"', "execution.retries": "5"}))
    job = load_job(path, ["execution.cluster=tcp://host:8786"])
    assert (job.execution.n_workers, job.execution.memory_limit, job.execution.retries) == (None, None, 5)
    assert load_job(path, ["execution.cluster=threads"]).execution.n_workers == 2
    with pytest.raises(ConfigError, match=r"execution\.n_workers: only for a cluster that the job starts"):
        load_job(path, ["execution.cluster=tcp://host:8786", "execution.n_workers=3"])


def test_overrides_do_not_change_the_mapping_given() -> None:
    given = {"input": {"url": "a"}, "select": {"method": "variance", "n_features": 3}}
    assert load_job(given, ["select.n_features=4"]).select.n_features == 4
    assert given["select"]["n_features"] == 3


def test_a_scheduler_file_is_a_path_beside_the_job(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        '[input]\nurl = "x.npy"\n[select]\nmethod = "variance"\n[execution]\ncluster = "dask/scheduler.json"\n'
        '[output]\ndir = "out"\n'
    )
    assert load_job(tmp_path / "job.toml").execution.cluster == str(tmp_path / "dask" / "scheduler.json")


def test_a_scheduler_file_on_the_command_line_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_cluster(["a.b=1"], "s.json") == ["a.b=1", f'execution.cluster="{tmp_path}/s.json"']
    assert with_cluster([], "tcp://a:1/s.json") == ['execution.cluster="tcp://a:1/s.json"']
