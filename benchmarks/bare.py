"""One natural step and one Adam step of a sparse GP, written by hand in plain JAX.

It is the yardstick of benchmarks/steps.py: a whitened model with a Matérn-5/2 kernel
of one lengthscale, every derivative worked out on paper, nothing general. With A the
features L⁻¹ k(Z, X), f the marginal means, and g, h the derivatives of the expected
log-likelihood by the marginal means and variances,

    P ← (1 − γ) P + γ (I − 2 A diag(h) Aᵀ)      P m ← (1 − γ) P m + γ A (g − 2 h f)
    Ā = m gᵀ + 2 (S − I) A diag(h)               ∂/∂k(Z, X) = L⁻ᵀ Ā
    ∂/∂k(Z, Z) = −½ L⁻ᵀ mirrored(Ā Aᵀ) L⁻¹

as in the formulas of Hensman et al. (2013) and Giles (2008). Two ways are kept, and the
faster at each size counts: products with explicit inverses, and triangular solves.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.scipy.linalg import solve_triangular


NODES, WEIGHTS = np.polynomial.hermite.hermgauss(20)
NODES, WEIGHTS = NODES * math.sqrt(2), WEIGHTS / math.sqrt(math.pi)
ROOT5 = math.sqrt(5)
JITTER = 1e-6


# Linear algebra


def copied(a):
    """The transpose, copied: XLA's product with a transposed left side is slow."""
    return lax.optimization_barrier(a.mT)


def mirrored(a):
    return jnp.tril(a) + jnp.tril(a, -1).mT


def inverse_factor(a):
    """L⁻¹ of the Cholesky factor, by halves."""
    n = a.shape[-1]
    if n <= 64:
        root = lax.linalg.cholesky(a, symmetrize_input=False)
        eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
        return solve_triangular(root, eye, lower=True)
    k = n // 2 if n <= 128 else -(-n // 128) * 64
    first = inverse_factor(a[..., :k, :k])
    below = a[..., k:, :k] @ first.mT
    second = inverse_factor(a[..., k:, k:] - below @ below.mT)
    corner = -second @ (below @ first)
    zero = jnp.zeros((*a.shape[:-2], k, n - k), a.dtype)
    upper = jnp.concatenate([first, zero], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, second], -1)], -2)


# Likelihoods: the derivatives of the expected log-likelihood by mean and variance


def bernoulli(mean, var, y):
    sign = (2 * y - 1)[:, None]
    z = sign * (mean[:, None] + jnp.sqrt(var)[:, None] * NODES[None])
    tail = lax.erfc(-jnp.maximum(z, -37) / math.sqrt(2))
    hazard = math.sqrt(2 / math.pi) * jnp.exp(-(z**2) / 2) / tail
    slope, bend = hazard @ WEIGHTS, (hazard * (z + hazard)) @ WEIGHTS
    return jnp.log(tail / 2) @ WEIGHTS, slope * sign[:, 0], -bend / 2


def robust_max(mean, var, y, error=1e-3):
    classes = mean.shape[0]
    is_own = jnp.arange(classes)[:, None] == y[None]
    own = lambda a: jnp.where(is_own, a, 0).sum(0)
    inverse = lax.rsqrt(var)
    f = own(mean)[:, None] + jnp.sqrt(own(var))[:, None] * NODES[None]
    z = (f[None] - mean[..., None]) * inverse[..., None]
    mask = is_own[..., None]
    below = jnp.where(mask, 1, 0.5 * lax.erfc(-z / math.sqrt(2)))
    density = jnp.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    # A class that is certain to be below has no say in the derivative either.
    ratio = jnp.where(mask | (below < 1e-200), 0, density / below) * inverse[..., None]
    below, ratio = lax.optimization_barrier((below, ratio))
    weight = jnp.prod(below, 0) * WEIGHTS[None]
    of_own = weight * ratio.sum(0)
    slope = jnp.where(is_own, of_own.sum(-1), -(weight[None] * ratio).sum(-1))
    own_bend = (of_own @ NODES) / (2 * jnp.sqrt(own(var)))
    bend = -(weight[None] * ratio * z).sum(-1) * inverse / 2
    gain = math.log1p(-error) - math.log(error / (classes - 1))
    value = weight.sum(-1) * gain + math.log(error / (classes - 1))
    return value, gain * slope, gain * jnp.where(is_own, own_bend, bend)


LIKELIHOODS = {"Bernoulli": bernoulli, "robust-max": robust_max}


# The kernel and its derivative


def matern(z, x, log_lengthscale, log_variance):
    """k(Z, X), its derivative by the squared distance, and that distance."""
    norms = (z**2).sum(1)[:, None] + (x**2).sum(1)[None]
    squared = jnp.maximum(norms - 2 * z @ x.T, 0) * jnp.exp(-2 * log_lengthscale)
    r = ROOT5 * jnp.sqrt(squared)
    decay = jnp.exp(log_variance - r)
    return (1 + r + r**2 / 3) * decay, -5 / 6 * (1 + r) * decay, squared


def matern_backward(z, x, parts, slope, log_lengthscale):
    """The derivatives by Z on the left, log ℓ and log σ²."""
    value, derivative, squared = parts
    w = slope * derivative
    scale = 2 * jnp.exp(-2 * log_lengthscale)
    of_z = scale * (w.sum(1)[:, None] * z - w @ x)
    return of_z, -2 * jnp.vdot(w, squared), jnp.vdot(slope, value)


# The step


def start(z, lengthscale, variance, latents, rate):
    size = len(z)
    shape = (size,) if latents is None else (latents, size)
    eye = jnp.broadcast_to(jnp.eye(size), (*shape, size))
    hyper = {
        "lengthscale": jnp.log(jnp.asarray(lengthscale, float)),
        "variance": jnp.log(jnp.asarray(variance, float)),
        "inducing": jnp.asarray(z),
    }
    zero = jnp.zeros(shape)
    q = {"precision": eye, "linear": zero, "mean": zero, "excess": 0 * eye}
    return q, hyper, optax.adam(rate).init(hyper)


def step(q, hyper, state, x, y, *, likelihood, num_data, size, rate, way):
    """`q` carries P, P m, m and S − I, so that nothing is inverted twice."""
    scale = num_data / len(y)
    z, ell, var = hyper["inducing"], hyper["lengthscale"], hyper["variance"]
    eye = jnp.eye(len(z))
    prior, cross = matern(z, z, ell, var), matern(z, x, ell, var)
    full = prior[0] + JITTER * eye
    if way == "products":
        inverse = inverse_factor(full)
        transposed = copied(inverse)
        a = inverse @ cross[0]
    else:
        root = lax.linalg.cholesky(full, symmetrize_input=False)
        a = solve_triangular(root, cross[0], lower=True)

    def slopes(q):
        spread = q["excess"] @ a
        mean, variance = q["mean"] @ a, jnp.exp(var) + (a * spread).sum(-2)
        value, g, h = likelihood(mean, variance, y)
        return value.sum() * scale, mean, scale * g, scale * h, spread

    _, mean, g, h, _ = slopes(q)
    gram = (a * h[..., None, :]) @ a.T
    precision = (1 - size) * q["precision"] + size * (eye - 2 * gram)
    linear = (1 - size) * q["linear"] + size * (g - 2 * h * mean) @ a.T
    if way == "products":
        half = inverse_factor(precision)
        cov = copied(half) @ half
    else:
        factor = lax.linalg.cholesky(precision, symmetrize_input=False)
        half = solve_triangular(factor, jnp.broadcast_to(eye, factor.shape), lower=True)
        cov = copied(half) @ half
    moved = (cov @ linear[..., None])[..., 0]
    q = {"precision": precision, "linear": linear, "mean": moved, "excess": cov - eye}

    value, _, g, h, spread = slopes(q)
    if moved.ndim == 1:
        slope = moved[:, None] * g[None] + 2 * spread * h[None]
    else:
        slope = moved.T @ g + 2 * (spread * h[:, None, :]).sum(0)
    middle = mirrored(slope @ a.T)
    if way == "products":
        of_cross = transposed @ slope
        of_prior = -(transposed @ (middle @ inverse)) / 2
    else:
        back = partial(solve_triangular, root, lower=True, trans=1)
        of_cross, of_prior = back(slope), -back(back(middle).T) / 2
    z1, ell1, var1 = matern_backward(z, x, cross, of_cross, ell)
    z2, ell2, var2 = matern_backward(z, z, prior, of_prior, ell)
    grads = {
        "lengthscale": -(ell1 + ell2),
        "variance": -(var1 + var2 + h.sum() * jnp.exp(var)),
        "inducing": -(z1 + 2 * z2),
    }
    updates, state = optax.adam(rate).update(grads, state)
    return q, optax.apply_updates(hyper, updates), state, value


def runner(data: dict[str, Any], steps: int, way: str):
    """A compiled call of many steps, and its first carry."""
    one = partial(
        step,
        likelihood=LIKELIHOODS[data["likelihood"]],
        num_data=len(data["y"]),
        size=data["size"],
        rate=data["rate"],
        way=way,
    )

    def many(carry, x, y):
        def body(carry, _):
            q, hyper, state, key = carry
            key, now = jax.random.split(key)
            rows = jax.random.randint(now, (data["batch"],), 0, len(y))
            q, hyper, state, value = one(q, hyper, state, x[rows], y[rows])
            return (q, hyper, state, key), value

        return lax.scan(body, carry, None, length=steps)

    first = start(
        data["z"], data["lengthscale"], data["variance"], data["latents"], data["rate"]
    )
    return jax.jit(many, donate_argnums=0), (*first, jax.random.key(0))
