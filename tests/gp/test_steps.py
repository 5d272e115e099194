"""Laws of a step of the sparse GP."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad.data import Batch
from natgrad.gp import SparseGP, alternating, elbo, kernels, likelihoods


ROWS, SIZE = 30, 8
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.uniform(-2, 2, (ROWS, 2)))
Y = np.sin(2 * X).sum(-1) + 0.3 * RNG.standard_normal(ROWS)
CLASSES = jnp.asarray(np.digitize(Y, [-0.5, 0.5]))


def model_of(kind: str, is_whitened: bool = True) -> SparseGP:
    likelihood = likelihoods.RobustMax(3) if kind == "classes" else LIKELIHOODS[kind]
    kernel = kernels.Matern52([0.8, 1.1], 1.3)
    return SparseGP(kernel, likelihood, X[:SIZE], is_whitened=is_whitened)


LIKELIHOODS = {
    "Gaussian": likelihoods.Gaussian(0.3),
    "Student-t": likelihoods.StudentT(0.4),
}


def batch_of(kind: str, rows: int = ROWS) -> Batch:
    y = CLASSES if kind == "classes" else jnp.asarray(Y)
    return Batch(X[:rows], y[:rows])


CASES = pytest.mark.parametrize(
    "kind, rows, is_whitened",
    [
        ("Student-t", 30, True),
        ("Student-t", 5, True),
        ("Student-t", 30, False),
        ("classes", 30, True),
    ],
)
NATURAL, ORDINARY = natgrad.mirror_descent(0.1), optax.sgd(1e-3)


def assert_same_step(scheme, optimizers, model, batch):
    """A scheme takes a step of each optimizer, one after another."""
    ours, _, loss = eqx.filter_jit(scheme.step)(model, scheme.init(model), batch)

    @eqx.filter_jit
    def by_hand(model):
        bound = elbo(model, batch, 90)
        for tx in optimizers:
            grads = jax.grad(lambda model: -elbo(model, batch, 90))(model)
            updates, _ = tx.update(grads, tx.init(model), model)
            model = optax.apply_updates(model, updates)
        return model, bound

    theirs, expected = by_hand(model)
    np.testing.assert_allclose(loss, -expected, rtol=1e-10)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@CASES
def test_alternating_is_a_natural_step_and_then_an_ordinary_one(
    kind, rows, is_whitened
):
    model, batch = model_of(kind, is_whitened), batch_of(kind, rows)
    in_turn = [natgrad.split(NATURAL, None), natgrad.split(None, ORDINARY)]
    assert_same_step(alternating(NATURAL, ORDINARY, 90), in_turn, model, batch)


def test_a_guarded_step_solves_a_conjugate_model_and_then_only_improves():
    model, batch = model_of("Gaussian"), batch_of("Gaussian")
    scheme = alternating(natgrad.guarded_ngd(batch_fraction=1.0), optax.adam(0.03))

    @jax.jit
    def run(model, state):
        def body(carry, _):
            model, state, loss = scheme.step(*carry, batch)
            return (model, state), (loss, state.natural.step_size)

        return jax.lax.scan(body, (model, state), None, length=20)[1]

    with jax.numpy_dtype_promotion("standard"):  # Adam promotes inside Optax
        losses, sizes = run(model, scheme.init(model))
    assert (np.diff(losses) < 0).all()
    np.testing.assert_array_equal(sizes, 1.0)


def test_factors_are_shared_by_both_halves():
    model, batch = model_of("Student-t"), batch_of("Student-t")
    scheme = alternating(natgrad.mirror_descent(0.1), optax.sgd(1e-3), 90)
    lowered = jax.jit(scheme.step).lower(model, scheme.init(model), batch)
    # One for k(Z, Z), one for when it fails, and one for the natural step.
    assert lowered.compile().as_text().count('"lapack_dpotrf_ffi"') == 3
