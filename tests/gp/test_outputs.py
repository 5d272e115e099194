"""Laws of several outputs that are mixtures of latent functions."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.families.gaussian import Moments
from natgrad.gp import SparseGP, kernels, likelihoods
from natgrad.gp.likelihoods import LinearCoregionalization
from natgrad.linalg import Sqrt
from tests.points import assert_close


elbo = jax.jit(gp.elbo)
slope_of = jax.jit(jax.value_and_grad(gp.elbo))

ROWS, LATENTS, INDUCING = 12, 2, 5
NOISES = (
    likelihoods.Gaussian(0.1),
    likelihoods.StudentT(0.3, 4.0),
    likelihoods.Gaussian(0.2),
    likelihoods.Beta(8.0),
    likelihoods.Poisson(),
)


def mixing(rows: int = len(NOISES), columns: int = LATENTS) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(rows, columns)))


def posterior(latents: int = LATENTS) -> Moments:
    rng = np.random.default_rng(1)
    factor = np.tril(0.1 * rng.normal(size=(latents, INDUCING, INDUCING)), -1)
    factor += 0.5 * np.eye(INDUCING)
    mean = jnp.asarray(rng.normal(size=(latents, INDUCING)))
    return Moments(mean, Sqrt(jnp.asarray(factor)))


def separate(latents: int = LATENTS) -> kernels.Separate:
    lengths = np.linspace(0.5, 1.5, latents)
    return kernels.Separate([kernels.RBF(each, 1 + each) for each in lengths])


def model_of(likelihood: Any, kernel: Any = None, q: Any = None) -> SparseGP:
    z = np.linspace(-1, 1, INDUCING)[:, None]
    latents = likelihood.latents or 1
    kernel = separate(latents) if kernel is None else kernel
    return SparseGP(kernel, likelihood, z, posterior(latents) if q is None else q)


def table(outputs: int = len(NOISES)) -> Batch:
    rng = np.random.default_rng(2)
    y = rng.normal(size=(ROWS, outputs))
    if outputs == len(NOISES):
        y[:, 3] = rng.uniform(0.1, 0.9, ROWS)
        y[:, 4] = rng.poisson(2.0, ROWS)
    return Batch(jnp.asarray(rng.uniform(-1, 1, (ROWS, 1))), jnp.asarray(y))


def gapped(batch: Batch) -> Batch:
    holes = np.random.default_rng(3).random(batch.y.shape) < 0.4
    holes[0], holes[:, 0] = True, True  # a row and an output without any target
    return batch._replace(y=jnp.where(jnp.asarray(holes), jnp.nan, batch.y))


def test_an_output_is_its_likelihood_at_its_mixture():
    batch, model = table(), model_of(LinearCoregionalization(NOISES, mixing()))
    mean, var = model.marginals(batch.x)
    total, moments, density = 0.0, [], []
    for place, (noise, row) in enumerate(zip(NOISES, mixing(), strict=True)):
        own, y = (row @ mean, row**2 @ var), batch.y[:, place]
        total += jax.vmap(noise.expected_log_prob)(*own, y).sum()
        moments.append(jax.vmap(noise.moments)(*own)[0])
        density.append(jax.vmap(noise.log_predictive)(*own, y))
    assert_close(elbo(model, batch), total - model.prior_kl())
    predictor = gp.predictor(model)
    assert_close(predictor.predict(batch.x)[0], np.stack(moments, 1), rtol=1e-8)
    found = predictor.log_density(batch.x, batch.y)
    assert_close(found, np.stack(density, 1), rtol=1e-8)


def test_quantiles_and_distribution_functions_are_inverse_in_every_output():
    batch, noises = table(), NOISES[:-1]  # of continuous targets
    model = model_of(LinearCoregionalization(noises, mixing(4), np.zeros(4)))
    predictor, levels = gp.predictor(model), [0.1, 0.5, 0.9]
    quantiles = predictor.quantiles(batch.x, levels)
    assert quantiles.shape == (ROWS, 4, 3)
    for place, level in enumerate(levels):
        found = predictor.cdf(batch.x, quantiles[..., place])
        np.testing.assert_allclose(found, level, atol=1e-6)
    draws = predictor.sample(jax.random.key(0), batch.x, 4000)
    assert draws.shape == (4000, ROWS, 4)
    below = (draws <= quantiles[..., 1]).mean(0)
    assert np.abs(below - 0.5).max() < 0.05


def test_one_output_of_one_latent_function_is_the_plain_likelihood():
    batch, one = table(1), np.ones((1, 1))
    for noise in NOISES[:2]:
        mixed = model_of(LinearCoregionalization(noise, one))
        q = jax.tree.map(lambda leaf: leaf[0], mixed.posterior)
        plain = SparseGP(mixed.kernel.kernels[0], noise, mixed.inducing, q)
        single = Batch(batch.x, batch.y[:, 0])
        assert_close(elbo(mixed, batch), elbo(plain, single))
        slope = slope_of(mixed, batch)[1].likelihood.likelihoods[0]
        assert_close(slope, slope_of(plain, single)[1].likelihood)


def test_outputs_that_do_not_mix_are_separate_fits():
    batch, noises = table(2), [likelihoods.Gaussian(0.1), likelihoods.Bernoulli()]
    y = jnp.stack([batch.y[:, 0], (batch.y[:, 1] > 0).astype(float)], 1)
    batch = batch._replace(y=y)
    mixed = model_of(LinearCoregionalization(noises, np.eye(2)))
    plain = [
        SparseGP(
            mixed.kernel.kernels[place],
            noise,
            mixed.inducing,
            jax.tree.map(lambda leaf, at=place: leaf[at], mixed.posterior),
        )
        for place, noise in enumerate(noises)
    ]
    singles = [Batch(batch.x, batch.y[:, place]) for place in range(2)]
    both = sum(elbo(model, rows) for model, rows in zip(plain, singles, strict=True))
    assert_close(elbo(mixed, batch), both)
    moved = gp.fit(mixed, batch, rule=still(), steps=30, progress=False).params
    for place, (model, rows) in enumerate(zip(plain, singles, strict=True)):
        own = gp.fit(model, rows, rule=still(), steps=30, progress=False).params
        found = jax.tree.map(lambda leaf, at=place: leaf[at], moved.posterior)
        assert_close(found.covariance(), own.posterior.covariance(), atol=1e-10)
        assert_close(found.location(), own.posterior.location(), atol=1e-10)


def still():
    return gp.alternating(natgrad.mirror_descent(0.5), optax.set_to_zero(), ROWS)


def test_an_output_that_is_nan_is_a_row_left_out_of_it():
    whole, model = table(), model_of(LinearCoregionalization(NOISES, mixing()))
    batch = gapped(whole)
    mean, var = model.marginals(batch.x)
    total = 0.0
    for place, (noise, row) in enumerate(zip(NOISES, mixing(), strict=True)):
        seen = ~np.isnan(batch.y[:, place])
        own = (row @ mean)[seen], (row**2 @ var)[seen], batch.y[seen, place]
        total += jax.vmap(noise.expected_log_prob)(*own).sum()
    value, slope = slope_of(model, batch)
    assert_close(value, total - model.prior_kl())
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slope))
    likelihood = slope.likelihood
    assert not likelihood.mixing[0].any()  # of the output without any target
    assert float(likelihood.likelihoods[0].log_variance) == 0
    density = gp.predictor(model).log_density(batch.x, batch.y)
    assert (np.isnan(density) == np.isnan(batch.y)).all()
    none = batch._replace(y=jnp.full_like(batch.y, jnp.nan))
    assert float(elbo(model, none) + model.prior_kl()) == 0


def test_latent_functions_have_no_order():
    batch, order = gapped(table()), np.array([1, 0])
    model = model_of(LinearCoregionalization(NOISES, mixing()))
    turned = model_of(
        LinearCoregionalization(NOISES, mixing()[:, order]),
        kernels.Separate([model.kernel.kernels[place] for place in order]),
        jax.tree.map(lambda leaf: leaf[order], model.posterior),
    )
    assert_close(elbo(turned, batch), elbo(model, batch))


def test_the_scale_of_a_latent_function_is_that_of_its_column():
    batch, scale = gapped(table()), jnp.asarray([0.3, 4.0])
    model = model_of(LinearCoregionalization(NOISES, mixing()))
    parts = [
        kernels.RBF(each.lengthscale, each.variance / factor**2)
        for each, factor in zip(model.kernel.kernels, scale, strict=True)
    ]
    noise = LinearCoregionalization(NOISES, mixing() * scale[None, :])
    other = model_of(noise, kernels.Separate(parts))
    assert_close(elbo(other, batch), elbo(model, batch))


def test_an_offset_is_added_to_the_function_of_its_output():
    batch, shift = table(2), np.array([0.5, -2.0])
    noise = likelihoods.Gaussian(0.1)
    plain = model_of(LinearCoregionalization(noise, mixing(2)))
    moved = model_of(LinearCoregionalization(noise, mixing(2), shift))
    there = batch._replace(y=batch.y + jnp.asarray(shift)[None, :])
    assert_close(elbo(moved, there), elbo(plain, batch))


@pytest.mark.nightly
def test_the_fit_of_outputs_is_the_same_after_a_file(tmp_path):
    batch = gapped(table())
    noises = [*NOISES[:3], likelihoods.Bernoulli(), likelihoods.Poisson()]
    batch = batch._replace(y=batch.y.at[:, 3].set(jnp.round(batch.y[:, 3])))
    model = model_of(LinearCoregionalization(noises, mixing(), np.zeros(5)))
    fitted = gp.fit(model, batch, held_out=batch, steps=3, progress=False)
    assert np.isfinite(fitted.history[-1].score)
    gp.save(fitted.params, tmp_path / "outputs.natgrad")
    again = gp.load(tmp_path / "outputs.natgrad")
    assert_close(again, fitted.params, rtol=0)
    found = gp.predictor(gp.update(again, batch)).predict(batch.x)[0]
    assert found.shape == (ROWS, 5) and np.isfinite(found).all()


def test_shapes_and_likelihoods_that_do_not_fit_are_refused():
    noise, batch = likelihoods.Gaussian(), table(2)
    pair, two = likelihoods.HeteroskedasticGaussian(), np.ones((2, 1))
    for arguments, message in (
        ((noise, np.ones(2)), "mixing has shape"),
        (([noise], two), "1 likelihoods and 2 rows"),
        (([noise, "gaussian"], two), "the likelihood of output 1"),
        (([noise, pair], two), "output 1 has HeteroskedasticGaussian"),
        ((noise, two, np.ones(3)), "offset has shape"),
    ):
        with pytest.raises(InputError, match=message):
            LinearCoregionalization(*arguments)
    model = model_of(LinearCoregionalization([noise, likelihoods.Poisson()], two))
    with pytest.raises(InputError, match="output 1: Poisson needs"):
        gp.fit(model, batch, progress=False)
    with pytest.raises(InputError, match="should be 2 for each"):
        gp.fit(model, Batch(batch.x, batch.y[:, 0]), progress=False)
    with pytest.raises(InputError, match="takes no columns"):
        gp.predictor(model).predict(batch.x, {"offset": np.zeros(ROWS)})


REFERENCES = Path(__file__).parents[1] / "references"


def reference_model(stored: dict, problem: dict) -> SparseGP:
    """The model of `outputs_problem.py`."""
    lengths = [[0.7, 1.1, 1.6], [1.5, 0.6, 0.9], [2.0, 2.0, 0.8]]
    noises = [likelihoods.Gaussian(each) for each in (0.09, 0.04, 0.2, 0.3)]
    factor = Sqrt(jnp.asarray(problem["factor"]))
    return SparseGP(
        kernels.Separate([kernels.Matern52(each, 1.7) for each in lengths]),
        LinearCoregionalization(noises, stored["mixing"]),
        problem["z"],
        Moments(jnp.asarray(problem["mean"]), factor),
    )


def test_coregionalization_is_that_of_gpflow_and_gpytorch():
    problem = dict(np.load(REFERENCES / "problem.npz"))
    gpflow = dict(np.load(REFERENCES / "outputs_gpflow.npz"))
    gpytorch = dict(np.load(REFERENCES / "outputs_gpytorch.npz"))
    model = reference_model(gpflow, problem)
    batch = Batch(jnp.asarray(problem["x"]), jnp.asarray(gpflow["y"]))
    x = jnp.asarray(problem["x_test"])
    of_outputs = jax.vmap(model.likelihood.marginals, -1)
    marginals = jax.jit(lambda: of_outputs(*model.marginals(x)))()
    for peer in (gpflow, gpytorch):
        close = lambda found, name, peer=peer: np.testing.assert_allclose(
            found, peer[name], rtol=1e-8, atol=1e-8 * np.abs(peer[name]).max()
        )
        close(elbo(model, batch), "elbo")
        close(marginals[0], "f_mean")
        close(marginals[1], "f_var")
    tx = natgrad.split(natgrad.mirror_descent(0.1), None)

    def step(carry, _):
        model, state = carry
        grads = jax.grad(lambda model: -gp.elbo(model, batch))(model)
        updates, state = tx.update(grads, state, model)
        model: Any = optax.apply_updates(model, updates)
        return (model, state), gp.elbo(model, batch)

    (last, _), trace = jax.lax.scan(step, (model, tx.init(model)), length=20)
    np.testing.assert_allclose(trace, gpflow["trace"], rtol=1e-8)
    np.testing.assert_allclose(
        last.posterior.location(), gpflow["final_mean"], rtol=1e-7, atol=1e-8
    )
