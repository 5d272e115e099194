"""Several outputs of the problem in `problem.npz`, and how they are mixed."""

from typing import Any

import numpy as np
from problem import RELATIVE_JITTER


LENGTHSCALES = [[0.7, 1.1, 1.6], [1.5, 0.6, 0.9], [2.0, 2.0, 0.8]]
VARIANCE = 1.7
JITTER = RELATIVE_JITTER * VARIANCE
NOISE = [0.09, 0.04, 0.2, 0.3]
STEP_SIZE, STEPS = 0.1, 20


def make_outputs(problem: Any) -> dict[str, np.ndarray]:
    """Three latent functions mixed to four outputs, with noise."""
    rng = np.random.default_rng(20181)
    mixing = rng.normal(size=(len(NOISE), len(LENGTHSCALES)))

    def targets(x: np.ndarray) -> np.ndarray:
        latent = np.stack([np.sin(1.5 * x[:, 0]), x[:, 1], np.cos(x[:, 2])], 1)
        noise = np.sqrt(NOISE) * rng.standard_normal((len(x), len(NOISE)))
        return latent @ mixing.T + noise

    return {"mixing": mixing, "y": targets(problem["x"])}
