"""Packed values of the CF conventions: what xarray reads, by path; the policy for missing ones; and refusals."""

import json

import numpy as np
import pytest
import xarray
import zarr

from sketchselect import convert, open_matrix
from sketchselect.errors import NotFinite, SourceError
from sketchselect.execution import Source
from sketchselect.readers import open_vector, transposed
from sketchselect.testing.readers import MatrixConformance

# Packing without a missing value is among what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")

NUMBERS = np.round(np.random.default_rng(2).standard_normal((40, 6)) * 20, 1)
WITH_GAPS = np.where(np.random.default_rng(3).random(NUMBERS.shape) < 0.1, np.nan, NUMBERS)

# values, encoding
PACKED = {
    "scaled": (NUMBERS, {"dtype": "int16", "scale_factor": 0.1}),
    "scaled and moved": (NUMBERS, {"dtype": "int32", "scale_factor": 0.1, "add_offset": 50.0}),
    "moved": (NUMBERS.round(), {"dtype": "int16", "add_offset": 7.0}),
    "scaled with gaps": (WITH_GAPS, {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -32768}),
    "scaled floats": (WITH_GAPS, {"dtype": "float32", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -999.0}),
    "short integers with gaps": (WITH_GAPS.round(), {"dtype": "int16", "_FillValue": -32768}),
    "long integers with gaps": (WITH_GAPS.round(), {"dtype": "int64", "_FillValue": -1000}),
    "two missing values": (NUMBERS.round(), {"dtype": "int16", "_FillValue": 3, "missing_value": 3}),
    "floats with gaps": (WITH_GAPS, {"dtype": "float64", "_FillValue": -9999.9}),
    "floats": (NUMBERS, {"dtype": "float32"}),
    "integers": (NUMBERS.round(), {"dtype": "int16", "_FillValue": None}),
}


@pytest.fixture
def store(tmp_path):
    """Return ``store(values, encoding, version) -> (path, what xarray reads there)``."""

    def store(values, encoding, version=3, name="s.zarr"):
        array = xarray.DataArray(values, dims=("time", "place"))
        encodings = {"t": encoding | {"chunks": (9, 4)}}
        array.to_dataset(name="t").to_zarr(tmp_path / name, encoding=encodings, zarr_format=version, consolidated=False)
        with xarray.open_zarr(tmp_path / name, consolidated=False) as opened:
            return tmp_path / name / "t", opened["t"].load().values

    return store


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", PACKED)
def test_packed_values_are_read_as_xarray_reads_them(store, kind, version):
    path, expected = store(*PACKED[kind], version)
    matrix = open_matrix(path, nonfinite="missing", missing_chunks="fill")
    MatrixConformance(matrix, expected).verify()
    assert np.array_equal(matrix.read_columns(1, 5), expected[:, 1:5], equal_nan=True)
    assert np.array_equal(transposed(matrix).read_rows(2, 4), expected.T[2:4], equal_nan=True)
    stored = np.dtype(PACKED[kind][1]["dtype"]).itemsize
    assert matrix.stored_nbytes(0, 10) == 10 * 6 * stored


def test_the_policy_for_missing_values_applies(store):
    path, expected = store(*PACKED["scaled with gaps"])
    bad = np.isnan(expected).any(axis=1)
    with pytest.raises(NotFinite, match=rf"first at row {bad.argmax()},"):
        Source(open_matrix(path)).block(0, 40)
    block = Source(open_matrix(path, nonfinite="drop_rows")).block(0, 40)
    assert np.array_equal(block.values, expected[~bad])


def test_a_chunk_without_a_file_is_missing_values(store):
    path, _ = store(np.full((40, 6), np.nan), PACKED["scaled with gaps"][1])
    assert np.isnan(open_matrix(path, missing_chunks="fill").read_rows(0, 40)).all()


def test_the_identity_of_rows_holds_their_packing(store):
    first, _ = store(NUMBERS, {"dtype": "int16", "scale_factor": 0.1})
    before = open_matrix(first, missing_chunks="fill")
    document = json.loads((first / "zarr.json").read_text())
    document["attributes"]["scale_factor"] = 0.2
    (first / "zarr.json").write_text(json.dumps(document))
    after = open_matrix(first, missing_chunks="fill")
    assert np.array_equal(after.read_rows(0, 40), after.dtype.type(0.2) * np.round(NUMBERS / 0.1))
    assert after.identity(0, 9) != before.identity(0, 9)
    assert after.column_identity(0, 4) != before.column_identity(0, 4)


def test_packed_targets_and_converted_stores(store, tmp_path):
    path, expected = store(*PACKED["scaled"], name="a.zarr")
    out = open_matrix(convert(open_matrix(path, missing_chunks="fill"), tmp_path / "out.zarr"))
    assert np.array_equal(out.read_rows(0, 40), expected)
    dataset = xarray.Dataset({"y": ("time", NUMBERS[:, 0])})
    encodings = {"y": {"dtype": "int16", "scale_factor": 0.1, "_FillValue": -1}}
    dataset.to_zarr(tmp_path / "y.zarr", encoding=encodings, consolidated=False)
    vector = open_vector(tmp_path / "y.zarr" / "y", 40)
    assert vector.read(3, 40).tolist() == expected[3:, 0].tolist()
    assert vector.dtype == np.float64


def test_a_fill_value_alone_is_a_number(write, values):
    counts = (values > 0).astype(np.int16)
    for version in (2, 3):
        path = write(counts, f"{version}.zarr", zarr_format=version, fill_value=1, attributes={"note": "counts"})
        assert open_matrix(path, missing_chunks="fill").dtype == np.int16
    named = write(counts, "d.zarr", zarr_format=2, fill_value=0, attributes={"_ARRAY_DIMENSIONS": ["cell", "gene"]})
    assert np.array_equal(open_matrix(named, missing_chunks="fill").read_rows(0, 103), counts)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scale_factor": "wide"}, "the attribute scale_factor is not a number"),
        ({"_FillValue": [1, "a"]}, "the attribute _FillValue is not a number"),
        ({"scale_factor": 2, "_Unsigned": "true"}, "packed as unsigned integers .*open the store with xarray"),
    ],
)
def test_what_is_not_decoded_is_refused_by_name(write, values, attributes, message):
    path = write(values.astype(np.int16), attributes=attributes)
    with pytest.raises(SourceError, match=rf"a\.zarr: .*{message}"):
        open_matrix(path, missing_chunks="fill")


def test_an_open_zarr_array_is_decoded_as_its_path(store):
    path, expected = store(*PACKED["scaled"])
    assert np.array_equal(open_matrix(zarr.open_array(path), missing_chunks="fill").read_rows(0, 40), expected)


def test_names_in_the_attributes_of_an_array_of_any_store():
    values = np.arange(6.0).reshape(3, 2)
    array = zarr.create_array(zarr.storage.MemoryStore(), data=values, attributes={"feature_names": ["a", "b"]})
    assert open_matrix(array).feature_names == ("a", "b")
