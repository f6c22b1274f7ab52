"""Views of a matrix: nothing of the matrix inside is lost, and nothing goes past the rows that a view makes."""

import inspect
import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from sketchselect import open_matrix
from sketchselect.cluster.kmeans.passes import WeightedColumns
from sketchselect.errors import BadParameter
from sketchselect.readers import FirstRows, Matrix, MatrixMetadata, MatrixView, in_double, transposed
from sketchselect.readers.base import ColumnsAsRows
from sketchselect.readers.views import ChosenColumns, InDouble
from sketchselect.testing.readers import MatrixConformance

METHODS = sorted(name for name, value in vars(Matrix).items() if inspect.isfunction(value) and not name.startswith("_"))
ATTRIBUTES = sorted(Matrix.__annotations__)
OF_THE_STORE = {"describe", "stored_nbytes"}


class Marked(Matrix):
    """A matrix of which every attribute and every method's answer is an object of its own."""

    def read_rows(self, start, stop):
        raise NotImplementedError

    identity = read_rows


for attribute in ATTRIBUTES:
    setattr(Marked, attribute, (attribute,))
for method in METHODS:
    setattr(Marked, method, lambda self, *arguments, method=method: (method, *arguments))
# A description is a mapping.
Marked.describe = lambda self: {"only": "here", "address": "inside"}


def subclasses(cls):
    for sub in cls.__subclasses__():
        if sub.__module__.startswith("sketchselect."):
            yield sub
            yield from subclasses(sub)


def test_a_view_has_all_attributes_and_methods_of_its_matrix():
    view = MatrixView(Marked())
    for name in ATTRIBUTES:
        assert getattr(view, name) == (name,), name
    for name in set(METHODS) - {"describe"}:
        arguments = (2, 3) if inspect.signature(getattr(Matrix, name)).parameters.keys() - {"self"} else ()
        assert getattr(view, name)(*arguments) == (name, *arguments), name
    # Every public name of the contract is an annotated attribute or a function, so the lists above are complete.
    assert {name for name in vars(Matrix) if not name.startswith("_")} - {*ATTRIBUTES, *METHODS} == set()


def test_a_view_describes_its_matrix_with_its_own_shape_and_type():
    described = FirstRows(open_matrix(da.ones((6, 2), chunks=3)), 4).describe()
    assert described["format"] == "dask"
    assert described["shape"] == [4, 2]


def test_a_view_of_other_rows_derives_all_it_does_not_make_itself():
    class Doubled(MatrixView):
        def read_rows(self, start, stop):
            return 2 * self.matrix.read_rows(start, stop)

        def identity(self, start, stop):
            return "doubled"

    for name in set(METHODS) - OF_THE_STORE - {"read_rows", "identity"}:
        assert getattr(Doubled, name) is getattr(Matrix, name), name
    X = np.arange(12.0).reshape(4, 3)
    view = Doubled(open_matrix(da.from_array(X, chunks=2), source_id="x"))
    assert view.read_columns(1, 3).tolist() == (2 * X[:, 1:]).tolist()
    assert view.transposed().read_rows(1, 3).tolist() == (2 * X[:, 1:].T).tolist()
    assert view.dask_rows() is None
    assert view.column_identity(0, 1) == "doubled:columns:0:1"


def test_a_view_of_other_rows_must_have_another_identity():
    class Nameless(MatrixView):
        def read_rows(self, start, stop):
            return self.matrix.read_rows(start, stop)

    with pytest.raises(TypeError, match="identity"):
        Nameless(open_matrix(np.eye(2)))


@pytest.mark.parametrize("view", sorted(subclasses(MatrixView), key=lambda view: view.__name__))
def test_no_view_passes_on_what_its_matrix_makes_of_rows(view):
    assert "read_rows" in vars(view)
    for name in set(METHODS) - OF_THE_STORE:
        assert name in vars(view), name
    assert vars(view)["dask_rows"] is not Matrix.dask_rows, "rows from a graph stay on it"


def sources(X):
    return {
        "array": X,
        "sparse": sp.csr_array(X),
        "graph": da.from_array(X, chunks=((1, 12, 7), (2, 3))),
        "graph of sparse blocks": da.from_array(X, chunks=(8, 5)).map_blocks(sp.csr_matrix),
    }


X = np.random.default_rng(0).poisson(0.7, (20, 5)).astype(np.float32)
WEIGHTS = np.array([1, 0, 2, 0.5, 3])
METRIC = np.diag(WEIGHTS) + np.diag([-2.0, 1, 0.25, 0], 1)
VIEWS = {
    "first rows": (lambda m: FirstRows(m, 13), X[:13]),
    "double": (in_double, X.astype(np.float64)),
    "weighted": (lambda m: WeightedColumns(m, WEIGHTS), X * WEIGHTS.astype(np.float32)),
    "in a metric": (lambda m: WeightedColumns(m, METRIC), X.astype(np.float64) @ METRIC),
    "columns": (ColumnsAsRows, X.T),
    "chosen columns": (lambda m: ChosenColumns(m, [4, 0, 3]), X[:, [4, 0, 3]]),
    "columns of first rows in double": (lambda m: transposed(in_double(FirstRows(m, 9))), X[:9].astype(np.float64).T),
    "double of columns of weighted": (
        lambda m: in_double(transposed(WeightedColumns(m, WEIGHTS))),
        (X * WEIGHTS.astype(np.float32)).astype(np.float64).T,
    ),
}


@pytest.mark.share(10)
@pytest.mark.parametrize("kind", sources(X))
@pytest.mark.parametrize("name", VIEWS)
def test_every_way_of_reading_a_view_gives_the_same_values(name, kind):
    make, expected = VIEWS[name]
    view = make(open_matrix(sources(X)[kind]))
    n_rows, n_columns = view.shape
    whole = view.read_rows(0, n_rows)
    assert view.shape == expected.shape
    assert whole.dtype == expected.dtype
    assert np.array_equal(whole.toarray() if view.is_sparse else whole, expected)
    assert np.array_equal(view.read_columns(1, n_columns - 1), expected[:, 1:-1])
    other = view.transposed().read_rows(1, 2)
    assert np.array_equal(np.asarray(other.toarray() if sp.issparse(other) else other), expected.T[1:2])
    for a, b in ((-1, 1), (0, n_rows + 1)):
        with pytest.raises(BadParameter, match="outside"):
            view.read_rows(a, b)
    rows = view.dask_rows()
    assert (rows is None) == (not kind.startswith("graph"))
    if rows is not None:
        assert rows.dtype == expected.dtype
        computed = rows.compute(scheduler="synchronous")
        assert np.array_equal(computed.toarray() if sp.issparse(computed) else computed, expected)


@pytest.mark.parametrize("kind", ["array", "sparse"])
def test_first_rows_keep_the_contract(kind):
    matrix = open_matrix(sources(X)[kind])
    MatrixConformance(FirstRows(matrix, 13), X[:13]).verify()
    assert FirstRows(matrix, 13).identity(3, 9) == matrix.identity(3, 9)
    with pytest.raises(BadParameter, match="outside"):
        FirstRows(matrix, 21)


def test_edges_of_chunks_end_with_the_first_rows():
    view = FirstRows(open_matrix(sources(X)["graph"]), 14)
    assert view.chunk_edges == (0, 1, 13, 14)
    assert FirstRows(open_matrix(sources(X)["graph"]), 13).chunk_edges == (0, 1, 13)


def test_metadata_are_all_that_is_not_as_long_as_the_rows_and_small():
    matrix = open_matrix(sp.random(20_000, 30, 0.1, format="csr", random_state=1), nonfinite="missing")
    matrix.row_names, matrix.notes = ["name"] * 20_000, ("a note",)
    for source in (matrix, transposed(matrix)):
        metadata = pickle.loads(pickle.dumps(MatrixMetadata(source)))
        assert len(pickle.dumps(metadata)) < 1000
        for name in set(ATTRIBUTES) - {"entry_offsets", "row_names", "in_memory"}:
            assert getattr(metadata, name) == getattr(source, name), name
        assert metadata.entry_offsets is metadata.row_names is None
        assert not metadata.in_memory
        assert metadata.identity(0, 5) is None
        assert metadata.dask_rows() is None
        with pytest.raises(LookupError, match=rf"{source.axes[0]}s 3 to 6 of sparse matrix were not sent to this task"):
            metadata.read_rows(3, 7)


def test_what_the_matrix_learns_later_its_view_has_too():
    matrix = open_matrix(X)
    view = InDouble(matrix)
    matrix.feature_names = tuple("abcde")
    assert view.feature_names == tuple("abcde")
    view.feature_names = None
    assert matrix.feature_names == tuple("abcde")
    assert view.feature_names is None
