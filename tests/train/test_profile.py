"""The profile of a loss: it never rises, ends by itself, and resumes bit for bit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import gp
from natgrad.data import Arrays, Batch
from natgrad.errors import InputError
from natgrad.families import gaussian
from natgrad.families.gamma import ShapeRate
from natgrad.gp import exact, likelihoods
from natgrad.gp._profile import carried_over, evaluate, profile_rule
from natgrad.linalg import Sqrt
from natgrad.positive import Log
from natgrad.train import in_turn, run
from natgrad.train._loop import CONVERGED
from tests.variants import variants


def table(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    return x, np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(rows)


# Compiling is what costs: whole programs, which several laws share.
elbo, evaluated = jax.jit(gp.elbo), jax.jit(evaluate)


TARGETS = {
    "Gaussian": lambda y: y,
    "StudentT": lambda y: y,
    "HeteroskedasticGaussian": lambda y: y,
    "Bernoulli": lambda y: (y > 0).astype(float),
    "Poisson": lambda y: np.floor(np.exp(1 + y)),
    "Beta": lambda y: 1 / (1 + np.exp(-y)),
}


OFTEN = ("StudentT", "HeteroskedasticGaussian")


@pytest.fixture(scope="module", params=variants(TARGETS, OFTEN))
def trained(request):
    x, y = table()
    likelihood = getattr(likelihoods, request.param)()
    y = TARGETS[request.param](y)
    model = gp.initialize(x, likelihood, 12)
    return x, y, gp.fit(model, (x, y), progress=False)


def test_the_elbo_never_falls_and_the_run_ends_by_itself(trained):
    _, _, fitted = trained
    objectives = np.array(fitted.history.column("objective"))
    assert (np.diff(objectives) >= 0).all()
    assert fitted.history.reason == CONVERGED


def test_the_last_record_is_the_elbo_of_the_model(trained):
    x, y, fitted = trained
    bound = elbo(fitted.params, Batch(jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(fitted.history[-1].objective, bound / len(y), rtol=1e-9)


@pytest.mark.nightly
def test_no_natural_step_on_q_gains_more_than_it_settles_for(trained):
    x, y, fitted = trained
    batch = Batch(jnp.asarray(x), jnp.asarray(y))
    only_q = gp.alternating(natgrad.guarded_ngd(1.0), optax.set_to_zero(), len(y))
    more = gp.fit(fitted.params, (x, y), rule=only_q, steps=20, progress=False)
    gain = elbo(more.params, batch) - elbo(fitted.params, batch)
    assert -1e-8 <= gain / len(y) < 1e-3


def test_gaussian_noise_ends_where_the_collapsed_bound_is_highest():
    # With all rows as fixed inducing inputs the profile is the evidence itself.
    x, y = table(30)
    model = gp.initialize(x, likelihoods.Gaussian(0.1), 30)
    model = gp.SparseGP(model.kernel, model.likelihood, x)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(30))
    seen = evaluated(model, profile_rule(30).init(model).kept, batch)
    hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    value, slope = jax.jit(jax.value_and_grad(exact.log_marginal_likelihood))(
        hyper, batch
    )
    np.testing.assert_allclose(-seen.value, value, rtol=1e-6)
    for ours, theirs in [
        (seen.slope.kernel, slope.kernel),
        (seen.slope.likelihood, slope.likelihood),
    ]:
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(-a, b, rtol=1e-3, atol=1e-4)


def test_the_slope_is_that_of_the_profile_by_finite_differences():
    x, y = table(40)
    model = gp.initialize(x, likelihoods.StudentT(), 8)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(40))
    first = profile_rule(40).init(model).kept

    def value(log_variance):
        at = eqx_set(model, log_variance)
        for _ in range(3):  # to rest
            at = evaluated(at, first, batch).params
        seen = evaluated(at, first, batch)
        return seen.value, seen.slope.kernel.log_variance

    def eqx_set(model, value):
        return eqx.tree_at(lambda m: m.kernel.log_variance, model, value)

    here, h = model.kernel.log_variance, 1e-3
    rise = (value(here + h)[0] - value(here - h)[0]) / (2 * h)
    np.testing.assert_allclose(value(here)[1], rise, rtol=1e-3)


def test_a_run_resumes_bit_for_bit(tmp_path):
    x, y = table()
    model = gp.initialize(x, likelihoods.StudentT(), 12)
    options = {"progress": False, "save_seconds": 1e9}
    whole = gp.fit(model, (x, y), steps=12, **options)
    folder = tmp_path / "run"
    gp.fit(model, (x, y), steps=5, checkpoint=folder, **options)
    again = gp.fit(model, (x, y), steps=12, checkpoint=folder, resume=True, **options)
    for a, b in zip(
        jax.tree.leaves(whole.params), jax.tree.leaves(again.params), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    objectives = whole.history.column("objective")
    assert again.history.column("objective") == objectives


def test_any_loss_with_distributions_has_a_profile():
    # Counts with a gamma posterior on their rate, and a prior whose rate is learned.
    rng = np.random.default_rng(0)
    counts = rng.poisson(3.0, 50).astype(float)
    one = Log(jnp.zeros(()))
    params = {"rate": ShapeRate(one, one), "prior": jnp.zeros(())}

    def loss(params, batch):
        q, shape = params["rate"], jnp.ones(())
        prior = ShapeRate(Log(jnp.log(shape)), Log(params["prior"]))
        alpha, beta = q.shape_rate()
        log_mean = jax.scipy.special.digamma(alpha) - jnp.log(beta)
        return q.kl(prior) - (batch * log_mean - alpha / beta).sum()

    fitted = natgrad.fit(loss, params, counts, optimizer="profile", progress=False)
    assert fitted.history.reason == CONVERGED
    alpha, beta = fitted.params["rate"].shape_rate()
    # Conjugate, so q is known for any prior.
    np.testing.assert_allclose(alpha, 1 + counts.sum(), rtol=1e-4)
    np.testing.assert_allclose(beta, 50 + jnp.exp(fitted.params["prior"]), rtol=1e-4)
    # The best prior has the mean of q.
    np.testing.assert_allclose(jnp.exp(-fitted.params["prior"]), alpha / beta, rtol=0.1)


def test_a_loss_without_hyperparameters_is_solved():
    target = gaussian.Moments(jnp.array([3.0, -1.0]), Sqrt(0.1 * jnp.eye(2)))
    params = gaussian.Moments(jnp.zeros(2), Sqrt(jnp.eye(2)))
    loss = lambda q, batch: q.kl(target)
    fitted = natgrad.fit(loss, params, np.zeros(3), optimizer="profile", progress=False)
    assert float(fitted.params.kl(target)) < 1e-8


def test_what_has_no_profile_is_refused():
    loss = lambda params, batch, key: 0.0
    q = gaussian.Moments(jnp.zeros(2), Sqrt(jnp.eye(2)))
    with pytest.raises(InputError, match="without a key"):
        natgrad.fit(loss, q, np.zeros(3), optimizer="profile")
    with pytest.raises(InputError, match="only name is 'profile'"):
        natgrad.fit(lambda p, b: 0.0, q, np.zeros(3), optimizer="newton")
    with pytest.raises(InputError, match="give arrays"):
        natgrad.fit(lambda p, b: 0.0, q, [np.zeros(3)], optimizer="profile")


def test_what_is_known_of_the_rows_goes_along_to_more_inducing_inputs():
    x, y = table()
    model = gp.fit(
        gp.initialize(x, likelihoods.StudentT(), 12), (x, y), progress=False
    ).params
    batch = Batch(jnp.asarray(x), jnp.asarray(y))
    prior = gp.SparseGP(model.kernel, model.likelihood, x[:40], mean=model.mean)
    moved = carried_over(prior, model, batch)
    assert elbo(moved, batch) > elbo(model, batch) - 0.05 * len(y)
    assert elbo(moved, batch) > elbo(prior, batch) + 0.1 * len(y)


def test_a_rule_of_the_users_own_takes_all_its_steps():
    x, y = table()
    q = gaussian.Moments(jnp.zeros(2), Sqrt(jnp.eye(2)))
    rule = in_turn(lambda q, batch: q.kl(q), natgrad.mirror_descent(0.1))
    fitted = run(rule, q, Arrays((x, y), 10), steps=700, progress=False)
    assert fitted.history[-1].step == 700
