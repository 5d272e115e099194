"""Figure 2 and the six of the supplement: is the natural gradient a good direction?

All rows at once, hyperparameters fixed, and at each iteration the step size that brings
the bound highest, found by Brent's method: only the directions differ.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import natgrad
from natgrad.families import gaussian
from natgrad.gp._sparse import projected_elbo
from natgrad.linalg import Full, Log, Sqrt
from paper import style
from paper.problems import problem
from paper.search import lbfgs, line_search
from paper.store import Columns, Config, Store


SETS = {"energy": "Gaussian", "boston": "Student-t", "pima": "Bernoulli"}
PARAMETERIZATIONS: dict[str, Callable[[Any], Any]] = {
    "natural": lambda eye: gaussian.Canonical(eye[0] * 0, Full(eye / 2)),
    "natural-sqrt": lambda eye: gaussian.Canonical(eye[0] * 0, Sqrt(eye / 2**0.5)),
    "natural-log": lambda eye: gaussian.Canonical(eye[0] * 0, Log(0 * eye).at(eye / 2)),
    "mean/var": lambda eye: gaussian.Moments(eye[0] * 0, Full(eye)),
    "mean/var-sqrt": lambda eye: gaussian.Moments(eye[0] * 0, Sqrt(eye)),
    "mean/var-log": lambda eye: gaussian.Moments(eye[0] * 0, Log(0 * eye)),
}
METHODS = ("NGD", "GD", "Adam", "L-BFGS")
ITERATIONS, SPLITS = 50, 5


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    """All runs of the figure; quick, one split of one set for a few iterations."""
    sets = list(SETS)[:1] if is_quick else list(SETS)
    for split in range(1 if is_quick else SPLITS):
        for name in sets:
            for parameterization in PARAMETERIZATIONS:
                for method in METHODS:
                    yield {
                        "figure": "fig2",
                        "data": name,
                        "likelihood": SETS[name],
                        "split": split,
                        "parameterization": parameterization,
                        "method": method,
                        "iterations": 5 if is_quick else ITERATIONS,
                    }


def run(config: Config) -> Columns:
    """The bound after each iteration, and the step size that was best."""
    model, data, _ = problem(config["data"], config["likelihood"], config["split"])
    q = PARAMETERIZATIONS[config["parameterization"]](jnp.eye(len(model.inducing)))
    rows = jax.jit(lambda x: model.project(x))(data.x)

    def loss(q: Any) -> Any:
        there = eqx.tree_at(lambda model: model.posterior, model, q)
        return -projected_elbo(there, rows, data)

    columns: Columns = {
        "iteration": [0],
        "bound": [-float(loss(q))],
        "step_size": [None],
    }

    def note(iteration: int, loss: float, size: float | None) -> None:
        columns["iteration"].append(iteration)
        columns["bound"].append(-loss)
        columns["step_size"].append(size)

    if config["method"] == "L-BFGS":
        value = jax.jit(loss)
        seen = lambda iteration, q: note(iteration, float(value(q)), None)
        lbfgs(loss, q, steps=config["iterations"], callback=seen)
        return columns
    adam = optax.scale_by_adam()
    gradient, state = jax.jit(jax.grad(loss)), adam.init(q)
    rescale = jax.jit(adam.update)
    natural = jax.jit(natgrad.natural_gradient)
    for iteration in range(1, config["iterations"] + 1):
        direction = gradient(q)
        if config["method"] == "NGD":
            direction = natural(q, direction)
        elif config["method"] == "Adam":
            direction, state = rescale(direction, state)
        found = line_search(loss, q, direction)
        q = found.params
        note(iteration, found.loss, found.size)
    return columns


# Drawing


def draw(table: Any, folder: Path) -> list[Path]:
    """The figure, of one split, and one of all splits for each parameterization."""
    first = table[table.split == 0]
    some = ("mean/var-sqrt", "natural")
    paths = [_picture(first, some, folder / "fig2.png")]
    for parameterization in PARAMETERIZATIONS:
        name = parameterization.replace("/", "-")
        path = folder / f"fig2-{name}.png"
        paths.append(_picture(table, (parameterization,), path))
    return paths


def _picture(table: Any, parameterizations: tuple[str, ...], path: Path) -> Path:
    """Above how far each is from the best bound of all, below the step sizes."""
    names = [name for name in SETS if name in set(table.data)]
    columns = [(p, name) for p in parameterizations for name in names]
    with style.paper(8 if len(columns) < 4 else 10) as pyplot:
        figure, axes = pyplot.subplots(
            2,
            len(columns),
            figsize=(1.75 * len(columns) + 1.1, 3.6 if len(columns) < 4 else 4.2),
            sharex=True,
            sharey="row",
            squeeze=False,
            layout="constrained",
        )
        for place, (parameterization, name) in enumerate(columns):
            above, below = axes[:, place]
            of_set = table[table.data == name]
            best = of_set.groupby("split").bound.transform("max")
            of_set = of_set.assign(gap=best - of_set.bound)
            shown = of_set[of_set.parameterization == parameterization]
            for method in METHODS:
                of_method = shown[shown.method == method]
                if not len(of_method):
                    continue
                x, gaps = curves(of_method, "gap")
                style.band(above, x, np.maximum(gaps, FLOOR), method)
                if method != "L-BFGS":
                    sizes = curves(of_method, "step_size")[1]
                    # Where nothing is left to find, the best size is of rounding.
                    is_left = gaps[:, :-1] > FLOOR
                    is_there = is_left.mean(0) > 0.5
                    sizes = np.where(is_left, sizes[:, 1:], np.nan)[:, is_there]
                    style.band(below, x[1:][is_there], sizes, method)
            above.set_yscale("log")
            below.set_yscale("log")
            below.axhline(1, color="0.7", lw=0.6, zorder=0)
            above.set_title(f"{name}, {SETS[name]}\n{parameterization}")
            below.set_xlabel("iteration")
        if min(line.get_ydata().min() for line in _lines(axes[0])) <= FLOOR:
            for ax in axes[0]:
                style.mark_floor(ax, FLOOR, note=ax is axes[0, 0])
        axes[0, 0].set_ylabel("nats below the best ELBO")
        axes[1, 0].set_ylabel("best step size")
        return style.saved(figure, axes, path)


def _lines(axes: np.ndarray) -> list[Any]:
    return [line for ax in axes for line in ax.get_lines()]


FLOOR = 1e-7
"""What is nearer to the best is drawn here, and marked: the rest is rounding."""


def curves(table: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
    """One row for each split; a run that ended early stays where it was."""
    rows = []
    for _, group in table.groupby("split"):
        values = group.set_index("iteration")[column].astype(float)
        whole = values.reindex(range(int(table.iteration.max()) + 1)).ffill()
        rows.append(whole.to_numpy())
    return np.arange(len(rows[0])), np.stack(rows)
