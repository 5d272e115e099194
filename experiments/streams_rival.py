"""The memory-based dual Gaussian process of Chang, Verma, John, Solin and Khan (2023).

Its rule for each piece, as the paper and the authors' code have it:

- inducing inputs are pivots of a Cholesky decomposition of the kernel at the old ones
  and the new rows, always the same number of them;
- the sites of rows that are gone move there by a projection; those of the new rows and
  of the rows in memory are found again;
- Adam moves the hyperparameters, 100 steps of 0.01. The sites stay, as λ and Λ in
  q = N(K (K + Λ)⁻¹ λ, K (K + Λ)⁻¹ K), and the rows in memory stand for all old rows;
- rows enter the memory at random, in proportion to their Bayesian leverage score.

The authors keep 5 or 10 rows of each piece, and take 2 to 4 damped natural steps to
find sites. Here it is given as many rows in the end as natgrad keeps, each at most
once, and natural steps until they gain nothing.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array

from natgrad import gp
from natgrad.data._batches import Batch, pad_rows, padded
from natgrad.gp._following import expected, old_sites, remembered, transfer
from natgrad.gp._profile import total_weight
from natgrad.gp._sites import Sites, condition, project, sites_at, to_sites, together
from natgrad.gp._sparse import (
    SparseGP,
    marginals,
    prior_inverse,
    projected_elbo,
    with_posterior,
)
from natgrad.gp.inducing import pivoted
from natgrad.train._profile import NATURAL_TOLERANCE, minimize_distributions


STEPS, RATE = 100, 0.01
"""Of Adam on each piece, as in the authors' commands."""

ROOM = 1024
"""Rows of memory that programs are compiled for."""


class MemoryBased(gp.Online):
    """A model that learns from pieces by this rule; `memory` rows of each are kept."""

    def update(self, data: Any) -> "MemoryBased":
        piece: Any = Batch(*data)
        memory: Any = self.rows
        rows = jax.tree.map(lambda a, b: np.concatenate([a, b]), memory, piece)
        known, number = len(memory.x), len(rows.x)
        capacity = ROOM + len(padded(piece).x)
        filled: Any = pad_rows(rows, capacity)
        is_new = np.zeros(capacity)
        is_new[known:number] = 1
        # Rows in memory count for all old ones when hyperparameters are learned.
        counts = np.where(is_new, 1, self.num_data / known) * filled.weight
        placed = _placed(self.model, piece.x, self.num_inducing)
        model, dual, leverage = _learned(placed, self.model, self.sites, filled, counts)
        kept = known + _drawn(leverage[known:number], self.memory, self.count)
        is_new[kept] = 0  # what is left of them leaves
        stays = np.append(np.arange(known), kept)
        return MemoryBased(
            model,
            self.num_data + float(piece.weight.sum()),
            0.0,
            self.count + len(piece.x),
            0.0,
            0.0,
            _gone(model, dual, is_new),
            0.0,
            jax.tree.map(lambda column: column[stays], rows),
            self.keys,
            self.num_inducing,
            self.memory,
            None,
            self.seed,
        )


def begun(model: SparseGP, rows: Any, num_inducing: int, memory: int) -> MemoryBased:
    """A model that was trained on some rows, of which it keeps `memory`."""
    leverage = _leverage(model, rows)
    kept = _drawn(leverage, memory, 0)
    leaves = np.ones(len(rows.x))
    leaves[kept] = 0
    nothing = jax.tree.map(jnp.zeros_like, to_sites(model))
    sites, _ = remembered(model, model, nothing, np.zeros(()), rows, leaves, leaves)
    stay = jax.tree.map(lambda column: np.asarray(column)[kept], rows)
    number = len(rows.x)
    seen_so_far = (float(rows.weight.sum()), 0.0, number, 0.0, 0.0)
    kinds = (num_inducing, memory, None, 0)
    return MemoryBased(model, *seen_so_far, sites, 0.0, stay, np.zeros(0), *kinds)


def _drawn(leverage: Any, number: int, seed: int) -> np.ndarray:
    """Different rows, each as likely as its leverage is high."""
    chance = np.maximum(np.asarray(leverage, float), 1e-300)
    rng = np.random.default_rng(seed)
    number = min(number, len(chance))
    return rng.choice(len(chance), number, replace=False, p=chance / chance.sum())


def _placed(model: SparseGP, x: np.ndarray, number: int) -> SparseGP:
    """The model with inducing inputs among the old ones and new rows."""
    candidates = jnp.concatenate([model.inducing, jnp.asarray(x)])
    chosen = np.asarray(pivoted(model.kernel, candidates, 1.0, number).chosen)
    chosen = chosen[chosen >= 0]
    mean, prior = model.mean, model.log_prior
    z = candidates[chosen]
    return SparseGP(model.kernel, model.likelihood, z, mean=mean, log_prior=prior)


class Dual(NamedTuple):
    """λ and Λ of rows that are gone, and what the others add to them."""

    old: Sites
    cross: Array
    sites: Sites


@eqx.filter_jit
def _learned(model: Any, before: Any, sites: Sites, rows: Any, counts: Any) -> Any:
    """The model after a piece, all sites, and the leverage of each row."""
    old, there = old_sites(before, sites), model.project(rows.x)
    view, constant, _ = transfer(model, old, model.project(old.x))

    def loss(q: Any) -> Array:
        bound = projected_elbo(with_posterior(model, q), there, rows)
        return -bound - expected(q, view) - constant

    first = condition(model.posterior, view, there.inverse)
    tolerance = NATURAL_TOLERANCE * total_weight(rows)
    q = minimize_distributions(loss, first, tolerance).params
    found = sites_at(with_posterior(model, q), there, rows)
    known = together(view, project(there.over_q, found))
    root = jnp.linalg.inv(prior_inverse(model))
    held = lambda sites: Sites(root @ sites[0], root @ sites[1] @ root.mT)
    model = _adam(model, held(known), rows._replace(weight=counts))
    dual = Dual(held(view), root @ there.features, found)
    return model, dual, _leverage(model, rows)


def _adam(model: Any, held: Sites, rows: Any) -> Any:
    """The model after steps of Adam on its hyperparameters."""
    fields = lambda model: (model.kernel, model.likelihood)
    trained, fixed = eqx.partition(fields(model), eqx.is_inexact_array)

    def whole(trained: Any) -> Any:
        moved = eqx.tree_at(fields, model, eqx.combine(trained, fixed))
        return with_posterior(moved, condition(moved.posterior, _at(moved, held)))

    def loss(trained: Any) -> Array:
        moved = whole(trained)
        return -projected_elbo(moved, moved.project(rows.x), rows)

    rule = optax.adam(RATE)

    def step(carry: Any, _: Any) -> Any:
        trained, state = carry
        updates, state = rule.update(jax.grad(loss)(trained), state, trained)
        return (optax.apply_updates(trained, updates), state), None

    (trained, _), _ = lax.scan(step, (trained, rule.init(trained)), length=STEPS)
    return whole(trained)


def _at(model: Any, held: Sites) -> Sites:
    """What λ and Λ add to the prior of a model."""
    return project(prior_inverse(model), held)


@eqx.filter_jit
def _leverage(model: Any, rows: Any) -> Array:
    """The posterior variance of f at each row times the precision of its site."""
    there = model.project(jnp.asarray(rows.x))
    _, var = marginals(model.posterior, there)
    return var * sites_at(model, there, rows).precision


@eqx.filter_jit
def _gone(model: Any, dual: Dual, leaves: Any) -> Sites:
    """The sites of all rows that are gone, once some more leave."""
    gone = jax.tree.map(lambda each: leaves * each, dual.sites)
    return _at(model, together(dual.old, project(dual.cross, gone)))
