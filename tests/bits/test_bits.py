"""Every result, to the bit: the same on all engines, and the same as the committed reference of this environment.

A net for changes that must change no result. Where no reference was made in an environment like this one, all engines
are still compared with each other; `python tests/bits/make.py` adds a reference.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bits.cases import FITS, GRAPHS, JOBS, placed, write_sources
from tests.bits.digests import TEXTS, digest, digests, of_job
from tests.bits.reference import FILE, environment, expected, read
from tests.passing import dask_cluster

import sketchselect as sks

REFERENCE = expected() or {}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sources."""
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder)
    return folder


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """A client of two worker processes."""
    with dask_cluster(2) as (_, client):
        yield client


def differences(case: str, found: dict[str, str], known: dict[str, str], names: tuple[str, str]) -> list[str]:
    """Return one line for each artefact that two mappings of digests do not agree on."""
    lines = []
    for artefact in sorted(found.keys() | known.keys()):
        left, right = found.get(artefact), known.get(artefact)
        if left != right:
            lines.append(f"{case!r}, {artefact!r}: {names[0]} {left}, {names[1]} {right}")
            if left in TEXTS and right in TEXTS:
                lines += difflib.unified_diff(
                    *(TEXTS[name].replace(", ", "\n").split("\n") for name in (left, right)), n=1
                )
    return lines


def require_equal(case: str, by_engine: dict[str, dict[str, str]]) -> None:
    """Fail with the case, engine and artefact of every digest that differs; a graph may have a part of them."""
    serial = by_engine["serial"]
    lines = []
    for engine, found in by_engine.items():
        assert found, f"{case!r} by {engine} left nothing to compare"
        known = {name: serial[name] for name in found if name in serial} if "graph" in engine else serial
        lines += differences(case, found, known, (engine, "serial"))
    if REFERENCE:
        lines += differences(case, serial, REFERENCE.get(case, {}), ("serial", "the reference"))
    assert not lines, "\n".join(["other bits:", *lines])


ENGINES = pytest.mark.parametrize("engine", ["threads", pytest.param("two workers", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def serial() -> dict[str, dict[str, str]]:
    """Digests by the serial engine, by case: computed once for all other engines."""
    return {}


@pytest.mark.share(6)
@ENGINES
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", JOBS)
def test_job(name: str, engine: str, sources: Path, serial: Any, tmp_path: Path, request: Any) -> None:
    def digests_by(label: str, kind: str | None, client: Any = None) -> dict[str, str]:
        return of_job(sks.run(placed(JOBS[name], sources, tmp_path / label, kind), client=client))

    if name not in serial:
        serial[name] = digests_by("serial", "serial")
    workers = request.getfixturevalue("workers") if engine == "two workers" else None
    other = digests_by(engine, "threads" if workers is None else None, workers)
    require_equal(name, {"serial": serial[name], engine: other})


@pytest.mark.share(10)
@ENGINES
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FITS)
def test_fit(name: str, engine: str, sources: Path, serial: Any, request: Any) -> None:
    case = FITS[name]
    if name not in serial:
        serial[name] = digests(case(sources, "serial"))
    workers = request.getfixturevalue("workers") if engine == "two workers" else None
    by_engine = {"serial": serial[name], engine: digests(case(sources, engine if workers is None else workers))}
    if name in GRAPHS:

        def computed(lazy: Any) -> Any:
            return lazy.compute(scheduler="synchronous") if workers is None else workers.compute(lazy).result()

        by_engine[f"graph, {engine}"] = digests(case(sources, compute=computed))
    require_equal(name, by_engine)


def test_this_environment_has_a_reference() -> None:
    if not REFERENCE:
        pytest.skip(f"engines were compared with each other alone: no reference of {environment()} in {FILE.name}")
    assert REFERENCE.keys() == JOBS.keys() | FITS.keys()


def test_every_reference_is_of_all_cases() -> None:
    environments, sets = read()
    assert set(environments.values()) == sets.keys()
    assert all(one.keys() == JOBS.keys() | FITS.keys() for one in sets.values())


def test_sketches_shrink_and_partitions_are_merged(sources: Path, tmp_path: Path) -> None:
    result = sks.run(placed(JOBS["sketched-ridge, zarr, labels"], sources, tmp_path / "out", "serial"))
    assert result.selection.diagnostics["shrinkage"] > 0
    [stage] = [stage for stage in result.manifest["stages"] if stage["name"] == "summarize"]
    assert stage["n_partitions"] >= 8


def test_one_unit_in_the_last_place_is_another_digest() -> None:
    rows = np.arange(1.0, 13.0).reshape(4, 3)
    moved = rows.copy()
    moved[2, 1] = np.nextafter(moved[2, 1], np.inf)
    one, other = (sks.summarize(values, sks.Moments(), client="serial") for values in (rows, moved))
    assert digest(rows) != digest(moved)
    assert digest(rows) != digest(rows.T) != digest(rows.astype(np.float32))
    assert digest(one) != digest(other)
    assert digest(float(rows[2, 1])) != digest(float(moved[2, 1]))
    lines = differences("a job", {"labels": "1", "scores": "2"}, {"labels": "1", "scores": "3"}, ("threads", "serial"))
    assert lines == ["'a job', 'scores': threads 2, serial 3"]


def test_the_page_says_what_is_the_same_under_every_kernel() -> None:
    page = (FILE.parents[2] / "notebooks" / "reference" / "same_results.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    sets = list(read()[1].values())
    assert len(sets) > 1
    for _, names, where in rows:
        for name in re.findall("`([^`]+)`", names):
            cases = [case for case in sets[0] if any(name in one.get(case, {}) for one in sets)]
            assert cases, name
            differing = [case for case in cases if len({one.get(case, {}).get(name) for one in sets}) > 1]
            expected_jobs = {"yes": 0, "all": 1}.get(where.split()[0])
            assert len(differing) == expected_jobs if expected_jobs is not None else differing, (name, differing)
