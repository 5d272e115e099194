"""GPflow's linear coregionalization: `python outputs_gpflow.py`, where GPflow is."""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from outputs_problem import (
    JITTER,
    LENGTHSCALES,
    NOISE,
    STEP_SIZE,
    STEPS,
    VARIANCE,
    make_outputs,
)
from problem import N


HERE = Path(__file__).parent


def main() -> None:
    problem = dict(np.load(HERE / "problem.npz"))
    outputs = make_outputs(problem)
    gpflow.config.set_default_jitter(JITTER)
    kernels = [
        gpflow.kernels.Matern52(variance=VARIANCE, lengthscales=each)
        for each in LENGTHSCALES
    ]
    inducing = gpflow.inducing_variables.InducingPoints(problem["z"])
    model = gpflow.models.SVGP(
        gpflow.kernels.LinearCoregionalization(kernels, W=outputs["mixing"]),
        gpflow.likelihoods.Gaussian(variance=np.array(NOISE)),
        gpflow.inducing_variables.SharedIndependentInducingVariables(inducing),
        q_mu=problem["mean"].T,
        q_sqrt=problem["factor"],
        whiten=True,
        num_data=N,
    )
    data = problem["x"], outputs["y"]
    mean, var = model.predict_f(problem["x_test"])
    found = {"elbo": model.elbo(data), "f_mean": mean, "f_var": var}
    optimizer = gpflow.optimizers.NaturalGradient(gamma=STEP_SIZE)
    loss = model.training_loss_closure(data, compile=False)

    @tf.function
    def step():
        optimizer.minimize(loss, [(model.q_mu, model.q_sqrt)])
        return -loss()

    found["trace"] = np.array([float(step()) for _ in range(STEPS)])
    found["final_mean"] = model.q_mu.numpy().T
    arrays = {name: np.asarray(value) for name, value in found.items()}
    np.savez_compressed(HERE / "outputs_gpflow.npz", **outputs, **arrays)
    print(arrays["elbo"], arrays["trace"][[0, -1]])


if __name__ == "__main__":
    main()
