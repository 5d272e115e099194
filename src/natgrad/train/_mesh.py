"""Devices and hosts as one: the rows of a batch are shared out, all else is repeated.

A batch is cut into equal parts, one for each device of each process. A device sees its
part alone, and the loss of the batch is the mean of those of its parts. Whatever a rule
needs of the whole batch, it asks of `Across.mean`: one collective, of one flat vector.
Then all devices continue with the same numbers, and so make the same decisions.
"""

import contextlib
import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import PyTree

from natgrad import distributed
from natgrad.data._batches import Batch, Batches
from natgrad.errors import InputError, InputWarning, warn
from natgrad.train._devices import AXIS, Across, Devices
from natgrad.train._rules import Loss, Rule


ALL, ROWS = P(), P(None, AXIS)
"""What every device has; batches of one step after another, cut by rows."""

UNEQUAL = 1e-4
"""How far, as a share, a loss may be from the mean of its halves: rounding is less."""


class ManyDevices(Devices):
    """All devices of all processes, or those of them that a batch can be cut for."""

    def __init__(self, mesh: Mesh):
        self.mesh, self.across = mesh, Across(mesh.shape[AXIS])
        self.is_first = jax.process_index() == 0
        self.is_one_process = jax.process_count() == 1
        self._watchdog = Watchdog()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        if self.is_one_process:
            yield
            return
        seconds = distributed.limit("PATIENCE")
        with self._watchdog.watching(seconds), distributed.lost_peers():
            yield
            self.agree([0.0])  # none leaves before the last checkpoint is there

    def share(self, batches: Any, config: dict[str, Any]) -> Any:
        if self.is_one_process:
            return batches
        here = distributed.place()
        runs = here.gather(config)
        for process, other in enumerate(runs):
            if other != runs[0]:
                raise InputError(
                    f"process {process} has a different run from process 0: "
                    f"{other!s:.300}, not {runs[0]!s:.300}"
                )
        if not hasattr(batches, "share"):
            raise InputError(
                f"a {type(batches).__name__} cannot be split between "
                f"{here.processes} processes: it has no method share(process, "
                "processes), as natgrad.data.Arrays and Parquet have"
            )
        return batches.share(here.process, here.processes)

    def begin(self, state: PyTree, seconds: float) -> tuple[Any, float]:
        if not self.is_one_process:
            state, seconds = self._broadcast((state, seconds))
        return self.spread(state), float(seconds)

    def sharded(self, function: Callable[..., Any]) -> Any:

        def called(first: PyTree, batches: PyTree, *rest: PyTree) -> Any:
            specs = (ALL, ROWS, *(ALL for _ in rest))
            # What varies between devices is not tracked: nothing that is differentiated
            # holds a collective, and so gradients are those of a device's own part.
            mapped = jax.shard_map(
                function,
                mesh=self.mesh,
                in_specs=specs,
                out_specs=ALL,
                axis_names={AXIS},
                check_vma=False,
            )
            return mapped(first, batches, *rest)

        return called

    def spread(self, tree: PyTree) -> Any:
        sharding = NamedSharding(self.mesh, ALL)

        def placed(leaf: PyTree) -> Any:
            is_array = isinstance(leaf, jax.Array)
            if is_array and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
                return leaf
            value = np.asarray(leaf)
            at = lambda place: value[place]
            return jax.make_array_from_callback(value.shape, sharding, at)

        return jax.tree.map(placed, tree)

    def place(self, batches: PyTree) -> Any:
        sharding = NamedSharding(self.mesh, ROWS)
        put = functools.partial(jax.make_array_from_process_local_data, sharding)
        return jax.tree.map(put, batches)

    def local(self, tree: PyTree) -> Any:
        is_shared = lambda leaf: isinstance(leaf, jax.Array)
        one = lambda leaf: leaf.addressable_data(0) if is_shared(leaf) else leaf
        return jax.tree.map(one, tree)

    def _broadcast(self, tree: PyTree) -> Any:
        """A tree of numbers as the first process has it, to the last bit."""
        leaves, structure = jax.tree.flatten(tree)
        arrays = [np.asarray(leaf) for leaf in leaves]
        data = np.frombuffer(b"".join(a.tobytes() for a in arrays), np.uint8)
        data = multihost_utils.broadcast_one_to_all(data, self.is_first)
        ends = np.cumsum([a.nbytes for a in arrays])[:-1]
        parts = zip(np.split(np.asarray(data), ends), arrays, strict=True)
        values = [
            np.frombuffer(p.tobytes(), a.dtype).reshape(a.shape) for p, a in parts
        ]
        return jax.tree.unflatten(structure, values)

    def agree(self, values: list[float]) -> list[float]:
        if self.is_one_process:
            return values
        here = len(self.mesh.local_devices)
        dtype = jax.dtypes.canonicalize_dtype(float)
        rows = np.tile(np.asarray(values, dtype), (here, 1))
        sharding = NamedSharding(self.mesh, P(AXIS))
        stacked = jax.make_array_from_process_local_data(sharding, rows)
        agreed = np.asarray(_largest(self.mesh)(stacked)).tolist()
        self._watchdog.see()
        return agreed


class Watchdog:
    """Ends a process that takes no step for too long.

    A process that is stuck keeps all others waiting, and nothing else would end them.
    The time is measured from its first steps, so that compiling has no limit.
    """

    def __init__(self) -> None:
        self.agreements, self.seen = 0, 0.0

    def see(self) -> None:
        """Notes that all processes have agreed once more."""
        self.agreements, self.seen = self.agreements + 1, time.monotonic()

    @contextlib.contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        is_over = threading.Event()
        threading.Thread(
            target=self._watch, args=(seconds, is_over), daemon=True
        ).start()
        try:
            yield
        finally:
            is_over.set()

    def _watch(self, seconds: float, is_over: threading.Event) -> None:
        while not is_over.wait(min(1.0, seconds / 4)):
            # Two agreements come before the first steps, which are compiled.
            if self.agreements > 2 and time.monotonic() - self.seen > seconds:
                text = f"no step in {seconds:g} seconds: exiting; other processes"
                print(f"{text} will follow", file=sys.stderr, flush=True)
                os._exit(distributed.STUCK)


def unlike_parts(loss: Loss, params: PyTree, batches: Batches) -> str | None:
    """Why devices cannot share a loss: on a batch it is not the mean over its halves.

    A sum over rows, or a weighted mean that does not know all weights, would be wrong
    on several devices without an error. A loss with a key cannot be compared.
    """
    if "key" in inspect.signature(loss).parameters:
        return None
    batch = getattr(batches, "first", None)  # of what can be gone through but once
    if batch is None and (taken := batches.take(0, 1)) is not None:
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[0], taken)
    half = 0 if batch is None else len(jax.tree.leaves(batch)[0]) // 2
    if not half:
        return None
    if isinstance(batch, Batch) and batch.weight is not None:
        uneven = np.where(np.arange(len(batch.x)) < half, 1, 3)
        batch = batch._replace(weight=np.asarray(batch.weight) * uneven)
    cut = lambda begin, end: jax.tree.map(lambda leaf: leaf[begin:end], batch)
    halves = [Across(2).part(cut(0, half))[0], Across(2).part(cut(half, 2 * half))[0]]
    whole = float(loss(params, cut(0, 2 * half)))
    mean = sum(float(loss(params, part)) for part in halves) / 2
    if not np.isfinite(whole) or abs(whole - mean) <= UNEQUAL * (abs(whole) + 1):
        return None
    return (
        f"the loss of a batch is {whole:.6g}, but the mean over its halves is "
        f"{mean:.6g}; for several devices it should be an estimate for all the data, "
        "such as num_data times a mean over rows, or a weighted sum"
    )


@functools.lru_cache(maxsize=8)
def _largest(mesh: Mesh) -> Any:
    return jax.jit(lambda rows: rows.max(0), out_shardings=NamedSharding(mesh, ALL))


def devices_for(
    rule: Rule, loss: Loss | None, params: PyTree, batches: Batches
) -> Devices:
    """All devices, if the loss can be shared out to them.

    Raises:
        InputError: If there are several processes and it cannot.
    """
    if rule.is_over is not None:  # such a rule sees all rows at every step
        return Devices()
    devices = devices_of(getattr(batches, "batch_size", None))
    if devices.across.number == 1 or rule.is_shareable or loss is None:
        return devices
    why = unlike_parts(loss, params, batches)
    if why is None:
        return devices
    if not devices.is_one_process:
        raise InputError(why)
    warn(f"{why}; one device is used", InputWarning)
    return Devices()


def devices_of(rows: int | None) -> Devices:
    """The devices that batches of so many rows, of all processes, are cut for.

    All there are, if they divide the rows; of one process alone as many as do.
    """
    everywhere = jax.devices()
    if jax.process_count() > 1:
        if rows is None or rows % len(everywhere):
            raise InputError(
                f"batches have {rows} rows, which {len(everywhere)} devices cannot "
                f"split equally; use a multiple of {len(everywhere)}"
            )
        return meshed(everywhere)
    if rows is None or len(everywhere) == 1:
        return Devices()
    number = max(n for n in range(1, len(everywhere) + 1) if rows % n == 0)
    return Devices() if number == 1 else meshed(everywhere[:number])


def meshed(devices: list[Any]) -> ManyDevices:
    """Some devices as one."""
    return ManyDevices(Mesh(np.asarray(devices), (AXIS,)))
