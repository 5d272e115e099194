"""With few rows and Gaussian noise the evidence is had exactly, and q with it."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from natgrad import gp, mirror_descent
from natgrad.data._batches import Batch, padded as padded_to_size
from natgrad.gp import exact, kernels, likelihoods, means
from natgrad.train._loop import CONVERGED
from tests.variants import variants


def hyperparameters(kernel=kernels.Matern52, noise=0.1):
    kernel = kernel(np.array([0.7, 1.5, 3.0]), 1.7)
    return exact.Hyperparameters(
        kernel, likelihoods.Gaussian(noise), means.Constant(0.3)
    )


def table(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    y = (
        np.sin(2 * x[:, 0])
        + 0.5 * x[:, 1]
        + np.cos(x[:, 2])
        + 0.2 * rng.normal(size=rows)
    )
    return Batch(jnp.asarray(x), jnp.asarray(y))


def padded(x, y):
    batch = padded_to_size(Batch(np.asarray(x), np.asarray(y)))
    return jax.tree.map(jnp.asarray, batch)


def brute_force(of, x, y):
    covariance = np.asarray(of.kernel(x, x))
    covariance = covariance + float(of.likelihood.variance) * np.eye(len(y))
    mean = np.full(len(y), 0.3)
    return scipy.stats.multivariate_normal(mean, covariance).logpdf(y)


KERNELS = variants([kernels.Matern52, kernels.RBF], [kernels.Matern52])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_evidence_is_the_density_of_the_targets(kernel):
    x, y, *_ = table()
    of = hyperparameters(kernel)
    found = exact.log_marginal_likelihood(of, Batch(x, y))
    np.testing.assert_allclose(found, brute_force(of, x, y), rtol=1e-8)


def test_rows_count_by_their_weights_and_not_at_all_at_zero():
    x, y, *_ = table(20)
    of = hyperparameters()
    often = np.repeat(np.arange(20), np.arange(20) % 3)
    weights = Batch(x, y, jnp.arange(20.0) % 3)
    repeated = brute_force(of, x[often], y[often])
    np.testing.assert_allclose(
        exact.log_marginal_likelihood(of, weights), repeated, rtol=1e-8
    )
    few = padded(x, y)
    assert len(few.y) == 32
    np.testing.assert_allclose(
        exact.log_marginal_likelihood(of, few), brute_force(of, x, y), rtol=1e-8
    )


def test_its_slope_is_that_of_plain_autodiff():
    batch = table()

    def plain(of):
        size = len(batch.y)
        covariance = of.kernel(batch.x, batch.x) + of.likelihood.variance * jnp.eye(
            size
        )
        residual = batch.y - of.mean(batch.x)
        log_det = jnp.linalg.slogdet(covariance)[1]
        fit = residual @ jnp.linalg.solve(covariance, residual)
        return -(fit + log_det + size * np.log(2 * np.pi)) / 2

    ours = jax.grad(lambda of: exact.log_marginal_likelihood(of, batch))(
        hyperparameters()
    )
    theirs = jax.grad(plain)(hyperparameters())
    for found, expected in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_q_is_where_one_natural_step_of_size_one_ends_and_has_the_evidence():
    batch = table()._replace(weight=jnp.linspace(0.5, 2.0, 60))
    of = hyperparameters()
    model = exact.posterior(of, batch.x, batch)
    np.testing.assert_allclose(
        gp.elbo(model, batch), exact.log_marginal_likelihood(of, batch), rtol=1e-6
    )
    prior = gp.SparseGP(of.kernel, of.likelihood, batch.x, mean=of.mean)
    rule = gp.alternating(
        mirror_descent(1.0), optax.set_to_zero(), float(batch.weight.sum())
    )
    stepped = gp.fit(
        prior, batch, batch_size=60, rule=rule, steps=1, progress=False
    ).params
    at = table(9, seed=1).x
    for found, expected in zip(model.marginals(at), stepped.marginals(at), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", variants([2, 5, 9, 33, 94], [5]))
def test_points_between_the_rows_change_nothing_and_make_few_sizes(size):
    x, y, *_ = table(size)
    x = jnp.concatenate([x, x[:1]])  # a row that repeats is one inducing input
    batch, of = Batch(x, jnp.append(y, 0.3)), hyperparameters()
    inducing = exact.inducing_inputs(np.asarray(x))
    assert len(inducing) == {2: 3, 5: 9, 9: 16, 33: 40, 94: 96}[size]
    assert len(np.unique(inducing, axis=0)) == len(inducing)
    assert {tuple(row) for row in np.asarray(x)} <= {tuple(row) for row in inducing}
    found, plain = (
        exact.posterior(of, jnp.asarray(z), batch) for z in (inducing, x[:-1])
    )
    np.testing.assert_allclose(
        gp.elbo(found, batch), exact.log_marginal_likelihood(of, batch), rtol=1e-6
    )
    at = table(9, seed=1).x
    for ours, theirs in zip(found.marginals(at), plain.marginals(at), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_climb_ends_as_high_as_scikit_learns():
    x, y, *_ = table(150)
    kernel = ConstantKernel() * Matern([1.0] * 3, nu=2.5) + WhiteKernel()
    theirs = GaussianProcessRegressor(kernel, random_state=0).fit(x, y)
    first = exact.Hyperparameters(
        kernels.Matern52(np.ones(3), 1.0), likelihoods.Gaussian(), means.Zero()
    )
    fitted = exact.fit([first], x, padded(x, y), progress=False)
    best = theirs.log_marginal_likelihood_value_ / 150
    assert fitted.history[-1].objective > best - 1e-4
    assert fitted.history.reason == CONVERGED
    objectives = fitted.history.column("objective")
    assert (np.diff(objectives) > -1e-9).all()
    bound = gp.elbo(fitted.params, Batch(x, y)) / 150
    np.testing.assert_allclose(bound, objectives[-1], atol=1e-6)


def test_of_several_starts_the_one_that_ends_highest_is_continued():
    x, y, *_ = table(80)
    make = lambda scale, noise: exact.Hyperparameters(
        kernels.Matern52(np.full(3, scale)), likelihoods.Gaussian(noise), means.Zero()
    )
    # Where all rows are far from each other there is no slope to climb; the other start
    # says that noise is small, and begins below.
    stuck, good = make(1e-6, 1.0), make(3.0, 1e-3)
    batch = padded(x, y)
    begins = [exact.log_marginal_likelihood(of, batch) for of in (stuck, good)]
    assert begins[1] < begins[0]
    ends = [
        exact.fit(firsts, x, batch, progress=False).history[-1].objective
        for firsts in ([stuck], [good], [stuck, good], [good, stuck])
    ]
    assert ends[0] < ends[1] - 0.1
    np.testing.assert_allclose(ends[2:], ends[1], atol=1e-3)


def test_targets_without_noise_and_constant_ones_end_finite():
    x = table(40).x
    for y in (jnp.zeros(40), x[:, 0]):
        first = exact.Hyperparameters(
            kernels.Matern52(np.ones(3), 1.0), likelihoods.Gaussian(), means.Zero()
        )
        fitted = exact.fit([first], x, padded(x, y), progress=False)
        mean, var = fitted.params.marginals(x)
        np.testing.assert_allclose(mean, y, atol=1e-3)
        assert np.isfinite(var).all()


def test_it_ends_when_the_time_is_over_or_it_is_interrupted(tmp_path):
    x, y, *_ = table(300)
    batch, first = padded(x, y), hyperparameters()
    late = exact.fit([first], x, batch, minutes=1e-9, progress=False)
    assert late.history.reason == "the time is over"
    assert np.isfinite(late.params.marginals(x)[0]).all()

    many = [first] * 200
    shown = {"progress": False, "log": tmp_path / "log"}
    ctrl_c = lambda record, _: signal.raise_signal(signal.SIGINT)
    broken = exact.fit(many, x, batch, callbacks=[ctrl_c], **shown)
    assert broken.history.reason == "interrupted"
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) >= len(broken.history) - 1  # all but that of the interruption


def test_it_resumes_as_every_run_does(tmp_path):
    x, y, *_ = table(40)
    batch, first = padded(x, y), hyperparameters()
    options = {"progress": False, "checkpoint": tmp_path / "run"}
    few, more = exact.LAP + 1, exact.LAP + 4
    whole = exact.fit([first, first], x, batch, steps=more, progress=False)
    exact.fit([first, first], x, batch, steps=few, **options)
    resumed = exact.fit([first, first], x, batch, steps=more, resume=True, **options)
    leaves = lambda fitted: [np.asarray(x).tobytes() for x in jax.tree.leaves(fitted)]
    assert leaves(resumed.params) == leaves(whole.params)
