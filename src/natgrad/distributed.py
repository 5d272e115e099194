"""Training with several processes, on one host or many."""

import contextlib
import json
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from natgrad.errors import InputError, NatgradError, PeerError, Terminated


__all__ = ["initialize"]


LOST, STUCK, TERMINATED = 17, 18, 143
"""Exit codes: another process was lost, this one was stuck, SIGTERM ended the run."""

T = TypeVar("T")
LIMITS = {"STARTING": 300.0, "HEARTBEAT": 30.0, "PATIENCE": 300.0}
"""Seconds until all processes must have connected, until a silent one counts as lost,
and until one that takes no step counts as stuck.

NATGRAD_STARTING_SECONDS and so on set them.
"""


class Place(NamedTuple):
    """Which of how many processes this is, and what all of them agree on."""

    process: int = 0
    processes: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes for all."""
        return self.process == 0

    def first(self, value: T) -> T:
        """The value of the first process, of which JSON can hold both."""
        return self.gather(value)[0]

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in their order."""
        if self.processes == 1:
            return [value]
        return [json.loads(each) for each in exchange(json.dumps(value).encode())]


def initialize() -> Place:
    """Joins the processes that a launcher has started, so that they train as one.

    Call it before you use JAX. It returns the number of this process and the number of
    all processes. The address of process 0 is NATGRAD_COORDINATOR, host:port, or what
    JAX detects under Slurm and Open MPI. A single process stays as it is.

    After this call an uncaught error ends the process at once, and with it all others,
    each with a code that is not 0, so that a launcher can restart them.

    Raises:
        InputError: If the address of process 0 is unknown, or JAX was used before.
        PeerError: If another process does not connect.

    >>> natgrad.distributed.initialize()  # one process
    Place(process=0, processes=1)
    """
    here = place()
    if here.processes == 1:
        return here
    import jax
    from jax.experimental import multihost_utils

    if jax.distributed.is_initialized():
        return here
    heartbeat = math.ceil(limit("HEARTBEAT"))
    options: dict[str, Any] = {
        "initialization_timeout": math.ceil(limit("STARTING")),
        "heartbeat_timeout_seconds": heartbeat,
        "shutdown_timeout_seconds": heartbeat,
    }
    address = os.environ.get("NATGRAD_COORDINATOR")
    if address is not None:
        options |= {
            "coordinator_address": address,
            "num_processes": here.processes,
            "process_id": here.process,
            "cluster_detection_method": "deactivate",
        }
        # Or it would listen to everybody on the network.
        if here.process == 0:
            _check_can_listen(address)
            options["coordinator_bind_address"] = address
    elif "NATGRAD_NUM_PROCESSES" in os.environ:
        raise InputError(
            f"this is process {here.process} of {here.processes}, and the address of "
            "process 0 is unknown: set NATGRAD_COORDINATOR to its host:port"
        )
    sys.excepthook = _exit_after
    with _stdout_to_stderr(), _together():
        jax.distributed.initialize(**options)
        if jax.process_count() != here.processes:
            raise InputError(
                f"JAX has {jax.process_count()} processes and the launcher has "
                f"{here.processes}; call natgrad.distributed.initialize() before "
                "you use JAX"
            )
        # The first collective of all has a fixed limit of 30 seconds on CPUs, which
        # compiling the first step may exceed.
        multihost_utils.sync_global_devices("natgrad")
    return here


def exchange(data: bytes) -> list[bytes]:
    """The data of all processes, in their order."""
    if not is_started():
        return [data]
    import numpy as np
    from jax.experimental import multihost_utils

    with lost_peers():
        sizes = multihost_utils.process_allgather(np.asarray(len(data)))
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        rows = multihost_utils.process_allgather(padded)
    pairs = zip(np.asarray(rows), sizes.tolist(), strict=True)
    return [row[:size].tobytes() for row, size in pairs]


def barrier() -> None:
    """Waits for all processes."""
    exchange(b"")


@contextlib.contextmanager
def lost_peers() -> Iterator[None]:
    """Raises a PeerError if a collective fails because a process was lost."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        is_ours = isinstance(error, NatgradError)
        if is_ours or not (is_started() and _is_of_peers(error)):
            raise
        why = (str(error).splitlines() or [""])[0]
        raise PeerError(
            f"another process was lost: {why:.150}; restart all processes, and they "
            "resume from the last checkpoint"
        ) from error


def leave(code: int) -> None:
    """Ends this process at once if it is one of several, and so all of them.

    An ordinary exit would wait for the others, which may wait for this one. After
    SIGTERM all processes end at the same step, and this one does wait for them.
    """
    if is_started():
        if code == TERMINATED:
            import jax

            with contextlib.suppress(Exception):
                jax.distributed.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def limit(name: str) -> float:
    """One of `LIMITS`, as the environment sets it."""
    variable = f"NATGRAD_{name}_SECONDS"
    given = os.environ.get(variable, str(LIMITS[name]))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"{variable} is {given!r}; it should be a number above 0")
    return seconds


def place() -> Place:
    """Which of how many processes this is, from its launcher.

    It reads NATGRAD_PROCESS_ID and NATGRAD_NUM_PROCESSES, the first of which may be the
    index of a Kubernetes job, or the variables of Slurm and Open MPI.
    """
    if "NATGRAD_NUM_PROCESSES" in os.environ:
        processes = os.environ["NATGRAD_NUM_PROCESSES"]
        index = os.environ.get("JOB_COMPLETION_INDEX", "0" if processes == "1" else "?")
        return _checked(os.environ.get("NATGRAD_PROCESS_ID", index), processes)
    # Of a step of Slurm: the script of a batch is a process by itself.
    for process, processes in (
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if process in os.environ and processes in os.environ:
            return _checked(os.environ[process], os.environ[processes])
    return Place(0, 1)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirects what Gloo prints to stdout, where results should be."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Raises a PeerError if not all processes connect."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, NatgradError):
            raise
        why = (str(error).splitlines() or [""])[0]
        seconds = limit("STARTING")
        raise PeerError(
            f"not all processes connected within {seconds:g} seconds: {why:.150}; "
            "restart all of them"
        ) from error


def is_started() -> bool:
    """Whether this process is one of several that were joined."""
    if "jax" not in sys.modules:
        return False
    import jax

    return jax.distributed.is_initialized() and jax.process_count() > 1


def _check_can_listen(address: str) -> None:
    """Waits until this host can listen at an address; JAX would crash there if not.

    The name of a new host may be unknown at first, or still be that of the one before
    it. A fifth of the time for starting is for that.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + limit("STARTING") / 5
    while True:
        try:
            if not 0 < int(port) < 2**16:
                raise ValueError(f"there is no port {port}")
            family, *_, where = socket.getaddrinfo(host.strip("[]"), int(port))[0]
            socket.create_server(where[:2], family=family).close()
            return
        except (OSError, ValueError) as error:
            if time.monotonic() > end or not isinstance(error, OSError):
                raise InputError(
                    f"NATGRAD_COORDINATOR is {address!r}, where process 0 cannot "
                    f"listen: {getattr(error, 'strerror', error)}; it should be the "
                    "host:port of this process, with a free port"
                ) from error
            time.sleep(0.5)


def _is_of_peers(error: Exception) -> bool:
    words = ("Gloo", "gloo", "NCCL", "Connection", "coordination", "DEADLINE")
    return any(word in str(error) for word in words)


def _exit_after(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    traceback.print_exception(kind, error, trace)
    codes = {PeerError: LOST, Terminated: TERMINATED}
    leave(codes.get(kind, 1))


def _checked(process: str, processes: str) -> Place:
    try:
        found = Place(int(process), int(processes))
    except ValueError:
        found = Place(-1, 0)
    if not 0 <= found.process < found.processes:
        raise InputError(
            f"the environment says this is process {process} of {processes}; processes "
            "count from 0: set NATGRAD_PROCESS_ID and NATGRAD_NUM_PROCESSES"
        )
    return found
