"""The candidates of hyperparameters.py."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from natgrad import gp
from natgrad._optim import on_hyperparameters
from natgrad.data import Batch
from natgrad.gp._steps import AlternatingState
from natgrad.train import Rule


class Candidate(NamedTuple):
    """An optimizer, and the rate it has at each of so many steps.

    `inducing` is what the rate of the inducing inputs is multiplied by; `spread` and
    `near` say in which units they move, see `in_units`.
    """

    optimizer: str
    rates: Callable[[int], Any]
    b1: float = 0.9
    b2: float = 0.999
    inducing: float = 1.0
    spread: float = 0.0
    near: float = 0.0
    on_plateau: bool = False
    form: str = "ordinary"


def rates_of(schedule: Callable[[int], optax.Schedule]) -> Callable[[int], Any]:
    return lambda steps: np.asarray(jax.vmap(schedule(steps))(jnp.arange(steps)))


def constant(rate: float) -> Callable[[int], Any]:
    return lambda steps: np.full(steps, rate)


def cosine(rate: float) -> Callable[[int], Any]:
    return rates_of(lambda steps: optax.cosine_decay_schedule(rate, steps))


def candidates() -> dict[str, Candidate]:
    table = {}
    for rate in (0.1, 0.03, 0.01, 0.003):
        at = lambda **more: Candidate("Adam", cosine(rate), **more)  # noqa: B023
        table |= {
            f"constant {rate}": Candidate("Adam", constant(rate)),
            f"cosine {rate}": at(),
            f"near {rate}": at(near=1.0),
            f"near {rate}, Z 3": at(near=1.0, inducing=3.0),
            f"cosine {rate}, Z 0.3": at(inducing=0.3),
            f"cosine {rate}, Z 0.1": at(inducing=0.1),
            f"spread {rate}": at(spread=1.0),
            f"spread {rate}, Z 0.3": at(spread=1.0, inducing=0.3),
            f"cosine {rate}, b1 0.99": at(b1=0.99),
            f"cosine {rate}, b2 0.99": at(b2=0.99),
            f"cosine {rate}, b2 0.9999": at(b2=0.9999),
            f"dual cosine {rate}": at(form="dual"),
            f"dual near {rate}": at(form="dual", near=1.0),
            f"plateau {rate}": Candidate("Adam", constant(rate), on_plateau=True),
            f"schedule-free {rate}": Candidate("schedule-free", constant(rate)),
        }
    table["Prodigy, cosine"] = Candidate("Prodigy", cosine(1.0))
    return table


class UnitState(NamedTuple):
    """The units of the inducing inputs, and the state of what moves them."""

    root: Any
    distance: Any
    inner: optax.OptState


def in_units(
    tx: optax.GradientTransformation, factor: Any, spread: Any, near: Any
) -> optax.GradientTransformation:
    """Gives the inducing inputs units, and a rate, of their own.

    With `spread`, `tx` acts on W, where Z = W Cᵀ and C Cᵀ is the covariance of Z at the
    start. With `near`, each row moves in units of how far it is from the nearest other
    one at the start, as a root mean square over the columns.
    """
    at = lambda model: model.inducing

    def init(params: Any) -> UnitState:
        z = params.inducing
        centred = z - z.mean(0, keepdims=True)
        values, vectors = jnp.linalg.eigh(centred.T @ centred / len(z))
        values = jnp.maximum(values, 0) + 1e-6 * values.mean()
        squared = ((z[:, None] - z[None, :]) ** 2).mean(-1)
        squared = jnp.where(jnp.eye(len(z), dtype=bool), jnp.inf, squared)
        root = vectors * jnp.sqrt(values)[None, :]
        return UnitState(root, jnp.sqrt(squared.min(1)), tx.init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, UnitState]:
        unit = jnp.eye(len(state.root), dtype=state.root.dtype)
        root = jnp.where(spread > 0, state.root, unit)
        size = factor * jnp.where(near > 0, state.distance, 1.0)
        updates = eqx.tree_at(at, updates, updates.inducing @ root)
        updates, inner = tx.update(updates, state.inner, params)
        moves = size[:, None] * updates.inducing @ root.T
        return eqx.tree_at(at, updates, moves), state._replace(inner=inner)

    return optax.GradientTransformation(init, update)


MAKERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "Adam": lambda learning_rate, b1, b2, inducing, spread, near: in_units(
        optax.adam(learning_rate, b1, b2), inducing, spread, near
    ),
    "schedule-free": lambda learning_rate, b1, b2, inducing, spread, near: (
        optax.contrib.schedule_free_adamw(learning_rate, b1=b1, b2=b2)
    ),
    "Prodigy": lambda learning_rate, b1, b2, inducing, spread, near: (
        optax.contrib.prodigy(learning_rate, (b1, b2))
    ),
}
SETTINGS = {"b1": 0.9, "b2": 0.999, "inducing": 1.0, "spread": 0.0, "near": 0.0}


def dual_alternating(
    natural: optax.GradientTransformation,
    ordinary: optax.GradientTransformation,
    num_data: int,
) -> Rule:
    """`gp.alternating`, but for the sites held while the hyperparameters move."""
    natural = optax.with_extra_args_support(natural)
    ordinary = on_hyperparameters(ordinary)

    def with_posterior(model: gp.SparseGP, q: Any) -> gp.SparseGP:
        return eqx.tree_at(lambda model: model.posterior, model, q)

    def init(model: Any) -> AlternatingState:
        return AlternatingState(natural.init(model.posterior), ordinary.init(model))

    def step(model: Any, state: AlternatingState, batch: Batch, **extra: Any) -> Any:
        loss = lambda q: -gp.elbo(with_posterior(model, q), batch, num_data)
        value, grad = jax.value_and_grad(loss)(model.posterior)
        updates, natural_state = natural.update(
            grad,
            state.natural,
            model.posterior,
            value=value,
            grad=grad,
            value_fn=loss,
            rest=with_posterior(model, None),
            **extra,
        )
        model = with_posterior(model, optax.apply_updates(model.posterior, updates))
        sites = gp.to_sites(model)
        dual_loss = lambda model: -gp.dual_elbo(model, sites, batch, num_data)
        updates, ordinary_state = ordinary.update(
            jax.grad(dual_loss)(model), state.ordinary, model
        )
        moved: Any = optax.apply_updates(model, updates)
        carried = gp.with_sites(moved, sites)
        # Sites of negative precision may not fit another prior: q stays, whitened.
        is_inside = carried.posterior.is_inside().all()
        leaves = jax.tree.leaves(carried.posterior)
        is_inside &= jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()
        choose = lambda new, old: jnp.where(is_inside, new, old)
        model = jax.tree.map(choose, carried, moved)
        return model, AlternatingState(natural_state, ordinary_state), value

    return Rule(init, step)
