"""What if the rows come part by part, and the old ones may not be kept?

Output of a power plant from the weather, in eight parts of some 1,080 rows. The first
part teaches the lengthscales; each later one only moves the posterior, and may then be
thrown away. The dashed line is one fit of all rows at once, which learns lengthscales
and inducing inputs from all of them.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    x, y = datasets.load("power")
    rows = datasets.split("power", x, y)

    def new(**options: int) -> GPRegressor:
        return GPRegressor("gaussian", n_inducing=80, verbose=False, **options)

    def error(model: GPRegressor) -> float:
        return float(np.sqrt(np.mean((model.predict(rows.x_test) - rows.y_test) ** 2)))

    whole = error(new(max_iter=300).fit(rows.x, rows.y))
    model = new(max_iter=300)
    kept, seen = [], []
    for part in np.array_split(np.arange(len(rows.y)), 8):
        model.partial_fit(rows.x[part], rows.y[part])
        kept.append(error(model))
        seen.append(int(model.n_rows_seen_))
    print(f"after the first part: {kept[0]:.3f} MW")
    print(f"after all parts: {kept[-1]:.3f} MW")
    print(f"all rows at once: {whole:.3f} MW")

    _, ax = plt.subplots()
    ax.plot(seen, kept, "o-", color="#0072B2")
    ax.axhline(whole, color="#D55E00", ls="--")
    ax.text(seen[-1], whole, "all rows at once", color="#D55E00", ha="right", va="top")
    ax.set(xlabel="rows seen so far", ylabel="error on held-out rows, MW")
    ax.set_title(
        f"From {kept[0]:.2f} to {kept[-1]:.2f} MW part by part; "
        f"all rows at once would be {whole:.2f}"
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("later_rows.png"))
    main(parser.parse_args().out)
