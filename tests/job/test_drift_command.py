"""`sketchselect drift`: the share, its interval, and the exit code of an alarm."""

import json
from pathlib import Path

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.summaries import drift

from .commands import cli, refused, works


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drift")
    rng, sd = np.random.default_rng(0), np.repeat([6.0, 1.0], [3, 17])
    days = {"base": (3000, sd), "monday": (200, sd), "tuesday": (200, sd[::-1])}
    for name, (n_rows, deviations) in days.items():
        np.save(folder / f"{name}.npy", rng.standard_normal((n_rows, 20)) * deviations)
        works("summarize", folder / f"{name}.npy", "-o", folder / f"{name}.sks", "--size", 32)
    return folder


def test_exit_code_is_3_for_an_alarm_and_0_without(files: Path) -> None:
    quiet, alarm = (cli("drift", files / "base.sks", files / f"{day}.sks") for day in ("monday", "tuesday"))
    assert (quiet.exit_code, alarm.exit_code) == (0, 3), quiet.output + alarm.output
    assert quiet.stdout.startswith("no drift: ")
    assert alarm.stdout.startswith("DRIFT: ")
    assert cli("drift", files / "base.sks", files / "monday.sks", "--threshold", 0.001).exit_code == 3


def test_several_days_as_json_and_as_a_figure(files: Path, tmp_path: Path) -> None:
    days = [files / "monday.sks", files / "tuesday.sks"]
    result = cli("drift", files / "base.sks", *days, "--json", "--figure", tmp_path / "days.svg")
    assert result.exit_code == 3
    facts = json.loads(result.stdout)
    base, tuesday = (sks.load(files / f"{name}.sks") for name in ("base", "tuesday"))
    assert [day["exceeded"] for day in facts["days"]] == [False, True]
    assert facts["days"][1]["share"] == drift(base, tuesday).share
    assert facts["days"][1]["low"] < facts["days"][1]["share"] < facts["days"][1]["high"]
    assert (tmp_path / "days.svg").read_text().startswith("<svg ")


def test_files_that_cannot_be_compared_are_named(files: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "narrow.npy", np.random.default_rng(0).random((50, 4)))
    works("summarize", tmp_path / "narrow.npy", "-o", tmp_path / "narrow.sks")
    refused(cli("drift", files / "base.sks", tmp_path / "narrow.sks"), 1, "narrow.sks", "20 columns", "4")
