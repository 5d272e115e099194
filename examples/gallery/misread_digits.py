"""Which handwritten digits does it misread, and does it know?

You find the test digits on which a classifier is confidently wrong. The data are 20,000
training and 2,000 test digits of MNIST. The model has one latent function per digit and
a softmax over all ten. The picture shows the mistakes with the highest probability.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from natgrad import datasets, gp


TOLERANCE = 0.1  # one digit more or less of the 2,000 is 0.0005


def main(out: Path) -> None:
    x, y = datasets.load("mnist")
    x, test, seen = x[:60_000] / 255.0, x[60_000::5] / 255.0, y[60_000::5]
    some = np.random.default_rng(0).permutation(60_000)[:20_000]
    # Forty directions explain most of the variance, in the unit of the pixels.
    directions = PCA(40, random_state=0).fit(x[some])
    x = directions.transform(x[some]).astype(np.float32)
    kernel = gp.kernels.RBF(5.0, 2.0)
    model = gp.initialize(
        x, gp.likelihoods.Softmax(10), num_inducing=150, kernel=kernel
    )
    model, _ = gp.fit(model, (x, y[some]), steps=500, progress=False)
    predictor = gp.predictor(model)
    shares = predictor.probabilities(directions.transform(test).astype(np.float32))
    said = shares.argmax(1)
    is_wrong, sure = said != seen, shares.max(1)
    print(f"misread: {is_wrong.mean():.4f}")
    print(f"mean probability if right: {sure[~is_wrong].mean():.3f}")
    print(f"mean probability if wrong: {sure[is_wrong].mean():.3f}")

    figure, axes = plt.subplots(3, 8, figsize=(7.2, 3.6))
    worst = np.flatnonzero(is_wrong)[np.argsort(-sure[is_wrong])][: axes.size]
    for ax, row in zip(axes.flat, worst, strict=False):
        ax.imshow(test[row].reshape(28, 28), cmap="gray_r")
        ax.set_title(
            f"{seen[row]:.0f} as {said[row]}, {100 * sure[row]:.0f} %",
            fontsize=8,
            loc="center",
        )
    for ax in axes.flat:
        ax.axis("off")
    figure.suptitle(
        f"{is_wrong.sum()} of {len(seen):,} digits are misread; "
        "the most confident mistakes",
        fontsize=11,
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("misread_digits.png"))
    main(parser.parse_args().out)
