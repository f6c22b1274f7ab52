"""Hosts of a network in one machine: network namespaces with an address each, joined by a bridge."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4


def why_not() -> str | None:
    """Return why namespaces cannot be made here; None where they can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip (iproute2) is not installed"
    name = f"sk{uuid4().hex[:6]}"
    for words in (("netns", "add", name), ("link", "add", f"{name}b", "type", "bridge")):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=600, check=False)
        _quietly("link", "del", f"{name}b")
        if done.returncode:
            _quietly("netns", "del", name)
            return f"ip {' '.join(words[:2])} is not permitted here: {done.stderr.strip()}"
    _quietly("netns", "del", name)
    return None


@dataclass(frozen=True)
class Host:
    """A namespace.

    Parameters
    ----------
    name, address, link : str
        Of the namespace, its address in it, and the end of its cable at the bridge.
    switch : str
        The namespace that holds the bridge.
    """

    name: str
    address: str
    link: str
    switch: str

    def command(self, *words: str) -> list[str]:
        """Return a command that runs in this host."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """Take the cable out: what is on its way is lost, and nobody is told."""
        _ip("-n", self.switch, "link", "set", self.link, "down")

    def mend(self) -> None:
        """Put the cable back."""
        _ip("-n", self.switch, "link", "set", self.link, "up")


@contextlib.contextmanager
def network(names: list[str]) -> Iterator[dict[str, Host]]:
    """Yield hosts with addresses 10.77.0.2 and on; namespaces, and all that runs in them, are gone afterwards.

    The bridge is in a namespace of its own: nothing of this is seen from outside, and no rule of this machine's
    firewall meets it.
    """
    tag = f"sk{uuid4().hex[:6]}"
    switch = f"{tag}-switch"
    hosts = {
        name: Host(f"{tag}-{name}", f"10.77.0.{place}", f"{tag}{place}", switch) for place, name in enumerate(names, 2)
    }
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for host in hosts.values():
            _ip("netns", "add", host.name)
            _ip("-n", host.name, "link", "set", "lo", "up")
            _ip("-n", host.name, "link", "add", "eth0", "type", "veth", "peer", "name", host.link, "netns", switch)
            _ip("-n", switch, "link", "set", host.link, "master", "bridge0", "up")
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
        yield hosts
    finally:
        for name in (*(host.name for host in hosts.values()), switch):
            pids = subprocess.run(
                ["ip", "netns", "pids", name], capture_output=True, text=True, timeout=600, check=False
            ).stdout.split()
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(int(pid), 9)
            _quietly("netns", "del", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def _quietly(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, timeout=600, check=False)
