"""Laws of kernels, of all kinds at once.

Compiling is what costs: all that is asserted of a kernel is computed by one program.
"""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from sklearn.gaussian_process import kernels as sk

from natgrad.errors import InputError
from natgrad.gp.kernels import (
    RBF,
    AbstractKernel,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnInputs,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Separate,
)
from tests.gp.kernels import CASES, EACH, assert_close, points
from tests.variants import variants


STEP = 1e-4


OFTEN = ["matern52.each", "rbf.one", "rational.each", "wendland.one", "periodic.one"]
OFTEN += ["linear.each", "polynomial.each", "sum", "product", "on_inputs"]


@pytest.fixture(params=variants(CASES, OFTEN))
def name(request):
    return request.param


def scalar(kernel: AbstractKernel, x: jax.Array, z: jax.Array) -> jax.Array:
    """Without symmetry, so that no term of a derivative hides."""
    gram = kernel(x, z)
    weights = jnp.linspace(0.4, 1.3, gram.size).reshape(gram.shape)
    return (weights * (gram + 0.1 * gram**2)).sum()


def derivatives(of, tree, *extreme) -> list[dict]:
    """Those of a function of a tree, between two points near by, and at extremes."""
    flat, unravel = ravel_pytree(tree)
    move = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
    of_flat = lambda flat: of(*unravel(flat))

    def at(flat):
        both = jax.value_and_grad(of_flat)
        (value, grad), (slope, second) = jax.jvp(both, (flat,), (move,))
        return dict(
            value=value,
            grad=grad,
            slope=grad @ move,
            size=jnp.abs(grad) @ jnp.abs(move),
            forward=slope,
            forward_over_reverse=second,
            reverse_over_reverse=jax.grad(lambda flat: both(flat)[1] @ move)(flat),
        )

    near = [flat, flat + STEP * move, flat - STEP * move]
    where = jnp.stack(near + [ravel_pytree(other)[0] for other in extreme])
    reports = jax.vmap(at)(where)
    return [jax.tree.map(lambda r, i=i: r[i], reports) for i in range(len(where))]


@functools.cache
def report(name: str) -> SimpleNamespace:
    """All that the laws speak of, of one kernel."""
    kernel = CASES[name][0]
    return SimpleNamespace(
        kernel=kernel, **vars(points()), **jax.jit(_report)(kernel, vars(points()))
    )


def _report(kernel: AbstractKernel, at: dict) -> dict:
    x, z = at["x"], at["z"]
    of_within = lambda kernel, x: scalar(kernel, x, x)
    others = (z, at["coincident"], at["far"])
    return dict(
        cross=kernel(x, z),
        cross_coincident=kernel(x, at["coincident"]),
        cross_far=kernel(x, at["far"]),
        gram=kernel(x, x),
        diag=kernel.diag(x),
        diag_by_definition=AbstractKernel.diag(kernel, x),
        shifted=kernel(x + 1e6, z + 1e6),
        between=derivatives(scalar, *((kernel, x, other) for other in others)),
        within=derivatives(of_within, (kernel, x), (kernel, at["twice"])),
    )


def test_kernels_are_positive_semidefinite_and_exactly_symmetric(name):
    at = report(name)
    gram = np.asarray(at.gram)
    assert (gram == gram.T).all()
    assert np.linalg.eigvalsh(gram).min() >= -1e-10 * len(gram)


def test_diag_is_the_diagonal(name):
    at = report(name)
    assert_close(at.diag, np.diag(at.gram))
    assert_close(at.diag_by_definition, at.diag)


def test_kernels_agree_with_their_formulas(name):
    at, case = report(name), CASES[name]
    assert_close(at.cross, case.formula(at.x, at.z))
    assert_close(at.gram, case.formula(at.x, at.x))
    here = case.formula(at.x, at.coincident)
    assert_close(at.cross_coincident, here, case.coincident)
    if case.far < np.inf:
        assert_close(at.cross_far, case.formula(at.x, at.far), case.far)


def test_stationary_kernels_keep_their_digits_far_from_the_origin(name):
    at, formula = report(name), CASES[name].formula
    if not np.allclose(formula(at.x + 1, at.z + 1), formula(at.x, at.z)):
        return
    # The formula sees the inputs as they are after the shift, rounded to 1e-10.
    assert_close(at.shifted, formula(at.x + 1e6, at.z + 1e6), 1e-12)


def test_derivatives_are_those_of_finite_differences(name):
    for here, there, back, *_ in (report(name).between, report(name).within):
        difference = (there["value"] - back["value"]) / (2 * STEP)
        assert abs(here["forward"] - here["slope"]) <= 1e-12 * here["size"]
        assert abs(difference - here["slope"]) <= 1e-6 * here["size"]


def test_second_derivatives_agree_in_both_modes_and_with_finite_differences(name):
    for here, there, back, *_ in (report(name).between, report(name).within):
        second = here["forward_over_reverse"]
        assert_close(here["reverse_over_reverse"], second, 1e-10)
        assert_close((there["grad"] - back["grad"]) / (2 * STEP), second, 1e-5)


def test_derivatives_are_finite_where_points_coincide_and_far_away(name):
    for _, _, _, *extreme in (report(name).between, report(name).within):
        assert extreme
        for leaf in jax.tree.leaves(extreme):
            assert jnp.isfinite(leaf).all()


@pytest.mark.parametrize(
    "kind, curvature", [(RBF, 1), (Matern32, 3), (Matern52, 5 / 3)]
)
def test_smooth_kernels_have_their_curvature_where_points_coincide(kind, curvature):
    z = jnp.asarray(points().x)
    of = lambda row: kind(2.0, 1.5)(row[None, :], z)[0, 0]
    both = lambda row: (jax.hessian(of)(row), jax.jacrev(jax.jacrev(of))(row))
    for hessian in jax.jit(both)(z[0]):
        assert_close(hessian, -1.5 * curvature / 4 * np.eye(3), 1e-7)


def test_kernels_agree_with_those_of_scikit_learn():
    x, z = points().x, points().z
    for each in (0.8, EACH):
        for ours, theirs in (
            (Matern12(each), sk.Matern(each, nu=0.5)),
            (Matern32(each), sk.Matern(each, nu=1.5)),
            (Matern52(each), sk.Matern(each, nu=2.5)),
            (RBF(each), sk.RBF(each)),
            (RationalQuadratic(0.8, alpha=0.7), sk.RationalQuadratic(0.8, 0.7)),
            (Linear(1.0) + 0.25, sk.DotProduct(0.5)),
            (Polynomial(3, offset=0.25), sk.Exponentiation(sk.DotProduct(0.5), 3)),
            (Constant(0.9), sk.ConstantKernel(0.9)),
        ):
            assert_close(ours(jnp.asarray(x), jnp.asarray(z)), theirs(x, z))
    x, z = x[:, :1], z[:, :1]
    ours = Periodic(0.8, period=1.9)(jnp.asarray(x), jnp.asarray(z))
    assert_close(ours, sk.ExpSineSquared(0.8, 1.9)(x, z))


def test_types_are_kept(name):
    at = report(name)
    narrow = lambda tree: jax.tree.map(lambda leaf: leaf.astype(np.float32), tree)
    kernel, x, z = narrow((at.kernel, jnp.asarray(at.x), jnp.asarray(at.z)))
    grad = jax.eval_shape(jax.value_and_grad(lambda k: k(x, z).sum()), kernel)
    shapes = jax.tree.leaves((grad, jax.eval_shape(kernel.diag, x)))
    assert all(s.dtype == np.float32 for s in shapes)
    leaves = jax.tree.leaves(at.kernel)
    assert not any(leaf.weak_type or leaf.dtype != np.float64 for leaf in leaves)


def test_parameters_are_narrow_where_64_bits_are_off():
    with jax.enable_x64(False):
        for value in (0.7, 1, EACH, np.float64(0.7), jnp.asarray(0.7), [1, 2]):
            for leaf in jax.tree.leaves(RationalQuadratic(value, 2, np.ones(()))):
                assert leaf.dtype == np.float32
                assert not leaf.weak_type


def test_kernels_add_and_multiply():
    x, z = jnp.asarray(points().x), jnp.asarray(points().z)
    a, b, c = RBF(0.8), Matern32(1.2), Linear(0.5)
    for one, other in (
        (a + b, b + a),
        (a * b, b * a),
        ((a + b) + c, a + (b + c)),
        (a * (b + c), a * b + a * c),
        (3 * a, a + 2 * a),
        (a * 3.0, Constant(3.0) * a),
        (a + 0.5, 0.5 + a),
        (jnp.asarray(2.0) * a, a + a),
    ):
        assert_close(one(x, z), other(x, z))
        assert_close(one.diag(x), other.diag(x))
    with pytest.raises(TypeError):
        a + "b"  # pyright: ignore


@pytest.mark.parametrize(
    "kernels",
    [
        [RBF(0.8), RBF(1.3, 2.0)],
        [RBF(EACH), RBF(EACH + 1)],
        [RBF(0.8), RBF(EACH), Linear(0.5) * Matern12(2.0)],
    ],
    ids=["alike", "each", "unlike"],
)
def test_separate_kernels_are_the_stack_of_each(kernels):
    x, z = jnp.asarray(points().x), jnp.asarray(points().z)

    @jax.jit
    def report(separate):
        alone = separate.kernels
        loss = lambda k: (k(x, z) ** 2).sum()
        return [
            (separate(x, z), jnp.stack([k(x, z) for k in alone])),
            (separate.diag(x), jnp.stack([k.diag(x) for k in alone])),
            (AbstractKernel.diag(separate, x), separate.diag(x)),
            *zip(
                jax.grad(loss)(separate).kernels,
                map(jax.grad(loss), alone),
                strict=True,
            ),
        ], separate(x, x)

    pairs, within = report(Separate(kernels))
    for one, other in pairs:
        assert_close(ravel_pytree(one)[0], ravel_pytree(other)[0])
    assert (within == within.mT).all()


def test_wrong_parameters_are_refused():
    for make in (
        lambda: RBF(0.0),
        lambda: RBF([1.0, -1.0]),
        lambda: Matern52(1.0, np.nan),
        lambda: RationalQuadratic(alpha=-1),
        lambda: Periodic(period=0),
        lambda: Polynomial(0),
        lambda: Polynomial(2, offset=0.0),
        lambda: Constant(-1.0),
        lambda: 0 * RBF(),
        lambda: OnInputs(RBF(), (0, 0)),
        lambda: OnInputs(RBF(), ()),
        lambda: OnInputs(RBF(), (-1,)),
        lambda: Separate([]),
    ):
        with pytest.raises(InputError):
            make()
    x = jnp.ones((4, 2))
    for kernel in (
        RBF(EACH),
        Periodic(period=EACH),
        Linear(EACH),
        Polynomial(2, EACH),
        OnInputs(RBF(), (2,)),
    ):
        with pytest.raises(InputError, match="2 columns"):
            kernel(x, x)


def test_parameters_may_be_traced_and_read_back():
    x = jnp.asarray(points().x)
    of = lambda ell: RBF(ell, 1.5)(x, x).sum()
    assert_close(jax.grad(of)(0.7), jax.grad(of)(jnp.asarray(0.7)))
    kernel = RationalQuadratic(EACH, 1.5, 0.7)
    assert_close(kernel.lengthscale, EACH)
    assert_close(jnp.stack([kernel.variance, kernel.alpha]), np.asarray([1.5, 0.7]))
    assert_close(Periodic(period=1.9).period, 1.9)
    polynomial = Polynomial(2, 0.8, 1.7, 0.4)
    read = [polynomial.lengthscale, polynomial.variance, polynomial.offset]
    assert_close(jnp.stack(read), np.asarray([0.8, 1.7, 0.4]))
