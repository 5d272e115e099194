"""One process of a run on some devices of some processes; not a test by itself.

    python meshed.py KIND DEVICES OUT

KIND is what is trained, OUT gets the parameters of the first process.
"""

import sys

import jax
import numpy as np


kind, devices, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", devices)
jax.config.update("jax_enable_x64", True)

from natgrad import distributed, gp  # noqa: E402
from natgrad.data import Batch  # noqa: E402
from natgrad.data._batches import Sample  # noqa: E402


here = distributed.initialize()
rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, (2000, 3))
f = np.sin(2 * x[:, 0]) + 0.3 * x[:, 1]
weight = rng.uniform(0.5, 2, 2000)
y = f + 0.1 * rng.standard_t(3, 2000)
likelihood = gp.likelihoods.StudentT(0.3)
model = gp.initialize(x, likelihood, num_inducing=11)
options = {"held_out": (x[:64], y[:64])} if kind == "score" else {}
fitted = gp.fit(
    model,
    Sample(Batch(x, y, weight), 256),
    steps=40,
    log_every=20,
    progress=False,
    **options,
)
if here.process == 0:
    np.savez(out, *map(np.asarray, jax.tree.leaves(fitted.params)))
