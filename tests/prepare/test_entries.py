"""What a list of steps may look like, and the one line that says what is wrong with it."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.csr import as_csr
from sketchselect.prepare import apply, check_steps, names_after, resolve, widths


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        ("l2", "l2"),
        ("library-size", "library-size"),
        ("library-size()", "library-size"),
        ("library-size(target=10000)", "library-size"),
        ("library-size( target = 500 )", "library-size(target=500.0)"),
        ("library-size(target='median')", "library-size(target=median)"),
        ({"step": "library-size", "target": 500}, "library-size(target=500.0)"),
        ({"step": "tf-idf", "sublinear": True}, "tf-idf(sublinear=true)"),
        ("tf-idf(sublinear=false, smooth=false)", "tf-idf(smooth=false)"),
        ("clip(low=-1e-3, high=2)", "clip(low=-0.001, high=2.0)"),
        ("fourier(n_components=7, gamma=.5, seed=3)", "fourier(n_components=7, gamma=0.5, seed=3)"),
    ],
)
def test_entries_and_their_labels(entry, label):
    (step,) = resolve([entry])
    assert step.label == label
    assert resolve([label]) == (step,), "a label is an entry"
    assert resolve([step]) == (step,)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("l2", r"must be a list of steps, got one step; write \['l2'\]"),
        ("auto", r"\"auto\" is for job files .*; in Python sketchselect\.cluster\.compare_preparations chooses"),
        (["auto"], r"\"auto\" is for job files .*; in Python sketchselect\.cluster\.compare_preparations chooses"),
        (["l22"], "unknown prepare step 'l22'; did you mean 'l2'"),
        (["tfidf"], "unknown prepare step 'tfidf'; did you mean 'tf-idf'"),
        (["nothing like it"], "expected a name, or a name with parameters"),
        (["zzz"], "unknown prepare step 'zzz'; known steps: clip, .*l2, .*tf-idf"),
        ([3], "expected a name or a table, got int"),
        ([{"target": 3}], 'the table has no "step"'),
        ([{"step": ["l2"]}], "unknown prepare step"),
        ([{"step": "library-size", "taget": 3}], "'library-size': unknown parameter 'taget'; did you mean 'target'"),
        (["l2(norm=1)"], "'l2': unknown parameter 'norm'; it has none"),
        (["library-size(100)"], "'library-size': expected key=value in the parentheses, got '100'"),
        (["library-size(target=0)"], "target must be a number above 0"),
        (["library-size(target=mean)"], 'target must be a number above 0 or "median"'),
        ([{"step": "library-size", "target": True}], 'target must be a number above 0 or "median", got True'),
        ([{"step": "library-size", "target": float("inf")}], "target must be a number above 0"),
        ([{"step": "tf-idf", "sublinear": 1}], "sublinear must be true or false, got 1"),
        (["scale(ddof=2)"], "ddof must be a whole number from 0 to 1"),
        (["clip"], "give low or high or both, or sd alone"),
        (["clip(low=1, sd=2)"], "give low or high or both, or sd alone"),
        (["clip(low=2, high=1)"], "'clip': low = 2 is above high = 1; swap them"),
        (["clip(sd=0)"], "sd must be a number above 0"),
        (["fourier(n_components=0)"], "n_components must be a whole number of at least 1"),
        (["fourier(gamma=-1)"], "gamma must be a number above 0"),
        (["fourier(gamma=mean)"], 'gamma must be a number above 0 or "median"'),
        (["fourier(seed=-1)"], "seed must be a whole number of at least 0"),
        (["standardise", "log1p"], "'log1p' is defined for counts, and 'standardise' before it gives negative values"),
        (["fourier", "l2", "library-size"], "'library-size' is defined for counts, and 'fourier' before it"),
    ],
)
def test_mistakes_are_named_in_one_line(entries, message):
    with pytest.raises(BadParameter, match=message) as caught:
        resolve(entries)
    assert "\n" not in str(caught.value)


def test_an_order_that_can_be_meant_is_taken():
    recipe = ["library-size", "log1p", "tf-idf", "l2", "standardise", "clip(low=0)", "log1p"]
    assert check_steps(recipe) == (*recipe[:5], "clip(low=0.0)", "log1p")
    assert check_steps(None) == ()


def test_no_list_is_no_step_and_fitted_labels_ask_for_their_own_statistics():
    X = np.random.default_rng(0).poisson(1.0, (40, 6)).astype(float)
    (step,) = sks.fit_prepare(X, ["standardise"]).steps
    assert step.label.startswith("standardise#")
    (asked,) = resolve([step.label])
    assert not asked.is_fitted
    assert asked == step, "the same label"
    assert sks.fit_prepare(X, [asked]).labels == (step.label,)
    with pytest.raises(Incompatible, match=r"'standardise#[0-9a-f]+', not 'standardise#[0-9a-f]+'.*prepare\.sks"):
        sks.fit_prepare(X[1:], [asked])


def test_columns_and_names_after_the_steps():
    steps = resolve(["l2", "fourier(n_components=3, gamma=1)"])
    assert widths(steps, 10) == [10, 10, 3]
    assert names_after(steps, ("a",) * 10, 10) == ("fourier_0", "fourier_1", "fourier_2")
    assert names_after(steps[:1], None, 10) is None


def test_entries_that_become_zero_are_no_longer_stored():
    X = csr_array(np.array([[-3.0, 0, 2], [0, -1, 0]]))
    result = apply(["clip(low=0)"], X)
    assert result.nnz == 1
    assert np.array_equal(result.toarray(), [[0, 0, 2], [0, 0, 0]])
    assert as_csr(result).nnz == 1
    assert X.nnz == 3, "the input keeps its own"
