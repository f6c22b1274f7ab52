"""Sources that are not what they say, or end under the reader."""

import errno
import mmap
import os
import re
import subprocess
import sys
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr

from sketchselect.errors import ChunkReadError, EmptyInput, SourceChanged, SourceError
from sketchselect.execution import summarize
from sketchselect.readers import arrays, convert, open_matrix, open_vector
from sketchselect.readers.dask import _checked_rows
from sketchselect.selectors import UnivariateSelector, VarianceSelector
from sketchselect.summaries import Moments

ROWS = np.random.default_rng(0).normal(size=(4000, 20))


def chunks_of(rows, height):
    """Return a Dask array of four chunks with these rows, which states that each has `height`."""
    shape = (height, *rows.shape[1:])
    return da.concatenate([da.from_delayed(dask.delayed(rows), shape, dtype=rows.dtype) for _ in range(4)])


@pytest.mark.parametrize("height", [3000, 3999, 4001, 5000])
def test_a_chunk_of_a_graph_that_is_cut_has_the_rows_that_it_states(height):
    # Too many rows would be cut off without a word, with a result of the others.
    for partition_bytes in (height * 160 // 3 + 160, height * 160, height * 320, None):
        with pytest.raises(ChunkReadError, match=r"came (as|with).*and should .*; give"):
            summarize(chunks_of(ROWS, height), Moments(), partition_bytes=partition_bytes)
    matrix = open_matrix(chunks_of(ROWS, height))
    with pytest.raises(ChunkReadError, match="came"):
        matrix.read_rows(10, 20)
    with pytest.raises(ChunkReadError, match=rf"entries 10 to 19: .* with shape 4000, and should have {height}; give"):
        open_vector(chunks_of(ROWS[:, 0], height), 4 * height).read(10, 20)


def test_of_many_chunks_only_those_that_are_read_are_checked():
    rows = _checked_rows(da.ones((4000, 3), chunks=(4, 3)), (2, 10))
    assert [len(layer) for name, layer in rows.__dask_graph__().layers.items() if "of_shape" in name] == [3]
    assert rows.compute().shape == (8, 3)


def test_a_chunk_that_is_as_stated_is_cut():
    whole = np.concatenate([ROWS] * 4)
    rows = chunks_of(ROWS, 4000)
    matrix = open_matrix(rows)
    assert np.array_equal(matrix.read_rows(3990, 4010), whole[3990:4010])
    cut = summarize(rows, Moments(), partition_bytes=4000 * 160 // 3 + 160)
    assert np.array_equal(cut.mean, summarize(whole, Moments(), partition_bytes=4000 * 160 // 3 + 160).mean)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
@pytest.mark.parametrize("name", ["indices", "indptr"])
@pytest.mark.parametrize("dtype", [bool, float])
def test_indices_of_sparse_rows_are_whole_numbers(tmp_path, name, dtype):
    ad = pytest.importorskip("anndata")
    ad.AnnData(sp.random_array((30, 7), density=0.3, rng=np.random.default_rng(0), format="csr")).write_h5ad(
        tmp_path / "cells.h5ad"
    )
    with h5py.File(tmp_path / "cells.h5ad", "r+") as file:
        values = file[f"X/{name}"][:]
        del file[f"X/{name}"]
        # Truth values were all columns 0 and 1, and of 2.7 column 2 was read.
        file[f"X/{name}"] = values.astype(dtype)
    with pytest.raises(SourceError, match=f"'{name}' must be one-dimensional and of whole numbers"):
        open_matrix(tmp_path / "cells.h5ad")


ENCRYPTED = """
import base64, sys
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

class Keys(pe.KmsClient):
    def __init__(self, settings):
        pe.KmsClient.__init__(self)

    def wrap_key(self, key, name):
        return base64.b64encode(key)

    def unwrap_key(self, key, name):
        return base64.b64decode(key)

table = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]})
keys = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["a"]}, plaintext_footer=sys.argv[1] == "plain")
made = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), keys)
with pq.ParquetWriter("rows.parquet", table.schema, encryption_properties=made) as writer:
    writer.write_table(table)

from sketchselect import open_matrix
from sketchselect.errors import SourceError

try:
    open_matrix("rows.parquet")
except SourceError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("footer", ["plain", "encrypted"])
def test_a_parquet_file_that_is_encrypted_is_said_to_be(tmp_path, footer):
    # Arrow ended the process where the footer alone was not encrypted.
    done = subprocess.run(
        [sys.executable, "-c", ENCRYPTED, footer], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("rows.parquet: it is encrypted, which is not read; write it without encryption\n"), done


CUT_SHORT = """
import mmap
import os
import numpy as np
from sketchselect import open_matrix, summarize
from sketchselect.errors import SourceChanged
from sketchselect.selectors import UnivariateSelector, VarianceSelector
from sketchselect.summaries import Moments

rows = np.random.default_rng(0).normal(size=(50_000, 20))

def mapped():
    np.save("rows.npy", rows)
    array = np.load("rows.npy", mmap_mode="r")
    return array, array[100:, ::-1]

for place in range(2):
    for use in (
        lambda m, a: m.read_rows(40_000, 40_010),
        lambda m, a: m.identity(0, 10),
        lambda m, a: m.read_columns(1, 2),
        lambda m, a: summarize(a, Moments()),
        lambda m, a: VarianceSelector(3).fit(a),
    ):
        array = mapped()[place]
        matrix = open_matrix(array)
        os.truncate("rows.npy", 1000)
        try:
            use(matrix, array)
        except SourceChanged as error:
            print(error)
"""


@pytest.mark.slow
def test_a_mapped_file_that_is_cut_short_does_not_kill_the_process(tmp_path):
    done = subprocess.run([sys.executable, "-c", CUT_SHORT], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 10, lines
    assert all(line.endswith("is mapped from was cut short; write it again, and open it anew") for line in lines)


def test_mapped_arrays_are_read(tmp_path):
    offset = 5 * np.lib.format.MAGIC_LEN + 65536
    with open(tmp_path / "rows.bin", "wb") as file:
        file.write(bytes(offset) + ROWS.tobytes())
    mapped = np.memmap(tmp_path / "rows.bin", mode="r", offset=offset, shape=ROWS.shape, dtype=ROWS.dtype)
    for array, values in ((mapped, ROWS), (mapped[::3, 2:], ROWS[::3, 2:])):
        assert np.array_equal(open_matrix(array).read_rows(0, len(values)), values)
    assert np.array_equal(
        VarianceSelector(3).fit(mapped).get_support(indices=True),
        VarianceSelector(3).fit(ROWS).get_support(indices=True),
    )
    os.truncate(tmp_path / "rows.bin", 70_000)
    with pytest.raises(SourceChanged, match="cut short"):
        open_matrix(mapped[:10]).read_rows(0, 3)


def test_memory_that_is_mapped_without_a_file_is_read():
    shared = np.ndarray((3, 2), buffer=mmap.mmap(-1, 48))
    shared[:] = 1.5
    assert np.array_equal(open_matrix(shared).read_rows(1, 3), shared[1:])


@pytest.mark.parametrize(
    "header",
    [
        "(" * 3000,
        "-" * 9000 + "1",
        "{b'descr': '<f8', 'fortran_order': False, 'shape': (4, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (04, 3)}",
        "{'descr': ',8', 'fortran_order': False, 'shape': (4, 3)}",
    ],
)
def test_a_damaged_header_of_numpy_is_said_to_be(tmp_path, header):
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(96)
    (tmp_path / "rows.npy").write_bytes(content)
    with pytest.raises(SourceError, match=r"rows\.npy: not a NumPy file, or its header is damaged; write"):
        open_matrix(tmp_path / "rows.npy")


def test_a_folder_with_a_link_to_itself(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "rows" / "year=1"
    folder.mkdir(parents=True)
    import pyarrow as pa

    pq.write_table(pa.table({"a": [1.0, 2.0]}), folder / "part.parquet")
    (folder / "year=2").symlink_to(tmp_path / "rows")
    with pytest.raises(SourceError, match=r"year=1/year=2: a link to a folder that it is in; remove it"):
        open_matrix(tmp_path / "rows")


@pytest.mark.parametrize("title", ["a\0b", "a\nb", "a\tb", "zarr.json", "What do you think of it? " * 12])
def test_titles_of_text_that_are_no_names_of_folders(tmp_path, title):
    (tmp_path / "rows.csv").write_text(f'n,"{title}"\n1.5,u\n2.5,v\n3.5,v\n')
    with pytest.warns(UserWarning, match="1 of 2 columns is text"):
        convert(tmp_path / "rows.csv", tmp_path / "rows.zarr")
    name = "a_b" if len(title) == 3 else "column 2"
    assert zarr.open_array(tmp_path / "rows.zarr" / "obs" / name)[:].tolist() == ["u", "v", "v"]
    assert open_matrix(tmp_path / "rows.zarr", key="X").read_rows(0, 3).tolist() == [[1.5], [2.5], [3.5]]


class Unreadable:
    """An object with the protocol of an array, which it does not keep."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not\nnow")


def test_objects_that_give_no_array_are_one_line():
    with pytest.raises(SourceError, match="this Unreadable gives no NumPy array; convert it first"):
        open_matrix(Unreadable())
    frame = dd.from_pandas(pd.DataFrame(ROWS[:, :3], columns=["a", "b", "a"]), npartitions=2)
    with pytest.raises(SourceError, match="data frame of Dask: columns 0 and 2 are both named 'a'; give"):
        open_matrix(frame)
    assert np.array_equal(open_matrix(xr.Variable(("y", "x"), ROWS)).read_rows(0, 9), ROWS[:9])


def test_damaged_metadata_of_hdf5_is_one_line(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=ROWS[:37, :7], chunks=(10, 7), fletcher32=True)
    whole = (tmp_path / "rows.h5").read_bytes()
    messages = []
    # The first kilobytes hold the headers, the heap of names and the trees.
    for place in range(100, 2500, 7):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        (tmp_path / "rows.h5").write_bytes(damaged)
        try:
            open_matrix(tmp_path / "rows.h5")
        except SourceError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert all("rows.h5" in message and "\n" not in message for message in messages)


def test_text_of_digits_in_a_frame_is_warned_of():
    codes = np.array(["007", "12", "3.5"] * 20, object)
    frame = pd.DataFrame(ROWS[:60, :4], columns=list("abcd")).assign(code=codes, other=ROWS[:60, 5].astype(object))
    with pytest.warns(UserWarning, match=r"^data frame: text that reads as numbers counts as numbers, in 'code'; "):
        fitted = VarianceSelector(2).fit(frame)
    assert fitted.n_features_in_ == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.transform(frame)  # once is enough
        VarianceSelector(2).fit(frame.assign(code=codes.astype(float)))
    with pytest.raises(SourceError, match="'code' is of type"):
        open_matrix(frame)


def test_texts_of_hdf5_without_an_end_are_one_line(tmp_path):
    # Its library reads them for ever, where Ctrl-C does nothing.
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = ROWS
        file.attrs["encoding-type"] = "some text"
    content = bytearray((tmp_path / "rows.h5").read_bytes())
    assert open_matrix(tmp_path / "rows.h5", key="X").shape == ROWS.shape
    place = content.index(b"GCOL") + 16
    while content[place]:
        place += 16 + -(-content[place + 8] // 8) * 8
    content[place + 8 : place + 16] = bytes(8)
    (tmp_path / "rows.h5").write_bytes(content)
    code = f"import sketchselect; sketchselect.open_matrix({str(tmp_path / 'rows.h5')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert re.search(r"rows\.h5: the file is damaged \(the texts at byte \d+ have no end\)", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        ("real", "", "line 32 must be row, column, a number such as 1.5e3"),
        ("complex", " 1", "values of type complex128 are not real numbers"),
    ],
)
def test_a_matrix_market_file_that_is_cut_in_a_number_does_not_kill_the_process(tmp_path, kind, other, message):
    # SciPy's parser had read on beyond the end of "3.31E-".
    (tmp_path / "rows.mtx").write_text(
        f"%%MatrixMarket matrix coordinate {kind} general\n30 7 86\n"
        + "".join(f"{row} 2{other} 7.93E-1\n" for row in range(1, 30))
        + f"30 6{other} 3.31E-"
    )
    code = "import sketchselect; sketchselect.open_matrix('rows.mtx')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert f"rows.mtx: {message}" in done.stderr, done


@pytest.mark.parametrize(
    ("kind", "line"),
    [("coordinate real", "2 1 +1.5"), ("coordinate real", "+2 1 1.5"), ("coordinate integer", "2 1 +1")],
)
def test_a_plus_before_a_number_of_a_matrix_market_file_is_named(tmp_path, kind, line):
    # SciPy refuses it, and the file was said to be damaged.
    (tmp_path / "rows.mtx").write_text(f"%%MatrixMarket matrix {kind} general\n2 1 1\n{line}\n")
    with pytest.raises(SourceError, match=r"rows\.mtx: line 3 must be .*; remove the plus before the number$"):
        open_matrix(tmp_path / "rows.mtx")
    (tmp_path / "rows.mtx").write_text(f"%%MatrixMarket matrix {kind} general\n2 1 1\n{line.replace('+', '')}\n")
    assert open_matrix(tmp_path / "rows.mtx").shape == (2, 1)


@pytest.mark.parametrize(
    "noted",
    [
        "{index",
        "[1]",
        '{"index_columns": null}',
        '{"index_columns": "ab"}',
        '{"index_columns": [7]}',
        '{"index_columns": [{"kind": "range", "name": "n"}]}',
        '{"index_columns": [{"kind": "range", "name": "n", "start": 0, "stop": 4, "step": 0}]}',
    ],
)
def test_a_damaged_note_of_pandas_about_its_index_is_one_line(tmp_path, noted):
    # Of "ab" column a had been left out; the others ended in errors of JSON and of Python.
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    noting = table.replace_schema_metadata({"pandas": noted})
    pq.write_table(noting, tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", noting):
        with pytest.raises(SourceError, match=r"what pandas noted of its row index .* is damaged; write it again"):
            open_matrix(source)
    pq.write_table(table, tmp_path / "rows.parquet")
    assert open_matrix(tmp_path / "rows.parquet").feature_names == ("a", "b")


def test_columns_with_dots_in_their_names_are_stated_as_others_are(tmp_path):
    # Their sizes had been taken for those of a column with the name before the dot, which there was not.
    sizes = []
    for name in ("x{}", "x.{}", "x.list.element.{}"):
        pq.write_table(pa.table({name.format(j): ROWS[:, j] for j in range(20)}), tmp_path / "rows.parquet")
        matrix = open_matrix(tmp_path / "rows.parquet")
        sizes.append(matrix.piece_nbytes)
    assert sizes[0] == sizes[1] == sizes[2] > 20 * ROWS.nbytes // 20
    lists = pa.table({"e": list(ROWS[:50])})
    for name in ("e", "e.f"):
        pq.write_table(lists.rename_columns([name]), tmp_path / "rows.parquet")
        sizes.append(open_matrix(tmp_path / "rows.parquet").piece_nbytes)
    assert sizes[3] == sizes[4]


@pytest.mark.parametrize("to_array", [pa.array, lambda entries: pa.chunked_array([pa.array(entries)])])
def test_missing_entries_of_arrow_arrays_are_missing(to_array):
    numbers = open_vector(to_array([1.5, None, 3.0]), 3)
    assert np.array_equal(numbers.read(0, 3), [1.5, np.nan, 3], equal_nan=True)
    assert open_vector(to_array(["a", "b", "a"]), 3).read(0, 3).tolist() == ["a", "b", "a"]
    categories = to_array(["a", "b", None]).dictionary_encode()
    # pyarrow gives the last category for a missing one: a label of another row.
    with pytest.raises(SourceError, match="1 entry is missing, the first at row 2"):
        open_vector(categories, 3)
    whole = to_array(["a", "b", "a"]).dictionary_encode()
    assert open_vector(whole, 3).read(0, 3).tolist() == ["a", "b", "a"]


def test_categories_of_arrow_arrays_are_decoded_by_level(tmp_path):
    texts = [f"level {i}" for i in range(127)]
    codes = pa.array([*range(127), None], "int8")  # no code is left for a missing entry
    part = pa.DictionaryArray.from_arrays(codes, texts)
    arrays = pa.chunked_array([part.slice(1, 126), part.slice(0, 3)])
    assert open_vector(arrays, 129).read(0, 129).tolist() == [*texts[1:], *texts[:3]]
    with pytest.raises(SourceError, match="1 entry is missing, the first at row 127"):
        open_vector(part, 128)
    with pytest.raises(SourceError, match="1 entry is missing, the first at row 1"):
        open_vector(pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])), 2)
    numbers = open_vector(pa.array([1.5, None, 1.5]).dictionary_encode(), 3).read(0, 3)
    assert np.array_equal(numbers, [1.5, np.nan, 1.5], equal_nan=True)
    # In a Parquet file too.
    pq.write_table(pa.table({"y": part.slice(0, 127)}), tmp_path / "y.parquet")
    assert open_vector(tmp_path / "y.parquet", 127).read(0, 127).tolist() == texts


def test_a_short_piece_of_a_column_of_arrow_does_not_decode_all_categories():
    class Piece:
        dictionary = range(3)  # cannot be decoded

        def __len__(self):
            return 2

        def to_pylist(self):
            return ["b", None]

    assert arrays._decoded(Piece()).tolist() == ["b", None]


def test_missing_whole_numbers_beyond_double_in_arrow_tables_are_read():
    table = pa.table({"a": [1, None, 2**53 + 2], "b": [True, None, False]})
    with pytest.warns(UserWarning, match="whole numbers beyond 2\\^53 are rounded"):
        rows = open_matrix(table, nonfinite="missing").read_rows(0, 3)
    assert np.array_equal(rows, [[1, 1], [np.nan, np.nan], [2**53 + 2, 0]], equal_nan=True)


class GivesMasked:
    """Reads as a variable of netCDF4 does."""

    shape = (37, 7)

    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_greater(ROWS[:37, :7], 0)


def test_the_mask_of_what_an_object_gives_is_not_ignored():
    for read in (open_matrix, VarianceSelector(2).fit, lambda rows: summarize(rows, Moments())):
        with pytest.raises(SourceError, match="masked arrays are not read"):
            read(GivesMasked())


class OnDlpack:
    """Hands its memory over as DLPack alone."""

    def __dlpack__(self, **options):
        return ROWS.__dlpack__(**options)

    def __dlpack_device__(self):
        return ROWS.__dlpack_device__()


def test_objects_that_give_dlpack_alone_are_read():
    assert np.array_equal(open_matrix(OnDlpack()).read_rows(0, 4000), ROWS)


def damaged(kind):
    """Return a sparse matrix whose index arrays are wrong."""
    rows = sp.random_array((30, 7), density=0.3, rng=np.random.default_rng(0), format=kind)
    if kind == "lil":
        rows.rows[3], rows.data[3] = [1, 2], [1.0]
    elif kind == "coo":
        rows.col[0] = 9
    else:
        rows.indices[0] = 99
    return rows


@pytest.mark.parametrize("kind", ["lil", "coo", "csc", "bsr"])
def test_invalid_sparse_matrices_are_refused_by_fit_too(kind):
    # Of rows in lists of other lengths SciPy takes what is in memory; scikit-learn checks none of them.
    for read in (open_matrix, VarianceSelector(2).fit):
        with pytest.raises(SourceError, match=f"not a valid {kind.upper()} matrix.*; write it again"):
            read(damaged(kind))


def test_small_integers_stored_twice_do_not_wrap_around_in_fit():
    twice = sp.coo_array((np.array([100, 100, 100, 5], "int8"), ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 2))
    rows = np.array([[0.0, 200], [100, 0], [5, 0]])
    fitted, of_rows = (VarianceSelector(1).fit(X).get_support() for X in (twice, rows))
    assert np.array_equal(fitted, of_rows)


@pytest.mark.parametrize("kind", [sp.coo_array, sp.coo_matrix, sp.csr_array, sp.csr_matrix])
def test_small_integers_stored_twice_do_not_wrap_around_in_transform(kind):
    entries = np.array([100, 100, 100, 5], "int8")
    if "csr" in kind.__name__:
        twice = kind((entries, np.array([1, 1, 0, 0]), np.array([0, 2, 3, 4])), shape=(3, 2))
    else:
        twice = kind((entries, ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 2))
    selector = VarianceSelector(2).fit(twice)
    rows = selector.transform(twice)
    assert isinstance(rows, sp.csr_matrix if "matrix" in kind.__name__ else sp.csr_array)
    assert rows.toarray().tolist() == [[0, 200], [100, 0], [5, 0]]  # SciPy's own sum is -56
    assert twice.nnz == 4
    once = kind(np.array([[0, 100], [100, 0], [5, 0]], "int8"))
    assert selector.transform(once).dtype == np.int8


def test_a_partition_with_columns_in_another_order_is_named():
    frame = pd.DataFrame(ROWS[:40, :3], columns=["a", "b", "c"])

    def turned(part, partition_info=None):
        return part[["c", "b", "a"]] if partition_info and partition_info["number"] == 1 else part

    lazy = dd.from_pandas(frame, npartitions=4).map_partitions(turned, meta=frame.iloc[:0], enforce_metadata=False)
    # Their values had been those of other columns.
    with pytest.raises(ChunkReadError, match="in another order: 'c', 'b', 'a', and should have 'a', 'b', 'c'; give"):
        open_matrix(lazy)


@pytest.mark.parametrize(("dtype", "unsigned"), [("int16", "true"), ("uint8", "false")])
def test_integers_that_another_sign_is_noted_of_are_refused(tmp_path, dtype, unsigned):
    rows = np.arange(-6, 6).reshape(4, 3).astype(dtype)
    zarr.create_array(tmp_path / "rows.zarr", data=rows, attributes={"_Unsigned": unsigned})
    with pytest.raises(SourceError, match=r"signed integers \(attribute _Unsigned\).*; open the store with xarray"):
        open_matrix(tmp_path / "rows.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_packed_values_of_an_open_array_in_memory_are_decoded(zarr_format):
    stored = np.array([[1, -9], [4, 6]], "int16")
    array = zarr.create_array(
        {}, data=stored, attributes={"scale_factor": 0.5, "_FillValue": -9}, fill_value=-9, zarr_format=zarr_format
    )
    matrix = open_matrix(array, nonfinite="missing")
    assert np.array_equal(matrix.read_rows(0, 2), [[0.5, np.nan], [2, 3]], equal_nan=True)
    assert matrix.dtype == np.float64


@pytest.mark.parametrize(("code", "reason"), [(errno.EACCES, "Permission denied"), (errno.EMFILE, "Too many open")])
def test_an_hdf5_file_that_the_system_does_not_open_is_not_called_damaged(tmp_path, monkeypatch, code, reason):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["X"] = ROWS

    def refuse(*args, **options):
        raise OSError(code, "Unable to synchronously open file")

    monkeypatch.setattr(h5py, "File", refuse)
    with pytest.raises(SourceError, match=rf"rows\.h5: cannot be read \({reason}.*\); check its permissions"):
        open_matrix(tmp_path / "rows.h5")


LABELS_WITH_NUL = ["b", "a", "a\0", "a"] * 10
LEVELS_WITH_NUL = ["b", "a", "a\0"]


@pytest.mark.parametrize(
    "make",
    [
        list,
        lambda labels: np.array(labels, dtype=object),
        lambda labels: [label.encode() for label in labels],
        pd.Series,
        # By its levels: pandas 2 itself drops the NUL where it looks for them.
        lambda labels: pd.Categorical.from_codes([LEVELS_WITH_NUL.index(label) for label in labels], LEVELS_WITH_NUL),
        pa.array,
        lambda labels: pa.array(labels).dictionary_encode(),
    ],
    ids=["list", "objects", "bytes", "Series", "categories", "Arrow", "dictionary"],
)
def test_a_label_that_ends_with_nul_is_not_taken_for_another(make):
    # NumPy drops a NUL at the end of a text: "a" and "a\0" had been one class.
    with pytest.raises(SourceError, match=r"labels: row 2, b?'a\\x00', ends with the character NUL.*; correct it"):
        open_vector(make(LABELS_WITH_NUL), 40, name="labels")
    assert open_vector(["b", "a", "\0a"], 3, name="labels").read(0, 3).tolist() == ["b", "a", "\0a"]
    with pytest.raises(SourceError, match="classes: row 1"):
        UnivariateSelector().partial_fit(np.eye(3), ["a", "b", "a"], classes=["a", "a\0", "b"])


@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_a_label_of_a_file_that_ends_with_nul_is_not_taken_for_another(kind, tmp_path):
    path = tmp_path / f"y.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"labels": LABELS_WITH_NUL}), path)
    elif kind == "csv":
        path.write_text("\n".join(["labels", *LABELS_WITH_NUL]) + "\n")
    else:
        array = zarr.create_array(path, shape=(40,), chunks=(40,), dtype=str)
        array[:] = np.array(LABELS_WITH_NUL, dtype=object)
    with pytest.raises(SourceError, match=rf"y\.{kind}.*: row 2, 'a\\x00', ends with the character NUL"):
        open_vector(path, 40, name="labels").read(0, 40)


@pytest.mark.parametrize("fill", [1.0, np.nan])
def test_sparse_columns_of_pandas_that_leave_out_no_zeros_are_named(fill):
    columns = {"a": pd.arrays.SparseArray([0.0, 2.0, 0.0], fill_value=0.0)}
    columns["b"] = pd.arrays.SparseArray([1.0, 5.0, 2.0], fill_value=fill)
    frame = pd.DataFrame(columns)
    with pytest.raises(
        SourceError, match=rf"^data frame: column 'b' is sparse, .* {fill}, not 0; give the dense frame"
    ):
        VarianceSelector(1).fit(frame)
    dense = VarianceSelector(1).fit(frame.sparse.to_dense())
    with pytest.warns(UserWarning, match="sparse columns found"):  # of scikit-learn
        beside = VarianceSelector(1).fit(frame.assign(a=frame["a"].sparse.to_dense()))
    assert np.array_equal(beside.scores_, dense.scores_)


def test_a_frame_of_pandas_without_columns_is_named():
    with pytest.raises(EmptyInput, match=r"^data frame: shape 3 x 0: there are no columns$"):
        VarianceSelector(1).fit(pd.DataFrame(index=range(3)))
