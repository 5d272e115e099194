"""Matrix functions are right to second order, where eigenvalues coincide too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm as pade_expm

from natgrad.linalg._spectral import exp_difference, expm, log_difference, logm
from tests.points import assert_close
from tests.variants import variants


SPECTRA = {
    "identity": [1.0, 1.0, 1.0],
    "two equal": [0.5, 2.0, 2.0],
    "two close": [0.5, 2.0, 2.0 + 1e-9],
    "three close": [1.0, 1.0 + 1e-5, 1.0 - 1e-4],
    "apart": [0.1, 1.0, 7.0],
    "wide": [1e-3, 1.0, 1e3],
}

OFTEN = ("identity", "two close", "wide")


def symmetric(matrix):
    return (matrix + matrix.mT) / 2


def change(seed: int) -> jax.Array:
    rng = np.random.default_rng(seed)
    return symmetric(jnp.asarray(rng.standard_normal((3, 3))))


@pytest.fixture(params=variants(SPECTRA, OFTEN))
def matrix(request):
    spectrum = SPECTRA[request.param]
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    if request.param == "identity":
        basis = np.eye(3)
    return symmetric(jnp.asarray(basis * np.array(spectrum) @ basis.T))


def derivatives(function, at, a, b):
    """Value, first and second derivative, the second in all four mixtures of modes."""
    forward = lambda x, d: jax.jvp(function, (x,), (d,))[1]
    pairing = lambda x: jnp.vdot(function(x), a)
    reverse = lambda x: symmetric(jax.grad(pairing)(x))
    return {
        "value": function(at),
        "forward": forward(at, a),
        "reverse": reverse(at),
        "forward over forward": jax.jvp(lambda x: forward(x, a), (at,), (b,))[1],
        "forward over reverse": jax.jvp(reverse, (at,), (b,))[1],
        "reverse over reverse": symmetric(
            jax.grad(lambda x: jnp.vdot(reverse(x), b))(at)
        ),
        "reverse over forward": symmetric(
            jax.grad(lambda x: jnp.vdot(forward(x, a), b))(at)
        ),
    }


def test_exponential_and_its_derivatives_are_those_of_a_power_series(matrix):
    log = jnp.where(matrix == 1, 0.0, matrix) / 10
    compute = jax.jit(derivatives, static_argnums=0)
    ours, series = (compute(f, log, change(1), change(2)) for f in (expm, pade_expm))
    for name in ours:
        assert_close(ours[name], series[name], rtol=1e-10), name


def test_logarithm_undoes_the_exponential_up_to_second_order(matrix):
    # exp ∘ log is the identity: its first derivative too, and its second is zero.
    compute = jax.jit(derivatives, static_argnums=0)
    both = compute(lambda x: expm(logm(x)), matrix, change(1), change(2))
    assert_close(both["value"], matrix)
    assert_close(both["forward"], change(1), rtol=1e-9)
    assert_close(both["reverse"], change(1), rtol=1e-9)
    log = compute(logm, matrix, change(1), change(2))
    for name in (n for n in both if "over" in n):
        assert jnp.isfinite(log[name]).all()
        scale = float(jnp.abs(log[name]).max() * jnp.abs(matrix).max())
        assert float(jnp.abs(both[name]).max()) < 1e-9 * max(scale, 1.0)


def test_leading_axes_are_batches():
    stack = jnp.stack([change(1) / 3, change(2) / 3])
    assert_close(expm(stack)[1], expm(stack[1]))
    assert_close(logm(expm(stack)), stack)


def test_divided_differences_have_their_limits():
    a = jnp.asarray([1e-12, 0.3, 2.0, 1e12])
    assert_close(log_difference(a, a), 1 / a)
    b = jnp.asarray([-700.0, -1.0, 0.0, 3.0, 700.0])
    assert_close(exp_difference(b, b), jnp.exp(b))
    assert_close(log_difference(a, a * (1 + 1e-9)), 1 / a, rtol=1e-8)
    assert jnp.isfinite(exp_difference(b, b[::-1])).all()
