"""What the optimizers leave alone, what they notice and what they report."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad._guarded import _fingerprint
from natgrad.families import diagonal, gaussian
from natgrad.linalg import Full
from natgrad.positive import Log, Plain


GOAL = diagonal.Moments(jnp.ones(1), Plain(jnp.full(1, 0.01)))
START = diagonal.Moments(jnp.zeros(1), Plain(jnp.ones(1)))


def loss(params):
    return params["q"].kl(GOAL) + params["noise"] ** 2


@pytest.mark.parametrize("make", [natgrad.ngd, natgrad.mirror_descent])
def test_leaves_that_belong_to_no_distribution_are_left_still(make):
    params = {"q": START, "noise": jnp.full((), 0.3, float)}
    tx = make(learning_rate=0.001)

    @jax.jit
    def change(params):
        updates, _ = tx.update(jax.grad(loss)(params), tx.init(params), params)
        return updates["noise"], loss(optax.apply_updates(params, updates))

    noise, after = change(params)
    assert noise == 0 and after < loss(params)


@pytest.mark.parametrize(
    "make, weight", [(natgrad.ngd, 1), (natgrad.mirror_descent, -2)]
)
def test_a_step_that_is_not_finite_is_counted_in_the_state(make, weight):
    tx = make(learning_rate=1.0)
    start, goal = (
        gaussian.Moments(jnp.zeros(1), Full(jnp.full((1, 1), size)))
        for size in (1.0, 0.01)
    )
    outward = lambda q: weight * q.kl(goal)  # a step of size 1 leaves the family

    @jax.jit
    def step(q, state):
        updates, state = tx.update(jax.grad(outward)(q), state, q)
        return optax.apply_updates(q, updates), state

    q, state = start, tx.init(start)
    for _ in range(3):
        q, state = step(q, state)
    assert state.steps == 3
    assert state.not_finite >= 2 and not np.isfinite(q.mean).all()


def test_hyperparameters_that_change_places_are_noticed():
    here = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(0.5)}
    swapped = {"a": jnp.asarray([2.0, 1.0]), "b": jnp.asarray(0.5)}
    across = {"a": jnp.asarray([0.5, 2.0]), "b": jnp.asarray(1.0)}
    prints = [int(_fingerprint(tree)) for tree in (here, swapped, across)]
    assert len(set(prints)) == 3
    moved = {**here, "b": jnp.asarray(0.5 + 1e-16 + 2.0**-52)}
    assert int(_fingerprint(moved)) != prints[0]
    # Distributions are not part of it.
    assert int(_fingerprint({**here, "q": START})) == int(
        _fingerprint({**here, "q": GOAL})
    )


def step_sizes(tx, steps: int = 3) -> list[float]:
    """The sizes of steps on a conjugate loss, each of which is accepted."""
    loss = lambda q: q.kl(GOAL)

    def body(carry, _):
        q, state = carry
        value, grads = jax.value_and_grad(loss)(q)
        updates, state = tx.update(grads, state, q, value=value, value_fn=loss)
        return (optax.apply_updates(q, updates), state), state.step_size

    run = lambda q: jax.lax.scan(body, (q, tx.init(q)), length=steps)[1]
    return jax.jit(run)(START).tolist()


def test_a_loss_that_draws_random_numbers_can_be_called_noisy():
    whole, noisy = natgrad.guarded_ngd(1.0), natgrad.guarded_ngd(1.0, is_noisy=True)
    assert step_sizes(whole) == [1, 1, 1]
    assert step_sizes(noisy) == pytest.approx([1, 1.5 / 2.5, 1.5 / 3.5])


def test_a_fit_knows_that_a_loss_with_a_key_is_noisy():
    q = diagonal.Moments(jnp.zeros(1), Log(jnp.zeros(1)))

    def drawn(q, batch, key):
        u = q.mean + jnp.sqrt(q.variances()) * jax.random.normal(key, (1,))
        return q.kl(START) + jnp.sum((u - 1.0) ** 2) + 0 * batch.sum()

    fitted = natgrad.fit(drawn, q, np.ones(4), steps=4, log_every=1, progress=False)
    sizes = [record.step_size for record in fitted.history]
    assert sizes[-1] <= 1.5 / 4.5
