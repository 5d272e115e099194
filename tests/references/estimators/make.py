"""Writes estimator files, and what their estimators predict.

    python tests/references/estimators/make.py

A natgrad that reads this format must predict the same from them.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor


HERE = Path(__file__).parent
METADATA = {"source": "made up", "rows": 40}


def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(7)
    x = pd.DataFrame(rng.normal(size=(40, 2)) * [3, 50], columns=["age", "size (m²)"])
    return x, np.sin(x["age"].to_numpy()) + 0.1 * rng.normal(size=40)


def estimators() -> dict[str, Any]:
    options = {"n_inducing": 6, "max_iter": 20, "verbose": False}
    x, y = table()
    place = np.digitize(y, [-0.5, 0.5])
    names = np.array(["low", "middle", "high"])
    return {
        "regressor": GPRegressor("student-t", **options).fit(x, 30 * y + 100),
        "classifier": GPClassifier(**options).fit(x, names[place]),
        "ordinal": GPOrdinal(kernel="rbf", **options).fit(x, place + 1),
    }


def predictions(estimator: Any) -> tuple[np.ndarray, ...]:
    x = table()[0][:8]
    if hasattr(estimator, "predict_proba"):
        return (estimator.predict_proba(x),)
    return estimator.predict(x, return_std=True)


def main() -> None:
    warnings.simplefilter("ignore")  # so few steps do not converge
    answers: dict[str, np.ndarray] = {}
    for name, estimator in estimators().items():
        estimator.save(HERE / f"{name}.natgrad", METADATA)
        for i, answer in enumerate(predictions(estimator)):
            answers[f"{name}.{i}"] = answer
    np.savez(HERE / "predictions.npz", **answers)


if __name__ == "__main__":
    main()
