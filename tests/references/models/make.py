"""Writes model files, and what their models predict.

    python tests/references/models/make.py

A natgrad that reads this format must predict the same from them.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import gp
from natgrad.families.gaussian import Canonical, Moments
from natgrad.gp import SparseGP, kernels, likelihoods, means
from natgrad.gp._files import FORMAT
from natgrad.linalg import Full, Log, Sqrt


HERE = Path(__file__).parent
METADATA = {"features": ["age", "size (m²)"], "target": {"mean": 0.1, "scale": 3}}


def models() -> dict[str, SparseGP]:
    rng = np.random.default_rng(5)
    z = 2 * rng.normal(size=(5, 2))
    mean, root = rng.normal(size=(3, 5)), np.tril(rng.normal(size=(3, 5, 5)) / 5)
    root += np.eye(5)
    cov = root @ np.swapaxes(root, -1, -2)
    single = jnp.float32
    return {
        "regression": SparseGP(
            kernels.OnInputs(kernels.Matern52([0.7, 1.9], 1.3), (1, 0))
            + kernels.RBF(0.9) * kernels.Polynomial(2, 1.1, 0.4, 0.6),
            likelihoods.StudentT(0.3, 4.0, nodes=30),
            z,
            Canonical(jnp.asarray(mean[0]), Log(jnp.asarray(root[0] + root[0].T) / 2)),
            means.Linear([0.3, -0.2], 0.1),
            is_whitened=False,
        ),
        "classes": SparseGP(
            kernels.Separate(
                [
                    kernels.Matern32(0.8),
                    kernels.Matern12(1.2) + kernels.Linear([0.4, 0.3]),
                    kernels.Periodic(0.5, 1.0, 7.0),
                ]
            ),
            likelihoods.RobustMax(3, 0.01),
            z,
            Moments(jnp.asarray(mean), Full(jnp.asarray(cov))),
            means.Constant(np.asarray([0.1, 0.2, 0.3])),
        ),
        "ordinal_float32": SparseGP(
            kernels.RationalQuadratic(np.float32(0.8), np.float32(1.5), np.float32(2)),
            likelihoods.Ordinal(
                single([-1, 0.2, 0.9]), np.float32(0.7), learn_edges=True
            ),
            single(z),
            Moments(single(mean[0]), Sqrt(single(root[0]))),
        ),
    }


def predictions(model: SparseGP, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The latent functions, and the target."""
    predictor = gp.predictor(model)
    if isinstance(model.likelihood, likelihoods.RobustMax):
        return *predictor.latent(x), predictor.probabilities(x)
    return *predictor.latent(x), *predictor.predict(x)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    x = np.random.default_rng(6).normal(size=(7, 2))
    answers: dict[str, Any] = {"x": x}
    for name, model in models().items():
        FORMAT.write(HERE / f"{name}.natgrad", model, METADATA)
        for i, answer in enumerate(predictions(model, x)):
            answers[f"{name}.{i}"] = answer
    np.savez(HERE / "predictions.npz", **answers)


if __name__ == "__main__":
    main()
