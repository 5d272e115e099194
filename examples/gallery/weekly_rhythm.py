"""Can three weeks of hires predict the fourth?

You put prior knowledge into a kernel. The data are hourly bicycle hires in Washington,
D.C., in May 2011. One kernel assumes that each week resembles the one before. The
other assumes no weekly pattern and forgets the past within hours.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, gp
from natgrad.gp import kernels


FIRST, WEEKS = 121, 4  # days since New Year 2011, and how many weeks to use


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    table, hires = datasets.load("bike", as_frame=True)
    # Some hours are missing. A new day begins when the hour decreases.
    days = np.cumsum(np.diff(table["hr"], prepend=0) < 0) + table["hr"] / 24
    is_shown = (days >= FIRST) & (days < FIRST + 7 * WEEKS)
    x = days[is_shown].to_numpy()[:, None] - FIRST
    # The square root of a count has nearly constant noise.
    y = np.sqrt(hires[is_shown].to_numpy())
    centre = y.mean()
    is_past = x[:, 0] < 7 * (WEEKS - 1)

    week = kernels.Periodic(0.2, 10.0, period=7.0) * kernels.RBF(30.0)
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    at = np.linspace(7 * (WEEKS - 2), 7 * WEEKS, 337)[:, None]
    errors = {}
    for name, kernel, colour in (
        ("weekly kernel", week + kernels.Matern32(0.2), "#0072B2"),
        ("no weekly pattern", kernels.Matern32(0.2, 10.0), "#D55E00"),
    ):
        z = gp.inducing.k_means(x[is_past], 170)
        model = gp.SparseGP(kernel, gp.likelihoods.Gaussian(1.0), z)
        data = (x[is_past], y[is_past] - centre)
        model, _ = gp.fit(model, data, batch_size=504, steps=100, progress=False)
        predictor = gp.predictor(model)
        mean, _ = predictor.predict(x[~is_past])
        error = hires[is_shown].to_numpy()[~is_past] - (mean + centre) ** 2
        errors[name] = np.abs(error).mean()
        print(f"{name}: mean error {errors[name]:.1f} bicycles per hour")
        low, middle, high = squared(predictor, at, centre)
        ax.fill_between(at[:, 0], low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(at, middle, color=colour, lw=1.3, label=f"{name}, 90 %")
    ax.plot(x, y**2, ".", color="0.2", ms=3, label="hires")
    ax.axvline(7 * (WEEKS - 1), color="0.5", lw=0.9, ls="--")
    ax.set(xlim=(at[0, 0], at[-1, 0]), ylim=(0, 900), xticks=range(14, 29))
    ax.set(xlabel="day; training ends at the dashed line", ylabel="hires per hour")
    ax.legend(loc="upper left", ncols=3)
    ax.set_title(
        f"Mean error in the fourth week: {errors['weekly kernel']:.0f} per hour, "
        f"without the weekly kernel {errors['no weekly pattern']:.0f}"
    )
    plt.savefig(out)


def squared(predictor: Any, at: np.ndarray, centre: float) -> np.ndarray:
    """Quantiles of the count; the model predicts its square root."""
    return np.maximum(predictor.quantiles(at, [0.05, 0.5, 0.95]).T + centre, 0) ** 2


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("weekly_rhythm.png"))
    main(parser.parse_args().out)
