"""Workers, schedulers and drivers that are killed, ended and stopped at random: the same bits, or an orderly end.

`pytest -m slow tests/deploy/test_chaos.py --chaos 50 -s` prints the plan of every seed and the exit codes of its runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.chaos import Stage, damaged_nodes, digests
from tests.deploy.cluster_jobs import write_job
from tests.deploy.conftest import PlainCluster
from tests.deploy.faults import codes_of, plan_of

JOB = """
[input]
url = "rows.zarr"
[prepare]
rows = ["l2"]
[select]
method = "sketched-ridge"
n_features = 30
n_components = 8
sketch_size = 12
[cluster]
n_clusters = 6
n_init = 3
certificate = { method = "blocks", block_rows = 100 }
[execution]
n_workers = 2
memory_limit = "1GiB"
partition_bytes = "128KiB"
checkpoint_seconds = 0
stall_timeout = 40
[output]
report = false
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of 150 partitions, and the job with its result on threads as the reference."""
    folder = tmp_path_factory.mktemp("chaos")
    rng = np.random.default_rng(5)
    centres = 4 * rng.standard_normal((6, 200))
    rows = centres[rng.integers(6, size=12_000)] + rng.standard_normal((12_000, 200))
    write_job(folder, JOB, rows, chunk_rows=80)
    return folder


def test_faults_change_no_bit_and_leave_nothing_behind(
    folder: Path, tmp_path: Path, plain_cluster: PlainCluster, chaos_seed: int
) -> None:
    plan = plan_of(chaos_seed)
    stage = Stage(folder, tmp_path / "out-0", None if plan.cluster == "local" else plain_cluster)
    quiet = digests(folder / "reference")
    assert {"summary.sks", "selection.json", "labels.zarr", "certificates"} <= quiet.keys()
    try:
        for faults in (*plan.runs, ()):
            if not faults and stage.exits[-1] == 0:
                break
            stage.start_what_died()
            code, said = stage.run(faults)
            errors = [line for line in said.splitlines() if line.startswith("error:")]
            assert code in codes_of(faults), f"exit code {code}: {said}"
            assert len(errors) == (code > 0), f"exit code {code}: {said}"
            assert "Traceback" not in said, said
            now = digests(stage.out)
            assert now.items() <= quiet.items(), f"half-written or wrong: {now.items() - quiet.items()}"
            assert damaged_nodes(stage.out) == []
            assert code != 0 or now == quiet
            if code == 0:  # what is finished cannot be disturbed any more
                stage.out = tmp_path / f"out-{len(stage.exits)}"
        stage.end()
    except BaseException as error:
        error.add_note(f"{plan}; exit codes {stage.exits}")
        raise
    print(f"{plan}: {stage.n_done} of {sum(map(len, plan.runs))} faults done, exit codes {stage.exits}")
