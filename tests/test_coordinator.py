"""The first process listens where it says, or says why it cannot."""

import socket
import threading
import time

import pytest

from natgrad import distributed
from natgrad.errors import InputError


def not_reached(**_):
    raise AssertionError


@pytest.fixture
def first(monkeypatch):
    """The first of two processes, with half a second to listen."""
    monkeypatch.setenv("NATGRAD_NUM_PROCESSES", "2")
    monkeypatch.setenv("NATGRAD_PROCESS_ID", "0")
    monkeypatch.setenv("NATGRAD_STARTING_SECONDS", "2.5")
    monkeypatch.setattr("jax.distributed.initialize", not_reached)
    return lambda address: monkeypatch.setenv("NATGRAD_COORDINATOR", address)


@pytest.mark.parametrize(
    "address",
    [
        "no-such-host.invalid:7777",
        "192.0.2.77:7777",  # of nobody
        "localhost",
        "localhost:port",
        "localhost:99999999999",
        "localhost:77777",
        "",
    ],
)
def test_where_it_cannot_listen_is_said(first, address):
    first(address)
    with pytest.raises(InputError, match="NATGRAD_COORDINATOR is .*host:port"):
        distributed.initialize()


def test_a_port_that_is_taken_is_waited_for(first, monkeypatch):
    taken = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    first(address)
    with pytest.raises(InputError, match="cannot listen: Address already in use"):
        distributed.initialize()
    monkeypatch.setenv("NATGRAD_STARTING_SECONDS", "100")
    begun = time.monotonic()
    threading.Timer(0.7, taken.close).start()
    distributed._check_can_listen(address)
    assert 0.7 <= time.monotonic() - begun < 10
    distributed._check_can_listen(address)  # and it is free


def test_what_is_started_is_not_started_again(first, monkeypatch):
    first("no-such-host.invalid:7777")
    monkeypatch.setattr("jax.distributed.is_initialized", lambda: True)
    assert distributed.initialize() == (0, 2)
