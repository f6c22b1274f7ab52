"""`[cluster] range`: a table, a figure, a recommendation, and never another number of clusters."""

from __future__ import annotations

import csv

import pytest

import sketchselect as sks
from sketchselect.errors import ConfigError


def test_a_range_is_published_and_changes_nothing_else(job, tmp_path):
    plain = sks.run(job(cluster={"n_clusters": 5}))
    assert not (tmp_path / "out" / "clusters.csv").exists()
    told = job(cluster={"n_clusters": 5, "range": [2, 6]}, output={"report": True})
    result = sks.run(told)
    with (tmp_path / "out" / "clusters.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["n_clusters"]) for row in table] == [2, 3, 4, 5, 6]
    assert [row["n_clusters"] for row in table if row["recommended"] == "1"] == ["3"]
    for row in table:
        assert float(row["lower_bound"]) <= float(row["objective"])
        assert -1 <= float(row["stability"]) <= 1
    # The rows have three clusters; the job still makes the five that it was told to.
    assert result.manifest["range_of_clusters"]["recommended"] == 3
    assert result.centers.tobytes() == plain.centers.tobytes()
    assert result.labels.max() == 4
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Number of clusters" in page
    assert "3 clusters: the sharpest elbow from 2 to 6" in page
    assert "This run used 5." in page
    assert "3 clusters: the sharpest elbow" in result.summary()
    again = sks.run(told)
    assert {s["name"]: s["reused"] for s in again.manifest["stages"]}["range of clusters"] is True
    sks.run(job(cluster={"n_clusters": 5}))
    assert not (tmp_path / "out" / "clusters.csv").exists()


def test_a_list_is_taken_as_it_is(job, tmp_path):
    sks.run(job(cluster={"range": [2, 4, 9]}))
    with (tmp_path / "out" / "clusters.csv").open() as file:
        assert [row["n_clusters"] for row in csv.DictReader(file)] == ["2", "4", "9"]


@pytest.mark.parametrize("given", [[5, 2], [3], [2, 2], [0, 4], "2-5"])
def test_a_range_that_is_none_is_refused(job, given):
    with pytest.raises(ConfigError, match="range"):
        sks.run(job(cluster={"range": given}))


def test_more_clusters_than_rows_are_refused_by_the_key(job):
    with pytest.raises(ConfigError, match=r"cluster\.range: .*400"):
        sks.run(job(cluster={"range": [2, 3, 400]}))
