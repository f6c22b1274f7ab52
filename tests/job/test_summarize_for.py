"""``summarize --for METHOD``: the summary that ``select --method METHOD`` needs, for every method there is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.estimator_checks import target_for

import sketchselect as sks
from sketchselect.selectors import METHODS
from sketchselect.summaries import load

from .commands import cli, refused, works

Job = Callable[..., dict[str, Any]]


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """Return a folder with whole numbers, as every method takes them, and a target."""
    rows = np.random.default_rng(0).poisson(np.linspace(0.5, 9, 12), (200, 12)).astype(float)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "y.npy", rows[:, 3] - 2 * rows[:, 7] + np.random.default_rng(1).standard_normal(200))
    return tmp_path


def support(path: Path) -> list[int]:
    return list(json.loads(path.read_text())["support"])


@pytest.mark.share(8)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_select_finds_all_that_it_needs_and_the_columns_of_a_fit(counts: Path, method: str) -> None:
    cls = METHODS[method]
    np.save(counts / "y.npy", target_for(method, np.load(counts / "y.npy")))
    words = ["--target", counts / "y.npy"] if cls.needs_target else []
    file, out = counts / "a.sks", counts / "a.json"
    done = works("summarize", counts / "rows.npy", "-o", file, "--for", method, "--scheduler", "serial", *words)
    assert f"{method} needs, " in done.stdout
    selector = cls(**{name: 4 for name in ("n_features_to_select",) if name in cls().get_params()})
    number = ["--n-features", 4] if "n_features_to_select" in cls().get_params() else []
    seeded = "random_state" in cls().get_params()
    seed = ["--set", "random_state=0"] if seeded else []
    selector.set_params(**({"random_state": 0} if seeded else {}))
    done = works("select", file, "--method", method, "-o", out, *number, *seed)
    assert "asks for rows prepared" not in done.stdout
    target: NDArray[Any] | None = np.load(counts / "y.npy") if cls.needs_target else None
    if method == "auto-target":  # of few rows a fit compares by blocks, which files of other sites would not have
        assert support(out) == selector.fit_summary(load(file)).support_.tolist()
    else:
        assert support(out) == selector.fit(np.load(counts / "rows.npy"), target).support_.tolist()


def test_auto_with_a_target_is_that_for_targets_and_its_choice_is_printed(counts: Path) -> None:
    source = ("summarize", counts / "rows.npy", "--target", counts / "y.npy", "--scheduler", "serial")
    done = works(*source, "-o", counts / "a.sks", "--for", "auto")
    assert "--method auto-target" in done.stdout
    done = works("select", counts / "a.sks", "--method", "auto-target", "-o", counts / "a.json")
    assert "predicts best" in done.stdout
    refused(cli("select", counts / "a.sks", "--method", "auto", "-o", counts / "a.json"), 1, "--method auto-target")


def test_options_that_are_parameters_of_the_method_are_its_own(counts: Path) -> None:
    words = ("--scheduler", "serial", "--for", "greedy", "--size", 8, "--half-life", 50)
    works("summarize", counts / "rows.npy", "-o", counts / "a.sks", *words)
    parameters = {"sketch_size": 8, "half_life": 50.0}
    selector: Any = sks.selectors.GreedySelector(3, **parameters)
    assert load(counts / "a.sks") == selector.collect(np.load(counts / "rows.npy"))


def test_steps_of_the_method_follow_those_of_the_command(counts: Path) -> None:
    words = ("--scheduler", "serial", "--for", "greedy", "--prepare", "standardise")
    works("summarize", counts / "rows.npy", "-o", counts / "a.sks", *words)
    first, second = load(counts / "a.sks").prepare
    assert first.startswith("standardise")
    assert second == "l2"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--for", "gredy"), "'gredy'"),
        (("--for", "lasso"), "--target"),
        (("--for", "variance", "--size", 8, "--moments"), "--size, --moments"),
        (("--for", "greedy", "--half-life", -1), "half_life"),
        (("--for", "greedy", "--set", "about=mean", "--set", "about=zero"), "--set about=mean sets about too"),
        (("--for", "greedy", "--size", 8, "--set", "sketch_size=9"), "--size sets sketch_size too"),
        (("--for", "greedy", "--set", "n_features_to_select=3"), "--n-features"),
        (("--for", "greedy", "--after", 5), "--after: nothing of greedy that merges depends on row numbers"),
        (("--for", "online-leverage", "--after", 5), "--after: nothing of online-leverage that merges"),
    ],
)
def test_mistakes_are_named(counts: Path, words: tuple[object, ...], expected: str) -> None:
    refused(cli("summarize", counts / "rows.npy", "-o", counts / "a.sks", *words), 2, expected)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lasso", ("--target", "y")),
        ("auto-target", ("--target", "y")),
        ("laplacian-score", ("--set", "n_rows=60")),
        ("greedy", ("--half-life", 40)),
    ],
)
def test_files_whose_rows_are_numbered_on_merge_into_that_of_one_pass(
    counts: Path, method: str, options: tuple[object, ...]
) -> None:
    def write(name: str, rows: slice, *words: object) -> Path:
        for array in ("rows", "y"):
            np.save(counts / f"{name}-{array}.npy", np.load(counts / f"{array}.npy")[rows])
        given = [counts / f"{name}-y.npy" if option == "y" else option for option in options]
        words = ("--for", method, "--scheduler", "serial", *given, *words)
        works("summarize", counts / f"{name}-rows.npy", "-o", counts / f"{name}.sks", *words)
        return counts / f"{name}.sks"

    parts = [write(f"part{a}", slice(a, b), "--after", a) for a, b in ((0, 30), (30, 150), (150, 200))]
    works("merge", *parts, "-o", counts / "merged.sks")
    whole = write("whole", slice(None))
    number = ("--n-features", 4) if method in ("laplacian-score", "greedy") else ()
    sets = {"greedy": ("--set", "half_life=40"), "laplacian-score": ("--set", "n_rows=60")}.get(method, ())
    selections = []
    for file in (counts / "merged.sks", whole):
        works("select", file, "--method", method, "-o", counts / "a.json", *number, *sets)
        selections.append(json.loads((counts / "a.json").read_text()))
    a, b = selections
    assert a["support"] == b["support"]
    np.testing.assert_allclose(a["scores"], b["scores"], rtol=1e-9)
    if method == "lasso":
        merged, one = load(counts / "merged.sks"), load(whole)
        assert [fold.n_rows for fold in merged] == [fold.n_rows for fold in one]
        np.testing.assert_allclose(a["diagnostics"]["cv_error"], b["diagnostics"]["cv_error"], rtol=1e-9)


def test_folds_of_files_that_share_row_numbers_are_other_ones_and_hold_every_row_once(counts: Path) -> None:
    rows, y = np.load(counts / "rows.npy"), np.load(counts / "y.npy")
    selector: Any = METHODS["lasso"]()
    folds: Any = selector.collect(rows[:120], y[:120]).merge(selector.collect(rows[120:], y[120:]))
    number = folds.fold_of(np.r_[:120, :80].astype(np.uint64))
    assert [fold.n_rows for fold in folds] == np.bincount(number, minlength=5).tolist()
    assert [fold.n_rows for fold in folds] != [fold.n_rows for fold in selector.collect(rows, y)]


def test_medians_of_several_files_merge_where_their_rows_are_numbered_on(counts: Path) -> None:
    rows = np.load(counts / "rows.npy")
    for name, part in {"a": slice(0, 80), "b": slice(80, 200), "whole": slice(0, 200)}.items():
        np.save(counts / f"{name}.npy", rows[part])
        words = ("--prepare", "impute(by=median)", "--write-fitted", counts / f"{name}-medians.sks")
        after = ("--after", 80) if name == "b" else ()
        own = counts / f"{name}.sks"
        works(
            "summarize", counts / f"{name}.npy", "-o", own, "--for", "greedy", "--scheduler", "serial", *words, *after
        )
    works("merge", counts / "a-medians.sks", counts / "b-medians.sks", "-o", counts / "medians.sks")
    assert load(counts / "medians.sks") == load(counts / "whole-medians.sks")


def test_a_summary_that_lacks_something_leads_to_the_option(counts: Path) -> None:
    file = counts / "a.sks"
    works("summarize", counts / "rows.npy", "-o", file, "--scheduler", "serial")
    done = cli("select", file, "--method", "mcfs", "-o", counts / "a.json", "--n-features", 3)
    refused(done, 1, str(file), "summarize --for mcfs")


def test_a_summary_of_classes_leads_to_the_task(counts: Path) -> None:
    file, columns = counts / "a.sks", counts / "a.json"
    np.save(counts / "classes.npy", np.arange(len(np.load(counts / "rows.npy"))) % 3)
    options = ("--target", counts / "classes.npy", "--classes", "--folds", 5, "--scheduler", "serial")
    works("summarize", counts / "rows.npy", "-o", file, *options)
    words = ("select", file, "--method", "lasso", "-o", columns, "--n-features", 3)
    done = cli(*words)
    refused(done, 1, "(--set task=classification)")
    assert "makes what it needs" not in done.stderr
    works(*words, "--set", "task=classification")
    done = cli("select", file, "--method", "stability", "-o", columns, "--set", "task=classification")
    refused(done, 2, "summarize in 16 folds (--folds)")


def test_a_summary_without_a_target_leads_to_the_option_of_one(counts: Path) -> None:
    files = {"with": ("--target", counts / "y.npy"), "without": ()}
    for name, options in files.items():
        works("summarize", counts / "rows.npy", "-o", counts / f"{name}.sks", "--scheduler", "serial", *options)
    done = cli("select", counts / "without.sks", "--method", "knockoffs", "-o", counts / "a.json")
    refused(done, 1, "summarize --for knockoffs --target TARGET` makes what it needs")
    for order in (("with", "without"), ("without", "with")):
        done = cli("merge", *(counts / f"{name}.sks" for name in order), "-o", counts / "both.sks")
        refused(done, 1, f"{counts / 'without.sks'} was made without --target or --moments")


def test_knockoffs_take_the_moments_of_folds(counts: Path) -> None:
    supports = []
    for name, options in {"whole": (), "folds": ("--folds", 5)}.items():
        given = ("--target", counts / "y.npy", "--scheduler", "serial", *options)
        works("summarize", counts / "rows.npy", "-o", counts / f"{name}.sks", *given)
        works("select", counts / f"{name}.sks", "--method", "knockoffs", "-o", counts / "a.json", "--set", "fdr=0.5")
        supports.append(json.loads((counts / "a.json").read_text())["support"])
    assert supports[0] == supports[1]


@pytest.mark.slow
def test_sites_count_in_the_bins_of_the_first_and_their_files_merge(counts: Path) -> None:
    rows, y = np.load(counts / "rows.npy"), np.load(counts / "y.npy") > 0
    rows += np.random.default_rng(2).random(rows.shape)
    for i, part in enumerate((slice(90), slice(90, 200))):
        np.save(counts / f"rows{i}.npy", rows[part])
        np.save(counts / f"y{i}.npy", y[part].astype(int))
    score = ("--set", "score=wilcoxon")

    def summarize(site: int, *words: object, target: str = "y1.npy") -> Any:
        source = ("summarize", counts / f"rows{site}.npy", "-o", counts / f"{site}.sks", "--scheduler", "serial")
        return cli(*source, "--target", counts / target, "--for", "univariate", *score, *words)

    first = summarize(0, target="y0.npy")
    assert f"--method univariate {' '.join(score)}" in first.stdout
    assert "12 columns takes" in first.stderr
    files = counts / "0.sks", counts / "1.sks"
    assert summarize(1).exit_code == 0
    refused(cli("merge", *files, "-o", counts / "all.sks"), 1, "1.sks", f"bins={files[0]}")
    np.save(counts / "other.npy", np.full(110, 7))
    refused(summarize(1, "--set", f"bins={files[0]}", target="other.npy"), 1, "none of the 2 classes")
    np.save(counts / "ones.npy", np.ones(110, dtype=int))
    done = summarize(1, "--set", f"bins={files[0]}", target="ones.npy")
    assert done.exit_code == 0, "a site may lack a class"
    assert summarize(1, "--set", f"bins={files[0]}").exit_code == 0
    assert cli("merge", *files, "-o", counts / "all.sks").exit_code == 0
    out = ("--set", "mode=fwe", "-o", counts / "c.json")
    done = cli("select", counts / "all.sks", "--method", "univariate", *score, *out)
    assert done.exit_code == 0, done.output
    whole = sks.selectors.UnivariateSelector("wilcoxon", mode="fwe", bins=str(files[0])).fit(rows, y.astype(int))
    assert support(counts / "c.json") == whole.support_.tolist() != []
    assert json.loads((counts / "c.json").read_text())["columns"]["pvalues"] == whole.pvalues_.tolist()
    refused(cli("select", counts / "all.sks", "--method", "univariate", *out), 1, "groups or moments")


def test_a_setting_is_one_of_a_method(counts: Path) -> None:
    source = ("summarize", counts / "rows.npy", "-o", counts / "a.sks")
    refused(cli(*source, "--set", "score=f"), 2, "--set score=f", "--for")
    refused(cli(*source, "--for", "variance", "--set", "score=f"), 2, "'score'")
    refused(cli(*source, "--target", counts / "y.npy", "--for", "univariate", "--set", "score=g"), 2, "score")
    refused(cli(*source, "--target", counts / "y.npy", "--for", "univariate", "--set", "score"), 2, "NAME=VALUE")
