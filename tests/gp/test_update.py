"""Rows that come in pieces are learned from as if they had come at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad.data import Batch
from natgrad.errors import InputWarning
from natgrad.gp import SparseGP, _sizes as sizes, elbo, kernels, likelihoods, update


RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * RNG.standard_normal(60)
Z = np.linspace(-2, 2, 12)[:, None]


def model_of(likelihood, lengthscale=1.0):
    return SparseGP(kernels.Matern52(lengthscale, 1.0), likelihood, Z)


def pieces(model, x, y, ends):
    for begin, end in zip([0, *ends], [*ends, len(y)], strict=True):
        model = update(model, (x[begin:end], y[begin:end]))
    return model


def test_with_gaussian_noise_pieces_end_at_the_optimum_of_all_rows():
    model = model_of(likelihoods.Gaussian(0.01))
    streamed = pieces(model, X, Y, [13, 40])
    loss = lambda q: (
        -elbo(
            SparseGP(model.kernel, model.likelihood, Z, q),
            Batch(jnp.asarray(X), jnp.asarray(Y)),
        )
    )
    tx = natgrad.mirror_descent(1.0)
    q = model.posterior
    updates, _ = tx.update(jax.grad(loss)(q), tx.init(q), q)
    best = optax.apply_updates(q, updates)
    np.testing.assert_allclose(
        streamed.posterior.location(), best.location(), atol=1e-9
    )
    np.testing.assert_allclose(
        streamed.posterior.covariance(), best.covariance(), atol=1e-10
    )


@pytest.mark.parametrize("seed", range(4))
def test_with_gaussian_noise_neither_cuts_nor_order_matter(seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(Y))
    ends = np.sort(rng.choice(np.arange(1, len(Y)), seed + 1, replace=False))
    model = model_of(likelihoods.Gaussian(0.01))
    whole = update(model, (X, Y)).posterior
    cut = pieces(model, X[order], Y[order], [*map(int, ends)]).posterior
    for one, other in (
        (whole.location(), cut.location()),
        (whole.covariance(), cut.covariance()),
    ):
        scale = float(abs(one).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize(
    "likelihood", [likelihoods.StudentT(0.1), likelihoods.Poisson()]
)
def test_else_they_end_near_it(likelihood):
    y = np.floor(5 * np.exp(Y)) if isinstance(likelihood, likelihoods.Poisson) else Y
    model = model_of(likelihood)
    at_once, streamed = update(model, (X, y)), pieces(model, X, y, [13, 40])
    bound = lambda model: float(elbo(model, Batch(jnp.asarray(X), jnp.asarray(y))))
    gained = bound(at_once) - bound(model)
    assert 0 <= bound(at_once) - bound(streamed) < 0.01 * gained


def test_rows_that_the_inducing_inputs_do_not_see_are_warned_of():
    model = model_of(likelihoods.Gaussian(0.01))
    with pytest.warns(InputWarning, match="see little of these 13 rows: they leave 1"):
        update(model, (X[:13] + 20, Y[:13]))
    assert update(model, (X[:13], Y[:13])) is not model  # without a warning


def test_what_is_unseen_is_the_trace_of_a_gaussian_bound():
    model = model_of(likelihoods.Gaussian(0.01), 0.1)
    batch = Batch(jnp.asarray(X), jnp.asarray(Y))
    rest = np.asarray(model.project(batch.x).rest)
    np.testing.assert_allclose(
        sizes.unseen(model, model, batch), rest.mean() / 0.02, rtol=1e-9
    )


def test_inducing_inputs_grow_until_they_see_enough(monkeypatch):
    table = Batch(X, Y)
    smooth = model_of(likelihoods.Gaussian(0.01), 3.0)
    assert sizes.choose_num_inducing(smooth, table) is smooth
    rough = model_of(likelihoods.Gaussian(0.01), 0.3)
    grown = sizes.choose_num_inducing(rough, table)
    assert len(grown.inducing) in (24, 48)
    batch = Batch(jnp.asarray(X), jnp.asarray(Y))
    assert float(sizes.unseen(rough, grown, batch)) <= sizes.ENOUGH
    white = model_of(likelihoods.Gaussian(0.01), 0.001)
    assert len(sizes.choose_num_inducing(white, table).inducing) == 60
    monkeypatch.setattr(sizes, "MOST", 24)
    assert len(sizes.choose_num_inducing(white, table).inducing) == 24
