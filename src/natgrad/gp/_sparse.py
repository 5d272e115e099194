"""Sparse Gaussian processes and their evidence bound."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from natgrad.data._batches import Batch
from natgrad.errors import InputError
from natgrad.families.gaussian import AbstractGaussian, Moments
from natgrad.gp._parameters import Numbers, as_floats
from natgrad.gp._projection import factorized, inverse_factor, jittered, project
from natgrad.gp.kernels import AbstractKernel, Separate
from natgrad.gp.kernels._base import require_kernel
from natgrad.gp.likelihoods import AbstractLikelihood
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.gp.means import AbstractMean, Zero
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import Vector, lower_apply


Latent = Float[Array, "*L B"]
T = TypeVar("T")


class SparseGP(eqx.Module):
    """A Gaussian process whose posterior is q at the inducing inputs Z.

    Every leaf is a real array that an optimizer may move: q by its natural gradient,
    the rest by an ordinary one. u are the values of the process at Z, minus its mean
    function. In the whitened form q is over v, where u = L v and L Lᵀ = k(Z, Z);
    otherwise it is over u itself. Several latent functions are a batch of q, [L, M].
    They share the kernel, or have one each if it is `Separate`. Without a `posterior`,
    q starts at the prior; without a `mean`, the mean function is zero.

    The ELBO includes `log_prior`, a function of the model, if you give one. Training
    then fits the hyperparameters to the mode of their posterior.

    Raises:
        InputError: If `inducing` is not [M, D], or the posterior or the number of
            kernels does not fit the likelihood.

    >>> z = np.linspace(0, 1, 8)[:, None]
    >>> model = gp.SparseGP(gp.kernels.RBF(0.3), gp.likelihoods.Gaussian(0.01), z)
    >>> mean, variance = model.marginals(jnp.asarray(x))
    >>> mean.shape, variance.shape
    ((50,), (50,))
    """

    kernel: AbstractKernel
    likelihood: AbstractLikelihood
    inducing: Float[Array, "M D"]
    posterior: AbstractGaussian
    mean: AbstractMean
    is_whitened: bool = eqx.field(static=True)
    log_prior: Callable[["SparseGP"], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        kernel: AbstractKernel,
        likelihood: AbstractLikelihood,
        inducing: Numbers,
        posterior: AbstractGaussian | None = None,
        mean: AbstractMean | None = None,
        is_whitened: bool = True,
        log_prior: Callable[["SparseGP"], Array] | None = None,
    ):
        self.kernel = require_kernel(kernel)
        self.likelihood = likelihood
        # One type for all: the inducing inputs', or the kernel's where that is wider.
        leaves = filter(eqx.is_inexact_array, jax.tree.leaves(self.kernel))
        given = as_floats(inducing)
        widest = np.result_type(*(leaf.dtype for leaf in (given, *leaves)))
        self.inducing = jnp.asarray(given, widest)
        self.mean = Zero() if mean is None else mean
        self.is_whitened = is_whitened
        self.log_prior = log_prior
        if self.inducing.ndim != 2:
            raise InputError(
                f"inducing has shape {list(self.inducing.shape)}; it should be rows of "
                "inputs, [M, D]"
            )
        self.posterior = self._prior() if posterior is None else posterior
        self._check()

    def _prior(self) -> Moments:
        """Where q starts: at the prior."""
        latents, size = self.likelihood.latents, self.inducing.shape[-2]
        shape = (size,) if latents is None else (latents, size)
        # Made by NumPy where it can be: JAX would compile each of these operations. In
        # a program it would be a constant of the size of a matrix.
        made = jnp if isinstance(self.inducing, Tracer) else np
        mean = as_floats(np.zeros(shape, self.inducing.dtype))
        if self.is_whitened:
            root = made.broadcast_to(made.eye(size, dtype=mean.dtype), (*shape, size))
            return Moments(mean, Sqrt(as_floats(root)))
        prior = self.kernel(self.inducing, self.inducing)
        factor = factorized(prior)
        root = jnp.tril(jittered(prior, factor.jitter) @ factor.inverse.mT)
        return Moments(mean, Sqrt(jnp.broadcast_to(root, (*shape, size))))

    def _check(self) -> None:
        latents, size = self.likelihood.latents, self.inducing.shape[-2]
        shape = (size,) if latents is None else (latents, size)
        q = self.posterior
        if not isinstance(q, AbstractGaussian):
            raise InputError(
                f"the posterior is a {type(q).__module__}.{type(q).__name__}; it "
                "should be a full Gaussian, of natgrad.families.gaussian"
            )
        mean = jax.eval_shape(lambda: q.location()).shape
        factor = jax.eval_shape(lambda: q.factor()).shape
        if (mean, factor) != (shape, (*shape, size)):
            raise InputError(
                f"the posterior has a mean of shape {list(mean)} and a covariance of "
                f"{list(factor)}; with {size} inducing inputs and {latents or 'one'} "
                f"latent function(s) of {type(self.likelihood).__name__} they should "
                f"be {list(shape)} and {[*shape, size]}"
            )
        number = len(self.kernel.kernels) if isinstance(self.kernel, Separate) else None
        if number is not None and number != latents:
            raise InputError(
                f"there are {number} separate kernels, and {latents or 'one'} latent "
                f"function(s) of {type(self.likelihood).__name__}"
            )

    def project(
        self, x: Float[Array, "B D"], inverse: Float[Array, "*S M M"] | None = None
    ) -> "Projection":
        """What the ELBO needs from the inputs; it does not depend on q.

        If L⁻¹ is known, it need not be found again.
        """
        z = self.inducing
        x = jnp.asarray(x, z.dtype)
        if x.ndim != 2 or x.shape[1] != z.shape[1]:
            raise InputError(
                f"x has shape {list(x.shape)}; it should be rows of {z.shape[1]} inputs"
            )
        cross = self.kernel(z, x)
        if inverse is None and not self.is_whitened:
            inverse = prior_inverse(self)
        if inverse is None:
            features = project(self.kernel(z, z), cross)
        else:
            features = lower_apply(inverse, cross)
        rest = self.kernel.diag(x) - (features**2).sum(-2)
        inverse = None if self.is_whitened else inverse
        return Projection(features, rest, self.mean(x), inverse)

    def marginals(self, x: Float[Array, "B D"]) -> tuple[Latent, Latent]:
        """The mean and the variance of each latent function at each row of x."""
        return marginals(self.posterior, self.project(x))

    def prior_kl(self) -> Float[Array, ""]:
        """KL(q ‖ prior), summed over the latent functions."""
        inverse = None if self.is_whitened else prior_inverse(self)
        return prior_kl(self.posterior, inverse)


def prior_inverse(model: SparseGP) -> Float[Array, "*S M M"]:
    """L⁻¹ of the inducing inputs."""
    return inverse_factor(model.kernel(model.inducing, model.inducing))


class Projection(NamedTuple):
    """Some rows as a model sees them from its inducing inputs.

    The features a = L⁻¹ k(Z, x), what they leave of the prior variance, k(x, x) − aᵀa,
    the mean function, and L⁻¹ where q is not whitened.
    """

    features: Float[Array, "*S M B"]
    rest: Float[Array, "*S B"]
    mean: Float[Array, "*L B"]
    inverse: Float[Array, "*S M M"] | None

    @property
    def over_q(self) -> Float[Array, "*S M B"]:
        """Features that combine the variables of q."""
        if self.inverse is None:
            return self.features
        return self.inverse.mT @ self.features


def with_posterior(model: T, q: Any) -> T:
    """The same model with another posterior, or with None."""
    is_none = lambda node: node is None
    return eqx.tree_at(lambda model: model.posterior, model, q, is_leaf=is_none)


def marginals(q: AbstractGaussian, rows: Projection) -> tuple[Latent, Latent]:
    """The mean and the variance of each latent function at each row."""
    features = rows.over_q
    mean = _combined(q.location(), features)
    mean += jnp.broadcast_to(rows.mean, mean.shape)
    var = q.variances(features)
    var += jnp.broadcast_to(rows.rest, var.shape)
    # It is positive but for rounding; the derivative is left as it is.
    return mean, var + lax.stop_gradient(jnp.maximum(var, 0) - var)


def _combined(weights: Vector, features: Float[Array, "*S M B"]) -> Latent:
    """Σ w a over the inducing inputs, the features shared or one set for each w."""
    if features.ndim == weights.ndim + 1:
        return (weights[..., None, :] @ features)[..., 0, :]
    return weights @ features


def prior_kl(
    q: AbstractGaussian, inverse: Float[Array, "*S M M"] | None
) -> Float[Array, ""]:
    """KL(q ‖ prior), summed over the latent functions; L⁻¹ where q is not whitened."""
    mean, factor, log_det = q.location(), q.factor(), q.log_det()
    if inverse is not None:
        mean, factor = (inverse @ mean[..., None])[..., 0], inverse @ factor
        diagonal = jnp.diagonal(inverse, axis1=-2, axis2=-1)
        prior_log_det = -2 * jnp.log(diagonal).sum(-1)
        log_det -= jnp.broadcast_to(prior_log_det, log_det.shape)
    square = (mean**2).sum() + (factor**2).sum() - mean.size
    return (square - log_det.sum()) / 2


def elbo(
    model: SparseGP, batch: Batch, num_data: int | float | None = None
) -> Float[Array, ""]:
    """The evidence lower bound (ELBO) in nats, estimated from a batch.

    The estimate is unbiased if the batch is a random part of `num_data` rows. Without
    `num_data` the batch is all the data. Rows count by their weights, and a row of
    weight 0 does not count. `num_data` is then the sum of all weights, and batches of
    unequal weight are unbiased only in the long run.

    Raises:
        InputError: If the shapes of x or y do not fit the model.

    >>> batch = natgrad.data.Batch(x, y)
    >>> trained = gp.fit(model, (x, y), progress=False).params
    >>> print(f"{gp.elbo(model, batch):.0f} {gp.elbo(trained, batch):.0f}")
    -6128 37
    """
    rows = model.project(jnp.asarray(batch.x))
    return projected_elbo(model, rows, batch, num_data)


def projected_elbo(
    model: SparseGP, rows: Projection, batch: Batch, num_data: int | float | None = None
) -> Float[Array, ""]:
    """The bound, from a batch whose inputs are projected already.

    Inputs are projected once for all that is done with q at one set of hyperparameters.
    """
    mean, var = marginals(model.posterior, rows)
    found, outputs = jnp.shape(batch.y), model.likelihood.outputs
    expected = mean.shape[-1:] if outputs is None else (mean.shape[-1], outputs)
    if found != expected:
        raise InputError(
            f"y has shape {list(found)}; it should be one target for each of the "
            f"{mean.shape[-1]} rows of x, {list(expected)}"
        )
    fit = expected_log_probs(model.likelihood, mean, var, batch)
    if batch.weight is None:
        total, number = fit.sum(), fit.size
    else:
        weight = jnp.asarray(batch.weight, fit.dtype)
        total, number = weight @ fit, weight.sum()
    if num_data is not None:
        total = total * (num_data / number)
    bound = total - prior_kl(model.posterior, rows.inverse)
    return bound if model.log_prior is None else bound + model.log_prior(model)


def work(model: SparseGP, rows: int, inducing: int) -> int:
    """About how many products a step on so many rows takes."""
    latents = model.likelihood.latents or 1
    return latents * inducing**2 * (rows + inducing)
