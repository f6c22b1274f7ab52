"""Output folders that nobody vouches for, and folders that a program is started in: nothing runs, hangs, or is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.job.commands import cli, refused, works

from sketchselect import _blas_kernel, open_matrix
from sketchselect.errors import DamagedFile, NotOurFolder, SourceError
from sketchselect.summaries import codec
from sketchselect.workflow.folder import OutputFolder, open_folder, sealed, tree_digest, unsealed

ROWS = np.random.default_rng(0).standard_normal((120, 6))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows, a job file, and what the job left in ``out``."""
    folder = tmp_path_factory.mktemp("run")
    zarr.create_array(str(folder / "rows.zarr"), data=ROWS, chunks=(20, 6))
    (folder / "job.toml").write_text(
        f'input.url = "{folder}/rows.zarr"\n'
        'select = {method = "sketched-ridge", n_features = 3, n_components = 2, sketch_size = 4}\n'
        "cluster.n_clusters = 2\n"
        'execution = {cluster = "serial", checkpoint_seconds = 0, partition_bytes = 1000}\n'
        'output = {dir = "out", report = false}\n'
    )
    works("run", folder / "job.toml")
    return folder


@pytest.fixture
def out(run: Path, tmp_path: Path) -> Path:
    """A copy of the output folder."""
    return Path(shutil.copytree(run / "out", tmp_path / "out"))


def again(run: Path, out: Path) -> Any:
    return cli("run", run / "job.toml", "--set", f"output.dir={out}")


def rewrite(out: Path, change: Any) -> None:
    """Change a manifest as somebody would who can write its digest too."""
    content = unsealed(out / "manifest.json")
    change(content)
    (out / "manifest.json").write_text(sealed(content))


@pytest.mark.parametrize(
    "name",
    [".sketchselect", ".lock", ".lock.guard", "run.log", "checkpoints", "checkpoints/nodes", "checkpoints/staging"],
)
@pytest.mark.parametrize("verb", ["run", "certify"])
def test_nothing_is_written_or_removed_through_a_link(
    run: Path, out: Path, tmp_path: Path, name: str, verb: str
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "nodes" / "sub").mkdir(parents=True)
    (theirs / "staging").mkdir()
    for place in ("thesis.tex", "nodes/thesis.tex", "nodes/sub/thesis.sks", "staging/thesis.tex"):
        (theirs / place).write_text("years of work")
    before = tree_digest(theirs)
    path = out / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(theirs if name.startswith("checkpoints") else theirs / "thesis.tex")
    done = again(run, out) if verb == "run" else cli("certify", out)
    refused(done, 1, f"{path}: a link, and what it leads to is not written to")
    assert tree_digest(theirs) == before


def test_nothing_is_saved_where_a_manifest_says(out: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"

    def change(content: dict[str, Any]) -> None:
        content["job"]["execution"] |= {"checkpoint": str(elsewhere), "checkpoint_seconds": 0.0}

    rewrite(out, change)
    works("certify", out, "--method", "blocks", "--block-rows", "40")
    assert not elsewhere.exists()


def test_only_nodes_and_half_nodes_are_collected(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out") as folder:
        nodes = folder.checkpoints / "nodes" / "0a"
        nodes.mkdir(parents=True)
        for name in ("a.sks", ".b.sks.12.partial", "notes.txt"):
            (nodes / name).write_text("")
            os.utime(nodes / name, (0, 0))
        folder.collect_checkpoints()
        assert [path.name for path in nodes.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", [".lock.guard", "manifest.json", "summary.sks", "checkpoints/stages.json"])
def test_no_pipe_is_waited_for(run: Path, out: Path, name: str) -> None:
    (out / name).unlink()
    os.mkfifo(out / name)
    with pytest.raises(NotOurFolder, match="neither a file nor a folder"), open_folder(out):
        pass
    for done in (again(run, out), cli("verify", out), cli("certify", out), cli("compare", out, out)):
        refused(done, 1, f"{out / name}: neither a file nor a folder")


@pytest.mark.parametrize("name", ["summary.sks", "report.html", "run.log", "checkpoints/stages.json", ".lock"])
def test_a_folder_in_the_place_of_a_file_is_named_and_stays(run: Path, out: Path, name: str) -> None:
    path = out / name
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    refused(again(run, out), 1, f"{path}: a folder where a file belongs; move it")
    assert (path / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/staging", "checkpoints/nodes", "features.zarr"])
def test_a_file_in_the_place_of_a_folder_is_named_and_stays(run: Path, out: Path, name: str) -> None:
    path = out / name
    shutil.rmtree(path, ignore_errors=True)
    path.write_text("years of work")
    refused(again(run, out), 1, f"{path}: a file where a folder belongs; move it")
    with pytest.raises(NotOurFolder, match="a file where a folder belongs"), open_folder(out, fresh=True):
        pass
    assert path.read_text() == "years of work"


DEEP = "[" * 100_000


def test_json_that_is_nested_too_deep_is_damage(run: Path, out: Path) -> None:
    (out / "checkpoints" / "stages.json").write_text(DEEP)
    assert OutputFolder(out).fingerprint("summarize") is None
    (out / "selection.json").write_text(DEEP)
    assert "selection: " in next(line for line in cli("verify", out).stdout.splitlines() if "not a selection" in line)
    (out / "manifest.json").write_text(DEEP)
    refused(cli("verify", out), 1, "manifest.json: damaged")
    raw = codec.encode(codec.load(out / "summary.sks"))
    header = DEEP.encode()
    size = (-len(header)) % 64
    body = raw[:16] + len(header + b" " * size).to_bytes(8, "little") + raw[24:32] + header + b" " * size
    with pytest.raises(DamagedFile):
        codec.decode(body + bytes(200), "deep.sks")


@pytest.mark.parametrize("verb", ["verify", "certify", "inspect"])
def test_a_later_format_is_not_guessed_at(out: Path, verb: str) -> None:
    rewrite(out, lambda content: content.update(format=2))
    refused(cli(verb, out), 1, "of format 2, and this version reads up to 1")


@pytest.mark.share(8)
@pytest.mark.parametrize("key", ["files", "digests", "stages", "job", "source", "prepare"])
@pytest.mark.parametrize("value", [3, "text", [3], None])
def test_a_manifest_of_other_types_is_one_line(out: Path, key: str, value: Any) -> None:
    rewrite(out, lambda content: content.update({key: value}))
    done = cli("verify", out)
    assert done.exit_code == 1
    assert "unexpected" not in done.output


def test_files_that_have_no_names_are_one_line(out: Path) -> None:
    rewrite(out, lambda content: content.update(files=[3], digests={}))
    for verb in ("verify", "certify"):
        refused(cli(verb, out), 1, "manifest.json: damaged")


def test_verify_looks_at_no_file_outside(out: Path) -> None:
    def point_outside(content: dict[str, Any]) -> None:
        content["files"] += ["../../../etc/passwd", "a\x1b[31m\nb"]
        content["digests"]["/etc/passwd"] = tree_digest(Path("/etc/passwd"))

    rewrite(out, point_outside)
    done = cli("verify", out)
    assert done.exit_code == 1
    [line] = [line for line in done.stdout.splitlines() if "DIFFERS" in line]
    assert "no run leaves files of such names" in line
    assert "\x1b" not in done.output


def test_verify_computes_scores_again_and_says_what_it_does_not(out: Path) -> None:
    (out / "scores.csv").write_text((out / "scores.csv").read_text().replace(",1\n", ",0\n"))
    rewrite(out, lambda content: content["digests"].update({"scores.csv": tree_digest(out / "scores.csv")}))
    lines = cli("verify", out).stdout.splitlines()
    assert [line for line in lines if line.startswith("DIFFERS")] == [
        "DIFFERS      scores.csv: summary.sks gives another scores.csv"
    ]
    said = "\n".join(line for line in lines if line.startswith("not checked"))
    content = unsealed(out / "manifest.json")
    results = {"objective_all_columns", "selection_bound", "compared"} & content.keys()
    assert results
    assert all(name in said for name in (*results, "assign.json"))


def test_a_damaged_manifest_or_selection_is_not_compared(run: Path, out: Path) -> None:
    text = (out / "manifest.json").read_text()
    objective = json.loads(text)["objective"]
    (out / "manifest.json").write_text(text.replace(f'"objective": {objective}', f'"objective": {objective / 2}'))
    refused(cli("compare", out, run / "out"), 1, "manifest.json: damaged")
    (out / "manifest.json").write_text(text)
    raw = (out / "selection.json").read_text()
    (out / "selection.json").write_text(raw.replace("sketched-ridge", "sketched-bidge"))
    refused(cli("compare", out, run / "out"), 1, "selection.json: not the file that")


@pytest.mark.parametrize("path", ["a\x1b[31mb", "a\u202eb", "a\x9b31mb"])
def test_no_message_steers_a_terminal(tmp_path: Path, path: str) -> None:
    done = cli("verify", tmp_path / path)
    refused(done, 1, "no such folder")
    assert not {*path} & {*"\x1b\x9b\u202e"} & {*done.output}


@pytest.mark.parametrize("missing", ["error", "fill"])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_chunk_that_leads_elsewhere_after_the_store_was_opened(tmp_path: Path, missing: Any, kind: str) -> None:
    path, outside = tmp_path / "rows.zarr", tmp_path / "outside"
    zarr.create_array(str(path), data=ROWS, chunks=(20, 6), compressors=None)
    matrix = open_matrix(path, missing_chunks=missing)
    assert np.array_equal(matrix.read_rows(0, 20), ROWS[:20])
    chunk = path / "c" / "1" / "0"
    if kind == "pipe":
        chunk.unlink()
        os.mkfifo(chunk)
    else:
        moved = chunk.parent if kind == "folder" else chunk
        moved.rename(outside)
        moved.symlink_to(outside)
    with pytest.raises(SourceError, match=r"leads out of|neither a file nor a folder"):
        matrix.read_rows(20, 40)
    assert np.array_equal(matrix.read_rows(40, 120), ROWS[40:])


def trap(folder: Path) -> Path:
    """Put modules into a folder that leave a file when they are imported; return that file."""
    ran = folder / "ran"
    for name in ("json", "time", "numpy", "threadpoolctl", "multiprocessing", "distributed", "zarr"):
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\nraise ImportError\n")
    return ran


def test_modules_of_the_folder_that_a_program_is_started_in_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = trap(tmp_path)
    monkeypatch.chdir(tmp_path)
    timed = _blas_kernel._timed(None)
    assert timed is not None
    assert timed["right"]
    assert not ran.exists()
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # the command line sets it, in other tests too
    subprocess.run([sys.executable, "-c", "import json"], check=False, capture_output=True)
    assert ran.exists(), "the trap works"


@pytest.mark.slow
def test_nor_by_workers(tmp_path: Path, run: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    ran = trap(folder)
    script = tmp_path / "entry.py"
    script.write_text('from sketchselect.__main__ import main\nif __name__ == "__main__":\n    main()\n')
    words = [sys.executable, script, "run", run / "job.toml", "--scheduler", "local"]
    words += ["--set", f"output.dir={tmp_path}/o"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not ran.exists()
    assert (tmp_path / "o" / "summary.sks").read_bytes() == (run / "out" / "summary.sks").read_bytes()


def test_a_node_that_another_job_removes_first_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    (shared / "0a").mkdir(parents=True)
    for name in ("a.sks", "b.sks"):
        (shared / "0a" / name).write_text("")
        os.utime(shared / "0a" / name, (0, 0))
    unlink = Path.unlink

    def late(path: Path, missing_ok: bool = False) -> None:
        os.unlink(path)  # the other job, in between
        unlink(path, missing_ok=missing_ok)

    with open_folder(tmp_path / "out") as folder, monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", late)
        folder.collect_checkpoints(shared)
    assert list((shared / "0a").iterdir()) == []
