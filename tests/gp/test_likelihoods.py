"""Laws of likelihoods, of all kinds at once.

Compiling is what costs: all that is asserted of a likelihood is computed by few
programs.
"""

import functools
import math
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.scipy.special import logsumexp

from natgrad._quadrature import gauss_hermite, spread
from natgrad.errors import InputError
from natgrad.gp.likelihoods import (
    AbstractQuadrature,
    Bernoulli,
    Beta,
    FromDistribution,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)
from natgrad.gp.likelihoods._base import AbstractNumerical
from natgrad.gp.likelihoods._discrete import LearnedEdges
from natgrad.gp.likelihoods._multiclass import win_probability
from tests.gp.likelihoods import (
    EDGES,
    LIKELIHOODS,
    cases,
    definition,
    grid,
    is_monte_carlo,
    optional,
    rows,
)


CLOSED = ["Gaussian", "Gamma", "Poisson", "HeteroskedasticGaussian"]
LEVELS = [0.1, 0.8]
DRAWS = 10_000


@pytest.fixture(params=cases(LIKELIHOODS))
def name(request):
    return request.param


def total_density(log_probs, weights):
    """The sum over all targets, and what half of a grid's points would change in it."""
    density = jnp.exp(log_probs)
    if np.all(np.asarray(weights) == 1):  # a sum, and no integral
        return density @ weights, jnp.zeros(())
    total = density @ weights
    return total, 2 * jnp.abs(density[::2] @ (2 * weights[::2]) - total)


@functools.cache
def report(name: str) -> SimpleNamespace:
    """All that the laws speak of, at three rows."""
    likelihood = LIKELIHOODS[name].likelihood
    y, weights = map(jnp.asarray, grid(likelihood))

    @jax.jit
    @jax.vmap
    def at_row(mean, var, target):
        out = dict(
            expected=likelihood.expected_log_prob(mean, var, target),
            predictive=likelihood.log_predictive(mean, var, target),
            moments=optional(likelihood.moments, mean, var),
            conditional=optional(likelihood.moments, mean, 0 * var),
            probabilities=optional(likelihood.probabilities, mean, var),
        )
        if not is_monte_carlo(name):
            out["definition"] = definition(likelihood, mean, var, target)

        if likelihood.latents is None:
            nodes, log_weights = gauss_hermite(200)
            f = spread(mean, var, nodes)
            given = jax.vmap(lambda f: likelihood.log_prob(f, target))(f)
            out["by_nodes"] = logsumexp(given + jnp.asarray(log_weights))
        if isinstance(likelihood, AbstractNumerical):
            by_nodes = optional(AbstractNumerical.moments, likelihood, mean, var)
            out["moments_by_nodes"] = by_nodes

        total = jax.vmap(lambda y: likelihood.log_predictive(mean, var, y))(y)
        out["log_predictives"] = total
        given = jax.vmap(lambda y: likelihood.log_prob(mean, y))(y)
        out["totals"] = [total_density(x, weights) for x in (total, given)]

        quantile = lambda level: likelihood.quantile(mean, var, level)
        out["quantiles"] = optional(jax.vmap(quantile), jnp.asarray(LEVELS))
        if isinstance(likelihood, AbstractNumerical):
            cdf = lambda y: likelihood.predictive_cdf(mean, var, y)
            found = out["quantiles"]
            has_cdf = found is not None
            out["levels"] = jax.vmap(cdf)(found) if has_cdf else None
            out["levels_before"] = jax.vmap(cdf)(found - 1) if has_cdf else None

        keys = jax.random.split(jax.random.key(7), (2, DRAWS))
        noise = jax.random.normal(jax.random.key(8), (DRAWS, *mean.shape))
        f = mean[None] + jnp.sqrt(var)[None] * noise
        out["log_probs"] = jax.vmap(lambda f: likelihood.log_prob(f, target))(f)
        given = lambda key: likelihood.sample(key, mean)
        out["draws"] = optional(jax.vmap(likelihood.sample), keys[0], f)
        out["draws_given"] = optional(jax.vmap(given), keys[1])
        return out

    return SimpleNamespace(**at_row(*rows(name)))


def assert_within_errors(terms, expected, slack: float = 0.0) -> None:
    """Means of draws, along the last axis, agree with what they estimate."""
    terms, expected = np.asarray(terms), np.asarray(expected)
    error = terms.std(-1) / math.sqrt(terms.shape[-1])
    assert (np.abs(terms.mean(-1) - expected) <= 5 * error + slack).all()


def test_closed_forms_are_what_quadrature_gives(name):
    at, case = report(name), LIKELIHOODS[name]
    rtol = 1e-10 if case.is_smooth else case.nodes_error
    if name in CLOSED:
        assert case.likelihood.how == "closed form"
    if case.likelihood.how == "closed form":
        np.testing.assert_allclose(at.expected, at.definition, rtol=rtol)
    if hasattr(at, "by_nodes"):
        np.testing.assert_allclose(at.predictive, at.by_nodes, rtol=rtol)
    if getattr(at, "moments_by_nodes", None) is not None:
        np.testing.assert_allclose(at.moments, at.moments_by_nodes, rtol=rtol)


def test_few_nodes_are_nearly_as_good_as_many(name):
    at, case = report(name), LIKELIHOODS[name]
    if case.likelihood.how.startswith("Gauss"):
        assert case.likelihood.how == "Gauss–Hermite, 20 points"
        gap = np.abs(at.expected - at.definition) / (1 + np.abs(at.definition))
        assert gap.max() < case.nodes_error


def test_expectations_are_means_of_draws(name):
    at, case = report(name), LIKELIHOODS[name]
    # The library's own draws err too, and as many of ours would err more.
    few = np.asarray(at.log_probs).std(-1) * 5 / math.sqrt(512)
    rough = 0.0 if case.is_smooth else case.nodes_error
    slack = few if is_monte_carlo(name) else 1e-3 + rough * (1 + np.abs(at.expected))
    assert_within_errors(at.log_probs, at.expected, slack)
    # The logarithm is taken of the mean, so errors are compared before it.
    shift = np.asarray(at.predictive)[:, None]
    ratios = np.exp(np.asarray(at.log_probs) - shift)
    slack = 0.2 if is_monte_carlo(name) else 1e-6 + rough
    assert_within_errors(ratios, np.ones(3), slack)


def test_moments_are_those_of_samples(name):
    at = report(name)
    if at.moments is None or at.draws is None:
        return
    for draws, (mean, var) in (
        (at.draws, at.moments),
        (at.draws_given, at.conditional),
    ):
        slack = 0.05 if is_monte_carlo(name) else 1e-9
        assert_within_errors(draws, mean, slack)
        assert_within_errors((draws - mean[:, None]) ** 2, var, slack)


def test_densities_sum_to_one(name):
    (predictive, rough), (given, error) = report(name).totals
    # A beta density of small shape has mass that no number below one is near to.
    tolerance = 1e-2 if is_monte_carlo(name) or name == "Beta(probit)" else 1e-6
    assert (abs(given - 1) <= 1e-7 + error).all()
    # Errors of kinks may cancel in one row, and not in all.
    slack = 0.0 if LIKELIHOODS[name].is_smooth else rough.max()
    assert (abs(predictive - 1) <= tolerance + slack).all()


def test_probabilities_are_those_of_samples_and_of_the_predictive_density(name):
    at = report(name)
    if at.probabilities is None:
        return
    np.testing.assert_allclose(at.probabilities.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(at.log_predictives), at.probabilities, rtol=1e-12)
    classes = np.arange(at.probabilities.shape[-1])
    hits = np.asarray(at.draws)[:, None, :] == classes[None, :, None]
    slack = 5e-3 if is_monte_carlo(name) else 1e-3
    assert_within_errors(hits, at.probabilities, slack)


def test_quantiles_invert_the_distribution_and_are_those_of_samples(name):
    at = report(name)
    if at.quantiles is None or at.draws is None:
        return
    levels = np.broadcast_to(LEVELS, at.quantiles.shape)
    draws = np.asarray(at.draws)[:, None, :]
    quantiles = np.asarray(at.quantiles)[:, :, None]
    slack = 0.01 if is_monte_carlo(name) else 1e-9
    error = 5 * np.sqrt(levels * (1 - levels) / DRAWS) + slack
    # Targets may be discrete, and a quantile of draws is then a step.
    assert ((draws <= quantiles).mean(-1) >= levels - error).all()
    assert ((draws < quantiles).mean(-1) <= levels + error).all()
    if getattr(at, "levels", None) is None:
        return
    if LIKELIHOODS[name][0].support.is_whole:
        assert (at.levels >= levels).all()
        assert ((at.levels_before < levels) | (at.quantiles == 0)).all()
    else:
        inside = np.asarray(at.quantiles) > 1e-300
        np.testing.assert_allclose(at.levels[inside], levels[inside], rtol=1e-9)


def test_densities_are_those_of_scipy():
    f = np.asarray([-30.0, -3.0, -0.2, 0.0, 1.5, 4.0, 30.0])
    m = scipy.special.expit(f)
    real, positive, unit, count = f[::-1] + 0.7, np.exp(f[::-1] / 9), 0.03 + 0.9 * m, 3
    expected = [
        (Gaussian(0.3), real, scipy.stats.norm.logpdf(real, f, math.sqrt(0.3))),
        (StudentT(0.6, 4.0), real, scipy.stats.t.logpdf(real, 4, f, 0.6)),
        (
            Gamma(2.5),
            positive,
            scipy.stats.gamma.logpdf(positive, 2.5, scale=np.exp(f) / 2.5),
        ),
        (
            Beta(3.0),
            unit,
            scipy.stats.beta.logpdf(unit, 3 * m, 3 * scipy.special.expit(-f)),
        ),
        (Bernoulli(), 0, scipy.stats.norm.logcdf(-f)),
        (Bernoulli("logit"), 1, -np.logaddexp(0, -f)),
        (Poisson(), count, scipy.stats.poisson.logpmf(count, np.exp(f))),
        (
            NegativeBinomial(0.4),
            count,
            # SciPy takes the probability of success, and loses that of failure.
            math.lgamma(count + 2.5)
            - math.lgamma(2.5)
            - math.lgamma(count + 1)
            - 2.5 * np.logaddexp(0, f + np.log(0.4))
            - count * np.logaddexp(0, -f - np.log(0.4)),
        ),
    ]
    for likelihood, y, log_prob in expected:
        y = jnp.asarray(np.broadcast_to(y, f.shape))
        ours = jax.vmap(likelihood.log_prob)(jnp.asarray(f), y)
        np.testing.assert_allclose(ours, log_prob, rtol=1e-11, atol=1e-12)


def test_a_negative_binomial_of_little_dispersion_is_a_poisson():
    f, y = jnp.asarray([-3.0, 0.0, 2.0, 6.0]), jnp.asarray([0.0, 5.0, 9.0, 400.0])
    poisson = jax.vmap(Poisson().log_prob)(f, y)
    for dispersion in (1e-8, 1e-12):
        ours = jax.vmap(NegativeBinomial(dispersion).log_prob)(f, y)
        np.testing.assert_allclose(ours, poisson, rtol=1e-12 + 1e4 * dispersion)
    size = jnp.asarray([29.9, 30.1])  # on both sides of where the formula changes
    for dispersion in 1 / size:
        ours = jax.vmap(NegativeBinomial(dispersion).log_prob)(f, y)
        mean = np.exp(f)
        chance = 1 / (1 + mean * dispersion)
        theirs = scipy.stats.nbinom.logpmf(y, 1 / dispersion, chance)
        np.testing.assert_allclose(ours, theirs, rtol=1e-11)


def test_ordinal_probabilities_keep_their_digits_in_both_tails():
    likelihood, (low, high) = Ordinal(EDGES, 0.7), EDGES[:2]
    mpmath.mp.dps = 800
    for f in (-40.0, -8.0, -0.4, 0.0, 8.0, 40.0):
        cdf = lambda x, f=f: mpmath.ncdf((mpmath.mpf(x) - f) / mpmath.mpf(0.7))
        exact = float(mpmath.log(cdf(high) - cdf(low)))
        ours = likelihood.log_prob(jnp.asarray(f), jnp.asarray(1))
        np.testing.assert_allclose(ours, exact, rtol=1e-12)


@pytest.mark.parametrize("classes", [3, 10])
def test_the_probability_to_win_is_that_of_draws(classes):
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=classes), rng.uniform(0.3, 2, classes)
    draws = mean + np.sqrt(var) * rng.normal(size=(400_000, classes))
    share = np.bincount(draws.argmax(1), minlength=classes) / len(draws)
    ours = [
        win_probability(50, jnp.asarray(mean), jnp.asarray(var), jnp.asarray(y))
        for y in range(classes)
    ]
    error = np.sqrt(share * (1 - share) / len(draws))
    assert (np.abs(np.asarray(ours) - share) < 5 * error + 1e-5).all()


def test_distributions_of_numpyro_give_the_same_numbers():
    pairs = {
        "StudentT": lambda f: dist.StudentT(4.0, f, 0.6),
        "Beta": lambda f: dist.Beta(8 * jax.nn.sigmoid(f), 8 * jax.nn.sigmoid(-f)),
        "Bernoulli(logit)": lambda f: dist.Bernoulli(logits=f),
        "Poisson": lambda f: dist.Poisson(jnp.exp(f)),
        "NegativeBinomial": lambda f: dist.NegativeBinomialLogits(
            2.5, f + math.log(0.4)
        ),
    }
    with jax.numpy_dtype_promotion("standard"):  # NumPyro promotes
        for name, link in pairs.items():
            ours, (mean, var, y) = LIKELIHOODS[name][0], rows(name)
            theirs = FromDistribution(link)
            both = [
                jax.jit(jax.vmap(lambda m, v, y, l=l: definition(l, m, v, y)))(
                    mean, var, y
                )
                for l in (ours, theirs)
            ]
            np.testing.assert_allclose(*both, rtol=1e-10)
            both = [jax.jit(jax.vmap(l.moments))(mean, var) for l in (ours, theirs)]
            np.testing.assert_allclose(*both, rtol=1e-8)
    at, other = report("Gamma"), report("FromDistribution")
    np.testing.assert_allclose(at.expected, other.definition, rtol=1e-10)
    np.testing.assert_allclose(at.predictive, other.predictive, rtol=1e-10)
    np.testing.assert_allclose(at.moments, other.moments, rtol=1e-10)
    np.testing.assert_allclose(at.quantiles, other.quantiles, rtol=1e-10)


def test_a_likelihood_is_its_density_and_a_link_may_be_learned():
    class Laplace(AbstractQuadrature):
        def log_prob(self, f, y):
            return -jnp.abs(y - f) - math.log(2)

    zero, one = jnp.zeros(()), jnp.ones(())
    assert Laplace(nodes=30).how == "Gauss–Hermite, 30 points"
    assert jnp.isfinite(Laplace().log_predictive(zero, one, one))
    with pytest.raises(NotImplementedError, match="Laplace has no quantiles; .* cdf"):
        Laplace().quantile(zero, one, one / 2)
    with pytest.raises(NotImplementedError, match="Laplace has no moments"):
        Laplace().moments(zero, one)

    link = jax.tree_util.Partial(
        lambda log_scale, f: dist.Normal(f, jnp.exp(log_scale))
    )
    learned = FromDistribution(jax.tree_util.Partial(link, zero))
    slope = jax.grad(lambda l: l.expected_log_prob(zero, one, one))(learned)
    np.testing.assert_allclose(jax.tree.leaves(slope), [1.0], rtol=1e-12)


def test_targets_and_parameters_that_cannot_be_are_named():
    nan = math.nan
    for likelihood, bad, message in (
        (Gaussian(), [0.0, nan, 1.0], "finite targets; 1 of 3 .* row 1: nan"),
        (Gamma(), [1.0, 0.0, -1.0], "positive targets; 2 of 3 .* row 1: 0.0"),
        (Beta(), [0.5, 1.0, nan], "between 0 and 1; 2 of 3 .* row 1: 1.0"),
        (Bernoulli(), [0.0, 1.0, -1.0], "labels 0 to 1; 1 of 3 .* row 2: -1.0"),
        (Ordinal(EDGES), [0, 3, 4], "labels 0 to 3; 1 of 3 .* row 2: 4"),
        (Poisson(), [0.5, 1.0, -2.0], "counts 0, 1, 2, ...; 2 of 3 .* row 0: 0.5"),
        (NegativeBinomial(), [math.inf], "counts .* 1 of 1 .* row 0: inf"),
        (RobustMax(3), [0, 1, 3], "labels 0 to 2; 1 of 3 .* row 2: 3"),
        (Softmax(3), [nan, 1.0], "labels 0 to 2; 1 of 2 .* row 0: nan"),
    ):
        with pytest.raises(InputError, match=message):
            likelihood.check(np.asarray(bad))
    for name, (likelihood, y, *_) in LIKELIHOODS.items():
        assert likelihood.check(np.asarray(y)) is None, name
    for make, message in (
        (lambda: Gaussian(0.0), "variance is 0.0; it should be positive"),
        (lambda: StudentT(1.0, -1.0), "dof is -1.0"),
        (lambda: StudentT(1.0, 1e9), "at most 1e8"),
        (lambda: Bernoulli("cloglog"), "link is 'cloglog'; it should be 'probit'"),
        (lambda: Beta(1.0, "cloglog"), "link is 'cloglog'"),
        (lambda: FromDistribution(dist.Normal, support="ring"), "support is 'ring'"),
        (lambda: Ordinal([1.0, 0.0]), "edges are .* increasing"),
        (lambda: Ordinal([1.0, np.inf]), "edges are .* finite"),
        (lambda: RobustMax(1), "classes is 1; it should be 2 or more"),
        (lambda: RobustMax(3, 0.0), "error is 0.0"),
        (lambda: Softmax(1), "classes is 1"),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_leaves_are_the_free_parameters_and_none_is_weakly_typed():
    for name, (likelihood, *_) in LIKELIHOODS.items():
        for leaf in jax.tree.leaves(likelihood):
            assert eqx.is_inexact_array(leaf) and not leaf.weak_type, name
    assert Gaussian(np.float32(2.0)).log_variance.dtype == np.float32
    assert len(jax.tree.leaves(Ordinal(EDGES))) == 1
    edges = LearnedEdges(EDGES)
    np.testing.assert_allclose(edges.values(), EDGES, rtol=1e-14)
