"""What if a fifth of the labels are wrong?

You train a classifier on labels with mistakes. The data are the digits of scikit-learn,
with 8 × 8 pixels. One training label in five is replaced by a random other one. The
robust-max likelihood assumes that some labels are wrong. The test labels are right.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from natgrad.gp.likelihoods import RobustMax
from natgrad.sklearn import GPClassifier


def main(out: Path) -> None:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=300, random_state=0)
    rng = np.random.default_rng(0)
    is_wrong = rng.random(len(y)) < 0.2
    noisy = np.where(is_wrong, (y + rng.integers(1, 10, len(y))) % 10, y)
    options = {"kernel": "rbf", "n_inducing": 60, "max_iter": 200, "verbose": False}
    models = {
        "robust-max": GPClassifier(RobustMax(10, error=0.2), **options),
        "softmax": GPClassifier("softmax", **options),
        "logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=2000)
        ),
    }
    right = {}
    for name, model in models.items():
        model.fit(x, noisy)
        right[name] = np.mean(model.predict(x_test) == y_test)
        print(f"{name}: {right[name]:.3f} of test digits right")
    print(f"training labels that are right: {1 - is_wrong.mean():.3f}")

    _, ax = plt.subplots(figsize=(6.4, 3.0))
    colours = ("#0072B2", "#56B4E9", "#D55E00")
    for place, share in enumerate(right.values()):
        ax.barh(place, 100 * (1 - share), color=colours[place], height=0.6)
        ax.text(
            100 * (1 - share) + 0.2, place, f"{100 * (1 - share):.1f} %", va="center"
        )
    given = 100 * is_wrong.mean()
    ax.axvline(given, color="0.3", ls="--", lw=1)
    ax.text(given - 0.3, 0, "training labels", color="0.3", ha="right", va="center")
    ax.set_yticks(range(len(right)), right)
    ax.set(xlabel="wrong, %")
    ax.invert_yaxis()
    left = 100 * (1 - right["robust-max"])
    ax.set_title(
        f"{given:.0f} % of training labels wrong: {left:.1f} % of digits misread"
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("wrong_labels.png"))
    main(parser.parse_args().out)
