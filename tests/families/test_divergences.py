"""A full and a diagonal Gaussian have a divergence to each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.errors import InputError
from natgrad.families import diagonal, gamma, gaussian
from natgrad.linalg import Full, Log, Sqrt
from natgrad.positive import Plain
from tests.points import assert_close, covariance, vector


COVARIANCE = jnp.stack([covariance(3), covariance(3, seed=1)])
MEAN = jnp.stack([vector(3), vector(3, seed=1)])
VARIANCES = jnp.asarray([[0.5, 1.0, 3.0], [2.0, 0.1, 1.0]])

DIAGONAL = diagonal.Moments(-MEAN, Plain(VARIANCES))
AS_FULL = gaussian.Moments(-MEAN, Full(VARIANCES[..., None] * jnp.eye(3)[None]))
ROOT = gaussian.Moments(MEAN, Sqrt(jnp.linalg.cholesky(COVARIANCE)))
FULL = {
    "Moments(Full)": gaussian.Moments(MEAN, Full(COVARIANCE)),
    "Moments(Log)": gaussian.Moments(MEAN, Log(jnp.zeros((2, 3, 3)))).at_natural(
        ROOT.natural()
    ),
    "Canonical(Sqrt)": gaussian.Canonical(MEAN, Sqrt(COVARIANCE)).at_natural(
        ROOT.natural()
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_a_diagonal_gaussian_diverges_as_the_full_one_that_it_is(name):
    q = FULL[name]
    assert_close(q.kl(DIAGONAL), ROOT.kl(AS_FULL), rtol=1e-12)
    assert_close(DIAGONAL.kl(q), AS_FULL.kl(ROOT), rtol=1e-12)


def test_the_best_diagonal_gaussian_has_the_variances_or_the_precisions_of_a_full():
    variances = jnp.diagonal(COVARIANCE, axis1=-2, axis2=-1)
    inner = diagonal.Moments(MEAN, Plain(variances))
    slope = jax.grad(lambda q: ROOT.kl(q).sum())(inner)
    np.testing.assert_allclose(jax.tree.leaves(slope), 0, atol=1e-12)
    precisions = jnp.diagonal(jnp.linalg.inv(COVARIANCE), axis1=-2, axis2=-1)
    outer = diagonal.Moments(MEAN, Plain(1 / precisions))
    slope = jax.grad(lambda q: q.kl(ROOT).sum())(outer)
    np.testing.assert_allclose(jax.tree.leaves(slope), 0, atol=1e-12)


@pytest.mark.parametrize("q", [ROOT, DIAGONAL], ids=["full", "diagonal"])
def test_another_family_is_refused_by_name(q):
    other = gamma.ShapeRate(Plain(jnp.ones(2)), Plain(jnp.ones(2)))
    with pytest.raises(InputError, match="ShapeRate; both should be Gaussian"):
        q.kl(other)
