"""Fit a NumPyro model in one call."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree
from numpyro.infer import SVI, Trace_ELBO

from natgrad._runtime.programs import LONG_RUN, SHORT_RUN, filter_jit
from natgrad.errors import FitError, InputError
from natgrad.numpyro._blocks import Family
from natgrad.numpyro._guide import AutoNatural
from natgrad.numpyro._optimizer import RATE, optimizer


SMALL = 100_000
"""Numbers in the data up to which compiling takes longer than the steps."""


class FitResult(NamedTuple):
    """The fields of NumPyro's `SVIRunResult`, the guide, and whether it converged."""

    params: dict[str, Any]
    state: Any
    losses: np.ndarray
    guide: AutoNatural
    has_converged: bool


def fit(
    model: Callable[..., Any],
    *args: object,
    rng_key: Array | None = None,
    family: str | Family | None = None,
    families: Mapping[str, str] | None = None,
    steps: int = 1000,
    tolerance: float = 0.01,
    draws: int | None = None,
    learning_rate: float = RATE,
    **kwargs: Any,
) -> FitResult:
    """Fits a Gaussian to the posterior of a NumPyro model and stops by itself.

    `args` and `kwargs` are those of the model. The run ends when the ELBO is estimated
    to be within `tolerance` nats of its optimum, or after `steps` steps. `family` and
    `families` are those of `AutoNatural`; `draws` and `learning_rate` are those of
    `optimizer`.

    The result has the fields of NumPyro's `SVIRunResult` (`params`, `state` and
    `losses`, the loss of each step), the `guide`, and `has_converged`, which is False
    if the run was stopped by `steps`. Pass `result.guide` and `result.params` to
    NumPyro's `Predictive`.

    Raises:
        InputError: If `steps` is not positive.
        FitError: If the loss is not finite at the end.

    >>> import numpyro
    >>> from numpyro import distributions as dist
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
    >>> result = natgrad.numpyro.fit(model, 10.0)
    >>> print(f"{result.guide.median(result.params)['x']:.2f}")  # exact: 8
    8.00
    """
    if steps < 1:
        raise InputError(f"steps is {steps}; it should be positive")
    guide = AutoNatural(model, family=family, families=families)
    svi = SVI(model, guide, optimizer(draws, learning_rate), Trace_ELBO())
    key = jax.random.key(0) if rng_key is None else rng_key
    state = svi.init(key, *args, **kwargs)

    def is_going(carry: tuple[Any, Any, Any]) -> Any:
        state, _, count = carry
        excess = state.optim_state[1][1].excess.mean()
        return (count < steps) & ~(excess <= tolerance)

    def body(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        state, losses, count = carry
        state, loss = svi.update(state, *args, **kwargs)
        return state, losses.at[count].set(loss.astype(losses.dtype)), count + 1

    first = state, jnp.zeros(steps), jnp.zeros((), int)
    run = lambda first: lax.while_loop(is_going, body, first)
    state, losses, count = _program(run, first)(first)
    losses = np.asarray(losses[: int(count)])
    if not np.isfinite(losses[-1]):
        raise FitError(
            "the loss is not finite; check the data, or start elsewhere with "
            "AutoNatural(model, init_loc_fn=...) and SVI"
        )
    excess = float(state.optim_state[1][1].excess.mean())
    params = svi.get_params(state)
    return FitResult(params, state, losses, guide, excess <= tolerance)


def _program(run: Callable[[Any], Any], first: PyTree) -> Callable[[Any], Any]:
    """A program of `run`, with the data of the model among its arguments.

    As constants of the program they would be compiled too.
    """
    converted = eqx.filter_closure_convert(run, first)
    is_data = lambda leaf: hasattr(leaf, "shape")
    as_argument = lambda leaf: jnp.asarray(leaf) if is_data(leaf) else leaf
    converted = jax.tree.map(as_argument, converted)
    size = sum(leaf.size for leaf in jax.tree.leaves(converted) if is_data(leaf))
    limits = SHORT_RUN if size <= SMALL else LONG_RUN
    return filter_jit(converted, compiler_options=limits)
