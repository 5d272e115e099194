"""What if rows arrive in parts, and you cannot keep the old ones?

You update a model with `partial_fit`. The data are the output of a power plant and the
weather, in eight parts of about 1,080 rows, sorted by temperature. The first part knows
cold days only. Each later part updates the posterior, the lengthscales, the noise and
the inducing inputs, and you can delete it afterwards. The line is one fit of all rows
at once.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets
from natgrad.sklearn import GPRegressor


NEAR: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}


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
    for part in np.array_split(np.argsort(rows.x[:, 0]), 8):
        model.partial_fit(rows.x[part], rows.y[part])
        kept.append(error(model))
        seen.append(int(model.n_rows_seen_))
    print(f"after the first part: {kept[0]:.3f} MW")
    print(f"after all parts: {kept[-1]:.3f} MW")
    print(f"all rows at once: {whole:.3f} MW")

    _, ax = plt.subplots()
    ax.plot(seen, kept, "o-", color="#0072B2")
    for place in (0, -1):
        label = f"{kept[place]:.2f} MW"
        ax.annotate(label, (seen[place], kept[place]), (0, 8), **NEAR)
    ax.axhline(whole, color="#D55E00", lw=3)
    label = f"one fit of all rows: {whole:.2f} MW"
    ax.annotate(
        label, (0, whole), (8, -14), textcoords="offset points", color="#D55E00"
    )
    ax.set(xlabel="rows seen so far", ylabel="error on held-out rows, MW")
    ax.set(xlim=(0, 9500), yscale="log", ylim=(0.8 * whole, 1.6 * max(kept)))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")
    excess = 100 * (kept[-1] / whole - 1)
    ax.set_title(f"From cold days to hot ones: {excess:.0f} % above one fit of all")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("later_rows.png"))
    main(parser.parse_args().out)
