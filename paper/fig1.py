"""Figure 1: gradients and their paths on the contours of a bound of two parameters.

A Gaussian process of Bernoulli targets with a single inducing input, so that q is a
mean and a deviation. The paper does not give its data; here five rows are made.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.families import gaussian
from natgrad.linalg import Sqrt
from paper import style
from paper.fig2 import PARAMETERIZATIONS
from paper.store import Columns, Config, Store


START = (-0.7, 0.4)
TIMES = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 400)])
SHOWN = ("mean/var-sqrt", "natural")


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    for parameterization in SHOWN if is_quick else PARAMETERIZATIONS:
        for direction in ("natural", "ordinary"):
            yield {
                "figure": "fig1",
                "parameterization": parameterization,
                "direction": direction,
                "mean": START[0],
                "deviation": START[1],
            }


def bound(q: Any) -> Any:
    """Five rows within one lengthscale, four of them 1."""
    x = jnp.linspace(-0.5, 0.5, 5)[:, None]
    y = jnp.ones(5).at[1].set(0.0)
    kernel, at = gp.kernels.Matern52(1.5, 4.0), jnp.zeros((1, 1))
    model = gp.SparseGP(kernel, gp.likelihoods.Bernoulli(), at, q)
    return gp.elbo(model, Batch(x, y))


def moments(q: Any) -> tuple[Any, Any]:
    """The mean and the deviation of q, wherever it is written down."""
    return q.location()[0], jnp.sqrt(q.covariance()[0, 0])


def at(parameterization: str, mean: Any, deviation: Any) -> Any:
    """The same distribution in any coordinates."""
    there = gaussian.Moments(jnp.array([mean]), Sqrt(jnp.array([[deviation]])))
    chart = PARAMETERIZATIONS[parameterization](jnp.eye(1))
    return chart.at_natural(there.natural())


def run(config: Config) -> Columns:
    """The path of infinitely many small steps, and the arrow of one of size 1."""
    from scipy.integrate import solve_ivp

    q = at(config["parameterization"], config["mean"], config["deviation"])
    flat, unravel = ravel_pytree(q)
    gradient = jax.grad(bound)
    is_natural = config["direction"] == "natural"

    @jax.jit
    def velocity(flat: Any) -> Any:
        there = unravel(flat)
        ascent = gradient(there)
        if is_natural:
            ascent = natgrad.natural_gradient(there, ascent)
        return ravel_pytree(ascent)[0]

    flow = solve_ivp(
        *(lambda _, flat: np.asarray(velocity(flat)), TIMES[[0, -1]], np.asarray(flat)),
        method="LSODA",
        t_eval=TIMES,
        rtol=1e-10,
        atol=1e-12,
    )
    seen = jax.jit(
        jax.vmap(lambda flat: (*moments(unravel(flat)), bound(unravel(flat))))
    )
    columns: Columns = {"time": list(flow.t)}
    for name, values in zip(
        ("mean", "deviation", "bound"), seen(flow.y.T), strict=True
    ):
        columns[f"path_{name}"] = values.tolist()
    arrow = np.asarray(velocity(flat))
    # The coordinates themselves, and where an arrow of length 1 begins and points.
    columns["first"], columns["second"] = flow.y.tolist()
    columns["arrow_first"], columns["arrow_second"] = (
        [float(part)] * len(flow.t) for part in arrow
    )
    return columns


def optimum() -> tuple[float, float]:
    """Where the bound is highest: a natural path comes to its end."""
    with jax.enable_x64(True):
        q = at("natural", *START)
        step = jax.jit(
            lambda q: q.path(jax.grad(lambda q: -bound(q))(q))(jnp.asarray(0.5))
        )
        for _ in range(200):
            q = step(q)
        mean, deviation = moments(q)
    return float(mean), float(deviation)


def draw(table: Any, folder: Path) -> list[Path]:
    """In two coordinate systems: the natural path is the same distributions in both."""
    path = folder / "fig1.png"
    with style.paper() as pyplot, jax.enable_x64(True):
        figure, axes = pyplot.subplots(1, 2, figsize=(6.6, 3.0), layout="constrained")
        for ax, name in zip(axes, SHOWN, strict=True):
            _picture(ax, table[table.parameterization == name], name)
        figure.savefig(path)
        pyplot.close(figure)
    return [path]


LABELS = {
    "mean/var-sqrt": ("mean", "deviation"),
    "natural": ("mean / variance", "1 / (2 variance)"),
}
METHODS = {"natural": "NGD", "ordinary": "GD"}


def _picture(ax: Any, runs: Any, name: str) -> None:
    flat, unravel = ravel_pytree(at(name, *START))
    end = np.asarray(ravel_pytree(at(name, *optimum()))[0])
    corners = np.stack([np.asarray(flat), end, *_arrow_ends(runs), *_inner(runs)])
    low, high = corners.min(0), corners.max(0)
    low, high = low - 0.15 * (high - low), high + 0.15 * (high - low)
    low[1] = max(low[1], 0.02)  # a deviation or a precision is positive
    sides = [np.linspace(low[k], high[k], 200) for k in range(2)]
    grid = jnp.asarray(np.stack(np.meshgrid(*sides), -1))
    values = jax.jit(jax.vmap(jax.vmap(lambda flat: bound(unravel(flat)))))(grid)
    gaps = np.asarray(values.max() - values) + 1e-3
    ax.contour(
        *sides, np.log(gaps), levels=14, colors="0.75", linewidths=0.6, linestyles="-"
    )
    for direction, run in runs.groupby("direction"):
        shade = style.colour(METHODS[direction])
        ax.plot(run["first"], run["second"], color=shade, label=direction)
        arrow = run.iloc[0][["arrow_first", "arrow_second"]].to_numpy(float)
        begin = np.asarray(flat)
        # One that leaves the picture is dashed, and ends at its frame.
        room = np.where(arrow > 0, high - begin, begin - low) / np.abs(arrow)
        is_whole = room.min() >= 1
        ax.annotate(
            "",
            begin + min(1.0, room.min()) * arrow,
            begin,
            arrowprops={
                "arrowstyle": "-|>" if is_whole else "-",
                "linestyle": "-" if is_whole else (0, (3, 2)),
                "color": shade,
                "lw": 1,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
    ax.plot(*np.asarray(flat), "o", color="black", ms=4)
    ax.plot(*end, "*", color="black", ms=8)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), title=name)
    ax.set_xlabel(LABELS[name][0])
    ax.set_ylabel(LABELS[name][1])
    style.label_paths(ax, bottom=0.04 if name == "natural" else 0.84)


def _arrow_ends(runs: Any) -> list[np.ndarray]:
    """Where the natural arrow ends; the ordinary one may be far too long to show."""
    first = runs[runs.direction == "natural"].iloc[0]
    begin = first[["first", "second"]].to_numpy(float)
    return [begin + first[["arrow_first", "arrow_second"]].to_numpy(float)]


def _inner(runs: Any) -> list[np.ndarray]:
    return list(runs[["first", "second"]].to_numpy(float)[::40])
