"""Converted stores: every flipped bit of the metadata is noticed, and so is every chunk file in a wrong place."""

import itertools
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy.sparse import random_array, vstack
from tests.faults.test_damage import ALL, SHARE, damages
from tests.job.commands import cli, works

from sketchselect.errors import SketchSelectError, SourceError
from sketchselect.readers import convert, open_matrix, open_vector
from sketchselect.readers.zarr.metadata import MARKER
from sketchselect.workflow.verify import verify_store

NAMES = ("a", "b", "c")


def dense(folder: Path) -> None:
    convert(np.arange(30.0).reshape(10, 3), folder, chunks=(4, 2), feature_names=NAMES)


def sparse(folder: Path) -> None:
    convert(random_array((40, 3), density=0.4, format="csr", rng=0), folder, feature_names=NAMES)


def table(folder: Path) -> None:
    rows = "".join(f"r{i},{i}.5,{i % 3},{i * i},{'xy'[i % 2]}\n" for i in range(10))
    folder.with_suffix(".csv").write_text(f"id,a,b,c,kind\n{rows}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(folder.with_suffix(".csv"), folder)


MAKERS = (dense, sparse, table)


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    request.param(tmp_path / "x.zarr")
    return tmp_path / "x.zarr"


def content(store: Path) -> tuple[object, ...]:
    """Return what a job would read of a store."""
    matrix = open_matrix(store)
    rows = matrix.read_rows(0, matrix.shape[0])
    texts = [] if not (store / "obs").exists() else [open_vector("obs/kind", 10, matrix=matrix).read(0, 10).tolist()]
    names = None if matrix.row_names is None else matrix.row_names.read(0, matrix.shape[0]).tolist()
    values = rows.toarray() if matrix.is_sparse else rows
    return matrix.feature_names, matrix.shape, matrix.dtype, values.tobytes(), texts, names


@pytest.mark.parametrize("n", [SHARE // 3, pytest.param(ALL, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_no_flipped_bit_of_the_metadata_changes_what_is_read(store: Path, n: int) -> None:
    true = content(store)
    assert true[0] == NAMES
    n_noticed = 0
    for number, path in enumerate(sorted(store.rglob("zarr.json"))):
        raw = path.read_bytes()
        for damaged in damages(raw, n, number):
            path.write_bytes(damaged)
            try:
                assert content(store) == true, (path, damaged)
            except SketchSelectError:
                n_noticed += 1
        path.write_bytes(raw)
    assert n_noticed > n / 2
    assert content(store) == true


def test_names_and_shapes_of_the_attack_are_noticed(store: Path) -> None:
    (document,) = (path for path in store.rglob("zarr.json") if '"a"' in path.read_text())
    document.write_text(document.read_text().replace('"a"', '"d"'))
    with pytest.raises(SourceError, match=r"zarr\.json: names, shape or type are not those that convert wrote"):
        open_matrix(store)


def n_silent_swaps(store: Path) -> int:
    """Return how many pairs of neighbouring chunk files are swapped without `verify` noticing."""
    n_silent = 0
    chunks = sorted(path for path in store.rglob("*") if path.is_file() and path.name != "zarr.json")
    pairs = [(a, b) for a, b in itertools.pairwise(chunks) if a.read_bytes() != b.read_bytes()]
    assert pairs
    for a, b in pairs:
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second), b.write_bytes(first)
        n_silent += all(check.holds for check in verify_store(str(store)) or ())
        a.write_bytes(first), b.write_bytes(second)
    return n_silent


def test_verify_reads_every_chunk_file(store: Path) -> None:
    works("verify", store)
    assert n_silent_swaps(store) == 0
    chunk = random.Random(0).choice([path for path in store.rglob("*") if path.is_file() and path.name != "zarr.json"])
    chunk.unlink()
    result = cli("verify", store)
    assert result.exit_code == 1
    assert "missing, c/" in result.output


def faults(store: Path) -> list[str]:
    """Return what `verify` says that does not hold."""
    try:
        return [f"{check.name}: {check.text}" for check in verify_store(str(store)) or () if check.holds is False]
    except SourceError as error:
        return [str(error)]


def test_verify_notices_every_file_that_is_changed_or_lost(store: Path) -> None:
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        raw = path.read_bytes()
        for place in (0, len(raw) // 3, len(raw) // 2, len(raw) - 1):
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
            assert faults(store), (path, place)
        if path.name == "zarr.json":
            path.write_bytes(raw.replace(b'"document"', b'"eocument"'))
            assert "unknown key 'eocument'" in faults(store)[0]
            path.write_bytes(raw.replace(b'"sketchselect"', b'"sketchselecu"'))
            assert "its attribute 'sketchselecu' in zarr.json is sketchselect's under another name" in faults(store)[0]
        path.unlink()
        if path.parent != store:
            assert faults(store), path
        path.write_bytes(raw)
    for folder in sorted(path for path in store.rglob("*") if (path / "zarr.json").exists()):
        folder.rename(store.with_name("elsewhere"))
        assert f"{folder.relative_to(store)}/zarr.json is missing" in " ".join(faults(store))
        store.with_name("elsewhere").rename(folder)
    assert not faults(store)


def test_stores_without_digests_are_read(store: Path) -> None:
    true = content(store)
    for path in store.rglob("zarr.json"):
        document = json.loads(path.read_text())
        for name in ("document", "chunks"):
            document["attributes"][MARKER].pop(name, None)
        path.write_text(json.dumps(document))
    assert content(store) == true
    assert {check.holds for check in verify_store(str(store)) or ()} == {None}


def as_store(folder: Path) -> object:

    zarr.create_array(str(folder / "x.zarr"), data=np.ones((4, 3)), attributes={"feature_names": ["c", "b", "c"]})
    return folder / "x.zarr"


def as_anndata(folder: Path) -> object:
    anndata = pytest.importorskip("anndata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = anndata.AnnData(np.ones((4, 3)))
        cells.var_names = ["c", "b", "c"]
    return cells


@pytest.mark.parametrize("make", [as_store, as_anndata])
def test_a_name_that_is_there_twice_is_an_error_at_opening(make: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"columns 0 and 2 are both named 'c'; give each its own name"):
        open_matrix(make(tmp_path))


def test_a_store_may_move_and_be_copied(store: Path, tmp_path: Path) -> None:
    true = content(store)
    shutil.move(store, tmp_path / "y.zarr")
    assert content(tmp_path / "y.zarr") == true
    assert all(check.holds for check in verify_store(str(tmp_path / "y.zarr")) or [None])


@pytest.mark.parametrize("n_rows", [8, 10])
def test_rows_that_were_appended_are_taken_in(tmp_path: Path, n_rows: int) -> None:
    """Of 8 rows the chunks, 4 rows high, are full; of 10 rows appending writes the last ones anew."""
    store = tmp_path / "x.zarr"
    convert(np.arange(3.0 * n_rows).reshape(n_rows, 3), store, chunks=(4, 2), feature_names=NAMES)
    zarr.open_array(store, mode="r+").append(np.ones((6, 3)))
    with pytest.raises(SourceError, match=rf"appended to the {n_rows} .* verify STORE --seal"):
        open_matrix(store)
    done = cli("verify", store, "--seal")
    assert done.exit_code == 0, done.output
    assert "6 appended rows" in done.stdout
    rows = open_matrix(store).read_rows(0, n_rows + 6)
    assert np.array_equal(rows, np.vstack([np.arange(3.0 * n_rows).reshape(n_rows, 3), np.ones((6, 3))]))
    assert cli("verify", store).exit_code == 0


@pytest.mark.parametrize("n_rows", [8, 10])
def test_a_store_that_was_damaged_before_it_grew_is_not_sealed(tmp_path: Path, n_rows: int) -> None:
    store = tmp_path / "x.zarr"
    convert(np.arange(3.0 * n_rows).reshape(n_rows, 3), store, chunks=(4, 2))
    shutil.copy(store / "c/1/0", store / "c/0/0")
    zarr.open_array(store, mode="r+").append(np.ones((4, 3)))
    before = (store / "zarr.json").read_bytes()
    done = cli("verify", store, "--seal")
    assert done.exit_code == 1
    assert "rows before are changed" in done.stdout
    assert (store / "zarr.json").read_bytes() == before
    # Nor is one whose metadata differ by more than appended rows.
    document = json.loads(before)
    document["attributes"]["feature_names"] = list(NAMES)
    (store / "zarr.json").write_text(json.dumps(document))
    assert cli("verify", store, "--seal").exit_code == 1


def test_appended_chunks_of_zeros_that_were_not_written_are_named(tmp_path: Path) -> None:
    store = tmp_path / "x.zarr"
    convert(np.arange(24.0).reshape(8, 3), store, chunks=(4, 3))
    zarr.open_array(store, mode="r+").append(np.zeros((4, 3)))
    done = cli("verify", store, "--seal")
    assert done.exit_code == 1
    assert "c/2/0" in done.stdout
    assert "write_empty_chunks" in done.stdout


@pytest.mark.parametrize("part", ["data", "indices", "indptr", "shape", "none"])
def test_a_sparse_store_is_sealed_only_where_all_of_it_has_grown(tmp_path: Path, part: str) -> None:
    store, before = tmp_path / "x.zarr", random_array((40, 3), density=0.4, format="csr", rng=0)
    convert(before, store)
    more = random_array((8, 3), density=0.5, format="csr", rng=1)
    for name, values in (("data", more.data), ("indices", more.indices), ("indptr", more.indptr[1:] + before.nnz)):
        if name != part:
            zarr.open_array(store / name, mode="r+").append(values)
    if part != "shape":
        zarr.open_group(store, mode="r+").attrs["shape"] = [48, 3]
    documents = {path: path.read_bytes() for path in store.rglob("zarr.json")}
    done = cli("verify", store, "--seal")
    if part == "none":
        assert done.exit_code == 0, done.output
        assert "8 appended rows" in done.stdout
        assert np.array_equal(open_matrix(store).read_rows(0, 48).toarray(), vstack([before, more]).toarray())
        assert cli("verify", store).exit_code == 0
    else:
        assert done.exit_code == 1
        assert {path: path.read_bytes() for path in store.rglob("zarr.json")} == documents


@pytest.mark.parametrize("names", [("X",), ("X", "obs/kind", "obs/id")])
def test_a_table_is_sealed_only_where_its_columns_of_text_have_grown_too(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    store = tmp_path / "x.zarr"
    table(store)
    for name in names:
        array = zarr.open_array(store / name, mode="r+")
        array.append(np.ones((2, 3)) if name == "X" else np.array(["p", "q"], array.dtype))
    done = cli("verify", store, "--seal")
    assert done.exit_code == (len(names) == 1), done.output
    assert ("obs/kind: " in done.stdout.replace("BAD", "").replace("  ", " ")) or len(names) > 1
