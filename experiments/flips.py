"""How many flipped bits in a checkpoint are noticed.

    python experiments/flips.py --count 1000

A checkpoint of a model with its optimizer's state is saved twice. In the newer one, a
bit at a time is flipped. A flip is noticed if that checkpoint is skipped with a
warning, and the state of the one before comes back bit for bit.
"""

import argparse
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from natgrad.errors import CheckpointError, CheckpointWarning
from natgrad.gp import SparseGP, kernels, likelihoods
from natgrad.train._checkpoint import FolderCheckpoints


class Flips(NamedTuple):
    tried: int
    noticed: int
    size: int


def state_of(step: int) -> Any:
    inducing = np.random.default_rng(step).random((100, 3))
    model = SparseGP(kernels.Matern52(0.7, 1.3), likelihoods.StudentT(0.3), inducing)
    params: Any = model
    return model, optax.adam(0.01).init(params), jnp.asarray(step)


def flips(folder: Path, count: int, seed: int = 0) -> Flips:
    """Flips `count` bits of the newest of two checkpoints in an empty folder."""
    draw, like = random.Random(seed), state_of(0)
    older = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state_of(1))]
    with FolderCheckpoints(folder) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state_of(step), {"step": step})
        checkpoints.wait()
        path, noticed = folder / "2.natgrad", 0
        whole = path.read_bytes()
        for _ in range(count):
            bit = draw.randrange(8 * len(whole))
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = checkpoints.latest()
            path.write_bytes(whole)
            if found is None or found.step != 1:
                continue
            restored = jax.tree.leaves(found.restore(like))
            is_whole = [np.asarray(leaf).tobytes() for leaf in restored] == older
            noticed += is_whole and [w.category for w in said] == [CheckpointWarning]
        found = checkpoints.latest()
    if found is None or found.step != 2:
        raise CheckpointError(f"{folder} was left damaged")
    return Flips(count, noticed, len(whole))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    with tempfile.TemporaryDirectory() as folder:
        tried, noticed, size = flips(Path(folder), parser.parse_args().count)
    print(f"{noticed} of {tried} flipped bits noticed, of {size:,} bytes")
