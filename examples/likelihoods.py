"""What is each likelihood for?

One small data set for each, made with a fixed seed, a sparse Gaussian process fitted to
it with natural gradients for the posterior and Adam for all else, and a picture: data
as dots, bands that hold 50 % and 90 % of the targets, inducing inputs as ticks.

    python examples/likelihoods.py --out docs/figures
    python examples/likelihoods.py --out docs/figures student_t ordinal
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from PIL import Image
from scipy.interpolate import PchipInterpolator
from scipy.special import expit, ndtr, ndtri

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.gp import Predictor, SparseGP, elbo, inducing, kernels, likelihoods, means


jax.config.update("jax_enable_x64", True)

ACCENT, OTHER, DATA = "#2a6f97", "0.35", "0.15"
CLASSES = (ACCENT, "#c8793b", "0.5")
LEVELS = np.asarray([0.05, 0.25, 0.5, 0.75, 0.95])


def fit(
    x: np.ndarray,
    y: np.ndarray,
    likelihood: likelihoods.AbstractLikelihood,
    kernel: kernels.AbstractKernel,
    mean: means.AbstractMean | None = None,
    num: int = 15,
    steps: int = 200,
    columns: dict[str, np.ndarray] | None = None,
) -> Predictor:
    """A sparse Gaussian process fitted to all the data, ready for prediction."""
    columns = columns or {}
    likelihood.given(**columns).check(y)
    model = SparseGP(kernel, likelihood, inducing.k_means(x, num), mean=mean)
    batch = jax.tree.map(jnp.asarray, Batch(x, y, None, columns))
    loss = lambda model: -elbo(model, batch)
    tx = natgrad.split(natgrad.guarded_ngd(), optax.adam(0.03))

    def step(carry: tuple, _: None) -> tuple:
        model, state = carry
        value, grads = jax.value_and_grad(loss)(model)
        updates, state = tx.update(
            grads, state, model, value=value, grad=grads, value_fn=loss
        )
        return (optax.apply_updates(model, updates), state), value

    run = jax.jit(
        lambda model: jax.lax.scan(step, (model, tx.init(model)), None, steps)
    )
    (model, _), losses = run(model)
    print(f"{type(likelihood).__name__:24s} bound {-losses[-1]:.2f}")
    return gp.predictor(model)


# Drawing


def grid(x: np.ndarray, num: int = 64) -> np.ndarray:
    """Rows across the range of one input, and somewhat beyond."""
    low, high = x.min(), x.max()
    margin = 0.04 * (high - low)
    return np.linspace(low - margin, high + margin, num)[:, None]


def bands(ax: Axes, at: np.ndarray, quantiles: np.ndarray, step: Any = None) -> None:
    """The median, and bands of 50 % and 90 %, smooth where they are not steps."""
    if step is None:
        rough, at = at, np.linspace(at[0], at[-1], 400)
        quantiles = PchipInterpolator(rough[:, 0], quantiles)(at[:, 0])
    low, lower, middle, upper, high = quantiles.T
    fill: dict[str, Any] = {"color": ACCENT, "lw": 0, "step": step}
    ax.fill_between(at[:, 0], low, high, alpha=0.16, **fill)
    ax.fill_between(at[:, 0], lower, upper, alpha=0.26, **fill)
    style: Any = "default" if step is None else "steps-mid"
    label = "median, 50 % and 90 %"
    ax.plot(at[:, 0], middle, color=ACCENT, lw=1.8, drawstyle=style, label=label)


def beside(ax: Axes, at: np.ndarray, quantiles: np.ndarray, name: str) -> None:
    """The 90 % band of another likelihood, as lines."""
    for values, label in zip(quantiles.T[[0, 4]], (f"90 %, {name}", None), strict=True):
        ax.plot(at[:, 0], values, color=OTHER, lw=0.9, ls=(0, (4, 3)), label=label)


def dots(ax: Axes, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
    shown = {"s": 11, "color": DATA, "alpha": 0.55, "lw": 0, "zorder": 3} | style
    ax.scatter(x[:, 0], y, **shown)


def ticks(ax: Axes, predictor: Predictor) -> None:
    """The inducing inputs, at the bottom."""
    z = np.asarray(predictor.model.inducing)[:, 0]
    line = ax.get_xaxis_transform()
    ax.plot(z, np.full(len(z), 0.012), "|", color=ACCENT, ms=7, transform=line)


def labels(ax: Axes, x: str, y: str, legend: Any = None) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.margins(x=0)
    if legend is not None:
        ax.legend(loc=legend, frameon=False, fontsize=8, handlelength=1.6)


def regions(ax: Axes, x: np.ndarray, y: np.ndarray, predictor: Predictor) -> None:
    """Where each class is likely, by shades at 50, 70 and 90 %, for two inputs."""
    low, high = x.min(0) - 0.3, x.max(0) + 0.3
    first, second = np.meshgrid(
        np.linspace(low[0], high[0], 160), np.linspace(low[1], high[1], 90)
    )
    rows = np.stack([first.ravel(), second.ravel()], 1)
    shares = predictor.probabilities(rows).reshape((*first.shape, -1))
    for k, colour in enumerate(CLASSES):
        shades = [(*to_rgb(colour), alpha) for alpha in (0.12, 0.26, 0.42)]
        ax.contourf(first, second, shares[..., k], [0.5, 0.7, 0.9, 1], colors=shades)
        dots(ax, x[y == k], x[y == k, 1], color=colour, alpha=0.9, s=13)
    z = np.asarray(predictor.model.inducing)
    ax.scatter(*z.T, marker="+", color=DATA, s=22, lw=0.8)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set(xlabel="first input", ylabel="second input")


# Data, model, fit, figure


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(1.3 * x[:, 0]) + 0.35 * np.cos(3.1 * x[:, 0])


def gaussian(ax: Axes, rng: np.random.Generator) -> None:
    x = np.sort(np.concatenate([rng.uniform(0, 3.6, 60), rng.uniform(5.6, 8, 40)]))
    x = x[:, None]
    y = curve(x) + 0.2 * rng.standard_normal(len(x))
    predictor = fit(x, y, likelihoods.Gaussian(0.1), kernels.RBF())
    at = grid(x)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    dots(ax, x, y)
    ticks(ax, predictor)
    labels(ax, "x", "y", "lower left")


def student_t(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (110, 1))
    y = curve(x) + 0.12 * rng.standard_normal(len(x))
    is_outlier = rng.uniform(size=len(x)) < 0.13
    y = np.where(is_outlier, y + rng.choice([-1, 1.6], len(x)) * rng.gamma(9, 0.25), y)
    predictor = fit(x, y, likelihoods.StudentT(0.2, 3.0), kernels.RBF())
    plain = fit(x, y, likelihoods.Gaussian(0.1), kernels.RBF())
    at, fine = grid(x), grid(x, 200)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    beside(ax, fine, plain.quantiles(fine, LEVELS), "Gaussian")
    dots(ax, x, y)
    ticks(ax, predictor)
    labels(ax, "x", "y", (0.13, 0.85))


def heteroskedastic(ax: Axes, rng: np.random.Generator) -> None:
    x = np.sort(rng.uniform(0, 8, (220, 1)), 0)
    deviation = 0.06 + 0.75 * np.exp(-((x[:, 0] - 4.5) ** 2) / 2.2)
    y = curve(x) + deviation * rng.standard_normal(len(x))
    kernel = kernels.Separate([kernels.RBF(), kernels.RBF(2.0)])
    mean = means.Constant([0.0, -1.0])
    predictor = fit(x, y, likelihoods.HeteroskedasticGaussian(), kernel, mean)
    plain = fit(x, y, likelihoods.Gaussian(0.1), kernels.RBF())
    at = grid(x)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    beside(ax, at, plain.quantiles(at, LEVELS), "Gaussian")
    dots(ax, x, y)
    ticks(ax, predictor)
    labels(ax, "x", "y", "lower left")


def positive(
    ax: Axes, x: np.ndarray, y: np.ndarray, likelihood: likelihoods.AbstractLikelihood
) -> None:
    predictor = fit(x, y, likelihood, kernels.RBF())
    at = grid(x)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    dots(ax, x, y)
    ticks(ax, predictor)
    ax.set_ylim(0, None)


def gamma(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (160, 1))
    y = rng.gamma(2.0, np.exp(curve(x)) / 2)
    positive(ax, x, y, likelihoods.Gamma(1.0))
    labels(ax, "time of day", "waiting time", "upper right")


def beta(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (150, 1))
    share = expit(2.2 * curve(x))
    y = np.clip(rng.beta(9 * share, 9 * (1 - share)), 1e-4, 1 - 1e-4)
    predictor = fit(x, y, likelihoods.Beta(5.0), kernels.RBF())
    at = grid(x)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    dots(ax, x, y)
    ax.set_ylim(-0.04, 1.04)
    ticks(ax, predictor)
    labels(ax, "x", "share", (0.32, 0.88))


def bernoulli(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (140, 1))
    y = (rng.uniform(size=len(x)) < ndtr(2.5 * curve(x))).astype(float)
    probit = fit(x, y, likelihoods.Bernoulli(), kernels.RBF(1.0, 2.0))
    logit = fit(x, y, likelihoods.Bernoulli("logit"), kernels.RBF(1.0, 4.0))
    at = grid(x)
    mean, var = probit.latent(at)
    latent = mean[:, None] + np.sqrt(var)[:, None] * ndtri(LEVELS)[None, :]
    bands(ax, at, ndtr(latent))
    other = logit.probabilities(at)[:, 1]
    ax.plot(at[:, 0], other, color=OTHER, lw=0.9, ls=(0, (4, 3)), label="logit, mean")
    dots(ax, x, y + rng.uniform(-0.03, 0.03, len(x)))
    ticks(ax, probit)
    labels(ax, "x", "P(y = 1)", (0.345, 0.72))


def ordinal(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (180, 1))
    noisy = 1.2 * curve(x) + 0.3 * rng.standard_normal(len(x))
    y = np.digitize(noisy, [-0.9, -0.2, 0.4, 1.1])
    likelihood = likelihoods.Ordinal([-1.0, -0.3, 0.3, 1.0], 0.5, learn_edges=True)
    predictor = fit(x, y, likelihood, kernels.RBF())
    at = grid(x, 400)
    shares = predictor.probabilities(at)
    for k in range(shares.shape[1]):
        for share in (0.1, 0.5, 0.9):
            where = shares[:, k] > share
            tint: dict[str, Any] = {"color": ACCENT, "alpha": 0.2, "lw": 0}
            ax.fill_between(at[:, 0], k - 0.42, k + 0.42, where=where, **tint)
    middle = predictor.quantiles(at, [0.5])[:, 0]
    ax.step(at[:, 0], middle, color=ACCENT, lw=1.8, label="median")
    dots(ax, x, y + rng.uniform(-0.24, 0.24, len(x)))
    ax.set(
        yticks=range(5), yticklabels=["very bad", "bad", "fair", "good", "very good"]
    )
    ax.set_ylim(-0.75, 4.6)
    ticks(ax, predictor)
    labels(ax, "x", "")


def counts(
    ax: Axes, rng: np.random.Generator, dispersion: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.sort(rng.uniform(0, 8, (150, 1)), 0)
    rate = np.exp(1.6 + 0.8 * curve(x))
    if dispersion:
        rate = rate * rng.gamma(1 / dispersion, dispersion, len(x))
    return x, rng.poisson(rate), grid(x)


def poisson(ax: Axes, rng: np.random.Generator) -> None:
    x, y, at = counts(ax, rng, 0.0)
    predictor = fit(x, y, likelihoods.Poisson(), kernels.RBF(), means.Constant(1.0))
    bands(ax, at, predictor.quantiles(at, LEVELS), "mid")
    mean, _ = predictor.predict(at)
    ax.plot(at[:, 0], mean, color=OTHER, lw=0.9, ls=(0, (4, 3)), label="mean")
    dots(ax, x, y)
    ax.set_ylim(-1, None)
    ticks(ax, predictor)
    labels(ax, "time", "events", (0.32, 0.84))


def negative_binomial(ax: Axes, rng: np.random.Generator) -> None:
    x, y, at = counts(ax, rng, 0.6)
    kernel, mean = kernels.RBF(1.5, 0.5), means.Constant(1.0)
    predictor = fit(x, y, likelihoods.NegativeBinomial(0.5), kernel, mean)
    plain = fit(x, y, likelihoods.Poisson(), kernel, mean)
    bands(ax, at, predictor.quantiles(at, LEVELS), "mid")
    beside(ax, at, plain.quantiles(at, LEVELS), "Poisson")
    dots(ax, x, y)
    ax.set_ylim(-2, None)
    ticks(ax, predictor)
    labels(ax, "time", "events", "upper right")


def weibull(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform(0, 8, (160, 1))
    y = np.exp(curve(x)) * rng.weibull(2.5, len(x))
    positive(ax, x, y, likelihoods.Weibull(1.5))
    labels(ax, "x", "time until the event", "upper left")


def censored(ax: Axes, rng: np.random.Generator) -> None:
    x = np.sort(rng.uniform(0, 8, (120, 1)), 0)
    y, limit = 2 * curve(x) + 0.4 * rng.standard_normal(len(x)), 1.2
    is_off = y > limit
    shown = np.where(is_off, limit, y)
    bounds = {"lower": shown, "upper": np.where(is_off, np.inf, shown)}
    noise, kernel = likelihoods.Gaussian(0.2), kernels.RBF(1.0, 2.0)
    predictor = fit(x, shown, likelihoods.Censored(noise), kernel, columns=bounds)
    plain = fit(x, shown, noise, kernel)
    at = grid(x)
    bands(ax, at, predictor.quantiles(at, LEVELS))
    beside(ax, at, plain.quantiles(at, LEVELS), "limit taken for the value")
    dots(ax, x[~is_off], y[~is_off])
    dots(ax, x[is_off], shown[is_off], marker="^", color=OTHER, s=16, alpha=0.9)
    ticks(ax, predictor)
    labels(ax, "x", "y, at most 1.2 on the scale", "lower right")


def binomial(ax: Axes, rng: np.random.Generator) -> None:
    x = np.sort(rng.uniform(0, 8, (60, 1)), 0)
    trials = rng.integers(4, 60, len(x))
    y = rng.binomial(trials, expit(2 * curve(x)))
    likelihood = likelihoods.Binomial("logit")
    predictor = fit(x, y, likelihood, kernels.RBF(), columns={"trials": trials})
    at, levels = grid(x), ndtri(LEVELS)
    mean, var = predictor.latent(at)
    bands(ax, at, expit(mean[:, None] + np.sqrt(var)[:, None] * levels))
    dots(ax, x, y / trials, s=trials)
    ax.set_ylim(-0.06, 1.06)
    ticks(ax, predictor)
    labels(ax, "x", "share of successes", "upper right")


def zero_inflated(
    ax: Axes,
    rng: np.random.Generator,
    dispersion: float,
    likelihood: likelihoods.AbstractLikelihood,
    other: likelihoods.AbstractLikelihood,
    name: str,
) -> None:
    x, y, at = counts(ax, rng, dispersion)
    y = np.where(rng.random(len(y)) < 0.3, 0, y)
    kernel, mean = kernels.RBF(1.5, 0.5), means.Constant(1.0)
    predictor = fit(x, y, likelihood, kernel, mean)
    plain = fit(x, y, other, kernel, mean)
    bands(ax, at, predictor.quantiles(at, LEVELS), "mid")
    beside(ax, at, plain.quantiles(at, LEVELS), name)
    dots(ax, x, y)
    ax.set_ylim(-1, 1.3 * y.max())
    ticks(ax, predictor)
    labels(ax, "time", "events", "upper center")


def zero_inflated_poisson(ax: Axes, rng: np.random.Generator) -> None:
    likelihood = likelihoods.ZeroInflatedPoisson()
    zero_inflated(ax, rng, 0.0, likelihood, likelihoods.Poisson(), "Poisson")


def zero_inflated_negative_binomial(ax: Axes, rng: np.random.Generator) -> None:
    likelihood = likelihoods.ZeroInflatedNegativeBinomial(0.5)
    other = likelihoods.NegativeBinomial(0.5)
    zero_inflated(ax, rng, 0.3, likelihood, other, "negative binomial")


def robust_max(ax: Axes, rng: np.random.Generator) -> None:
    x = rng.uniform((-3.2, -1.7), (3.2, 1.7), (260, 2))
    wave = 0.9 * np.sin(1.6 * x[:, 0])
    true = np.where(x[:, 1] > wave + 0.55, 0, np.where(x[:, 1] < wave - 0.55, 1, 2))
    is_wrong = rng.uniform(size=len(x)) < 0.03
    y = np.where(is_wrong, (true + rng.integers(1, 3, len(x))) % 3, true)
    likelihood = likelihoods.RobustMax(3, error=0.03)
    predictor = fit(x, y, likelihood, kernels.RBF(1.0, 3.0), num=40)
    regions(ax, x, y, predictor)
    wrong = x[is_wrong]
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": DATA, "lw": 0.9}
    ax.scatter(*wrong.T, s=60, label="label is wrong", **ring)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 0.98), frameon=False, fontsize=8)


def softmax(ax: Axes, rng: np.random.Generator) -> None:
    centres = np.asarray([[-1.7, 0.5], [1.7, 0.5], [0.0, -0.9]])
    y = rng.integers(0, 3, 260)
    x = centres[y] + rng.standard_normal((len(y), 2)) * np.asarray([1.0, 0.65])
    kernel = kernels.RBF(2.0, 3.0)
    predictor = fit(x, y, likelihoods.Softmax(3), kernel, num=20)
    regions(ax, x, y, predictor)


FIGURES: dict[str, Callable[[Axes, np.random.Generator], None]] = {
    "gaussian": gaussian,
    "student_t": student_t,
    "heteroskedastic": heteroskedastic,
    "gamma": gamma,
    "beta": beta,
    "bernoulli": bernoulli,
    "ordinal": ordinal,
    "robust_max": robust_max,
    "softmax": softmax,
    "poisson": poisson,
    "negative_binomial": negative_binomial,
    "weibull": weibull,
    "censored": censored,
    "binomial": binomial,
    "zero_inflated_poisson": zero_inflated_poisson,
    "zero_inflated_negative_binomial": zero_inflated_negative_binomial,
}

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "0.4",
    "axes.labelcolor": "0.25",
    "axes.labelsize": 9,
    "xtick.color": "0.4",
    "ytick.color": "0.4",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        with plt.rc_context(STYLE):
            figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
            FIGURES[name](ax, np.random.default_rng(0))
            path = out / f"likelihood_{name}.png"
            figure.savefig(path, dpi=240)
            plt.close(figure)
        # A palette of few colours is all that is there, and a third of the bytes.
        Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(FIGURES)}")
    arguments = parser.parse_args()
    main(arguments.out, arguments.names)
