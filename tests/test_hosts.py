"""Hosts on one machine are hosts: with names, addresses and cables."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts import hosts, is_possible


pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not is_possible(), reason="needs root and iproute2"),
]

WHO = "import socket; name = socket.gethostname(); print(socket.gethostbyname(name))"
LISTEN = "import socket, time; _ = socket.create_server(('', 7)); time.sleep(60)"
HEARTBEAT = 5
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


def test_what_a_killed_process_left_is_removed():
    dead = subprocess.Popen(["true"])
    dead.wait()
    name = f"natgrad-{dead.pid}-0-0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    with hosts(1) as some:
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
        assert name not in listed and some.names[0] in listed


def test_two_sets_of_hosts_do_not_meet():
    with hosts(1) as one, hosts(2) as two:
        python(one, 0, LISTEN)
        assert is_reached(one, 0, 0)
        assert not is_reached(two, 0, 0, tries=1)
        assert not is_reached(two, 1, 0, tries=1)


# Hosts that are not of the run


RULES = Path(__file__).parents[1] / "examples" / "scale" / "natgrad.nft"
SERVE = "import socket, time; _ = socket.create_server(('', 7777)); time.sleep(60)"
KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], 7777), 0.3)"


def guard(some, host):
    """Loads the rules that the page has, whose hosts are the first two."""
    return some.start(host, ["nft", "-f", str(RULES)]).wait(10)


def can_guard():
    if shutil.which("nft") is None:
        return False
    with hosts(1) as one:
        return guard(one, 0) == 0


needs_nft = pytest.mark.skipif(not can_guard(), reason="needs nftables")


@needs_nft
def test_with_the_rules_a_host_that_is_not_of_the_run_reaches_no_port_of_it():
    def is_let_in(here, there, tries):
        knock = lambda: python(some, here, KNOCK, some.names[there]).wait(10)
        return any(knock() == 0 for _ in range(tries))

    with hosts(3) as some:
        for host in range(3):
            python(some, host, SERVE)
        assert is_let_in(2, 0, 20) and is_let_in(2, 1, 20)
        assert guard(some, 0) == guard(some, 1) == 0
        assert not is_let_in(2, 0, 3) and not is_let_in(2, 1, 3)
        assert is_let_in(1, 0, 20) and is_let_in(0, 1, 20)
        assert is_let_in(0, 2, 20)  # what a host connects to is left to it


# Training


TRAIN = """
import sys, time
from natgrad import distributed

distributed.initialize()

import hashlib, jax, numpy as np
from natgrad import gp

rng = np.random.default_rng(0)
x = rng.normal(size=(500, 2)).astype(np.float32)
y = np.sin(x).sum(1) + 0.1 * rng.normal(size=500).astype(np.float32)
model = gp.initialize(x, gp.likelihoods.Gaussian(0.1), 10)
keep = {"checkpoint": sys.argv[1], "resume": True, "save_seconds": 0.2}
slow = {"log_every": 1, "callbacks": [lambda *_: time.sleep(float(sys.argv[2]))]}
fitted = gp.fit(model, (x, y), batch_size=64, steps=100, progress=False, **keep, **slow)
values = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(fitted.params)]
print(hashlib.sha256(b"".join(values)).hexdigest())
"""


def trainers(some, folder, pause=0.02):
    """A process on the first two hosts; their folder is one, on a disk that all see."""
    env = os.environ | {
        "NATGRAD_COORDINATOR": f"{some.names[0]}:7777",
        "NATGRAD_NUM_PROCESSES": "2",
        "NATGRAD_HEARTBEAT_SECONDS": str(HEARTBEAT),
    }
    command = [sys.executable, "-c", TRAIN, str(folder), str(pause)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [
        some.start(host, command, env=env | {"NATGRAD_PROCESS_ID": str(host)}, **pipes)
        for host in range(2)
    ]


def newest(folder):
    return max((int(path.stem) for path in folder.glob("*.natgrad")), default=0)


def test_a_cut_cable_ends_all_and_what_is_started_again_goes_on(tmp_path):
    with hosts(2) as some:
        cut = trainers(some, tmp_path)
        while not newest(tmp_path):
            assert all(process.poll() is None for process in cut)
            time.sleep(0.05)
        some.cut(1)
        begun = time.monotonic()
        for process in cut:
            _, said = process.communicate(timeout=60)
            assert process.returncode not in (0, 1, 2)  # which are not tried again
            assert "another task died" in said
        assert time.monotonic() - begun < 3 * HEARTBEAT
        assert 0 < newest(tmp_path) < 100
        some.mend(1)
        ended = [
            process.communicate(timeout=120)[0] for process in trainers(some, tmp_path)
        ]
        one, other = [lines.splitlines()[-1] for lines in ended]
    assert newest(tmp_path) == 100
    assert one == other


FOREIGN = """
import sys, jax
jax.distributed.initialize(sys.argv[1], 2, 1, initialization_timeout=10)
"""


@needs_nft
def test_a_foreign_process_ends_a_run_which_goes_on_where_the_rules_keep_it_out(
    tmp_path,
):
    with hosts(3) as some:

        def begun():
            # Slow enough that the foreign process comes before the end.
            run, before = trainers(some, tmp_path, 0.3), newest(tmp_path)
            while newest(tmp_path) == before:
                assert all(process.poll() is None for process in run)
                time.sleep(0.05)
            command = [sys.executable, "-c", FOREIGN, f"{some.names[0]}:7777"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            return run, some.start(2, command, **quiet)

        ended, _ = begun()
        for process in ended:
            process.communicate(timeout=60)
            assert process.returncode not in (0, 1, 2)  # which are not tried again
        assert 0 < (saved := newest(tmp_path)) < 100
        assert guard(some, 0) == guard(some, 1) == 0
        run, foreign = begun()
        lines = [process.communicate(timeout=120)[0] for process in run]
        assert [process.returncode for process in run] == [0, 0]
        foreign.kill()
    assert newest(tmp_path) == 100 > saved
    one, other = [line.splitlines()[-1] for line in lines]
    assert one == other
