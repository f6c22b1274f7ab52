"""The scripts for SLURM and PBS, run for real on this machine: only the queue's own commands are stand-ins."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.deploy.conftest import ROOT, free_port, wait_until
from tests.passing import succeed

FOLDER = ROOT / "deploy" / "slurm"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX shell scripts")]

SRUN = """#!/usr/bin/env bash
tasks=1
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#--ntasks=}; shift; done
trap 'kill -TERM $(jobs -p) 2>/dev/null; wait' TERM
for ((i = 0; i < tasks; i++)); do SLURM_PROCID=$i "$@" & done
wait
"""
SCONTROL = """#!/usr/bin/env bash
if [ "$1 $2" = "show hostnames" ]; then echo localhost; echo far; exit; fi
if [ "$1 $2" = "show job" ]; then echo "   JobState=${FAKE_STATE:-RUNNING} Reason=None"; exit; fi
echo "$@" >> "$FAKES/scontrol.log"
"""
PBSDSH = """#!/usr/bin/env bash
shift
trap 'kill -TERM $(jobs -p) 2>/dev/null; wait' TERM
for i in 1 2; do env -i HOME="$HOME" /bin/bash -c 'exec "$@"' _ "$@" & done
wait
"""
# A copy runs, as on a real queue: the script does not find its neighbours beside itself.
SBATCH = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
copy=$FAKES/slurm_script.$RANDOM
cp "$1" "$copy"; shift
chmod +x "$copy"
SLURM_JOB_ID=4711 "$copy" "$@" > "$FAKES/sbatch.log" 2>&1 &
echo $! >> "$FAKES/pids"
echo "Submitted batch job 4711"
"""
SCANCEL = """#!/usr/bin/env bash
echo "$@" >> "$FAKES/scancel.log"
while read -r pid; do kill -TERM "$pid" 2>/dev/null; done < "$FAKES/pids"
"""

JOB = """
[input]
url = "rows.zarr"
[select]
method = "variance"
n_features = 7
[cluster]
n_clusters = 3
[execution]
partition_bytes = "32KiB"
[output]
report = false
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a job, and stand-ins for the commands of the queues."""
    fakes = {"srun": SRUN, "scontrol": SCONTROL, "pbsdsh": PBSDSH, "sbatch": SBATCH, "scancel": SCANCEL}
    for name, text in fakes.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((4000, 30)) * np.arange(1, 31)
    zarr.create_array(tmp_path / "rows.zarr", data=rows, chunks=(100, 30))
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(place), str(Path(sys.executable).parent), os.environ["PATH"]])
    port = free_port()
    slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NTASKS": "2",
        "SLURM_MEM_PER_CPU": "1200",
    }
    own = {
        "SKETCHSELECT_PORT": str(port),
        "SKETCHSELECT_HTTP_PORT": str(free_port()),
        "SKETCHSELECT_PLAIN": str(ROOT / "deploy/plain"),
    }
    return os.environ | slurm | own | {"PATH": path, "FAKES": str(place), "SLURM_SUBMIT_DIR": str(ROOT)} | more


def selected(place: Path) -> list[int]:
    return list(json.loads((place / "out/selection.json").read_text(encoding="utf-8"))["support"])


def requeued(place: Path) -> str:
    log = place / "scontrol.log"
    return log.read_text(encoding="utf-8") if log.exists() else ""


def run(words: list[Any], place: Path, **more: str) -> str:
    done = succeed(*words, env=environment(place, **more), cwd=place)
    return done.stdout + done.stderr


def test_one_node_of_slurm(place: Path) -> None:
    run([FOLDER / "one-node.sbatch", place / "job.toml"], place, SLURM_CPUS_PER_TASK="2", SLURM_MEM_PER_NODE="4000")
    assert selected(place) == list(range(23, 30))
    engine = json.loads((place / "out/manifest.json").read_text(encoding="utf-8"))["engine"]
    assert engine["n_workers"] == 2
    assert requeued(place) == ""


def test_many_nodes_of_slurm(place: Path) -> None:
    out = run([FOLDER / "many-nodes.sbatch", place / "job.toml"], place)
    assert selected(place) == list(range(23, 30))
    assert len(re.findall("Registered to:", out)) == 2
    assert requeued(place) == ""


# A job that waits until it is told to end, and then ends as `sketchselect run` does.
LONG = "sketchselect() { trap 'exit 143' TERM; touch started; while :; do sleep 0.05; done; }"


def told_to_end(script: str, number: int, place: Path, **more: str) -> tuple[int, str]:
    """Send a signal to a script while its job runs; return its exit code and what it said."""
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [FOLDER / script, place / "job.toml"],
            env=environment(place, SKETCHSELECT_SETUP=LONG, **more),
            cwd=place,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until((place / "started").exists, "the job's start")
            process.send_signal(number)
            code = process.wait(timeout=600)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code, (place / "log").read_text(encoding="utf-8", errors="replace")


def test_before_the_time_is_over_the_job_is_put_back_and_goes_on(place: Path) -> None:
    code, said = told_to_end("many-nodes.sbatch", signal.SIGUSR1, place)
    assert (code, requeued(place)) == (143, "requeue 4711\n"), said
    run([FOLDER / "many-nodes.sbatch", place / "job.toml"], place)
    assert selected(place) == list(range(23, 30))


def test_time_of_one_node_is_over(place: Path) -> None:
    code, said = told_to_end("one-node.sbatch", signal.SIGUSR1, place)
    assert (code, requeued(place)) == (143, "requeue 4711\n"), said


@pytest.mark.parametrize(
    ("number", "more"),
    [
        (signal.SIGTERM, {}),  # scancel
        (signal.SIGUSR1, {"FAKE_STATE": "CANCELLED"}),
        (signal.SIGUSR1, {"SLURM_RESTART_COUNT": "3", "SKETCHSELECT_RESTARTS": "3"}),
    ],
)
def test_job_that_was_cancelled_or_put_back_often_ends(place: Path, number: int, more: dict[str, str]) -> None:
    code, said = told_to_end("one-node.sbatch", number, place, **more)
    assert (code, requeued(place)) == (143, ""), said


@pytest.mark.parametrize(("code", "wanted"), [(0, ""), (1, ""), (2, ""), (75, "requeue 4711\n")])
def test_only_a_lost_cluster_puts_the_job_back(place: Path, code: int, wanted: str) -> None:
    words = [FOLDER / "one-node.sbatch", place / "job.toml"]
    short = environment(place, SKETCHSELECT_SETUP=f"sketchselect() {{ return {code}; }}")
    assert subprocess.run(words, env=short, cwd=place, timeout=600, check=False).returncode == code
    assert requeued(place) == wanted


def test_one_node_of_pbs(place: Path) -> None:
    run([FOLDER / "one-node.pbs"], place, JOB=str(place / "job.toml"), NCPUS="2", SKETCHSELECT_WORKER_MEMORY="1500MiB")
    assert selected(place) == list(range(23, 30))


def test_many_nodes_of_pbs(place: Path) -> None:
    (place / "nodes").write_text("localhost\nlocalhost\n", encoding="utf-8")
    more = {"PBS_NODEFILE": str(place / "nodes"), "PBS_JOBID": "12.server", "SKETCHSELECT_WORKER_MEMORY": "1500MiB"}
    run([FOLDER / "many-nodes.pbs"], place, JOB=str(place / "job.toml"), **more)
    assert selected(place) == list(range(23, 30))


@pytest.mark.parametrize("script", sorted(p.name for p in FOLDER.iterdir() if p.suffix in (".sbatch", ".pbs")))
def test_scripts_are_clean_and_their_options_are_where_the_queue_looks(script: str) -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    if shellcheck.exists():
        assert subprocess.run([shellcheck, FOLDER / script], check=False).returncode == 0
    # A queue stops to read its options at the first command.
    lines = (FOLDER / script).read_text(encoding="utf-8").splitlines()
    word = "#SBATCH" if script.endswith(".sbatch") else "#PBS"
    places = [i for i, line in enumerate(lines) if line.startswith(word)]
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert len(places) >= 5
    assert max(places) < first


@pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="dask-jobqueue is not installed")
def test_workers_from_the_queue(place: Path) -> None:
    """dask-jobqueue writes a batch script with our settings and gives it to `sbatch`; the worker in it does the job."""
    settings = {
        "DASK_JOBQUEUE__SLURM__CORES": "1",
        "DASK_JOBQUEUE__SLURM__PROCESSES": "1",
        "DASK_JOBQUEUE__SLURM__MEMORY": "1500MiB",
        "DASK_DISTRIBUTED__DASHBOARD__LINK": "",
        "PYTHONWARNINGS": "ignore",
    }
    run([sys.executable, FOLDER / "run_on_queue.py", place / "job.toml", "--most", "1"], place, **settings)
    assert selected(place) == list(range(23, 30))
    script = next(place.glob("slurm_script.*")).read_text(encoding="utf-8")
    assert "#SBATCH -t 02:00:00" in script
    assert "--lifetime 110m" in script
    assert "OMP_NUM_THREADS=1" in script
    # Others may use the machine that gives out the work: nobody without the certificate may.
    assert "tls://" in script
    assert "--tls-key" in script
    assert not list(place.glob(".dask-jobqueue*"))
    assert (place / "scancel.log").exists()
