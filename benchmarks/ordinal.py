"""Ordered classes: `GPOrdinal` against `GPClassifier`, which ignores the order.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/ordinal.py

The better one on these splits stands for natgrad on the wines of tables.py, which has
other splits. A line of results/ordinal.csv is one run; one that is there is not made
again. results/ordinal.md sums up.
"""

from pathlib import Path

import numpy as np
import tables

from natgrad.sklearn import GPClassifier, GPOrdinal


RESULTS = Path(__file__).parent / "results" / "ordinal.csv"
FIELDS = ("set", "split", "estimator", "log_density", "error", "calibration", "elbo")
SETS = ("wine", "wine, distinct")
SPLITS = (0, 1, 2)


def run(name: str, split: int, make: type) -> dict[str, object]:
    data = tables.load(name, split)
    y = np.unique(np.append(data["y"], data["y_test"]), return_inverse=True)[1]
    y, y_test = y[: len(data["y"])], y[len(data["y"]) :]
    model = make(verbose=False, random_state=split).fit(data["x"], y)
    probabilities = np.zeros([len(y_test), y.max() + 1])
    probabilities[:, model.classes_] = model.predict_proba(data["x_test"])
    scores = tables.score_classes(probabilities, y_test)
    found = {key: f"{value:.4f}" for key, value in scores.items()}
    key = {"set": name, "split": split, "estimator": make.__name__}
    return key | found | {"elbo": f"{model.elbo_:.4f}"}


def summary(rows: list[dict[str, str]]) -> str:
    """The means over splits, as a table."""
    lines = [
        "| set | GPOrdinal | GPClassifier | splits where GPClassifier is better |",
        "|---|---|---|---|",
    ]
    for name in SETS:
        ordinal, classes = (
            np.array(
                [
                    float(row["log_density"])
                    for row in rows
                    if row["set"] == name and row["estimator"] == estimator
                ]
            )
            for estimator in ("GPOrdinal", "GPClassifier")
        )
        better = f"{(classes > ordinal).sum()} of {len(classes)}"
        lines.append(
            f"| {name} | {ordinal.mean():.3f} | {classes.mean():.3f} | {better} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    is_key = lambda row: (row["set"], int(row["split"]), row["estimator"])
    done = {is_key(row) for row in tables.read(RESULTS)}
    for name in SETS:
        for split in SPLITS:
            for make in (GPOrdinal, GPClassifier):
                if (name, split, make.__name__) not in done:
                    row = run(name, split, make)
                    tables.append(row, FIELDS, RESULTS)
                    print(*row.values(), flush=True)
    RESULTS.with_suffix(".md").write_text(summary(tables.read(RESULTS)))


if __name__ == "__main__":
    main()
