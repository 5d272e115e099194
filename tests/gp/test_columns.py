"""Laws of the numbers that come with targets: trials, exposures, noise and bounds."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import pytest
import scipy.stats
from jax.scipy.special import gammaln

import natgrad
from natgrad import gp
from natgrad._quadrature import gauss_hermite, spread
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.gp import SparseGP, elbo, kernels, likelihoods
from natgrad.gp.likelihoods import (
    Bernoulli,
    Binomial,
    Censored,
    Gamma,
    Gaussian,
    HeteroskedasticGaussian,
    NegativeBinomial,
    Poisson,
    StudentT,
    Weibull,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
    _rows as rows,
)
from natgrad.gp.likelihoods._positive import log_gamma_tails
from tests.gp.likelihoods import CENSORED, LIKELIHOODS, between, cases, definition
from tests.points import EXTENSIONS
from tests.variants import variants


RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 4, (12, 1)), 0)
Z = jnp.linspace(0, 4, 6)[:, None]
COUNTS = RNG.poisson(2, 12).astype(float)
POSITIVE = np.exp(RNG.normal(size=12))
TX = natgrad.split(natgrad.mirror_descent(0.3), None)


def model_of(likelihood) -> SparseGP:
    return SparseGP(kernels.Matern52(1.0), likelihood, Z)


@jax.jit
def stepped(model: SparseGP, batch: Batch):
    """The model after some natural steps, and the bound before each."""

    def step(model, _):
        value, grads = jax.value_and_grad(lambda model: -elbo(model, batch))(model)
        updates, _ = TX.update(grads, TX.init(model), model)
        return optax.apply_updates(model, updates), -value

    return jax.lax.scan(step, model, length=8)


def fitted(likelihood, x, y, weight=None, **columns):
    """The bounds of some natural steps, and the q that they lead to."""
    batch = jax.tree.map(jnp.asarray, Batch(x, y, weight, columns))
    model, bounds = stepped(model_of(likelihood), batch)
    return bounds, (model.posterior.location(), model.posterior.covariance())


def assert_same(ours, theirs, rtol: float = 1e-10) -> None:
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


# Trials


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_successes_of_trials_are_as_many_rows_of_one_trial(link):
    trials = RNG.integers(1, 9, 12)
    successes = RNG.binomial(trials, 0.4)
    bounds, q = fitted(Binomial(link), X, successes, trials=trials)
    pieces = [np.arange(n) < k for n, k in zip(trials, successes, strict=True)]
    y = np.concatenate(pieces).astype(float)
    others, same = fitted(Bernoulli(link), np.repeat(X, trials, 0), y)
    ways = np.log(scipy.special.comb(trials, successes)).sum()
    assert_same((bounds - ways, q), (others, same))


def test_one_trial_is_a_bernoulli_row_with_its_columns_or_without():
    y = (COUNTS > 2).astype(float)
    expected = fitted(Bernoulli(), X, y)
    assert_same(fitted(Binomial(), X, y), expected)
    assert_same(fitted(Binomial(), X, y, trials=np.ones(12)), expected)


def test_binomial_probabilities_are_those_of_scipy():
    f, trials = np.asarray([-6.0, -0.3, 0.0, 1.2, 7.0]), 1000
    for likelihood, chance in (
        (Binomial(), scipy.stats.norm.cdf(f)),
        (Binomial("logit"), scipy.special.expit(f)),
    ):
        own = likelihood.given(trials=jnp.asarray(trials, float))
        for y in (0, 3, 500, 1000):
            log_prob = jax.vmap(lambda f, y=y, own=own: own.log_prob(f, jnp.asarray(y)))
            theirs = scipy.stats.binom.logpmf(y, trials, chance)
            is_exact = np.isfinite(theirs) & (chance < 0.99)  # 1 − p loses digits
            np.testing.assert_allclose(
                log_prob(jnp.asarray(f))[is_exact], theirs[is_exact], rtol=1e-10
            )


@pytest.mark.nightly
def test_quantiles_and_probabilities_are_of_the_trials_of_each_row():
    predictor = gp.predictor(model_of(Binomial()))
    trials = RNG.integers(1, 40, len(X))
    # At the prior Φ(f) is uniform, and so are counts: no level is one of theirs.
    columns, levels = {"trials": trials}, np.asarray([0.0507, 0.4007, 0.9507])
    found = predictor.quantiles(X, levels, columns)

    @jax.jit
    @jax.vmap
    def at_row(mean, var, trials):
        own = Binomial().given(trials=trials)
        return jax.vmap(lambda level: own.quantile(mean, var, level))(levels)

    expected = at_row(*predictor.latent(X), trials.astype(float))
    np.testing.assert_array_equal(found, expected)
    at_most = predictor.cdf(X, found[:, 1], columns)
    before = predictor.cdf(X, found[:, 1] - 1, columns)
    assert ((at_most >= 0.4007) & (before < 0.4007)).all()
    mean, _ = predictor.predict(X, columns)
    np.testing.assert_allclose(mean, trials / 2, rtol=1e-10)  # at the prior
    draws = predictor.sample(jax.random.key(0), X, 300, columns)
    assert (draws <= trials).all() and (draws.max(0) > trials / 2).all()


# Exposure


HAVE_EXPOSURE = {
    name: case for name, case in LIKELIHOODS.items() if case.likelihood.has_exposure
}


@pytest.mark.parametrize("name", HAVE_EXPOSURE)
def test_an_exposure_is_an_offset_of_its_logarithm_and_scales_the_mean(name):
    likelihood = HAVE_EXPOSURE[name].likelihood
    exposure = RNG.uniform(0.2, 3.0, 12)
    y = POSITIVE if likelihood.support.value == "positive" else COUNTS
    exposed = fitted(likelihood, X, y, exposure=exposure)
    offset = fitted(likelihood, X, y, offset=np.log(exposure))
    assert_same(exposed, offset)
    predictor = gp.predictor(model_of(likelihood))
    once, _ = predictor.predict(X)
    more, _ = predictor.predict(X, {"exposure": exposure})
    np.testing.assert_allclose(more, once * exposure, rtol=1e-10)


def test_those_with_exposure_are_those_of_an_exponential_link():
    found = {type(case.likelihood).__name__ for case in HAVE_EXPOSURE.values()}
    inflated = {"ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial"}
    named = {"Gamma", "Poisson", "NegativeBinomial", "Weibull"}
    assert found == named | inflated | {"LogNormal"}  # of the page on extending
    assert Censored(Weibull()).has_exposure and not Censored(Gaussian()).has_exposure


# Known noise


def test_known_noise_is_that_of_the_exact_posterior():
    x, noise_sd, variance = X, RNG.uniform(0.1, 1.0, 12), 0.05
    y = np.sin(x[:, 0]) + noise_sd * RNG.normal(size=12)
    kernel, new = kernels.Matern52(1.0), np.linspace(0, 4, 5)[:, None]
    model = SparseGP(kernel, Gaussian(variance), jnp.asarray(x))
    tx = natgrad.split(natgrad.mirror_descent(1.0), None)
    batch = jax.tree.map(jnp.asarray, Batch(x, y, None, {"noise_sd": noise_sd}))
    grads = jax.grad(lambda model: -elbo(model, batch))(model)
    updates, _ = tx.update(grads, tx.init(model), model)
    model = optax.apply_updates(model, updates)
    mean, var = gp.predictor(model).latent(new)

    dense = np.asarray(kernel(jnp.asarray(x), jnp.asarray(x)))
    total = dense + np.diag(variance + noise_sd**2)
    cross = np.asarray(kernel(jnp.asarray(new), jnp.asarray(x)))
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(total, y), atol=1e-8)
    known = np.einsum("ij,ji->i", cross, np.linalg.solve(total, cross.T))
    np.testing.assert_allclose(var, 1 - known, atol=1e-8)
    evidence = scipy.stats.multivariate_normal(np.zeros(12), total).logpdf(y)
    np.testing.assert_allclose(elbo(model, batch), evidence, atol=1e-8)


# Bounds


NOISES = ("Gaussian", "StudentT", "Weibull", "Gamma")


@pytest.mark.parametrize("name", variants([*NOISES, "Poisson"], ["Weibull"]))
def test_without_bounds_censored_is_its_noise(name):
    noise = LIKELIHOODS[name].likelihood
    y = {"Weibull": POSITIVE, "Gamma": POSITIVE, "Poisson": COUNTS}.get(name, X[:, 0])
    expected = fitted(noise, X, y)
    assert_same(fitted(Censored(noise), X, y), expected)
    bounds = {"lower": y, "upper": y}
    assert_same(fitted(Censored(noise), X, y, **bounds), expected)
    levels = np.asarray([0.1, 0.6])
    ours, theirs = (gp.predictor(model_of(l)) for l in (Censored(noise), noise))
    assert_same(ours.predict(X), theirs.predict(X))
    assert_same(ours.quantiles(X, levels), theirs.quantiles(X, levels))
    assert_same(ours.cdf(X, y), theirs.cdf(X, y))
    draws = [each.sample(jax.random.key(0), X, 3) for each in (ours, theirs)]
    assert_same(*draws)


@pytest.mark.parametrize("name", variants(NOISES, ["Weibull"]))
def test_a_row_that_may_be_anywhere_is_no_row(name):
    noise = LIKELIHOODS[name].likelihood
    y = POSITIVE if name in ("Weibull", "Gamma") else X[:, 0]
    is_seen = np.arange(12) % 3 > 0
    expected = fitted(Censored(noise), X[is_seen], y[is_seen])
    # Beyond every quantile: a t of four degrees passes 1e5 about once in 1e20.
    for low, high in ((-np.inf, np.inf), (-np.inf, 1e5), (-1e5, 1e5)):
        lower, upper = np.where(is_seen, 0.0, low), np.where(is_seen, 0.0, high)
        others = np.where(is_seen, y, -3.0)  # it is ignored, whatever it is
        found = fitted(Censored(noise), X, others, lower=lower, upper=upper)
        assert_same(found, expected)


DISTRIBUTIONS = {
    "Gaussian": (Gaussian(0.3), lambda f: scipy.stats.norm(f, math.sqrt(0.3))),
    "StudentT": (StudentT(0.6, 4.0), lambda f: scipy.stats.t(4, f, 0.6)),
    "StudentT(4.5)": (StudentT(0.6, 4.5), lambda f: scipy.stats.t(4.5, f, 0.6)),
    "Weibull": (Weibull(1.6), lambda f: scipy.stats.weibull_min(1.6, scale=np.exp(f))),
    "Gamma": (Gamma(2.5), lambda f: scipy.stats.gamma(2.5, scale=np.exp(f) / 2.5)),
    "Poisson": (Poisson(), lambda f: scipy.stats.poisson(np.exp(f))),
}
LATENT = np.asarray([-3.0, -0.7, 0.0, 0.4, 2.0, 5.0])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_log_probabilities_of_intervals_are_those_of_scipy(name):
    noise, distribution = DISTRIBUTIONS[name]
    theirs = distribution(LATENT)
    for lower, upper in ((1.0, 3.0), (2.0, np.inf), (-np.inf, 2.0), (-1.0, 4.0)):
        row = between(noise, lower, upper)
        ours = jax.vmap(lambda f, row=row: row.log_prob(f, jnp.zeros(())))(LATENT)
        in_tail = theirs.sf(lower) - theirs.sf(upper)
        is_above = theirs.cdf(lower) > 0.5
        expected = np.where(is_above, in_tail, theirs.cdf(upper) - theirs.cdf(lower))
        is_held = expected > 1e-290
        np.testing.assert_allclose(
            ours[is_held], np.log(expected)[is_held], rtol=1e-10, atol=1e-12
        )
        assert np.isfinite(ours).all()


def test_weibull_densities_and_moments_are_those_of_scipy():
    theirs = scipy.stats.weibull_min(1.6, scale=np.exp(LATENT))
    y = np.exp(LATENT[::-1] / 3)
    ours = jax.vmap(Weibull(1.6).log_prob)(jnp.asarray(LATENT), jnp.asarray(y))
    np.testing.assert_allclose(ours, theirs.logpdf(y), rtol=1e-10)
    mean, var = jax.vmap(Weibull(1.6).conditional_moments)(jnp.asarray(LATENT))
    np.testing.assert_allclose(mean, theirs.mean(), rtol=1e-10)
    np.testing.assert_allclose(var, theirs.var(), rtol=1e-10)


def test_a_weibull_of_shape_one_is_a_gamma_of_shape_one():
    assert_same(fitted(Weibull(1.0), X, POSITIVE), fitted(Gamma(1.0), X, POSITIVE))
    ours, theirs = (gp.predictor(model_of(l)) for l in (Weibull(1.0), Gamma(1.0)))
    assert_same(ours.predict(X), theirs.predict(X))
    levels = np.asarray([0.1, 0.6, 0.99])
    assert_same(ours.quantiles(X, levels), theirs.quantiles(X, levels), 1e-7)


@pytest.mark.parametrize("name", variants(NOISES, ["Weibull"]))
def test_a_narrow_interval_has_the_density_times_its_width(name):
    noise, y = LIKELIHOODS[name].likelihood, 1.3
    density = jax.vmap(lambda f: noise.log_prob(f, jnp.asarray(y)))(LATENT)
    errors = []
    for half in (1e-2, 1e-3, 1e-4):
        row = between(noise, y - half, y + half)
        log_prob = jax.vmap(lambda f, row=row: row.log_prob(f, jnp.asarray(y)))(LATENT)
        errors.append(np.abs(log_prob - math.log(2 * half) - density).max())
    # Of the second order in the width, until rounding is as large.
    assert errors[1] < errors[0] / 50 and errors[2] < errors[1] / 50
    assert errors[2] < 1e-4


@pytest.mark.parametrize("name", cases(CENSORED))
def test_censored_rows_are_what_quadrature_gives(name):
    likelihood, (y, *_), error, *_ = CENSORED[name]
    mean, var, y = jnp.asarray(0.3), jnp.asarray(0.4), jnp.asarray(y)
    expected = definition(likelihood, mean, var, y)
    found = likelihood.expected_log_prob(mean, var, y)
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)
    nodes, log_weights = gauss_hermite(200)
    given = jax.vmap(lambda f: likelihood.log_prob(f, y))(spread(mean, var, nodes))
    predictive = jax.nn.logsumexp(given + log_weights)
    found = likelihood.log_predictive(mean, var, y)
    np.testing.assert_allclose(found, predictive, rtol=1e-10, atol=1e-12)


def test_a_tail_beyond_rounding_keeps_its_slope():
    slope = lambda row, f: jax.grad(row.log_prob)(jnp.asarray(f), jnp.zeros(()))
    # Log P is −z²/2 for a normal tail z deviations away, −(y/s)^k for a Weibull one.
    for lower, upper, sign in ((1e4, np.inf, 1), (1e4, 2e4, 1), (-2e4, -1e4, -1)):
        far = between(Gaussian(1.0), lower, upper)
        np.testing.assert_allclose(slope(far, 0.0), sign * 1e4, rtol=1e-7)
    far = between(Weibull(2.0), 1e4, np.inf)
    np.testing.assert_allclose(slope(far, 0.0), 2e8, rtol=1e-10)
    far = between(Gamma(2.0), 200, np.inf)  # (1 + x) exp(−x), with x = 2 y exp(−f)
    np.testing.assert_allclose(slope(far, 0.0), 400**2 / 401, rtol=1e-12)
    far = between(StudentT(1.0, 3.0), 1e8, np.inf)  # P ≈ c/z³
    np.testing.assert_allclose(slope(far, 0.0), 3e-8, rtol=1e-6)
    for noise in (Gamma(2.0), Weibull(2.0)):  # P(y < u) ≈ c u²
        far = between(noise, -np.inf, 1e-300)
        np.testing.assert_allclose(slope(far, 0.0), -2, rtol=1e-6)


def test_incomplete_gamma_functions_keep_their_digits_in_both_tails():
    pairs = (2.5, 400.0), (0.3, 900.0), (1e3, 300.0), (1e3, 3e3), (40.0, 1e-3)
    for shape, x in pairs:
        with mpmath.workdps(1500):
            below = mpmath.gammainc(shape, 0, x, regularized=True)
            exact = [float(mpmath.log(below)), float(mpmath.log(1 - below))]
        ours = log_gamma_tails(jnp.asarray(shape), jnp.log(jnp.asarray(x)))
        np.testing.assert_allclose(ours, exact, rtol=1e-12, atol=1e-150)


# Zeros


def test_without_more_zeros_the_counts_are_plain():
    f, y = jnp.asarray(LATENT[:-1]), jnp.asarray([0.0, 1.0, 3.0, 0.0, 9.0])
    for inflated, plain in (
        (ZeroInflatedPoisson(1e-14), Poisson()),
        (ZeroInflatedNegativeBinomial(0.4, 1e-14), NegativeBinomial(0.4)),
    ):
        both = [jax.vmap(l.log_prob)(f, y) for l in (inflated, plain)]
        assert_same(*both)
        var = jnp.full(5, 0.2)
        both = [jax.vmap(l.expected_log_prob)(f, var, y) for l in (inflated, plain)]
        assert_same(
            *both, rtol=1e-7
        )  # of 20 nodes, where the Poisson has a closed form
        both = [jax.vmap(l.moments)(f, var) for l in (inflated, plain)]
        assert_same(*both)
        both = [jax.vmap(l.cdf)(f, y) for l in (inflated, plain)]
        assert_same(*both)


def test_zeros_are_as_many_as_both_causes_give():
    f, zero = jnp.asarray(LATENT), jnp.zeros(())
    none = jax.vmap(lambda f: ZeroInflatedPoisson(0.3).log_prob(f, zero))(f)
    assert_same(np.exp(none), 0.3 + 0.7 * np.exp(-np.exp(LATENT)))
    seven = jax.vmap(lambda f: ZeroInflatedPoisson(0.3).log_prob(f, zero + 7))(f)
    expected = np.log(0.7) + 7 * LATENT - np.exp(LATENT) - float(gammaln(8.0))
    assert_same(seven, expected)


# What cannot be


@pytest.mark.parametrize(
    "likelihood, columns, message",
    [
        (
            Poisson(),
            {"exposure": [1.0, 2.0]},
            r"'exposure' has shape \[2\].* 3 targets",
        ),
        (Poisson(), {"exposure": [1.0, -2.0, 1.0]}, "above 0; 1 of 3 .* row 1: -2.0"),
        (Poisson(), {"offset": [np.inf, 0.0, 0.0]}, "offsets should be finite; 1 of 3"),
        (Poisson(), {"trials": [1, 1, 1]}, "Poisson takes no column 'trials'.* 'expo"),
        (Gaussian(), {"exposure": [1, 1, 1]}, "takes no column 'exposure'.*'noise_sd'"),
        (
            Gaussian(),
            {"noise_sd": [1, -1, 1]},
            "0 or more; 1 of 3 numbers .* row 1: -1",
        ),
        (Binomial(), {"trials": [1, 0, 3]}, "trials should be 1, .* row 1: 0"),
        (Binomial(), {"trials": [9, 1.5, 3]}, "trials should be 1, .* row 1: 1.5"),
        (Binomial(), {"trials": [1, 1, 1]}, "at most the trials.* 1 of 3 .* row 2: 2"),
        (Binomial(), {}, "without the column 'trials' needs 0 or 1; .* row 2: 2"),
        (Censored(Gaussian()), {"lower": [0, 0, 0]}, "no column 'upper'; .* together"),
        (
            Censored(Gaussian()),
            {"lower": [0, 2, 0], "upper": [1, 1, 1]},
            "lower should be at most upper; 1 of 3 bounds are not, .* row 1: 2",
        ),
        (
            Censored(Gaussian()),
            {"lower": [0, np.nan, 0], "upper": [1, 1, 1]},
            "lower should be at most upper; 1 of 3 .* row 1: nan",
        ),
        (
            Censored(Weibull()),
            {"lower": [0.0, -2.0, 1.0], "upper": [2.0, -1.0, 1.0]},
            "Weibull needs bounds with targets between them; 1 of 3 .* row 1: -1.0",
        ),
        (
            Censored(Weibull()),
            {"lower": [1.0, 1.0, 0.0], "upper": [1.0, 1.0, 2.0]},
            "Weibull needs positive targets; 1 of 3 .* row 0: 0",
        ),
        (
            Censored(Poisson()),
            {"lower": [0.2, 0.0, 0.0], "upper": [0.8, 1.0, 1.0]},
            "Poisson needs bounds with targets .* row 0: 0.8",
        ),
    ],
)
def test_columns_that_cannot_be_are_named(likelihood, columns, message):
    columns = {name: np.asarray(column) for name, column in columns.items()}
    with pytest.raises(InputError, match=message):
        rows.check(likelihood, np.asarray([0, 1, 2]), columns)


def test_columns_that_can_be_pass():
    y = np.asarray([0.0, 1.0, 2.0])
    nan = np.asarray([np.nan, 1.0, 2.0])
    bounds = {"lower": np.asarray([0.0, 1, 1]), "upper": np.asarray([np.inf, 1, 1])}
    rows.check(Binomial(), y, {"trials": y + 1})
    rows.check(Censored(Weibull()), y, bounds)
    noise = {"noise_sd": y}
    rows.check(Censored(Gaussian()), y, {**bounds, **noise})
    with pytest.raises(InputError, match="finite targets, of all rows; 1 of 3"):
        rows.check(Censored(Weibull()), nan, bounds)


def test_noise_without_probabilities_of_an_interval_cannot_be_censored():
    quantile = EXTENSIONS["Quantile"](jnp.asarray(0.3), 0.9)
    for noise, message in (
        (HeteroskedasticGaussian(), "HeteroskedasticGaussian, which has 2 latent"),
        (quantile, r"Quantile, which has no probabilities of an interval .* cdf\(f, y"),
        (Bernoulli(), "Bernoulli, which has no probabilities"),
        (NegativeBinomial(), "that can be differentiated: .*etainc gradient"),
        (Censored(Gaussian()), "noise is censored already"),
    ):
        with pytest.raises(InputError, match=message):
            Censored(noise)
    for zeros in (0.0, 1.0, np.nan):
        with pytest.raises(InputError, match=f"zeros is {zeros}; it should be between"):
            ZeroInflatedPoisson(zeros)
    with pytest.raises(InputError, match=r"zeros has shape \[2\]"):
        ZeroInflatedNegativeBinomial(1.0, [0.1, 0.2])


def test_a_model_with_the_columns_of_a_row_cannot_be_saved(tmp_path):
    own = Binomial().given(trials=jnp.asarray(9.0))
    with pytest.raises(
        InputError, match="model.likelihood.trials is a column of a row"
    ):
        gp.save(model_of(own), tmp_path / "model")
    gp.save(model_of(Binomial()), tmp_path / "model")
    loaded = gp.load(tmp_path / "model").likelihood
    assert loaded.trials is None and isinstance(loaded, Binomial)


def test_likelihoods_of_rows_are_found_by_vmap_and_leave_the_model_as_it_is():
    model, y = model_of(Censored(Gaussian(0.2))), X[:, 0]
    columns = {"lower": y - 1, "upper": y + 1, "noise_sd": y}
    batch = jax.tree.map(jnp.asarray, Batch(X, y, None, columns))
    grads = jax.grad(lambda model: elbo(model, batch))(model)
    assert jax.tree.structure(grads) == jax.tree.structure(model)
    assert np.isfinite(grads.likelihood.noise.log_variance)
    assert likelihoods.Censored(Gaussian()).columns == ("lower", "upper", "noise_sd")
