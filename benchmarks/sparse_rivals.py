"""The sparse Gaussian processes that natgrad is compared with on tables.

All have a Matérn-5/2 kernel with one lengthscale per input that starts at √D, inducing
inputs that start at k means and are learned, batches of 256 rows, and scaled inputs and
real targets. A fit that would take too long stops early and predicts.

For counts a library without a negative binomial gets a Gaussian for log(1 + y), rounded
back to counts, which is far better than its Poisson.
"""
# pyright: reportMissingImports=false

import time
from typing import Any

import numpy as np
from answers import CLASSES, Answer, Scaled, num_classes, of_distribution, of_rounded


INDUCING, BATCH, EPOCHS, FEWEST_STEPS = 200, 256, 5, 2000
"""As many inducing inputs and as large batches as natgrad has by default; classes have
a process each, with 100."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Rows(Scaled):
    """What a sparse process is trained on; counts by their logarithm if asked."""

    def __init__(self, data: Any, kind: str, seed: int, inducing: int):
        super().__init__(data, kind)
        self.counts, self.is_log = data["y_test"], kind == "log count"
        if self.is_log:
            of_log = data | {k: np.log1p(data[k]) for k in ("y", "y_test")}
            logs = Scaled(of_log, "real")
            self.y, self.y_test = logs.y, logs.y_test
            self.log_mean, self.log_scale = logs.y_mean, logs.y_scale
        self.lengthscale = np.full(self.x.shape[1], np.sqrt(self.x.shape[1]))
        self.z = k_means(self.x, min(inducing, len(self.x)), seed)

    def of_gaussian(self, mean: np.ndarray, deviation: np.ndarray) -> Answer:
        """The answer of a Gaussian in scaled units."""
        from scipy.stats import norm

        if not self.is_log:
            return self.undo(of_distribution(norm(mean, deviation), self.y_test))
        mean = mean * self.log_scale + self.log_mean
        deviation = deviation * self.log_scale
        cdf = lambda y: norm.cdf(np.log1p(y), mean, deviation)
        centre = np.exp(np.minimum(mean + deviation**2 / 2, 20)) - 1
        return of_rounded(cdf, centre, self.counts)

    def of_student_t(self, mean: Any, var: Any, df: float, scale: float) -> Answer:
        """Of a Student-t around a Gaussian latent function, by quadrature."""
        from scipy.stats import t

        f = mean[:, None] + np.sqrt(var)[:, None] * NODES
        y = self.y_test[:, None]
        density = t.pdf(y, df, f, scale) @ WEIGHTS
        cdf = t.cdf(y, df, f, scale) @ WEIGHTS
        log_density = np.log(np.maximum(density, 1e-300))
        parts = {"log_density": log_density, "mean": mean, "cdf": cdf, "cdf_below": cdf}
        return self.undo(parts)


def k_means(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Means of Lloyd's iterations on at most 5,000 rows."""
    random = np.random.default_rng(seed)
    rows = x[random.permutation(len(x))[:5000]].astype(float)
    z = rows[:count].copy()
    for _ in range(10):
        squared = (z**2).sum(1) - 2 * rows @ z.T
        nearest = squared.argmin(1)
        total = np.zeros_like(z)
        np.add.at(total, nearest, rows)
        size = np.bincount(nearest, minlength=count)[:, None]
        z = np.where(size > 0, total / np.maximum(size, 1), z)
    return z + 1e-3 * random.standard_normal(z.shape)


def likelihood_gap(kind: str) -> str:
    """Counts by their logarithm, for libraries without a negative binomial."""
    return "log count" if kind == "count" else kind


def planned_steps(rows: int) -> int:
    return max(EPOCHS * rows // BATCH, FEWEST_STEPS)


# GPyTorch


def gpytorch(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """Adam at 0.01 as in its tutorial, in 32 bits.

    If that fails it is tried once more in 64 bits, and counts by their logarithm.
    """
    import torch

    try:
        return of_gpytorch(data, kind, seed, budget, torch.float32)
    except Exception as error:
        first = type(error).__name__
    kind = likelihood_gap(kind)
    answer = of_gpytorch(data, kind, seed, budget, torch.float64)
    return answer | {"note": f"{answer['note']}; second try after {first}"}


def of_gpytorch(data: Any, kind: str, seed: int, budget: float, dtype: Any) -> Answer:
    import gpytorch as library
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    rows = Rows(data, kind, seed, 100 if kind == "classes" else INDUCING)
    tensor = lambda v: torch.as_tensor(v, dtype=dtype)
    x, x_test = tensor(rows.x), tensor(rows.x_test)
    y, y_test = tensor(rows.y), tensor(rows.y_test)
    latents = num_classes(data) if kind in ("classes", "ordinal") else 1
    if latents > 1:
        y, y_test = y.long(), y_test.long()
    likelihoods = library.likelihoods
    softmax = lambda: likelihoods.SoftmaxLikelihood(
        num_classes=latents, mixing_weights=False
    )
    likelihood = {
        "real": likelihoods.GaussianLikelihood,
        "log count": likelihoods.GaussianLikelihood,
        "robust": likelihoods.StudentTLikelihood,
        "count": likelihoods.NegativeBinomialLikelihood,
        "binary": likelihoods.BernoulliLikelihood,
    }.get(kind, softmax)()
    model = make_gpytorch(tensor(rows.z), tensor(rows.lengthscale), latents)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=BATCH, shuffle=True
    )
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    bound = library.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    planned, taken = planned_steps(len(y)), 0
    until = time.process_time() + budget
    while taken < planned and time.process_time() < until:
        for x_batch, y_batch in loader:
            optimizer.zero_grad()
            loss = -bound(model(x_batch), y_batch)
            loss.backward()
            optimizer.step()
            taken += 1
            if taken == planned or time.process_time() > until:
                break
    model.eval()
    likelihood.eval()
    note = {"note": f"{taken} of {planned} steps, {str(dtype)[6:]}"}
    parts = []
    with torch.no_grad(), library.settings.num_likelihood_samples(200):
        for x_part, y_part in zip(x_test.split(1024), y_test.split(1024), strict=True):
            latent = model(x_part)
            parts.append(part_of_gpytorch(likelihood, latent, y_part, kind))
    answer = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    if kind in ("real", "log count"):
        return rows.of_gaussian(answer["mean"], answer["deviation"]) | note
    if kind == "robust":
        df, scale = (float(v) for v in (likelihood.deg_free, likelihood.noise**0.5))
        return rows.of_student_t(answer["mean"], answer["var"], df, scale) | note
    return answer | note


def make_gpytorch(inducing: Any, lengthscale: Any, latents: int) -> Any:
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
            matern = kernels.MaternKernel(
                nu=2.5, ard_num_dims=len(lengthscale), batch_shape=shape
            )
            matern.lengthscale = lengthscale.expand(matern.lengthscale.shape)
            self.covar_module = kernels.ScaleKernel(matern, batch_shape=shape)

        def forward(self, x: Any) -> Any:
            return distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return Model()


def part_of_gpytorch(likelihood: Any, latent: Any, y: Any, kind: str) -> Answer:
    if kind == "robust":
        return {"mean": latent.mean.numpy(), "var": latent.variance.numpy()}
    predicted = likelihood(latent)
    if kind in ("real", "log count"):
        return {"mean": predicted.mean.numpy(), "deviation": predicted.stddev.numpy()}
    if kind in CLASSES:
        of_one = predicted.probs.numpy().astype(float)
        if kind == "binary":
            return {"probabilities": np.stack([1 - of_one, of_one], axis=1)}
        return {"probabilities": of_one.mean(0)}
    samples = predicted.sample().numpy()
    return {
        "log_density": likelihood.log_marginal(y, latent).numpy(),
        "mean": predicted.mean.mean(0).numpy(),
        "cdf": (samples <= y.numpy()).mean(0),
        "cdf_below": (samples < y.numpy()).mean(0),
    }


# GPflow


def gpflow(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """Natural gradients at 0.1 and Adam at 0.01 for Gaussian noise, as in its notebook.

    Other likelihoods have Adam alone: natural steps of this length fail for some.
    """
    import gpflow as library
    import tensorflow as tf
    import tf_keras

    tf.random.set_seed(seed)
    kind = likelihood_gap(kind)
    rows = Rows(data, kind, seed, 100 if kind == "classes" else INDUCING)
    x, x_test = rows.x.astype(float), rows.x_test.astype(float)
    y = rows.y.astype(float)[:, None]
    latents = num_classes(data) if kind == "classes" else 1
    likelihoods = library.likelihoods
    if kind == "ordinal":
        from scipy.stats import norm

        shares = np.bincount(data["y"], minlength=num_classes(data)) + 1.0
        edges = norm.ppf(np.cumsum(shares)[:-1] / shares.sum())
        likelihood = ordinal_of_gpflow(2 * edges)
    elif kind == "classes":
        likelihood = likelihoods.MultiClass(latents)
    else:
        likelihood = {
            "real": likelihoods.Gaussian,
            "log count": likelihoods.Gaussian,
            "robust": likelihoods.StudentT,
            "binary": likelihoods.Bernoulli,
        }[kind]()
    model = library.models.SVGP(
        library.kernels.Matern52(lengthscales=rows.lengthscale),
        likelihood,
        rows.z.copy(),
        num_data=len(y),
        num_latent_gps=latents,
    )
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(len(y))
    loss = model.training_loss_closure(iter(shuffled.batch(BATCH)), compile=False)
    is_natural = kind in ("real", "log count")
    natural = library.optimizers.NaturalGradient(0.1)
    if is_natural:
        library.set_trainable(model.q_mu, False)
        library.set_trainable(model.q_sqrt, False)
    adam, variables = tf_keras.optimizers.legacy.Adam(0.01), model.trainable_variables

    @tf.function
    def step():
        if is_natural:
            natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, variables)

    planned, taken = planned_steps(len(y)), 0
    until = time.process_time() + budget
    while taken < planned and time.process_time() < until:
        step()
        taken += 1
    count = len(x_test) // 10_000 + 1
    pieces = np.array_split(x_test, count)
    note = {"note": f"{taken} of {planned} steps"}
    if kind in CLASSES:
        parts = [classes_of_gpflow(model, piece, data, kind) for piece in pieces]
        return {"probabilities": np.concatenate(parts)} | note
    parts = [[a.numpy()[:, 0] for a in model.predict_f(piece)] for piece in pieces]
    mean, var = (np.concatenate(part) for part in zip(*parts, strict=True))
    if kind == "robust":
        df, scale = float(model.likelihood.df), float(model.likelihood.scale.numpy())
        return rows.of_student_t(mean, var, df, scale) | note
    deviation = np.sqrt(var + float(model.likelihood.variance.numpy()))
    return rows.of_gaussian(mean, deviation) | note


def ordinal_of_gpflow(edges: np.ndarray) -> Any:
    """GPflow's ordinal likelihood with finite outer edges.

    Its own are infinite, and TensorFlow 2.21 makes NaN of their error function.
    """
    import gpflow as library
    import tensorflow as tf

    class Ordinal(library.likelihoods.Ordinal):
        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
            far = np.array([1e3])
            padded = np.concatenate([-far, edges, far])
            label = tf.cast(Y, tf.int32)
            at = lambda shift: (tf.gather(padded, label + shift) - F) / self.sigma
            normal = lambda z: 0.5 * tf.math.erfc(-z / np.sqrt(2))
            return tf.math.log(normal(at(1)) - normal(at(0)) + 1e-6)

    return Ordinal(edges)


def classes_of_gpflow(model: Any, x: np.ndarray, data: Any, kind: str) -> np.ndarray:
    if kind == "ordinal":
        label = lambda i: np.full([len(x), 1], float(i))
        given = [
            np.exp(model.predict_log_density((x, label(i))).numpy())
            for i in range(num_classes(data))
        ]
        return np.stack(given, axis=1)
    mean = model.predict_y(x)[0].numpy()
    return np.concatenate([1 - mean, mean], axis=1) if kind == "binary" else mean


# GPJax


def gpjax(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """Its natural-gradient fit, with Adam at 0.01 for the rest.

    The natural step is 0.1 long, after a log-linear start from 0.0001 in 40 steps.
    """
    import gpjax as library
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_enable_x64", True)
    kind = likelihood_gap(kind)
    rows = Rows(data, kind, seed, INDUCING)
    likelihood = {
        "real": library.likelihoods.Gaussian,
        "log count": library.likelihoods.Gaussian,
        "robust": library.likelihoods.StudentT,
        "binary": library.likelihoods.Bernoulli,
    }[kind]()
    kernel = library.kernels.Matern52(lengthscale=jnp.asarray(rows.lengthscale))
    mean_function = library.mean_functions.Constant()
    prior = library.gps.Prior(mean_function=mean_function, kernel=kernel)
    family = library.variational_families.WhitenedVariationalGaussian(
        model=prior * likelihood, inducing_inputs=jnp.asarray(rows.z)
    )
    planned = planned_steps(len(rows.y))
    table = library.Dataset(X=jnp.asarray(rows.x), y=jnp.asarray(rows.y)[:, None] * 1.0)
    family, _ = library.fit_natgrads(
        model=family,
        objective=lambda q, batch: -library.objectives.elbo(q, batch),
        train_data=table,
        optim=optax.adam(0.01),
        natgrad_lr=optax.exponential_decay(1e-4, 40, 1000.0, end_value=0.1),
        num_iters=planned,
        batch_size=BATCH,
        key=jax.random.key(seed),
        verbose=False,
    )
    latent = jax.jit(lambda q, x: moments(q, x))
    parts = [latent(family, piece) for piece in pieces_of(rows.x_test)]
    mean, var = (np.concatenate(part) for part in zip(*parts, strict=True))
    mean, var = mean[: len(rows.x_test)], var[: len(rows.x_test)]
    if not np.isfinite(mean).all():
        raise FloatingPointError("its parameters are not finite")
    fitted, note = family.model.likelihood, {"note": f"{planned} steps"}
    if kind == "binary":
        # The link is clipped to [0.001, 0.999], in training too.
        from scipy.stats import norm

        inside = norm.cdf(mean / np.sqrt(1 + var))
        given = 1e-3 + (1 - 2e-3) * inside
        return {"probabilities": np.stack([1 - given, given], axis=1)} | note
    value = lambda parameter: float(np.asarray(unwrapped(parameter)))
    if kind == "robust":
        df, scale = value(fitted.degrees_of_freedom), value(fitted.scale)
        return rows.of_student_t(mean, var, df, scale) | note
    return rows.of_gaussian(mean, np.sqrt(var + value(fitted.obs_stddev) ** 2)) | note


def moments(family: Any, x: Any) -> tuple[Any, Any]:
    """Means and variances of GPJax's latent function."""
    latent = family.condition(None)(x, covariance="diagonal")
    return latent.mean, latent.variance


def unwrapped(parameter: Any) -> Any:
    import paramax

    return paramax.unwrap(parameter)


def pieces_of(x: np.ndarray, size: int = 2000) -> list[np.ndarray]:
    """Equal pieces, the last filled up with its last row: one compiled shape."""
    size = min(size, len(x))
    filled = np.concatenate([x, np.repeat(x[-1:], -len(x) % size, axis=0)])
    return np.split(filled, len(filled) // size)
