"""The page is self-contained, well-formed, the same every time, and says what the record says."""

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.passing import succeed

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter
from sketchselect.report.page import render

from .certificates import certificate
from .conftest import agreement, run_of, stage

BESIDE = ("selection.json", "scores.csv")
"""Files that a run leaves beside the page."""


def section(page, html, name):
    """Return the visible words of the section with this id."""
    start = html.index(f'id="{name}"')
    return page("<section " + html[start : html.index("</section>", start)] + "</section>").words


def drawn_points(html):
    """Return the (x, y) of every zero-length stroke in the scatter's cluster colours."""
    figure = html[html.index('id="scatter"') :]
    figure = figure[: figure.index("</svg>")]
    paths = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--(c\d|accent|other)\)', figure)
    return [(colour, dot) for data, colour in paths for dot in re.findall(r"M[\d.-]+ [\d.-]+h0", data)]


def test_page_loads_nothing_and_runs_its_own_script_alone(full_run, parse):
    html = render(*full_run())
    page = parse(html)
    policy = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == [f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"]
    assert page.all("script") == [{}]
    assert script == re.findall(r"<script>(.*?)</script>", render(*full_run(title="other")), re.DOTALL)[0]
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "iframe", "object", "embed", "base", "form", "video", "audio", "foreignobject"}
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,", *BESIDE))
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)\)", html))
    assert not re.search(r"https?:", html), "not even a namespace"


def test_ids_are_unique_and_every_reference_has_its_target(full_run, parse):
    html = render(*full_run())
    ids = [attributes["id"] for _, attributes in parse(html).elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:href=\"|url\()#([^\")]+)", html)) <= set(ids)


def test_figures_have_a_name_and_a_caption(full_run, parse):
    html = render(*full_run())
    page = parse(html)
    assert len(page.all("svg")) == 3
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert svg["aria-label"]
    assert all(image["alt"] for image in page.all("img"))
    assert len(page.all("figure")) == len(page.all("figcaption")) == 4


def test_no_stand_in_colour_is_left_and_every_variable_is_defined(full_run):
    html = render(*full_run())
    assert not re.search(r"#0[1-7]0b0c|#0c0d\d\d", html)
    defined = set(re.findall(r"(--[a-z0-9-]+):", html))
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", html)) <= defined


def test_same_run_same_bytes(full_run):
    assert render(*full_run()) == render(*full_run())


@pytest.mark.slow
def test_bytes_do_not_depend_on_process_or_user_style(bare_run, tmp_path):
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: red\nsvg.hashsalt: mine\nfont.size: 30\n")
    content = json.dumps(bare_run())
    program = (
        "from sketchselect.report.page import render; import hashlib, json, sys;"
        "print(hashlib.sha256(render(*json.loads(sys.argv[1])).encode()).hexdigest())"
    )
    digests = {
        succeed(sys.executable, "-c", program, content, cwd=folder).stdout for folder in (tmp_path, tmp_path.parent)
    }
    assert len(digests) == 1


def test_drawing_leaves_the_users_matplotlib_settings_alone(full_run):
    import matplotlib

    with matplotlib.rc_context({"font.size": 31.0}):
        render(*full_run())
        assert matplotlib.rcParams["font.size"] == 31.0


def test_order_of_the_sections(full_run, parse):
    page = parse(render(*full_run()))
    ids = [attributes["id"] for tag, attributes in page.elements if tag == "section" and "id" in attributes]
    before, after = ["spectrum", "scores", "image", "features", "clusters"], ["labels", "timings", "settings", "job"]
    assert ids == [*before, "scatter", *after]


def test_what_was_done_and_what_is_proven(full_run, parse):
    words = parse(render(*full_run())).words
    assert "From a matrix of 40 rows and 6 columns (prepared: l2), 2 columns were selected" in words
    assert "Proven: at most 6.8 % worse than the best possible clustering" in words, "6.71 % must not be rounded down"
    assert "A note of its own." in words
    assert "One column is constant." in words


def test_best_certificate_is_the_rigorous_one(full_run, parse):
    certificates = [
        certificate("sample", 1.05, 9.5, 10.0, confidence=0.99),
        certificate("spectral", 3.0, 10 / 3, 10.0),
        certificate("blocks", 1.25, 8.0, 10.0),
    ]
    words = parse(render(*full_run(certificates=certificates))).words
    assert "Proven: at most 25.0 % worse" in words
    assert "with 99.0 % confidence" in words
    assert "With 99.0 % confidence it is at most 1.050 times the best." in words
    assert "; at most 5.0 % worse than the best possible clustering with 99.0 % confidence" in words
    words = parse(render(*full_run(certificates=certificates[:1]))).words
    assert "With 99.0 % confidence: at most 5.0 % worse" in words
    assert "Proven" not in words


@pytest.mark.parametrize(
    ("scatter", "statement", "is_green"),
    [
        (20.0, "Proven: at least 90 % of what 3 clusters can gain over a single one", True),
        (11.2, "Little is proven of these clusters: 16.6 % of the possible gain", False),
        (10.9, "Little is proven of these clusters: 0 % of the possible gain", False),
        (None, "Proven: at most 10.0 % worse", False),
    ],
)
def test_the_headline_and_its_colour_go_by_the_proved_share(full_run, parse, scatter, statement, is_green):
    proof = certificate("spectral", 1.1, 10.0, 11.0, scatter=scatter)
    page = parse(render(*full_run(certificates=[proof])))
    assert statement in page.words
    assert ("card hero proven" in {attributes.get("class") for _, attributes in page.elements}) == is_green


def test_a_share_that_random_labels_have_too_is_not_green(full_run, parse):
    proof = certificate("spectral", 1.1, 10.0, 11.0, scatter=20.0)
    proof = replace(proof, details={"n_rows": 4})  # 20 / 10 * 2 / 3: all of the gain
    page = parse(render(*full_run(certificates=[proof])))
    assert (
        "Little is proven of these clusters: 90 % of the possible gain, and labels drawn at random have" in page.words
    )
    assert "card hero proven" not in {attributes.get("class") for _, attributes in page.elements}


def test_tables_show_the_numbers_of_the_run(full_run, parse):
    html = render(*full_run())
    assert re.search(r"1 1 beryl 3.25 2 4 ember 2.5", section(parse, html, "features"))
    assert "coral" not in html, "only selected columns are listed"
    assert "0 14 35.0 % 1 13 32.5 % 2 13 32.5 %" in section(parse, html, "clusters")
    labels = section(parse, html, "labels")
    assert "0.512 0.623" in labels
    assert "0.410 0.500" in labels
    assert "0.575 –" in labels
    # clusters 1 and 2 hold mostly "odd", cluster 0 mostly "even"
    assert "label \\ cluster 0 1 2 all even 10 1 11 odd 4 13 12 29" in labels
    timings = section(parse, html, "timings")
    assert f"summarise 2.00 s {format_bytes(3 * 2**20)} {format_bytes(3 * 2**19)}/s" in timings
    assert "select 500 ms – –" in timings or "select 0.50 s – –" in timings
    settings = section(parse, html, "settings")
    assert "execution.n_workers 2" in settings
    assert "numpy 2.0.0" in settings
    html = render(*full_run(settings={"engine": {"memory_limit": 3 * 2**29, "n_bytes_ago": 1, "on": True}}))
    assert f"engine.memory_limit {format_bytes(3 * 2**29)}" in section(parse, html, "settings")
    assert "engine.on True" in section(parse, html, "settings")


def test_job_file_can_be_copied_exactly(full_run, parse):
    text = "[input]\nurl = \"a&b<c>.zarr\"\n\tkey = 'x'\n"
    html = render(*full_run(job_text=text))
    assert html.count('<pre tabindex="0">') == 1
    shown = parse(html[html.index("<pre tabindex=") : html.index("</pre>") + 6]).text
    assert "".join(shown) == text


@pytest.mark.parametrize("n", [200, 6000])
def test_every_row_is_a_dot(bare_run, n):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 13, n)
    html = render(*bare_run(n_rows=n, points=rng.normal(size=(n, 2)), point_labels=labels))
    dots = drawn_points(html)
    assert len(dots) == n
    for colour in range(10):
        assert sum(c == f"c{colour}" for c, _ in dots) == int((labels % 10 == colour).sum())


def test_every_selected_column_is_marked(bare_run):
    scores = np.arange(50.0, 0.0, -1.0)
    support = [0, 7, 31]
    html = render(*bare_run(n_columns=50, scores=scores, support=support))
    figure = html[html.index('id="scores"') : html.index("</svg>")]
    marked = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--accent\)', figure)
    others = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--other\)', figure)
    bars = [m for data in marked for m in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", data)]
    every = [m for data in others for m in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", data)]
    assert len(bars) == 3
    assert len(every) == 50
    assert [every[i] for i in support] == bars, "a marked bar lies on the bar of its column"
    heights = [float(bottom) - float(top) for _, bottom, top in bars]
    assert np.allclose(np.array(heights) / heights[0], scores[support] / scores[0], atol=0.01)
    assert "not choose by the score alone" in html
    assert "1 of the 3" in html


def test_cut_is_drawn_where_the_selection_follows_the_scores(bare_run):
    assert "cut after 2" in render(*bare_run())
    assert "cut after" not in render(*bare_run(support=[0, 3]))


def test_spectrum_band_is_as_wide_as_the_shrinkage_says(bare_run):
    """Read the band's polygon back: sqrt(s^2 + shrinkage) above each s, in the same scale."""
    s, shrinkage = np.array([5.0, 4.0, 3.0]), 9.0
    html = render(*bare_run(singular_values=s, shrinkage=shrinkage))
    figure = html[html.index('id="spectrum"') : html.index("</svg>")]
    band = re.search(r'd="(M[^"]*)"[^>]*fill: var\(--band\)', figure)
    corners = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", band[1]), dtype=float)
    line = re.search(r'd="(M[^"]*)"[^>]*stroke: var\(--accent\); stroke-width: 1.2', figure)
    dots = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", line[1]), dtype=float)
    slope = (dots[1, 1] - dots[0, 1]) / (s[1] - s[0])
    for (x, y), value in zip(dots, s, strict=True):
        highest = corners[np.isclose(corners[:, 0], x, atol=0.11)][:, 1].min()
        assert (highest - y) / slope == pytest.approx(np.hypot(value, 3.0) - value, abs=0.03)
    assert "√(s² + 9)" in figure + html


def test_run_whose_parts_contradict_each_other_is_refused(full_run):
    for changes, named in (
        ({"scores": [1.0]}, "scores"),
        ({"support": [6]}, "support"),
        ({"support": [-1]}, "support"),
        ({"feature_names": ["a"]}, "feature_names"),
        ({"weights": [1.0]}, "weights"),
        ({"points": np.zeros((3, 3)), "point_labels": None}, "points"),
        ({"point_labels": [0]}, "point_labels"),
        ({"image_shape": (4, 4)}, "image_shape"),
        ({"centres": np.zeros((3, 2))}, "centres"),
        ({"known_labels": agreement([[1, 2]], ["a", "b"], 0.0, 0.0, 0.0)}, "known_labels"),
    ):
        with pytest.raises(BadParameter, match=named):
            render(*full_run(**changes))


def test_the_longest_stage_with_passes_says_how_they_spent_their_time(full_run, parse):
    stages = [
        stage("summarise", 2.0, 3, {"read": 1.0, "kernel": 2.5, "wait": 0.5}),
        stage("write", 1.0, 3, {"read": 1.0}),
        stage("select", 9.0),
        stage("resumed", 9.0, 0, {"wait": 9.0}),
    ]
    words = section(parse, render(*full_run(stages=stages)), "timings")
    assert "Passes of “summarise”: reading and decoding 25.0 %, computing 62.5 %, waiting 12.5 %." in words
    assert "Passes of" not in section(parse, render(*full_run(stages=stages[2:])), "timings")


def test_one_column_is_enough():
    run = run_of(title="t", n_rows=1, n_columns=1, method="m", scores=[0.0], support=[0])
    assert "1 column was selected" in render(*run)


def test_stages_of_several_rounds_are_listed_once(full_run, parse):
    stages = [stage("select", 1.0), stage("k-means", 2.0, 2**20), stage("select", 3.0), stage("k-means", 2.0, 2**20)]
    timings = section(parse, render(*full_run(stages=stages)), "timings")
    assert timings.count("select") == 1
    assert f"select (2 times) 4.00 s – – k-means (2 times) 4.00 s {format_bytes(2**21)}" in timings


def test_clusters_name_their_highest_columns_by_lift(full_run, parse):
    centres = np.zeros((3, 6))
    centres[:, [1, 4]] = [[4.0, 1.0], [1.0, 1.0], [1.0, 7.0]]
    away = [[1.5, -0.5], [-0.7, -0.5], [-0.7, 1.2]]
    run = full_run(cluster_weights=[20, 10, 10], centres=centres, profiles=away)
    # The means of all rows are 2.5 and 2.5: 4 / 2.5 and 7 / 2.5.
    assert "beryl (1.6 ×) 1 10 25.0 % – 2 10 25.0 % ember (2.8 ×)" in section(parse, render(*run), "clusters")
    run = full_run(cluster_weights=[20, 10, 10], centres=centres - 3.0, profiles=away)
    assert "beryl (+1.5 sd) 1" in section(parse, render(*run), "clusters"), "negative values have no lift"


def test_a_rare_column_of_one_cluster_is_not_before_those_of_the_whole_cluster(full_run, parse):
    centres = np.zeros((3, 6))
    centres[2, 1], centres[:, 4] = 0.01, [0.1, 0.1, 3.0]
    run = full_run(cluster_weights=[20, 10, 10], centres=centres, profiles=[[-0.5, -0.5], [-0.5, -0.5], [0.6, 1.5]])
    # The lift of the first is 40 / 10, as large as any; the mean of the second is 0.825.
    assert "2 10 25.0 % ember (3.6 ×), beryl (4.0 ×)" in section(parse, render(*run), "clusters")


def test_profiles_have_columns_of_every_cluster(full_run, parse):
    away = np.zeros((3, 40))
    away[0] = 5.0 + np.arange(40)[::-1] / 100
    away[1, [20, 21, 22]] = [0.5, 0.7, 0.6]
    away[2, 30] = -1.0
    fields = {"n_columns": 40, "scores": np.ones(40), "support": range(40), "feature_names": None, "image_shape": None}
    html = render(*full_run(**fields, profiles=away))
    names = re.findall(r"<th><bdi>column (\d+)</bdi>", html[html.index('id="profiles"') :])
    assert len(names) == 15
    assert {"0", "21", "22", "20", "30"} <= set(names)
    assert names[0] == "0"
    assert [name for name in names if name in {"20", "21", "22"}] == ["21", "22", "20"]


def test_the_curve_marks_the_proved_number_of_columns(full_run, parse):
    curve = {"method": ["greedy"] * 3, "n_features": [1, 2, 4], "ratio": [1.5, 1.1, 1.0], "low": [1.4, 1.0, 1.0]}
    curve["high"] = [1.6, 1.2, 1.0]
    diagnostics = {"curve": curve, "choice": "2 columns", "sampled_rows": 40, "largest_objective": 5.0}
    html = render(*full_run(method="greedy", diagnostics=diagnostics))
    assert "2 columns, proved" in section(parse, html, "curve")
    assert re.search(r"<details><summary>For the mathematically inclined", html[html.index('id="diagnostics"') :])
    del diagnostics["largest_objective"]
    assert "2 columns, chosen" in section(parse, render(*full_run(method="greedy", diagnostics=diagnostics)), "curve")


TESTS = {
    "effects": [0.5, -2.0, 0.1, None, 3.0, 1.0],
    "confint_low": [0.25, -2.5, -0.125, None, 2.5, 0.5],
    "confint_high": [0.75, -1.5, 0.375, None, 3.5, 1.5],
    "log_pvalues": [-5.0, -1000.0, -0.5, None, -2000.0, -np.inf],
    "qvalues": [0.01, 0.0, 0.6, None, 0.0, 0.0],
}


def test_tests_of_columns_are_drawn_by_the_logarithms_of_p_values(full_run, parse):
    assert 'id="volcano"' not in render(*full_run())
    html = render(*full_run(columns=TESTS, support=[1, 4, 5], diagnostics={"effect": "difference of <b> & $c$"}))
    words, table = section(parse, html, "volcano"), section(parse, html, "features")
    assert "difference of <b> & $c$" in words
    assert "1 with a p-value of 0 are at the upper edge" in words
    assert "1 without a test are left out" in words
    assert {"beryl", "ember", "flint"} <= set(words.split())
    figure = html[html.index('id="volcano"') :]
    figure = figure[: figure.index("</svg>")]
    (chosen,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--accent\)', figure)
    dots = np.array([[float(x), float(y)] for x, y in re.findall(r"M([\d.-]+) ([\d.-]+)h0", chosen)])
    (grey,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--other\)', figure)
    base = max(float(y) for _, y in re.findall(r"M([\d.-]+) ([\d.-]+)h0", grey))
    # Twice the logarithm is twice as high, below the smallest float too; by falling significance, and y goes down.
    heights = base - dots[:, 1]
    assert heights[1] == pytest.approx(2 * heights[2], rel=0.01)
    assert heights[0] > heights[1]
    assert dots[2, 0] < dots[0, 0] < dots[1, 0]
    assert "−2 −2.5 to −1.5 5.1 × 10⁻⁴³⁵ below" in table
    assert "95 % interval" in table
