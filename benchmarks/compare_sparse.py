"""The sparse Gaussian processes of compare_peers.py, by the libraries' own tutorials.

What the tutorials leave open is decided in the peers' favour: inputs and real targets
are scaled, the likelihood is the library's own for the kind of target, and a run that
would go over its time stops early and predicts.
"""
# pyright: reportMissingImports=false

import time
from typing import Any

import numpy as np
from compare_peers import (
    CLASSES,
    Answer,
    Scaled,
    num_classes,
    of_gaussian,
    of_samples,
)


# GPyTorch


EPOCHS, LEAST_STEPS = 4, 1000
"""The tutorial takes 4 epochs, of hundreds of thousands of rows; of a small table
that is a handful of steps, in which nothing is learned."""


def gpytorch(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """The tutorial on SVGP: 500 inducing inputs, batches of 1024, Adam at 0.01."""
    import gpytorch as library
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    scaled = Scaled(data, kind)
    tensor = lambda v: torch.as_tensor(v, dtype=torch.float32)
    x, x_test = tensor(scaled.x), tensor(scaled.x_test)
    y, y_test = tensor(scaled.y), tensor(scaled.y_test)
    latents = num_classes(data) if kind in ("classes", "ordinal") else 1
    if latents > 1:
        y, y_test = y.long(), y_test.long()
    likelihood = {
        "real": library.likelihoods.GaussianLikelihood,
        "robust": library.likelihoods.StudentTLikelihood,
        "count": library.likelihoods.NegativeBinomialLikelihood,
        "binary": library.likelihoods.BernoulliLikelihood,
    }.get(
        kind,
        lambda: library.likelihoods.SoftmaxLikelihood(
            num_classes=latents, mixing_weights=False
        ),
    )()
    model = make_gpytorch(x[:500], latents)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=1024, shuffle=True
    )
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    bound = library.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    planned, taken = max(EPOCHS * len(loader), LEAST_STEPS), 0
    while taken < planned and time.process_time() < budget:
        for x_batch, y_batch in loader:
            optimizer.zero_grad()
            loss = -bound(model(x_batch), y_batch)
            loss.backward()
            optimizer.step()
            taken += 1
            if taken == planned or time.process_time() > budget:
                break
    model.eval()
    likelihood.eval()
    parts = []
    with torch.no_grad(), library.settings.num_likelihood_samples(200):
        for x_part, y_part in zip(x_test.split(1024), y_test.split(1024), strict=True):
            latent = model(x_part)
            parts.append(predict_gpytorch(likelihood, latent, y_part, kind))
    answer = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    if kind not in CLASSES:
        answer = scaled.undo(answer)
    return answer | {"note": f"{taken} of {planned} steps"}


def make_gpytorch(inducing: Any, latents: int) -> Any:
    import torch
    from gpytorch import distributions, kernels, means, models, variational

    shape = torch.Size([latents]) if latents > 1 else torch.Size([])

    class Model(models.ApproximateGP):
        def __init__(self):
            q = variational.CholeskyVariationalDistribution(
                len(inducing), batch_shape=shape
            )
            strategy = variational.VariationalStrategy(
                self, inducing, q, learn_inducing_locations=True
            )
            if latents > 1:
                strategy = variational.IndependentMultitaskVariationalStrategy(
                    strategy, num_tasks=latents
                )
            super().__init__(strategy)
            self.mean_module = means.ConstantMean(batch_shape=shape)
            self.covar_module = kernels.ScaleKernel(
                kernels.RBFKernel(batch_shape=shape), batch_shape=shape
            )

        def forward(self, x: Any) -> Any:
            return distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return Model()


def predict_gpytorch(likelihood: Any, latent: Any, y: Any, kind: str) -> Answer:
    predicted = likelihood(latent)
    if kind == "real":
        mean, deviation = predicted.mean.numpy(), predicted.stddev.numpy()
        return of_gaussian(mean, deviation, y.numpy())
    if kind in CLASSES:
        of_one = predicted.probs.numpy().astype(float)
        if kind == "binary":
            return {"probabilities": np.stack([1 - of_one, of_one], axis=1)}
        return {"probabilities": of_one.mean(0)}
    log_density = likelihood.log_marginal(y, latent).numpy()
    samples = predicted.sample().numpy()
    mean = predicted.mean.mean(0).numpy()
    return of_samples(samples, log_density, mean, y.numpy())


# GPflow


def gpflow(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """The notebook on SVGP: 50 inducing inputs, batches of 100, 20,000 Adam steps."""
    import gpflow as library
    import tensorflow as tf
    import tf_keras

    tf.random.set_seed(seed)
    scaled = Scaled(data, kind)
    x, x_test = scaled.x.astype(float), scaled.x_test.astype(float)
    y, y_test = scaled.y.astype(float)[:, None], scaled.y_test.astype(float)[:, None]
    latents = num_classes(data) if kind == "classes" else 1
    likelihoods = library.likelihoods
    if kind == "ordinal":
        edges = np.arange(num_classes(data) - 1.0)
        likelihood = likelihoods.Ordinal(edges - edges.mean())
    elif kind == "classes":
        likelihood = likelihoods.MultiClass(latents)
    else:
        likelihood = {
            "real": likelihoods.Gaussian,
            "robust": likelihoods.StudentT,
            "count": likelihoods.Poisson,
            "binary": likelihoods.Bernoulli,
        }[kind]()
    model = library.models.SVGP(
        library.kernels.SquaredExponential(),
        likelihood,
        x[:50].copy(),
        num_data=len(y),
        num_latent_gps=latents,
    )
    library.set_trainable(model.inducing_variable, False)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(len(y))
    batches = iter(rows.batch(100))
    loss = model.training_loss_closure(batches, compile=True)
    optimizer = tf_keras.optimizers.Adam()

    @tf.function
    def step():
        optimizer.minimize(loss, model.trainable_variables)

    planned, taken = 20_000, 0
    while taken < planned and time.process_time() < budget:
        step()
        taken += 1
    parts = [
        predict_gpflow(model, x_part, y_part, data, kind)
        for x_part, y_part in zip(
            np.array_split(x_test, len(y) // 10_000 + 1),
            np.array_split(y_test, len(y) // 10_000 + 1),
            strict=True,
        )
    ]
    answer = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    if kind not in CLASSES:
        answer = scaled.undo(answer)
    return answer | {"note": f"{taken} of {planned} steps"}


def predict_gpflow(model: Any, x: Any, y: Any, data: Any, kind: str) -> Answer:
    if kind == "ordinal":
        given = [
            np.exp(model.predict_log_density((x, np.full_like(y, label))).numpy())
            for label in range(num_classes(data))
        ]
        return {"probabilities": np.stack(given, axis=1)}
    mean, variance = (array.numpy() for array in model.predict_y(x))
    if kind == "binary":
        return {"probabilities": np.concatenate([1 - mean, mean], axis=1)}
    if kind == "classes":
        return {"probabilities": mean}
    if kind == "real":
        return of_gaussian(mean[:, 0], np.sqrt(variance[:, 0]), y[:, 0])
    log_density = model.predict_log_density((x, y)).numpy()
    random = np.random.default_rng(0)
    f_mean, f_variance = (array.numpy()[:, 0] for array in model.predict_f(x))
    f = random.normal(f_mean, np.sqrt(f_variance), [400, len(x)])
    if kind == "count":
        samples = random.poisson(np.exp(np.minimum(f, 20.0)))
    else:
        noise = random.standard_t(float(model.likelihood.df), f.shape)
        samples = f + float(model.likelihood.scale.numpy()) * noise
    return of_samples(samples, log_density, mean[:, 0], y[:, 0])
