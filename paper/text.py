"""What the paper says without a figure: how natural gradients are computed.

Costs are ratios of processor time in interleaved rounds.
"""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import natgrad
from natgrad import gp
from natgrad._natural import double_vjp
from paper.fig2 import PARAMETERIZATIONS
from paper.problems import problem
from paper.store import Columns, Config, Store


SIZES = (100, 200, 400, 800)
WIDTHS = (24, 40, 64)


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    rounds = 3 if is_quick else 30
    for parameterization in PARAMETERIZATIONS:
        yield {"what": "fisher", "parameterization": parameterization, "size": 5}
        yield {"what": "forward", "parameterization": parameterization, "size": 20}
        cost = {"what": "cost", "parameterization": parameterization}
        yield cost | {"size": 100, "rounds": rounds}
    for size in SIZES[:2] if is_quick else SIZES:
        yield {"what": "direction", "size": size, "rounds": rounds}
    for size in WIDTHS[:2] if is_quick else WIDTHS:
        yield {"what": "inverse", "size": size, "rounds": rounds}


def run(config: Config) -> Columns:
    made = {
        "fisher": fisher,
        "forward": forward,
        "cost": cost,
        "direction": direction,
        "inverse": inverse,
    }[config["what"]]
    rest = {name: value for name, value in config.items() if name != "what"}
    return {"value": [float(made(*rest.values()))]}


def draw(table: Any, folder: Path) -> list[Path]:
    return []


def some(parameterization: str, size: int, seed: int = 0) -> tuple[Any, Any]:
    """A distribution that is nothing special, and a gradient there."""
    a, b = jax.random.normal(jax.random.key(seed), (2, size, size)) / size**0.5
    q = PARAMETERIZATIONS[parameterization](jnp.eye(size))
    there = PARAMETERIZATIONS["mean/var"](a @ a.T + 0.5 * jnp.eye(size))
    there = eqx.tree_at(lambda q: q.mean, there, b[0])
    q = q.at_natural(there.natural())
    target = PARAMETERIZATIONS["mean/var"](b @ b.T + jnp.eye(size))
    return q, jax.grad(lambda q: q.kl(target))(q)


@functools.partial(jax.jit, static_argnums=(0, 1))
def fisher(parameterization: str, size: int) -> Any:
    """How far the natural gradient is from F⁻¹ ∇L, with F from its definition.

    F is the Hessian of the divergence from q. It knows nothing of the upper half of a
    triangular matrix, or of what is not symmetric, and is inverted on the rest.
    """
    q, grad = some(parameterization, size)
    flat, unravel = ravel_pytree(q)
    information = jax.hessian(lambda flat: q.kl(unravel(flat)))(flat)
    inverse = jnp.linalg.pinv(information, rtol=1e-10, hermitian=True)
    return _distance(natgrad.natural_gradient(q, grad), unravel(inverse @ ravel(grad)))


def ravel(tree: Any) -> Any:
    return ravel_pytree(tree)[0]


def _distance(ours: Any, other: Any) -> Any:
    """The largest difference, by the largest entry."""
    return jnp.abs(ravel(ours) - ravel(other)).max() / jnp.abs(ravel(other)).max()


@functools.partial(jax.jit, static_argnums=(0, 1))
def forward(parameterization: str, size: int) -> Any:
    """How far two reverse passes are from one forward pass, through ξ(θ)."""
    q, grad = some(parameterization, size)
    theta, change = q.natural(), q.slope(grad)
    twice = double_vjp(q.at_natural, theta, change)
    once = jax.jvp(q.at_natural, (theta,), (change,))[1]
    return _distance(twice, once)


def cost(parameterization: str, size: int, rounds: int) -> float:
    """A gradient of the bound of 256 rows and its natural gradient, by the gradient."""
    model, data, _ = problem("boston", "Student-t", 0)
    assert size == len(model.inducing)
    q = PARAMETERIZATIONS[parameterization](jnp.eye(size))
    batch = jax.tree.map(lambda column: column[:256], data)

    def loss(q: Any, model: Any) -> Any:
        there = eqx.tree_at(lambda model: model.posterior, model, q)
        return -gp.elbo(there, batch, len(data.y))

    ordinary = jax.jit(jax.grad(loss))
    natural = jax.jit(lambda q, model: natgrad.natural_gradient(q, ordinary(q, model)))
    return timed(rounds, lambda: natural(q, model), lambda: ordinary(q, model))


def direction(size: int, rounds: int) -> float:
    """Seconds of a natural gradient from a gradient."""
    q, grad = some("mean/var-sqrt", size)
    function = jax.jit(natgrad.natural_gradient)
    return timed(rounds, lambda: function(q, grad))


def inverse(size: int, rounds: int) -> float:
    """Seconds of F⁻¹ ∇L, with a Fisher matrix of the size that q would need."""
    width = size + size * (size + 1) // 2
    a = jax.random.normal(jax.random.key(0), (width, width)) / width**0.5
    matrix, slope = a @ a.T + jnp.eye(width), a[0]
    function = jax.jit(jnp.linalg.solve)
    return timed(min(rounds, 5), lambda: function(matrix, slope))


def timed(rounds: int, *functions: Callable[[], Any]) -> float:
    """The median time of one, or the median ratio of two, in interleaved rounds."""
    for function in functions:
        _seconds(function)  # compiled
    took = np.array(
        [[_seconds(function) for function in functions] for _ in range(rounds)]
    )
    if len(functions) == 1:
        return float(np.median(took))
    return float(np.median(took[:, 0] / took[:, 1]))


def _seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    began = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(function())
    return (time.process_time() - began) / repeats
