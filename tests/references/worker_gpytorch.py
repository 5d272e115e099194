"""GPyTorch's answers; `make_peers.py` runs this in an environment of its own."""
# pyright: reportMissingImports=false

import json
import sys
from importlib import metadata

import gpytorch
import numpy as np
import torch
from problem import (
    BATCH,
    KERNELS,
    LIKELIHOODS,
    RELATIVE_JITTER,
    STEP_SIZES,
    STEPS,
    D,
    M,
    N,
    lower,
)


SHARED = ["gaussian", "student_t", "bernoulli_probit"]


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, z, q, kernel, jitter):
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, z, q, learn_inducing_locations=False, jitter_val=jitter
            )
        )
        # Otherwise the first call puts q at the prior.
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )


class Probit(gpytorch.likelihoods.BernoulliLikelihood):
    """p(y = 1 | f) = Φ(f); the library's log Φ is off by up to 0.002 below −1."""

    def expected_log_prob(self, observations, function_dist, *args, **kwargs):
        sign = 2 * observations - 1
        return self.quadrature(
            lambda f: torch.special.log_ndtr(sign * f), function_dist
        )


def make_kernel(name: str):
    lengthscale = torch.tensor(KERNELS[name]["lengthscale"])
    count = D if lengthscale.ndim else None
    if name == "matern52":
        base = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=count)
    else:
        base = gpytorch.kernels.RBFKernel(ard_num_dims=count)
    base.lengthscale = lengthscale
    kernel = gpytorch.kernels.ScaleKernel(base)
    kernel.outputscale = KERNELS[name]["variance"]
    return kernel


def make_likelihood(name: str):
    settings = LIKELIHOODS[name]
    if name == "gaussian":
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = settings["variance"]
    elif name == "student_t":
        likelihood = gpytorch.likelihoods.StudentTLikelihood()
        likelihood.deg_free = settings["df"]
        likelihood.noise = settings["scale"] ** 2
    else:
        likelihood = Probit()
    return likelihood


def at_moments(mean, factor):
    q = gpytorch.variational.CholeskyVariationalDistribution(M)
    q.variational_mean.data = mean
    q.chol_variational_covar.data = factor
    return q


def at_naturals(mean, factor):
    q = gpytorch.variational.NaturalVariationalDistribution(M)
    precision = torch.cholesky_inverse(factor)
    q.natural_vec.data = precision @ mean
    q.natural_mat.data = -precision / 2
    return q


def answers(problem, likelihood_name: str, kernel: str) -> dict:
    x, x_test, z = (torch.tensor(problem[name]) for name in ["x", "x_test", "z"])
    y = torch.tensor(problem[f"y.{likelihood_name}"])
    mean, factor = (torch.tensor(problem[name][0]) for name in ["mean", "factor"])
    jitter = RELATIVE_JITTER * KERNELS[kernel]["variance"]
    likelihood = make_likelihood(likelihood_name)

    def bound(model, rows):
        # The library's bound is per row.
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=N)
        return N * objective(model(x[:rows]), y[:rows])

    model = Model(z, at_moments(mean, factor), make_kernel(kernel), jitter).train()
    with torch.no_grad():
        found = {"elbo": bound(model, N), "elbo_batch": bound(model, BATCH)}
        latent = model.eval()(x_test)
        found |= {"latent_mean": latent.mean, "latent_var": latent.variance}

    model = Model(z, at_naturals(mean, factor), make_kernel(kernel), jitter).train()
    optimizer = gpytorch.optim.NGD(
        model.variational_parameters(), num_data=N, lr=STEP_SIZES[likelihood_name]
    )
    trace = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        (-bound(model, N) / N).backward()
        optimizer.step()
        trace.append(float(bound(model, N).detach()))
    with torch.no_grad():
        q = model.variational_strategy.variational_distribution
        cov = lower(q.covariance_matrix.detach().numpy())
        found |= {"trace": trace, "final_mean": q.mean.detach(), "final_cov": cov}
    return {name: np.asarray(value) for name, value in found.items()}


def main(problem_path: str, output_path: str) -> None:
    # The library makes its nodes and weights in the default type.
    torch.set_default_dtype(torch.float64)
    problem = np.load(problem_path)
    output = {}
    for likelihood in SHARED:
        for kernel in KERNELS:
            case = f"{likelihood}.{kernel}.whitened"
            found = answers(problem, likelihood, kernel)
            print(case, found["elbo"], found["trace"][[0, -1]], file=sys.stderr)
            output |= {f"{case}.{name}": value for name, value in found.items()}
    assert all(np.isfinite(value).all() for value in output.values())
    np.savez_compressed(output_path, **output)
    packages = ["gpytorch", "linear_operator", "torch", "numpy"]
    points = gpytorch.settings.num_gauss_hermite_locs.value()
    print(
        json.dumps(
            {
                "versions": {name: metadata.version(name) for name in packages},
                "gauss_hermite_points": points,
                "jitter": "added to the diagonal of K(Z, Z) and to latent variances",
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
