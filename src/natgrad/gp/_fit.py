"""Training a sparse Gaussian process: a model and data in, a trained model out."""

import functools
from collections.abc import Callable
from typing import Any, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array

from natgrad._guarded import guarded_ngd
from natgrad._optim import annealed
from natgrad.data._batches import (
    Arrays,
    Batch,
    Batches,
    IterableBatches,
    as_batch,
    as_batches,
    blocks,
)
from natgrad.data._parquet import Parquet
from natgrad.errors import InputError, InputWarning, warn
from natgrad.gp._baseline import worse
from natgrad.gp._few_rows import FADED, few, is_noisy
from natgrad.gp._profile import whole_rule
from natgrad.gp._sparse import SparseGP, elbo, work
from natgrad.gp._steps import alternating
from natgrad.gp.inducing import spacing
from natgrad.gp.likelihoods._rows import (
    check as check_targets,
    check_columns,
    log_predictives,
)
from natgrad.train._loop import CONVERGED, Fitted, run
from natgrad.train._options import Options
from natgrad.train._rules import RATE, Rule, averaged


BATCH = 256
"""How many rows a batch has by default."""

ROWS, WORK = 12_000, 1e9
"""Every step sees all rows of a table with at most this many rows and about this many
products in one evaluation, which takes a second or two. Larger tables use batches."""

SCORED = 1024
"""How many held-out rows are scored at a time."""

FACTOR = 3.0
"""What the rate of the inducing inputs is multiplied by."""


def fit(
    model: SparseGP,
    data: object,
    *,
    held_out: object = None,
    rule: Rule | None = None,
    batch_size: int | None = None,
    **options: Unpack[Options],
) -> Fitted:
    """Trains a model on data; returns it as `params`, and the `history` of the run.

    `data` is a pair (x, y) or a triple (x, y, weight) of arrays or frames, or an
    iterable of batches. `held_out` is another such pair: `fit` reports the mean log
    density of its targets, and returns the parameters that were best on it.

    On a small table `fit` sees all rows at every step. L-BFGS maximises the ELBO at its
    best q (the profile), so the ELBO never falls, and the run stops when too little is
    left to gain. On a larger table, or if you give a `batch_size`, it takes batches, of
    256 rows by default: each step is a guarded natural step on q and a step of Adam on
    the hyperparameters, and the model is an average over the last steps. `rule`
    replaces all of it. natgrad warns if real targets have too few rows to separate
    noise from signal, or if the fit is worse than a Student-t distribution of the
    targets alone.

    `options` are those of `natgrad.train.Options`: `steps` or `minutes`, `patience`,
    `log`, `checkpoint`, `resume`, `progress` and so on.

    Raises:
        InputError: If the model or the data cannot be used: shapes that do not fit,
            values that are not finite, targets that the likelihood does not allow.
        FitError: If the ELBO stays not finite for several steps.

    >>> fitted = gp.fit(model, (x, y), progress=False)
    >>> fitted.history.reason
    'converged'
    >>> print(f"{fitted.params.likelihood.variance ** 0.5:.1f}")  # of the noise
    0.1
    """
    if not isinstance(model, SparseGP):
        raise InputError(
            f"the model is a {type(model).__name__}; it should be a SparseGP, such as "
            "gp.initialize(x, likelihood) makes"
        )
    if rule is not None and not isinstance(rule, Rule):
        raise InputError(
            f"the rule is a {type(rule).__name__}; it should be a Rule, such as "
            "alternating(natural, ordinary) and natgrad.train.in_turn make"
        )
    is_free = rule is None and batch_size is None and not isinstance(data, Batches)
    if held_out is not None:
        if "score" in options:
            raise InputError("held_out and score are both given; give one of them")
        options["score"] = _score(model, as_batch(held_out))
    batches = as_batches(data, batch_size or BATCH, options.get("seed", 0))
    check_batches(model, batches)
    num_data, whole = batches.num_data, None
    loss = lambda model, batch: -elbo(model, batch, num_data)
    if is_free and isinstance(batches, Arrays) and fits_at_once(model, batches.total):
        batches = batches.whole()
        whole, rule = batches.columns, whole_rule(model, batches.total)
    elif rule is None:
        rule = default_rule(None, None)._replace(sized=default_rule)
    likelihood = type(model.likelihood.observed).__name__
    chosen = {"num_inducing": len(model.inducing), "likelihood": likelihood}
    options["config"] = (options.get("config") or {}) | chosen
    fitted = run(rule, model, batches, loss=loss, **options)
    if whole is not None and is_noisy(model.likelihood, whole):
        _warn_of_doubts(fitted, whole)
    return fitted


def _warn_of_doubts(fitted: Fitted, rows: Batch) -> None:
    """Warns if a fit of real targets may be worse than no fit."""
    model, doubt = fitted.params, None
    counted = np.asarray(rows.weight) > 0
    x, y = np.asarray(rows.x)[counted], np.asarray(rows.y)[counted]
    if len(y) < FADED:
        distinct = len(np.unique(np.column_stack([x, y]), axis=0))
        leaves = jax.tree.leaves((model.kernel, model.likelihood, model.mean))
        doubt = few(distinct, sum(np.size(leaf) for leaf in leaves))
    if doubt is None and fitted.history.reason == CONVERGED:
        doubt = worse(fitted.history[-1].objective, rows.y, rows.weight)
    if doubt is not None:
        warn(doubt, InputWarning)


def fits_at_once(model: SparseGP, rows: int) -> bool:
    """Whether the table is small enough for every step to see all rows."""
    if jax.process_count() > 1:
        return False
    return rows <= ROWS and work(model, rows, len(model.inducing)) <= WORK


@functools.lru_cache(maxsize=64)
def default_rule(num_data: int | float | None, fraction: float | None) -> Rule:
    """One object for one size of data, so that it is compiled once.

    Without `num_data`, the weights of each batch should add up to those of all rows.
    """
    rule = alternating(guarded_ngd(fraction), default_hyperparameters(), num_data)
    rule = rule._replace(is_annealed=True, sized=None)
    return rule if fraction == 1 else averaged(rule)


def scale_by_spacing(factor: float = FACTOR) -> optax.GradientTransformation:
    """Scales the update of each inducing input by how far its nearest neighbour was.

    Adam's steps are as long as its rate whatever the gradient, and whether that is a
    short way for an inducing input depends on how the data lie.
    """

    def init(params: Any) -> Array:
        return spacing(params.inducing)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moves = factor * state[:, None] * updates.inducing
        return eqx.tree_at(lambda model: model.inducing, updates, moves), state

    return optax.GradientTransformation(init, update)


def default_hyperparameters() -> optax.GradientTransformationExtraArgs:
    """What moves all but q by default.

    The page docs/explanation/hyperparameters.md says why.
    """
    return annealed(optax.chain(optax.scale_by_adam(), scale_by_spacing()), RATE)


def check_batches(model: SparseGP, batches: Batches) -> None:
    """Raises an error unless the model can be trained on what is known of batches."""
    if isinstance(batches, Arrays):
        check(model, batches.columns, "data")
    elif isinstance(batches, IterableBatches):
        check_shapes(model, batches.first, "the first batch")
    elif isinstance(batches, Parquet):
        check_shapes(model, batches.empty, "the table")
    if batches.num_data is None:
        raise InputError(
            "the ELBO needs the total number of rows, which batches do not show: give "
            "natgrad.data.IterableBatches(batches, num_data)"
        )


def check_shapes(model: SparseGP, batch: object, name: str) -> None:
    """Raises an error unless a batch has inputs and targets of the model."""
    if not isinstance(batch, Batch):
        raise InputError(
            f"{name} is a {type(batch).__name__}; it should be a pair (x, y) or a "
            "triple (x, y, weight), in a tuple"
        )
    (x, y, weight, columns), width = batch, model.inducing.shape[1]
    if x.ndim != 2 or x.shape[1] != width:
        raise InputError(
            f"the inputs of {name} have shape {list(x.shape)}; they should be rows of "
            f"{width}, as the inducing inputs are"
        )
    outputs = model.likelihood.outputs
    if y.shape != (*x.shape[:1], *(() if outputs is None else (outputs,))):
        raise InputError(
            f"the targets of {name} have shape {list(y.shape)}; they should be "
            f"{outputs or 'one'} for each of the {len(x)} rows"
        )
    check_columns(model.likelihood, columns, len(x))
    if weight is not None and weight.shape != x.shape[:1]:
        raise InputError(
            f"the weights of {name} have shape {list(weight.shape)}; they should be "
            f"one for each of the {len(x)} rows"
        )
    if y.dtype.kind in "OSUMm":
        raise InputError(
            f"the targets of {name} are {y.dtype}; they should be numbers, and labels "
            "0, 1, 2, ..."
        )
    if not np.issubdtype(x.dtype, np.number):
        raise InputError(f"the inputs of {name} are {x.dtype}; they should be numbers")


def check(model: SparseGP, batch: Any, name: str) -> None:
    """Raises an error that says why the model cannot be trained on a table."""
    check_shapes(model, batch, name)
    x, y, weight, columns = batch
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"the inputs of {name} have {bad.sum()} values that are not finite, the "
            f"first in row {row}, column {column}; drop or impute them"
        )
    check_targets(model.likelihood, y, columns)
    if weight is not None and not ((weight >= 0) & np.isfinite(weight)).all():
        raise InputError(f"the weights of {name} should be finite and not negative")
    if weight is not None and not weight.any():
        raise InputError(f"the weights of {name} are all 0; some should be positive")


def _score(model: SparseGP, held_out: Batch) -> Callable[[SparseGP], Array]:
    """The mean log density of held-out targets, as a function of the model."""
    check(model, held_out, "held_out")
    scored = blocks(held_out, SCORED)

    def score(model: SparseGP) -> Array:
        def block(rows: Batch) -> Array:
            latent = model.marginals(jnp.asarray(rows.x))
            values = log_predictives(model.likelihood, *latent, rows)
            return jnp.asarray(rows.weight, values.dtype) @ values

        rows = jax.tree.map(jnp.asarray, scored)
        return lax.map(block, rows).sum() / np.asarray(scored.weight).sum()

    return score
