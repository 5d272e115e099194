"""Laws of exponential families and natural gradients, in all coordinates at once.

Compiling is what costs: all that is asserted at a point is computed by one program.
"""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from natgrad.families import AbstractDistribution
from natgrad.natural import double_vjp, natural_gradient
from tests.points import FAMILIES, POINTS, assert_close, flat


DRAWS = 20_000


IMPLICIT = ("beta", "dirichlet", "wishart")

# Storages that another family, or the other side of this one, is tried in as well.
ALIKE = {
    "gaussian.Moments(LogDiagonal)",
    "gaussian.Canonical(LDL)",
    "diagonal.Canonical(Softplus)",
    "gamma.ShapeRate(Softplus)",
    "gamma.MeanShape(Plain)",
    "beta.Concentrations(Softplus)",
    "beta.MeanTotal(Plain)",
    "dirichlet.Concentration(Softplus)",
    "dirichlet.MeanTotal(Plain)",
    "wishart.RateDof(Sqrt)",
    "wishart.ScaleDof(Log)",
}


def case(name: str):
    return pytest.param(name, marks=[pytest.mark.long] if name in ALIKE else [])


@pytest.fixture(params=map(case, POINTS))
def at(request):
    return report(request.param)


@pytest.fixture(params=map(case, FAMILIES))
def family(request):
    return request.param


def loss(q: AbstractDistribution) -> jax.Array:
    """Smooth and without symmetry, so that no term of a gradient hides."""
    eta = flat(q.expectation())
    weights = jnp.linspace(0.3, 1.1, eta.size)
    return jnp.sum(jnp.sin(weights * eta) + weights[::-1] * eta)


def scaled(q: AbstractDistribution, factor: float) -> AbstractDistribution:
    """Another member of the family, in the same coordinates."""
    return q.at_natural(jax.tree.map(lambda t: factor * t, q.natural()))


@functools.cache
def report(name: str) -> SimpleNamespace:
    """All that the laws speak of, at one point."""
    q = POINTS[name]
    return SimpleNamespace(q=q, **jax.jit(_report)(q))


def _report(q: AbstractDistribution) -> dict:
    definition = AbstractDistribution
    theta, eta, grad = q.natural(), q.expectation(), jax.grad(loss)(q)
    p = scaled(q, 0.8)
    slope = definition.slope(q, grad)
    direction = natural_gradient(q, grad)
    step = jnp.asarray(1e-2)

    coordinates, unravel = ravel_pytree(q)
    flat_theta, unravel_theta = ravel_pytree(theta)
    to_theta = lambda x: ravel_pytree(unravel(x).natural())[0]
    log_normalizer = lambda t: q.log_normalizer(unravel_theta(t))

    draws = q.sample(jax.random.key(1), (DRAWS,))
    log_q, log_p = q.log_prob(draws), p.log_prob(draws)

    symmetric = lambda x: (x + x.mT) / 2 if x.ndim == 2 else x
    change = jax.tree.map(lambda t: symmetric(jnp.cos(t) * jnp.abs(t)), theta)
    return dict(
        theta=theta,
        eta=eta,
        grad=grad,
        back_from_theta=q.at_natural(theta),
        back_from_eta=q.at_expectation(eta),
        there_theta=scaled(q, 0.9).natural(),
        there_eta=p.expectation(),
        there_and_back=q.at_expectation(p.expectation()).expectation(),
        grad_log_normalizer=jax.grad(q.log_normalizer)(theta),
        jacobian=jax.jacobian(to_theta)(coordinates),
        curvature=jax.hessian(log_normalizer)(flat_theta),
        direction=direction,
        by_definition=definition.direction(q, slope),
        from_slope=natural_gradient(q, q.slope(grad)),
        in_theta=jax.jvp(lambda q: q.natural(), (q,), (direction,))[1],
        target=jax.tree.map(lambda t, s: t - step * s, theta, slope),
        stepped=q.stepped(q.slope(grad), step).natural(),
        kl=q.kl(p),
        kl_by_definition=definition.kl(q, p),
        kl_to_itself=q.kl(q),
        kl_terms=log_q - log_p,
        entropy=q.entropy(),
        entropy_by_definition=definition.entropy(q),
        entropy_terms=-log_q,
        statistics=q.statistics(draws),
        log_prob=log_q[:5],
        log_prob_by_definition=definition.log_prob(q, draws[:5]),
        forward_natural=jax.jvp(q.at_natural, (theta,), (change,))[1],
        twice_natural=double_vjp(q.at_natural, theta, change),
        forward_expectation=jax.jvp(q.at_expectation, (eta,), (change,))[1],
        twice_expectation=double_vjp(q.at_expectation, eta, change),
        is_inside=q.is_inside() & p.is_inside(),
    )


def assert_within_errors(terms, expected, errors: float = 5) -> None:
    """A mean of draws agrees with what it estimates."""
    error = terms.std(0) / np.sqrt(len(terms))
    assert (jnp.abs(terms.mean(0) - expected) <= errors * error).all()


def test_every_family_and_coordinate_is_here():
    assert {family: len(points) for family, points in FAMILIES.items()} == {
        "gaussian": 11,  # 6 of the paper, 4 of docs/howto/coordinates.md, 1 turned over
        "diagonal": 6,
        "gamma": 6,  # 1 of docs/howto/coordinates.md
        "beta": 5,
        "dirichlet": 5,
        "categorical": 2,
        "wishart": 7,
    }


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
    tangents = [report(f"{family}.{name}").in_theta for name in FAMILIES[family]]
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
    @jax.jit
    def end(q, size, steps):
        def body(_, q):
            direction = natural_gradient(q, jax.grad(loss)(q))
            return jax.tree.map(lambda x, d: x - size * d, q, direction)

        return flat(jax.lax.fori_loop(0, steps, body, q).natural())

    points = FAMILIES[family].values()
    start = flat(next(iter(points)).natural())
    gaps = []
    for steps in (100, 400):
        ends = [end(q, 0.2 / steps, steps) for q in points]
        length = jnp.abs(ends[0] - start).max()
        gaps.append(max(jnp.abs(one - ends[0]).max() / length for one in ends))
    # Euler's method is of first order: a quarter of the step is a quarter of the gap.
    assert gaps[0] < 0.02
    assert gaps[1] < 0.3 * gaps[0]


@pytest.mark.parametrize(
    "family",
    [
        # These have no closed form, and gamma is such a one.
        pytest.param(name, marks=[pytest.mark.long] if name in IMPLICIT else [])
        for name in FAMILIES
    ],
)
def test_leading_axes_are_batches(family):
    def some(q):
        grad = jax.grad(lambda q: flat(q.expectation()).sum())(q)
        other = scaled(q, 0.9)
        return (
            q.natural(),
            q.at_expectation(other.expectation()),
            q.entropy(),
            q.kl(other),
            natural_gradient(q, grad),
            q.stepped(q.slope(grad), jnp.asarray(1e-2)),
        )

    def drawn(both, p):
        draws = both.sample(jax.random.key(5), (4, 3))
        return both.log_prob(draws), p.log_prob(draws[:, :, 1])

    for name, q in FAMILIES[family].items():
        p = scaled(q, 0.8)
        both = jax.tree.map(lambda *x: jnp.stack(x), q, p)
        together, apart = jax.jit(some)(both), jax.jit(jax.vmap(some))(both)
        for one, other in zip(together, apart, strict=True):
            assert_close(one, other)
        assert both.is_inside().shape == (2,), name
        log_prob, alone = jax.jit(drawn)(both, p)
        assert log_prob.shape == (4, 3, 2)
        assert_close(log_prob[..., 1], alone)


def test_outside_is_not_inside(family):
    for name, q in FAMILIES[family].items():
        spoiled = jax.tree.map(lambda x: x * jnp.nan, q)
        assert not spoiled.is_inside(), name
    plain = next(iter(FAMILIES[family].values()))
    reflected = jax.tree.map(lambda t: -30 * t - 30, plain.natural())
    if family != "categorical":  # there every θ names a member
        assert not jnp.isfinite(plain.log_normalizer(reflected))
