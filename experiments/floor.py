"""How short a guarded step may be while the hyperparameters move, on large tables.

    export NATGRAD_DATA=folder-of-tables
    python experiments/floor.py           # writes results/floor.csv
    python experiments/floor.py --table   # writes the page's table

Estimators with nothing set but the number of steps: `GPRegressor` on protein and
`GPClassifier` on mnist, with batches of 256 rows. A tenth of protein's rows and the
last 10,000 training images of mnist are held out; only these are scored.
"""

import argparse
import itertools
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from natgrad import _guarded as guarded, datasets
from natgrad.sklearn import GPClassifier, GPRegressor


RESULTS = Path(__file__).parent / "results" / "floor.csv"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "hyperparameters_tables.md"
FLOORS = (0.1, 0.02)


def protein() -> tuple[Any, ...]:
    x, y = datasets.load("protein")[:2]
    order = np.random.default_rng(0).permutation(len(y))
    kept, held = order[len(y) // 10 :], order[: len(y) // 10]
    model = GPRegressor(max_iter=1200, verbose=False)
    return model, x[kept], y[kept], x[held], y[held]


def mnist() -> tuple[Any, ...]:
    x, y = datasets.load("mnist")[:2]
    x, y = (
        np.asarray(x, np.float32).reshape(len(x), -1)[:60_000],
        np.asarray(y)[:60_000],
    )
    model = GPClassifier(max_iter=600, verbose=False)
    return model, x[:50_000], y[:50_000], x[50_000:], y[50_000:]


def run(name: str, floor: float) -> dict[str, Any]:
    guarded.FLOOR = floor, floor
    model, x, y, x_held, y_held = {"protein": protein, "mnist": mnist}[name]()
    model.fit(x, y)
    row = {"set": name, "floor": floor, "steps": model.n_iter_, "elbo": model.elbo_}
    row["variance"] = float(model.model_.kernel.variance)
    if isinstance(model, GPClassifier):
        chosen = model.predict_proba(x_held)
        place = np.searchsorted(model.classes_, y_held)
        row["density"] = np.log(chosen[np.arange(len(place)), place]).mean()
        row["errors"] = 100 * np.mean(chosen.argmax(1) != place)
    else:
        row["density"] = model.log_density(x_held, y_held).mean()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        write_table()
        return
    rows = []
    # A process for each, or the steps that were compiled with the first floor are used.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for name, floor in itertools.product(("protein", "mnist"), FLOORS):
            rows.append(pool.submit(run, name, floor).result())
            print(rows[-1], flush=True)
            pandas.DataFrame(rows).to_csv(RESULTS, index=False, float_format="%.5g")


def write_table() -> None:
    columns = ["set", "floor", "ELBO", "variance", "held-out density", "errors, %"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in pandas.read_csv(RESULTS).itertuples():
        errors = "" if np.isnan(row.errors) else f"{row.errors:.2f}"
        cells = [row.set, f"{row.floor:g}", f"{row.elbo:.4f}", f"{row.variance:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row.density:.4f}", errors]) + " |")
    begin, end = "<!-- floor -->", "<!-- end of floor -->"
    table = f"{begin}\n\n" + "\n".join(lines) + f"\n\n{end}"
    page = PAGE.read_text()
    PAGE.write_text(re.sub(f"{begin}.*{end}", table, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
