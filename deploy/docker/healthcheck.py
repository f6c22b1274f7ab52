"""The image's health check: exit code 0 if what the container was started for answers, 1 (and a line) if not.

A scheduler must answer on its own HTTP port. A worker must reach its scheduler. A job is healthy as long as it runs.
"""

import os
import socket
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 5.0


def main_command(path: str) -> list[str]:
    """Return the words of a command line as Linux keeps them in /proc/PID/cmdline."""
    return Path(path).read_text(encoding="utf-8").rstrip("\0").split("\0")


def complaint(command: list[str], http_port: int) -> str | None:
    """Return what is wrong with the process of this command line, or None."""
    try:
        if "scheduler" in command:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/health", timeout=SECONDS) as answer:
                return None if answer.read() == b"ok" else "the scheduler does not say that it is well"
        if "worker" in command:
            # Without an address among its words, a worker takes the one in its environment, as operators set it.
            given = (word for word in command if "://" in word)
            address = urlsplit(next(given, os.environ.get("DASK_SCHEDULER_ADDRESS", "")))
            with socket.create_connection((address.hostname, address.port), timeout=SECONDS):
                return None
    except OSError as error:
        return f"no answer: {error}"
    return None


if __name__ == "__main__":
    found = complaint(
        main_command(sys.argv[1] if len(sys.argv) > 1 else "/proc/1/cmdline"),
        int(os.environ.get("SKETCHSELECT_HTTP_PORT", "8787")),
    )
    if found:
        print(found)
    sys.exit(1 if found else 0)
