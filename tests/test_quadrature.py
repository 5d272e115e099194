"""Laws of normal probabilities and of expectations under normal distributions."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from natgrad._normal import hazard, log_ndtr, log_ndtr_difference, mills, ndtr
from natgrad._quadrature import common_draws, deviation, gauss_hermite, spread
from natgrad.gp.likelihoods._support import Support, quantile


NEAR = np.linspace(-45, 40, 341)
FAR = -np.geomspace(45, 1e8, 40)


def exact(function, x, digits: int = 60) -> np.ndarray:
    with mpmath.workdps(digits):
        return np.asarray([float(function(mpmath.mpf(float(a)))) for a in x])


def exact_log_ndtr(x):
    if x > 0:
        return mpmath.log1p(-mpmath.ncdf(-x))
    if x > -40:
        return mpmath.log(mpmath.ncdf(x))
    return -(x**2) / 2 - mpmath.log(mpmath.sqrt(2 * mpmath.pi)) + mpmath.log(tail(-x))


def tail(a):
    """The Mills ratio far out, by its continued fraction."""
    value = mpmath.mpf(0)
    for j in range(300, 0, -1):
        value = j / (a + value)
    return 1 / (a + value)


def exact_hazard(x):
    return mpmath.npdf(x) / mpmath.ncdf(x) if x > -40 else 1 / tail(-x)


def exact_curvature(x):
    h = exact_hazard(x)
    return -h * (x + h)


def test_the_logarithm_of_a_normal_probability_is_exact():
    x = np.concatenate([FAR, NEAR])
    ours = jax.jit(log_ndtr)(jnp.asarray(x))
    np.testing.assert_allclose(ours, exact(exact_log_ndtr, x), rtol=1e-14, atol=1e-300)
    a = np.abs(FAR)
    np.testing.assert_allclose(mills(jnp.asarray(a)), exact(tail, a), rtol=2e-15)
    near = NEAR[NEAR > -37]
    np.testing.assert_allclose(
        ndtr(jnp.asarray(near)), exact(mpmath.ncdf, near), rtol=2e-13
    )


def test_derivatives_of_the_logarithm_are_exact_in_every_mode():
    x = np.concatenate([-np.geomspace(45, 1e4, 20), NEAR[::4]])
    slope = jax.grad(log_ndtr)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        one = jnp.ones_like(x)
        return (
            (slope(x), jax.jvp(log_ndtr, (x,), (one,))[1], hazard(x)),
            (
                jax.jvp(slope, (x,), (one,))[1],
                jax.grad(slope)(x),
                jax.grad(lambda x: jax.jvp(log_ndtr, (x,), (one,))[1])(x),
                jax.linearize(slope, x)[1](one),
            ),
        )

    first, second = derivatives(jnp.asarray(x))
    for ours in first:
        np.testing.assert_allclose(
            ours, exact(exact_hazard, x), rtol=3e-13, atol=1e-300
        )
    curvature = exact(exact_curvature, x)
    for ours in second:
        np.testing.assert_allclose(ours, curvature, rtol=1e-11, atol=1e-300)


def test_differences_of_normal_probabilities_keep_their_digits():
    low = np.asarray([-1e4, -60.0, -30.0, -3.0, -0.1, 0.0, 0.5, 29.0, 50.0])
    slope = jax.jit(jax.vmap(jax.grad(log_ndtr_difference, (0, 1))))
    for gap in (1e-3, 0.4, 50.0):
        high = low + gap
        # Through logarithms of scaled tails, which hold where probabilities do not.
        ours = log_ndtr_difference(jnp.asarray(low), jnp.asarray(high))
        at_low, at_high = slope(jnp.asarray(low), jnp.asarray(high))
        for i, (a, b) in enumerate(zip(low, high, strict=True)):
            with mpmath.workdps(60):
                a, b = mpmath.mpf(a), mpmath.mpf(b)
                if a + b > 0:
                    a, b = -b, -a
                log_b, log_a = exact_log_ndtr(b), exact_log_ndtr(a)
                value = log_b + mpmath.log1p(-mpmath.exp(log_a - log_b))
                density = lambda x, value=value: mpmath.exp(
                    -(mpmath.mpf(x) ** 2) / 2 - mpmath.log(2 * mpmath.pi) / 2 - value
                )
                expected = (
                    float(value),
                    -float(density(low[i])),
                    float(density(high[i])),
                )
            np.testing.assert_allclose(ours[i], expected[0], rtol=1e-12, atol=1e-13)
            actual = at_low[i], at_high[i]
            np.testing.assert_allclose(actual, expected[1:], rtol=1e-9, atol=1e-280)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_normal_probabilities_are_finite_with_their_derivatives(dtype):
    ends = 1e8 if dtype == np.float64 else 1e6
    x = jnp.asarray(np.concatenate([-FAR, FAR, NEAR]).clip(-ends, ends), dtype)

    @jax.jit
    @jax.vmap
    def derivatives(x):
        functions = log_ndtr, lambda x: log_ndtr_difference(x, x + 1)
        return [
            (*jax.value_and_grad(function)(x), jax.grad(jax.grad(function))(x))
            for function in functions
        ]

    for results in derivatives(x):
        for result in results:
            assert result.dtype == dtype
            assert np.isfinite(result).all()


@pytest.mark.parametrize("count", [1, 20, 200])
def test_quadrature_is_exact_for_polynomials(count):
    nodes, log_weights = gauss_hermite(count)
    moments = {2 * k: math.prod(range(1, 2 * k, 2)) for k in range(6)}
    for power, moment in moments.items():
        if power < 2 * count:
            total = np.exp(log_weights) @ nodes**power
            np.testing.assert_allclose(total, moment, rtol=1e-11)
            assert abs(np.exp(log_weights) @ nodes ** (power + 1)) < 1e-9
    assert np.isfinite(log_weights).all()


def test_common_draws_have_the_moments_of_a_normal_distribution():
    draws, log_weights = common_draws(1024, 3, 0)
    np.testing.assert_allclose(draws.mean(0), 0, atol=1e-15)
    np.testing.assert_allclose(draws.T @ draws / 1024, np.eye(3), atol=0.03)
    np.testing.assert_allclose(np.exp(log_weights).sum(), 1, rtol=1e-12)
    assert (draws == common_draws(1024, 3, 0)[0]).all()
    assert (draws != common_draws(1024, 3, 1)[0]).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_deviation_has_a_slope_at_every_variance(dtype):
    variance = jnp.asarray([-1e-9, 0.0, 1e-20, 0.04, 9.0], dtype)
    value, slope = jax.vmap(jax.value_and_grad(deviation))(variance)
    least = np.sqrt(np.finfo(dtype).eps)
    np.testing.assert_allclose(value, [least, least, least, 0.2, 3.0], rtol=1e-6)
    np.testing.assert_allclose(slope, 1 / (2 * value), rtol=1e-6)
    mean, var = jnp.asarray(2.0, dtype), variance[3]
    points = gauss_hermite(3)[0]
    np.testing.assert_allclose(spread(mean, var, points), 2 + 0.2 * points, rtol=1e-6)
    both = spread(mean[None], var[None], points[:, None])
    np.testing.assert_allclose(both[:, 0], spread(mean, var, points), rtol=1e-6)


@pytest.mark.parametrize("support", ["real", "positive", "unit", "count"])
def test_quantiles_are_found_wherever_they_are(support):
    # Distributions whose quantiles are known, across many orders of magnitude.
    centres = jnp.asarray([-3e5, -2.0, 0.0, 1e-7, 40.0, 3e5])
    levels = jnp.asarray([1e-6, 0.3, 0.5, 0.999])
    if support == "count":
        rates = jnp.exp(-jnp.asarray([1e-3, 0.1, 2.0, 20.0]))  # of no success

        def found(rate, level):  # the geometric distribution
            cdf = lambda y: -jnp.expm1((y + 1) * jnp.log1p(-rate))
            return quantile(cdf, level, Support.COUNT, jnp.zeros(()))

        grid = jax.vmap(jax.vmap(found, (None, 0)), (0, None))(rates, levels)
        exact = np.log1p(-levels)[None] / np.log1p(-rates)[:, None] - 1
        np.testing.assert_array_equal(grid, np.maximum(np.ceil(exact - 1e-9), 0))
        return

    to_real = {
        "real": lambda y: y,
        "positive": jnp.log,
        "unit": jax.scipy.special.logit,
    }
    centres = centres if support == "real" else jnp.clip(centres, -30, 20)

    def found(centre, level):  # the logistic distribution, carried to the support
        cdf = lambda y: jax.nn.sigmoid(to_real[support](y) - centre)
        y = quantile(cdf, level, Support(support), jnp.zeros(()))
        return to_real[support](y)

    grid = jax.jit(jax.vmap(jax.vmap(found, (None, 0)), (0, None)))(centres, levels)
    exact = centres[:, None] + jax.scipy.special.logit(levels)[None]
    tolerance = 1e-9 if support != "unit" else 1e-2  # 1 - 1e-13 has few digits
    np.testing.assert_allclose(grid, exact, rtol=tolerance, atol=1e-9)


def test_curvature_of_a_difference_is_right_where_an_end_is_zero():
    # The second derivative at zero is the limit of those near by.
    low, high = jnp.asarray([0.0, -1.0, -2.0, 3.0]), jnp.asarray([1.0, 0.0, 1.0, 4.0])
    curvature = jax.jit(jax.vmap(jax.hessian(log_ndtr_difference, (0, 1))))
    here = np.asarray(curvature(low, high))
    for step in (1e-9, -1e-9):
        near = curvature(low + step, high + step)
        np.testing.assert_allclose(here, near, rtol=1e-6)
