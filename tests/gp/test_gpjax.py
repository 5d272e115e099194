"""A variational family of GPJax is trained as natgrad's own model is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.errors import InputError
from natgrad.gp import kernels, likelihoods


gpjax = pytest.importorskip("gpjax")  # its releases cap jax

RNG = np.random.default_rng(0)
X = jnp.asarray(np.linspace(0, 1, 10)[:, None])
Z = jnp.asarray([[0.1], [0.5], [0.9]])
COUNTS = jnp.asarray(RNG.poisson(2.0, 10), float)
REALS = jnp.asarray(RNG.normal(size=10))
VARIANCE = 1.3
JITTER = 1e-10 * VARIANCE  # what natgrad adds, which is a share of the diagonal
ROWS = gpjax.Dataset(X=X, y=COUNTS[:, None])

LIKELIHOODS = {
    "gaussian": (
        lambda: gpjax.likelihoods.Gaussian(obs_stddev=jnp.asarray(0.5)),
        lambda: likelihoods.Gaussian(0.25),
        REALS,
    ),
    "poisson": (gpjax.likelihoods.Poisson, likelihoods.Poisson, COUNTS),
}


@pytest.fixture(autouse=True)
def as_their_users_have_it():
    """GPJax promotes ranks and types."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def prior():
    kernel = gpjax.kernels.RBF(lengthscale=0.4, variance=VARIANCE)
    zero = gpjax.mean_functions.Zero()
    return gpjax.gps.Prior(mean_function=zero, kernel=kernel, jitter=JITTER)


def family(likelihood, is_whitened: bool = True):
    kinds = gpjax.variational_families
    kind = (
        kinds.WhitenedVariationalGaussian if is_whitened else kinds.VariationalGaussian
    )
    root = jnp.linalg.cholesky(kernels.RBF(0.4, VARIANCE)(Z, Z))
    root = jnp.eye(3) if is_whitened else root
    model = prior() * likelihood
    return kind(model=model, inducing_inputs=Z, variational_root_covariance=root)


def trained(tx, loss, params, steps: int = 4):
    """The parameters after some steps, and the loss before each."""

    def step(carry, _):
        params, state = carry
        value, grad = jax.value_and_grad(loss)(params)
        seen = {"value": value, "grad": grad, "value_fn": loss}
        updates, state = tx.update(grad, state, params, **seen)
        return (optax.apply_updates(params, updates), state), value

    start = (params, tx.init(params))
    (params, _), values = jax.jit(lambda: jax.lax.scan(step, start, length=steps))()
    return params, values


@pytest.mark.parametrize(
    ("name", "is_whitened"),
    [
        ("poisson", True),
        ("gaussian", False),
        pytest.param("poisson", False, marks=pytest.mark.long),
        pytest.param("gaussian", True, marks=pytest.mark.long),
    ],
)
def test_natural_steps_are_those_of_the_same_model_of_ours(name, is_whitened):
    make, make_ours, y = LIKELIHOODS[name]
    rows = gpjax.Dataset(X=X, y=y[:, None])
    theirs = gp.GPJaxModel(family(make(), is_whitened))
    ours = gp.SparseGP(
        kernels.RBF(0.4, VARIANCE),
        make_ours(),
        Z,
        posterior=theirs.posteriors[0],
        is_whitened=is_whitened,
    )
    tx = natgrad.on_distributions(natgrad.guarded_ngd())
    theirs, bounds = trained(
        tx, lambda model: -gpjax.objectives.elbo(model.family, rows), theirs
    )
    ours, own_bounds = trained(tx, lambda model: -gp.elbo(model, Batch(X, y)), ours)
    np.testing.assert_allclose(bounds, own_bounds, rtol=0, atol=1e-8)
    assert bounds[-1] < bounds[0] - 1
    q, own = theirs.posteriors[0], ours.posterior
    np.testing.assert_allclose(q.mean, own.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(q.covariance(), own.covariance(), rtol=0, atol=1e-8)


def test_all_parameters_of_gpjax_train_and_return_to_it():
    model = gp.GPJaxModel(family(gpjax.likelihoods.Poisson()))
    loss = lambda model: -gpjax.objectives.elbo(model.family, ROWS)
    tx = natgrad.split(natgrad.guarded_ngd(), optax.adam(0.05))
    moved, values = trained(tx, loss, model)
    assert values[-1] < values[0]
    # The mean function of GPJax is a constant that does not train.
    pair = moved.parameters, model.parameters
    still = [bool((a == b).all()) for a, b in zip(*pair, strict=True)]
    assert still == [False, False, True, False]
    returned = moved.to_gpjax()
    assert type(returned) is type(family(gpjax.likelihoods.Poisson()))
    at_once, after = gpjax.objectives.elbo(returned, ROWS), -loss(moved)
    np.testing.assert_allclose(at_once, after, rtol=1e-12)
    (again,), (q,) = gp.GPJaxModel(returned).posteriors, moved.posteriors
    np.testing.assert_allclose(again.mean, q.mean)
    np.testing.assert_allclose(again.covariance(), q.covariance(), rtol=1e-10)
    # GPJax trains it further as one of its own.
    best, _ = gpjax.fit(
        model=returned,
        objective=lambda q, rows: -gpjax.objectives.elbo(q, rows),
        train_data=ROWS,
        optim=optax.adam(0.01),
        num_iters=3,
        verbose=False,
    )
    assert gpjax.objectives.elbo(best, ROWS) > at_once


def test_a_root_of_any_sign_returns_to_gpjax():
    model = gp.GPJaxModel(family(gpjax.likelihoods.Poisson()))
    turned = jax.tree.map(lambda x: -x, model.posteriors[0].cov)
    q = natgrad.families.gaussian.Moments(model.posteriors[0].mean, turned)
    loss = lambda model: gpjax.objectives.elbo(model, ROWS)
    there = eqx.tree_at(lambda m: m.posteriors[0], model, q)
    np.testing.assert_allclose(loss(there.to_gpjax()), loss(model.family), rtol=1e-12)


def test_both_processes_of_a_heteroscedastic_family_have_a_posterior():
    likelihood = gpjax.likelihoods.HeteroscedasticGaussian()
    joint = gpjax.gps.HeteroscedasticModel(prior(), likelihood, prior())
    both = gpjax.variational_families.HeteroscedasticVariationalFamily(
        model=joint, inducing_inputs=Z, inducing_inputs_g=Z[:2]
    )
    model = gp.GPJaxModel(both)
    assert [q.mean.shape for q in model.posteriors] == [(3,), (2,)]
    rows = gpjax.Dataset(X=X, y=REALS[:, None])
    loss = lambda model: -gpjax.objectives.heteroscedastic_elbo(model.family, rows)
    tx = natgrad.on_distributions(natgrad.guarded_ngd())
    moved, values = trained(tx, loss, model, steps=3)
    assert (np.diff(values) < 0).all()
    for q, start in zip(moved.posteriors, model.posteriors, strict=True):
        assert q.kl(start) > 1e-3


def test_a_family_without_moments_is_refused_by_name():
    dual = gpjax.variational_families.DualVariationalGaussian(
        model=prior() * gpjax.likelihoods.Gaussian(), inducing_inputs=Z
    )
    with pytest.raises(InputError, match="DualVariationalGaussian stores no"):
        gp.GPJaxModel(dual)
