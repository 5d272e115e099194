"""Hosts on one machine are hosts: with names, addresses and cables."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import hosts, is_possible


pytestmark = pytest.mark.skipif(not is_possible(), reason="needs root and iproute2")

WHO = "import socket; name = socket.gethostname(); print(socket.gethostbyname(name))"
LISTEN = "import socket, time; _ = socket.create_server(('', 7)); time.sleep(60)"
REACH = "import socket, sys; socket.create_connection((sys.argv[1], 7), 0.3)"


def python(some, host, program, *arguments):
    command = [sys.executable, "-S", "-c", program, *arguments]
    return some.start(host, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def is_reached(some, here, there, tries=20):
    """Tried often: one may only begin to listen, or the switch to learn."""
    reach = lambda: python(some, here, REACH, some.names[there]).wait(10)
    return any(reach() == 0 for _ in range(tries))


def test_a_name_is_an_address_and_not_that_of_all_hosts():
    with hosts(3) as some:
        for host, address in enumerate(some.addresses):
            said, _ = python(some, host, WHO).communicate(timeout=10)
            assert said.split() == [address]


def test_hosts_reach_each_other_while_there_is_a_cable():
    with hosts(3) as some:
        for host in range(3):
            python(some, host, LISTEN)
        assert is_reached(some, 0, 1) and is_reached(some, 1, 2)
        some.cut(1)
        assert not is_reached(some, 0, 1, tries=2)
        assert not is_reached(some, 1, 2, tries=2)
        assert is_reached(some, 0, 2)
        some.mend(1)
        assert is_reached(some, 0, 1)


def test_nothing_is_left_whatever_happens():
    with pytest.raises(KeyError), hosts(2) as some:
        process = python(some, 0, LISTEN)
        inside = Path(f"/proc/{process.pid}")
        assert inside.exists()
        raise KeyError
    assert not inside.exists()
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert not any(name in listed for name in some.names)
    assert not any(name in Path("/etc/hosts").read_text() for name in some.names)


def test_two_sets_of_hosts_do_not_meet():
    with hosts(1) as one, hosts(2) as two:
        python(one, 0, LISTEN)
        assert is_reached(one, 0, 0)
        assert not is_reached(two, 0, 0, tries=1)
        assert not is_reached(two, 1, 0, tries=1)
