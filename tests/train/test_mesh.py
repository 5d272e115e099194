"""Devices and processes that share a batch change nothing but the time it takes."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.data import Arrays, Batch, IterableBatches
from natgrad.linalg import Full, Log, Sqrt
from natgrad.train import _mesh as mesh
from natgrad.train._devices import ALONE, AXIS, Across, Devices
from tests.variants import variants


ROOT = Path(__file__).parents[2]
MESHED, PROGRAM = Path(__file__).parent / "meshed.py", ROOT / "benchmarks" / "mesh.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Parameters after 40 guarded steps with hyperparameters."""
    folder = tmp_path_factory.mktemp("meshed")

    @functools.cache
    def run(kind, processes, devices):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        out = folder / f"{kind}-{processes}-{devices}.npz"
        begun = [
            subprocess.Popen(
                [sys.executable, str(MESHED), kind, str(devices), str(out)],
                env=os.environ
                | {
                    "NATGRAD_COORDINATOR": f"127.0.0.1:{port}",
                    "NATGRAD_NUM_PROCESSES": str(processes),
                    "NATGRAD_PROCESS_ID": str(process),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for process in range(processes)
        ]
        said = [process.communicate(timeout=300)[1] for process in begun]
        assert not any(process.returncode for process in begun), said[0][-3000:]
        with np.load(out) as file:
            return list(file.values())

    return run


def difference(one, other):
    """The largest, relative to the largest number of its array."""
    pairs = zip(one, other, strict=True)
    return max(np.abs(a - b).max() / np.abs(a).max() for a, b in pairs)


@pytest.mark.parametrize("processes", variants([2, 4], [2]))
def test_processes_give_what_one_gives(trained, processes):
    here = difference(trained("plain", 1, 1), trained("plain", processes, 1))
    assert here <= 1e-12


def test_two_processes_are_two_devices_to_the_last_bit(trained):
    pairs = zip(trained("plain", 2, 1), trained("plain", 1, 2), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.nightly
def test_the_best_on_held_out_rows_is_the_best_of_one_device(trained):
    assert difference(trained("score", 1, 1), trained("score", 2, 2)) <= 1e-12


@pytest.mark.nightly
def test_a_step_has_one_collective_of_the_bytes_that_it_should():
    command = [sys.executable, str(PROGRAM), "program", "--devices", "1,4", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    found = json.loads(said.stdout)
    alone = {row["kind"]: row["flops"] for row in found if row["devices"] == 1}
    assert set(alone) == {"one gradient", "in turn", "guarded"}
    for row in found:
        kinds = [name for name, _ in row["collectives"]]
        sizes = [size for _, size in row["collectives"]]
        assert set(kinds) <= {"all-reduce"}
        assert sorted(sizes) == sorted(row["expected"])
        # The dearest part is not repeated: a quarter of the rows, a quarter of it.
        assert row["flops"] <= 1.1 * alone[row["kind"]] / row["devices"]
    ordinary = [row for row in found if row["kind"] == "one gradient"]
    assert [len(row["collectives"]) for row in ordinary] == [0, 1]


# What is sent


@pytest.mark.parametrize("size", variants([1, 2, 5, 8], [1, 5]))
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("kind", [Full, Sqrt, Log])
def test_one_triangle_of_a_gradient_is_all_of_it(kind, shape, size):
    key = jax.random.key(size)
    matrix = jax.random.normal(key, (*shape, size, size), float)
    matrix = jnp.tril(matrix) if kind is Sqrt else matrix + matrix.mT
    packed = kind(matrix).pack()
    whole = kind(matrix).unpack(packed)
    assert isinstance(whole, kind)
    np.testing.assert_array_equal(jax.tree.leaves(whole)[0], matrix)
    even = size + size % 2
    number = sum(leaf.size for leaf in jax.tree.leaves(packed))
    assert number == int(np.prod(shape)) * even * (even + 1) // 2


def test_a_mean_over_parts_is_that_of_the_whole():
    """Under `vmap`, parts of an axis are devices."""
    tree = {
        "q": Sqrt(jnp.tril(jax.random.normal(jax.random.key(0), (4, 3, 3), float))),
        "single": jnp.arange(4, dtype=jnp.float32),
        "double": jax.random.normal(jax.random.key(1), (4, 2), float),
    }
    means = jax.vmap(Across(4).mean, axis_name=AXIS)(tree)
    for mean, leaf in zip(jax.tree.leaves(means), jax.tree.leaves(tree), strict=True):
        assert mean.dtype == leaf.dtype
        expected = np.broadcast_to(np.asarray(leaf).mean(0), leaf.shape)
        np.testing.assert_allclose(mean, expected, rtol=1e-6)


def test_alone_nothing_is_sent_and_nothing_changes():
    tree, batch = {"a": jnp.ones(2)}, Batch(np.ones((2, 1)), np.ones(2))
    assert ALONE.mean(tree) is tree
    assert ALONE.part(batch)[0] is batch


def test_the_rows_of_a_part_stand_for_those_of_all():
    batch = Batch(np.ones((2, 1)), np.ones(2))
    part, across = Across(4).part(batch)
    assert part.weight.tolist() == [4, 4] and not across.is_uneven
    part, across = Across(4).part(batch._replace(weight=np.array([1.0, 2.0])))
    assert part.weight.tolist() == [4, 8] and across.is_uneven


# Losses that can be shared


def data(weight=None):
    columns = Batch(np.arange(12.0)[:, None], np.arange(12.0) ** 2, weight)
    return Arrays(columns, batch_size=12)


def test_a_loss_that_is_an_estimate_for_all_data_is_shared():
    mean = lambda p, batch: 12 * jnp.mean(batch.y) + p
    assert mesh.unlike_parts(mean, 1.0, data()) is None
    by_weight = lambda p, batch: batch.weight @ batch.y + p
    assert mesh.unlike_parts(by_weight, 1.0, data(np.arange(1.0, 13))) is None


def test_a_loss_that_is_a_sum_over_rows_is_not():
    why = mesh.unlike_parts(lambda p, batch: jnp.sum(batch.y) + p, 1.0, data())
    assert "the mean over its halves" in why


def test_a_mean_by_weights_of_which_some_are_elsewhere_is_not():
    mean = lambda p, batch: 12 * (batch.weight @ batch.y) / batch.weight.sum()
    assert mesh.unlike_parts(mean, 1.0, data(np.ones(12))) is not None


def test_a_generator_keeps_its_first_batch():
    batches = IterableBatches(iter([(np.ones((4, 1)), np.arange(4.0))] * 3), 12)
    by_weight = lambda p, batch: batch.weight @ batch.y
    assert mesh.unlike_parts(by_weight, 1.0, batches) is None
    assert [batches.take(step, 1) is None for step in range(4)] == [False] * 3 + [True]


def test_a_loss_with_a_key_is_taken_at_its_word():
    loss = lambda p, batch, key: jnp.sum(batch.y)
    assert mesh.unlike_parts(loss, 1.0, data()) is None


def test_one_device_is_no_mesh():
    assert mesh.devices_of(256) == Devices()
