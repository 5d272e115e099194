"""When a model says 70 %, is it 70 %?

You check whether predicted probabilities are calibrated. The data are 768 women of the
Pima diabetes study. In a fivefold cross-validation, each woman's probability comes from
a model that was not trained on her. The plot compares predicted probability and
observed frequency for a Gaussian process, logistic regression and a random forest.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from natgrad import datasets
from natgrad.sklearn import GPClassifier


MODELS = {
    "Gaussian process": GPClassifier(n_inducing=50, max_iter=200, verbose=False),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": RandomForestClassifier(200, random_state=0),
}


def main(out: Path) -> None:
    x, y = datasets.load("pima")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    edges = np.linspace(0, 1, 9)

    _, ax = plt.subplots(figsize=(5.6, 4.6))
    ax.plot([0, 1], [0, 1], color="0.5", lw=0.9, ls="--")
    for (name, model), mark in zip(MODELS.items(), "os^", strict=True):
        shares = cross_val_predict(model, x, y, cv=folds, method="predict_proba")
        share = np.asarray(shares)[:, 1]
        loss = log_loss(y, share)
        print(f"log loss of {name}: {loss:.4f}")
        legend = f"{name}, log loss {loss:.3f}"
        bins = np.digitize(share, edges[1:-1])
        count = np.bincount(bins)
        said, came = (np.bincount(bins, weights) / count for weights in (share, y))
        if name == "Gaussian process":
            low, high = binom.ppf([[0.025], [0.975]], count, said) / count
            ax.vlines(
                said, low, high, color="0.85", lw=8, label="95 % of bins, if right"
            )
        ax.plot(said, came, f"{mark}-", lw=1.4, ms=5, label=legend)
    ax.set_title("Observed frequency follows predicted probability")
    ax.set(xlabel="predicted probability", ylabel="observed frequency of diabetes")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("calibrated_diagnosis.png"))
    main(parser.parse_args().out)
