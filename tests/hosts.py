"""Several hosts on one machine: network namespaces, and a switch to join them."""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


SERIAL = itertools.count()
NAMES = "/run/netns"

# The host's own name must be its address there, as it is where gloo listens.
ENTER = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


class Hosts:
    """So many hosts, each with its name, its address and its cable to the switch."""

    def __init__(self, count: int, folder: Path):
        own = f"natgrad-{os.getpid()}-{next(SERIAL)}"
        self.names = [f"{own}-{host}" for host in range(count)]
        self.addresses = [f"10.77.0.{host + 1}" for host in range(count)]
        self.started: list[subprocess.Popen[str]] = []
        self._switch = f"{own}-switch"
        self._file = folder / "hosts"
        pairs = zip(self.addresses, self.names, strict=True)
        lines = ["127.0.0.1 localhost", *(" ".join(pair) for pair in pairs)]
        self._file.write_text("\n".join(lines) + "\n")

    def connect(self) -> None:
        for name in (self._switch, *self.names):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for host, (name, address) in enumerate(
            zip(self.names, self.addresses, strict=True)
        ):
            port = ["peer", "name", f"port{host}", "netns", self._switch]
            _ip("link", "add", "eth0", "netns", name, "type", "veth", *port)
            switch = ["-n", self._switch, "link", "set", f"port{host}"]
            _ip(*switch, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def start(
        self, host: int, command: Sequence[str], **options: Any
    ) -> "subprocess.Popen[str]":
        """A command on one of the hosts; a signal to it reaches the command itself."""
        name = self.names[host]
        inside = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", ENTER]
        place = ["sh", name, str(self._file)]
        process = subprocess.Popen([*inside, *place, *command], text=True, **options)
        self.started.append(process)
        return process

    def cut(self, host: int) -> None:
        """Pulls the cable of a host out of the switch: nobody is told."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def mend(self, host: int) -> None:
        _ip("-n", self._switch, "link", "set", f"port{host}", "up")

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        for name in (self._switch, *self.names):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def hosts(count: int = 2) -> Iterator[Hosts]:
    """Hosts that are gone afterwards, with all that was started on them."""
    with tempfile.TemporaryDirectory() as folder:
        some = Hosts(count, Path(folder))
        _sweep()
        try:
            some.connect()
            yield some
        finally:
            some.close()


def is_possible() -> bool:
    """Whether this machine and this user can have hosts of their own."""
    tools = ("ip", "unshare", "mount", "hostname")
    if os.geteuid() or not all(map(shutil.which, tools)):
        return False
    try:
        with hosts(1) as one:
            return one.start(0, ["true"]).wait() == 0
    except subprocess.CalledProcessError:
        return False


def _sweep() -> None:
    """Removes what a process left that was killed before it could."""
    for name in os.listdir(NAMES) if os.path.isdir(NAMES) else ():
        found = re.fullmatch(r"natgrad-(\d+)-\d+-\w+", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
