"""GPflow's answers; `make_peers.py` runs this in an environment of its own."""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

import json
import sys
from importlib import metadata

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import base
from problem import (
    BATCH,
    KERNELS,
    LIKELIHOODS,
    RELATIVE_JITTER,
    STEP_SIZES,
    STEPS,
    N,
    lower,
    noise_sd,
)


class Probit(base.ScalarLikelihood):
    """p(y = 1 | f) = Φ(f), which GPflow's Bernoulli keeps 0.001 off zero and one."""

    def _scalar_log_prob(self, X, F, Y):
        return standard_normal().log_cdf(tf.where(Y > 0, F, -F))

    def _conditional_mean(self, X, F):
        return standard_normal().cdf(F)

    def _conditional_variance(self, X, F):
        return standard_normal().cdf(F) * standard_normal().cdf(-F)

    def _predict_mean_and_var(self, X, Fmu, Fvar):
        f = Fmu / tf.sqrt(1 + Fvar)
        p = standard_normal().cdf(f)
        return p, p * standard_normal().cdf(-f)

    def _predict_log_density(self, X, Fmu, Fvar, Y):
        f = Fmu / tf.sqrt(1 + Fvar)
        return tf.reduce_sum(self._scalar_log_prob(X, f, Y), axis=-1)


class Known(gpflow.functions.Function):
    """The variance of a row: one for all, and what is known of it."""

    def __init__(self, variance: float):
        super().__init__()
        self.variance = variance

    def __call__(self, X):
        return self.variance + noise_sd(X)[:, None] ** 2


def standard_normal():
    return tfp.distributions.Normal(np.float64(0), np.float64(1))


def make_kernel(name: str):
    kind = {"matern52": gpflow.kernels.Matern52, "rbf": gpflow.kernels.RBF}[name]
    settings = KERNELS[name]
    return kind(variance=settings["variance"], lengthscales=settings["lengthscale"])


def make_likelihood(name: str):
    settings = LIKELIHOODS[name]
    kinds = gpflow.likelihoods
    match name:
        case "gaussian":
            return kinds.Gaussian(variance=settings["variance"])
        case "varying_noise":
            return kinds.Gaussian(variance=Known(settings["variance"]))
        case "student_t":
            return kinds.StudentT(scale=settings["scale"], df=settings["df"])
        case "bernoulli_probit":
            return Probit()
        case "bernoulli_logit":
            return kinds.Bernoulli(invlink=tf.sigmoid)
        case "poisson":
            return kinds.Poisson()
        case "exponential":
            return kinds.Exponential()
        case "gamma":
            return kinds.Gamma(shape=settings["shape"])
        case "beta":
            # The default link is the probit kept 0.001 off its ends.
            return kinds.Beta(invlink=tf.sigmoid, scale=settings["scale"])
        case "heteroskedastic":
            return kinds.HeteroskedasticTFPConditional(
                tfp.distributions.Normal, tfp.bijectors.Exp()
            )
        case "robust_max":
            link = kinds.RobustMax(settings["classes"], epsilon=settings["epsilon"])
            # By default the probabilities of the others are kept 1e-6 off their ends.
            link._squash = 0.0
            return kinds.MultiClass(settings["classes"], invlink=link)
    raise KeyError(name)


def rows(array: np.ndarray) -> np.ndarray:
    """Latents first, and no axis for them if there is but one."""
    array = np.asarray(array).T
    return array[0] if len(array) == 1 else array


def answers(problem, likelihood: str, kernel: str, whiten: bool) -> dict:
    gpflow.config.set_default_jitter(RELATIVE_JITTER * KERNELS[kernel]["variance"])
    latents = {"heteroskedastic": 2, "robust_max": 3}.get(likelihood, 1)
    model = gpflow.models.SVGP(
        make_kernel(kernel),
        make_likelihood(likelihood),
        problem["z"],
        num_latent_gps=latents,
        q_mu=problem["mean"][:latents].T,
        q_sqrt=problem["factor"][:latents],
        whiten=whiten,
        num_data=N,
    )
    data = problem["x"], problem[f"y.{likelihood}"][:, None]
    test = problem["x_test"], problem[f"y_test.{likelihood}"][:, None]
    latent_mean, latent_var = model.predict_f(test[0])
    y_mean, y_var = (
        np.squeeze(moment, -1) if moment.shape[-1] == 1 else moment
        for moment in map(np.asarray, model.predict_y(test[0]))
    )
    found = {
        "elbo": model.elbo(data),
        "elbo_batch": model.elbo((data[0][:BATCH], data[1][:BATCH])),
        "latent_mean": rows(latent_mean),
        "latent_var": rows(latent_var),
        "y_mean": y_mean,
        "y_var": y_var,
        "log_density": model.predict_log_density(test),
    }
    optimizer = gpflow.optimizers.NaturalGradient(gamma=STEP_SIZES[likelihood])
    loss = model.training_loss_closure(data, compile=False)

    @tf.function
    def step():
        optimizer.minimize(loss, [(model.q_mu, model.q_sqrt)])
        return -loss()

    found["trace"] = np.array([float(step()) for _ in range(STEPS)])
    factor = model.q_sqrt.numpy()
    cov = lower(factor @ factor.transpose(0, 2, 1))
    found |= {"final_mean": rows(model.q_mu), "final_cov": rows(cov.T)}
    return {name: np.asarray(value) for name, value in found.items()}


def main(problem_path: str, output_path: str) -> None:
    problem = np.load(problem_path)
    output = {}
    for likelihood in LIKELIHOODS:
        for kernel in KERNELS:
            for space, whiten in {"whitened": True, "plain": False}.items():
                case = f"{likelihood}.{kernel}.{space}"
                found = answers(problem, likelihood, kernel, whiten)
                print(case, found["elbo"], found["trace"][[0, -1]], file=sys.stderr)
                output |= {f"{case}.{name}": value for name, value in found.items()}
    assert all(np.isfinite(value).all() for value in output.values())
    np.savez_compressed(output_path, **output)
    packages = ["gpflow", "tensorflow", "tensorflow-probability", "tf-keras", "numpy"]
    points = base.DEFAULT_NUM_GAUSS_HERMITE_POINTS
    assert points == gpflow.likelihoods.MultiClass(3).num_gauss_hermite_points
    print(
        json.dumps(
            {
                "versions": {name: metadata.version(name) for name in packages},
                "gauss_hermite_points": points,
                "jitter": "added to the diagonal of K(Z, Z) and nowhere else",
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
