"""`sketchselect verify`: a run that is as it was holds, and whatever was changed is named; nothing in it is touched."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.passing import flip

import sketchselect as sks
from sketchselect.workflow.folder import file_digest, sealed, tree_digest, unsealed

from .commands import cli, refused

Job = Callable[..., dict[str, Any]]


def verified(out: Path, *words: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """Verify a folder; return the exit code and the checks by name."""
    done = cli("verify", out, "--json", *words)
    outcome = json.loads(done.stdout)
    assert outcome["holds"] == (done.exit_code == 0)
    return done.exit_code, {check["name"]: check for check in outcome["checks"]}


def contents(out: Path) -> dict[str, str]:
    return {str(p.relative_to(out)): file_digest(p) for p in out.rglob("*") if p.is_file() and ".lock" not in p.name}


def hide(out: Path) -> None:
    """Put the digests of the files as they are now into the manifest, as whoever wants to hide a change would."""
    path = out / "manifest.json"
    content = unsealed(path)
    content["digests"] = {name: tree_digest(out / name) for name in content["digests"]}
    path.write_text(sealed(content))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, rows: np.ndarray) -> Path:
    """A finished run, its source beside it."""
    folder = tmp_path_factory.mktemp("finished")
    zarr.create_array(str(folder / "rows.zarr"), data=rows, chunks=(20, 12))
    sks.run(
        {
            "input": {"url": str(folder / "rows.zarr")},
            "select": {"method": "sketched-ridge", "n_features": 5, "n_components": 2, "sketch_size": 6},
            "cluster": {"n_clusters": 3},
            "execution": {"cluster": "serial", "partition_bytes": "4KiB", "checkpoint_seconds": 0},
            "output": {"dir": str(folder / "out"), "report": False},
        }
    )
    return folder / "out"


@pytest.mark.slow
def test_auto_with_a_target_that_no_column_explains_holds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((400, 12)))
    np.save(tmp_path / "y.npy", rng.standard_normal(400))
    result = sks.run(
        {
            "input": {"url": str(tmp_path / "x.npy"), "target": str(tmp_path / "y.npy")},
            "select": {"method": "auto"},
            "execution": {"cluster": "serial"},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
    )
    assert result.selection.support.size == 0
    code, checks = verified(result.folder)
    assert code == 0, checks
    assert {name for name, check in checks.items() if check["holds"]} >= {"summary.sks", "selection"}


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_folder_that_may_not_be_written_is_verified(out: Path) -> None:
    """Not even a lock comes and goes, as on a disk for reading only: the times of all folders stay."""
    (out / ".lock.guard").unlink()
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
    before = [path.stat().st_mtime_ns for path in folders]
    assert verified(out)[0] == 0
    assert [path.stat().st_mtime_ns for path in folders] == before


def test_what_is_as_it_was_holds_and_nothing_is_changed(out: Path) -> None:
    before = contents(out)
    code, checks = verified(out)
    names = {"files", "source", "libraries", "preparation", "summary.sks", "selection", "features.zarr", "objective"}
    names |= {"centers.zarr", "certificate (spectral)", "certificate (spectral+drop)", "certificate (blocks)"}
    names |= {"scores.csv", "assign.json", "manifest.json"}
    assert (code, checks.keys()) == (0, names)
    for name in ("certificate (blocks)", "assign.json", "manifest.json"):
        assert checks.pop(name)["holds"] is None
    assert all(check["holds"] for check in checks.values()), checks
    assert "of 300 rows read again, every bit" in checks["summary.sks"]["text"]
    assert "of 300 rows compared" in checks["features.zarr"]["text"]
    assert contents(out) == before
    assert len(cli("verify", out).stdout.splitlines()) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "files"),
    [
        ({"prepare": {"steps": ["standardise"]}}, {"prepare.sks"}),
        ({"select": {"method": "online-leverage", "n_features": 5}, "cluster": None}, {"columns.sks"}),
        ({"select": {"method": "pivoted-qr", "n_features": 5}}, {"summary.sks"}),
        ({"select": {"method": "randomized", "n_features": 5}, "cluster": {"weighted": "both"}}, set()),
        ({"input": {"nonfinite": "drop_rows"}}, {"features.zarr"}),
        ({"cluster": {"reassign": True, "certificate": "blocks"}}, set()),
        ({"input": {"target": "y"}, "select": {"method": "lasso", "n_features": 3}, "cluster": None}, {"model.json"}),
    ],
)  # fmt: skip
def test_every_way_of_working_is_verified(
    job: Job, tmp_path: Path, store: Path, rows: np.ndarray, sections: dict[str, Any], files: set[str]
) -> None:
    if "target" in sections.get("input", {}):
        np.save(tmp_path / "y.npy", rows @ np.arange(12.0))
        sections = {**sections, "input": {"target": str(tmp_path / "y.npy")}}
    if "nonfinite" in sections.get("input", {}):
        zarr.open_array(str(store), mode="r+")[7, 3] = np.nan
    whole = job(**sections)
    whole["select"] = sections.get("select", whole["select"])
    content = sks.run(whole).manifest
    assert files <= set(content["files"])
    code, checks = verified(tmp_path / "out")
    assert code == 0, checks
    unchecked = {name for names, check in checks.items() if check["holds"] is None for name in names.split(", ")}
    # Nothing else holds what these say; weighted columns are clustered twice.
    never = {"certificate (blocks)", "manifest.json", "assign.json", "path.csv"}
    never |= {f"{name}-{kind}.zarr" for name in ("labels", "centers") for kind in ("weighted", "unweighted")}
    assert unchecked - never == ({"centers.zarr"} if "reassigned" in content else set()), checks


def edit_selection(out: Path) -> None:
    path = out / "selection.json"
    content = json.loads(path.read_text())
    content["scores"][0] += 1e-12
    path.write_text(json.dumps(content))


def other_summary(out: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((300, 12)).astype("f4")
    members: Any = sks.load(out / "summary.sks")
    described = {name: type(member)(**member.parameters()) for name, member in members.items()}
    sks.save(sks.summarize(rows, described), out / "summary.sks")


def one_label(out: Path) -> None:
    labels: Any = zarr.open_array(out / "labels.zarr", mode="r+")
    labels[7] = (labels[7] + 1) % 3


def one_feature(out: Path) -> None:
    features: Any = zarr.open_array(out / "features.zarr", mode="r+")
    features[299, 4] = np.nextafter(features[299, 4], np.float32(9))


def damaged_feature(out: Path) -> None:
    path = next(p for p in sorted((out / "features.zarr").rglob("*")) if p.is_file() and p.name != "zarr.json")
    flip(path)


def one_number_of_the_manifest(out: Path) -> None:
    path = out / "manifest.json"
    content = unsealed(path)
    content["objective"] *= 1 + 1e-6
    path.write_text(sealed(content))


def other_centres(out: Path) -> None:
    centers: Any = zarr.open_array(out / "centers.zarr", mode="r+")
    centers[0, 0] += 1e-3


def edited(name: str, *keys: str | int) -> Callable[[Path], None]:
    """Return an edit of one number of the manifest, sealed again."""

    def edit(out: Path) -> None:
        content = at = unsealed(out / "manifest.json")
        for key in (name, *keys[:-1]):
            at = at[key]  # type: ignore[index]
        at[keys[-1]] *= 1 + 1e-6  # type: ignore[index]
        (out / "manifest.json").write_text(sealed(content))

    return edit


def no_digests(out: Path) -> None:
    content = unsealed(out / "manifest.json")
    content["digests"] = {}
    (out / "manifest.json").write_text(sealed(content))


def scores_as_a_folder(out: Path) -> None:
    (out / "scores.csv").unlink()
    (out / "scores.csv").mkdir()


def lost_file(out: Path) -> None:
    (out / "scores.csv").unlink()


@pytest.mark.share(6)
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (edit_selection, "selection"),
        (other_summary, "summary.sks"),
        (one_label, "objective"),
        (one_feature, "features.zarr"),
        (damaged_feature, "features.zarr"),
        (one_number_of_the_manifest, "objective"),
        (other_centres, "centers.zarr"),
        (edited("clustering", "inertia_selected_columns"), "centers.zarr"),
        (edited("certificates", 0, "factor"), "certificate (spectral)"),
        (lost_file, "files"),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_what_was_changed_is_named(out: Path, damage: Callable[[Path], None], name: str, hidden: bool) -> None:
    damage(out)
    if hidden and damage is not lost_file:
        hide(out)
    code, checks = verified(out)
    assert (code, checks[name]["holds"]) == (1, False), checks
    if not hidden and damage in (edit_selection, other_summary):
        assert checks["files"]["holds"] is False


@pytest.mark.parametrize("damage", [no_digests, scores_as_a_folder, other_centres, damaged_feature, one_label])
def test_what_was_changed_is_named_by_its_digest(out: Path, damage: Callable[[Path], None]) -> None:
    damage(out)
    code, checks = verified(out)
    assert (code, checks["files"]["holds"]) == (1, False)


@pytest.mark.parametrize(("key", "value"), [("max_iter", 1), ("tol", 1e3)])
def test_centres_of_a_run_that_did_not_come_to_rest_hold(job: Job, tmp_path: Path, key: str, value: float) -> None:
    """They are means of the labels before the last ones; but another centre does not give the inertia."""
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).standard_normal((12_000, 12)))
    where = {"input": {"url": str(tmp_path / "noise.npy")}, "execution": {"partition_bytes": "1MiB"}}
    sks.run(job(**where, cluster={key: value, "n_clusters": 9, "certificate": "spectral"}))
    out = tmp_path / "out"
    centers: Any = zarr.open_array(out / "centers.zarr", mode="r+")
    held = verified(out)[1]["centers.zarr"]
    assert held["holds"] is True
    assert "before the centres settled" in held["text"]
    centers[0, 0] += 1e-3
    hide(out)
    changed = verified(out)[1]["centers.zarr"]
    assert changed["holds"] is False
    assert "before the centres settled" not in changed["text"]


def test_centres_that_are_means_to_rounding_are_not_said_to_have_stopped_early(out: Path) -> None:
    """K-means ends at `tol` too where nothing moves any more; sums in another order differ by rounding."""
    held = verified(out)[1]["centers.zarr"]
    assert (held["holds"], "stopped" in held["text"]) == (True, False)


def test_a_damaged_file_is_a_check_that_fails_and_the_others_go_on(out: Path) -> None:
    flip(out / "summary.sks", 200)
    code, checks = verified(out)
    assert code == 1
    assert "the checksum does not match" in checks["summary.sks"]["text"]
    assert checks["objective"]["holds"] is True


def test_a_source_that_was_rewritten_is_said_to_be(job: Job, tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    sks.run(job())
    shutil.rmtree(store)
    zarr.create_array(str(store), data=rows + 1, chunks=(20, 12))
    code, checks = verified(tmp_path / "out")
    assert (code, checks["source"]["holds"]) == (1, False)
    assert checks["selection"]["holds"] is True
    assert checks["objective"]["holds"] is None


def test_other_libraries_are_said_and_their_bits_not_compared(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.execution import LocalEngine

    monkeypatch.setattr(LocalEngine, "build", lambda self: ("numpy 1",))
    code, checks = verified(out)
    assert code == 0
    assert checks["libraries"]["holds"] is checks["summary.sks"]["holds"] is checks["features.zarr"]["holds"] is None
    assert checks["selection"]["holds"] is checks["objective"]["holds"] is True


def test_a_run_of_an_earlier_version_that_did_not_count_filled_values_holds(
    job: Job, tmp_path: Path, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.where(np.random.default_rng(0).random(rows.shape) < 0.1, np.nan, rows))
    given = job(input={"url": str(tmp_path / "x.npy"), "nonfinite": "missing"}, prepare={"steps": ["impute"]})
    with monkeypatch.context() as earlier:
        earlier.setattr(sks.FrequentDirections, "keeps_filled", False)
        result = sks.run(given)
    code, checks = verified(result.folder)
    assert code == 0, checks
    assert checks["summary.sks"]["holds"]


def test_mistakes_are_one_line(out: Path, tmp_path: Path) -> None:
    refused(cli("verify", tmp_path / "nowhere"), 1, "nowhere", "no such folder")
    refused(cli("verify", tmp_path / "nowhere", "--seal"), 2, "nowhere: no such store")
    (tmp_path / "other").mkdir()
    refused(cli("verify", tmp_path / "other"), 1, "other: not an output folder of sketchselect")
    (out / "manifest.json").write_text("{")
    refused(cli("verify", out), 1, "manifest.json", "damaged")


def test_a_folder_that_moved_together_with_its_source_is_verified(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished.parent, tmp_path / "before"))
    out = folder / "out"
    path = out / "manifest.json"
    content = unsealed(path)
    content["job"]["input"] |= {"url": str(folder / "rows.zarr"), "labels": str(folder / "known.npy")}
    content["job"]["output"]["dir"] = str(out)
    path.write_text(sealed(content))
    np.save(folder / "known.npy", zarr.open_array(str(out / "labels.zarr"), mode="r")[:])
    now = folder.rename(tmp_path / "now")
    code, checks = verified(now / "out")
    assert code == 0
    assert checks["source"]["holds"] is None
    assert str(now / "rows.zarr") in checks["source"]["text"]
    assert checks["summary.sks"]["holds"]
    assert checks["inertia" if "inertia" in checks else "objective"]["holds"]
    assert "ARI 1.0000" in cli("evaluate", now / "out").stdout
    refused(cli("certify", now / "out"), 1, "moved from", str(finished.parent / "rows.zarr"))
    # Rows that are others are told by reading them.
    sks.convert(np.random.default_rng(1).standard_normal((300, 12)), tmp_path / "other.zarr", chunks="20x12")
    shutil.rmtree(now / "rows.zarr")
    shutil.copytree(tmp_path / "other.zarr", now / "rows.zarr")
    code, checks = verified(now / "out")
    assert code != 0
    assert checks["summary.sks"]["holds"] is False


def test_a_key_that_a_manifest_lacks_is_named(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "out"))
    (out / "manifest.json").write_text("{}")
    refused(cli("verify", out), 1, "manifest.json", "without 'job'")
    (out / "manifest.json").write_text('{"job": {"input": 1, "output": {"dir": "out"}}}')
    refused(cli("evaluate", out), 1, "manifest.json", "damaged, not as a run writes it")
