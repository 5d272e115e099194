"""A latent function given rows: all of them, or the nearest and inducing variables.

Arrays of rows are NumPy's, and programs see them in pieces of few shapes, so that
tables of any size share them.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import linalg

from natgrad._padding import fill_up
from natgrad._runtime.programs import LONG_RUN, SHORT_RUN, filter_jit
from natgrad.errors import FitError, InputError
from natgrad.gp._blocks import Gram, conditional, gram, left_out, widened
from natgrad.gp._nearest import Nearest
from natgrad.gp._projection import factorized
from natgrad.gp._sites import Sites
from natgrad.gp.kernels import AbstractKernel
from natgrad.linalg._triangular import inverse_cholesky, lower_apply


CHUNK = 256
"""Rows that one program sees together."""

LEAF, LEAVES = 64, 16
"""Rows whose own parts are seen together by inducing inputs, and leaves of one program.
"""

SINGLE = 1e4
"""Features are in single precision if no site is more precise, of prior variance 1."""

Moments = tuple[np.ndarray, np.ndarray]

jit_once = functools.partial(filter_jit, compiler_options=SHORT_RUN)
jit_often = functools.partial(filter_jit, compiler_options=LONG_RUN)


@jit_often
def _tile(kernel: AbstractKernel, x: Array, z: Array) -> Array:
    return kernel(x, z)


def gram_matrix(kernel: AbstractKernel, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """k(x, z), tile by tile."""
    found = np.empty((len(x), len(z)))
    for top in range(0, len(x), CHUNK):
        some = fill_up(x, CHUNK, top)
        for left in range(0, len(z), CHUNK):
            tile = np.asarray(_tile(kernel, some, fill_up(z, CHUNK, left)))
            part = found[top : top + CHUNK, left : left + CHUNK]
            part[:] = tile[: part.shape[0], : part.shape[1]]
    return found


@jit_often
def _diag(kernel: AbstractKernel, x: Array) -> Array:
    return kernel.diag(x)


def prior_variance(kernel: AbstractKernel, x: np.ndarray) -> np.ndarray:
    """k(x, x) of each row."""
    starts = range(0, len(x), CHUNK)
    parts = [np.asarray(_diag(kernel, fill_up(x, CHUNK, start))) for start in starts]
    return np.concatenate(parts)[: len(x)]


# All rows


@dataclasses.dataclass(frozen=True, eq=False)
class GivenAll:
    """A latent function, less its prior mean, given all rows.

    With s the roots of the precisions, `inverse` is L⁻¹ where L Lᵀ = I + s K s, and
    `target` is that times the targets of the sites in units of their noise.
    """

    kernel: AbstractKernel
    x: np.ndarray
    sites: Sites
    scale: np.ndarray
    inverse: np.ndarray
    target: np.ndarray

    def moments(self, x: np.ndarray) -> Moments:
        """The mean and the variance at some rows."""
        mean, var = np.empty((2, len(x)))
        weights = self.scale * (self.target @ self.inverse)
        for start in range(0, len(x), CHUNK):
            cut = slice(start, start + CHUNK)
            cross = gram_matrix(self.kernel, x[cut], self.x)
            mean[cut] = cross @ weights
            seen = self._seen(cross)
            var[cut] = prior_variance(self.kernel, x[cut]) - (seen**2).sum(0)
        return mean, var

    def joint(self, x: np.ndarray) -> Moments:
        """The mean and the covariance at some rows."""
        cross = gram_matrix(self.kernel, x, self.x)
        mean = cross @ (self.scale * (self.target @ self.inverse))
        seen = self._seen(cross)
        return mean, gram_matrix(self.kernel, x, x) - seen.T @ seen

    def _seen(self, cross: np.ndarray) -> np.ndarray:
        (multiply,) = linalg.get_blas_funcs(("trmm",), (self.inverse,))
        return multiply(1.0, self.inverse, (cross * self.scale).T, lower=True)

    def left_out(self, rows: np.ndarray, groups: np.ndarray | None = None) -> Moments:
        """The moments at some of its rows, each without its own site or group."""
        error, scale = self.target @ self.inverse, self.scale
        if groups is None:
            spread = 1 / (self.inverse**2).sum(0)
            error = error * spread
        else:
            spread = np.empty_like(error)
            for group in np.unique(groups[rows]):
                own = np.flatnonzero(groups == group)
                columns = self.inverse[:, own]
                inner = np.linalg.inv(columns.T @ columns)
                error[own], spread[own] = inner @ error[own], np.diagonal(inner)
        mean = (np.asarray(self.sites.linear) / scale - error) / scale
        return mean[rows], ((spread - 1) / scale**2)[rows]

    def all_left_out(self, groups: np.ndarray | None = None) -> Moments:
        """The moments at all rows, each without its own site or group."""
        return self.left_out(np.arange(len(self.x)), groups)

    def marginals(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The moments at all rows, and KL(q ‖ prior)."""
        error, scale = self.target @ self.inverse, self.scale
        mean = (np.asarray(self.sites.linear) / scale - error) / scale
        known = (self.inverse**2).sum(0)
        trace = known.sum() - len(error) + mean @ (scale * error)
        kl = trace / 2 - np.log(np.diagonal(self.inverse)).sum()
        return mean, (1 - known) / scale**2, float(kl)


def given_all(kernel: AbstractKernel, x: np.ndarray, sites: Sites) -> GivenAll:
    """A latent function given the sites of all rows.

    Raises:
        FitError: If the kernel matrix is not positive definite and finite.
    """
    scale = np.sqrt(sites.precision)
    matrix = gram_matrix(kernel, x, x)
    matrix *= scale[:, None] * scale
    matrix[np.diag_indices_from(matrix)] += 1
    cholesky, invert = linalg.get_lapack_funcs(("potrf", "trtri"), (matrix,))
    root, failed = cholesky(matrix.T, lower=True, overwrite_a=True)
    if not failed:
        root, failed = invert(root, lower=True, overwrite_c=True)
    if failed:
        raise FitError(
            "the kernel matrix of the rows is not positive definite and finite; a "
            "lengthscale or a variance may be far too large"
        )
    inverse = np.asfortranarray(np.tril(root))
    target = inverse @ (sites.linear / scale)
    return GivenAll(kernel, x, sites, scale, inverse, target)


# Inducing variables


class Inducing(eqx.Module):
    """Inducing variables v ~ N(0, I), where f = φᵀv plus a part of each row's own.

    φ = L⁻¹ k(Z, x), and the posterior of v has this mean and the covariance WᵀW, where
    W is `root`.
    """

    inputs: Float[Array, "M D"]
    inverse: Float[Array, "M M"]
    mean: Float[Array, " M"]
    root: Float[Array, "M M"]

    def features(
        self, kernel: AbstractKernel, x: Float[Array, "B D"]
    ) -> Float[Array, "M B"]:
        """φ of some rows."""
        return lower_apply(self.inverse, kernel(self.inputs, x))


@jit_once
def _begin(kernel: AbstractKernel, inputs: Array) -> tuple[Inducing, Gram]:
    """Inducing variables at their prior, and sums over no rows."""
    inverse = factorized(kernel(inputs, inputs)).inverse
    empty = Gram(jnp.zeros_like(inverse), jnp.zeros_like(inverse[0]))
    own = jnp.eye(len(inputs), dtype=inverse.dtype)
    return Inducing(inputs, inverse, empty.linear, own), empty


@jit_often
def _add(
    kernel: AbstractKernel, inducing: Inducing, total: Gram, x: Array, sites: Sites
) -> Gram:
    """The sums with some more leaves."""

    def one(x: Array, sites: Sites) -> Gram:
        features = inducing.features(kernel, x)
        return gram(kernel(x, x) - features.T @ features, features, sites)

    found = jax.vmap(one)(x, sites)
    return jax.tree.map(lambda a, b: a + b.sum(0), total, found)


@jit_once
def _solve(inducing: Inducing, total: Gram) -> Inducing:
    own = jnp.eye(len(total.linear), dtype=total.linear.dtype)
    root = inverse_cholesky(total.precision + own)
    where = lambda tree: (tree.mean, tree.root)
    return eqx.tree_at(where, inducing, (root.T @ (root @ total.linear), root))


def solved(
    kernel: AbstractKernel,
    x: np.ndarray,
    sites: Sites,
    inputs: np.ndarray,
    leaves: np.ndarray,
) -> Inducing:
    """Inducing variables given rows, whose own parts are seen leaf by leaf."""
    inducing, total = _begin(kernel, inputs)
    for rows in _in_turn(leaves):
        total = _add(kernel, inducing, total, x[rows], _of_leaves(sites, rows))
    return _solve(inducing, total)


def solved_widened(
    kernel: AbstractKernel, x: np.ndarray, sites: Sites, inputs: np.ndarray
) -> tuple[Inducing, Moments]:
    """Inducing variables given rows, whose own parts count as noise.

    And the moments of f at each row given the others.
    """
    inducing, total = _begin(kernel, inputs)
    features = features_of(kernel, inducing, x, float)
    rest = np.maximum(prior_variance(kernel, x) - (features**2).sum(1), 0)
    linear, precision = map(np.asarray, widened(sites, jnp.asarray(rest)))
    known = (features.T * precision) @ features
    total = Gram(jnp.asarray(known), jnp.asarray(features.T @ linear))
    found = _solve(inducing, total)
    spread = ((features @ np.asarray(found.root).T) ** 2).sum(1)
    share = 1 - precision * spread
    mean = (features @ np.asarray(found.mean) - spread * linear) / share
    return found, (mean, spread / share + rest)


def features_of(
    kernel: AbstractKernel, inducing: Inducing, x: np.ndarray, dtype: type
) -> np.ndarray:
    """φ of all rows, [N, M]."""
    features = np.empty((len(x), len(inducing.inputs)), dtype)
    for start in range(0, len(x), CHUNK):
        part = features[start : start + CHUNK]
        part[:] = _features(kernel, inducing, fill_up(x, CHUNK, start))[: len(part)]
    return features


@jit_often
def _features(kernel: AbstractKernel, inducing: Inducing, x: Array) -> Array:
    return inducing.features(kernel, x).T


def _in_turn(leaves: np.ndarray) -> Iterator[np.ndarray]:
    """Leaves in the number that one program takes; −1 is no row."""
    for start in range(0, len(leaves), LEAVES):
        some = leaves[start : start + LEAVES]
        yield np.pad(some, ((0, LEAVES - len(some)), (0, 0)), constant_values=-1)


def _of_leaves(sites: Sites, rows: np.ndarray) -> Sites:
    return Sites(sites.linear[rows] * (rows >= 0), sites.precision[rows] * (rows >= 0))


# The nearest rows


@jit_often
def local(
    kernel: AbstractKernel,
    inducing: Inducing | None,
    x: Float[Array, "Q D"],
    near: Float[Array, "Q K D"],
    sites: Sites,
    features: Float[Array, "Q K M"] | None,
) -> tuple[Float[Array, " Q"], Float[Array, " Q"]]:
    """f less its prior mean at rows, each given inducing variables and rows near it.

    `sites` and `features` are of the near rows. The precision of the features is that
    of the products with them.
    """
    own = None if inducing is None else inducing.features(kernel, x)

    def one(x: Array, near: Array, sites: Sites, features: Any, own: Any) -> Any:
        cov, cross = kernel(near, near), kernel(near, x[None])
        var = kernel.diag(x[None])
        if inducing is None:
            found = conditional(cov, cross, var, sites)
            return found.mean[0], found.var[0]
        small, full = features.dtype, cov.dtype
        cov -= (features @ features.T).astype(full)
        cross -= (features @ own.astype(small)).astype(full)[:, None]
        at_near = (features @ inducing.mean.astype(small)).astype(full)
        sites = sites._replace(linear=sites.linear - sites.precision * at_near)
        found = conditional(cov, cross, var - own @ own, sites)
        rest = own - (found.weights[:, 0].astype(small) @ features).astype(full)
        spread = inducing.root @ rest
        return own @ inducing.mean + found.mean[0], found.var[0] + spread @ spread

    last = None if inducing is None else -1
    return jax.vmap(one, (0, 0, 0, 0, last))(x, near, sites, features, own)


@jit_often
def _leaves_left_out(
    kernel: AbstractKernel, inducing: Inducing | None, x: Array, sites: Sites, near: Any
) -> tuple[Array, Array]:
    """f at each row of some leaves given all other rows, or those of other groups."""

    def one(x: Array, sites: Sites, near: Any) -> tuple[Array, Array]:
        cov = kernel(x, x)
        if inducing is None:
            return left_out(cov, sites, near)
        features = inducing.features(kernel, x)
        shared = inducing.mean @ features, (inducing.root @ features).T
        return left_out(cov - features.T @ features, sites, near, shared)

    return jax.vmap(one)(x, sites, near)


@dataclasses.dataclass(frozen=True, eq=False)
class GivenNear:
    """A latent function, less its prior mean, given the nearest rows.

    Inducing variables, if there are some, are given all rows; `features` are φ of each.
    """

    kernel: AbstractKernel
    x: np.ndarray
    sites: Sites
    index: Nearest
    neighbors: int
    inputs: np.ndarray
    leaves: np.ndarray
    inducing: Inducing | None
    features: np.ndarray | None

    def moments(
        self, x: np.ndarray, near: np.ndarray | None = None, is_real: Any = True
    ) -> Moments:
        """The mean and the variance at some rows, from those that are near each."""
        near = self.index.query(x, self.neighbors) if near is None else near
        linear, precision = (each[near] * is_real for each in self.sites)
        mean, var = np.empty((2, len(x)))
        for start in range(0, len(x), CHUNK):
            cut = slice(start, start + CHUNK)
            pad = lambda each, cut=cut: fill_up(each[cut], CHUNK)
            rows, sites = pad(near), Sites(pad(linear), pad(precision))
            features = None if self.features is None else self.features[rows]
            args = self.inducing, pad(x), self.x[rows], sites, features
            found = local(self.kernel, *args)
            size = len(mean[cut])
            mean[cut], var[cut] = (np.asarray(each)[:size] for each in found)
        return mean, var

    def joint(self, x: np.ndarray) -> Moments:
        raise InputError(
            "predictions from the nearest rows have no joint distribution; fit with "
            f"all_rows of at least {len(self.x)}, or draw from compact()"
        )

    def left_out(self, rows: np.ndarray, groups: np.ndarray | None = None) -> Moments:
        """The moments at some of its rows, each without its own site or group.

        Inducing variables are given all rows but these.
        """
        near, is_real = self.index.others(rows, self.neighbors, groups)
        inducing = self.inducing
        if inducing is not None:
            is_known = np.ones(len(self.x))
            is_known[rows] = 0
            rest = Sites(self.sites.linear * is_known, self.sites.precision * is_known)
            inducing = solved(self.kernel, self.x, rest, self.inputs, self.leaves)
        rest = dataclasses.replace(self, inducing=inducing)
        return rest.moments(self.x[rows], near, is_real)

    def all_left_out(self, groups: np.ndarray | None = None) -> Moments:
        """The moments at all rows, each without its own site or group, from its leaf
        and the inducing variables."""
        mean, var = np.empty((2, len(self.x)))
        for rows in _in_turn(self.leaves):
            own = None if groups is None else groups[rows]
            near = None if own is None else own[:, :, None] == own[:, None, :]
            args = self.x[rows], _of_leaves(self.sites, rows), near
            found = _leaves_left_out(self.kernel, self.inducing, *args)
            is_row = rows >= 0
            at = rows[is_row]
            mean[at], var[at] = (np.asarray(each)[is_row] for each in found)
        return mean, var


class Neighborhood(NamedTuple):
    """How rows are conditioned on that are too many for all to be."""

    nearest: Nearest
    neighbors: int
    inputs: np.ndarray
    leaves: np.ndarray


def given_near(
    kernel: AbstractKernel, x: np.ndarray, sites: Sites, at: Neighborhood
) -> GivenNear:
    """A latent function given the nearest rows, and all others by inducing inputs."""
    if not len(at.inputs):
        return GivenNear(kernel, x, sites, *at, inducing=None, features=None)
    inducing = solved(kernel, x, sites, at.inputs, at.leaves)
    variance = float(prior_variance(kernel, x[:CHUNK]).mean())
    is_single = sites.precision.max() * variance <= SINGLE
    kind = np.float32 if is_single else float
    features = features_of(kernel, inducing, x, kind)
    return GivenNear(kernel, x, sites, *at, inducing=inducing, features=features)
