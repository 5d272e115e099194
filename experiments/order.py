"""Compares moving q first with simultaneous steps, on mnist and protein.

    export NATGRAD_DATA=folder-of-tables
    python experiments/order.py           # writes results/order.csv
    python experiments/order.py --table   # writes the page's table

Both orders have the same batches of 256 rows, guarded steps and rate. In mnist the last
10,000 of the training images are held out and only these are scored; of protein a tenth
of the rows. Single precision.
"""

import argparse
import re
from pathlib import Path

import jax
import numpy as np
import pandas

from natgrad import datasets, gp
from natgrad.gp.spacing import default_hyperparameters
from natgrad.guarded import guarded_ngd


RESULTS = Path(__file__).parent / "results" / "order.csv"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "hyperparameters.md"
ORDERS = {"q first": gp.alternating, "simultaneous": gp.simultaneous}
BATCH, EVERY = 256, 100


def mnist() -> tuple:
    x, y = datasets.load("mnist")[:2]
    x = np.asarray(x, np.float32).reshape(len(x), -1)
    x, y = (x - x[:50_000].mean(0)) / x[:50_000].std(0).max(), np.asarray(y)
    likelihood = gp.likelihoods.Softmax(10, draws=64)
    return likelihood, x[:50_000], y[:50_000], x[50_000:60_000], y[50_000:60_000]


def protein() -> tuple:
    x, y = datasets.load("protein")[:2]
    places = np.random.default_rng(0).permutation(len(y))
    x, y = np.asarray(x, np.float32)[places], np.asarray(y, np.float32)[places]
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    cut = len(y) // 10
    return gp.likelihoods.StudentT(), x[cut:], y[cut:], x[:cut], y[:cut]


SETS = {"mnist": (mnist, 200), "protein": (protein, 100)}


def evaluations(name: str, order: str) -> pandas.DataFrame:
    """Trains in one order and scores held-out rows every 100 steps."""
    load, inducing = SETS[name]
    likelihood, x, y, x_new, y_new = load()
    y = y.astype(np.float32)
    natural = guarded_ngd(2.0 ** round(np.log2(BATCH / len(y))))
    rule = ORDERS[order](natural, default_hyperparameters(), len(y))
    rows = []

    def evaluate(record, model) -> None:
        predictor = gp.condition(model)
        density = np.mean(predictor.log_density(x_new, y_new.astype(np.float32)))
        seen = {"set": name, "order": order, "step": record.step}
        seen["elbo"] = round(float(record.objective), 4)
        seen["variance"] = round(float(model.kernel.variance), 2)
        seen["density"] = round(float(density), 4)
        if name == "mnist":
            wrong = predictor.probabilities(x_new).argmax(1) != y_new
            seen["errors"] = round(100 * float(np.mean(wrong)), 2)
        rows.append(seen)
        print(seen, flush=True)

    gp.fit(
        gp.start(x, likelihood, inducing, 0),
        (x, y),
        rule=rule._replace(is_annealed=True),
        batch_size=BATCH,
        log_every=EVERY,
        callbacks=[evaluate],
        progress=False,
    )
    return pandas.DataFrame(rows)


def table() -> None:
    """Writes some evaluations of each run to the page."""
    found = pandas.read_csv(RESULTS)
    lines = ["| set | order | step | ELBO | variance | held-out density | errors, % |"]
    lines.append("|---|---|---|---|---|---|---|")
    for _, run in found.groupby(["set", "order"]):
        shown = run[run.step.isin([100, 200, 400, 800]) | (run.step == run.step.max())]
        for row in shown.itertuples():
            errors = "" if np.isnan(row.errors) else f"{row.errors:g}"
            cells = (row.set, row.order, row.step, row.elbo, row.variance, row.density)
            lines.append(f"| {' | '.join(map(str, cells))} | {errors} |")
    text = PAGE.read_text()
    marks = re.compile("(<!-- order -->\n).*?(<!-- end of order -->)", re.DOTALL)
    body = "\n".join(lines)
    PAGE.write_text(marks.sub(lambda m: f"{m[1]}\n{body}\n\n{m[2]}", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETS))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        table()
        return
    jax.config.update("jax_enable_x64", True)
    parts = [evaluations(name, order) for name in arguments.names for order in ORDERS]
    pandas.concat(parts).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
