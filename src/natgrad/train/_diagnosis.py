"""Why a loss is not finite: which parameters, which rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from natgrad._text import listed
from natgrad.train._rules import Loss


NAMED = 5
"""How many parameters or rows are named before the rest is counted."""


def likely_cause(
    loss: Loss | None, params: PyTree, batch: PyTree, places: np.ndarray | None
) -> str:
    """The likely cause of a refused step, from its batch.

    `places` are the numbers of its rows in the table, if they are known.
    """
    causes = [_rows(_not_finite(batch), "with values that are not finite", places)]
    causes.append(_extremes(params))
    if loss is not None:
        causes.append(_slopes(loss, params, batch))
        if not causes[0]:
            bad = _bad_rows(loss, params, batch)
            weight = getattr(batch, "weight", None)
            if weight is not None:  # rows that fill a batch up have no loss
                bad = bad[np.asarray(weight)[bad] > 0]
            causes.append(_rows(bad, "without a finite loss by itself", places))
    return "; ".join(filter(None, causes)) or "no single row or parameter stands out"


def _not_finite(batch: PyTree) -> np.ndarray:
    """Which rows of a batch hold a number that is not finite."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(batch)]
    leaves = [leaf for leaf in leaves if np.issubdtype(leaf.dtype, np.floating)]
    flat = [~np.isfinite(leaf.reshape(len(leaf), -1)).all(-1) for leaf in leaves]
    return np.flatnonzero(np.any(flat, axis=0))


def _bad_rows(loss: Loss, params: PyTree, batch: PyTree) -> np.ndarray:
    """Which rows have a loss that is not finite when each is a batch of its own."""

    def of_row(row: PyTree) -> Any:
        return loss(params, jax.tree.map(lambda leaf: leaf[None], row))

    try:
        losses = jax.jit(lambda batch: jax.lax.map(of_row, batch))(batch)
    except Exception:  # such as of a random loss: the error at hand matters more
        return np.zeros(0, int)
    return np.flatnonzero(~np.isfinite(np.asarray(losses)))


def _slopes(loss: Loss, params: PyTree, batch: PyTree) -> str:
    """Which parameters have a gradient that is not finite."""
    try:
        grads = jax.jit(jax.grad(loss))(params, batch)
    except Exception:
        return ""
    named = jax.tree.leaves_with_path(grads)
    bad = [_name(path) for path, leaf in named if not jnp.isfinite(leaf).all()]
    if not bad:
        return ""
    if len(bad) == len(named):
        return "the gradient of every parameter is not finite"
    return f"the gradient of {listed(bad, NAMED)} is not finite"


def _extremes(params: PyTree) -> str:
    """Which parameters have grown beyond what their type can be squared to."""
    named = jax.tree.leaves_with_path(params)
    wide = lambda leaf: (
        jnp.issubdtype(leaf.dtype, jnp.floating)
        and (
            float(jnp.abs(leaf).max(initial=0))
            > float(jnp.finfo(leaf.dtype).max) ** 0.25
        )
    )
    bad = [_name(path) for path, leaf in named if wide(leaf)]
    return f"{listed(bad, NAMED)} is very large" if bad else ""


def _rows(rows: np.ndarray, fault: str, places: np.ndarray | None) -> str:
    if not len(rows):
        return ""
    where = "of the batch" if places is None else "of the table"
    numbers = rows if places is None else places[rows]
    return f"row{'s' * (len(rows) > 1)} {listed(numbers, NAMED)} {where} {fault}"


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path).lstrip(".")
