"""How long `gp.fit` runs on batches, and how its rates fall: what the defaults rest on.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/decay.py

The models are those of optimisers.py, on other splits. A run is a line of
results/decay.csv: the log density of held-out rows at its end, and the first step at
which that of the shorter run with a cosine was reached. A run that is there is not made
again; results/decay.md sums up. `cosine` is (1 + cos πp)/2 at the part p of the decay,
`square` is (1 − p)².
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optimisers
import tables

import natgrad._guarded
import natgrad._optim
from natgrad import gp
from natgrad.gp import _fit
from natgrad.train import _rules


RESULTS = Path(__file__).parent / "results" / "decay.csv"
FIELDS = ("set", "split", "steps", "shape", "log_density", "reached")
SETS, SPLITS, STEPS = ("kin8nm", "power", "protein", "elevators"), (0, 1), (2500, 5000)
SHAPES = {
    "cosine": lambda part: (1 + jnp.cos(jnp.pi * jnp.clip(part, 0, 1))) / 2,
    "square": lambda part: (1 - jnp.clip(part, 0, 1)) ** 2,
}


def curve(
    rows: dict, steps: int, shape: str, is_averaged: bool = False
) -> list[tuple[int, float]]:
    """The log density of held-out rows after each 50 steps, or of the average."""
    for module in (natgrad._optim, natgrad._guarded, _rules):
        module.annealing = SHAPES[shape]
    _fit.averaged = _rules.averaged if is_averaged else lambda rule: rule
    _fit.default_rule.cache_clear()
    jax.clear_caches()
    kernel = gp.kernels.Matern52(rows["lengthscale"], optimisers.VARIANCE)
    likelihood = gp.likelihoods.Gaussian(optimisers.NOISE)
    made: list[tuple[int, float]] = []

    def look(record: natgrad.train.Record, model: gp.SparseGP) -> None:
        densities = gp.predictor(model).log_density(rows["x_test"], rows["y_test"])
        made.append((record.step, float(densities.mean())))

    gp.fit(
        gp.SparseGP(kernel, likelihood, rows["z"]),
        (rows["x"], rows["y"]),
        batch_size=optimisers.BATCH,
        steps=steps,
        log_every=50,
        callbacks=[look],
        progress=False,
    )
    return made


def summary(rows: list[dict[str, str]]) -> str:
    """The ranges over sets and splits of what the runs differ by."""
    keys = ("set", "split", "steps", "shape")
    found = {tuple(row[key] for key in keys): row for row in rows}
    end = lambda *run: float(found[run]["log_density"])
    sets = sorted({run[:2] for run in found})
    few, many = map(str, STEPS)
    ends = lambda steps, shape: np.array([end(*t, steps, shape) for t in sets])
    longer = ends(many, "square") - ends(few, "square")
    cosine = np.concatenate(
        [ends(steps, "cosine") - ends(steps, "square") for steps in (few, many)]
    )
    lines = [
        f"{many} steps end higher than {few} by {longer.min():.4f} to "
        f"{longer.max():.4f} nats per row",
        f"a cosine ends {-cosine.min():.4f} lower to {cosine.max():.4f} higher",
    ]
    for shape in SHAPES:
        steps = [int(found[(*t, many, shape)]["reached"]) for t in sets]
        lines.append(
            f"{many} steps with a {shape} reach what {few} with a cosine end with "
            f"after {min(steps)} to {max(steps)}"
        )
    return "".join(f"- {line}\n" for line in lines)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    done = {(row["set"], int(row["split"])) for row in tables.read(RESULTS)}
    for name in SETS:
        for optimisers.SPLIT in set(SPLITS) - {split for s, split in done if s == name}:
            rows, goal = optimisers.rows_of(name), None
            for steps in STEPS:
                for shape in SHAPES:
                    made = curve(rows, steps, shape)
                    final = made[-1][1]
                    goal = final if goal is None else goal
                    reached = next((at for at, value in made if value >= goal), "")
                    run = (name, optimisers.SPLIT, steps, shape, f"{final:.4f}")
                    line = dict(zip(FIELDS, (*run, reached), strict=True))
                    tables.append(line, FIELDS, RESULTS)
                    print(*line.values(), flush=True)
    RESULTS.with_suffix(".md").write_text(summary(tables.read(RESULTS)))


if __name__ == "__main__":
    main()
