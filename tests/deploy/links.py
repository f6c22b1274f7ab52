"""Links between processes, that can be lost: a relay of bytes that is cut or stands still, and disks that get full."""

import contextlib
import os
import socket
import subprocess
import threading
from pathlib import Path


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
