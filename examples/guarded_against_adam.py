"""How many iterations do guarded steps need, and how many does Adam?

The Bayesian logistic regression of the README, in 64 bits: 200 rows, three weights and
a Gaussian with full covariance. Guarded natural gradients and Adam at five learning
rates start from the same distribution and minimise the same loss.

    python examples/guarded_against_adam.py --out docs/figures/guarded_against_adam.png
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import natgrad
from natgrad.families import gaussian
from natgrad.linalg import Sqrt


RATES = (1.0, 0.3, 0.1, 0.03, 0.01)
GAP = 1e-3  # nats, of all rows together
GUARDED = "guarded_ngd()"


def gaps(adam_steps: int) -> dict[str, np.ndarray]:
    """By optimizer, how far the loss is above the best one found before each step."""
    x = jax.random.normal(jax.random.key(0), (200, 3))
    y = jnp.where(x @ jnp.array([2.0, -1.0, 0.5]) > 0, 1.0, -1.0)
    noise = jax.random.normal(jax.random.key(1), (100, 1))
    prior = gaussian.Moments(jnp.zeros(3), Sqrt(jnp.eye(3)))

    def loss(q: gaussian.Moments) -> jax.Array:
        """Minus the ELBO, in nats."""
        spread = jnp.sqrt(jnp.sum((x @ q.factor()) ** 2, axis=1))
        f = x @ q.mean + spread * noise
        return q.kl(prior) - jax.nn.log_sigmoid(y * f).mean(0).sum()

    def run(optimizer: optax.GradientTransformation, steps: int) -> np.ndarray:
        extended = optax.with_extra_args_support(optimizer)

        def step(carry: Any, _: None) -> Any:
            q, state = carry
            value, grad = jax.value_and_grad(loss)(q)
            updates, state = extended.update(
                grad, state, q, value=value, grad=grad, value_fn=loss
            )
            return (optax.apply_updates(q, updates), state), value

        walk = lambda q: jax.lax.scan(step, (q, extended.init(q)), length=steps)
        return np.asarray(jax.jit(walk)(prior)[1])

    paths = {GUARDED: run(natgrad.guarded_ngd(), 40)}
    for rate in RATES:
        paths[f"adam({rate})"] = run(optax.adam(rate), adam_steps)
    best = min(np.nanmin(path) for path in paths.values())
    return {name: path - best for name, path in paths.items()}


def iterations(gap: np.ndarray) -> int | None:
    """How many steps first bring a loss within `GAP` of the best, if any number."""
    is_near = gap <= GAP
    return int(is_near.argmax()) if is_near.any() else None


def draw(found: dict[str, np.ndarray], out: Path) -> None:
    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    figure.patch.set_facecolor("white")
    colours = plt.get_cmap("autumn")(np.linspace(0, 0.75, len(RATES)))
    counts = {name: iterations(gap) for name, gap in found.items()}
    best = min(count for name, count in counts.items() if count and name != GUARDED)
    for (name, gap), colour in zip(found.items(), ["#0072B2", *colours], strict=True):
        wide = 2.6 if name == GUARDED else 1.3
        after = np.maximum(gap[1:], 1e-9)
        ax.plot(1 + np.arange(len(after)), after, color=colour, lw=wide, label=name)
        if count := counts[name]:
            ax.plot(count, GAP, "o", color=colour, ms=6, zorder=4)
            if name == GUARDED or count == best:
                at = (1.25 * count, 0.35 * GAP)
                ax.annotate(f"{count} iterations", at, color="0.25")
    ax.axhline(GAP, color="0.6", lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", ylim=(1e-7, 300), xlim=(1, 1500))
    ax.set(xlabel="iterations", ylabel="loss above its minimum, nats")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower left", fontsize=9)
    plt.savefig(out, dpi=200)
    plt.close()


def main(out: Path | None = None, adam_steps: int = 1500) -> dict[str, int | None]:
    with jax.enable_x64(True):
        found = gaps(adam_steps)
    counts = {name: iterations(gap) for name, gap in found.items()}
    print(f"iterations until the loss is first within {GAP} nats of its minimum")
    for name, count in counts.items():
        print(f"{name:14s}{f'>{adam_steps}' if count is None else count:>7}")
    if out is not None:
        draw(found, out)
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to save the figure")
    main(parser.parse_args().out)
