"""The memory that a job states, and the peak of every process that it runs in."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sketchselect import _kernel_cache
from sketchselect.workflow.plan.forecast import forecast_job


@dataclass(frozen=True)
class Measured:
    """Bytes of one job."""

    stated: int  # Of a process that runs tasks, by `plan`
    stated_here: int  # Of the process that the job was started in, by `plan`
    peak: int  # Largest of the processes that run tasks
    peak_here: int


def command(*words: str) -> list[str]:
    """Return a command line of the program."""
    return [sys.executable, "-m", "sketchselect", *words]


def peak_of(pid: int) -> int:
    """Return the peak that the kernel has recorded for a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def peaks(words: list[str]) -> dict[int, int]:
    """Run a command; return the peak of each process of its tree, that of the command first."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    highest = {process.pid: 0}
    above, looked = psutil.Process(process.pid), 0.0
    while process.poll() is None:
        # Finding the children looks at every process of the machine, and a peak at one.
        if time.monotonic() - looked > 0.3:
            with contextlib.suppress(psutil.NoSuchProcess):
                highest |= {child.pid: 0 for child in above.children(recursive=True) if child.pid not in highest}
            looked = time.monotonic()
        for pid in highest:
            highest[pid] = max(highest[pid], peak_of(pid))
        time.sleep(0.02)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return highest


def measure(content: dict[str, Any], folder: Path) -> Measured:
    """State the memory of a job, run it, and return both."""
    job = folder / "job.toml"
    job.write_text(as_toml(content))
    if _kernel_cache.is_empty():
        # What is stated, and taken, where kernels have to be compiled is not what is measured here.
        peaks(command("plan", str(job), "--no-calibrate"))
        _kernel_cache.is_empty.cache_clear()
    plan = forecast_job(content, calibrate=False).to_dict()["memory"]
    stated, in_workers = plan["projected_bytes_per_worker"], content["execution"]["cluster"] == "local"
    # What is stated is enough, as a limit too.
    limit = ["--set", f"execution.memory_limit={stated}"] if in_workers else []
    here, *others = peaks(command("run", str(job), *limit)).values()
    tasks = max(others) if in_workers else here
    return Measured(stated, plan["client_bytes"], tasks, here)


def as_toml(content: dict[str, Any]) -> str:
    """Return a job as text."""
    lines: list[str] = []
    for name, keys in content.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_value(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)
