"""Every byte of every file that is read again: flipped, cut off, or of another run; an error, or the same content."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.passing import flip

import sketchselect as sks
from sketchselect.errors import DamagedFile
from sketchselect.execution.checkpoints import list_nodes, read_node
from sketchselect.summaries import codec
from sketchselect.workflow.folder import OutputFolder, read_manifest, unsealed

GOLDEN = sorted((Path(__file__).parents[1] / "summaries" / "golden").glob("*.sks"))

SHARE, ALL = 60, 2000
"""Damages of one file in every run of the tests, and in those of the night."""

counts = pytest.mark.parametrize("n", [SHARE, pytest.param(ALL, marks=[pytest.mark.slow, pytest.mark.nightly])])


def damages(raw: bytes, n: int, seed: int) -> Iterator[bytes]:
    """Yield copies with one bit flipped or the end cut off: at every byte, or at `n` places."""
    rng = random.Random(seed)
    places = list(range(len(raw)))
    for place in places if len(places) <= n else rng.sample(places, n):
        flipped = bytearray(raw)
        flipped[place] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
        if place % 3 == 0:
            yield raw[:place]


@pytest.mark.share(12)
@counts
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_kind_of_summary(path: Path, n: int) -> None:
    for raw in damages(path.read_bytes(), n, 0):
        with pytest.raises(DamagedFile):
            codec.decode(raw, str(path))


def job(folder: Path, seed: int, out: Path) -> dict[str, Any]:
    return {
        "input": {"url": str(folder / f"rows-{seed}.zarr")},
        "select": {"method": "variance", "n_features": 3},
        "cluster": {"n_clusters": 3},
        "execution": {"cluster": "serial", "partition_bytes": 1000, "checkpoint_seconds": 0},
        "output": {"dir": str(out), "report": False},
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The output folders of two jobs that differ in their rows."""
    folder = tmp_path_factory.mktemp("runs")
    outs = []
    for seed in (0, 1):
        rows = np.random.default_rng(seed).standard_normal((120, 6)).astype("f4")
        zarr.create_array(str(folder / f"rows-{seed}.zarr"), data=rows, chunks=(20, 6))
        outs.append(folder / f"out-{seed}")
        sks.run(job(folder, seed, outs[-1]))
    return outs


@counts
def test_every_node_of_a_checkpoint(runs: list[Path], tmp_path: Path, n: int) -> None:
    nodes = list(list_nodes(runs[0] / "checkpoints" / "nodes").values())
    assert nodes
    for number, path in enumerate(nodes):
        place = tmp_path / Path(path).name
        for raw in damages(Path(path).read_bytes(), max(1, n // len(nodes)), number):
            place.write_bytes(raw)
            with pytest.raises(DamagedFile):
                read_node(str(place))


def test_nodes_of_another_run_and_of_other_rows(runs: list[Path], tmp_path: Path) -> None:
    ours, theirs = (list(list_nodes(out / "checkpoints" / "nodes").values()) for out in runs)
    assert {Path(path).name for path in ours}.isdisjoint(Path(path).name for path in theirs)
    for first, second in zip(ours, [*theirs, *ours[1:], ours[0]], strict=False):
        place = tmp_path / Path(first).name
        shutil.copy(second, place)
        with pytest.raises(DamagedFile, match="not what the name promises"):
            read_node(str(place))


@counts
@pytest.mark.parametrize("name", ["manifest.json", "assign.json"])
def test_manifest_and_assignment(runs: list[Path], tmp_path: Path, name: str, n: int) -> None:
    raw = (runs[0] / name).read_bytes()
    true = json.loads(raw)
    del true["digest"]
    n_harmless = 0
    for damaged in damages(raw, n, 1):
        (tmp_path / name).write_bytes(damaged)
        try:
            content = unsealed(tmp_path / name)
        except ValueError:  # of JSON; `DamagedFile` is one
            continue
        # White space, or the name of the digest itself: what is read is what was written.
        content = {key: value for key, value in content.items() if key in true}
        assert content == true
        n_harmless += 1
    assert n_harmless < n / 2


@counts
def test_the_record_of_finished_stages(runs: list[Path], tmp_path: Path, n: int) -> None:
    folder = OutputFolder(Path(shutil.copytree(runs[0], tmp_path / "out")))
    record = folder.checkpoints / "stages.json"
    raw = record.read_bytes()
    stages = [stage for stage in json.loads(raw) if stage != "digest"]
    true: dict[str, Any] = {}
    for stage in stages:
        true[stage] = folder.finished(stage, folder.fingerprint(stage))
        assert true[stage] is not None
    n_noticed = 0
    for damaged in damages(raw, n, 2):
        record.write_bytes(damaged)
        for stage in stages:
            result = folder.finished(stage, json.loads(raw)[stage]["fingerprint"])
            assert result in (None, true[stage])
            n_noticed += result is None
    assert n_noticed > n / 2


def test_records_and_manifests_of_another_run(runs: list[Path], tmp_path: Path) -> None:
    from tests.job.commands import cli, refused

    out = Path(shutil.copytree(runs[0], tmp_path / "out"))
    shutil.copy(runs[1] / "manifest.json", out)
    refused(cli("certify", out, "--cluster", "serial"), 1, "manifest.json describes")
    assert cli("verify", out, "--cluster", "serial").exit_code == 1
    shutil.copy(runs[1] / "checkpoints" / "stages.json", out / "checkpoints")
    again = sks.run(job(runs[0].parent, 0, out))
    assert not any(stage["reused"] for stage in again.manifest["stages"])
    assert (out / "selection.json").read_bytes() == (runs[0] / "selection.json").read_bytes()


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The output folders of two jobs with reports, that differ in their rows."""
    folder = tmp_path_factory.mktemp("whole")
    outs = [folder / "out-0", folder / "out-1"]
    for seed, out in enumerate(outs):
        rows = np.random.default_rng(seed).standard_normal((120, 6)).astype("f4")
        zarr.create_array(str(folder / f"rows-{seed}.zarr"), data=rows, chunks=(20, 6))
        sks.run(job(folder, seed, out) | {"output": {"dir": str(out)}})
    np.save(folder / "labels.npy", np.arange(120) % 3)
    np.save(folder / "new.npy", np.zeros((4, 6), "f4"))
    return outs


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report.json", ["report"]),
        ("selection.json", ["report"]),
        ("labels.zarr", ["evaluate", "--labels", "labels.npy"]),
        ("labels.zarr", ["certify", "--cluster", "serial"]),
        ("assign.json", ["assign", "new.npy", "-o", "assigned.csv"]),
    ],
)
def test_a_file_of_another_run_is_not_used(whole_runs: list[Path], tmp_path: Path, name: str, words: list[str]) -> None:
    from tests.job.commands import cli, refused

    out = Path(shutil.copytree(whole_runs[0], tmp_path / "out"))
    replace_by(whole_runs[1] / name, out / name)
    files = [str(whole_runs[0].parent / word) if word.endswith(".npy") else word for word in words[1:]]
    files = [str(tmp_path / word) if word.endswith(".csv") else word for word in files]
    refused(cli(words[0], out, *files), 1, f"{name}: not the file that")


def test_a_new_certificate_vouches_for_no_other_file(whole_runs: list[Path], tmp_path: Path) -> None:
    from tests.job.commands import cli, works

    out = Path(shutil.copytree(whole_runs[0], tmp_path / "out"))
    replace_by(whole_runs[1] / "scores.csv", out / "scores.csv")
    for _ in range(2):
        works("certify", out, "--cluster", "serial")
    result = cli("verify", out, "--cluster", "serial")
    assert result.exit_code == 1
    assert "scores.csv" in result.output
    replace_by(whole_runs[0] / "scores.csv", out / "scores.csv")
    works("verify", out, "--cluster", "serial")


def replace_by(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def lose_a_bit(path: Path) -> None:
    """Flip a bit as a disk does, which leaves the times of the file."""
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.share(4)
@pytest.mark.parametrize("damage", [lose_a_bit, cut, Path.unlink])
@pytest.mark.parametrize(
    "name",
    [
        *("summary.sks", "checkpoints/stages.json", "features.zarr/c/0/0", "selection.json"),
        *("labels.zarr/c/0", "centers.zarr/zarr.json"),
    ],
)
def test_the_next_run_mends_what_is_damaged(
    runs: list[Path], tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    out = Path(shutil.copytree(runs[0], tmp_path / "out"))
    damage(out / name)
    again = sks.run(job(runs[0].parent, 0, out))
    assert again.objective == read_manifest(runs[0], lambda content: content["objective"])
    stores = ("features.zarr/c/0/0", "labels.zarr/c/0", "centers.zarr/zarr.json")
    for file in ("summary.sks", "selection.json", "scores.csv", *stores):
        assert (out / file).read_bytes() == (runs[0] / file).read_bytes()
