"""The same numbers as GPflow, GPyTorch and scikit-learn, from stored answers."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.special import logsumexp

import natgrad
from natgrad import gp
from natgrad._quadrature import gauss_hermite, spread
from natgrad.data import Batch
from natgrad.families.gaussian import Moments
from natgrad.gp import SparseGP, elbo, kernels, likelihoods, means
from natgrad.gp._sparse import Projection, marginals, projected_elbo
from natgrad.gp.likelihoods import _base as base, _multiclass as multiclass
from natgrad.gp.likelihoods._rows import by_row
from natgrad.linalg import Sqrt
from tests.variants import variants


REFERENCES = Path(__file__).parents[1] / "references"
SETTINGS = json.loads((REFERENCES / "peers.json").read_text())["settings"]
PROBLEM = dict(np.load(REFERENCES / "problem.npz"))
GPFLOW = dict(np.load(REFERENCES / "gpflow.npz"))
GPYTORCH = dict(np.load(REFERENCES / "gpytorch.npz"))
SKLEARN = dict(np.load(REFERENCES / "sklearn.npz"))

# All are shares of the largest entry of an array.
SAME = 1e-10
"""Of GPflow, whose jitter and whose rule of 20 points are ours."""

ROUNDED = 1e-6
"""Of GPyTorch, which adds jitter to variances, and scikit-learn, which has none."""

POINTS = 20
SPACES = {"whitened": True, "plain": False}
KERNELS = {
    "matern52": kernels.Matern52(**SETTINGS["kernels"]["matern52"]),
    "rbf": kernels.RBF(**SETTINGS["kernels"]["rbf"]),
}


def likelihood_of(name: str) -> likelihoods.AbstractLikelihood:
    settings = SETTINGS["likelihoods"][name]
    return {
        "gaussian": lambda variance: likelihoods.Gaussian(variance),
        "varying_noise": lambda variance: likelihoods.Gaussian(variance),
        "student_t": lambda scale, df: likelihoods.StudentT(scale, df),
        "bernoulli_probit": lambda: likelihoods.Bernoulli("probit"),
        "bernoulli_logit": lambda: likelihoods.Bernoulli("logit"),
        "poisson": likelihoods.Poisson,
        "exponential": lambda: likelihoods.Gamma(1.0),
        "gamma": lambda shape: likelihoods.Gamma(shape),
        "beta": lambda scale: likelihoods.Beta(scale),
        "heteroskedastic": likelihoods.HeteroskedasticGaussian,
        "robust_max": lambda classes, epsilon: likelihoods.RobustMax(classes, epsilon),
    }[name](**settings)


def shift_of(name: str) -> float:
    """What our latent function is above theirs, as exp(f) is our mean of a gamma."""
    return float(np.log(SETTINGS["likelihoods"]["gamma"]["shape"])) * (name == "gamma")


def model_of(name: str, kernel: str, space: str) -> SparseGP:
    likelihood = likelihood_of(name)
    first = 0 if likelihood.latents is None else slice(likelihood.latents)
    q = Moments(
        jnp.asarray(PROBLEM["mean"][first]), Sqrt(jnp.asarray(PROBLEM["factor"][first]))
    )
    z, mean = PROBLEM["z"], means.Constant(shift_of(name))
    return SparseGP(KERNELS[kernel], likelihood, z, q, mean, SPACES[space])


def data_of(name: str, part: str = "") -> Batch:
    columns = {}
    if name == "varying_noise":
        columns = {"noise_sd": PROBLEM[f"noise_sd{part}"]}
    batch = Batch(PROBLEM[f"x{part}"], PROBLEM[f"y{part}.{name}"], None, columns)
    return jax.tree.map(jnp.asarray, batch)


def new_rows_of(name: str) -> Batch:
    return data_of(name, "_test")


def part(rows: Projection, which: slice) -> Projection:
    features, rest, mean, inverse = rows
    return Projection(features[..., which], rest[..., which], mean[..., which], inverse)


@jax.jit
def answers(models: list[SparseGP], data: Batch, new: Batch, size: Any) -> dict:
    """All that is stored of a peer, for models that differ by their kernel alone."""
    # The inputs enter here, all at once; the rest is the same program for all kernels.
    x = jnp.concatenate([data.x, new.x])
    rows = [model.project(x) for model in models]
    rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    one = models[0]
    return jax.vmap(lambda rows: projected_answers(one, rows, data, new, size))(rows)


def projected_answers(model, rows, data, new, size) -> dict:
    num_data, some = len(data.x), SETTINGS["batch"]
    known = part(rows, slice(num_data))
    loss = lambda model: -projected_elbo(model, known, data)
    tx = natgrad.split(natgrad.mirror_descent(size), None)

    def step(carry, _):
        model, state = carry
        value, grads = jax.value_and_grad(loss)(model)
        updates, state = tx.update(grads, state, model)
        return (optax.apply_updates(model, updates), state), -value

    start = model, tx.init(model)
    (last, _), bounds = jax.lax.scan(step, start, length=SETTINGS["steps"])
    last: Any
    batch = jax.tree.map(lambda column: column[:some], data)
    mean, var = marginals(model.posterior, part(rows, slice(num_data, None)))
    return {
        "elbo": bounds[0],
        "elbo_batch": projected_elbo(model, part(rows, slice(some)), batch, num_data),
        "latent_mean": mean,
        "latent_var": var,
        "trace": jnp.append(bounds[1:], -loss(last)),
        "final_mean": last.posterior.location(),
        "final_cov": last.posterior.covariance(),
        **predictions(model.likelihood, mean, var, new),
    }


def predictions(likelihood, mean, var, batch) -> dict:
    _, y, _, columns = batch
    at_rows = lambda method, *extra: by_row(likelihood, method, -1)(
        mean, var, columns, *extra
    )
    kind = type(likelihood)
    if isinstance(likelihood, likelihoods.RobustMax):
        p = at_rows(kind.probabilities)
        moments = p, p * (1 - p)
    else:
        moments = at_rows(kind.moments)
    is_pair = isinstance(likelihood, likelihoods.HeteroskedasticGaussian)
    density = at_rows(by_product_rule if is_pair else kind.log_predictive, y)
    return {"y_mean": moments[0], "y_var": moments[1], "log_density": density}


def by_product_rule(likelihood, mean, var, y):
    """log E[p(y | f)] over two latents, with the nodes of each crossed."""
    nodes, log_weights = gauss_hermite(POINTS)
    points = np.stack(np.meshgrid(nodes, nodes), -1).reshape((-1, 2))
    log_weights = np.add.outer(log_weights, log_weights).ravel()
    log_prob = jax.vmap(lambda f: likelihood.log_prob(f, y))
    return logsumexp(log_prob(spread(mean, var, points)) + log_weights)


@functools.cache
def answers_of(name: str, space: str) -> dict[str, dict[str, np.ndarray]]:
    """Our answers for each kernel, in the form of the stored ones."""
    size = jnp.asarray(SETTINGS["step_sizes"][name])
    models = [model_of(name, kernel, space) for kernel in KERNELS]
    with pytest.MonkeyPatch.context() as patch:
        for module in (base, multiclass):
            patch.setattr(module, "PREDICTIVE_NODES", POINTS)
        found = answers(models, data_of(name), new_rows_of(name), size)
    found = {quantity: np.asarray(value) for quantity, value in found.items()}
    rows, columns = np.tril_indices(len(PROBLEM["z"]))
    found["final_cov"] = found["final_cov"][..., rows, columns]
    found["latent_mean"] = found["latent_mean"] - shift_of(name)
    return {
        kernel: {quantity: value[i] for quantity, value in found.items()}
        for i, kernel in enumerate(KERNELS)
    }


def stored(peer: dict, case: str) -> dict[str, np.ndarray]:
    """A peer's answers for one case."""
    return {
        key.removeprefix(f"{case}."): value
        for key, value in peer.items()
        if key.startswith(f"{case}.")
    }


def with_one_winner(theirs: dict, y: np.ndarray) -> dict:
    """GPflow's robust maximum with probabilities of winning that sum to one, as ours.

    By its rule they sum to one within 1e-7.
    """
    settings = SETTINGS["likelihoods"]["robust_max"]
    miss = settings["epsilon"] / (settings["classes"] - 1)
    gain = 1 - settings["epsilon"] - miss
    wins = (theirs["y_mean"] - miss) / gain
    p = miss + gain * wins / wins.sum(-1, keepdims=True)
    log_density = np.log(p[np.arange(len(y)), y.astype(int)])
    return theirs | {"y_mean": p, "y_var": p * (1 - p), "log_density": log_density}


def assert_same(ours, theirs, tolerance: float, what: str) -> None:
    """That two arrays differ by at most a share of the largest entry."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert difference <= tolerance, f"{what} differs by {difference:.1e}"


# The answers at q, and of a path of natural steps from it


# One with a closed form, and one by quadrature.
OFTEN = ("gaussian", "student_t")


@pytest.mark.parametrize("name", variants(SETTINGS["likelihoods"], OFTEN))
def test_bounds_steps_and_predictions_are_those_of_gpflow(name):
    for space in SPACES:
        for kernel, ours in answers_of(name, space).items():
            theirs = stored(GPFLOW, f"{name}.{kernel}.{space}")
            if name == "robust_max":
                theirs = with_one_winner(theirs, PROBLEM[f"y_test.{name}"])
            assert set(ours) == set(theirs)
            for quantity, value in ours.items():
                what = f"{quantity} with {kernel}, {space},"
                assert_same(value, theirs[quantity], SAME, what)


@pytest.mark.parametrize(
    "name", variants(["gaussian", "student_t", "bernoulli_probit"], ["student_t"])
)
def test_bounds_and_steps_are_those_of_gpytorch(name):
    for kernel, ours in answers_of(name, "whitened").items():
        theirs = stored(GPYTORCH, f"{name}.{kernel}.whitened")
        assert len(theirs) == 7
        for quantity, value in theirs.items():
            assert_same(ours[quantity], value, ROUNDED, f"{quantity} with {kernel}")


# A rule of 20 points is that near to a log density; there is none where it is far off.
ACCURACY = {
    "gaussian": SAME,
    "varying_noise": SAME,
    "bernoulli_probit": SAME,
    "bernoulli_logit": 1e-6,
    "robust_max": 1e-6,
    "poisson": 1e-3,
    "exponential": 1e-3,
    "beta": 1e-3,
    "gamma": 1e-2,
}


@pytest.mark.parametrize("name", variants(SETTINGS["likelihoods"], OFTEN))
def test_a_predictor_gives_what_gpflow_gives_up_to_its_quadrature(name):
    model, new = model_of(name, "matern52", "plain"), new_rows_of(name)
    theirs = stored(GPFLOW, f"{name}.matern52.plain")
    predictor = gp.predictor(model)
    mean, var = predictor.latent(new.x)
    assert_same(mean.T - shift_of(name), theirs["latent_mean"], SAME, "latent mean")
    assert_same(var.T, theirs["latent_var"], SAME, "latent variance")
    if name == "robust_max":
        y_mean = predictor.probabilities(new.x)
        y_var = y_mean * (1 - y_mean)
    else:
        y_mean, y_var = predictor.predict(new.x, new.columns)
    assert_same(y_mean, theirs["y_mean"], 1e-6, "mean of y")
    assert_same(y_var, theirs["y_var"], 1e-6, "variance of y")
    if name in ACCURACY:
        log_density = predictor.log_density(new.x, new.y, new.columns)
        assert_same(log_density, theirs["log_density"], ACCURACY[name], "log density")


# Exact regression


@pytest.mark.parametrize("kernel", variants(KERNELS, ["matern52"]))
def test_one_step_with_inducing_inputs_at_the_data_is_scikit_learn(kernel):
    data, new = data_of("gaussian"), new_rows_of("gaussian")
    model = SparseGP(KERNELS[kernel], likelihood_of("gaussian"), data.x)
    tx = natgrad.split(natgrad.mirror_descent(1.0), None)

    @jax.jit
    def stepped(model):
        grads = jax.grad(lambda model: -elbo(model, data))(model)
        updates, _ = tx.update(grads, tx.init(model), model)
        last: Any = optax.apply_updates(model, updates)
        return last, elbo(last, data)

    model, bound = stepped(model)
    theirs = stored(SKLEARN, kernel)
    mean, var = gp.predictor(model).latent(new.x)
    for what, ours in {
        "log_marginal_likelihood": bound,
        "latent_mean": mean,
        "latent_sd": np.sqrt(var),
    }.items():
        assert_same(ours, theirs[what], ROUNDED, what)
