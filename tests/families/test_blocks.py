"""A batch of Gaussians is a Gaussian of block-diagonal covariance."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import block_diag

import natgrad
from natgrad.families import gaussian
from natgrad.linalg import Sqrt
from tests.points import assert_close, covariance, vector


BLOCKS, SIZE = 3, 2
MEAN = jnp.stack([vector(SIZE, seed) for seed in range(BLOCKS)])
ROOT = jnp.linalg.cholesky(
    jnp.stack([covariance(SIZE, seed) for seed in range(BLOCKS)])
)
Q = gaussian.Moments(MEAN, Sqrt(ROOT))
PRIOR = gaussian.Moments(
    jnp.zeros((BLOCKS, SIZE)), Sqrt(jnp.stack([2 * jnp.eye(SIZE)] * BLOCKS))
)


def as_one(q):
    """The same distribution as one Gaussian of all numbers."""
    return gaussian.Moments(q.location().ravel(), Sqrt(block_diag(*q.factor())))


def coupled(mean, cov, kl):
    """A loss that ties the blocks together, of the means and the blocks of S."""
    across = jnp.sin(mean[0] @ mean[1]) + jnp.cos(jnp.sum(mean[2] * cov[0]))
    return kl + across + jnp.sum(jnp.sqrt(jnp.trace(cov, axis1=-2, axis2=-1)))


def of_blocks(q):
    return coupled(q.location(), q.covariance(), q.kl(PRIOR).sum())


def of_one(q):
    square = q.covariance().reshape((BLOCKS, SIZE, BLOCKS, SIZE))
    blocks = jnp.stack([square[k, :, k] for k in range(BLOCKS)])
    mean = q.location().reshape((BLOCKS, SIZE))
    return coupled(mean, blocks, q.kl(as_one(PRIOR)))


def stepped(loss, q, steps: int = 3):
    tx = natgrad.guarded_ngd()

    def step(carry, _):
        q, state = carry
        value, grad = jax.value_and_grad(loss)(q)
        seen = {"value": value, "grad": grad, "value_fn": loss}
        updates, state = tx.update(grad, state, q, **seen)
        return (optax.apply_updates(q, updates), state), value

    with jax.numpy_rank_promotion("allow"):
        run = jax.jit(lambda q: jax.lax.scan(step, (q, tx.init(q)), length=steps))
        return run(q)


def test_its_values_are_sums_over_the_blocks():
    draws = Q.sample(jax.random.key(0), (4,))
    assert draws.shape == (4, BLOCKS, SIZE)
    one, flat = as_one(Q), draws.reshape((4, BLOCKS * SIZE))
    assert_close(Q.log_prob(draws).sum(-1), one.log_prob(flat))
    assert_close(Q.entropy().sum(), one.entropy())
    assert_close(Q.kl(PRIOR).sum(), one.kl(as_one(PRIOR)))


def test_its_guarded_steps_are_those_of_the_one_gaussian():
    (blocks, state), values = stepped(of_blocks, Q)
    (one, of_state), of_values = stepped(of_one, as_one(Q))
    assert_close(values, of_values)
    assert values[-1] < values[0] - 0.1
    assert state.step_size == of_state.step_size
    assert_close(as_one(blocks).mean, one.mean, rtol=1e-8)
    assert_close(as_one(blocks).covariance(), one.covariance(), rtol=1e-8)
    outside = one.covariance() * (1 - np.kron(np.eye(BLOCKS), np.ones((SIZE, SIZE))))
    assert jnp.abs(outside).max() < 1e-12
