"""The transformations do what Optax's do, on any tree that contains distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import natgrad
from natgrad.families import (
    beta,
    gamma,
    gaussian,
    inverse_gamma,
    normal_inverse_wishart,
    wishart,
)
from natgrad.families._base import is_distribution
from natgrad.linalg import Full, Sqrt
from natgrad.positive import Log, Plain
from tests.points import FAMILIES, assert_close, covariance, flat, vector
from tests.variants import variants


def standard(size: int = 3) -> gaussian.Moments:
    return gaussian.Moments(jnp.zeros(size), Sqrt(jnp.eye(size)))


TARGET = gaussian.Moments(vector(3, seed=7), Full(covariance(3, seed=7)))


class Model(eqx.Module):
    posterior: gaussian.Moments
    log_noise: jax.Array

    def __call__(self, x):  # callable trees are what Optax mistakes for functions
        return x


def tree(kind: str):
    return {
        "dict": {"q": standard(), "noise": jnp.full((), 0.3, float)},
        "module": Model(standard(), jnp.full((), 0.3, float)),
        "nested": [(standard(), {"noise": jnp.full((), 0.3, float)})],
    }[kind]


def loss(params) -> jax.Array:
    leaves = jax.tree.leaves(params, is_leaf=is_distribution)
    q = next(leaf for leaf in leaves if is_distribution(leaf))
    noise = next(leaf for leaf in leaves if leaf is not q)
    fit = jnp.sum(jnp.log(jnp.cosh(q.location() - 1)))
    return q.kl(TARGET) + fit + (noise - 1) ** 2


def run(tx, params, steps: int = 3):
    state = tx.init(params)

    @jax.jit
    def step(params, state):
        value, grad = jax.value_and_grad(loss)(params)
        updates, state = tx.update(
            grad, state, params, value=value, grad=grad, value_fn=loss
        )
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params, state


def with_extra(tx):
    return optax.with_extra_args_support(tx)


@pytest.mark.parametrize("kind", ["dict", "module", "nested"])
def test_any_tree_with_distributions_will_do(kind):
    expected, _ = run(with_extra(natgrad.ngd(0.1)), tree("dict"))
    params, _ = run(with_extra(natgrad.ngd(0.1)), tree(kind))
    ours, theirs = (jnp.sort(flat(tree)) for tree in (params, expected))
    assert_close(ours, theirs)


def test_leaves_that_belong_to_no_distribution_pass_through():
    params = tree("dict")
    grads = jax.grad(loss)(params)
    tx = natgrad.scale_by_inverse_fisher()
    updates, _ = tx.update(grads, tx.init(params), params)
    assert_close(updates["noise"], grads["noise"])
    assert_close(updates["q"], natgrad.natural_gradient(params["q"], grads["q"]))


def test_a_slope_may_stand_in_the_place_of_a_gradient():
    params = tree("dict")
    grads = jax.grad(loss)(params)
    slopes = {**grads, "q": params["q"].slope(grads["q"])}
    for tx in (
        natgrad.ngd(0.1),
        natgrad.split(natgrad.ngd(0.1), None),
        natgrad.split(natgrad.ngd(0.1), optax.sgd(0.1)),
        natgrad.split(natgrad.guarded_ngd(), optax.sgd(0.1)),
    ):
        tx, extra = with_extra(tx), {"value": loss(params), "value_fn": loss}
        ours, _ = tx.update(slopes, tx.init(params), params, **extra)
        theirs, _ = tx.update(grads, tx.init(params), params, **extra)
        assert_close(ours, theirs)
    still = natgrad.split(None, optax.sgd(0.1))
    updates, _ = still.update(slopes, still.init(params), params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)


COMPOSITIONS = {
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1e6), natgrad.ngd(0.1)),
    "partition": lambda: optax.partition(
        {"q": natgrad.ngd(0.1), "noise": optax.sgd(0.1)},
        lambda tree: {key: key for key in tree},
    ),
    "masked": lambda: optax.chain(
        optax.masked(natgrad.ngd(0.1), {"q": True, "noise": False}),
        optax.masked(optax.set_to_zero(), {"q": False, "noise": True}),
    ),
    "apply_if_finite": lambda: optax.apply_if_finite(natgrad.ngd(0.1), 3),
    "MultiSteps": lambda: optax.MultiSteps(
        natgrad.ngd(0.1), 2
    ).gradient_transformation(),
    "inject_hyperparams": lambda: optax.inject_hyperparams(natgrad.ngd)(
        learning_rate=0.1
    ),
    "schedule": lambda: natgrad.ngd(natgrad.log_linear(1e-4, 0.1, 5)),
    "stay_inside": lambda: optax.chain(natgrad.ngd(0.1), natgrad.stay_inside()),
    "momentum": lambda: optax.chain(
        natgrad.scale_by_inverse_fisher(), optax.trace(0.5), optax.scale(-0.1)
    ),
    "flatten": lambda: optax.chain(
        natgrad.scale_by_inverse_fisher(), optax.flatten(optax.sgd(0.1))
    ),
    "split": lambda: natgrad.split(natgrad.ngd(0.1), optax.sgd(0.1)),
    "guarded": lambda: natgrad.split(natgrad.guarded_ngd(), optax.sgd(0.1)),
    "guarded if finite": lambda: optax.apply_if_finite(
        natgrad.split(natgrad.guarded_ngd(), None), 3
    ),
    "noise": lambda: optax.chain(natgrad.ngd(0.1), optax.add_noise(0.0, 0.0, 0)),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_of_optax_lower_the_loss(name):
    with jax.numpy_dtype_promotion("standard"):
        params, _ = run(with_extra(COMPOSITIONS[name]()), tree("dict"), steps=6)
    assert loss(params) < loss(tree("dict"))
    assert params["q"].is_inside()


def test_one_compiled_step_serves_every_step():
    traces = []
    tx = natgrad.split(natgrad.guarded_ngd(), natgrad.ngd(0.1))
    params = tree("dict")

    @jax.jit
    def step(params, state):
        traces.append(None)
        value, grad = jax.value_and_grad(loss)(params)
        updates, state = tx.update(
            grad, state, params, value=value, grad=grad, value_fn=loss
        )
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(3):
        params, state = step(params, state)
    assert len(traces) == 1


def test_steps_run_in_scan_and_vmap():
    tx = natgrad.split(natgrad.guarded_ngd(), None)

    def fit(params):
        def step(carry, _):
            params, state = carry
            value, grad = jax.value_and_grad(loss)(params)
            updates, state = tx.update(
                grad, state, params, value=value, grad=grad, value_fn=loss
            )
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, tx.init(params)), length=4)[0][0]

    alone = jax.jit(fit)(tree("dict"))
    looped, _ = run(tx, tree("dict"), steps=4)
    assert_close(alone, looped)
    two = jax.tree.map(lambda x: jnp.stack([x, x]), tree("dict"))
    both = jax.jit(jax.vmap(fit))(two)
    assert_close(jax.tree.map(lambda x: x[1], both), looped, rtol=1e-8)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
@pytest.mark.parametrize("chart", ["Moments(Full)", "Canonical(Sqrt)"])
def test_steps_are_the_same_when_the_batch_axis_is_sharded(kind, chart):
    axis_types = (jax.sharding.AxisType[kind],)
    mesh = jax.make_mesh((1,), ("latent",), axis_types=axis_types)
    placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("latent"))
    two = lambda tree: jax.tree.map(lambda x: jnp.stack([x, x]), tree)
    template = FAMILIES["gaussian"][chart]
    q, target = (two(template.at_natural(q.natural())) for q in (standard(), TARGET))

    @jax.jit
    def step(q, target):
        grad = jax.grad(lambda q: q.kl(target).sum())(q)
        there = q.path(grad)(jnp.full((), 0.5, float))
        return natgrad.natural_gradient(q, grad), there, there.kl(q)

    alone = step(q, target)
    with jax.set_mesh(mesh):
        assert_close(step(*jax.device_put((q, target), placed)), alone)


def test_a_numpyro_guide_is_trained_by_a_transformation():
    data = vector(20, seed=3) + 2.0

    def model():
        u = numpyro.sample("u", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        with numpyro.plate("data", len(data)):
            numpyro.sample("y", dist.Normal(u.sum(), 1.0), obs=data)

    def guide():
        q = numpyro.param("q", standard())
        numpyro.sample("u", dist.MultivariateNormal(q.mean, scale_tril=q.factor()))

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        optimizer = numpyro.optim.optax_to_numpyro(
            natgrad.ngd(natgrad.log_linear(1e-3, 0.05, 50))
        )
        elbo = numpyro.infer.Trace_ELBO(num_particles=100)
        svi = numpyro.infer.SVI(model, guide, optimizer, elbo)
        result = svi.run(jax.random.key(0), 150, progress_bar=False)
    ones = jnp.ones((3, 3))
    precision = jnp.eye(3) + len(data) * ones
    expected = jnp.linalg.solve(precision, data.sum() * jnp.ones(3))
    assert_close(result.params["q"].mean, expected, rtol=0.05)


def test_stay_inside_shortens_only_what_leads_outside():
    tx = natgrad.stay_inside()
    q = {"q": gaussian.Moments(jnp.zeros(2), Full(jnp.eye(2)))}
    good = {"q": gaussian.Moments(jnp.ones(2), Full(-0.5 * jnp.eye(2)))}
    assert_close(tx.update(good, tx.init(q), q)[0], good)
    bad = {"q": gaussian.Moments(jnp.ones(2), Full(-3.0 * jnp.eye(2)))}
    shortened, _ = tx.update(bad, tx.init(q), q)
    assert_close(shortened, jax.tree.map(lambda x: x / 4, bad))
    for hopeless in (jnp.nan, jnp.inf):
        lost = jax.tree.map(lambda x, h=hopeless: x * h, good)
        zero, _ = tx.update(lost, tx.init(q), q)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(zero))


def test_stay_inside_lets_no_member_of_a_batch_out():
    tx = natgrad.stay_inside()
    q = gaussian.Moments(jnp.zeros((2, 1)), Full(jnp.ones((2, 1, 1))))
    change = jnp.asarray([0.5, -3.0])
    update = gaussian.Moments(change[:, None], Full(change[:, None, None]))
    shortened, _ = tx.update(update, tx.init(q), q)
    assert_close(shortened, jax.tree.map(lambda x: x / 4, update))


def test_what_is_missing_is_named():
    params = tree("dict")
    grads = jax.grad(loss)(params)
    for tx in (
        natgrad.ngd(0.1),
        natgrad.stay_inside(),
        natgrad.split(natgrad.ngd(0.1), None),
        natgrad.guarded_ngd(),
    ):
        with pytest.raises(ValueError, match=r"call\s+update\(grads, state, params"):
            tx.update(grads, tx.init(params))


def test_a_slope_counts_by_its_symmetric_part():
    lopsided = jnp.asarray([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0], [0.5, 0.0, 2.0]]) / 10
    even = (lopsided + lopsided.mT) / 2
    first, size = jnp.ones(3), jnp.asarray(0.1)
    for name, q in FAMILIES["gaussian"].items():
        ours, theirs = (gaussian.Statistics(first, g) for g in (lopsided, even))
        assert_close(q.direction(ours), q.direction(theirs)), name
        assert_close(q.stepped(ours, size), q.stepped(theirs, size)), name


def test_a_gradient_that_is_not_finite_stays_so():
    q = FAMILIES["dirichlet"]["Concentrations(Plain)"]
    grad = jax.tree.map(lambda x: x.at[0].set(jnp.nan), q)
    assert not jnp.isfinite(flat(natgrad.natural_gradient(q, grad))).all()
    tx, value_fn = natgrad.guarded_ngd(), lambda q: q.entropy()
    updates, state = tx.update(grad, tx.init(q), q, value_fn=value_fn)
    assert state.refused == 1
    assert (flat(updates) == 0).all()


def test_the_guarded_step_says_what_it_cannot_do():
    params = {"noise": jnp.full((), 0.3, float)}
    tx = natgrad.guarded_ngd()
    with pytest.raises(ValueError, match="found no distribution"):
        tx.update(params, tx.init(params), params, value_fn=lambda p: p["noise"])
    params = tree("dict")
    masked = optax.masked(tx, {"q": True, "noise": False})
    with pytest.raises(ValueError, match="natgrad.split instead of optax.partition"):
        masked.update(params, masked.init(params), params, value_fn=loss)
    for wrong in (100.0, 0.0, -1.0):
        with pytest.raises(ValueError, match=f"batch_fraction is {wrong}"):
            natgrad.guarded_ngd(batch_fraction=wrong)


def test_log_linear_is_the_schedule_of_the_paper():
    schedule = natgrad.log_linear(1e-4, 1e-1, 5)
    sizes = jnp.asarray([schedule(t) for t in range(8)])
    expected = 10.0 ** jnp.asarray([-4, -3.4, -2.8, -2.2, -1.6, -1, -1, -1])
    assert_close(sizes, expected, rtol=1e-6)


# One step of size 1 is exact for a conjugate pair: the expected log likelihood is
# linear in η of the posterior, and the loss is the divergence from the prior less that.


def conjugate_pairs() -> dict:
    """Prior, expected log likelihood under q, and the exact posterior's θ."""
    counts = jnp.asarray([3.0, 0.0, 5.0, 2.0])
    flips = jnp.asarray([1.0, 0.0, 1.0, 1.0, 1.0])
    x = jnp.stack([vector(3, seed) for seed in range(6)])
    y = vector(6, seed=9)
    noise = 0.1
    scatter = x.T @ x
    of_rows = normal_inverse_wishart.Statistics(
        jnp.asarray(-3.0), -scatter / 2, x.sum(0), jnp.asarray(-3.0)
    )

    def gaussian_fit(q):
        mean, cov = q.location(), q.covariance()
        return -jnp.sum((y - x @ mean) ** 2 + (x @ cov * x).sum(-1)) / (2 * noise)

    return {
        "gaussian": (
            gaussian_fit,
            gaussian.Statistics(x.T @ y / noise, -x.T @ x / (2 * noise)),
        ),
        "beta": (  # Bernoulli
            lambda q: (
                flips.sum() * q.expectation().log
                + (1 - flips).sum() * q.expectation().log_rest
            ),
            beta.Statistics(flips.sum(), (1 - flips).sum()),
        ),
        "gamma": (  # Poisson
            lambda q: (
                counts.sum() * q.expectation().log - counts.size * q.expectation().value
            ),
            gamma.Statistics(counts.sum(), jnp.asarray(-float(counts.size))),
        ),
        "dirichlet": (  # categorical
            lambda q: counts[:3] @ q.expectation(),
            counts[:3],
        ),
        "wishart": (  # the precision of a Gaussian
            lambda q: (
                3 * q.expectation().log_det
                - (scatter * q.expectation().matrix).sum() / 2
            ),
            wishart.Statistics(jnp.asarray(3.0), -scatter / 2),
        ),
        "inverse_gamma": (  # the variance of a Gaussian
            lambda q: (
                -y.size / 2 * q.expectation().log
                - (y**2).sum() / 2 * q.expectation().reciprocal
            ),
            inverse_gamma.Statistics(jnp.asarray(-y.size / 2), -(y**2).sum() / 2),
        ),
        "normal_inverse_wishart": (  # the mean and the covariance of a Gaussian
            lambda q: sum(
                (evidence * eta).sum()
                for evidence, eta in zip(of_rows, q.expectation(), strict=True)
            ),
            of_rows,
        ),
    }


# Coordinates in which the step is one in θ: those that are θ up to an affine map.
NATURAL = {
    "gaussian": "Canonical(Full)",
    "beta": "Concentrations(Plain)",
    "gamma": "ShapeRate(Plain)",
    "dirichlet": "Concentrations(Plain)",
    "wishart": "RateDof(Full)",
    "inverse_gamma": "ShapeScale(Plain)",
    "normal_inverse_wishart": "MeanPrecision(Plain)",
}


def conjugate_model(family: str):
    """The prior, the loss, and the θ of the exact posterior."""
    fit, evidence = conjugate_pairs()[family]
    prior = FAMILIES[family][NATURAL[family]]
    posterior = jax.tree.map(jnp.add, prior.natural(), evidence)
    return prior, lambda q: q.kl(prior) - fit(q), posterior


# None of its coordinates are θ up to an affine map; the guarded step solves it below.
CURVED = ("normal_inverse_wishart",)


@pytest.mark.parametrize("family", [name for name in NATURAL if name not in CURVED])
def test_one_step_of_size_one_solves_a_conjugate_model(family):
    prior, loss, posterior = conjugate_model(family)

    @jax.jit
    def step(q):
        tx = natgrad.ngd(1.0)
        grad = jax.grad(loss)(q)
        return optax.apply_updates(q, tx.update(grad, tx.init(q), q)[0])

    assert_close(step(prior).natural(), posterior)


# All it asks of coordinates are laws of tests/families, and two show that it asks them.
@pytest.mark.parametrize("number", variants([2, None], [2]))
@pytest.mark.parametrize("family", variants(NATURAL, ["gaussian", "dirichlet"]))
def test_the_guarded_step_takes_that_step_by_itself_in_all_coordinates(family, number):
    _, loss, posterior = conjugate_model(family)

    @jax.jit
    def step(q):
        tx = natgrad.guarded_ngd()
        value, grad = jax.value_and_grad(loss)(q)
        updates, state = tx.update(
            grad, tx.init(q), q, value=value, grad=grad, value_fn=loss
        )
        return optax.apply_updates(q, updates).natural(), state

    for q in list(FAMILIES[family].values())[:number]:
        theta, state = step(q)
        assert_close(theta, posterior, rtol=1e-10)
        assert state.step_size == 1 and state.halvings == 0 and state.refused == 0


def test_positive_numbers_may_be_stored_in_any_way():
    for storage in (Plain(jnp.asarray(1.0)), Log(jnp.asarray(0.0))):
        assert_close(storage.at(jnp.asarray(1e-8)).value(), jnp.asarray(1e-8))


def test_mirror_descent_follows_its_schedule_and_moves_distributions_only():
    q = gaussian.Moments(jnp.zeros(2), Sqrt(jnp.eye(2)))
    params = {"q": q, "other": jnp.ones(3)}
    slope = gaussian.Statistics(jnp.ones(2), jnp.eye(2))
    grads = {"q": slope, "other": jnp.ones(3)}
    tx = natgrad.mirror_descent(natgrad.log_linear(0.1, 0.4, 2))
    state = tx.init(params)
    for size in (0.1, 0.2, 0.4):
        updates, state = tx.update(grads, state, params)
        moved = optax.apply_updates(params, updates)
        expected = q.stepped(slope, jnp.asarray(size, float))
        np.testing.assert_allclose(moved["q"].mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(moved["q"].cov.root, expected.cov.root, rtol=1e-12)
        np.testing.assert_array_equal(moved["other"], params["other"])
    with pytest.raises(ValueError, match="needs the parameters"):
        tx.update(grads, state)
