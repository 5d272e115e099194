"""The families in fifty digits: what every map of a distribution should give.

A reference starts from the stored fields, which fifty digits hold exactly, so what
differs from it is the error of the map alone. A value is flat, the leaves of what the
map returns one after the other, and each entry has a size to measure its error against.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from mpmath.ctx_mp import MPContext

from natgrad import linalg, positive
from natgrad.families import (
    beta,
    categorical,
    diagonal,
    dirichlet,
    gamma,
    gaussian,
    inverse_gamma,
    wishart,
)


mp = MPContext()
mp.dps = 50

Values = dict[str, Any]

exp = np.frompyfunc(mp.exp, 1, 1)
log = np.frompyfunc(mp.log, 1, 1)
sqrt = np.frompyfunc(mp.sqrt, 1, 1)
gammaln = np.frompyfunc(mp.loggamma, 1, 1)
digamma = np.frompyfunc(mp.digamma, 1, 1)
trigamma = np.frompyfunc(lambda x: mp.psi(1, x), 1, 1)


class Value(NamedTuple):
    """A leaf, and the sizes that the errors of its entries are measured against."""

    value: np.ndarray
    size: np.ndarray


def exact(array) -> np.ndarray:
    """The same numbers in fifty digits."""
    return np.asarray(_exact(np.asarray(array)), object)


_exact = np.frompyfunc(lambda x: x if isinstance(x, mp.mpf) else mp.mpf(float(x)), 1, 1)


def by_largest(value, floor=0) -> Value:
    """Errors against the largest entry."""
    return Value(value, np.max(np.abs(value)) + floor)


def by_entry(value, floor=0) -> Value:
    """Errors against every entry itself."""
    return Value(value, np.abs(value) + floor)


def total(*terms) -> Value:
    """Errors of a sum against the sum of what is added."""
    return Value(sum(terms), sum(abs(term) for term in terms))


def nats(*terms) -> Value:
    """The same, where one nat is a size of its own: a probability may be close to 1."""
    value, size = total(*terms)
    return Value(value, size + 1)


def vector(*numbers) -> np.ndarray:
    return np.array(
        [x[()] if isinstance(x, np.ndarray) else x for x in numbers], object
    )


def flat(*values: Value) -> Value:
    """Leaves one after the other, each with its own sizes."""
    values = [
        Value(*(np.ravel(x) for x in np.broadcast_arrays(*value))) for value in values
    ]
    return Value(*(np.concatenate(x) for x in zip(*values, strict=True)))


def exact_leaves(tree) -> np.ndarray:
    return exact(np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]))


def norm(vector: np.ndarray):
    return mp.sqrt((vector**2).sum())


# Positive numbers: what is stored, and its derivative by the number.


class Number:
    """Positive numbers in the coordinates of `storage`."""

    def __init__(self, storage: positive.AbstractPositive):
        self.kind = type(storage)
        self.stored = field(storage)
        if not self.stored.ndim:
            self.stored = self.stored[()]
        self.value, self.rate = self.read(self.stored), self.rates(self.stored)

    def read(self, x):
        if self.kind is positive.Plain:
            return x
        return exp(x) if self.kind is positive.Log else log(1 + exp(x))

    def rates(self, x):
        """How fast the number moves with what is stored."""
        if self.kind is positive.Plain:
            return 0 * x + 1
        return exp(x) if self.kind is positive.Log else 1 / (1 + exp(-x))

    def at(self, value) -> Value:
        """Other numbers, as they are stored."""
        if self.kind is positive.Plain:
            return by_entry(value)
        if self.kind is positive.Log:
            return by_entry(log(value), 1)
        return by_entry(value + log(1 - exp(-value)), 1)


def field(node) -> np.ndarray:
    """The one field of a storage."""
    (array,) = vars(node).values()
    return exact(array)


# Positive definite matrices.


def cholesky(matrix: np.ndarray) -> np.ndarray:
    size = len(matrix)
    root = np.full((size, size), mp.mpf(0), object)
    for j in range(size):
        column = matrix[j:, j] - root[j:, :j] @ root[j, :j] if j else matrix[j:, j]
        root[j:, j] = column / mp.sqrt(column[0])
    return root


def lower_inverse(root: np.ndarray) -> np.ndarray:
    size = len(root)
    inverse = np.full((size, size), mp.mpf(0), object)
    for i in range(size):
        row = -(root[i, :i] @ inverse[:i]) if i else np.full(size, mp.mpf(0), object)
        row[i] += 1
        inverse[i] = row / root[i, i]
    return inverse


def eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w, basis = mp.eigsy(mp.matrix(matrix.tolist()))
    return np.array(list(w), object), np.array(basis.tolist(), object)


def sym(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[:, None] * b[None, :]


def lower_half(matrix: np.ndarray) -> np.ndarray:
    half = np.tril(matrix)
    half[np.diag_indices(len(matrix))] /= 2
    return half


class Stored:
    """A positive definite matrix in the coordinates of `storage`."""

    def __init__(self, storage: linalg.AbstractPositiveDefinite):
        self.kind = type(storage)
        self.floor = 1 if self.kind is linalg.Log else 0
        stored = field(storage)
        if self.kind is linalg.Log:
            self.w, self.basis = eigh(sym(stored))
            self.matrix = (self.basis * exp(self.w)) @ self.basis.T
            self.inverse = (self.basis * exp(-self.w)) @ self.basis.T
            self.factor = self.basis * exp(self.w / 2)
            self.whitener = (self.basis * exp(-self.w / 2)).T
            self.log_det = self.w.sum()
            return
        if self.kind is linalg.Sqrt:
            self.factor = np.tril(stored)
            self.matrix = self.factor @ self.factor.T
        else:
            self.matrix = sym(stored)
            self.factor = cholesky(self.matrix)
        self.whitener = lower_inverse(self.factor)
        self.inverse = self.whitener.T @ self.whitener
        self.log_det = 2 * log(np.abs(np.diag(self.factor))).sum()

    def at(self, matrix: np.ndarray) -> np.ndarray:
        """Another matrix, as it is stored."""
        if self.kind is linalg.Full:
            return matrix
        if self.kind is linalg.Sqrt:
            return cholesky(matrix)
        w, basis = eigh(matrix)
        return (basis * log(w)) @ basis.T

    def length(self):
        """What a gradient is multiplied by, twice, to move what is stored."""
        lengths = {linalg.Full: self.matrix, linalg.Sqrt: self.factor}
        return np.max(np.abs(lengths.get(self.kind, mp.mpf(1))))

    def _weights(self) -> np.ndarray:
        """(eᵃ − eᵇ)/(a − b) of the eigenvalues of W."""
        a, b = np.broadcast_arrays(self.w[:, None], self.w[None, :])
        pair = lambda a, b: (
            mp.exp(b) * (mp.expm1(a - b) / (a - b) if a != b else mp.mpf(1))
        )
        return np.frompyfunc(pair, 2, 1)(a, b)

    def slope(self, grad: np.ndarray) -> np.ndarray:
        """∂L/∂M, from the gradient by what is stored."""
        if self.kind is linalg.Full:
            return sym(grad)
        if self.kind is linalg.Sqrt:
            half = lower_half(self.factor.T @ np.tril(grad))
            return sym(self.whitener.T @ half @ self.whitener)
        inner = self.basis.T @ sym(grad) @ self.basis / self._weights()
        return self.basis @ inner @ self.basis.T

    def tangent(self, change: np.ndarray) -> np.ndarray:
        """How what is stored moves with M."""
        if self.kind is linalg.Full:
            return change
        if self.kind is linalg.Sqrt:
            return self.factor @ lower_half(self.whitener @ change @ self.whitener.T)
        inner = self.basis.T @ change @ self.basis / self._weights()
        return self.basis @ inner @ self.basis.T


# Gaussians.


class Parts(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray
    precision: np.ndarray
    factor: np.ndarray
    whitener: np.ndarray
    log_det: Any


def gaussian_parts(q) -> tuple[Stored, Parts]:
    if isinstance(q, gaussian.Moments):
        s = Stored(q.cov)
        parts = (s.matrix, s.inverse, s.factor, s.whitener, s.log_det)
        return s, Parts(exact(q.mean), *parts)
    s = Stored(q.quadratic)
    cov, precision, root = s.inverse / 2, 2 * s.matrix, mp.sqrt(2)
    mean = cov @ exact(q.linear)
    log_det = -s.log_det - len(mean) * mp.log(2)
    parts = (s.whitener.T / root, root * s.factor.T, log_det)
    return s, Parts(mean, cov, precision, *parts)


def of_gaussian(q, other, grad, slope, size, u) -> Values:
    stored, here = gaussian_parts(q)
    _, there = gaussian_parts(other)
    mean, cov, precision = here.mean, here.cov, here.precision
    linear = precision @ mean
    dim = mp.mpf(len(mean))
    away = norm(here.whitener @ (exact(u) - mean)) ** 2
    spread = ((there.whitener @ here.factor) ** 2).sum()
    shift = norm(there.whitener @ (mean - there.mean)) ** 2
    first, second, size = exact(slope.first), exact(slope.second), exact(size)[()]
    precision_there = precision + 2 * size * second

    if isinstance(q, gaussian.Moments):
        by_mean, by_cov = exact(grad.mean), stored.slope(field(grad.cov))
        change = stored.tangent(2 * cov @ by_cov @ cov)
        sizes = np.abs(cov).max() * norm(by_mean)
        gradient = [
            Value(cov @ by_mean, sizes),
            Value(change, stored.length() ** 2 * np.abs(field(grad.cov)).max()),
        ]
        whitener = lower_inverse(cholesky(precision_there))
        cov_there = whitener.T @ whitener
        moved = size * cov_there @ first
        sizes = np.abs(mean).max() + np.abs(moved).max()
        stepped = [
            Value(mean - moved, sizes),
            by_largest(stored.at(cov_there), stored.floor),
        ]
    else:
        by_mean = precision @ exact(grad.linear)
        by_quadratic = stored.slope(field(grad.quadratic))
        inner = 2 * stored.matrix @ by_quadratic @ stored.matrix
        across = sym(outer(by_mean, linear))
        change, sizes = total(inner, across)
        moves = stored.tangent(inner), stored.tangent(across)
        gradient = [
            Value(
                by_mean + 2 * change @ mean,
                norm(by_mean) + 2 * sizes.max() * norm(mean),
            ),
            Value(sum(moves), sum(np.abs(move).max() for move in moves)),
        ]
        moved = size * (first - 2 * second @ mean)
        sizes = norm(linear) + size * (
            norm(first) + 2 * np.abs(second).max() * norm(mean)
        )
        there_q = stored.at(precision_there / 2)
        stepped = [Value(linear - moved, sizes), by_largest(there_q, stored.floor)]

    half_log = dim * mp.log(2 * mp.pi) / 2
    return {
        "natural": flat(by_largest(linear), by_largest(-precision / 2)),
        "expectation": flat(by_largest(mean), by_largest(cov + outer(mean, mean))),
        "log_prob": total(-away / 2, -here.log_det / 2, -half_log),
        "entropy": total(here.log_det / 2, half_log, dim / 2),
        "kl": total(
            spread / 2, -dim / 2, shift / 2, there.log_det / 2, -here.log_det / 2
        ),
        "natural_gradient": flat(*gradient),
        "stepped": flat(*stepped),
    }


def diagonal_parts(q) -> tuple[Number, np.ndarray, np.ndarray]:
    if isinstance(q, diagonal.Moments):
        stored = Number(q.var)
        return stored, exact(q.mean), stored.value
    stored = Number(q.quadratic)
    return stored, exact(q.linear) / (2 * stored.value), 1 / (2 * stored.value)


def of_diagonal(q, other, grad, slope, size, u) -> Values:
    stored, mean, var = diagonal_parts(q)
    _, mean_there, var_there = diagonal_parts(other)
    first, second, size = exact(slope.first), exact(slope.second), exact(size)[()]
    away = (exact(u) - mean) ** 2 / var
    log_var, half_log = log(var), len(mean) * mp.log(2 * mp.pi) / 2
    ratio = var / var_there
    shift = (mean - mean_there) ** 2 / var_there
    precision_next = 1 / var + 2 * size * second

    if isinstance(q, diagonal.Moments):
        by_var = field(grad.var) / stored.rate
        gradient = [
            by_entry(var * exact(grad.mean)),
            by_entry(2 * var**2 * by_var / stored.rate),
        ]
        mean_next = total(mean, -size * first / precision_next)
        stepped = [mean_next, stored.at(1 / precision_next)]
    else:
        linear, quadratic = mean / var, stored.value
        by_mean = exact(grad.linear) / var
        by_quadratic = field(grad.quadratic) / stored.rate
        change = total(2 * quadratic**2 * by_quadratic, by_mean * linear)
        gradient = [
            Value(
                by_mean + 2 * change.value * mean,
                abs(by_mean) + 2 * change.size * abs(mean),
            ),
            Value(change.value / stored.rate, change.size / stored.rate),
        ]
        linear_next = total(linear, -size * first, 2 * size * second * mean)
        stepped = [linear_next, stored.at(precision_next / 2)]

    return {
        "natural": flat(by_entry(mean / var), by_entry(-1 / (2 * var))),
        "expectation": flat(by_entry(mean), by_entry(var + mean**2)),
        "log_prob": total(*(-away / 2), *(-log_var / 2), -half_log),
        "entropy": total(*(log_var / 2), half_log, mp.mpf(len(mean)) / 2),
        "kl": total(
            *(ratio / 2), -mp.mpf(len(mean)) / 2, *(-log(ratio) / 2), *(shift / 2)
        ),
        "natural_gradient": flat(*gradient),
        "stepped": flat(*stepped),
    }


# Families of few numbers: θ as a function of the coordinates, and A(θ) with its
# gradient and its Hessian. The rest is the same for all.


class Family(NamedTuple):
    """θ(ξ) and ξ(θ) between flat vectors; the terms of A, η and ∂η/∂θ."""

    coordinates: np.ndarray
    natural: Callable[[np.ndarray], np.ndarray]
    at_natural: Callable[[np.ndarray], Value]
    log_normalizer: Callable[[np.ndarray], list]
    expectation: Callable[[np.ndarray], Value]
    hessian: Callable[[np.ndarray], np.ndarray]
    statistics: Callable[[Any], np.ndarray]
    floor: np.ndarray | int = 1  # of the size of θ, where one is taken from it
    held: int = 0  # the last coordinates, if θ does not depend on them


def gamma_family(q) -> Family:
    if isinstance(q, gamma.ShapeRate):
        one, two = Number(q.shape), Number(q.rate)
        shape_rate = lambda x: (one.read(x[0]), two.read(x[1]))
        at = lambda shape, rate: (one.at(shape), two.at(rate))
    else:
        one, two = Number(q.mean), Number(q.shape)
        shape_rate = lambda x: (two.read(x[1]), two.read(x[1]) / one.read(x[0]))
        at = lambda shape, rate: (one.at(shape / rate), two.at(shape))

    def natural(x):
        shape, rate = shape_rate(x)
        return vector(shape - 1, -rate)

    def expectation(theta):
        shape, rate = theta[0] + 1, -theta[1]
        logarithm = total(mp.digamma(shape), -mp.log(rate), mp.mpf(0))
        return flat(logarithm, by_entry(shape / rate))

    def hessian(theta):
        shape, rate = theta[0] + 1, -theta[1]
        across = 1 / rate
        rows = [mp.psi(1, shape), across], [across, shape / rate**2]
        return np.array(rows, object)

    return Family(
        vector(one.stored, two.stored),
        natural,
        lambda theta: flat(*at(theta[0] + 1, -theta[1])),
        lambda theta: [mp.loggamma(theta[0] + 1), -(theta[0] + 1) * mp.log(-theta[1])],
        expectation,
        hessian,
        lambda u: vector(mp.log(exact(u)[()]), exact(u)[()]),
        np.array([1, 0]),
    )


def inverse_gamma_family(q) -> Family:
    if isinstance(q, inverse_gamma.ShapeScale):
        one, two = Number(q.shape), Number(q.scale)
        shape_scale = lambda x: (one.read(x[0]), two.read(x[1]))
        at = lambda shape, scale: (one.at(shape), two.at(scale))
    else:
        one, two = Number(q.mode), Number(q.shape)
        shape_scale = lambda x: (two.read(x[1]), (two.read(x[1]) + 1) * one.read(x[0]))
        at = lambda shape, scale: (one.at(scale / (shape + 1)), two.at(shape))

    def natural(x):
        shape, scale = shape_scale(x)
        return vector(-shape - 1, -scale)

    def expectation(theta):
        shape, scale = -theta[0] - 1, -theta[1]
        logarithm = total(mp.log(scale), -mp.digamma(shape), mp.mpf(0))
        return flat(logarithm, by_entry(shape / scale))

    def hessian(theta):
        shape, scale = -theta[0] - 1, -theta[1]
        across = -1 / scale
        rows = [mp.psi(1, shape), across], [across, shape / scale**2]
        return np.array(rows, object)

    return Family(
        vector(one.stored, two.stored),
        natural,
        lambda theta: flat(*at(-theta[0] - 1, -theta[1])),
        lambda theta: [mp.loggamma(-theta[0] - 1), (theta[0] + 1) * mp.log(-theta[1])],
        expectation,
        hessian,
        lambda u: vector(mp.log(exact(u)[()]), 1 / exact(u)[()]),
        np.array([1, 0]),
    )


def simplex_family(q) -> Family:
    """Beta and Dirichlet, which differ in what a point is."""
    if isinstance(q, beta.Concentrations):
        numbers = [Number(q.a), Number(q.b)]
        coordinates = vector(*(n.stored for n in numbers))
        alpha = lambda x: vector(*(n.read(y) for n, y in zip(numbers, x, strict=True)))
        at = lambda a: flat(*(n.at(y) for n, y in zip(numbers, a, strict=True)))
    elif isinstance(q, dirichlet.Concentrations):
        concentration = Number(q.concentration)
        coordinates, alpha = concentration.stored, concentration.read
        at = concentration.at
    else:
        whole = Number(q.total)
        logits = q.logit if isinstance(q, beta.MeanTotal) else q.logits
        coordinates = np.append(exact(logits), whole.stored)

        def alpha(x):
            odds = np.append(exp(x[:-1]), mp.mpf(1))
            return whole.read(x[-1]) * odds / odds.sum()

        def at(a):
            return flat(by_entry(log(a[:-1] / a[-1]), 1), whole.at(a.sum()))

    def expectation(theta):
        each, all_ = digamma(theta + 1), mp.digamma((theta + 1).sum())
        return Value(each - all_, abs(each) + abs(all_))

    def hessian(theta):
        return np.diag(trigamma(theta + 1)) - mp.psi(1, (theta + 1).sum())

    def statistics(u):
        u = exact(u)
        return log(u) if u.ndim else vector(mp.log(u[()]), mp.log(1 - u[()]))

    return Family(
        coordinates,
        lambda x: alpha(x) - 1,
        lambda theta: at(theta + 1),
        lambda theta: [*gammaln(theta + 1), -mp.loggamma((theta + 1).sum())],
        expectation,
        hessian,
        statistics,
    )


def categorical_family(q) -> Family:
    odds = lambda theta: exp(theta) / (1 + exp(theta).sum())
    if isinstance(q, categorical.Logits):
        coordinates = exact(q.logits)
        natural = lambda x: x[:-1] - x[-1]
        last = coordinates[-1]
        at_natural = lambda theta: by_entry(np.append(theta + last, last), 1)
    else:
        coordinates = exact(q.probs)
        natural = lambda x: log(x) - mp.log(1 - x.sum())
        at_natural = lambda theta: by_entry(odds(theta))

    def statistics(u):
        return exact(np.arange(len(natural(coordinates))) == int(u))

    return Family(
        coordinates,
        natural,
        at_natural,
        lambda theta: [mp.log(1 + exp(theta).sum())],
        lambda theta: by_entry(odds(theta)),
        lambda theta: np.diag(odds(theta)) - outer(odds(theta), odds(theta)),
        statistics,
        held=int(isinstance(q, categorical.Logits)),
    )


def of_family(read: Callable[[Any], Family], q, other, grad, slope, size, u) -> Values:
    family, there = read(q), read(other)
    xi, size = family.coordinates, exact(size)[()]
    theta, theta_there = family.natural(xi), there.natural(there.coordinates)
    eta = family.expectation(theta)
    terms, terms_there = family.log_normalizer(theta), there.log_normalizer(theta_there)
    free = len(xi) - family.held
    to_theta = jacobian(family.natural, xi)[:, :free]
    fisher = to_theta.T @ family.hessian(theta) @ to_theta
    inverse = np.array((mp.matrix(fisher.tolist()) ** -1).tolist(), object)
    gradient = exact_leaves(grad)[:free]
    change = inverse @ gradient
    # Against what each coordinate moves by in a step of the same length.
    sizes = mp.sqrt(change @ gradient) * sqrt(np.diag(inverse))
    return {
        "natural": by_entry(theta, family.floor),
        "expectation": eta,
        "log_prob": nats(*(theta * family.statistics(u)), *(-t for t in terms)),
        "entropy": nats(*terms, *(-theta * eta.value)),
        "kl": nats(
            *terms_there, *(-t for t in terms), *((theta - theta_there) * eta.value)
        ),
        "natural_gradient": flat(
            Value(change, sizes), by_entry(exact(np.zeros(family.held)), 1)
        ),
        "stepped": family.at_natural(theta - size * exact_leaves(slope)),
    }


def jacobian(function: Callable, x: np.ndarray) -> np.ndarray:
    """By central differences, of which fifty digits leave thirty."""
    columns = []
    for i in range(len(x)):
        step = exact(np.zeros(len(x)))
        step[i] = mp.mpf(10) ** -16 * abs(x[i]) + mp.mpf(10) ** -30
        columns.append((function(x + step) - function(x - step)) / (2 * step[i]))
    return np.stack(columns, -1)


# Wishart distributions.


def wishart_parts(q) -> tuple[Stored, Number, Parts]:
    excess = Number(q.excess)
    if isinstance(q, wishart.ScaleDof):
        s = Stored(q.scale)
        parts = (s.matrix, s.inverse, s.factor, s.whitener, s.log_det)
    else:
        s = Stored(q.rate)
        parts = (s.inverse, s.matrix, s.whitener.T, s.factor.T, -s.log_det)
    return s, excess, Parts(excess.value + len(s.matrix) - 1, *parts)


def of_wishart(q, other, grad, slope, size, u) -> Values:
    stored, excess, here = wishart_parts(q)
    _, _, there = wishart_parts(other)
    dof, scale, dim, u = here.mean, here.cov, len(here.cov), exact(u)
    halves = lambda dof: vector(*((dof - i) / 2 for i in range(dim)))
    digammas = digamma(halves(dof))
    log_det_u = 2 * log(np.diag(cholesky(u))).sum()
    power = (dof - dim - 1) / 2
    normalizer = lambda part: [
        *gammaln(halves(part.mean)),
        mp.mpf(dim * (dim - 1)) / 4 * mp.log(mp.pi),
        part.mean / 2 * dim * mp.log(2),
        part.mean / 2 * part.log_det,
    ]
    minus = lambda terms: [-t for t in terms]
    log_dets = [*digammas, dim * mp.log(2), here.log_det]
    trace = ((there.whitener @ here.factor) ** 2).sum()

    is_scale = isinstance(q, wishart.ScaleDof)
    by_stored = stored.slope(field(grad.scale if is_scale else grad.rate))
    by_scale = by_stored if is_scale else -here.precision @ by_stored @ here.precision
    by_dof = field(grad.excess)[()] / excess.rate
    gap = trigamma(halves(dof)).sum() / 2 - dim / dof
    parts = total(by_dof / gap, -(by_scale * scale).sum() / dof / gap)
    first = parts.value
    inner = scale @ by_scale @ scale if is_scale else by_scale
    along = scale if is_scale else here.precision
    sign = 1 if is_scale else -1
    moves = (
        stored.tangent(sign * 2 * inner / dof),
        stored.tangent(-sign * 2 * first * along / dof),
    )
    share = parts.size / abs(first) if first else mp.mpf(1)
    sizes = np.abs(moves[0]).max() + share * np.abs(moves[1]).max()

    size = exact(size)[()]
    precision_there = here.precision + 2 * size * exact(slope.matrix)
    excess_there = excess.at(excess.value - 2 * size * exact(slope.log_det)[()])
    if is_scale:
        whitener = lower_inverse(cholesky(precision_there))
        matrix_there = stored.at(whitener.T @ whitener)
    else:
        matrix_there = stored.at(precision_there)
    return {
        "natural": flat(
            total(excess.value / 2, mp.mpf(-1)), by_largest(-here.precision / 2)
        ),
        "expectation": flat(total(*log_dets), by_largest(dof * scale)),
        "log_prob": total(
            power * log_det_u,
            -((here.whitener @ cholesky(u)) ** 2).sum() / 2,
            *minus(normalizer(here)),
        ),
        "entropy": total(
            *normalizer(here), *(-power * t for t in log_dets), dof * dim / 2
        ),
        "kl": total(
            *normalizer(there),
            *minus(normalizer(here)),
            *((dof - there.mean) / 2 * t for t in log_dets),
            dof / 2 * trace,
            -dof * dim / 2,
        ),
        "natural_gradient": flat(
            Value(moves[0] + moves[1], sizes),
            Value(2 * first / excess.rate, 2 * parts.size / excess.rate),
        ),
        "stepped": flat(by_largest(matrix_there, stored.floor), excess_there),
    }


def plus(*values: Value) -> Value:
    """Errors of a sum of values against the sum of their sizes."""
    return Value(*(sum(parts) for parts in zip(*values, strict=True)))


def of_normal_inverse_wishart(q, other, grad, slope, size, u) -> Values:
    strength, there_strength = Number(q.strength), Number(other.strength)
    kappa, kappa_there = strength.value, there_strength.value
    mean, size = exact(q.mean), exact(size)[()]
    dim = mp.mpf(len(mean))
    first, second = -exact(slope.log_det), exact(slope.matrix)
    linear, square = exact(slope.linear), exact(slope.square)[()]
    kappa_next = kappa + 2 * size * square
    shift = size * linear / kappa_next
    step = wishart.Statistics(first, second - outer(linear, shift) / 2)
    unused = np.eye(len(mean))
    of = of_wishart(q.precision, other.precision, grad.precision, step, size, unused)

    _, excess, here = wishart_parts(q.precision)
    dof, expected = here.mean, here.mean * here.cov
    root = cholesky(exact(u.covariance))
    whitener = lower_inverse(root)
    log_det_u = 2 * log(np.diag(root)).sum()
    away = norm(whitener @ (exact(u.mean) - mean)) ** 2
    halves = vector(*((dof - i) / 2 for i in range(len(mean))))
    normalizer = [
        *gammaln(halves),
        dim * (dim - 1) / 4 * mp.log(mp.pi),
        dof / 2 * dim * mp.log(2),
        dof / 2 * here.log_det,
        dim / 2 * mp.log(2 * mp.pi),
        -dim / 2 * mp.log(kappa),
    ]
    log_dets = [*(-digamma(halves)), -dim * mp.log(2), -here.log_det]
    ratio = kappa_there / kappa
    apart = kappa_there * norm(here.factor.T @ (mean - exact(other.mean))) ** 2 * dof
    by_mean = exact(grad.mean)
    length = np.abs(here.precision).max() / (kappa * dof)
    by_strength = field(grad.strength)[()] / strength.rate
    largest = np.abs(expected).max()
    return {
        "natural": flat(
            total(-excess.value / 2, -dim - mp.mpf(1) / 2),
            by_largest(-(here.precision + kappa * outer(mean, mean)) / 2),
            by_largest(kappa * mean),
            by_entry(-kappa / 2),
        ),
        "expectation": flat(
            total(*log_dets),
            by_largest(expected),
            Value(expected @ mean, largest * norm(mean)),
            Value(
                dim / kappa + mean @ expected @ mean,
                dim / kappa + largest * norm(mean) ** 2,
            ),
        ),
        "log_prob": total(
            -(dof + dim + 2) / 2 * log_det_u,
            -((here.whitener @ whitener.T) ** 2).sum() / 2,
            -kappa / 2 * away,
            *(-t for t in normalizer),
        ),
        "entropy": total(
            *normalizer,
            *((dof + dim + 2) / 2 * t for t in log_dets),
            dof * dim / 2,
            dim / 2,
        ),
        "kl": plus(
            of["kl"],
            total(dim / 2 * ratio, -dim / 2, -dim / 2 * mp.log(ratio), apart / 2),
        ),
        "natural_gradient": flat(
            Value(here.precision @ by_mean / (kappa * dof), length * norm(by_mean)),
            by_entry(2 * kappa**2 / dim * by_strength / strength.rate),
            of["natural_gradient"],
        ),
        "stepped": flat(total(mean, -shift), strength.at(kappa_next), of["stepped"]),
    }
