"""What do natural gradients do for a small Bayesian neural network?

One hidden layer of 20 tanh units, a diagonal Gaussian over its 61 weights, and 100 data
with a gap between them. The bound is estimated by 16 reparameterized draws a step: this
is the noisy, far from conjugate end of what natural gradients are for. The scale of the
noise is trained by Adam throughout.

The answer is mixed. Given 300 steps in all, `guarded_ngd`, which has no rate to set, is
ahead of Adam at two of three rates; but Adam at the best, 0.1 with cosine decay, is
ahead of it by some 20 nats, and given 1500 steps so is Adam at 0.03. A plain `ngd(0.1)`
ends in NaN from three starts of four. `guarded_ngd` tests its steps on the draws that
gave the gradient: `key` is an argument of the loss, and `update` passes it on.

    python examples/bayesian_network.py --out figure.png
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm

import natgrad
from natgrad.families import diagonal
from natgrad.positive import Log


jax.config.update("jax_enable_x64", True)

UNITS, DRAWS, EVERY = 20, 16, 50
SCALES, as_layers = ravel_pytree(
    {
        "inner": jnp.full(UNITS, 4.0),
        "shift": jnp.full(UNITS, 2.0),
        "outer": jnp.full(UNITS, 2.0 / UNITS**0.5),
        "offset": jnp.ones(()),
    }
)
PRIOR = diagonal.Moments(jnp.zeros_like(SCALES), Log(2 * jnp.log(SCALES)))


class Params(NamedTuple):
    q: diagonal.Moments
    log_noise: jax.Array


class Result(NamedTuple):
    """Minus the bound in nats, from 1000 draws, [starts, steps / 50]."""

    losses: dict[str, np.ndarray]
    params: dict[str, Params]


def draw_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-1, -0.3, 50), rng.uniform(0.3, 1, 50)])
    return x, 0.8 * np.sin(4 * x) + 0.3 * x + 0.1 * rng.normal(size=100)


def network(weights: jax.Array, x: np.ndarray) -> jax.Array:
    w = as_layers(weights)
    return jnp.tanh(x[:, None] * w["inner"] + w["shift"]) @ w["outer"] + w["offset"]


def make_loss(x: np.ndarray, y: np.ndarray, draws: int):
    def loss(params: Params, key: jax.Array) -> jax.Array:
        weights = params.q.sample(key, (draws,))
        f = jax.vmap(lambda w: network(w, x))(weights)
        fit = norm.logpdf(y, f, jnp.exp(params.log_noise)).sum(-1).mean()
        return params.q.kl(PRIOR) - fit

    return loss


def start(key: jax.Array) -> Params:
    mean = SCALES * jax.random.normal(key, SCALES.shape)
    q = diagonal.Moments(mean, Log(2 * jnp.log(SCALES) - 4))
    return Params(q, jnp.log(jnp.array(0.5)))


def optimizers(steps: int) -> dict[str, optax.GradientTransformation]:
    decay = lambda rate: optax.cosine_decay_schedule(rate, steps)
    return {
        "guarded_ngd": natgrad.split(natgrad.guarded_ngd(), optax.adam(0.01)),
        "adam(0.1)": optax.adam(decay(0.1)),
        "adam(0.03)": optax.adam(decay(0.03)),
        "adam(0.01)": optax.adam(decay(0.01)),
    }


def train(tx: optax.GradientTransformation, x: Any, y: Any, steps: int, starts: int):
    """The parameters after all steps, and the loss after every 50, from each start."""
    tx = optax.with_extra_args_support(tx)
    loss, accurate = make_loss(x, y, DRAWS), make_loss(x, y, 1000)

    def step(carry: tuple, key: jax.Array) -> tuple:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, key)
        updates, state = tx.update(
            grads, state, params, value=value, grad=grads, value_fn=loss, key=key
        )
        return (optax.apply_updates(params, updates), state), None

    def steps_and_loss(carry: tuple, keys: jax.Array) -> tuple:
        carry, _ = jax.lax.scan(step, carry, keys)
        return carry, accurate(carry[0], jax.random.key(0))

    def walk(key: jax.Array) -> tuple:
        params: Any = start(key)
        keys = jax.random.split(key, (steps // EVERY, EVERY))
        (params, _), losses = jax.lax.scan(
            steps_and_loss, (params, tx.init(params)), keys
        )
        return params, losses

    params, losses = jax.jit(jax.vmap(walk))(
        jax.random.split(jax.random.key(0), starts)
    )
    return params, np.asarray(losses)


def main(out: Path | None = None, steps: int = 1500, starts: int = 4) -> Result:
    x, y = draw_data(seed=0)
    result = Result({}, {})
    print(f"minus the bound after {steps} steps, from {starts} starts")
    for name, tx in optimizers(steps).items():
        params, losses = train(tx, x, y, steps, starts)
        result.params[name], result.losses[name] = params, losses
        each = "".join(f"{loss:8.1f}" for loss in losses[:, -1])
        print(f"{name:12s}{each}   mean {losses[:, -1].mean():6.1f}", flush=True)
    if out is not None:
        draw(result, x, y, out)
    return result


def draw(result: Result, x: np.ndarray, y: np.ndarray, out: Path) -> None:
    _, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), layout="constrained")
    for name, losses in result.losses.items():
        steps = EVERY * np.arange(1, 1 + losses.shape[1])
        wide = 2.2 if name == "guarded_ngd" else 1.2
        axes[0].plot(steps, losses.mean(0), lw=wide, label=name)
    axes[0].set(xlabel="step", ylabel="minus the bound, nats", ylim=(0, 200))
    axes[0].set_title("mean over the starts", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)

    grid = np.linspace(-1.5, 1.5, 200)
    for ax, name in zip(axes[1:], ("guarded_ngd", "adam(0.1)"), strict=True):
        params = jax.tree.map(lambda leaf: leaf[0], result.params[name])
        weights = params.q.sample(jax.random.key(1), (500,))
        f = np.asarray(jax.vmap(lambda w: network(w, grid))(weights))
        of_f, of_y = f.std(0), np.hypot(f.std(0), np.exp(params.log_noise))
        for spread, shade, label in ((of_y, 0.15, "y"), (of_f, 0.35, "f")):
            low, high = f.mean(0) - 2 * spread, f.mean(0) + 2 * spread
            band = f"{label}, ±2 sd"
            ax.fill_between(grid, low, high, color="C0", alpha=shade, lw=0, label=band)
        ax.plot(grid, f.mean(0), "C0", lw=1)
        ax.plot(x, y, "k.", ms=3)
        ax.set(xlabel="x", ylim=(-2.5, 2.5))
        ax.set_title(f"{name}, first start", fontsize=10)
    axes[1].legend(frameon=False, fontsize=8, loc="lower right")
    plt.savefig(out, dpi=85)
    plt.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to save the figure")
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps")
    arguments = parser.parse_args()
    main(arguments.out, 300 if arguments.quick else 1500)
