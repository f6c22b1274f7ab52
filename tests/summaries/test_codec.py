"""The file format: damage never goes unnoticed, old files load for ever, writing is atomic."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pandas
import pytest
from tests.summaries import oracles

import sketchselect as sks
from sketchselect.errors import DamagedFile, Incompatible, NoData, SourceError
from sketchselect.summaries import KINDS, Folds, FrequentDirections, Moments, codec

_spec = importlib.util.spec_from_file_location("golden_make", Path(__file__).parent / "golden" / "make.py")
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)


CHECKS = {
    **dict.fromkeys(["frequent-directions", "decayed-directions"], oracles.check_directions),
    **dict.fromkeys(["moments", "decayed-moments"], oracles.check_moments),
    "batch-directions": oracles.check_batches,
    "centroid-sums": oracles.check_centroids,
    "column-stats": oracles.check_columns,
    "comoment-panel": oracles.check_panel,
    "level-counts": oracles.check_levels,
    "leverage-scores": oracles.check_scores,
    "row-sample": oracles.check_row_sample,
    "target-histogram": oracles.check_histogram,
    "top-values": oracles.check_top,
}
"""Kind -> what its summaries must be for given rows; those of other kinds depend on their parameters."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_and_version_has_a_golden_file_that_loads(kind):
    for version in range(1, KINDS[kind].format_version + 1):
        path = golden.path_of(kind, version)
        assert path.exists(), f"run {golden.FOLDER / 'make.py'} and commit {path.name}"
        found = sks.load(path)
        X = golden.data()
        assert found.kind == kind
        assert (found.n_rows, found.n_features) == X.shape
        assert found.feature_names == golden.NAMES
        assert found.prepare == ("l2",)
        members = list(found.values()) if kind in ("bundle", "step-statistics") else [found]
        for member in members:
            if member.kind in ("folds", "groups"):
                member = member.total
            w = golden.weights() if kind in ("moments", "decayed-moments") and version == 4 else np.ones(len(X))
            if member.kind.startswith("decayed"):
                w = w * 0.5 ** np.arange(len(X))[::-1]
            if check := CHECKS.get(member.kind):
                check(member, X, np.arange(len(X)) % 4, w)
            if member.kind in ("moments", "decayed-moments"):
                assert member.n_weighted_rows == np.count_nonzero(w)
            if member.kind == "leverage-sample":
                assert 0 < member.n_kept < len(X)
                assert (member.draws < member.probabilities).all()
                assert np.allclose(member.sample, X[member.items] * member.weights[:, None], rtol=1e-13, atol=0)
                assert member.squared_norm == (X**2).sum()
        if kind in ("row-sample", "leverage-sample"):
            with pytest.raises(Incompatible, match="share row indices"):
                found.merge(found)
        else:
            assert found.merge(found).n_rows == 2 * found.n_rows


def test_the_golden_file_of_a_summary_with_row_indices_has_them():
    found = sks.load(golden.path_of("row-sample-rows", 1))
    assert found.context.rows == ((0, golden.ROWS),)
    assert np.array_equal(found.rows, golden.data()[found.indices])
    with pytest.raises(Incompatible, match="start=24"):
        found.merge(found)


def test_every_form_of_moments_has_a_golden_file_that_loads():
    for name, description in golden.descriptions().items():
        if description.kind == "moments":
            found = sks.load(golden.path_of(name, 2))
            X = golden.data()[:, : found.n_features]
            assert found.parameters() == description.parameters()
            assert np.allclose(found.covariance(), np.cov(X.T, ddof=0), rtol=1e-12, atol=1e-12)
            codes = np.arange(len(X)) % 4
            y = codes.astype(float)[:, None] if found.classes is None else np.eye(4)[codes]
            assert np.allclose(found.xy, (X - X.mean(axis=0)).T @ (y - y.mean(axis=0)) / len(X), atol=1e-12)


# The members of the bundle's file are of an older version than those that are written now.
WRITTEN = {name: golden.descriptions()[name].written_version for name in set(golden.descriptions()) - {"bundle"}}
OTHER_FORMS = [("decayed-moments", 3), ("moments", 3), ("likelihood-sums", 1), ("likelihood-sums", 2)]
OTHER_FORMS += [("decayed-moments", 4), ("moments", 4)]


@pytest.mark.parametrize(("name", "version"), sorted(WRITTEN.items()) + OTHER_FORMS)
def test_a_loaded_file_is_written_again_byte_for_byte(name, version):
    path = golden.path_of(name, version)
    assert codec.encode(sks.load(path)) == path.read_bytes()


@pytest.mark.parametrize("name", sorted(set(golden.descriptions()) - {"bundle", "step-statistics"}))
def test_parameters_are_the_arguments_of_the_constructor(name):
    description = golden.descriptions()[name]
    assert type(description)(**description.parameters()) == description


def test_a_file_of_the_first_version_merges_with_todays():
    old, new = sks.load(golden.path_of("moments", 1)), sks.load(golden.path_of("moments", 2))
    assert old == new
    assert old.merge(new).n_rows == 2 * old.n_rows


def test_only_what_older_versions_cannot_read_names_a_newer_one(monkeypatch):
    few = sks.load(golden.path_of("moments", 3))
    assert few.few_rows is None  # so few columns that they would be a matrix
    assert np.allclose(few.covariance(), sks.load(golden.path_of("moments", 2)).covariance(), rtol=1e-12, atol=1e-12)
    squares = sks.Moments(degree=2, products=False).from_block(np.eye(3))
    weightless = sks.Moments().from_block(np.eye(3), sample_weight=[1.0, 0.0, 2.0])
    monkeypatch.setattr(sks.Moments, "format_version", 2)
    for new, version in ((few, 3), (squares, 3), (weightless, 4)):
        with pytest.raises(DamagedFile, match=f"version {version}.*install a newer version"):
            codec.decode(codec.encode(new))


def test_filled_values_are_kept_where_there_are_some(monkeypatch):
    X = np.random.default_rng(0).standard_normal((40, 3))
    X[::8, 1] = np.nan
    X[:2, 2] = np.nan
    kinds = {"a": sks.FrequentDirections(2), "b": sks.Moments(), "c": sks.ColumnStats()}
    steps = ["impute", "standardise"]
    with monkeypatch.context() as counting:
        # An object for each of 100,000 columns of every block takes longer than the sketch.
        counting.setattr("sketchselect.prepare.fitted.Replaced", None)
        whole = sks.summarize(X, kinds, prepare=steps, client="serial")
    loaded = codec.decode(codec.encode(whole))
    assert [loaded[name].context.filled for name in kinds] == [(0, 5, 2), (0, 5, 2), None]
    assert codec.encode(loaded) == codec.encode(whole)
    assert codec.encode(whole)[8] == 3
    assert loaded.merge(whole)["b"].context.filled == (0, 10, 4)
    some = sks.summarize(np.nan_to_num(X), kinds, prepare=steps, client="serial")
    assert some["a"].context.filled is None
    assert codec.encode(some)[8] == 1
    # Of parts with other rows each the counts of a block say nothing.
    folds = sks.summarize(X, {"cv": Folds(sks.Moments(), 2)}, prepare=steps, client="serial")["cv"]
    assert [part.context.filled for part in (*folds, folds.total)] == [None] * 3
    # Columns of levels stand in the place of their text.
    table = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(d=X[:, 1])
    table.insert(1, "kind", ["x", "y", "z", None] * 10)
    fit = sks.fit_prepare(table, ["one-hot", *steps])
    counted = sks.summarize(table, sks.Moments(), prepare=fit.steps, client="serial")
    assert counted.context.filled == (0, 0, 0, 0, 0, 5, 2, 5)


def small():
    return sks.FrequentDirections(size=2).from_block(golden.data()[:5, :3])


def test_a_byte_too_many_is_noticed():
    with pytest.raises(DamagedFile):
        codec.decode(codec.encode(small()) + b"\0")


def with_header(edit):
    """Return a file with an edited header and a digest that fits it: what a hostile or buggy writer could make."""
    raw = codec.encode(small())
    length = int.from_bytes(raw[16:24], "little")
    start = 24 + length
    arrays = raw[start + (-start % 64) : -32]
    header = json.loads(raw[24 : 24 + length])
    edit(header)
    text = json.dumps(header).encode()
    head = raw[:16] + len(text).to_bytes(8, "little") + text
    body = head + bytes(-len(head) % 64) + arrays
    return body + codec.hashlib.blake2b(body, digest_size=32).digest()


@pytest.mark.parametrize(
    "edit",
    [
        lambda h: h["arrays"]["mean"].update(shape=[10**12]),
        lambda h: h["arrays"]["mean"].update(shape=[-1]),
        lambda h: h["arrays"]["mean"].update(shape=["3"]),
        lambda h: h["arrays"]["mean"].update(shape=[2]),
        lambda h: h["arrays"]["mean"].update(dtype="|O"),
        lambda h: h["arrays"]["mean"].update(dtype="<f4"),
        lambda h: h["arrays"]["mean"].update(dtype="nonsense"),
        lambda h: h["arrays"]["mean"].update(offset=-64),
        lambda h: h["arrays"]["mean"].update(offset=10**15),
        lambda h: h["arrays"].pop("mean"),
        lambda h: h["parameters"].update(size=0),
        lambda h: h["parameters"].update(other=1),
        lambda h: h.update(kind="no-such-kind"),
        lambda h: h.update(format_version=99),
        lambda h: h.update(extra=True),
        lambda h: h.update(prepare=7),
        lambda h: h.update(filled=[1, 2]),
        lambda h: h.update(filled=[1, 2, -3]),
        lambda h: h.update(filled=7),
        lambda h: h.pop("parameters"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(edit):
    with pytest.raises(DamagedFile):
        codec.decode(with_header(edit), "hostile.sks")


def test_messages_name_the_file(tmp_path):
    path = tmp_path / "week 12.sks"
    path.write_bytes(codec.encode(small())[:-1])
    with pytest.raises(DamagedFile, match="week 12"):
        sks.load(path)
    with pytest.raises(SourceError, match="no such file"):
        sks.load(tmp_path / "absent.sks")
    with pytest.raises(SourceError, match="folder"):
        sks.load(tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        sks.save(small(), tmp_path / "no" / "s.sks")
    with pytest.raises(NoData):
        sks.save(sks.Moments(), tmp_path / "s.sks")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "s.sks"
    sks.save(small(), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        sks.save(sks.Moments().from_block(golden.data()), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.sks"]


def test_url(tmp_path):
    url = "memory://folder/s.sks"
    sks.save(small(), url)
    assert sks.load(url) == small()


# Rows added to a summary that knows how its rows were prepared and what its columns are called.

X = np.random.default_rng(0).standard_normal((30, 3)) * [1.0, 10.0, 100.0]


def test_raw_rows_do_not_get_into_a_summary_of_prepared_ones():
    prepared = sks.summarize(X, FrequentDirections(3), prepare=["l2"])
    with pytest.raises(Incompatible, match=r"differently prepared rows: \['l2'\] and \[\]"):
        prepared.update(X)
    one, other = (sks.summarize(part, FrequentDirections(3), prepare=["standardise"]) for part in (X[:15], X[15:]))
    with pytest.raises(Incompatible, match=r"--write-fitted.*--fitted"):
        one.merge(other)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    twice = prepared.update(unit, prepare=prepared.prepare)
    assert twice.prepare == ("l2",)
    assert twice.squared_norm == pytest.approx(60)


def test_columns_of_a_data_frame_are_not_mixed_up():
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    seen = Moments().from_block(frame)
    assert seen.feature_names == ("a", "b", "c")
    assert seen.update(frame).mean.tolist() == pytest.approx(X.mean(axis=0).tolist())
    assert seen.update(X).n_rows == 60
    for other in (frame[["c", "b", "a"]], frame.rename(columns={"a": "A"})):
        with pytest.raises(Incompatible, match="column 0 is named 'a' and"):
            seen.update(other)


def test_numbered_columns_are_no_names():
    assert Moments().from_block(pandas.DataFrame(X)).feature_names is None


def test_a_selection_is_no_summary_and_the_message_says_how_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "selection.json").write_text("{}")
    with pytest.raises(DamagedFile, match="Selection"):
        sks.load(tmp_path / "selection.json")
