"""Names of columns from a text file, for files that have none: in Python, in jobs and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from tests.job.commands import cli

import sketchselect as sks
from sketchselect.errors import BadParameter, SourceError

NAMES = ("alpha", "beta gamma", "δ", "42")
VALUES = np.random.default_rng(0).poisson(2.0, size=(60, 4)).astype(float) * (1, 2, 3, 4)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    return path


def write(path: Path) -> str:
    if path.suffix == ".npy":
        np.save(path, VALUES)
    elif path.suffix == ".npz":
        scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(VALUES))
    else:
        scipy.io.mmwrite(path, scipy.sparse.coo_array(VALUES))
    return str(path)


@pytest.mark.parametrize("ending", ["npy", "npz", "mtx"])
def test_names_are_those_of_the_file_from_opening_to_results(tmp_path: Path, words: Path, ending: str) -> None:
    source = write(tmp_path / f"x.{ending}")
    matrix = sks.open_matrix(source, feature_names=words)
    assert matrix.feature_names == NAMES
    assert sks.open_matrix(source).feature_names is None
    assert sks.VarianceSelector(1, normalize=None).fit(matrix).get_feature_names_out().tolist() == ["42"]
    assert sks.open_matrix(VALUES, feature_names=NAMES).feature_names == NAMES
    store = sks.convert(source, tmp_path / "x.zarr", feature_names=words)
    assert sks.open_matrix(store).feature_names == NAMES


def test_a_job_reads_them_from_beside_its_own_file(tmp_path: Path, words: Path) -> None:
    write(tmp_path / "x.npz")
    job = tmp_path / "job.toml"
    job.write_text(
        '[input]\nurl = "x.npz"\nfeature_names = "words.txt"\n[select]\nmethod = "variance"\nn_features = 2\n'
        '[output]\ndir = "out"\n',
        encoding="utf-8",
    )
    assert cli("run", str(job)).exit_code == 0
    selection = json.loads((tmp_path / "out" / "selection.json").read_text(encoding="utf-8"))
    assert tuple(selection["feature_names"]) == NAMES
    assert cli("verify", str(tmp_path / "out")).exit_code == 0
    words.unlink()
    job.write_text(job.read_text(encoding="utf-8").replace('"out"', '"again"'), encoding="utf-8")
    assert "words.txt" in cli("run", str(job)).output


def test_commands_take_the_file(tmp_path: Path, words: Path) -> None:
    source = write(tmp_path / "x.npz")
    given = ("--feature-names", str(words))
    assert cli("summarize", source, "-o", str(tmp_path / "x.sks"), *given).exit_code == 0
    assert sks.load(tmp_path / "x.sks").feature_names == NAMES
    assert cli("convert", source, str(tmp_path / "x.zarr"), *given).exit_code == 0
    assert sks.open_matrix(tmp_path / "x.zarr").feature_names == NAMES
    assert cli("init", source, "-o", str(tmp_path / "first.toml"), *given).exit_code == 0
    assert "words.txt" in (tmp_path / "first.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\n\nd\n", "line 3 is empty"),
        ("a\nb\nc\nb\n", "lines 2 and 4 are both 'b'"),
        ("a\nb\nc\n", "3 names for the 4 columns of .*x.npz"),
        ("", "0 names for the 4 columns"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, words: Path, content: str | bytes, message: str) -> None:
    words.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SourceError, match=f"words.txt: .*{message}"):
        sks.open_matrix(write(tmp_path / "x.npz"), feature_names=words)


def test_wrong_names_are_refused(tmp_path: Path, words: Path) -> None:
    with pytest.raises(BadParameter, match="4 texts"):
        sks.open_matrix(VALUES, feature_names=["a", "b"])
    with pytest.raises(BadParameter, match="opened before"):
        sks.open_matrix(sks.open_matrix(VALUES), feature_names=NAMES)
    with pytest.raises(SourceError, match="both named 'a'"):
        sks.open_matrix(VALUES, feature_names=["a", "b", "a", "c"])
    words.unlink()
    with pytest.raises(SourceError, match=r"words\.txt"):
        sks.open_matrix(write(tmp_path / "x.npy"), feature_names=words)


def test_a_folder_is_refused_and_a_name_may_have_a_form_feed(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_bytes("a\r\nb\x0cb\r\n\u00e9\u2028e\r\nd\r\n".encode())
    assert sks.open_matrix(VALUES, feature_names=words).feature_names == ("a", "b\x0cb", "\u00e9\u2028e", "d")
    with pytest.raises(SourceError, match="folder"):
        sks.open_matrix(VALUES, feature_names=tmp_path)
