"""Lets `time.time` be wrong by the seconds in a file, for every process that has this folder in PYTHONPATH."""

import mmap
import os
import struct
import time

_TIME, _TIME_NS = time.time, time.time_ns
with open(os.environ["SKETCHSELECT_CHAOS_CLOCK"], "rb") as _stream:
    _SECONDS = mmap.mmap(_stream.fileno(), 8, access=mmap.ACCESS_READ)


def _ahead() -> float:
    (seconds,) = struct.unpack("d", _SECONDS)
    return float(seconds)


time.time = lambda: _TIME() + _ahead()
time.time_ns = lambda: _TIME_NS() + int(_ahead() * 1e9)
