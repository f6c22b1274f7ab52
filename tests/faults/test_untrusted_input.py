"""Input that nobody vouches for: no code runs, no link leads out, no bomb is decoded, no secret is left."""

import ast
import csv
import gzip
import json
import os
import pickle
import re
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.job.commands import cli, works
from tests.structure import package_modules
from zarr.codecs import GzipCodec

import sketchselect as sks
from sketchselect import open_matrix
from sketchselect.errors import ChunkReadError, SketchSelectError, SourceError
from sketchselect.readers import convert
from sketchselect.workflow.folder import sealed, unsealed

ROWS = np.random.default_rng(0).standard_normal((60, 6)).astype("f4")


class Touch:
    """Whatever unpickles this leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def store(path: Path, **options: Any) -> Path:
    zarr.create_array(str(path), data=ROWS, chunks=(20, 6), **options)
    return path


# --- code ------------------------------------------------------------------------------------------------------------


def test_nothing_that_is_read_runs_code(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = np.array([[Touch(ran)]], dtype=object)
    np.save(tmp_path / "a.npy", evil, allow_pickle=True)
    np.savez(tmp_path / "a.npz", X=evil)
    for name in ("rows.sks", "job.toml", "selection.json", "job.yaml"):
        (tmp_path / name).write_bytes(pickle.dumps(Touch(ran)))
    (tmp_path / "b.yaml").write_text(f"input: !!python/object/apply:os.mkdir ['{ran}']\n")
    (tmp_path / "v2.zarr").mkdir()
    layout = {"zarr_format": 2, "shape": [1, 1], "chunks": [1, 1], "dtype": "<f8", "fill_value": 0, "order": "C"}
    for codecs in (
        {"filters": [{"id": "pickle"}], "compressor": None},
        {"filters": None, "compressor": {"id": "pickle"}},
    ):
        (tmp_path / "v2.zarr" / ".zarray").write_text(json.dumps(layout | codecs))
        (tmp_path / "v2.zarr" / "0.0").write_bytes(pickle.dumps(Touch(ran)))
        with pytest.raises(SketchSelectError):
            open_matrix(tmp_path / "v2.zarr").read_rows(0, 1)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(SketchSelectError):
            open_matrix(tmp_path / name).read_rows(0, 1)
    with pytest.raises(SketchSelectError):
        sks.load(tmp_path / "rows.sks")
    for words in (("run", "job.toml"), ("run", "job.yaml"), ("run", "b.yaml"), ("plan", "b.yaml")):
        assert cli(words[0], tmp_path / words[1]).exit_code == 2
    assert cli("cluster", store(tmp_path / "s.zarr"), "--selection", tmp_path / "selection.json").exit_code != 0
    assert not ran.exists()
    pickle.loads(pickle.dumps(Touch(ran)))
    assert ran.exists(), "the trap works"


@pytest.mark.parametrize("verb", ["verify", "certify"])
def test_the_scheduler_that_a_manifest_names_is_not_asked(tmp_path: Path, verb: str) -> None:
    select = {"method": "sketched-ridge", "n_features": 3, "n_components": 2, "sketch_size": 4}
    job = {"input": {"url": str(store(tmp_path / "s.zarr"))}, "select": select, "cluster": {"n_clusters": 2}}
    sks.run(job | {"execution": {"cluster": "serial"}, "output": {"dir": str(tmp_path / "out"), "report": False}})
    path = tmp_path / "out" / "manifest.json"
    content = unsealed(path)
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        address = f"tcp://127.0.0.1:{trap.getsockname()[1]}"
        (tmp_path / "trap.json").write_text(json.dumps({"address": address}))
        for place in (address, str(tmp_path / "trap.json")):
            content["job"]["execution"]["cluster"] = place
            path.write_text(sealed(content))
            works(verb, tmp_path / "out")
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_no_module_unpickles_what_it_reads() -> None:
    # Messages between a driver and its workers are pickles, as all of Dask's are; readers are tested for being sent.
    allowed = {"execution.dask_engine": {"pickle"}, "testing.readers": {"pickle"}}
    wrong = []
    for module in package_modules():
        for node in ast.walk(module.tree):
            names = set()
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module or ""}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = {node.func.id} & {"eval", "exec", "compile", "__import__"}
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                names = set() if getattr(node.value, "value", None) is False else {"allow_pickle"}
            bad = names & {
                "pickle",
                "dill",
                "joblib",
                "shelve",
                "marshal",
                "allow_pickle",
                "eval",
                "exec",
                "__import__",
            }
            wrong += [(module.name, name) for name in bad - allowed.get(module.name, set())]
    assert wrong == []


# --- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [False, True])
def test_links_out_of_a_store_are_not_followed(tmp_path: Path, folder: bool) -> None:
    path, secret = store(tmp_path / "a.zarr", compressors=None), tmp_path / "secret"
    chunk = path / "c" / "1" if folder else path / "c" / "1" / "0"
    chunk.rename(secret)
    chunk.symlink_to(secret)
    with pytest.raises(SourceError, match="a link that leads out of"):
        open_matrix(path)
    # A link to the store, and links inside of it, lead nowhere else.
    chunk.unlink()
    secret.rename(path / "elsewhere")
    chunk.symlink_to(path / "elsewhere")
    (tmp_path / "link.zarr").symlink_to(path)
    assert np.array_equal(open_matrix(tmp_path / "link.zarr").read_rows(0, 60), ROWS)


def linked(place: Path, target: Path) -> None:
    """Put a link to `target` in the place of a folder or file."""
    place.rename(place.with_name("before")) if place.exists() else None
    place.symlink_to(target)


@pytest.mark.parametrize("version", [2, 3])
def test_links_out_of_a_group_are_not_followed(tmp_path: Path, version: Any) -> None:
    outside = zarr.open_group(str(tmp_path / "out.zarr"), mode="w", zarr_format=version)
    outside.create_array("a", data=ROWS, chunks=(20, 6))
    zarr.open_group(str(tmp_path / "in.zarr"), mode="w", zarr_format=version)
    linked(tmp_path / "in.zarr" / "a", tmp_path / "out.zarr" / "a")
    linked(tmp_path / "in.zarr" / "layers", tmp_path / "out.zarr")
    for key in ("a", "layers/a", None):
        with pytest.raises(SourceError, match="a link that leads out of"):
            open_matrix(tmp_path / "in.zarr", key=key)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option", "ignore:Writing zarr v2 data")
@pytest.mark.parametrize("place", ["X", "X/data", "X/indices", "X/zarr.json", "zarr.json", "var", "obs/_index"])
def test_no_link_out_of_an_anndata_store_is_followed(tmp_path: Path, place: str) -> None:
    anndata = pytest.importorskip("anndata")
    import scipy.sparse

    rows = anndata.AnnData(scipy.sparse.csr_matrix(ROWS))
    for name in ("a.zarr", "b.zarr"):
        rows.write_zarr(tmp_path / name)
    if not (tmp_path / "a.zarr" / place).exists():
        place = place.replace("zarr.json", ".zattrs")  # written by anndata before 0.13
    linked(tmp_path / "a.zarr" / place, tmp_path / "b.zarr" / place)
    with pytest.raises(SourceError, match="a link that leads out of"):
        open_matrix(tmp_path / "a.zarr")


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option", "ignore:Writing zarr v2 data")
def test_names_are_not_read_through_links_out_of_a_store(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    for name in ("a.zarr", "b.zarr"):
        anndata.AnnData(ROWS).write_zarr(tmp_path / name)
    assert open_matrix(tmp_path / "a.zarr").feature_names == tuple("012345")
    [chunk] = [p for p in (tmp_path / "b.zarr/var/_index").rglob("0") if p.is_file()]
    linked(tmp_path / "a.zarr" / chunk.relative_to(tmp_path / "b.zarr"), chunk)
    assert open_matrix(tmp_path / "a.zarr").feature_names is None


@pytest.mark.parametrize("place", ["c/1/0", "zarr.json"])
@pytest.mark.parametrize("missing", ["error", "fill"])
def test_what_is_no_file_is_not_read(tmp_path: Path, place: str, missing: Any) -> None:
    path = store(tmp_path / "a.zarr")
    (path / place).unlink()
    os.mkfifo(path / place)
    with pytest.raises(SourceError, match="neither a file nor a folder"):
        open_matrix(path, missing_chunks=missing)


# --- bombs -----------------------------------------------------------------------------------------------------------


def test_a_chunk_file_larger_than_its_values_is_not_decoded(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zarr", compressors=[GzipCodec()])
    (path / "c/1/0").write_bytes(gzip.compress(bytes(200 << 20), compresslevel=1))
    with pytest.raises(ChunkReadError, match=r"chunk c/1/0 takes .* more than its values can .* not decoded"):
        open_matrix(path)


@pytest.mark.parametrize("options", [{}, {"compressors": None}, {"shards": (40, 6)}, {"dtype": "i1"}])
def test_values_that_do_not_compress_are_no_bomb(tmp_path: Path, options: dict[str, Any]) -> None:
    dtype = options.pop("dtype", "f8")
    values = np.frombuffer(np.random.default_rng(0).bytes(400 * 30 * 8), dtype=dtype)[: 400 * 30].reshape(400, 30)
    values = np.nan_to_num(values, posinf=0, neginf=0)
    shards = {"shards": (40, 30)} if "shards" in options else {}
    options = {key: value for key, value in options.items() if key != "shards"} | shards
    zarr.create_array(str(tmp_path / "a.zarr"), data=values, chunks=(1, 30), **options)
    assert np.array_equal(open_matrix(tmp_path / "a.zarr").read_rows(0, 400), values)


# --- what a run leaves -----------------------------------------------------------------------------------------------

HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>"]


@pytest.mark.slow
def test_no_file_of_a_run_can_run_script_or_formulas(tmp_path: Path) -> None:
    path = tmp_path / "rows.zarr"
    zarr.create_array(str(path), data=ROWS, chunks=(20, 6), attributes={"feature_names": HOSTILE})
    np.save(tmp_path / "names.npy", np.array([HOSTILE[i % 6] + str(i) for i in range(60)]))
    np.save(tmp_path / "y.npy", ROWS @ np.arange(6.0))
    for number, (method, further) in enumerate([("sketched-ridge", {"timeline": {"points": 3}}), ("lasso", {})]):
        out = tmp_path / f"out-{number}"
        job = {
            "input": {"url": str(path), "row_names": str(tmp_path / "names.npy"), "target": str(tmp_path / "y.npy")},
            "select": {"method": method, "n_features": 3},
            "cluster": {"n_clusters": 2},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(out)},
            **further,
        }
        sks.run(job)
        page = (out / "report.html").read_text(encoding="utf-8")
        assert not re.search(r"<script>alert|<img src=x|onerror=alert\(1\)>(?!&)", page)
        tables = list(out.glob("*.csv"))
        assert len(tables) >= 2
        for table in tables:
            for row in csv.reader(table.read_text(encoding="utf-8").splitlines()):
                for cell in row:
                    number_like = re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", cell)
                    assert number_like or not cell.startswith(("=", "+", "-", "@", "|")), (table.name, cell)


@pytest.mark.share(40)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "|", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
@pytest.mark.parametrize("before", ["", "x;", "x\t", 'x;"', '"', ";;", "\r", "\x00", " "])
def test_a_name_is_no_formula_whatever_separates_the_cells(delimiter: str, sign: str, before: str) -> None:
    from sketchselect.workflow.tables import csv_text, disarmed

    name = f"{before}{sign}cmd|'/C calc'!A0;"
    text = csv_text([[1, disarmed(name), 0], [disarmed(name), 0, 1]])
    cells = [cell for row in csv.reader(text.splitlines(), delimiter=delimiter) for cell in row]
    assert any("cmd" in cell for cell in cells)
    assert not any(cell.lstrip(' "').startswith(sign) for cell in cells), cells


SECRET = "hunter2-AKIA"


def test_secrets_are_in_no_file_of_a_run(tmp_path: Path) -> None:
    import fsspec

    url = f"memory://{tmp_path.name}/rows.zarr"
    zarr.create_array(zarr.storage.FsspecStore.from_url(url), data=ROWS.astype("f4"), chunks=(20, 6))
    job = {
        "input": {"url": url, "storage_options": {"key": SECRET, "nested": {"token": SECRET}}},
        "select": {"method": "variance", "n_features": 3},
        "cluster": {"n_clusters": 2},
        "execution": {"cluster": "serial", "checkpoint_seconds": 0, "partition_bytes": 1000},
        "output": {"dir": str(tmp_path / "out")},
    }
    try:
        sks.run(job)
        files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert any(path.suffix == ".sks" and "nodes" in path.parts for path in files)
        assert [path for path in files if SECRET.encode() in path.read_bytes() or SECRET in path.name] == []
    finally:
        fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


@pytest.mark.parametrize(
    "url",
    [
        f"https://host/rows.zarr?sig={SECRET}",
        f"https://me:{SECRET}@host/rows.zarr",
        f"s3://key:{SECRET}@bucket/rows.zarr",
        f"s3://bucket/rows.zarr?X-Amz-Signature={SECRET}",
        f"az://box/rows.zarr?sv=2024&sig={SECRET}",
    ],
)
@pytest.mark.parametrize("where", ["input", "checkpoint"])
def test_urls_with_secrets_are_refused_without_repeating_them(tmp_path: Path, url: str, where: str) -> None:
    from sketchselect.job.text import write_toml

    job: dict[str, Any] = {
        "input": {"url": url, "storage_options": {"allow_http": True}},
        "select": {"method": "variance", "n_features": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(tmp_path / "out")},
    }
    if where == "checkpoint":
        job["input"], job["execution"]["checkpoint"] = {"url": str(store(tmp_path / "rows.zarr"))}, url
    (tmp_path / "job.toml").write_text(write_toml(job))
    done = cli("run", tmp_path / "job.toml")
    assert done.exit_code != 0
    assert SECRET not in done.output
    assert "credentials do not belong in a URL" in done.output
    assert not any(SECRET in p.read_text(errors="replace") for p in tmp_path.glob("out/**/*") if p.is_file())


MISPLACED = [
    ["run"],
    ["report"],
    ["compare"],
    ["verify"],
    ["inspect"],
    ["select", "--method", "greedy", "-o", "s.json"],
    ["merge", "-o", "m.sks"],
    ["drift", "none.sks"],
    ["methods"],
    ["summarize", "rows.npy", "-o"],
    ["summarize", "rows.npy", "-o", "s.sks", "--scheduler"],
    ["summarize", "rows.npy", "-o", "s.sks", "--target"],
    ["inspect", "rows.npy", "--key"],
    *(
        ["run", "job.toml", "--set", f"{key}="]
        for key in (
            *("input.url", "input.target", "input.feature_names", "prepare.fitted", "prepare.rows", "select.method"),
            *("timeline.dates", "execution.cluster", "execution.checkpoint", "execution.tls_ca", "execution.retries"),
            *("output.dir", "output.metrics"),
        )
    ),
]


SECRET_ADDRESSES = [
    f"https://host/rows.zarr?sig={SECRET}",
    f"http://me:{SECRET}@host/rows.zarr",
    f"http://me:wo/rd{SECRET}@host",
    f"s3://bucket/rows.zarr?X-Amz-Signature={SECRET}",
    f"postgres://me:{SECRET}@host/rows",
    f"az://me:{SECRET}@container/rows",
    f"s3://me:wo/rd{SECRET}@bucket/rows",
    f"abfs://me:{SECRET}@account.dfs.core.windows.net/rows",
    f"http://me:it's{SECRET}@host/rows",
    f"http://me:{SECRET * 12}@host/rows",
    f"simplecache::http://me:{SECRET}@host/rows",
]
VERBOSITY = ([], ["--json"], ["-v", "--log-format", "json"])


@pytest.mark.share(8)
@pytest.mark.parametrize("place", range(len(SECRET_ADDRESSES)))
@pytest.mark.parametrize("words", MISPLACED, ids=" ".join)
def test_secrets_of_an_address_where_none_belongs_are_not_repeated(
    words: list[str], place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every word meets every address, and every third of these one verbosity.
    url, options = SECRET_ADDRESSES[place], VERBOSITY[(MISPLACED.index(words) + place) % 3]
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    Path("job.toml").write_text('[input]\nurl = "rows.npy"\n[select]\nmethod = "variance"\nn_features = 2\n')
    given = [*words[:-1], words[-1] + url] if words[-1].endswith("=") else [*words, url]
    done = cli(*given, *options)
    assert done.exit_code != 0
    assert SECRET not in done.output
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]


@pytest.mark.parametrize("url", SECRET_ADDRESSES, ids=range(len(SECRET_ADDRESSES)))
@pytest.mark.parametrize(
    "call",
    [
        sks.run,
        sks.load,
        sks.GreedySelector(2).fit,
        sks.KMeans(2).fit,
        lambda url: sks.LassoPath().fit(ROWS, url),
        lambda url: sks.summarize(url, sks.Moments()),
        lambda url: sks.summarize(ROWS, sks.Moments(), client=url),
        lambda url: sks.summarize("rows.npy", sks.Moments(), checkpoint=url),
        lambda url: sks.save(sks.summarize(ROWS, sks.Moments()), url),
        lambda url: convert(url, "out.zarr"),
        lambda url: convert("rows.npy", url),
    ],
    ids=["run", "load", "fit", "k-means", "target", "summarize", "client", "checkpoint", "save", "convert", "to"],
)
def test_secrets_of_an_address_are_in_no_error_of_python(
    call: Callable[[str], object], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it was raised from."""
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", ROWS)
    with pytest.raises((SketchSelectError, OSError)) as caught:
        call(url)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]
