"""What cannot be used is refused, and types are mended, under JAX's own settings.

The other tests forbid promotion and check shapes, and would hide what a user meets; so
these run in a process of their own.
"""

import subprocess
import sys


SCRIPT = """
import jax

jax.config.update("jax_enable_x64", True)

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.gaussian_process import kernels as sk

import natgrad
from natgrad.data import Batch
from natgrad.errors import FitError, InputError
from natgrad.families import diagonal
from natgrad.families.gaussian import Moments
from natgrad import gp
from natgrad.gp import *
from natgrad.linalg import Sqrt
from natgrad.positive import Log

rng = np.random.default_rng(0)
x = rng.uniform(0, 8, (60, 1))
y = np.sin(2 * x[:, 0])
labels = (y > 0).astype(int)
z = inducing.k_means(x, 8)
kernel = kernels.Matern52()
model = lambda likelihood, z=z, **more: SparseGP(kernel, likelihood, z, **more)
bernoulli, softmax = likelihoods.Bernoulli("logit"), likelihoods.Softmax(3)
plain = gp.predictor(model(likelihoods.Gaussian(0.1)))
classes = gp.predictor(model(softmax))
of_class = Moments(jnp.zeros((3, 8)), Sqrt(jnp.eye(8)))

REFUSED = {
    "y of two axes": lambda: elbo(model(bernoulli), Batch(x, labels[:, None])),
    "y too short": lambda: elbo(model(bernoulli), Batch(x, labels[:10])),
    "x too wide": lambda: elbo(model(bernoulli), Batch(np.c_[x, x], labels)),
    "x of one axis": lambda: elbo(model(bernoulli), Batch(x[:, 0], labels)),
    "z of one axis": lambda: model(bernoulli, z[:, 0]),
    "density of too few": lambda: plain.log_density(x, y[:10]),
    "density of two axes": lambda: plain.log_density(x, y[:, None]),
    "density of no label": lambda: classes.log_density(x, labels + 5),
    "levels": lambda: plain.quantiles(x, [0.5, 1.5]),
    "a variance a row": lambda: likelihoods.Gaussian(np.full(60, 0.1)),
    "variances of a kernel": lambda: kernels.RBF(variance=[1.0, 2.0]),
    "a covariance for many": lambda: model(softmax, posterior=of_class),
    "a diagonal posterior": lambda: model(
        bernoulli, posterior=diagonal.Moments(jnp.zeros(8), Log(jnp.zeros(8)))
    ),
    "a kernel of scikit-learn": lambda: SparseGP(sk.RBF(), bernoulli, z),
    "a function": lambda: SparseGP(lambda x, z: x @ z.T, bernoulli, z),
    "a function for inducing": lambda: gp.inducing.greedy(x, 3, lambda x, z: x @ z.T),
    "a foreign kernel inside": lambda: kernels.OnInputs(sk.RBF(), [0]),
    "separate foreign kernels": lambda: kernels.Separate([sk.RBF(), sk.RBF()]),
}
for name, call in REFUSED.items():
    try:
        call()
    except InputError as error:
        print(f"{name}: {error}")
    else:
        raise AssertionError(f"{name} was not refused")

assert np.isnan(elbo(model(softmax), Batch(x, labels + 5)))

scheme = alternating(natgrad.guarded_ngd(), optax.adam(0.01))
step = jax.jit(scheme.step)
for single in (model(bernoulli, z.astype("f4")), model(softmax, z.astype("f4"))):
    for rows in (x, x.astype("f4")):
        moved, state, loss = step(single, scheme.init(single), Batch(rows, labels))
        assert np.isfinite(loss) and moved.inducing.dtype == np.float64

bad = x.copy()
bad[3] = np.nan
before = model(bernoulli)
after, state, loss = step(before, scheme.init(before), Batch(bad, labels))
assert np.isnan(loss)
for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
    np.testing.assert_array_equal(a, b)

at = lambda v: gp.predictor(SparseGP(kernels.RBF(1.0, v), bernoulli, z)).jitter
each = jax.vmap(at)
np.testing.assert_allclose(each(jnp.array([1.0, 2.0])), 1e-10)
"""


def test_what_cannot_be_used_is_refused_and_types_are_mended():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
