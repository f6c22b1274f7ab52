"""The sections of a page on a fitted model, and on clusterings side by side."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.report.page import render
from sketchselect.workflow.tables import plain_value

Make = Callable[..., Any]


@pytest.fixture
def model() -> Make:
    """Return the record of a lasso path of five models on terms of six columns; the third one was chosen."""

    def make(**changes: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "task": "regression",
            "outputs": ["target"],
            "terms": ["ember", "beryl"],
            "coefficients": [[-12.5], [0.75]],
            "strengths": [-2.25, 1.5],
            "intercepts": [3.125],
            "n_terms": 2,
            "chosen_by": "4-fold cross-validation within one standard error",
            "explained": 0.875,
            "explained_held_out": 0.8125,
            "parameter": "alpha",
            "values": [4.0, 2.0, 1.0, 0.5, 0.25],
            "sizes": [0, 1, 2, 3, 5],
            "chosen": 2,
            "path_terms": ["ember", "beryl", "coral"],
            "path_lines": [[0, 0, 0], [-1, 0, 0], [-2.25, 1.5, 0], [-2.5, 1.75, 0.5], [-2.5, 2, 0.75]],
            "criteria": {"aic": [50.0, 30, 20, 15, 16], "bic": [50.0, 31, 21, 22, 25]},
            "cv_mean": [20.0, 9, 5.25, 5, 5.5],
            "cv_error": [1.0, 0.75, 0.5, 0.5, 0.5],
            "cv_folds": 4,
            "cv_rule": "1se",
            "expanded": False,
        }
        return {**fields, **changes}

    return make


@pytest.fixture
def page(bare_run: Make, model: Make, parse: Make) -> Make:
    """Return the parsed page of a run that ends with a model, and its text."""

    def make(**changes: Any) -> Any:
        html = render(*bare_run(model=model(**changes)))
        return parse(html), html

    return make


def clustering(columns: str, objective: float, nmi: Any = None, ari: Any = None, published: bool = False) -> Any:
    return {"columns": columns, "objective": objective, "nmi": nmi, "ari": ari, "published": published}


def ids(parsed: Any) -> set[str]:
    return {attrs["id"] for attrs in parsed.all("section") if "id" in attrs}


def test_the_first_words_are_what_the_model_explains(page: Make) -> None:
    parsed, _ = page()
    assert "2 of 4 columns explain 81.2 % of the target’s variance in held-out rows" in parsed.words
    parsed, _ = page(explained_held_out=None)
    assert "explain 87.5 % of the target’s variance in these rows" in parsed.words
    parsed, _ = page(explained_held_out=None, explained=None)
    assert "The target does not vary" in parsed.words
    parsed, _ = page(task="classification", outputs=["log odds of b against a"])
    assert "2 of 4 columns tell the two classes apart" in parsed.words
    parsed, _ = page(task="classification", outputs=["log odds of b against a"], family="binomial")
    assert "2 of 4 columns explain 81.2 % of the target’s deviance in held-out rows" in parsed.words
    rates = {"held_out": 0.0561, "fitted": 0.0498, "counted": False}
    parsed, _ = page(task="classification", outputs=["log odds of b against a"], misclassification=rates)
    assert "apart: 5.6 % of the predictions of held-out rows are expected to be wrong" in parsed.words
    assert "normal within classes; where they are not, more or fewer may be wrong" in parsed.words
    parsed, _ = page(task="classification", outputs=["a"], misclassification=rates | {"counted": True})
    assert "held-out rows are wrong" in parsed.words
    parsed, _ = page(n_terms=1, expanded=True)
    assert "1 term of 4 columns explains" in parsed.words
    _, html = page()
    assert 'class="card hero"' in html, "a fit is no guarantee"


def test_every_section_has_its_figures(page: Make) -> None:
    parsed, html = page()
    assert {"model", "path", "validation", "criteria"} <= ids(parsed)
    labels = {attrs["aria-label"] for attrs in parsed.all("svg")}
    assert {
        "Line chart of the coefficients along the regularisation path",
        "Line chart of the cross-validation error along the path",
    } <= labels
    for text in ("−12.5", "0.75", "−2.25", "3.125", "ember", "beryl", "coral", "from 5 models", "(alpha) of 1"):
        assert text in parsed.words, text
    assert "The smallest mean error is 5, with 3 columns" in parsed.words
    assert "chosen model, with 2 columns: the sparsest model within one standard error of the best" in parsed.words
    # BIC agrees with the choice of the third model, AIC and the folds prefer the fourth.
    assert "BIC ✓ 2 1 21 21" in parsed.words.replace("\u00a0", " ")
    assert "✓ marks a criterion that is smallest for the chosen model." in parsed.words
    assert "grey bars are negative" in parsed.words
    assert "AIC 3 0.5 15 20" in parsed.words
    assert "4-fold error 3 0.5 5 5.25" in parsed.words
    assert len(html) < 600_000


def test_legends_are_of_what_is_drawn(page: Make) -> None:
    parsed, _ = page(chosen=1)
    assert "✓" not in parsed.words
    assert "None of them is smallest for the chosen model." in parsed.words
    parsed, _ = page(
        outputs=["a", "b"], coefficients=[[1.0, 2.0], [1.0, -2.0]], strengths=[2.0, 1.0], intercepts=[0.0, 0.0]
    )
    assert "grey bars" not in parsed.words
    assert "per sd, of all" in parsed.words
    assert "“of all” is the root of the sum of squares over all outputs" in parsed.words


def test_what_is_not_there_is_left_out(page: Make) -> None:
    alone = {
        "values": [3.0],
        "sizes": [2],
        "chosen": 0,
        "parameter": "n_features",
        "path_lines": [[-2.25, 1.5, 0]],
        "criteria": {"aic": [np.nan]},
        "cv_mean": None,
        "cv_error": None,
        "chosen_by": "the number of columns asked for",
    }
    parsed, _ = page(**alone)
    assert ids(parsed).isdisjoint({"path", "validation", "criteria"})
    assert "model" in ids(parsed)
    empty = {"terms": [], "coefficients": np.zeros((0, 1)), "strengths": [], "n_terms": 0}
    parsed, _ = page(**{**alone, **empty, "path_terms": []})
    assert "The model uses no column; it consists of its intercept." in parsed.words


def test_hostile_names_and_numbers(page: Make, parse: Make) -> None:
    evil = '</td><script>alert(1)</script>"\u202e'
    parsed, html = page(
        terms=[evil, "x" * 500],
        path_terms=[evil, "b", "c"],
        outputs=[evil],
        chosen_by=evil,
        coefficients=[[np.inf], [np.nan]],
        strengths=[1e300, -1e-300],
        intercepts=[-np.inf],
        cv_mean=[1e200, 1e100, 1.0, 1.0, 1.0],
        cv_error=[0.0, 0, 0, 0, np.nan],
        values=[4e300, 2.0, 1.0, 0.5, 1e-300],
    )
    assert html.count("<script") == 1
    assert "\u202e" not in html
    assert parsed.all("script") == [{}]
    assert "x" * 100 not in html


def test_lines_are_few_and_small(page: Make) -> None:
    many = np.random.default_rng(0).standard_normal((1000, 30))
    parsed, html = page(
        values=np.geomspace(10, 0.01, 1000),
        sizes=np.arange(1000),
        path_terms=[f"column {j}" for j in range(30)],
        path_lines=many,
        criteria={},
        cv_mean=np.linspace(5, 1, 1000),
        cv_error=np.full(1000, 0.1),
    )
    assert len(html) < 600_000
    assert "The 20 next strongest are in grey." in parsed.words


def test_a_run_read_back_gives_the_same_page(bare_run: Make, model: Make) -> None:
    compared = [clustering("selected columns", 12.5, published=True), clustering("all columns", 12.0)]
    for changes in ({}, {"intercepts": [-np.inf]}, {"terms": [], "coefficients": np.zeros((0, 1)), "strengths": []}):
        run = bare_run(
            model=model(**changes), compared=compared, diagnostics={"sigma_min": 0.5, "n_added": 2, "algorithm": None}
        )
        stored = [json.loads(json.dumps(plain_value(content), allow_nan=False)) for content in run]
        assert render(*stored).replace("−∞", "–") == render(*run).replace("−∞", "–")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"chosen": 5}, "chosen"),
        ({"sizes": [1, 2]}, "sizes"),
        ({"strengths": [1.0]}, "strengths"),
        ({"coefficients": [[1.0]]}, "coefficients"),
        ({"cv_mean": [1.0]}, "cv_mean"),
        ({"criteria": {"aic": [1.0]}}, "aic"),
        ({"path_lines": [[1.0]]}, "path_lines"),
    ],
)
def test_contradictions_are_refused(bare_run: Make, model: Make, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        render(*bare_run(model=model(**changes)))


def test_clusterings_side_by_side(full_run: Make, parse: Make) -> None:
    compared = [
        clustering("selected columns", 10.671, 0.5123, 0.41, published=True),
        clustering("selected columns, weighted", 11.2, 0.601, 0.5),
        clustering("all <columns>", 10.671 * (1 - 1e-12), 0.7, 0.6),
    ]
    parsed = parse(render(*full_run(compared=compared)))
    assert "compared" in ids(parsed)
    assert "selected columns (published) 10.671 the lowest 0.512 0.410" in parsed.words
    assert "selected columns, weighted 11.2 +4.96 % 0.601 0.500" in parsed.words
    assert "all <columns> 10.671 the lowest" in parsed.words
    assert "compared" not in ids(parse(render(*full_run(compared=compared[:1]))))


def test_a_method_s_own_certificate_is_put_into_words(full_run: Make, parse: Make) -> None:
    told = {"factor_before_clustering": 5.1391, "sigma_min": 0.9030544, "n_iterations": 28, "proven_factor": None}
    words = parse(render(*full_run(diagnostics=told))).words
    assert "at most 5.140 times as much as the best possible one" in words
    assert "sigma min 0.903054" in words
    assert "n iterations 28" in words
    assert "Proven for these columns" not in parse(render(*full_run(diagnostics={"ridge": 2.0}))).words
    assert 'id="diagnostics"' not in render(*full_run())


def test_the_page_says_why_a_model_has_no_p_values(bare_run: Make, model: Make) -> None:
    assert "no p-values" in render(*bare_run(model=model()))
    manifest, selection, figures = bare_run(model=model())
    selection |= {"columns": {"standard_errors": [1.0] * len(selection["scores"])}}
    assert "on all columns are in scores.csv" in render(manifest, selection, figures)


def test_the_page_says_of_which_columns_the_coefficients_are(bare_run: Make, model: Make) -> None:
    manifest, selection, figures = bare_run(model=model())
    assert "prepared column" not in render(manifest, selection, figures)
    html = render(manifest, selection, figures | {"prepare": ["impute", "<standardise>"]})
    assert "units of the prepared columns (steps: impute, &lt;standardise&gt;)" in html
