"""Derivatives of expected log likelihoods, at ordinary rows and at extreme ones."""

import functools
import math
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.gp.likelihoods import CENSORED, EVERY, OURS, rows, size
from tests.variants import variants


LOG_CONCAVE = [name for name, case in EVERY.items() if case.is_log_concave]
# Bounds that are equal say that y was observed, and others do not.
FEW = ("Gaussian", "StudentT", "Ordinal", "Softmax", "Gaussian, between")
SMOOTH_IN_BOUNDS = [name for name in EVERY if "observed" not in name]


@pytest.fixture(params=variants(SMOOTH_IN_BOUNDS, FEW))
def name(request):
    return request.param


@functools.cache
def slopes(name: str) -> SimpleNamespace:
    """Derivatives at one row, and the differences they should equal."""
    likelihood = EVERY[name].likelihood
    mean, var, y = (x[0] for x in rows(name))
    x, unravel = ravel_pytree((likelihood, mean, var))

    @jax.jit
    def report(x):
        value = lambda x: unravel(x)[0].expected_log_prob(*unravel(x)[1:], y)
        slope = jax.grad(value)
        along = jnp.asarray(np.cos(np.arange(x.size) + 1))

        def difference(function):  # of sixth order
            steps = jnp.asarray([-3e-3, -2e-3, -1e-3, 1e-3, 2e-3, 3e-3])
            weights = jnp.asarray([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / 60e-3
            values = jax.vmap(function)(x[None] + steps[:, None] * along[None])
            return weights @ values

        first = dict(
            forward=jax.jvp(value, (x,), (along,))[1],
            reverse=slope(x) @ along,
            difference=difference(value),
        )
        if EVERY[name].orders == 1:
            return first
        return first | dict(
            forward_of_reverse=jax.jvp(slope, (x,), (along,))[1],
            reverse_of_reverse=jax.grad(lambda x: slope(x) @ along)(x),
            difference_of_reverse=difference(slope),
        )

    return SimpleNamespace(**report(x))


def test_derivatives_of_both_orders_and_modes_are_those_of_differences(name):
    at = slopes(name)
    np.testing.assert_allclose(at.forward, at.reverse, rtol=1e-12)
    if not EVERY[name].is_smooth:
        return
    np.testing.assert_allclose(at.reverse, at.difference, rtol=1e-9)
    if EVERY[name].orders == 1:
        return
    scale = np.abs(at.difference_of_reverse).max()
    for second in (at.forward_of_reverse, at.reverse_of_reverse):
        np.testing.assert_allclose(
            second, at.difference_of_reverse, rtol=0, atol=1e-8 * scale
        )


MEANS = np.asarray([-50.0, -30.0, -6.0, -0.3, 0.0, 2.0, 12.0, 40.0, 50.0])
VARIANCES = np.asarray([-1e-18, 0.0, 1e-12, 1e-6, 0.1, 3.0, 100.0, 1e4])


@functools.cache
def extremes(name: str, dtype):
    """Values and gradients where the mean and the variance are as far as they go."""
    case = EVERY[name]
    cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    likelihood = jax.tree.map(cast, case.likelihood)
    mean, var, y = (x.ravel() for x in np.meshgrid(MEANS, VARIANCES, case.targets))
    shape = size(likelihood)
    # Latents differ in sign and size where there are several.
    signs = np.cos(np.arange(math.prod(shape)))
    if case.log_size is not None:
        # Beyond these the value itself is no number of this precision.
        good = case.log_size(mean, var) < np.log(np.finfo(dtype).max) - 10
        mean, var, y, signs = mean[good], var[good], y[good], np.ones_like(signs)
    shape = (mean.size, *shape)
    signs = signs.reshape(shape[1:])
    expand = lambda x: x.reshape((-1,) + (1,) * len(shape[1:]))
    mean = jnp.asarray(expand(mean) * signs, dtype)
    var = jnp.asarray(np.broadcast_to(expand(var), shape), dtype)

    @jax.jit
    def run(likelihood, mean, var, y):
        def value(likelihood, mean, var, y):
            return likelihood.expected_log_prob(mean, var, y)

        grad = jax.vmap(jax.value_and_grad(value, (0, 1, 2)), (None, 0, 0, 0))
        predictive = jax.vmap(likelihood.log_predictive)(mean, var, y)
        return grad(likelihood, mean, var, y), predictive

    return mean, var, *run(likelihood, mean, var, jnp.asarray(y, dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", variants([*OURS, *CENSORED], FEW))
def test_values_and_gradients_are_finite_at_extremes(name, dtype):
    _, _, (value, slope), predictive = extremes(name, dtype)
    assert value.dtype == dtype
    for leaf in jax.tree.leaves((value, slope)):
        assert np.isfinite(leaf).all()
    assert not np.isnan(predictive).any()
    assert (predictive < np.inf).all()


@pytest.mark.parametrize(
    "name", variants(LOG_CONCAVE, ["Poisson", "Gaussian, between"])
)
def test_more_variance_is_no_better_where_the_density_is_log_concave(name):
    _, var, (_, (_, of_mean, of_var)), _ = extremes(name, np.float64)
    # The slope is a difference between nodes, exact to the rounding of its terms.
    rounding = 20 * np.finfo(float).eps * (1e-10 + np.abs(of_mean))
    assert (of_var <= rounding / np.sqrt(np.maximum(var, 1e-16))).all()
    assert (of_var < 0).mean() > 0.2
