"""One regression problem, one q(u) and the settings under which all peers see them."""

import numpy as np


N, D, M, TEST, BATCH = 200, 3, 30, 10, 50
STEPS = 20
RELATIVE_JITTER = 1e-10

KERNELS = {
    "matern52": {"lengthscale": [0.7, 1.1, 1.6], "variance": 1.7},
    "rbf": {"lengthscale": 0.9, "variance": 0.8},
}

LIKELIHOODS = {
    "gaussian": {"variance": 0.09},
    "student_t": {"df": 3.0, "scale": 0.3},
    "bernoulli_probit": {},
    "bernoulli_logit": {},
    "poisson": {},
    "exponential": {},
    "gamma": {"shape": 2.5},
    "beta": {"scale": 5.0},
    "heteroskedastic": {},
    "robust_max": {"classes": 3, "epsilon": 1e-3},
    "varying_noise": {"variance": 0.09},
}

# The robust maximum is not log-concave: steps of 0.1 leave the positive definite cone.
STEP_SIZES = dict.fromkeys(LIKELIHOODS, 0.1) | {"robust_max": 0.03}


def make_problem() -> dict[str, np.ndarray]:
    """Inputs, a target for every likelihood, and a q(u) for up to three latents.

    The inducing inputs are no rows of the data and lie apart: their covariance is well
    conditioned, so that libraries agree to nearly all digits.
    """
    rng = np.random.default_rng(20180)
    x = rng.uniform(-2, 2, (N + TEST, D))
    targets = make_targets(rng, x)
    mean = 0.3 * rng.standard_normal((3, M))
    factor = np.tril(0.03 * rng.standard_normal((3, M, M)), -1)
    factor[:, range(M), range(M)] = rng.uniform(0.3, 0.5, (3, M))
    problem = {
        "x": x[:N],
        "x_test": x[N:],
        "z": rng.uniform(-2, 2, (M, D)),
        "mean": mean,
        "factor": factor,
    }
    for name, y in targets.items():
        problem |= {f"y.{name}": y[:N], f"y_test.{name}": y[N:]}
    # The same targets, with more noise that is known.
    known = noise_sd(x)
    y = targets["gaussian"] + known * rng.standard_normal(len(x))
    problem |= {"y.varying_noise": y[:N], "y_test.varying_noise": y[N:]}
    problem |= {"noise_sd": known[:N], "noise_sd_test": known[N:]}
    return problem


def noise_sd(x: np.ndarray) -> np.ndarray:
    """The known noise of a row, a function of its inputs as GPflow would have it."""
    return 0.2 + 0.3 * x[:, 0] ** 2


def make_targets(rng: np.random.Generator, x: np.ndarray) -> dict[str, np.ndarray]:
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] - 0.2 * x[:, 2] ** 2
    size = len(x)
    mean, scale = 1 / (1 + np.exp(-f)), LIKELIHOODS["beta"]["scale"]
    label = (rng.logistic(size=size) < f).astype(float)
    classes = np.stack([f, x[:, 1], -x[:, 0]], axis=-1)
    return {
        "gaussian": f + 0.3 * rng.standard_normal(size),
        "student_t": f + 0.3 * rng.standard_t(3, size),
        "bernoulli_probit": label,
        "bernoulli_logit": label,
        "poisson": rng.poisson(np.exp(f)).astype(float),
        "exponential": rng.exponential(np.exp(f)),
        "gamma": rng.gamma(LIKELIHOODS["gamma"]["shape"], np.exp(f)),
        # A library clips what lies closer to the ends than 1e-6.
        "beta": np.clip(rng.beta(scale * mean, scale * (1 - mean)), 1e-3, 1 - 1e-3),
        "heteroskedastic": f + np.exp(0.5 * x[:, 2] - 1) * rng.standard_normal(size),
        "robust_max": np.argmax(
            classes + 0.2 * rng.standard_normal(classes.shape), axis=-1
        ).astype(float),
    }


def lower(matrix: np.ndarray) -> np.ndarray:
    """The lower triangle, row by row: all that there is of a symmetric matrix."""
    rows, columns = np.tril_indices(matrix.shape[-1])
    return np.asarray(matrix)[..., rows, columns]
