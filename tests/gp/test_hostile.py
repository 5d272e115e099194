"""No NaN where inputs repeat, inducing inputs coincide and sizes span many decades.

Hypothesis draws what makes a model hard. Each family of targets is one program, run on
batches of cases of one shape: the bound, its gradient and predictions, at q with the
mean of the prior and 1 to 1e-8 of its deviation, and after one guarded natural step.
All of it must be finite, except

- moments of a target that are larger than any number: with an exponential link they
  grow as exp(2 (mean + var)), and are then infinite, but not NaN;
- the bound where E[exp(f)] is larger than any number: the prior variance of these
  families is drawn up to 100, or 10 in float32, and beyond it a law of its own holds;
  of a Weibull it is E[(y/exp(f))^k], so that k is drawn from 0.6 to 1.6;
- gradients where the bound is beyond the root of the largest number (1.8e19 in float32;
  targets are up to 1e13): products of two such numbers are infinite.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import Phase, given, settings, strategies as st
from jax import lax

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import FitError, NumericalWarning
from natgrad.families.gaussian import Moments
from natgrad.gp import (
    SparseGP,
    _prediction as prediction,
    _projection as projection,
    elbo,
    kernels,
    likelihoods,
)
from natgrad.gp.likelihoods._rows import log_predictives
from natgrad.linalg import Sqrt
from tests.variants import variants


ROWS, INDUCING, CASES, EXAMPLES = 12, 6, 20, 5
TX: Any = natgrad.split(natgrad.guarded_ngd(), None)


class Family(NamedTuple):
    """A likelihood of a parameter, the kind of its targets, and a kernel."""

    likelihood: Callable[[Any], Any]
    target: str
    kernel: Callable[[Any, Any], Any]
    is_exponential: bool = False


def with_one(kind: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A kernel whose third parameter is 1."""
    return lambda lengthscale, variance: kind(
        lengthscale, variance, jnp.ones_like(variance)
    )


def rough_and_linear(lengthscale: Any, variance: Any) -> Any:
    return kernels.Matern12(lengthscale, variance) + kernels.Linear(variance)


FAMILIES = {
    "Gaussian": Family(likelihoods.Gaussian, "real", kernels.RBF),
    "StudentT": Family(likelihoods.StudentT, "real", kernels.Matern12),
    "Heteroskedastic": Family(
        lambda _: likelihoods.HeteroskedasticGaussian(), "real", kernels.Matern32, True
    ),
    "Gamma": Family(likelihoods.Gamma, "positive", kernels.Matern52, True),
    "Weibull": Family(
        lambda size: likelihoods.Weibull(size**0.1), "positive", kernels.RBF, True
    ),
    "Censored(Gaussian)": Family(
        lambda variance: likelihoods.Censored(likelihoods.Gaussian(variance)),
        "bounded",
        kernels.RBF,
    ),
    "Censored(StudentT)": Family(
        lambda scale: likelihoods.Censored(likelihoods.StudentT(scale)),
        "bounded",
        kernels.Matern12,
    ),
    "Censored(Weibull)": Family(
        lambda size: likelihoods.Censored(likelihoods.Weibull(size**0.1)),
        "bounded times",
        kernels.Matern52,
        True,
    ),
    "Censored(Gamma)": Family(
        lambda shape: likelihoods.Censored(likelihoods.Gamma(shape)),
        "bounded times",
        kernels.Matern52,
        True,
    ),
    "Beta": Family(likelihoods.Beta, "unit", with_one(kernels.RationalQuadratic)),
    "Bernoulli": Family(lambda _: likelihoods.Bernoulli(), "two", rough_and_linear),
    "Bernoulli(logit)": Family(
        lambda _: likelihoods.Bernoulli("logit"), "two", with_one(kernels.Periodic)
    ),
    "Ordinal": Family(
        lambda scale: likelihoods.Ordinal([-1.0, 1.0], scale), "three", kernels.RBF
    ),
    "Poisson": Family(lambda _: likelihoods.Poisson(), "count", kernels.Matern32, True),
    "NegativeBinomial": Family(
        likelihoods.NegativeBinomial, "count", kernels.Matern52, True
    ),
    "ZeroInflatedPoisson": Family(
        lambda odds: likelihoods.ZeroInflatedPoisson(odds / (1 + odds)),
        "count",
        kernels.Matern32,
        True,
    ),
    "ZeroInflatedNegativeBinomial": Family(
        lambda size: likelihoods.ZeroInflatedNegativeBinomial(size, size / (1 + size)),
        "count",
        kernels.Matern52,
        True,
    ),
    "Binomial": Family(lambda _: likelihoods.Binomial(), "successes", rough_and_linear),
    "RobustMax": Family(lambda _: likelihoods.RobustMax(3), "three", kernels.RBF),
    "Softmax": Family(lambda _: likelihoods.Softmax(3), "three", kernels.Matern12),
}


class Case(NamedTuple):
    """What makes a model hard; sizes are powers of ten."""

    seed: int
    lengthscale: float
    variance: float
    parameter: float
    deviation: float
    target: int
    has_outliers: bool
    has_duplicates: bool
    inducing: str


cases = st.builds(
    Case,
    st.integers(0, 2**32 - 1),
    st.floats(-3, 3),
    st.floats(-6, 6),
    st.floats(-2, 2),
    st.floats(-8, 0),
    st.sampled_from([-8, 0, 8]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["at rows", "in pairs", "all at one"]),
)


class Data(NamedTuple):
    x: Any
    y: Any
    columns: Any
    inducing: Any
    lengthscale: Any
    variance: Any
    parameter: Any
    deviation: Any


def data_of(case: Case, family: Family, dtype: Any) -> Data:
    rng = np.random.default_rng(case.seed)
    x = rng.standard_normal((ROWS, 2))
    z = x[:INDUCING].copy()
    if case.inducing == "in pairs":
        z[::2] = z[1::2]
    elif case.inducing == "all at one":
        z[:] = z[0]
    if case.has_duplicates:
        x[ROWS // 2 :] = x[: ROWS // 2]
    most = (2 if dtype == np.float64 else 1) if family.is_exponential else 6
    y, columns = targets(case, family.target, rng, dtype)
    sizes = case.lengthscale, min(case.variance, most), case.parameter, case.deviation
    both = x, y, columns, z, *(10.0**size for size in sizes)
    return jax.tree.map(lambda value: np.asarray(value, dtype), Data(*both))


def targets(case: Case, kind: str, rng: np.random.Generator, dtype: Any) -> Any:
    """Targets, and the columns that come with them."""
    if kind == "successes":
        trials = np.floor(1 + numbers(case, "positive", rng, dtype))
        return np.floor(rng.uniform(0, 1, ROWS) * trials), {"trials": trials}
    if kind.startswith("bounded"):
        return bounded(case, "positive" if "times" in kind else "real", rng, dtype)
    return numbers(case, kind, rng, dtype), {}


def numbers(case: Case, kind: str, rng: np.random.Generator, dtype: Any) -> Any:
    normal = rng.standard_normal(ROWS)
    outliers = np.zeros(ROWS)
    if case.has_outliers:
        outliers[:2] = 1e5, -1e5
    size = 10.0**case.target
    real, positive = size * (normal + outliers), size * (np.exp(normal) + abs(outliers))
    if kind == "unit":
        # What is scaled is the distance from an end; the outermost numbers are two.
        share = min(size, 1 / size) / (1 + np.exp(normal))
        share[:2] = np.where(outliers[:2] == 0, share[:2], 0)
        ends = np.finfo(dtype).tiny, 1 - np.finfo(dtype).epsneg
        return np.clip((1 - share if size > 1 else share).astype(dtype), *ends)
    labels = {"two": rng.integers(0, 2, ROWS), "three": rng.integers(0, 3, ROWS)}
    others = {"real": real, "positive": positive, "count": np.floor(positive)}
    return (labels | others)[kind]


def bounded(case: Case, kind: str, rng: np.random.Generator, dtype: Any) -> Any:
    """Targets of which some are above or below a bound, between two, or anywhere."""
    y = numbers(case, kind, rng, dtype)
    # Bounds that rounding makes equal would say that y was observed.
    width = np.abs(y) * 10.0 ** rng.uniform(-5, 3, ROWS)
    how = np.arange(ROWS) % 5
    lower = np.select([how == 0, how < 3], [y, y], -np.inf)
    upper = np.select([how == 0, how == 1, how < 4], [y, y + width, y], np.inf)
    upper[how == 2] = np.inf
    return y, {"lower": lower, "upper": upper}


class Report(NamedTuple):
    """All that must be finite, and the jitter beside the matrix it was added to."""

    bound: Any
    gradient: Any
    latent: Any
    moments: Any
    is_beyond: Any
    log_density: Any
    jitter: Any
    prior: Any


@functools.cache
def program(name: str) -> Callable[[Data], Report]:
    """The reports of a batch of cases, [cases, before and after a step]."""
    family = FAMILIES[name]

    def report(data: Data) -> Report:
        kernel = family.kernel(data.lengthscale, data.variance)
        likelihood = family.likelihood(data.parameter)
        batch = Batch(data.x, data.y, None, data.columns)
        loss = lambda model: -elbo(model, batch)

        def step(model: Any, _: Any) -> tuple[Any, Report]:
            value, grads = jax.value_and_grad(loss)(model)
            updates, _ = TX.update(
                grads, TX.init(model), model, value=value, grad=grads, value_fn=loss
            )
            predictor = prediction.predictor(model)
            mean, var = (jnp.moveaxis(a, -1, 0) for a in predictor.latent_at(data.x))
            moments = ()
            if not isinstance(likelihood, likelihoods.RobustMax | likelihoods.Softmax):
                moments = jax.vmap(likelihood.moments)(mean, var)
            log_size = 2 * (mean + var).reshape((ROWS, -1)).max(1) + 10
            is_beyond = log_size > math.log(jnp.finfo(data.x.dtype).max)
            latent = [jnp.moveaxis(a, 0, -1) for a in (mean, var)]
            log_density = log_predictives(likelihood, *latent, batch)
            return optax.apply_updates(model, updates), Report(
                value,
                grads,
                (mean, var),
                moments,
                is_beyond & family.is_exponential,
                log_density,
                predictor.jitter,
                model.kernel(model.inducing, model.inducing),
            )

        model = SparseGP(kernel, likelihood, data.inducing)
        root = lambda model: model.posterior.cov.root
        model = eqx.tree_at(root, model, data.deviation * root(model))
        return lax.scan(step, model, length=2)[1]

    return jax.jit(lambda batch: lax.map(report, batch))


def is_factor(matrix: np.ndarray, jitter: float) -> bool:
    share = matrix.dtype.type(jitter * np.trace(matrix) / len(matrix))
    try:
        np.linalg.cholesky(matrix + share * np.eye(len(matrix), dtype=matrix.dtype))
    except np.linalg.LinAlgError:
        return False
    return True


# In 64 bits more is finite; the others share their maps with these.
@pytest.mark.parametrize("dtype", variants([np.float32, np.float64], [np.float32]))
@pytest.mark.parametrize(
    "name", variants(FAMILIES, ["Gaussian", "StudentT", "Poisson", "Softmax"])
)
def test_bound_gradient_and_predictions_are_finite(name, dtype):
    family = FAMILIES[name]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    @given(st.lists(cases, min_size=CASES, max_size=CASES))
    def law(drawn):
        every = [data_of(case, family, dtype) for case in drawn]
        batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
        report: Any = jax.tree.map(np.asarray, program(name)(batch))
        is_huge = abs(report.bound) > np.sqrt(np.finfo(dtype).max)
        for part in ("bound", "gradient", "latent", "log_density"):
            for leaf in jax.tree.leaves(getattr(report, part)):
                good = np.isfinite(leaf)
                if part == "gradient":
                    good |= np.expand_dims(is_huge, tuple(range(2, leaf.ndim)))
                bad = np.argwhere(~good)
                assert not bad.size, (part, bad[0], leaf[*bad[0]], drawn[bad[0][0]])
                assert leaf.dtype == dtype
        for leaf in jax.tree.leaves(report.moments):
            good = np.where(report.is_beyond, ~np.isnan(leaf), np.isfinite(leaf))
            bad = np.argwhere(~good)
            assert not bad.size, ("moments", bad[0], drawn[bad[0][0]])
        least = projection.least_jitter(jnp.zeros((INDUCING, INDUCING), dtype))
        for jitter, prior in zip(report.jitter[:, 0], report.prior[:, 0], strict=True):
            assert jitter < 1.01 * least or not is_factor(prior, least)

    law()


def test_rounding_of_a_huge_loss_excuses_no_step():
    # At the prior the loss is 4e32, and its rounding would hide any step at all.
    case = Case(18058, -0.354, 4.64, 1.913, -0.8986, 8, False, False, "at rows")
    data = data_of(case, FAMILIES["Gamma"], np.float64)
    bound = program("Gamma")(jax.tree.map(lambda leaf: jnp.stack([leaf]), data)).bound
    assert bound[0, 0] > 1e32 and bound[0, 1] < bound[0, 0]


def test_a_bound_beyond_the_largest_number_is_infinite_and_not_stepped_on():
    data = data_of(
        Case(0, 0.0, 6.0, 0.0, 0.0, 0, False, False, "at rows"),
        FAMILIES["Gaussian"],
        np.float64,
    )
    kernel = kernels.RBF(data.lengthscale, data.variance)
    for likelihood in (
        likelihoods.Poisson(),
        likelihoods.Gamma(),
        likelihoods.Weibull(),
        likelihoods.HeteroskedasticGaussian(),
    ):
        model = SparseGP(kernel, likelihood, data.inducing)
        batch = Batch(jnp.asarray(data.x), jnp.abs(jnp.asarray(data.y)))
        loss = lambda model, batch=batch: -elbo(model, batch)
        value, grads = jax.jit(jax.value_and_grad(loss))(model)
        assert value == np.inf
        updates, state = TX.update(
            grads, TX.init(model), model, value=value, grad=grads, value_fn=loss
        )
        assert state.distributions.refused == 1
        assert not any(leaf.any() for leaf in jax.tree.leaves(updates))


# Jitter


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_jitter_is_the_least_power_of_ten_that_gives_a_factor(dtype):
    rng = np.random.default_rng(0)
    least = projection.least_jitter(jnp.zeros((INDUCING, INDUCING), dtype))
    factorized = jax.jit(projection.factorized)
    raised = []
    for power in (-math.inf, *np.arange(-8, 1) + 0.5):
        basis = np.linalg.qr(rng.standard_normal((INDUCING, INDUCING)))[0]
        values = rng.uniform(0.5, 1.5, INDUCING)
        values[0] = -(10.0**power)
        matrix = (basis * values) @ basis.T
        matrix = ((matrix + matrix.T) / 2).astype(dtype)
        factor = factorized(jnp.asarray(matrix))
        shares = [least * 10.0**k for k in range(projection.RAISES + 1)]
        enough = [share for share in shares if is_factor(matrix, share)]
        is_finite = np.isfinite(factor.inverse).all()
        assert is_finite == bool(enough)
        assert np.isclose(factor.jitter, (enough or shares[-1:])[0], rtol=1e-5)
        raised.append(float(factor.jitter) > 2 * least)
    assert any(raised) and not all(raised)


class Dented(kernels.AbstractKernel):
    """1 for any two points, and a little less for a point and itself."""

    depth: float = eqx.field(static=True)

    def __call__(self, x, z):
        same = (x[:, None, :] == z[None, :, :]).all(-1)
        return jnp.where(same, 1 - self.depth, 1.0)


def test_large_jitter_is_reported_and_warned_of():
    z = np.random.default_rng(0).standard_normal((INDUCING, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = gp.predictor(SparseGP(Dented(1e-9), likelihoods.Gaussian(), z)).jitter
    assert np.isclose(small, 1e-8)
    with pytest.warns(NumericalWarning, match="1e-04 of its diagonal was added"):
        large = gp.predictor(SparseGP(Dented(3e-5), likelihoods.Gaussian(), z)).jitter
    assert np.isclose(large, 1e-4)


def test_what_cannot_be_solved_raises_an_error_that_says_what_to_change():
    z = np.random.default_rng(0).standard_normal((INDUCING, 2))
    likelihood = likelihoods.Gaussian()
    nowhere = Moments(jnp.full(INDUCING, jnp.nan), Sqrt(jnp.eye(INDUCING)))
    unbounded = Moments(
        jnp.zeros(INDUCING), Sqrt(jnp.full((INDUCING, INDUCING), jnp.inf))
    )
    for model in (
        SparseGP(Dented(0.5), likelihood, z),
        SparseGP(kernels.Linear(), likelihood, np.zeros_like(z)),
        SparseGP(kernels.RBF(), likelihood, np.full_like(z, np.nan)),
        SparseGP(kernels.RBF(), likelihood, z, nowhere),
        SparseGP(kernels.RBF(), likelihood, z, unbounded),
    ):
        with pytest.raises(FitError, match="fewer inducing inputs or ones further"):
            gp.predictor(model)
