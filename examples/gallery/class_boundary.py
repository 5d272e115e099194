"""Where does one class end and the other begin?

You draw the boundary of a classifier and the region where it is unsure. The data are
5,300 points of two classes that wind around each other, so no straight line separates
them. On the dashed lines one class has a probability of 90 %.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from natgrad import datasets, plot
from natgrad.sklearn import GPClassifier


def main(out: Path) -> None:
    x, y = datasets.load("banana")
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    x, y, x_test, y_test = x[train], y[train], x[test], y[test]
    model = GPClassifier(n_inducing=50, max_iter=600, verbose=False)
    model.fit(x, y)
    line = LogisticRegression().fit(x, y)

    shares = model.predict_proba(x_test)
    is_wrong = model.predict(x_test) != y_test
    is_sure = shares.max(1) > 0.9
    error, straight = is_wrong.mean(), np.mean(line.predict(x_test) != y_test)
    print(f"error of the Gaussian process: {error:.3f}")
    print(f"error of a straight line: {straight:.3f}")
    print(f"error where it is at least 90 % sure: {is_wrong[is_sure].mean():.3f}")

    figure, ax = plt.subplots(figsize=(6.4, 4.6))
    plot.boundary(model, x_test, y_test, ax=ax)
    ax.set(xlabel="first input", ylabel="second input")
    figure.suptitle(
        f"Test error {100 * error:.0f} %, compared with {100 * straight:.0f} % "
        "for a straight line",
        fontsize=11,
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("class_boundary.png"))
    main(parser.parse_args().out)
