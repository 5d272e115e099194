"""Are natural gradient steps of size 1 the classical coordinate ascent updates?

For a conditionally conjugate model they are (Hoffman et al. 2013): where the bound is
linear in the expectation parameters of one block but for its entropy, the natural
gradient of minus the bound is θ − θ*, and a step of size 1 lands on the optimum θ*. The
model is a mixture of multinomials for short documents,

    π ~ Dirichlet(1),  φₖ ~ Dirichlet(1),  zₙ ~ π,  words of document n ~ φ_zₙ,

and the posterior is q(z) q(π) q(φ). `mirror_descent` steps along a straight line in θ,
whatever coordinates are stored: here logits, and logarithms of concentrations.

    python examples/mixture_of_multinomials.py --out figure.png
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jax.scipy.special import digamma
from scipy.optimize import linear_sum_assignment

import natgrad
from natgrad.families import categorical, dirichlet
from natgrad.positive import Log


jax.config.update("jax_enable_x64", True)

DOCUMENTS, WORDS, TOPICS, LENGTH = 200, 50, 4, 10
PRIOR_WEIGHTS = dirichlet.Concentrations(Log(jnp.zeros(TOPICS)))
PRIOR_TOPICS = dirichlet.Concentrations(Log(jnp.zeros((TOPICS, WORDS))))


class Shared(NamedTuple):
    """What the documents share: the weights π and the topics φ."""

    weights: dirichlet.Concentrations
    topics: dirichlet.Concentrations


class Result(NamedTuple):
    bounds: np.ndarray
    classical_bounds: np.ndarray
    difference: float
    topics: np.ndarray
    true_topics: np.ndarray


def draw_documents(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Word counts [documents, words], and the topics [topics, words] they come from."""
    rng = np.random.default_rng(seed)
    topics = 0.6 * rng.dirichlet(np.full(WORDS, 0.3), TOPICS) + 0.4 / WORDS
    labels = rng.choice(TOPICS, DOCUMENTS, p=[0.4, 0.3, 0.2, 0.1])
    return np.stack([rng.multinomial(LENGTH, topics[k]) for k in labels]), topics


def bound(z: categorical.Logits, shared: Shared, counts: np.ndarray) -> jax.Array:
    """The evidence lower bound, less the multinomial coefficients."""
    weights, topics = shared
    # The statistics of a Dirichlet are log u, so its expectation is E[log u].
    log_joint = counts @ topics.expectation().T + weights.expectation()
    fit = (z.probabilities() * log_joint).sum() + z.entropy().sum()
    return fit - weights.kl(PRIOR_WEIGHTS) - topics.kl(PRIOR_TOPICS).sum()


def natural_step(loss: Callable[[Any], jax.Array], q: Any) -> Any:
    tx = natgrad.mirror_descent(1.0)
    updates, _ = tx.update(jax.grad(loss)(q), tx.init(q), q)
    return optax.apply_updates(q, updates)


@jax.jit
def natural_sweep(z, shared, counts):
    z = natural_step(lambda z: -bound(z, shared, counts), z)
    shared = natural_step(lambda shared: -bound(z, shared, counts), shared)
    return z, shared, bound(z, shared, counts)


@jax.jit
def classical_sweep(alpha, beta, counts):
    """The textbook updates: Dirichlet parameters in, responsibilities and those out."""
    log_weights = digamma(alpha) - digamma(alpha.sum())
    log_topics = digamma(beta) - digamma(beta.sum(-1, keepdims=True))
    r = jax.nn.softmax(log_weights + counts @ log_topics.T)
    return r, 1 + r.sum(0), 1 + r.T @ counts


def main(out: Path | None = None, sweeps: int = 40) -> Result:
    counts, true_topics = draw_documents(seed=1)
    alpha = jnp.ones(TOPICS)
    beta = jax.random.uniform(jax.random.key(1), (TOPICS, WORDS), minval=1, maxval=2)

    z = categorical.Logits(jnp.zeros((DOCUMENTS, TOPICS)))
    as_dirichlet = lambda value: dirichlet.Concentrations(Log(jnp.log(value)))
    shared = Shared(as_dirichlet(alpha), as_dirichlet(beta))

    bounds, classical_bounds, difference = [], [], 0.0
    for _ in range(sweeps):
        z, shared, value = natural_sweep(z, shared, counts)
        r, alpha, beta = classical_sweep(alpha, beta, counts)
        pairs = [
            (z.probabilities(), r),
            (shared.weights.concentrations(), alpha),
            (shared.topics.concentrations(), beta),
        ]
        difference = max(difference, *(float(abs(a - b).max()) for a, b in pairs))
        logits = categorical.Logits(jnp.log(r))
        there = Shared(as_dirichlet(alpha), as_dirichlet(beta))
        bounds.append(float(value))
        classical_bounds.append(float(bound(logits, there, counts)))

    topics = np.asarray(beta / beta.sum(-1, keepdims=True))
    overlap = np.sqrt(true_topics) @ np.sqrt(topics).T
    topics = topics[linear_sum_assignment(-overlap)[1]]
    result = Result(
        np.array(bounds), np.array(classical_bounds), difference, topics, true_topics
    )
    rise = np.diff(result.bounds).min()
    print(f"bound {bounds[0]:.3f} -> {bounds[-1]:.3f} in {sweeps} sweeps")
    print(f"least change of the bound in a sweep: {rise:.1e}")
    print(f"largest difference to coordinate ascent: {difference:.1e}")
    if out is not None:
        draw(result, out)
    return result


def draw(result: Result, out: Path) -> None:
    figure = plt.figure(figsize=(7.5, 3.2), layout="constrained")
    axes = figure.subplot_mosaic([["bound", "true"], ["bound", "found"]])
    sweeps = np.arange(1, 1 + len(result.bounds))
    ax = axes["bound"]
    ax.plot(sweeps, result.classical_bounds, "o", mfc="none", label="coordinate ascent")
    ax.plot(sweeps, result.bounds, label="natural gradient, size 1")
    ax.set(xlabel="sweep", ylabel="evidence lower bound, nats")
    ax.legend(frameon=False, loc="lower right")

    def heat(ax, topics, title):
        ax.set_title(title, fontsize=10)
        ax.set(ylabel="topic", yticks=range(TOPICS), yticklabels=range(1, TOPICS + 1))
        top = result.true_topics.max()
        return ax.imshow(topics, aspect="auto", cmap="Greys", vmin=0, vmax=top)

    heat(axes["found"], result.topics, "posterior means").axes.set(xlabel="word")
    image = heat(axes["true"], result.true_topics, "true topics")
    figure.colorbar(image, ax=[axes["true"], axes["found"]], label="probability")
    plt.savefig(out, dpi=110)
    plt.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to save the figure")
    main(parser.parse_args().out)
