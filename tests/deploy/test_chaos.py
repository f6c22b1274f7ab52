"""Workers, schedulers and drivers that are killed, ended and stopped at random: the same bits, or an orderly end.

`pytest -m slow tests/deploy/test_chaos.py --chaos 50 -s` prints the plan of every seed and the exit codes of its runs.
"""

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.deploy.chaos import Stage, checkpoint_files, damage_one, damaged_nodes, digests, result_files
from tests.deploy.chaos_jobs import KINDS, write_kind, write_sources
from tests.deploy.conftest import PlainCluster
from tests.deploy.faults import codes_of, plan_of
from tests.deploy.links import Clock, Disk, Link, served

NOISE = re.compile(r"Traceback|never retrieved|was destroyed|resource_tracker|leaked")
"""What libraries say of what is not put away."""
TRACKER = re.compile(r".*resource_tracker.*leaked semaphore.*\n(?:  warnings\.warn.*\n?)?")
"""What Python's own tracker puts away, and says so, after a driver that SIGKILL has ended with its local workers."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX"),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what the jobs read."""
    folder = tmp_path_factory.mktemp("chaos") / "sources"
    folder.mkdir()
    write_sources(folder)
    return folder


def test_faults_change_no_bit_and_leave_nothing_behind(
    sources: Path, tmp_path: Path, plain_cluster: PlainCluster, chaos_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(chaos_seed)
    kind = KINDS[plan.kind]
    original = write_kind(sources, plan.kind)
    quiet = digests(original / "reference")
    clusters = {"labels.zarr", "centers.zarr"} if kind.cluster else set()
    assert clusters | {"summary.sks", "selection.json", "certificates"} <= quiet.keys()
    clock = Clock(tmp_path / "clock")
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    disk = Disk(tmp_path / "disk") if any(fault.target == "disk" for faults in plan.runs for fault in faults) else None
    if disk is not None and not disk.is_mounted:
        pytest.skip("a disk that gets full is a file system of its own, which this user cannot mount")
    place = tmp_path if disk is None else disk.place
    folder = Path(shutil.copytree(original, tmp_path / "job"))
    stage = Stage(folder, place / "out-0", None if plan.cluster == "local" else plain_cluster, tmp_path, clock, disk)
    with served(folder, "ETag") as port:
        try:
            stage.store = Link(port) if kind.is_remote else None
            for faults in (*plan.runs, ()):
                if not faults and stage.exits[-1] == 0:
                    break
                stage.start_what_died()
                code, said = stage.run(faults)
                errors = [line for line in said.splitlines() if line.startswith("error:")]
                assert code in codes_of(faults), f"exit code {code}: {said}"
                # A driver may be killed after it has said why it ends.
                assert len(errors) == (code > 0) or (code < 0 and len(errors) == 1), f"exit code {code}: {said}"
                assert not NOISE.search(TRACKER.sub("", said) if code == -signal.SIGKILL else said), said
                now = digests(stage.out, stage.spoiled if code else frozenset())
                assert now.items() <= quiet.items(), f"half-written or wrong: {now.items() - quiet.items()}"
                assert damaged_nodes(stage.out).keys() <= stage.spoiled
                assert code != 0 or now == quiet
                if plan.damages and code != 0:
                    stage.spoiled |= damage_one(checkpoint_files(stage.out) + result_files(stage.out), chaos_seed)
                if code == 0:  # what is finished cannot be disturbed any more
                    finished, stage.out = stage.out, place / f"out-{len(stage.exits)}"
            if plan.damages:
                stage.out = finished
                damage_one(result_files(finished), chaos_seed)
                stage.start_what_died()
                code, said = stage.run(())
                assert code == 0, f"exit code {code}: {said}"
                assert digests(stage.out) == quiet
            stage.end()
        except BaseException as error:
            error.add_note(f"{plan}; exit codes {stage.exits}")
            raise
        finally:
            stage.close()
    print(f"{plan}: {stage.n_done} of {sum(map(len, plan.runs))} faults done, exit codes {stage.exits}")
