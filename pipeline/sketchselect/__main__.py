"""The command line: ``python -m sketchselect``, and its entry point. Workers import this module again: the guard."""

import atexit
import gc
import os
import select
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command line; a signal that comes while its parts are still imported is an orderly end too."""
    _answer_signals(_leave)
    # Called last. From then on, with Python's own answer, a signal would end a process that has done its work.
    atexit.register(_answer_signals, signal.SIG_IGN)
    # Workers begin as `python -c`, which would look for modules in whatever folder the user is in.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # Libraries make a million objects that stay to the end: looking for cycles among them took a sixth of a short run.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    from sketchselect.cli import main as run

    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        _answer_signals(lambda number, frame: os._exit(code))  # all is said: impatience changes nothing
        raise
    finally:
        atexit.register(_end_reading)  # the last to be registered is called first


def _answer_signals(answer: Any) -> None:
    """Set the answer to the signals that stop a program."""
    names = "SIGINT", "SIGTERM", "SIGHUP"
    for number in (getattr(signal, name) for name in names if hasattr(signal, name)):  # Windows has no SIGHUP
        if signal.getsignal(number) is not signal.SIG_IGN:  # whoever starts the program may have shielded it
            signal.signal(number, answer)


def _end_reading() -> None:
    """End the thread in which zarr reads. zarr waits .2 s for it, and on a busy machine ends with a traceback."""
    sync = sys.modules.get("zarr.core.sync")
    (loop, *_), (thread, *_) = getattr(sync, "loop", [None]), getattr(sync, "iothread", [None])
    if loop is not None and thread is not None and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)


def _leave(number: int, frame: Any) -> None:
    """End the process at once: nothing was begun yet."""
    try:
        text = "interrupted; run the same command again"
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"error: {text}\n".encode())
        if "--json" in sys.argv and select.select([], [1], [], 0)[1]:
            os.write(1, f'{{"error": "{text}", "exit_code": {128 + number}}}\n'.encode())
    finally:
        os._exit(128 + number)


if __name__ == "__main__":
    main()
