"""Fits of changing shapes in one process: do memory, descriptors and threads grow?

    python experiments/soak.py                 # 30 minutes: results/soak.md
    python experiments/soak.py --minutes 5

Each fit has another number of rows, columns, classes or inducing inputs, and comes from
another estimator or from `gp.fit`; every one predicts, saves, loads and is dropped. The
slopes are of a straight line through the second half of the run, after the programs of
the first fits are compiled.
"""

import argparse
import gc
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from natgrad import gp
from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor, load


RESULTS = Path(__file__).parent / "results"
PAGE = os.sysconf("SC_PAGE_SIZE")


def reading() -> dict[str, float]:
    """What this process holds now."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20
    return {
        "memory, MiB": resident,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "memory maps": Path("/proc/self/maps").read_text().count("\n"),
    }


def one(rng: np.random.Generator, folder: Path) -> None:
    """A fit of a random kind and shape, from a table to a file and back."""
    n, d = int(rng.integers(20, 400)), int(rng.integers(1, 6))
    x = rng.standard_normal((n, d))
    f = np.sin(2 * x[:, 0]) + 0.3 * x.sum(1)
    settings = {"n_inducing": int(rng.integers(5, 40)), "max_iter": 20}
    kind = rng.integers(4)
    if kind == 0:
        names = ["gaussian", "student-t", "heteroskedastic"]
        model = GPRegressor(names[rng.integers(3)], verbose=False, **settings)
        model.fit(x, f + 0.1 * rng.standard_normal(n)).predict(x, return_std=True)
    elif kind == 1:
        cuts = np.quantile(f, np.linspace(0, 1, int(rng.integers(2, 5)) + 1)[1:-1])
        model = GPClassifier(verbose=False, **settings)
        model.fit(x, np.searchsorted(cuts, f)).predict_proba(x)
    elif kind == 2:
        cuts = np.quantile(f, [0.3, 0.6])
        model = GPOrdinal(verbose=False, **settings)
        model.fit(x, np.searchsorted(cuts, f)).predict_proba(x)
    else:
        y = rng.poisson(np.exp(np.clip(f, -2, 2))).astype(float)
        start = gp.initialize(
            x, gp.likelihoods.Poisson(), num_inducing=settings["n_inducing"]
        )
        start, _ = gp.fit(start, (x, y), steps=20, progress=False)
        gp.predictor(start).predict(x)
        gp.save(start, folder / "model.natgrad")
        gp.load(folder / "model.natgrad")
        return
    model.save(folder / "model.natgrad")
    load(folder / "model.natgrad")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    start, fits, readings = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        while (passed := time.monotonic() - start) < 60 * args.minutes:
            one(rng, Path(folder))
            fits += 1
            if not readings or passed - readings[-1][0] > 15 * args.minutes / 30:
                gc.collect()
                readings.append((passed, fits, reading()))
                print(
                    f"{passed / 60:5.1f} min, {fits} fits: {readings[-1][2]}",
                    flush=True,
                )
    later = readings[len(readings) // 2 :]
    hours = np.array([passed / 3600 for passed, _, _ in later])
    per_fit = np.array([count for _, count, _ in later])
    lines = [
        f"`python experiments/soak.py --minutes {args.minutes:g}`: {fits} fits.",
        "",
        "| | first | half way | end | slope per hour | slope per fit |",
        "|---|---|---|---|---|---|",
    ]
    for name in readings[0][2]:
        values = np.array([held[name] for _, _, held in later])
        slopes = [np.polyfit(by, values, 1)[0] for by in (hours, per_fit)]
        ends = [readings[0][2][name], values[0], values[-1]]
        cells = [f"{end:.0f}" for end in ends] + [f"{slope:+.3g}" for slope in slopes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    (RESULTS / "soak.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
