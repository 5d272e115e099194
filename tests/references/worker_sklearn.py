"""Exact regression by scikit-learn; `make_peers.py` runs this in its environment."""
# pyright: reportArgumentType=false

import json
import sys
from importlib import metadata

import numpy as np
from problem import KERNELS, LIKELIHOODS
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern


def make_kernel(name: str):
    settings = KERNELS[name]
    if name == "matern52":
        base = Matern(settings["lengthscale"], nu=2.5)
    else:
        base = RBF(settings["lengthscale"])
    return ConstantKernel(settings["variance"]) * base


def main(problem_path: str, output_path: str) -> None:
    problem = np.load(problem_path)
    output = {}
    for kernel in KERNELS:
        regressor = GaussianProcessRegressor(
            make_kernel(kernel),
            alpha=LIKELIHOODS["gaussian"]["variance"],
            optimizer=None,
        ).fit(problem["x"], problem["y.gaussian"])
        mean, sd = regressor.predict(problem["x_test"], return_std=True)
        output |= {
            f"{kernel}.log_marginal_likelihood": regressor.log_marginal_likelihood(),
            f"{kernel}.latent_mean": mean,
            f"{kernel}.latent_sd": sd,
        }
    np.savez_compressed(output_path, **output)
    packages = ["scikit-learn", "numpy", "scipy"]
    print(
        json.dumps(
            {
                "versions": {name: metadata.version(name) for name in packages},
                "jitter": "none: the noise variance is all there is on the diagonal",
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
