"""How many iterations does Bayesian logistic regression take, and does Adam need more?

The posterior of the weights is a Gaussian with full covariance, fitted to the Pima
diabetes data by guarded natural gradients and by Adam, from the same start and on the
same loss. The natural gradients are run in two parameterizations, (mean, root of the
covariance) and (S⁻¹m, S⁻¹/2), to show that their path does not depend on it.

    NATGRAD_DATA=folder/of/pima.parquet python examples/logistic_regression.py
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import natgrad
from natgrad.families import gaussian
from natgrad.linalg import Full, Sqrt


jax.config.update("jax_enable_x64", True)

RATES = (0.1, 0.01, 0.001)
GAPS = (1e-3, 1e-6)


class Result(NamedTuple):
    """Gaps to the optimum in nats per row, at each iteration of each optimizer."""

    gaps: dict[str, np.ndarray]
    evaluations: int
    between_paths: float

    def iterations(self, name: str, gap: float) -> int | None:
        """How many iterations bring the gap under `gap`, if any number does."""
        below = self.gaps[name] <= gap
        return int(below.argmax()) if below.any() else None


def load_pima() -> tuple[np.ndarray, np.ndarray]:
    """Standardized inputs with a column of ones, and the labels as -1 and 1."""
    folder = os.environ.get("NATGRAD_DATA")
    if folder is None:
        raise SystemExit("set NATGRAD_DATA to the folder that holds pima.parquet")
    path = Path(folder) / "pima.parquet"
    if not path.exists():
        raise SystemExit(f"NATGRAD_DATA is {folder}, which holds no pima.parquet")
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    y = table["target"].to_numpy()
    x = np.stack([c.to_numpy() for c in table.drop(["target"]).columns], -1)
    x = (x - x.mean(0)) / x.std(0)
    return np.insert(x, 0, 1.0, axis=1), np.where(y > 0, 1.0, -1.0)


def make_loss(x: np.ndarray, y: np.ndarray) -> Callable[[Any], jax.Array]:
    """Minus the evidence bound of all the data, in nats."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    prior = gaussian.Moments(jnp.zeros(x.shape[1]), Sqrt(jnp.eye(x.shape[1])))

    def loss(q: gaussian.Moments | gaussian.Canonical) -> jax.Array:
        # The likelihood sees the weights only through x·w, which is one number.
        mean, var = x @ q.location(), ((x @ q.factor()) ** 2).sum(-1)
        logits = mean[:, None] + jnp.sqrt(var)[:, None] * nodes
        fit = jax.nn.log_sigmoid(y[:, None] * logits) @ weights
        return q.kl(prior) - fit.sum()

    return loss


def run(
    tx: optax.GradientTransformation, loss: Callable, q: Any, steps: int
) -> tuple[Any, Any, np.ndarray]:
    """The last distribution and state, and the loss before each step and at the end."""
    tx = optax.with_extra_args_support(tx)

    def step(carry: tuple, _: None) -> tuple:
        q, state = carry
        value, grads = jax.value_and_grad(loss)(q)
        updates, state = tx.update(
            grads, state, q, value=value, grad=grads, value_fn=loss
        )
        return (optax.apply_updates(q, updates), state), value

    walk = jax.jit(lambda q: jax.lax.scan(step, (q, tx.init(q)), length=steps))
    (q, state), values = walk(q)
    return q, state, np.append(values, loss(q))


def main(out: Path | None = None, adam_steps: int = 5000) -> Result:
    x, y = load_pima()
    loss = make_loss(x, y)
    dim = x.shape[1]

    start = gaussian.Moments(jnp.zeros(dim), Sqrt(jnp.eye(dim)))
    canonical = gaussian.Canonical(jnp.zeros(dim), Full(jnp.eye(dim) / 2))
    _, state, values = run(natgrad.guarded_ngd(), loss, start, 20)
    _, _, same = run(natgrad.guarded_ngd(), loss, canonical, 20)
    paths = {"guarded_ngd": values}
    for rate in RATES:
        paths[f"adam({rate})"] = run(optax.adam(rate), loss, start, adam_steps)[2]

    best = min(path.min() for path in paths.values())
    gaps = {name: (path - best) / len(y) for name, path in paths.items()}
    result = Result(gaps, int(state.tests), float(np.abs(values - same).max()))
    report(result)
    if out is not None:
        draw(result, out)
    return result


def report(result: Result) -> None:
    print("iterations until first within 1e-3 and 1e-6 nats per row of the optimum")
    for name, path in result.gaps.items():
        counts = [result.iterations(name, gap) for gap in GAPS]
        shown = [f">{len(path) - 1}" if c is None else str(c) for c in counts]
        print(f"{name:14s}" + "".join(f"{text:>8}" for text in shown))
    print(f"losses that guarded_ngd evaluated to test its steps: {result.evaluations}")
    print(
        f"its two parameterizations differ by {result.between_paths:.1e} nats at most"
    )


def draw(result: Result, out: Path) -> None:
    _, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, gap in result.gaps.items():
        wide = 2.2 if name == "guarded_ngd" else 0.9
        ax.plot(np.maximum(gap, 1e-15), label=name, lw=wide)
    for gap in GAPS:
        ax.axhline(gap, color="0.6", lw=0.8, ls=":")
    ax.set_xscale("symlog", linthresh=1)
    ax.set(xlabel="iteration", ylabel="gap to the optimum, nats per row")
    ax.set(xlim=(0, None), yscale="log", ylim=(1e-12, 3))
    ax.set_title("Bayesian logistic regression, pima", fontsize=10)
    ax.legend(frameon=False, loc="lower left")
    plt.savefig(out, dpi=95)
    plt.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to save the figure")
    parser.add_argument("--quick", action="store_true", help="500 steps of Adam")
    arguments = parser.parse_args()
    main(arguments.out, 500 if arguments.quick else 5000)
