"""What processes need from outside and can lose: links between them, web servers, disks, and the right time."""

import contextlib
import functools
import http.server
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Link:
    """A relay from a port of its own to another port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._whole = True
        self._flows = threading.Event()
        self._flows.set()
        self._ends: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def cut(self) -> None:
        """Close what goes through, and let nothing new in."""
        self._whole = False
        self._drop()

    def stall(self) -> None:
        """Hold back what goes through, as a cable does that is out of its socket."""
        self._flows.clear()

    def mend(self) -> None:
        """Let everything through again; what was held back goes on."""
        self._whole = True
        self._flows.set()

    def close(self) -> None:
        """End the relay."""
        self.mend()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._server.close()
        self._drop()

    def _drop(self) -> None:
        for end in tuple(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                if not self._whole:
                    raise ConnectionRefusedError
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._ends += [near, far]
            threading.Thread(target=self._connect, args=(near, far), daemon=True).start()

    def _connect(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(content)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Disk:
    """A file system of its own, of few megabytes, that can be full; POSIX and root."""

    def __init__(self, place: Path, megabytes: int = 64) -> None:
        place.mkdir()
        options = f"size={megabytes}m"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "sketchselect", str(place)], capture_output=True, check=False
        )
        self.place, self.is_mounted = place, done.returncode == 0

    def fill(self) -> None:
        """Take all the room that is left."""
        with (self.place / "filler").open("ab", buffering=0) as stream, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        stream.write(bytes(size))

    def empty(self) -> None:
        """Give it back."""
        (self.place / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Take the file system away."""
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.place)], check=True)
            os.rmdir(self.place)


class Clock:
    """A clock that can be set: what `time.time` returns in processes that are started in the `environment`.

    The times of files remain those of the system.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self.environment = {
            "PYTHONPATH": str(Path(__file__).with_name("clock")),
            "SKETCHSELECT_CHAOS_CLOCK": str(place),
        }
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Let the clock go ahead by these seconds; behind, if they are negative."""
        with self._place.open("r+b" if self._place.exists() else "wb") as stream:
            stream.write(struct.pack("d", seconds))


@contextlib.contextmanager
def served(folder: Path, *headers: str) -> Iterator[int]:
    """Serve a folder over HTTP, with these of the headers ETag and Last-Modified; yield the port."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def send_header(self, keyword: str, value: str) -> None:
            if keyword != "Last-Modified" or keyword in headers:
                super().send_header(keyword, value)

        def end_headers(self) -> None:
            path = self.translate_path(self.path)
            if "ETag" in headers and os.path.exists(path):
                self.send_header("ETag", f'"{os.stat(path).st_mtime_ns}"')
            super().end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
