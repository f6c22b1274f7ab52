"""Blocks of rows in memory that was used before: a process that is ours does not have every block faulted in."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import sketchselect.cli

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * (40 << 20)
    del block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

sketchselect.cli.main = lambda: print(faults() and faults())
from sketchselect.__main__ import main
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="an option of glibc")
def test_a_command_faults_a_block_in_once() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    # 40 MiB are 10,240 pages.
    assert _faults(plain) < 1000
    # What the environment asks for is left as it is: every block of a megabyte goes back to the system at once.
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
        if "[always]" not in file.read():
            assert _faults({**plain, "MALLOC_MMAP_THRESHOLD_": "1048576"}) > 10_000


def _faults(environment: dict[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return int(done.stdout)
