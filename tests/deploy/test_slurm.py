"""The scripts of deploy/slurm on a real SLURM: two nodes on this machine, each with a daemon of its own."""

import contextlib
import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deploy.cluster_jobs import assert_same_result, write_selection_job
from tests.deploy.conftest import PLAIN, ROOT, free_port, wait_until

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
SYSTEM = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
MISSING = [name for name in NEEDED if shutil.which(name, path=SYSTEM) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: slurm-wlm and munge)"),
]

# The nodes are named after addresses, for the scripts ask the system where the first one is.
NODES = ("127.0.0.1", "127.0.0.2")
SETTINGS = """
ClusterName=sketchselect
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=1
KillWait=10
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SLOW = """
import os
import time
import sketchselect.execution.tasks as tasks
read_block = tasks.read_block
def slowly(*words):
    time.sleep(float(os.environ["PAUSE"]))
    return read_block(*words)
tasks.read_block = slowly
"""
SCRIPTS = {
    "one-node.sbatch": ["--cpus-per-task=2", "--mem=2400M", "--time=60"],
    "many-nodes.sbatch": ["--nodes=2", "--ntasks-per-node=1", "--mem-per-cpu=1200M", "--time=60"],
}
"""What each script asks for, on two cores."""


@dataclass
class Slurm:
    """A queue of our own, and a folder with a job that its nodes share."""

    folder: Path

    def ask(self, *words: str, **settings: str) -> str:
        """Run one of the queue's commands; return what it says."""
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{SYSTEM}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "SKETCHSELECT_PLAIN": str(PLAIN),
            **settings,
        }
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, script: str, out: str, pause: float | None = None) -> str:
        """Submit the job with its result in the folder `out`; until it is put back, each partition takes a pause."""
        job = self.folder / f"{out}.toml"
        text = (self.folder / "job.toml").read_text(encoding="utf-8")
        text = text.replace("[output]", f'[output]\ndir = "{out}"')
        # Every part into the checkpoint, as small as it may be.
        text = text.replace("[execution]", "[execution]\ncheckpoint_seconds = 0")
        job.write_text(text, encoding="utf-8")
        setup = 'echo "put back ${SLURM_RESTART_COUNT:-0} times"'
        if pause is not None:
            setup += f'; [ -n "${{SLURM_RESTART_COUNT:-}}" ] || export PYTHONPATH={self.folder} PAUSE={pause}'
        words = ["sbatch", "--parsable", *SCRIPTS[script], str(ROOT / "deploy" / "slurm" / script), str(job)]
        return self.ask(*words, SKETCHSELECT_SETUP=setup).strip()

    def state(self, number: str, what: str = "JobState") -> str:
        found = re.search(rf"\b{what}=(\S+)", self.ask("scontrol", "--oneliner", "show", "job", number))
        assert found
        return found[1]

    def log(self, number: str) -> str:
        path = self.folder / f"sketchselect-{number}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait_for(self, number: str, *states: str) -> None:
        ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", *states}
        wait_until(lambda: self.state(number) in ends, f"job {number} {states}: {self.log(number)[-2000:]}")
        assert self.state(number) in states, self.log(number)

    def wait_for_checkpoint(self, number: str, out: str) -> None:
        nodes = self.folder / out / "checkpoints" / "nodes"
        wait_until(
            lambda: any(nodes.rglob("*.sks")) or self.state(number) not in ("PENDING", "RUNNING"), "a checkpoint"
        )
        assert self.state(number) == "RUNNING", self.log(number)

    def start_again(self, number: str) -> None:
        """Wait until a job is back in the queue, and give it the time to end.

        SLURM starts it after two minutes: the end of its first run is by then reported, and not taken for the second's.
        """
        wait_until(
            lambda: self.state(number) == "PENDING", f"job {number} back in the queue: {self.log(number)[-2000:]}"
        )
        self.ask("scontrol", "update", f"jobid={number}", "timelimit=60")

    def assert_resumed(self, number: str, out: str) -> None:
        """Check that a job has gone on after what it did before, to the bits of one that nothing happened to."""
        assert_same_result(self.folder, out)
        stage = json.loads((self.folder / out / "manifest.json").read_text(encoding="utf-8"))["stages"][0]
        assert stage["n_resumed"] > 0, self.log(number)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    queue = Slurm(folder)
    (folder / "sitecustomize.py").write_text(SLOW, encoding="utf-8")
    write_selection_job(folder, seed=11, n_rows=15_360, chunk_rows=80, partition_bytes="64KiB")
    text = SETTINGS.format(folder=folder, user=getpass.getuser(), port=free_port())
    text += "".join(f"NodeName={n} NodeAddr={n} Port={free_port()} CPUs=2 RealMemory=3000\n" for n in NODES)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(256))
    (folder / "munge.key").chmod(0o400)
    # pytest's folders are ours alone, which is not what munge expects around a socket: --force.
    munge = ["munged", "--foreground", "--force", *(f"--{w}-file={folder}/munge.{w}" for w in ("key", "pid", "seed"))]
    with contextlib.ExitStack() as stack:

        def start(words: list[str], ready: Callable[[str], bool]) -> None:
            """Start a daemon, and wait until its log, or what it makes, says that it serves."""
            path = shutil.which(words[0], path=SYSTEM)
            assert path
            log = folder / f"{words[0]}-{words[-1].rpartition('/')[2]}.log"
            with log.open("wb") as out:
                daemon = subprocess.Popen([path, *words[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            stack.callback(daemon.wait, timeout=600)
            stack.callback(daemon.terminate)
            wait_until(
                lambda: daemon.poll() is not None or ready(log.read_text(encoding="utf-8", errors="replace")),
                f"{words[0]} ready",
            )
            assert daemon.poll() is None, log.read_text(encoding="utf-8", errors="replace")

        start([*munge, f"--socket={folder}/munge.socket"], lambda said: (folder / "munge.socket").exists())
        settings = ["-D", "-f", str(folder / "slurm.conf")]
        start(["slurmctld", "-i", *settings], lambda said: "Running as primary controller" in said)
        for node in NODES:
            start(["slurmd", *settings, "-N", node], lambda said: "slurmd started" in said)
        wait_until(lambda: queue.ask("sinfo", "-h", "-o", "%T %D").strip() == "idle 2", "two idle nodes")
        try:
            yield queue
        finally:
            queue.ask("scancel", "--full", "--signal=KILL", "--user", getpass.getuser())
            queue.ask("scancel", "--user", getpass.getuser())
            wait_until(lambda: not queue.ask("squeue", "-h").strip(), "an empty queue")


def test_many_nodes_and_the_log_of_a_good_job_is_clean(slurm: Slurm) -> None:
    number = slurm.submit("many-nodes.sbatch", "many")
    slurm.wait_for(number, "COMPLETED")
    assert_same_result(slurm.folder, "many")
    said = slurm.log(number)
    assert said.count("Registered to:") == 2
    assert said.count("End worker") == 2
    assert not re.search(r"Traceback|ERROR|WARNING|error:|srun:|CANCELLED|Killed", said), said


def test_time_is_over_and_the_job_goes_on(slurm: Slurm) -> None:
    number = slurm.submit("one-node.sbatch", "over", pause=0.5)
    slurm.wait_for_checkpoint(number, "over")
    # SLURM looks at limits every half minute, and then finds less than the two minutes that the script asks for.
    minutes = int(slurm.state(number, "RunTime").split(":")[1])
    slurm.ask("scontrol", "update", f"jobid={number}", f"timelimit={minutes + 2}")
    slurm.start_again(number)
    slurm.wait_for(number, "COMPLETED")
    assert slurm.state(number, "Restarts") == "1"
    assert re.findall(r"put back \d+ times", slurm.log(number)) == ["put back 0 times", "put back 1 times"]
    slurm.assert_resumed(number, "over")


def test_cancelled_job_does_not_come_back_and_another_goes_on(slurm: Slurm) -> None:
    number = slurm.submit("one-node.sbatch", "cancelled", pause=0.2)
    slurm.wait_for_checkpoint(number, "cancelled")
    slurm.ask("scancel", number)
    slurm.wait_for(number, "CANCELLED")
    wait_until(lambda: not slurm.ask("squeue", "-h").strip(), "an empty queue")
    assert slurm.state(number, "Restarts") == "0"
    again = slurm.submit("one-node.sbatch", "cancelled")
    slurm.wait_for(again, "COMPLETED")
    slurm.assert_resumed(again, "cancelled")


def test_lost_node_puts_the_job_back_and_it_goes_on(slurm: Slurm) -> None:
    number = slurm.submit("many-nodes.sbatch", "lost", pause=0.2)
    slurm.wait_for_checkpoint(number, "lost")
    slurm.ask("scontrol", "update", f"nodename={NODES[1]}", "state=down", "reason=lost")
    slurm.start_again(number)
    slurm.ask("scontrol", "update", f"nodename={NODES[1]}", "state=resume")
    slurm.wait_for(number, "COMPLETED")
    assert "put back 1 times" in slurm.log(number)
    slurm.assert_resumed(number, "lost")
