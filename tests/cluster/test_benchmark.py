"""The benchmark scripts run (at sizes that measure nothing)."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("lasso", "genes")]


@pytest.fixture
def benchmarks(monkeypatch):
    """Return an importer of the scripts, which lie side by side."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.parametrize("names", [["stream", "kmeans"], pytest.param([], marks=pytest.mark.nightly)])
def test_the_table_has_a_row_for_every_side_of_every_case(benchmarks, capsys, names):
    run = benchmarks("run")
    run.main(["--small", *names])
    lines = capsys.readouterr().out.splitlines()
    for name in names or run.CASES:
        case = run.CASES[name](benchmarks("cases").Setting(small=True))
        start = next(i for i, line in enumerate(lines) if line.startswith(f"{name}: "))
        for line, side in zip(lines[start + 1 :], case.sides, strict=False):
            assert line.startswith(f"  {side}")
            assert "CPU" in line or run.MISSING in line


@pytest.mark.parametrize("case", ["kmeans", *OTHERS])
def test_sides_that_solve_the_same_problem_have_the_same_value(benchmarks, case):
    cases = benchmarks("cases")
    sides = benchmarks("run").measure(cases.CASES[case](cases.Setting(small=True)), 1)
    values = [
        side.value for name, side in sides.items() if side.value is not None and name not in ("faiss-cpu", "dask-ml")
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-3)


def test_a_script_runs_by_its_name_and_a_mistake_is_one_line(benchmarks, capsys, monkeypatch):
    run = benchmarks("run")
    monkeypatch.setattr("sys.argv", [])
    with pytest.raises(SystemExit, match="0"):
        run.main(["bench_scale", "--help"])
    assert "predict" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        run.main(["no-such-case"])
    assert "no case no-such-case" in capsys.readouterr().err


def test_asv_runs_our_side_and_the_floor(benchmarks, monkeypatch):
    settings = json.loads((BENCHMARKS / "asv.conf.json").read_text(encoding="utf-8"))
    assert (BENCHMARKS / settings["repo"] / "pyproject.toml").is_file()
    # asv's own command does, and installs every library anew each time that the two commits take turns.
    assert "--force-reinstall" not in " ".join(settings["install_command"])
    monkeypatch.setenv("SKETCHSELECT_SMALL", "1")
    spec = importlib.util.spec_from_file_location("table", BENCHMARKS / settings["benchmark_dir"] / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = module.Table()
    for side in table.params[1]:
        table.setup("stream", side)
        table.time_case("stream", side)
