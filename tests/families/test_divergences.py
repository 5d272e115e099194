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
from tests.variants import variants


COVARIANCE = jnp.stack([covariance(3), covariance(3, seed=1)])
MEAN = jnp.stack([vector(3), vector(3, seed=1)])
VARIANCES = jnp.asarray([[0.5, 1.0, 3.0], [2.0, 0.1, 1.0]])

DIAGONAL = diagonal.Moments(-MEAN, Plain(VARIANCES))
AS_FULL = gaussian.Moments(-MEAN, Full(VARIANCES[..., None] * jnp.eye(3)[None]))
FULL = gaussian.Moments(MEAN, Full(COVARIANCE))
STORAGES = {
    "Log": gaussian.Moments(MEAN, Log(COVARIANCE)),
    "Canonical": gaussian.Canonical(MEAN, Sqrt(COVARIANCE)),
}


@pytest.mark.parametrize("name", variants(["Full", *STORAGES], ["Full"]))
def test_a_diagonal_gaussian_diverges_as_the_full_one_that_it_is(name):
    @jax.jit
    def divergences(template, q, diagonal, full):
        q = template.at_natural(q.natural())
        return (q.kl(diagonal), diagonal.kl(q)), (q.kl(full), full.kl(q))

    found, expected = divergences(STORAGES.get(name, FULL), FULL, DIAGONAL, AS_FULL)
    assert_close(found, expected, rtol=1e-12)


def test_the_best_diagonal_gaussian_has_the_variances_or_the_precisions_of_a_full():
    variances = jnp.diagonal(COVARIANCE, axis1=-2, axis2=-1)
    precisions = jnp.diagonal(jnp.linalg.inv(COVARIANCE), axis1=-2, axis2=-1)
    inner, outer = (
        diagonal.Moments(MEAN, Plain(v)) for v in (variances, 1 / precisions)
    )

    @jax.jit
    def slopes(inner, outer):
        to = jax.grad(lambda q: FULL.kl(q).sum())(inner)
        return to, jax.grad(lambda q: q.kl(FULL).sum())(outer)

    for leaf in jax.tree.leaves(slopes(inner, outer)):
        np.testing.assert_allclose(leaf, 0, atol=1e-12)


@pytest.mark.parametrize("q", [FULL, DIAGONAL], ids=["full", "diagonal"])
def test_another_family_is_refused_by_name(q):
    other = gamma.ShapeRate(Plain(jnp.ones(2)), Plain(jnp.ones(2)))
    with pytest.raises(InputError, match="ShapeRate; both should be Gaussian"):
        q.kl(other)
