"""Laws of exponential families and natural gradients, in all coordinates at once.

Compiling is what costs: all that is asserted at a point is computed by one program.
"""

import functools
import itertools
from inspect import isclass, ismodule
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from natgrad import families, linalg
from natgrad._natural import double_vjp, natural_gradient
from natgrad.families import AbstractDistribution
from tests.points import FAMILIES, GATE, POINTS, assert_close, entries, flat
from tests.variants import variants


DRAWS = 20_000
STEP = jnp.asarray(1e-2)

# A Gaussian, one whose maps are iterated, one of probabilities, and one of a user.
MECHANISMS = ("gaussian", "gamma", "categorical", "tilted")
BATCHED = ["gaussian.Moments(Sqrt)", "gamma.MeanSpread", "categorical.Logits"]


@pytest.fixture(params=variants(POINTS, GATE))
def at(request):
    return report(request.param)


@pytest.fixture(params=variants(FAMILIES, MECHANISMS))
def family(request):
    return request.param


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "tilted"])
def test_a_family_and_its_statistics_are_reached_from_any_of_its_coordinates(name):
    points = FAMILIES[name].values()
    assert len({type(q).Family for q in points}) == 1
    for q in points:
        assert isinstance(q, type(q).Family)
        statistics = getattr(type(q), "Statistics", jax.Array)
        assert isinstance(q.natural(), statistics)


def loss(q: AbstractDistribution) -> jax.Array:
    """Smooth and without symmetry, so that no term of a gradient hides."""
    eta = flat(q.expectation())
    weights = jnp.linspace(0.3, 1.1, eta.size)
    return jnp.sum(jnp.sin(weights * eta) + weights[::-1] * eta)


def stacked(*trees):
    """Several members of a family, as a batch of them."""
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *trees)


def scaled(q: AbstractDistribution, factor: float) -> AbstractDistribution:
    """Another member of the family, in the same coordinates."""
    return q.at_natural(jax.tree.map(lambda t: factor * t, q.natural()))


@jax.jit
def descend(q: AbstractDistribution, size: float, steps: int) -> tuple:
    """Small steps along the natural gradient: θ where they end, and the last of them.

    One step of size zero stays at `q`, and so gives the gradients there.
    """

    def body(_, state):
        q, _, _ = state
        grad = jax.grad(loss)(q)
        direction = natural_gradient(q, grad)
        return jax.tree.map(lambda x, d: x - size * d, q, direction), grad, direction

    still = jax.tree.map(jnp.zeros_like, q)
    q, grad, direction = jax.lax.fori_loop(0, steps, body, (q, still, still))
    theta, in_theta = jax.jvp(lambda q: q.natural(), (q,), (direction,))
    return theta, grad, direction, in_theta


def values(q: AbstractDistribution, grad: AbstractDistribution) -> dict:
    """What is asked of one distribution, or of each in a batch of them."""
    p = scaled(q, 0.8)
    slope = q.slope(grad)
    return dict(
        p=p,
        theta=q.natural(),
        there=q.at_expectation(p.expectation()),
        slope=slope,
        stepped=q.stepped(slope, STEP),
        kl=q.kl(p),
        entropy=q.entropy(),
        is_inside=q.is_inside() & p.is_inside(),
    )


values_alone = jax.jit(values)


@jax.jit
def values_together(q: AbstractDistribution, grad: AbstractDistribution) -> dict:
    return values(q, grad) | dict(direction=natural_gradient(q, grad))


@jax.jit
def definitions(q: AbstractDistribution, grad: AbstractDistribution, at: dict) -> dict:
    """The same by definition, and what else the laws speak of."""
    definition = AbstractDistribution
    theta, eta = at["theta"], q.expectation()
    slope = definition.slope(q, grad)

    coordinates, unravel = ravel_pytree(q)
    flat_theta, unravel_theta = ravel_pytree(theta)
    to_theta = lambda x: ravel_pytree(unravel(x).natural())[0]
    log_normalizer = lambda t: q.log_normalizer(unravel_theta(t))

    symmetric = lambda x: (x + x.mT) / 2 if x.ndim == 2 else x
    change = jax.tree.map(lambda t: symmetric(jnp.cos(t) * jnp.abs(t)), theta)
    at_natural = jax.jvp(q.at_natural, (theta,), (change,))
    at_expectation = jax.jvp(q.at_expectation, (eta,), (change,))
    return dict(
        eta=eta,
        back_from_theta=at_natural[0],
        back_from_eta=at_expectation[0],
        there_theta=scaled(q, 0.9).natural(),
        there_eta=at["p"].expectation(),
        there_and_back=at["there"].expectation(),
        grad_log_normalizer=jax.grad(q.log_normalizer)(theta),
        jacobian=jax.jacobian(to_theta)(coordinates),
        curvature=jax.hessian(log_normalizer)(flat_theta),
        by_definition=definition.direction(q, slope),
        from_slope=natural_gradient(q, at["slope"]),
        target=jax.tree.map(lambda t, s: t - STEP * s, theta, slope),
        stepped=at["stepped"].natural(),
        kl_by_definition=definition.kl(q, at["p"]),
        kl_to_itself=q.kl(q),
        entropy_by_definition=definition.entropy(q),
        forward_natural=at_natural[1],
        twice_natural=double_vjp(q.at_natural, theta, change),
        forward_expectation=at_expectation[1],
        twice_expectation=double_vjp(q.at_expectation, eta, change),
    )


def sampled(q: AbstractDistribution, p: AbstractDistribution) -> dict:
    """What is asked of draws. All coordinates of a family share what this compiles."""
    draws = q.sample(jax.random.key(1), (DRAWS,))
    log_q, log_p = q.log_prob(draws), p.log_prob(draws)
    first = jax.tree.map(lambda u: u[:5], draws)
    return dict(
        kl_terms=log_q - log_p,
        entropy_terms=-log_q,
        statistics=q.statistics(draws),
        log_prob=log_q[:5],
        log_prob_by_definition=AbstractDistribution.log_prob(q, first),
    )


@functools.cache
def gradients(name: str) -> dict:
    """The gradient and the natural gradient of the loss, at one point."""
    _, grad, direction, in_theta = descend(POINTS[name], 0.0, 1)
    return dict(grad=grad, direction=direction, in_theta=in_theta)


@functools.cache
def report(name: str) -> SimpleNamespace:
    """All that the laws speak of, at one point."""
    q, at = POINTS[name], gradients(name)
    at = at | values_alone(q, at["grad"])
    at = at | sampled(q, at["p"]) | definitions(q, at["grad"], at)
    return SimpleNamespace(q=q, **at)


def assert_within_errors(terms, expected, errors: float = 5) -> None:
    """A mean of draws agrees with what it estimates."""
    error = terms.std(0) / np.sqrt(len(terms))
    assert (jnp.abs(terms.mean(0) - expected) <= errors * error).all()


def test_every_coordinate_system_is_here():
    modules = [module for module in vars(families).values() if ismodule(module)]
    classes = [each for module in modules for each in vars(module).values()]
    public = {
        each
        for each in classes
        if isclass(each)
        and issubclass(each, AbstractDistribution)
        and not each.__name__.startswith(("Abstract", "_"))
    }
    # It is curved, and test_low_rank.py has the laws that hold for it.
    public -= {families.low_rank.MeanPrecision}
    assert public <= {type(q) for q in POINTS.values()}
    matrices = {type(q.cov) for q in FAMILIES["gaussian"].values() if hasattr(q, "cov")}
    assert {linalg.Full, linalg.Sqrt, linalg.Log} <= matrices


def test_coordinates_and_parameters_are_inverse(at):
    assert at.is_inside
    assert_close(at.back_from_theta, at.q)
    assert_close(at.back_from_eta, at.q)


def test_parameters_and_coordinates_are_inverse_away_from_the_current_point(at):
    assert_close(at.there_theta, jax.tree.map(lambda t: 0.9 * t, at.theta))
    assert_close(at.there_and_back, at.there_eta)


def test_the_gradient_of_the_log_normalizer_is_the_expectation(at):
    assert_close(at.grad_log_normalizer, at.eta)


def test_natural_gradient_is_the_inverse_fisher_matrix_times_the_gradient(at):
    fisher = np.asarray(at.jacobian.T @ at.curvature @ at.jacobian)  # equation (8)
    # Entries that are stored twice, or not read, are directions without length.
    inverse = np.linalg.pinv(fisher, rcond=1e-11, hermitian=True)
    expected = at.jacobian @ (inverse @ flat(at.grad))
    assert_close(at.jacobian @ flat(at.direction), expected, rtol=1e-8)


def test_natural_gradient_is_a_vjp_and_a_jvp(at):
    assert_close(at.direction, at.by_definition)
    assert_close(at.from_slope, at.by_definition)


def test_a_finite_step_moves_theta_against_the_gradient_in_eta(at):
    assert_close(at.stepped, at.target)


def test_natural_gradients_in_all_coordinates_are_one_tangent_vector(family):
    tangents = [gradients(f"{family}.{name}")["in_theta"] for name in FAMILIES[family]]
    for one, other in itertools.pairwise(tangents):
        assert_close(one, other)


def test_divergence_is_that_of_the_log_normalizer_and_of_samples(at):
    assert_close(at.kl, at.kl_by_definition)
    assert_within_errors(at.kl_terms, at.kl)
    assert at.kl > 0
    assert abs(at.kl_to_itself) < 1e-13


def test_entropy_is_that_of_the_log_normalizer_and_of_samples(at):
    assert_close(at.entropy, at.entropy_by_definition)
    assert_within_errors(at.entropy_terms, at.entropy)


def test_statistics_of_samples_are_the_expectation(at):
    jax.tree.map(assert_within_errors, at.statistics, at.eta)


def test_log_prob_is_that_of_the_exponential_family(at):
    assert_close(at.log_prob, at.log_prob_by_definition)


def test_forward_mode_is_two_vjps(at):
    assert_close(at.twice_natural, at.forward_natural, rtol=1e-12)
    assert_close(at.twice_expectation, at.forward_expectation, rtol=1e-12)


def test_the_path_of_small_steps_is_the_same_in_all_coordinates(family):
    points = FAMILIES[family].values()
    start = entries(next(iter(points)).natural())
    gaps = []
    for steps in (100, 400):
        ends = [entries(descend(q, 0.2 / steps, steps)[0]) for q in points]
        length = np.abs(ends[0] - start).max()
        gaps.append(max(np.abs(one - ends[0]).max() / length for one in ends))
    # Euler's method is of first order: a quarter of the step is a quarter of the gap.
    assert gaps[0] < 0.02
    assert gaps[1] <= 0.3 * gaps[0]


@pytest.mark.parametrize("name", variants(POINTS, BATCHED))
def test_leading_axes_are_batches(name):
    q, at = POINTS[name], gradients(name)
    first = at | values_alone(q, at["grad"])
    p = first["p"]
    _, grad, direction, _ = descend(p, 0.0, 1)
    second = dict(direction=direction) | values_alone(p, grad)

    both, grads = stacked(q, p), stacked(at["grad"], grad)
    for key, together in values_together(both, grads).items():
        assert_close(together, stacked(first[key], second[key]))
    assert both.is_inside().shape == (2,), name

    # Only natgrad's own families have to do without the promotion of ranks.
    is_ours = type(q).__module__.startswith("natgrad.")
    with jax.numpy_rank_promotion("raise" if is_ours else "allow"):
        draws = both.sample(jax.random.key(5), (4, 3))
        log_prob = both.log_prob(draws)
        assert log_prob.shape == (4, 3, 2)
        of_second = jax.tree.map(lambda u: u[:, :, 1], draws)
        assert_close(log_prob[..., 1], p.log_prob(of_second))
        # Drawing looks at no value, so that `jit` takes it.
        drawn = jax.eval_shape(lambda q: q.sample(jax.random.key(5), (4, 3)), both)
        assert jax.tree.map(jnp.shape, drawn) == jax.tree.map(jnp.shape, draws)


def test_outside_is_not_inside(family):
    for name, q in FAMILIES[family].items():
        spoiled = jax.tree.map(lambda x: x * jnp.nan, q)
        assert not spoiled.is_inside(), name
    plain = next(iter(FAMILIES[family].values()))
    reflected = jax.tree.map(lambda t: -30 * t - 30, plain.natural())
    # Some families have a member for every θ, and others do not.
    is_member = jnp.isfinite(plain.log_normalizer(reflected))
    assert plain.at_natural(reflected).is_inside() == is_member
