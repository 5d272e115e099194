"""Laws of checkpoints: what was saved comes back bit for bit, or not at all."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from natgrad import _container as container
from natgrad.errors import CheckpointError, CheckpointWarning, InputError
from natgrad.train._checkpoint import FolderCheckpoints, describe


CONFIG = {"seed": 3, "model": {"kernel": "Matern52", "lengthscale": 0.1}}


class Moments(NamedTuple):
    mean: Any
    root: Any


class Model(eqx.Module):
    posterior: Moments
    activation: Any
    name: str = eqx.field(static=True)


def state_of(step: int) -> dict[str, Any]:
    """A state of every kind of leaf, with values of its own at every step."""
    draws = np.random.default_rng(step)
    values = draws.standard_normal(7)
    # The two that are easily lost: the sign of zero and the bits of a NaN.
    values[:2] = -0.0, np.uint64(0x7FF800000000ABCD + step).view(float)
    moments = Moments(jnp.asarray(values), jnp.asarray(values, jnp.float32)[:, None])
    bits = draws.integers(0, 2**16, (3, 5))
    dtypes = (bool, np.int8, np.uint32, np.int64, np.float16, ml_dtypes.bfloat16)
    return {
        "model": Model(moments, jnp.tanh, "sparse"),
        "arrays": [jnp.asarray(bits % 99).astype(dtype) for dtype in dtypes],
        "scalars": [jnp.asarray(dtype(step % 2)) for dtype in dtypes],
        "complex": jnp.asarray(values * 1j),
        "numbers": (step, step / 3, step % 2 == 0, jnp.asarray(0.5 + step)),
        "numpy": (bits, np.float32(step)),
        "none": (None, jnp.zeros((0, 3)), jnp.full(4, -0.0)),
    }


def assert_same(found: Any, saved: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(saved)
    assert describe(found) == describe(saved)
    for ours, theirs in zip(
        jax.tree.leaves(found), jax.tree.leaves(saved), strict=True
    ):
        assert type(ours) is type(theirs)
        if not callable(ours):
            assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


def restored(checkpoints: FolderCheckpoints) -> tuple[int, Any]:
    found = checkpoints.latest()
    assert found is not None
    return found.step, found.restore(state_of(99))


def saved_in(folder: Path, *steps: int, **options) -> Path:
    with FolderCheckpoints(folder, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, state_of(step), CONFIG)
    return folder


def test_a_state_comes_back_bit_for_bit(tmp_path):
    with FolderCheckpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.latest() is None
        for step in (0, 7):
            checkpoints.save(step, state_of(step), CONFIG)
        found = checkpoints.latest()
    with FolderCheckpoints(tmp_path / "new") as checkpoints:
        again = checkpoints.latest()
    for checkpoint in (found, again):
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.config) == (7, CONFIG)
        assert_same(checkpoint.restore(state_of(99)), state_of(7))
        shapes = jax.eval_shape(lambda: Moments(jnp.zeros(7), jnp.zeros((7, 1))))
        with pytest.raises(CheckpointError, match="missing"):
            checkpoint.restore(shapes)


def test_shapes_are_enough_to_restore_and_devices_are_kept(tmp_path):
    device = jax.devices()[0]
    with FolderCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(1, jnp.arange(5.0), {})
        found = checkpoints.latest()
    assert found is not None
    shape = jax.ShapeDtypeStruct((5,), float)
    assert_same(found.restore(shape), jnp.arange(5.0))
    assert not found.restore(jnp.zeros(5)).committed
    assert found.restore(jax.device_put(jnp.zeros(5), device)).committed


def test_what_is_saved_is_the_state_at_the_call(tmp_path):
    config, array, donated = {"seed": 1}, np.zeros(100_000), jnp.zeros(100_000)
    with FolderCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(0, (array, donated), config)
        array[:], config["seed"] = 1, 2
        jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
        found = checkpoints.latest()
    assert found is not None and found.config == {"seed": 1}
    assert not any(value.any() for value in found.values)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = saved_in(tmp_path, 4) / "4.natgrad"
    draw, whole = random.Random(0), path.read_bytes()
    with FolderCheckpoints(tmp_path) as checkpoints:
        for _ in range(200):
            bit = draw.randrange(8 * len(whole))
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match="no valid checkpoint: step 4: "):
                checkpoints.latest()
            path.write_bytes(whole)
        step, state = restored(checkpoints)
    assert step == 4
    assert_same(state, state_of(4))


def test_what_went_wrong_between_memory_and_file_is_noticed_too(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        # As a disk that stores another byte than the one it was given.
        patch.setattr(os, "fsync", lambda file: os.pwrite(file, b"\x55", 2000))
        saved_in(tmp_path, 4)
    altered = pytest.raises(CheckpointError, match="step 4: checksum mismatch")
    with FolderCheckpoints(tmp_path) as checkpoints, altered:
        checkpoints.latest()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGES = {
    "checksum mismatch": cut_short,
    "it is cut short": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "not a file of natgrad": lambda path: path.write_bytes(b""),
    "not a checkpoint of": lambda path: container.write(path, {"model": 1}, {}),
    "saved as step 2": lambda path: shutil.copy(path.with_name("2.natgrad"), path),
}


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path):
    for place, (reason, damage) in enumerate(DAMAGES.items()):
        folder = saved_in(tmp_path / str(place), 1, 2, 3)
        damage(folder / "3.natgrad")
        with FolderCheckpoints(folder) as checkpoints:
            with pytest.warns(
                CheckpointWarning, match=f"step 3 .* 2 is used: .*{reason}"
            ):
                step, state = restored(checkpoints)
            assert step == 2
            assert_same(state, state_of(2))
            # The run goes on from there, and replaces what was damaged.
            checkpoints.save(3, state_of(5), CONFIG)
            assert_same(restored(checkpoints), (3, state_of(5)))


def test_when_no_checkpoint_is_left_it_is_an_error_and_not_a_new_start(tmp_path):
    saved_in(tmp_path, 1, 2)
    for step in "12":
        cut_short(tmp_path / f"{step}.natgrad")
    with FolderCheckpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="step 2: check.*; step 1: check"):
            checkpoints.latest()
        checkpoints.save(1, state_of(1), CONFIG)
        assert_same(restored(checkpoints), (1, state_of(1)))


def test_the_newest_are_kept(tmp_path):
    steps = lambda: sorted(int(path.stem) for path in tmp_path.glob("*.natgrad"))
    for begin in (0, 3):
        with FolderCheckpoints(tmp_path, keep=2) as checkpoints:
            for step in range(begin, begin + 3):
                checkpoints.save(step, jnp.asarray(step), {})
                checkpoints.wait()
                assert steps() == [each for each in (step - 1, step) if each >= 0]


def test_two_runs_do_not_mix(tmp_path):
    saved_in(tmp_path, 10)
    with FolderCheckpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="step 10, and step 5 cannot follow"):
            checkpoints.save(5, state_of(5), CONFIG)
        checkpoints.save(10, state_of(11), CONFIG)
        assert_same(restored(checkpoints), (10, state_of(10)))
        with pytest.raises(CheckpointError, match=f"process {os.getpid()} on "):
            FolderCheckpoints(tmp_path)
    FolderCheckpoints(tmp_path).close()


def test_another_state_is_refused_with_the_differences(tmp_path):
    with FolderCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(1, Moments(jnp.zeros(3), [jnp.zeros(2)] * 9), {})
        found = checkpoints.latest()
    assert found is not None
    changed = r"\.mean was float64\[3\] and is float64\[4\]; \.root\[0\] was "
    with pytest.raises(CheckpointError, match=changed) as error:
        found.restore(Moments(jnp.zeros(4), {}))
    assert str(error.value).endswith("is missing; and 5 more")
    with pytest.raises(CheckpointError, match="float32"):
        found.restore(Moments(jnp.zeros(3, jnp.float32), [jnp.zeros(2)] * 9))


def test_what_cannot_be_saved_is_refused_at_once(tmp_path):
    with FolderCheckpoints(tmp_path) as checkpoints:
        with pytest.raises(InputError, match=r"\['key'\].*key_data"):
            checkpoints.save(1, {"key": jax.random.key(0)}, {})
        with pytest.raises(InputError, match=r"\['date'\].*datetime64"):
            checkpoints.save(1, {"date": np.zeros(2, "datetime64[s]")}, {})
        with pytest.raises(InputError, match="config .* JSON"):
            checkpoints.save(1, state_of(1), {"kernel": object()})
        with pytest.raises(InputError, match="step is -1"):
            checkpoints.save(-1, state_of(1), {})
        assert checkpoints.latest() is None
    with pytest.raises(CheckpointError, match="was closed"):
        checkpoints.save(1, state_of(1), {})
    with pytest.raises(InputError, match="keep is 0"):
        FolderCheckpoints(tmp_path, keep=0)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file cannot hold checkpoints: "):
        FolderCheckpoints(tmp_path / "file")


def child(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    environment = os.environ | {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    pipes: Any = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, env=environment, text=True, **pipes)


# It does without JAX's compiler and pytest, which take longer than what is looked at.
SAVE_FOR_EVER = """
import sys
import numpy as np
from natgrad.train._checkpoint import FolderCheckpoints
checkpoints = FolderCheckpoints(sys.argv[1], keep=1)
found = checkpoints.latest()
step = -1 if found is None else found.step
while True:
    step += 1
    state = list(np.random.default_rng(step).random((20, 999)))
    checkpoints.save(step, state, {"step": step})
    print(step, flush=True)
"""


def test_a_killed_process_leaves_the_last_complete_checkpoint(tmp_path):
    draw, done = random.Random(0), -1
    for _ in range(4):
        process = child(SAVE_FOR_EVER, tmp_path)
        assert process.stdout is not None
        for _ in range(draw.randrange(2, 6)):
            # A save that has begun means that the one before is complete.
            done = int(process.stdout.readline()) - 1
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0, 0.1))
        with pytest.raises(CheckpointError, match=f"in use by process {process.pid}"):
            FolderCheckpoints(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert (
            len(list(tmp_path.glob("*.natgrad"))) <= 3
        )  # the newest, the best, and one that is to go
        # No warning: a save that was cut short is not a damaged checkpoint.
        with FolderCheckpoints(tmp_path) as checkpoints:
            found = checkpoints.latest()
        assert found is not None and found.step >= done
        assert found.config == {"step": found.step}
        state = np.random.default_rng(found.step).random((20, 999))
        assert np.stack(found.values).tobytes() == state.tobytes()


FULL_DISK = """
import resource
from tests.train.test_checkpoint import *
checkpoints = FolderCheckpoints(sys.argv[1])
checkpoints.save(0, state_of(0), CONFIG)
checkpoints.wait()
for step, limit in ((1, 1000), (2, 100), (3, 10), (4, 0)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    checkpoints.save(step, state_of(step), CONFIG)
    with pytest.raises(CheckpointError, match=f"step {step} could not be written to "):
        checkpoints.wait()
    assert sorted(os.listdir(sys.argv[1])) == ["0.natgrad", "lock"]
    assert_same(restored(checkpoints), (0, state_of(0)))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
checkpoints.save(4, state_of(4), CONFIG)
assert_same(restored(checkpoints), (4, state_of(4)))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
checkpoints.save(6, state_of(6), CONFIG)
with pytest.raises(CheckpointError, match="step 6 could not be written"):
    checkpoints.close()
with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
    FolderCheckpoints(sys.argv[1])
os._exit(0)  # or what measures coverage would write
"""

READ_ONLY = """
import os
import sys
from natgrad.errors import CheckpointError
from natgrad.train._checkpoint import FolderCheckpoints
if os.getuid() == 0:  # whom no permission stops
    os.setuid(65534)
for folder in (sys.argv[1], sys.argv[1] + "/new"):
    try:
        FolderCheckpoints(folder)
    except CheckpointError as error:
        assert "cannot hold checkpoints: " in str(error) and "denied" in str(error)
    else:
        raise AssertionError
os._exit(0)  # or what measures coverage would write
"""


def test_a_full_disk_costs_no_earlier_checkpoint_and_is_said(tmp_path):
    process = child(FULL_DISK, tmp_path)
    assert process.communicate() == ("", "") and process.returncode == 0


def test_a_state_that_does_not_fit_is_not_begun(tmp_path, monkeypatch):
    saved_in(tmp_path, 1)
    free = lambda _: SimpleNamespace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", free)
    with FolderCheckpoints(tmp_path) as checkpoints:
        checkpoints.save(2, jnp.zeros(10_000), {})
        with pytest.raises(CheckpointError, match="No space left .* 100,000 are free"):
            checkpoints.save(3, jnp.zeros(10), {})
        checkpoints.save(4, jnp.zeros(10), {})


def test_a_folder_that_cannot_be_written_is_said_at_once():
    # Not in pytest's own folder, which another user may not even enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        process = child(READ_ONLY, folder)
        assert process.communicate() == ("", "") and process.returncode == 0
