"""Text from outside cannot break out of the page, hide, turn it around or blow it up; odd numbers do not stop it."""

import unicodedata

import numpy as np
import pytest

from sketchselect._byte_sizes import format_bytes
from sketchselect.report.page import render

from .certificates import certificate as proof
from .conftest import agreement, stage

LIMIT = 600_000
ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</pre></section></main><h1>pwned</h1>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% for x in y %}",
    "</style><style>body{display:none}</style>",
    "<!-- --><![CDATA[ ]]>",
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "&lt;b&gt;&amp;",
    "\u202egnp.exe\u202c\u2066x\u2069",
    "a\x00b\x1b[31mred\x07",
    "zero\u200bwidth\ufeff",
    "lone \ud800 surrogate",
    "line\u2028and\u2029paragraph",
    "الاسم العربي",
    "𝕱𝖊𝖆𝖙𝖚𝖗𝖊 ☃ 特徴",
]


def everywhere(full_run, text):
    """Return a record with `text` in every place that takes text."""
    return full_run(
        title=text,
        method=text,
        job_text=text,
        prepare=[text],
        method_parameters={text: text},
        feature_names=[text] * 6,
        certificates=[proof(text, 1.5, 2.0, 3.0, note=text)],
        known_labels=agreement([[1, 2, 3]], [text], 0.5, 0.5, 0.5),
        stages=[stage(text, 1.0, 10)],
        versions={text: text},
        settings={text: {text: text}},
        notes=[text],
    )


@pytest.fixture(scope="module")
def harmless(full_run, parse):
    return parse(render(*everywhere(full_run, "x")))


@pytest.mark.share(9)
@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_text_stays_text(full_run, parse, harmless, attack):
    html = render(*everywhere(full_run, attack))
    page = parse(html)

    # The attack changes neither the elements nor their attributes (a key may be broken after "." and "_").
    def shape(p):
        return [(tag, sorted(attributes)) for tag, attributes in p.elements if tag != "wbr"]

    assert shape(page) == shape(harmless)
    html.encode("utf-8")
    assert "49" not in page.words.split("{{")[0] if "{{" in attack else True
    bad = {c for c in html if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n", "\t"}
    assert not bad


def test_visible_text_is_shown_as_it_is(full_run, parse):
    words = parse(render(*everywhere(full_run, "<b>a & b</b>"))).words
    assert words.count("<b>a & b</b>") >= 10


@pytest.mark.parametrize("text", ["x" * 10_000_000, "<" * 10_000_000, "名" * 10_000_000, "&\u202e" * 5_000_000])
def test_ten_megabytes_of_name_do_not_reach_the_page(full_run, text):
    html = render(*everywhere(full_run, text))
    assert len(html.encode()) < LIMIT
    assert "…" in html


def test_many_of_everything_stays_small(full_run, parse):
    rng = np.random.default_rng(1)
    d, n, k = 100_000, 5_000, 500
    labels = rng.integers(0, k, n)
    centres = rng.normal(size=(k, 2)) * 20
    record = full_run(
        n_rows=2_000_000,
        n_columns=d,
        scores=rng.exponential(size=d) ** 3,
        support=np.sort(rng.choice(d, 5_000, replace=False)),
        weights=rng.random(5_000),
        feature_names=[f"<gene & number {i}>" * 5 for i in range(d)],
        singular_values=np.sort(rng.exponential(size=800))[::-1],
        cluster_weights=np.bincount(labels, minlength=k),
        points=centres[labels] + rng.normal(size=(n, 2)),
        point_labels=labels,
        centres_2d=centres,
        image_shape=(400, 250),
        known_labels=agreement(rng.integers(0, 90_000, (300, k)), ["<c>" * 99] * 300, 0.1, 0.1, 0.1),
        stages=[stage("<s>" * 99, 1.0, 10)] * 30,
        versions={f"v{i}": "<" * 9_000 for i in range(20)},
        settings={f"s{i}": 0 for i in range(3_000)},
        notes=["<note>" * 50] * 10_000,
        job_text="a = 1\n" * 100_000,
    )
    html = render(*record)
    assert len(html.encode()) < LIMIT
    words = parse(html).words
    assert "and 9900 more" in words
    assert "one bar stands for about 250 columns" in words
    assert "460 smaller clusters" in words
    assert "Only the 30 largest of 300 classes and 500 clusters" in words
    assert "Colours repeat after ten" in words


def test_no_clustering(bare_run, parse):
    html = render(*bare_run(singular_values=[2.0, 1.0], points=[[0.0, 1.0], [2.0, 3.0]]))
    page = parse(html)
    assert "2 columns of 4 selected" in page.words
    assert 'id="clusters"' not in html
    assert "not clustered" in html


def test_one_cluster_and_empty_clusters(full_run, parse):
    words = parse(render(*full_run(cluster_weights=[40], point_labels=[0] * 40, centres_2d=[[0.0, 0.0]]))).words
    assert "0 40 100.0 %" in words
    assert "1 cluster " in words
    words = parse(render(*full_run(cluster_weights=[40, 0, 0]))).words
    assert "2 of the clusters are empty." in words


def test_weights_need_not_be_whole(full_run, parse):
    words = parse(render(*full_run(cluster_weights=[1.25, 2.5, 0.25]))).words
    assert "0 1.25 31.2 %" in words or "0 1.25 31.3 %" in words


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (np.zeros(6), "All scores are equal"),
        (np.full(6, 1e-300), "All scores are equal"),
        (np.full(6, np.nan), "No column has a score."),
        (np.array([1.0, np.nan, np.inf, -np.inf, 2.0, 3.0]), "3 columns have no score"),
        (np.array([-5.0, -1.0, -2.0, 3.0, 0.0, 1e-300]), "2 columns"),
        (np.array([1e300, 1e-300, 1.0, 0.0, 1e150, 1e10]), "2 columns"),
        (np.array([1e15, 1e15 + 1, 1e15 + 2, 1e15 + 3, 1e15, 1e15]), "2 columns"),
    ],
    ids=range(7),
)
def test_odd_scores(full_run, parse, scores, words):
    assert words in parse(render(*full_run(scores=scores))).words


@pytest.mark.share(8)
@pytest.mark.parametrize("values", [[0.0, 0.0], [3.0], [0.0], [], [np.nan, 1.0], [1e150, 1e-150], [1e-300, 1e-301]])
@pytest.mark.parametrize("shrinkage", [0.0, 4.0, 1e299])
def test_odd_spectra(bare_run, parse, values, shrinkage):
    html = render(*bare_run(scores=[np.nan] * 4, singular_values=values, shrinkage=shrinkage, squared_norm=0.0))
    assert ('id="spectrum"' in html) == bool(values)
    assert "nan" not in parse(html).words.lower()


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((5, 2)),
        np.array([[1.0, 2.0]]),
        np.zeros((0, 2)),
        np.array([[np.nan, 1.0], [1.0, 2.0]]),
        np.full((3, 2), np.nan),
        np.array([[1e300, -1e300], [-1e300, 1e300]]),
        np.array([[1e-300, 0.0], [0.0, 1e-300]]),
    ],
    ids=range(7),
)
def test_odd_points(bare_run, parse, points):
    labels = np.arange(len(points)) - 1
    page = parse(render(*bare_run(scores=[np.nan] * 4, points=points, point_labels=labels, cluster_weights=[5, 4])))
    assert "nan" not in page.words.lower()
    parse(render(*bare_run(scores=[np.nan] * 4, points=points)))


def test_single_column_and_nothing_selected(bare_run, parse):
    words = parse(render(*bare_run(n_columns=1, scores=[2.0], support=[0]))).words
    assert "1 column was selected" in words
    assert "Every column is selected." in words
    words = parse(render(*bare_run(support=[]))).words
    assert "No column was selected." in words


@pytest.mark.parametrize(
    ("certificate", "statement"),
    [
        (proof("spectral", np.inf, 0.0, 5.0), "No guarantee could be proven"),
        (proof("spectral", np.nan, np.nan, 5.0), "No certificate"),
        (proof("spectral", 1.0, 0.0, 0.0), "This clustering is the best possible"),
        (proof("spectral", np.inf, 0.0, 0.0, note="Squares vanish."), "Squares vanish."),
        (proof("spectral+drop", 1.1, 1.00009, 1.10001), "below 1. This clustering"),
        (proof("spectral+drop", 1.1, 1.00009, 1.10001), "has at most 1.101: at most"),
        (proof("blocks", 1.1, 1.0, 1.1, 0.99999), "With 99.999 % confidence"),
        (proof("spectral", 1.0, 5.0, 5.0), "at most 0.0 % worse"),
        (proof("spectral", 1.0 - 1e-12, 5.0, 5.0), "at most 0.0 % worse"),
        (proof("spectral", 1.00001, 5.0, 5.00005), "at most 0.1 % worse"),
        (proof("spectral", 2.7182, 1.0, 2.7182), "at most 2.719 times the cost"),
        (proof("spectral", 1e30, 1e-30, 1.0), "at most 1 × 10³⁰ times the cost"),
    ],
    ids=range(12),
)
def test_odd_certificates(full_run, parse, certificate, statement):
    assert statement in parse(render(*full_run(certificates=[certificate]))).words


def test_empty_contingency_and_zero_seconds(full_run, parse):
    known = agreement(np.zeros((2, 3)), ["a", "b"], np.nan, 0.0, 0.0)
    page = parse(render(*full_run(known_labels=known, stages=[stage("instant", 0.0, 5)])))
    assert "nan" not in page.words.lower()
    assert f"instant 0 ms {format_bytes(5)} –" in page.words
