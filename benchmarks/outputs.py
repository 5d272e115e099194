"""Several outputs at once, one fit each, and GPyTorch: the density of hidden values.

In each table 30 % of the values are hidden at random, so that most rows keep some of
their outputs. The score is the mean log density of the hidden values, each by itself,
in units of the deviation of its output. All have a Matérn-5/2 kernel for each latent
function and Gaussian noise for each output. GPyTorch has as many latent functions and
inducing inputs as natgrad chose.

    python benchmarks/outputs.py TABLE METHOD SPLIT     # adds a line to the results

Methods are "together" and "separate", and "gpytorch RATE" with Adam's learning rate
where GPyTorch is installed: it reads the sizes from the line of "together".
"""
# pyright: reportMissingImports=false

import csv
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


RESULTS = Path(__file__).parent / "results" / "outputs.csv"
FIELDS = (
    "table",
    "method",
    "split",
    "rows",
    "outputs",
    "latents",
    "inducing",
    "log_density",
    "seconds",
)
HIDDEN = 0.3
STEPS, BATCH = 2000, 256
"""Steps of Adam, each on so many observed values."""


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and standardized outputs."""
    import pandas as pd

    read = lambda file: pd.read_parquet(Path(os.environ["NATGRAD_DATA"]) / file)
    if name == "elnino":  # sea temperatures of the twelve months, by the year
        frame = read("elnino.parquet")
        x, y = frame[["YEAR"]], frame.drop(columns="YEAR")
    elif name == "weather":  # two years of days
        frame = read("seattle_weather.parquet").iloc[:731]
        x, y = seasons(np.arange(731.0)), frame[["temp_max", "temp_min", "wind"]]
    elif name == "hourly":  # the temperatures of the 24 hours of a day
        frame = read("seattle_temps_hourly.parquet")
        days = frame.groupby([frame.date.dt.dayofyear, frame.date.dt.hour])
        y = days.temp.mean().unstack().dropna()
        x = seasons(y.index.to_numpy(float))
    else:
        raise SystemExit(f"there is no table {name}")
    x, y = np.asarray(x, float), np.asarray(y, float)
    return x, (y - y.mean(0)) / y.std(0)


def seasons(day: np.ndarray) -> np.ndarray:
    turn = 2 * np.pi * day / 365.25
    return np.stack([day, np.sin(turn), np.cos(turn)], 1)


def hidden(y: np.ndarray, split: int) -> np.ndarray:
    return np.random.default_rng(split).random(y.shape) < HIDDEN


def together(x: Any, seen: Any, y: Any) -> dict[str, Any]:
    from natgrad.sklearn import GPRegressor

    model = GPRegressor(verbose=0).fit(x, seen)
    return {
        "log_density": model.log_density(x, y),
        "latents": model.model_.likelihood.latents,
        "inducing": model.n_inducing_,
    }


def separate(x: Any, seen: Any, y: Any) -> dict[str, Any]:
    from natgrad.sklearn import GPRegressor

    found, sizes = [], []
    for column, target in zip(seen.T, y.T, strict=True):
        known = ~np.isnan(column)
        model = GPRegressor("gaussian", verbose=0).fit(x[known], column[known])
        found.append(model.log_density(x, target))
        sizes.append(model.n_inducing_)
    return {"log_density": np.stack(found, 1), "inducing": max(sizes)}


def gpytorch(
    x: Any, seen: Any, y: Any, rate: float, sizes: dict[str, int]
) -> dict[str, Any]:
    """Adam on batches of observed values, in 64 bits, from natgrad's starting point."""
    import gpytorch as library
    import torch
    from sparse_rivals import k_means

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    x = (x - x.mean(0)) / x.std(0)
    outputs, latents = y.shape[1], sizes["latents"]
    z = torch.tensor(k_means(x, sizes["inducing"], 0))
    batch, variational = torch.Size([latents]), library.variational

    class Model(library.models.ApproximateGP):
        def __init__(self):
            q = variational.CholeskyVariationalDistribution(len(z), batch_shape=batch)
            super().__init__(
                variational.LMCVariationalStrategy(
                    variational.VariationalStrategy(
                        self, z.repeat(latents, 1, 1), q, learn_inducing_locations=True
                    ),
                    num_tasks=outputs,
                    num_latents=latents,
                    latent_dim=-1,
                )
            )
            matern = library.kernels.MaternKernel(
                nu=2.5, ard_num_dims=x.shape[1], batch_shape=batch
            )
            # As natgrad's: half of the latent functions smooth, half of them rough.
            is_rough = torch.arange(latents) >= latents // 2
            root = x.shape[1] ** 0.5
            lengths = torch.where(is_rough, root / 10, root)
            matern.lengthscale = lengths[:, None, None].expand(-1, 1, x.shape[1])
            self.covar_module = library.kernels.ScaleKernel(matern, batch_shape=batch)
            self.covar_module.outputscale = torch.where(is_rough, 1.0, 2.0)
            self.mean_module = library.means.ZeroMean(batch_shape=batch)

        def forward(self, x):
            return library.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model()
    filled = np.where(np.isnan(seen), 0, seen)
    pairs = np.isfinite(seen).astype(float)
    correlation = filled.T @ filled / (pairs.T @ pairs)
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    mixing = vectors * np.sqrt(np.maximum(values, 0.01))
    first = mixing.T[::-1][: latents // 2]
    model.variational_strategy.lmc_coefficients.data = torch.tensor(
        np.concatenate([first, first])
    )
    log_noise = torch.nn.Parameter(torch.zeros(outputs))
    optimizer = torch.optim.Adam([*model.parameters(), log_noise], lr=rate)
    rows, tasks = map(torch.tensor, np.nonzero(np.isfinite(seen)))
    table, targets = torch.tensor(x), torch.tensor(filled)
    for _ in range(STEPS):
        some = torch.randint(len(rows), (BATCH,))
        row, task = rows[some], tasks[some]
        f = model(table[row], task_indices=task)
        noise = log_noise[task]
        square = (targets[row, task] - f.mean) ** 2 + f.variance
        fit = -(square * torch.exp(-noise) + noise + np.log(2 * np.pi)) / 2
        kl = model.variational_strategy.kl_divergence()
        loss = kl / len(rows) - fit.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    density = np.empty(y.shape)
    with torch.no_grad():
        for task in range(outputs):
            f = model(table, task_indices=torch.full((len(x),), task))
            var = f.variance + torch.exp(log_noise[task])
            square = (torch.tensor(y[:, task]) - f.mean) ** 2
            density[:, task] = -(square / var + torch.log(2 * np.pi * var)) / 2
    return {"log_density": density, **sizes}


def sizes_of(table: str, split: str) -> dict[str, int]:
    """The numbers of latent functions and inducing inputs that natgrad chose."""
    with RESULTS.open() as file:
        for line in csv.DictReader(file):
            place = line["table"], line["method"], line["split"]
            if place == (table, "together", split):
                return {name: int(line[name]) for name in ("latents", "inducing")}
    raise SystemExit(f"first: python benchmarks/outputs.py {table} together {split}")


def main(table: str, method: str, split: str) -> None:
    x, y = load(table)
    mask = hidden(y, int(split))
    seen, (name, *more) = np.where(mask, np.nan, y), method.split()
    began = time.monotonic()
    if name == "gpytorch":
        found = gpytorch(x, seen, y, float(more[0]), sizes_of(table, split))
    elif name == "together":
        found = together(x, seen, y)
    else:
        found = separate(x, seen, y)
    score = float(found.pop("log_density")[mask].mean())
    line = dict.fromkeys(FIELDS, "") | found
    line |= {"table": table, "method": method, "split": split}
    line |= {"rows": len(y), "outputs": y.shape[1], "log_density": f"{score:.3f}"}
    line["seconds"] = f"{time.monotonic() - began:.0f}"
    is_new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(line)
    print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
