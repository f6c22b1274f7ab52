"""`[cluster] certificate = "auto"`, the default: all blocks where that is cheap, else some that no clock chooses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sketchselect as sks
from sketchselect.cluster.certificates import block
from sketchselect.errors import ConfigError, WillNotFit
from sketchselect.workflow.plan.forecast import forecast_job
from sketchselect.workflow.stages import evaluation

Job = Callable[..., dict[str, Any]]


@pytest.fixture
def sampled(job: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """A job of 18 blocks in two partitions, about ten of which are affordable."""
    monkeypatch.setattr(block, "LEAST_SECONDS", 3e-3)
    monkeypatch.setattr(block, "MOST_BLOCKS", 8)
    certificate = {"method": "auto", "block_rows": 16, "confidence": 0.9}

    def build(**execution: Any) -> dict[str, Any]:
        return job(cluster={"n_clusters": 6, "certificate": certificate}, execution=execution, output={"report": True})

    return build


def test_the_default_solves_all_blocks_of_a_small_job(job: Job) -> None:
    default, explicit = sks.run(job()), sks.run(job(cluster={"certificate": "blocks"}))
    spectral, blocks, _ = default.certificates
    assert (spectral.method, blocks.method, blocks.confidence) == ("spectral", "blocks", 1.0)
    assert blocks.lower_bound == explicit.certificates[1].lower_bound > spectral.lower_bound
    assert blocks.details["cost_share"] > 0
    assert not any("certificate" in note for note in default.manifest["notes"])
    # What the selected columns alone prove takes a pass of its own, which only "blocks" makes.
    assert "certificate_selected_columns" not in default.manifest
    assert "certificate_selected_columns" in explicit.manifest


def test_a_sample_is_said_and_is_never_shown_as_a_contradiction(sampled: Any) -> None:
    result = sks.run(sampled())
    spectral, blocks, drop = result.certificates
    assert blocks.confidence == 0.9
    assert 5 <= blocks.details["n_solved"] < blocks.details["n_blocks"] == 17
    assert spectral.lower_bound < blocks.lower_bound <= result.objective
    (note,) = (one for one in result.manifest["notes"] if one.startswith("certificate"))
    assert "of 18 blocks of rows are solved" in note
    # What holds for certain is the statement; what holds with a probability stands beside it.
    assert result.certificate in (spectral, drop)
    (line,) = (one for one in result.summary().splitlines() if "within" in one)
    assert " for certain, and within " in line
    assert line.count("with probability 0.9") >= 2
    page = (result.folder / "report.html").read_text()
    assert "With 90.0 % confidence it is at most" in page
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["certificates"][1]["details"]["cost_share"] == blocks.details["cost_share"] > 0


def test_of_all_columns_the_selected_ones_are_not_certified_again(job: Job) -> None:
    certificate = {"method": "blocks", "block_rows": 20, "fraction": 0.5, "confidence": 0.9}
    whole = job(cluster={"certificate": certificate}) | {"select": {"method": "variance", "n_features": 12}}
    result = sks.run(whole)
    assert len(result.selection.support) == result.manifest["prepared_columns"]
    assert "certificate_selected_columns" not in result.manifest
    assert "in the selected columns" not in result.summary().split("The clustering is")[1]


def test_the_same_bits_on_every_engine_and_when_run_again(sampled: Any, tmp_path: Path) -> None:
    first = sks.run(sampled())
    again = sks.run(sampled())
    threads = sks.run(sampled(cluster="threads", n_workers=3), fresh=True)
    assert bits(first) == bits(again) == bits(threads)


@pytest.mark.slow
def test_the_same_bits_on_two_workers(sampled: Any) -> None:
    assert bits(sks.run(sampled(cluster="local", n_workers=2))) == bits(sks.run(sampled(), fresh=True))


def bits(result: sks.RunResult) -> list[Any]:
    return [(one.lower_bound, one.factor, one.confidence, dict(one.details)) for one in result.certificates]


def test_blocks_that_do_not_fit_are_left_out_where_nobody_asked(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise WillNotFit("too large; the limit is 1 GiB")

    monkeypatch.setattr(evaluation, "block_pass", refuse)
    result = sks.run(job())
    assert [one.method for one in result.certificates] == ["spectral", "spectral+drop"]
    assert any("spectrum alone; too large" in note for note in result.manifest["notes"])
    with pytest.raises(WillNotFit):
        sks.run(job(cluster={"certificate": "blocks"}))


def test_the_plan_says_how_many_blocks_and_what_they_cost(sampled: Any, job: Job) -> None:
    plan = forecast_job(sampled(), calibrate=False)
    (note,) = (one for one in plan.notes if one.startswith("certificate"))
    assert note in sks.run(sampled()).manifest["notes"]
    assert [one.name for one in plan.passes if "block" in one.name] == ["block certificate"]
    assert not [one for one in forecast_job(job(cluster={"certificate": "spectral"})).passes if "block" in one.name]
    timed = next(one for one in forecast_job(sampled()).passes if one.name == "block certificate")
    assert timed.seconds is not None
    assert timed.seconds > 0


@pytest.mark.parametrize(
    "wrong", [{"method": "auto", "fraction": 0.5}, {"method": "spectral", "block_rows": 40}, {"method": "most"}]
)
def test_what_a_table_may_not_say(job: Job, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.certificate: expected"):
        sks.run(job(cluster={"certificate": wrong}))


# `[cluster] certificate = "blocks"`: a pass of its own, shown in manifest and report, never above the objective.


@pytest.mark.slow
def test_the_job_proves_more_from_blocks(job: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    result = sks.run(job(cluster={"n_clusters": 6, "certificate": "blocks"}, output={"report": True}))
    spectral, blocks, drop = result.certificates
    assert (spectral.method, blocks.method, drop.method) == ("spectral", "blocks", "spectral+drop")
    assert spectral.lower_bound < blocks.lower_bound <= result.objective
    assert result.certificate is blocks
    assert blocks.confidence == 1.0
    assert blocks.details["n_blocks"] == blocks.details["n_solved"] == 1
    out = tmp_path / "out"
    manifest = json.loads((out / "manifest.json").read_text())
    assert [c["method"] for c in manifest["certificates"]] == ["spectral", "blocks", "spectral+drop"]
    assert "block certificate" in [stage["name"] for stage in manifest["stages"]]
    assert "blocks" in (out / "report.html").read_text()
