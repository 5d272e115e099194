"""Laws of sparse Gaussian processes: closed forms, brute force, invariances.

Compiling is what costs: each form of a model has one program for its bound, which many
laws speak of.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.families.gaussian import AbstractGaussian, Canonical, Moments
from natgrad.gp import (
    SparseGP,
    _projection as projection,
    dual_elbo,
    elbo,
    kernels,
    likelihoods,
    means,
    with_sites,
)
from natgrad.linalg import Full, Log, Sqrt
from tests.variants import variants


def problem(rows: int, width: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, width))
    y = np.sin(2 * x).sum(-1) + 0.3 * rng.standard_normal(rows)
    return x, y


def stepped(model: SparseGP, batch: Batch) -> SparseGP:
    """The model after one natural step of size one in θ."""
    tx = natgrad.split(natgrad.mirror_descent(1.0), None)
    grads = jax.grad(lambda model: -elbo(model, batch))(model)
    updates, _ = tx.update(grads, tx.init(model), model)
    return optax.apply_updates(model, updates)


def with_posterior(model: SparseGP, q: AbstractGaussian) -> SparseGP:
    return eqx.tree_at(lambda model: model.posterior, model, q)


@jax.jit
def bound(model: SparseGP, batch: Batch) -> tuple[jax.Array, SparseGP]:
    """The bound for 90 rows, and its gradient."""
    return jax.value_and_grad(elbo)(model, batch, 90)


@jax.jit
def bound_in_q(model: SparseGP, batch: Batch) -> tuple[jax.Array, AbstractGaussian]:
    """The same, and its gradient at the posterior alone."""
    of = lambda q: elbo(with_posterior(model, q), batch, 90)
    return jax.value_and_grad(of)(model.posterior)


@jax.jit
def dual_bound(model: SparseGP, other: SparseGP, batch: Batch) -> tuple:
    return jax.value_and_grad(dual_elbo)(model, other, batch, 90)


@jax.jit
def improved(q: AbstractGaussian, grad: AbstractGaussian) -> AbstractGaussian:
    """The posterior after a short natural step in θ, up the gradient of its bound."""
    tx = natgrad.mirror_descent(0.07)
    updates, _ = tx.update(jax.tree.map(jnp.negative, grad), tx.init(q), q)
    return optax.apply_updates(q, updates)


def blind(model: SparseGP) -> SparseGP:
    """The model without its likelihood, so that all likelihoods share a program."""
    return eqx.tree_at(lambda model: model.likelihood, model, None)


@jax.jit
def marginals(model: SparseGP, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return model.marginals(x)


@jax.jit
def again(model: SparseGP) -> AbstractGaussian:
    """The posterior that a model's prior and its sites make."""
    return with_sites(model, model).posterior


def some_posterior(size: int, seed: int, latents: int | None = None) -> Moments:
    rng = np.random.default_rng(seed)
    shape = (size,) if latents is None else (latents, size)
    root = 0.1 * np.tril(rng.standard_normal((*shape, size))) + 0.5 * np.eye(size)
    return Moments(jnp.asarray(rng.standard_normal(shape)), Sqrt(jnp.asarray(root)))


# Closed forms, in NumPy


def gram(kernel, x, z):
    return np.asarray(kernel(jnp.asarray(x), jnp.asarray(z)))


def log_marginal(kernel, noise, x, y):
    """log N(y | 0, K + noise I)"""
    root = np.linalg.cholesky(gram(kernel, x, x) + noise * np.eye(len(x)))
    half = np.linalg.solve(root, y)
    log_det = 2 * np.log(np.diag(root)).sum()
    return -(half @ half + log_det + len(x) * np.log(2 * np.pi)) / 2


def collapsed_bound(kernel, noise, x, y, z, jitter=1e-10):
    """Titsias (2009): log N(y | 0, Q + noise I) − tr(K − Q)/(2 noise)."""
    prior = gram(kernel, z, z)
    prior = prior + jitter * np.mean(np.diag(prior)) * np.eye(len(z))
    features = np.linalg.solve(np.linalg.cholesky(prior), gram(kernel, z, x))
    inner = np.eye(len(z)) + features @ features.T / noise
    root = np.linalg.cholesky(inner)
    half = np.linalg.solve(root, features @ y) / noise
    quadratic = y @ y / noise - half @ half
    log_det = 2 * np.log(np.diag(root)).sum() + len(x) * np.log(noise)
    variance = np.asarray(kernel.diag(jnp.asarray(x)))
    left = (variance - (features**2).sum(0)).sum() / noise
    return -(quadratic + log_det + len(x) * np.log(2 * np.pi) + left) / 2


# The reference itself loses digits to the condition of k(Z, Z), about 1e10 for RBF.
@pytest.mark.parametrize("kernel, tolerance", [("Matern52", 1e-11), ("RBF", 1e-9)])
def test_one_step_of_size_one_reaches_the_collapsed_bound(kernel, tolerance):
    x, y = problem(2000)
    kernel = getattr(kernels, kernel)(0.7, 1.3)
    likelihood = likelihoods.Gaussian(0.09)
    z = x[:300]
    model = SparseGP(kernel, likelihood, z, some_posterior(300, 1))
    batch = Batch(jnp.asarray(x), jnp.asarray(y))
    reached = jax.jit(lambda model: elbo(stepped(model, batch), batch))(model)
    expected = collapsed_bound(kernel, 0.09, x, y, z)
    assert abs(float(reached) / expected - 1) < tolerance


@pytest.mark.parametrize("jitter, tolerance", [(1e-10, 1e-6), (None, 1e-9)])
def test_with_inducing_inputs_at_the_data_the_bound_is_exact(
    jitter, tolerance, monkeypatch
):
    x, y = problem(200)
    if jitter is None:  # as little as rounding allows
        monkeypatch.setattr(projection, "LEAST", 0.0)
    kernel, noise = kernels.Matern52(0.9, 1.3), 0.09
    model = SparseGP(kernel, likelihoods.Gaussian(noise), x)
    batch = Batch(jnp.asarray(x), jnp.asarray(y))

    @jax.jit
    def after(model):
        model = stepped(model, batch)
        return model, elbo(model, batch)

    model, reached = after(model)
    exact = log_marginal(kernel, noise, x, y)
    assert reached <= exact + 1e-9 * abs(exact)
    assert abs(reached / exact - 1) < tolerance

    new = np.random.default_rng(1).uniform(-2, 2, (50, 2))
    solved = np.linalg.solve(
        gram(kernel, x, x) + noise * np.eye(len(x)), gram(kernel, x, new)
    )
    mean, var = gp.predictor(model).latent(new)
    exact_var = 1.3 - (solved * gram(kernel, x, new)).sum(0)
    np.testing.assert_allclose(mean, solved.T @ y, atol=1e-5 if jitter else 1e-7)
    np.testing.assert_allclose(var, exact_var, atol=1e-8 if jitter else 1e-9)


OFTEN = ("Student-t", "heteroskedastic")
ALL = {
    "Gaussian": likelihoods.Gaussian(0.3),
    "Student-t": likelihoods.StudentT(0.4, 3.0),
    "Bernoulli": likelihoods.Bernoulli(),
    "Poisson": likelihoods.Poisson(),
    "robust-max": likelihoods.RobustMax(3),
    "heteroskedastic": likelihoods.HeteroskedasticGaussian(),
}


def targets(name: str, y: np.ndarray) -> np.ndarray:
    if name == "Bernoulli":
        return (y > 0).astype(float)
    if name in ("Poisson", "robust-max"):
        return np.clip(np.round(y) + 1, 0, 2).astype(int)
    return y


@functools.cache
def models(name: str) -> tuple[dict[str, SparseGP], Batch]:
    """The same model whitened and not, in several coordinates."""
    x, y = problem(30)
    z = jnp.asarray(x[:8])
    likelihood = ALL[name]
    latents = likelihood.latents
    kernel = kernels.Matern52([0.8, 1.1], 1.3)
    if name == "heteroskedastic":
        kernel = kernels.Separate([kernel, kernels.RBF(1.5, 0.5)])
    mean = means.Constant(0.2)
    q = some_posterior(8, 2, latents)
    white = SparseGP(kernel, likelihood, z, q, mean)
    prior = gram(kernel, z, z)
    scale = np.trace(prior, axis1=-2, axis2=-1) / 8
    jitter = 1e-10 * scale[..., None, None] * np.eye(8)
    root = np.linalg.cholesky(prior + jitter)
    mean_, root_ = np.asarray(q.mean), np.tril(q.cov.root)
    cov = root_ @ root_.mT
    precision = np.linalg.inv(cov)
    apply = lambda matrix: jnp.asarray((matrix @ mean_[..., None])[..., 0])
    inside = lambda q: with_posterior(white, q)
    plain = Moments(apply(root), Sqrt(jnp.asarray(root @ root_)))
    cov, precision = jnp.asarray(cov), jnp.asarray(precision)
    return {
        "whitened": white,
        "full": inside(Moments(q.mean, Full(cov))),
        "log": inside(Moments(q.mean, Log(jnp.zeros_like(cov)).at(cov))),
        "canonical": inside(Canonical(apply(precision), Full(precision / 2))),
        "not whitened": SparseGP(kernel, likelihood, z, plain, mean, is_whitened=False),
    }, Batch(jnp.asarray(x), jnp.asarray(targets(name, y)))


def brute_force(model: SparseGP, batch: Batch, num_data: int) -> jax.Array:
    """The bound of a whitened model as one would write it first."""
    z, x = model.inducing, batch.x
    rows, size = x.shape[0], z.shape[0]
    q = model.posterior
    means_, covs = q.location(), q.covariance()
    prior, cross, diag = model.kernel(z, z), model.kernel(z, x), model.kernel.diag(x)
    latents = model.likelihood.latents or 1
    broadcast = lambda a, ndim: jnp.broadcast_to(
        a, (latents, *a.shape[a.ndim - ndim :])
    )
    if prior.ndim == 2:
        prior, cross, diag = (
            broadcast(prior, 2),
            broadcast(cross, 2),
            broadcast(diag, 1),
        )
    means_ = means_.reshape((latents, size))
    covs = covs.reshape((latents, size, size))
    mean, var, divergence = [], [], 0.0
    for k in range(latents):
        jitter = 1e-10 * jnp.trace(prior[k]) / size
        root = jnp.linalg.cholesky(prior[k] + jitter * jnp.eye(size))
        a = jax.scipy.linalg.solve_triangular(root, cross[k], lower=True)
        mean.append(model.mean(x) + means_[k] @ a)
        var.append(diag[k] - (a**2).sum(0) + (a * (covs[k] @ a)).sum(0))
        square = jnp.trace(covs[k]) + means_[k] @ means_[k] - size
        divergence += (square - jnp.linalg.slogdet(covs[k])[1]) / 2
    mean, var = jnp.stack(mean), jnp.stack(var)
    if model.likelihood.latents is None:
        mean, var = mean[0], var[0]
    expected = jax.vmap(model.likelihood.expected_log_prob, in_axes=(-1, -1, 0))
    return num_data / rows * expected(mean, var, batch.y).sum() - divergence


@pytest.mark.parametrize("name", variants(ALL, OFTEN))
def test_bound_and_gradient_equal_brute_force_by_autodiff(name):
    forms, batch = models(name)
    model = forms["whitened"]
    ours = bound(model, batch)
    theirs = jax.jit(jax.value_and_grad(brute_force), static_argnums=2)(
        model, batch, 90
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        # The root's upper triangle is not read, and brute force is symmetric in it.
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", variants(ALL, OFTEN))
def test_bound_step_and_prediction_are_the_same_in_all_forms(name):
    forms, batch = models(name)
    new = batch.x[:5] + 0.1

    def report(model):
        value, grad = bound_in_q(model, batch)
        before = blind(model)
        after = with_posterior(before, improved(model.posterior, grad))
        return value, marginals(before, new), marginals(after, new)

    expected = jax.tree.leaves(report(forms["whitened"]))
    for model in forms.values():
        for a, b in zip(jax.tree.leaves(report(model)), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_a_row_of_weight_two_is_a_row_twice_and_of_weight_zero_is_none():
    forms, batch = models("Student-t")
    model = forms["whitened"]
    weight = jnp.ones(30).at[:10].set(2.0).at[25:].set(0.0)
    rows = np.r_[np.arange(25), np.arange(10)]
    repeated = Batch(batch.x[rows], batch.y[rows])
    weighted = Batch(batch.x, batch.y, weight)
    both = jax.jit(lambda batch: (elbo(model, batch), elbo(model, batch, 90)))
    np.testing.assert_allclose(both(weighted), both(repeated), rtol=1e-12)


def test_minibatches_are_unbiased():
    forms, batch = models("Bernoulli")
    model = forms["whitened"]
    parts = [Batch(batch.x[i : i + 10], batch.y[i : i + 10]) for i in (0, 10, 20)]
    of = jax.jit(lambda batch: elbo(model, batch, 30))
    expected = jax.jit(elbo)(model, batch)
    np.testing.assert_allclose(np.mean([of(b) for b in parts]), expected, rtol=1e-12)


def test_a_prior_on_hyperparameters_is_added_to_the_bound():
    forms, batch = models("Gaussian")
    model = forms["whitened"]
    log_prior = lambda model: -(model.kernel.log_variance**2) / 2
    with_prior = SparseGP(
        model.kernel,
        model.likelihood,
        model.inducing,
        model.posterior,
        model.mean,
        log_prior=log_prior,
    )
    difference = bound(with_prior, batch)[0] - bound(model, batch)[0]
    np.testing.assert_allclose(difference, log_prior(model), rtol=1e-9)


# Sites


@pytest.mark.parametrize("form", ["whitened", "not whitened"])
@pytest.mark.parametrize("name", variants(ALL, OFTEN))
def test_sites_make_the_posterior_and_move_with_the_prior(name, form):
    forms, batch = models(name)
    model = forms[form]
    new = batch.x[:5] + 0.1
    expected = marginals(blind(model), new)
    moved = with_posterior(blind(model), again(blind(model)))
    for a, b in zip(marginals(moved, new), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    value, grads = dual_bound(model, model, batch)
    np.testing.assert_allclose(value, bound_in_q(model, batch)[0], rtol=1e-8)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_at_an_optimal_q_the_dual_gradient_is_that_of_the_collapsed_bound():
    x, y = problem(60)
    kernel, likelihood = kernels.Matern52(0.9, 1.3), likelihoods.Gaussian(0.09)
    batch = Batch(jnp.asarray(x), jnp.asarray(y))
    model = jax.jit(stepped)(SparseGP(kernel, likelihood, x[:12]), batch)
    dual = jax.jit(jax.grad(dual_elbo))(model, model, batch)
    plain = jax.jit(jax.grad(elbo))(model, batch)
    step = 1e-5
    at = lambda log: collapsed_bound(
        kernels.Matern52(np.exp(log), 1.3), 0.09, x, y, x[:12]
    )
    expected = (at(np.log(0.9) + step) - at(np.log(0.9) - step)) / (2 * step)
    np.testing.assert_allclose(dual.kernel.log_lengthscale, expected, rtol=1e-6)
    np.testing.assert_allclose(plain.kernel.log_lengthscale, expected, rtol=1e-6)
    for a, b in zip(
        jax.tree.leaves((dual.kernel, dual.inducing, dual.likelihood)),
        jax.tree.leaves((plain.kernel, plain.inducing, plain.likelihood)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


# Prediction


@pytest.mark.parametrize("form", ["whitened", "not whitened"])
@pytest.mark.parametrize(
    "name", variants(["Student-t", "robust-max", "heteroskedastic"], ["robust-max"])
)
def test_predictions_are_the_marginals_in_chunks_of_any_size(name, form, monkeypatch):
    forms, batch = models(name)
    model = forms[form]
    predictor = gp.predictor(model)
    mean, var = (np.moveaxis(a, -1, 0) for a in marginals(blind(model), batch.x))
    for entries in (2**24, 2**6):
        monkeypatch.setattr("natgrad.gp._prediction.ENTRIES", entries)
        ours = predictor.latent(np.tile(batch.x, (3, 1)))
        np.testing.assert_allclose(ours[0][:30], mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(ours[1][60:], var, rtol=1e-8, atol=1e-9)


def test_a_predictor_is_made_inside_a_program_too():
    forms, batch = models("Student-t")
    model = forms["whitened"]
    expected = gp.predictor(model).latent_at(batch.x)
    known = jax.jit(lambda x: gp.predictor(model).latent_at(x))(batch.x)
    given = jax.jit(lambda model, x: gp.predictor(model).latent_at(x))(model, batch.x)
    for found in (known, given):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_joint_draws_have_the_moments_of_the_posterior():
    forms, batch = models("Student-t")
    model = forms["whitened"]
    predictor = gp.predictor(model)
    x = np.asarray(batch.x[:6])
    draws = predictor.sample_latent(jax.random.key(0), x, 40_000)
    mean, var = predictor.latent(x)
    np.testing.assert_allclose(
        draws.mean(0), mean, atol=5 * (var.max() / 40_000) ** 0.5
    )
    kernel, q = model.kernel, model.posterior
    root = np.linalg.cholesky(gram(kernel, model.inducing, model.inducing))
    a = np.linalg.solve(root, gram(kernel, model.inducing, x))
    cov = gram(kernel, x, x) - a.T @ a + a.T @ np.asarray(q.covariance()) @ a
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=5 * var.max() / 200)
    assert predictor.sample(jax.random.key(1), x, 3).shape == (3, 6)


def test_joint_draws_are_the_same_in_both_forms():
    forms, batch = models("Student-t")
    one, other = (
        gp.predictor(forms[form]).sample_latent(jax.random.key(0), batch.x[:6], 3)
        for form in ("whitened", "not whitened")
    )
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", ["whitened", "not whitened"])
def test_hyperparameter_slopes_are_those_of_differences(form):
    forms, batch = models("Student-t")
    model = forms[form]
    step = 1e-5
    moved = lambda size: eqx.tree_at(
        lambda model: (model.kernel.log_variance, model.inducing),
        model,
        (model.kernel.log_variance + size, model.inducing + size),
    )
    for of in (bound, lambda model, batch: dual_bound(model, forms[form], batch)):
        _, grads = of(model, batch)
        slope = grads.kernel.log_variance + grads.inducing.sum()
        there, back = (of(moved(size), batch)[0] for size in (step, -step))
        np.testing.assert_allclose(slope, (there - back) / (2 * step), rtol=1e-6)
