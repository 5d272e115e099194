"""GPyTorch's coregionalization: `python outputs_gpytorch.py`, where GPyTorch is."""
# pyright: reportMissingImports=false

from pathlib import Path

import gpytorch
import numpy as np
import torch
from outputs_problem import JITTER, LENGTHSCALES, NOISE, VARIANCE, make_outputs
from problem import D, M, N


HERE = Path(__file__).parent


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, problem, mixing):
        outputs, latents = mixing.shape
        batch = torch.Size([latents])
        q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=batch)
        q.variational_mean.data = torch.tensor(problem["mean"])
        q.chol_variational_covar.data = torch.tensor(problem["factor"])
        base = gpytorch.variational.VariationalStrategy(
            self, torch.tensor(problem["z"]), q, False, jitter_val=JITTER
        )
        # Otherwise the first call puts q at the prior.
        base.variational_params_initialized.fill_(1)
        strategy = gpytorch.variational.LMCVariationalStrategy(
            base, outputs, latents, latent_dim=-1, jitter_val=JITTER
        )
        strategy.lmc_coefficients.data = torch.tensor(mixing.T.copy())
        super().__init__(strategy)
        kernel = gpytorch.kernels.MaternKernel(
            nu=2.5, ard_num_dims=D, batch_shape=batch
        )
        kernel.lengthscale = torch.tensor(LENGTHSCALES)[:, None, :]
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)
        self.covar_module.outputscale = torch.full(batch, VARIANCE)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(x), self.covar_module(x)
        )


def main() -> None:
    torch.set_default_dtype(torch.float64)
    problem = dict(np.load(HERE / "problem.npz"))
    outputs = make_outputs(problem)
    model = Model(problem, outputs["mixing"])
    # The least noise allowed is 1e-4 by default, and there is one more for all outputs.
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        len(NOISE), has_global_noise=False
    )
    likelihood.task_noises = torch.tensor(NOISE)
    x, y = torch.tensor(problem["x"]), torch.tensor(outputs["y"])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=N)
    with torch.no_grad():
        elbo = N * bound(model.train()(x), y)
        f = model.eval()(torch.tensor(problem["x_test"]))
        found = {"elbo": elbo, "f_mean": f.mean, "f_var": f.variance}
    arrays = {name: np.asarray(value) for name, value in found.items()}
    np.savez_compressed(HERE / "outputs_gpytorch.npz", **arrays)
    print(arrays["elbo"])


if __name__ == "__main__":
    main()
