"""Rows of targets, and the columns that come with them: an exposure, trials, bounds.

`offset` is added to f, of any likelihood. An `exposure` is an offset of its logarithm,
for likelihoods where y is proportional to exp(f). All others are fields of the
likelihood, which are None until a row sets them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.data._batches import Batch, Columns
from natgrad.errors import InputError
from natgrad.gp.likelihoods._base import AbstractLikelihood, require


def with_columns(
    likelihood: AbstractLikelihood, f: Array, columns: Columns
) -> tuple[Any, Array]:
    """The likelihood of one row and its f (or mean of f), given its columns.

    An offset is added to f, or to the first of several.
    """
    columns = {name: jnp.asarray(each, f.dtype) for name, each in columns.items()}
    offset = columns.pop("offset", None)
    exposure = columns.pop("exposure", None)
    for shift in (offset, None if exposure is None else jnp.log(exposure)):
        if shift is not None:
            f = f.at[0].add(shift) if f.ndim else f + shift
    return likelihood.given(**columns), f


def shifted(f: np.ndarray, columns: Columns) -> np.ndarray:
    """f of all rows, or of the first latent function, with offset and exposure."""
    offset = np.zeros(len(f)) + columns.get("offset", 0)
    offset += np.log(columns.get("exposure", 1))
    f = f.copy()
    f.reshape(len(f), -1)[:, 0] += offset
    return f


def by_row(
    likelihood: AbstractLikelihood, method: Callable[..., Any], axis: int = 0
) -> Callable[..., Any]:
    """A method of one row as a function of many: of means, variances, columns, others.

    `axis` is the one of the rows in the means and variances.
    """

    def each(mean: Array, var: Array, columns: Columns, *others: Array) -> Any:
        own, mean = with_columns(likelihood, mean, columns)
        return method(own, mean, var, *others)

    def all_rows(mean: Array, var: Array, columns: Columns, *others: Array) -> Any:
        axes = (axis, axis, *(0 for _ in (columns, *others)))
        return jax.vmap(each, axes)(mean, var, columns, *others)

    return all_rows


def expected_log_probs(
    likelihood: AbstractLikelihood, mean: Array, var: Array, batch: Batch
) -> Float[Array, " B"]:
    """E[log p(y | f)] of each row; the rows of f are its last axis."""
    y, columns = jax.tree.map(jnp.asarray, (batch.y, batch.columns))
    method = type(likelihood).expected_log_prob
    return by_row(likelihood, method, -1)(mean, var, columns, y)


def log_predictives(
    likelihood: AbstractLikelihood, mean: Array, var: Array, batch: Batch
) -> Float[Array, " B"]:
    """log E[p(y | f)] of each row; the rows of f are its last axis.

    Of several outputs it is the sum of those that were observed.
    """
    y, columns = jax.tree.map(jnp.asarray, (batch.y, batch.columns))
    method = type(likelihood).log_predictive
    each = by_row(likelihood, method, -1)(mean, var, columns, y)
    return each if each.ndim == 1 else jnp.where(jnp.isnan(y), 0, each).sum(1)


def check(likelihood: AbstractLikelihood, y: Any, columns: Columns) -> None:
    """Raises an `InputError` if the likelihood does not allow a target or a column."""
    y, columns = jax.tree.map(np.asarray, (y, columns))
    check_columns(likelihood, columns, len(y))
    columns = {name: columns[name] for name in likelihood.columns if name in columns}
    likelihood.given(**columns).check(y)


def check_columns(likelihood: AbstractLikelihood, columns: Columns, rows: int) -> None:
    """Raises an `InputError` unless the likelihood takes these columns."""
    known = ("offset", *(("exposure",) if likelihood.has_exposure else ()))
    known = (*likelihood.columns, *known)
    if likelihood.outputs is not None and columns:
        raise InputError(
            f"{type(likelihood).__name__} takes no columns with its targets, and there "
            f"is {next(iter(columns))!r}"
        )
    for name, column in columns.items():
        if name not in known:
            raise InputError(
                f"{type(likelihood).__name__} takes no column {name!r} with its "
                f"targets; it takes {', '.join(map(repr, known))}"
            )
        if np.shape(column) != (rows,):
            raise InputError(
                f"the column {name!r} has shape {list(np.shape(column))}; it should be "
                f"one number for each of the {rows} targets"
            )
    if "offset" in columns:
        offset = np.asarray(columns["offset"])
        require(np.isfinite(offset), offset, "offsets should be finite", "offsets")
    if "exposure" in columns:
        exposure = np.asarray(columns["exposure"])
        good = np.isfinite(exposure) & (exposure > 0)
        require(good, exposure, "exposures should be finite and above 0", "exposures")
