"""Every map of every family against fifty digits, at points that are hard.

Hypothesis draws the powers of ten to which a batch of points goes: of the condition
number, of the mean in deviations (for a gamma its shape, for a Dirichlet its total, for
a Wishart its excess), and of the scale. All points of a batch must come out finite and
in their own precision; its first points, which have the drawn powers, are compared with
the reference. Errors are relative to the sizes `reference.py` gives, and bounded by

    TIMES · dimension · eps · (what the map loses, stated below).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, example, given, settings, strategies as st

from natgrad import linalg, natural_gradient, positive
from natgrad.families import (
    beta,
    categorical,
    diagonal,
    dirichlet,
    gamma,
    gaussian,
    inverse_gamma,
    normal_inverse_wishart,
    wishart,
)
from tests.families import reference
from tests.variants import variants


EXAMPLES = variants([1, 10], [1])
"""Batches that Hypothesis draws for each coordinate system and precision."""

POINTS = 200
"""Points of a batch: with ten batches, 2,000 for each coordinate system."""

TIMES = 20.0
"""Units in the last place, per dimension, beyond what the map must lose."""

ROUNDED = 1e5
"""The condition number to which a matrix is formed in float32. At 1/eps = 8e6 its
rounding alone may take away its sign, and it has no root and no logarithm. To 1e-5 a
last probability is read from the others in float32."""


class Point(NamedTuple):
    """What decides how much a map may lose, for each point of a batch."""

    condition: np.ndarray  # of the matrix
    large: np.ndarray  # mean in deviations; shape, total or excess
    small: np.ndarray  # the least of the positive numbers, or 1


def nothing(at: Point) -> np.ndarray:
    """No digit is lost: sums and products of what is stored."""
    return np.ones_like(at.condition)


def root(at: Point) -> np.ndarray:
    """√condition, of solving with a root, or with a logarithm that is stored."""
    return np.sqrt(at.condition)


def power(at: Point) -> np.ndarray:
    """log condition, the size of a stored logarithm, which exp takes as relative."""
    return 1 + np.log(at.condition)


def whole(at: Point) -> np.ndarray:
    """The condition number, where the matrix is formed or is what is stored."""
    return at.condition


def root_far(at: Point) -> np.ndarray:
    """A mean that is solved for is good to √condition of its own size."""
    return np.sqrt(at.condition) * at.large


def whole_far(at: Point) -> np.ndarray:
    """A mean that is solved for is good to the condition number of its own size."""
    return at.condition * at.large


def far(at: Point) -> np.ndarray:
    """A mean that is divided for is good to its own size, not to a deviation."""
    return at.large


def minus_one(at: Point) -> np.ndarray:
    """θ = α − 1 holds a small α to eps, not to eps · α."""
    return 1 + 1 / at.small


def fisher(at: Point) -> np.ndarray:
    """∂η/∂θ is as ill-conditioned as the shape or total is large, or α is small."""
    return at.large + 1 / at.small


def wishart_step(at: Point) -> np.ndarray:
    """A matrix formed, and θ₁ = excess/2 − 1."""
    return at.condition + 1 / at.small


def wishart_fisher(at: Point) -> np.ndarray:
    """A matrix formed, and a Fisher matrix as ill-conditioned as ν is large."""
    return at.condition + at.large + 1 / at.small


def last(at: Point) -> np.ndarray:
    """The last probability, 1 − Σp, is good to eps and not to eps · p."""
    return 1 / at.small


Loss = Callable[[Point], np.ndarray]
EVERY = dict.fromkeys(
    (
        "natural",
        "expectation",
        "from_natural",
        "from_expectation",
        "log_prob",
        "entropy",
        "kl",
        "natural_gradient",
        "stepped",
    ),
    nothing,
)

# What each map loses, in each coordinate system; a map not named loses nothing.

GAUSSIAN: dict[Any, dict[str, Loss]] = {
    (gaussian.Moments, linalg.Full): {
        "natural": whole,
        "log_prob": whole,
        "entropy": whole,
        "kl": whole,
        "stepped": root,
        "from_natural": whole,
    },
    (gaussian.Moments, linalg.Sqrt): {
        "natural": root,
        "log_prob": root,
        "kl": root,
        "from_natural": whole,
        "from_expectation": root,
    },
    (gaussian.Moments, linalg.Log): {
        "natural": root,
        "expectation": power,
        "log_prob": root,
        "kl": root,
        "natural_gradient": power,
        "stepped": whole,
        "from_natural": whole,
        "from_expectation": whole,
    },
    (gaussian.Canonical, linalg.Full): {
        "expectation": whole,
        "log_prob": whole_far,
        "entropy": whole,
        "kl": whole_far,
        "natural_gradient": root,
        "stepped": whole,
        "from_expectation": whole,
    },
    (gaussian.Canonical, linalg.Sqrt): {
        "expectation": root,
        "log_prob": root_far,
        "kl": root_far,
        "stepped": root,
        "from_natural": root,
        "from_expectation": whole,
    },
    (gaussian.Canonical, linalg.Log): {
        "natural": power,
        "expectation": root,
        "log_prob": root_far,
        "kl": root_far,
        "natural_gradient": root,
        "stepped": whole,
        "from_natural": whole,
        "from_expectation": whole,
    },
}
DIAGONAL: dict[Any, dict[str, Loss]] = {
    diagonal.Moments: {},
    diagonal.Canonical: {"log_prob": far, "kl": far},
}
IMPLICIT: dict[str, Loss] = {
    **dict.fromkeys(EVERY, minus_one),
    "natural": nothing,
    "natural_gradient": fisher,
    "from_expectation": fisher,
}
CATEGORICAL: dict[Any, dict[str, Loss]] = {
    categorical.Logits: {"from_expectation": last},
    categorical.Probabilities: {**dict.fromkeys(EVERY, last), "expectation": nothing},
}
WISHART: dict[Any, dict[str, Loss]] = {
    (wishart.ScaleDof, linalg.Full): {
        "natural": whole,
        "expectation": whole,
        "entropy": whole,
        "kl": whole,
    },
    (wishart.ScaleDof, linalg.Log): {
        "natural": power,
        "expectation": power,
        "kl": root,
    },
    (wishart.RateDof, linalg.Sqrt): {"expectation": root, "kl": root},
}
WISHART_STEPS: dict[str, Loss] = {
    "log_prob": whole,
    "from_natural": wishart_step,
    "from_expectation": wishart_fisher,
    "natural_gradient": wishart_fisher,
    "stepped": wishart_step,
}


# The points.


class Draw(NamedTuple):
    """The dimension, a seed, and the powers of ten to which a batch goes."""

    dim: int
    seed: int
    condition: float
    large: float
    scale: float


class Inputs(NamedTuple):
    q: Any
    other: Any
    grad: Any
    slope: Any
    size: Any
    u: Any


SIZE = np.asarray(0.5)


def powers(rng, highest: float, lowest: float = 0.0) -> np.ndarray:
    """Powers of ten up to the drawn one, which the first points have."""
    drawn = rng.uniform(lowest, highest, POINTS)
    drawn[:3] = highest
    return drawn


def transposed(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


def matvec(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return (matrix @ vector[..., None])[..., 0]


def sym(matrix: np.ndarray) -> np.ndarray:
    return (matrix + transposed(matrix)) / 2


def like(rng, tree: Any) -> Any:
    """A gradient: any numbers in the place of the coordinates."""
    return jax.tree.map(lambda x: rng.standard_normal(np.shape(x)), tree)


def made(kind: type, *fields: Any) -> Any:
    """A distribution or a storage with NumPy's numbers in JAX's arrays."""
    is_array = lambda x: isinstance(x, np.ndarray)
    return kind(*(jnp.asarray(x) if is_array(x) else x for x in fields))


def number(kind: type, value: np.ndarray) -> positive.AbstractPositive:
    if kind is positive.Plain:
        return made(kind, value)
    if kind is positive.Log:
        return made(kind, np.log(value))
    return made(kind, value + np.log(-np.expm1(-value)))


def spectra(rng, draw: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Condition numbers, logarithms of eigenvalues (a third of them equal), bases."""
    place = rng.uniform(0, 1, (POINTS, draw.dim))
    place[::3] = np.round(place[::3])
    place[:, 0] = 0
    place[:, 1:2] = 1
    power = powers(rng, draw.condition) if draw.dim > 1 else np.zeros(POINTS)
    logs = (draw.scale - power[:, None] * place) * np.log(10)
    basis, _ = np.linalg.qr(rng.standard_normal((POINTS, draw.dim, draw.dim)))
    return 10**power, logs, basis


def stored(kind: type, logs: np.ndarray, basis: np.ndarray, near: np.ndarray) -> tuple:
    """A matrix of this spectrum and one near it, in coordinates, and their factors."""
    factor = basis * np.exp(logs / 2)[..., None, :]
    if kind is linalg.Log:
        # What moves W by this little moves exp(W) by as little in its own units.
        gap = (logs[..., :, None] - logs[..., None, :]) / 2
        ratio = np.where(gap == 0, 1, gap / np.sinh(np.where(gap == 0, 1, gap)))
        log = (basis * logs[..., None, :]) @ transposed(basis)
        log_there = sym(log + basis @ (ratio * sym(near)) @ transposed(basis))
        w, turned = np.linalg.eigh(log_there)
        factor_there = turned * np.exp(w / 2)[..., None, :]
        return made(kind, sym(log)), made(kind, log_there), factor, factor_there
    upper = np.linalg.qr(transposed(factor))[1]
    sign = np.sign(np.diagonal(upper, axis1=-2, axis2=-1))
    lower = transposed(upper) * sign[..., None, :]
    there = lower @ (np.tril(near, -1) + np.eye(logs.shape[-1]) * np.exp(near))
    if kind is linalg.Sqrt:
        return made(kind, lower), made(kind, there), lower, there
    square = lambda f: made(kind, sym(f @ transposed(f)))
    return square(lower), square(there), lower, there


def slopes(rng, logs: np.ndarray) -> np.ndarray:
    """Half are small and of any sign; half raise the precision, to a thousandfold."""
    dim = logs.shape[-1]
    noise = rng.standard_normal((POINTS, dim, dim))
    basis, _ = np.linalg.qr(noise)
    lengths = 10 ** rng.uniform(0, 1, (POINTS, 1, dim))
    large = (basis * lengths) @ transposed(basis) * 10 ** rng.uniform(0, 2)
    is_large = rng.integers(0, 2, (POINTS, 1, 1)) > 0
    slope = np.where(is_large, sym(large), sym(noise) / (8 * dim))
    return slope / np.exp(logs.max(-1))[:, None, None]


def gaussians(side: type, kind: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    condition, logs, basis = spectra(rng, draw)
    shape = logs.shape
    near = 0.3 * rng.standard_normal((*shape, draw.dim)) / np.sqrt(draw.dim)
    unit = rng.standard_normal(shape)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    deviations = 10 ** powers(rng, draw.large, -1)
    shift, away = rng.standard_normal((2, *shape))
    if side is gaussian.Moments:
        cov, cov_there, factor, _ = stored(kind, logs, basis, near)
        mean = deviations[:, None] * matvec(factor, unit)
        q, other = (
            made(side, mean, cov),
            made(side, mean + matvec(factor, shift), cov_there),
        )
    else:
        here, there, root, root_there = stored(kind, -logs - np.log(2), basis, near)
        factor = transposed(np.linalg.inv(root)) / np.sqrt(2)
        mean = deviations[:, None] * matvec(factor, unit)
        mean_there = mean + matvec(factor, shift)
        linear = deviations[:, None] * np.sqrt(2) * matvec(root, unit)
        half = matvec(transposed(root_there), mean_there)
        q, other = (
            made(side, linear, here),
            made(side, 2 * matvec(root_there, half), there),
        )
    first = rng.standard_normal(shape) / np.exp(logs.max(-1)[:, None] / 2)
    slope = gaussian.Statistics(first, slopes(rng, logs))
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, mean + matvec(factor, away))
    return inputs, Point(condition, 1 + deviations, np.ones(POINTS))


def diagonals(side: type, kind: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    condition, logs, _ = spectra(rng, draw)
    unit, shift, away, noise, spread = rng.standard_normal((5, *logs.shape))
    deviations = 10 ** powers(rng, draw.large, -1)
    var, var_there = np.exp(logs), np.exp(logs + 0.5 * spread)
    mean = deviations[:, None] * np.sqrt(var) * unit
    if side is diagonal.Moments:
        make = lambda mean, var: made(side, mean, number(kind, var))
    else:
        make = lambda mean, var: made(side, mean / var, number(kind, 1 / (2 * var)))
    q, other = make(mean, var), make(mean + np.sqrt(var) * shift, var_there)
    second = rng.uniform(-0.4, 4, logs.shape) / var
    slope = diagonal.Statistics(noise / np.sqrt(var), second)
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, mean + np.sqrt(var) * away)
    return inputs, Point(condition, 1 + deviations, np.ones(POINTS))


def gammas(side: type, kind: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    shape = 10 ** powers(rng, draw.large, -3)
    rate = 10 ** rng.uniform(-3, 3, POINTS)
    width = 1 / np.sqrt(1 + shape)
    more = np.exp(width * rng.standard_normal((3, POINTS)))
    if side is gamma.ShapeRate:
        make = lambda shape, rate: made(side, number(kind, shape), number(kind, rate))
    else:
        make = lambda shape, rate: made(
            side, number(kind, shape / rate), number(kind, shape)
        )
    q, other = make(shape, rate), make(shape * more[0], rate * more[1])
    moves = rng.uniform(-0.8, 0.8, (2, POINTS))
    slope = gamma.Statistics(moves[0] * shape, moves[1] * rate)
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, shape / rate * more[2])
    return inputs, Point(np.ones(POINTS), shape, shape)


def inverse_gammas(side: type, kind: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    shape = 10 ** powers(rng, draw.large, -3)
    mode = 10 ** rng.uniform(-3, 3, POINTS)
    scale = (shape + 1) * mode
    width = 1 / np.sqrt(1 + shape)
    more = np.exp(width * rng.standard_normal((3, POINTS)))
    if side is inverse_gamma.ShapeScale:
        make = lambda shape, scale: made(side, number(kind, shape), number(kind, scale))
    else:
        make = lambda shape, scale: made(
            side, number(kind, scale / (shape + 1)), number(kind, shape)
        )
    q, other = make(shape, scale), make(shape * more[0], scale * more[1])
    moves = rng.uniform(-0.8, 0.8, (2, POINTS))
    slope = inverse_gamma.Statistics(moves[0] * shape, moves[1] * scale)
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, mode * more[2])
    return inputs, Point(np.ones(POINTS), shape, shape)


def simplices(side: type, kind: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    """Beta and Dirichlet points; `condition` is the ratio of their parts."""
    total = 10 ** powers(rng, draw.large, -1)
    logits = rng.uniform(-0.5, 0.5, (POINTS, draw.dim + 1))
    logits *= np.log(10) * draw.condition

    def make(logits: np.ndarray, total: np.ndarray) -> tuple[Any, np.ndarray]:
        alpha = total[:, None] * np.asarray(jax.nn.softmax(logits))
        odds = logits[:, :-1] - logits[:, -1:]
        if side is beta.Concentrations:
            return made(side, *(number(kind, part) for part in alpha.T)), alpha
        if side is dirichlet.Concentrations:
            return made(side, number(kind, alpha)), alpha
        odds = odds[:, 0] if side is beta.MeanTotal else odds
        return made(side, odds, number(kind, total)), alpha

    q, alpha = make(logits, total)
    width = 1 / np.sqrt(1 + alpha)
    shift = width * rng.standard_normal(logits.shape)
    other, _ = make(logits + shift, total * np.exp(0.3 * rng.standard_normal(POINTS)))
    u = np.stack([rng.dirichlet(1 + a) for a in alpha])
    slope = rng.uniform(-0.8, 0.8, alpha.shape) * alpha
    if side in (beta.Concentrations, beta.MeanTotal):
        slope, u = beta.Statistics(*slope.T), u[:, 0]
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, u)
    return inputs, Point(np.ones(POINTS), total, alpha.min(-1))


def categoricals(side: type, rng, draw: Draw) -> tuple[Inputs, Point]:
    logits = rng.uniform(-1, 1, (POINTS, draw.dim)) * np.log(10) * draw.condition
    shift = rng.standard_normal((POINTS, 1))
    softmax = lambda x: np.asarray(jax.nn.softmax(np.pad(x, ((0, 0), (0, 1)))))
    if side is categorical.Logits:
        make = lambda logits: made(side, np.pad(logits, ((0, 0), (0, 1))) + shift)
    else:
        make = lambda logits: made(side, softmax(logits)[:, :-1])
    q, other = make(logits), make(logits + rng.standard_normal(logits.shape))
    u = rng.integers(0, draw.dim + 1, POINTS)
    slope, grad = rng.standard_normal(logits.shape), like(rng, q)
    if side is categorical.Logits:
        # What is added to all logits alike is of no consequence.
        grad = jax.tree.map(
            lambda g: np.append(g[:, 1:], -g[:, 1:].sum(-1, keepdims=True), -1), grad
        )
    inputs = Inputs(q, other, grad, slope, SIZE, u)
    return inputs, Point(np.ones(POINTS), np.ones(POINTS), softmax(logits)[:, -1])


def wisharts(
    side: type, kind: type, count: type, rng, draw: Draw
) -> tuple[Inputs, Point]:
    condition, logs, basis = spectra(rng, draw)
    dim = draw.dim
    near = 0.3 * rng.standard_normal((POINTS, dim, dim)) / np.sqrt(dim)
    excess = 10 ** powers(rng, draw.large, -2)
    more = excess * np.exp(0.5 * rng.standard_normal(POINTS))
    is_scale = side is wishart.ScaleDof
    here, there, factor, _ = stored(kind, logs if is_scale else -logs, basis, near)
    q, other = (
        made(side, here, number(count, excess)),
        made(side, there, number(count, more)),
    )
    if not is_scale:
        factor = transposed(np.linalg.inv(factor))
    bartlett = np.tril(near, -1) + np.eye(dim) * np.exp(near)
    half = factor @ bartlett * np.sqrt(excess + dim - 1)[:, None, None]
    first = rng.uniform(-0.4, 0.4, POINTS) * excess
    slope = wishart.Statistics(first, slopes(rng, logs))
    inputs = Inputs(q, other, like(rng, q), slope, SIZE, sym(half @ transposed(half)))
    return inputs, Point(condition, excess + dim, excess)


def normal_inverse_wisharts(
    side: type, part: type, kind: type, count: type, rng, draw: Draw
) -> tuple[Inputs, Point]:
    of, point = wisharts(part, kind, count, rng, draw)
    width = (POINTS, draw.dim)
    strength, away = 10 ** rng.uniform(-3, 3, POINTS), rng.standard_normal(width)
    covariance = np.linalg.inv(of.u)
    root = np.linalg.cholesky(sym(covariance)) / np.sqrt(strength)[:, None, None]
    deviations = 10 ** powers(rng, draw.large, -1)
    mean = matvec(root, deviations[:, None] * rng.standard_normal(width))
    more, moves = (
        np.exp(0.3 * rng.standard_normal(POINTS)),
        rng.uniform(-0.4, 4, POINTS),
    )
    shift = matvec(root, rng.standard_normal(width))
    q = made(side, mean, number(count, strength), of.q)
    other = made(side, mean + shift, number(count, strength * more), of.other)
    slope = normal_inverse_wishart.Statistics(
        -of.slope.log_det,
        of.slope.matrix
        + transposed(shift[:, None]) @ shift[:, None] * strength[:, None, None],
        strength[:, None] * shift,
        strength * moves,
    )
    u = normal_inverse_wishart.Draw(mean + matvec(root, away), sym(covariance))
    return Inputs(q, other, like(rng, q), slope, SIZE, u), point


class Case(NamedTuple):
    """A coordinate system: its points, its reference, and the powers these go to."""

    points: Callable[..., tuple[Inputs, Point]]
    reference: Callable[..., reference.Values]
    dims: tuple[int, ...]
    losses: dict[str, Loss]
    limits: dict[str, tuple[float, float]]  # of condition and large, by precision
    rounded: tuple[str, ...] = ()  # the maps through a matrix, or through 1 − Σp


FAR = {"float64": (10.0, 6.0), "float32": (10.0, 6.0)}
FULL = {"float64": (10.0, 6.0), "float32": (np.log10(ROUNDED), 6.0)}
# A mean of 1e6 deviations is a shape of 1e12. In float32 the Fisher matrix has lost all
# its digits at a shape of 1e6, and at α = 1e-3 the map θ = α − 1 has lost three.
IMPLICIT_TO = {"float64": (10.0, 12.0), "float32": (3.0, 4.0)}
MATRIX_TO = {"float64": (10.0, 6.0), "float32": (np.log10(ROUNDED), 4.0)}

DIMS = {linalg.Full: (1, 20), linalg.Sqrt: (2, 20), linalg.Log: (5, 20)}


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    bind = functools.partial

    def add(points: Callable, side: type, *kinds: type, **fields: Any) -> None:
        family = side.__module__.rsplit(".", 1)[-1]
        stores = "-".join(kind.__name__ for kind in kinds)
        losses = {**EVERY, **fields.pop("losses")}
        name = f"{family}-{side.__name__}-{stores}".strip("-")
        found[name] = Case(bind(points, side, *kinds), losses=losses, **fields)

    for (side, kind), losses in GAUSSIAN.items():
        rounded = ("from_natural", "from_expectation")
        if kind is linalg.Log or side is gaussian.Canonical:
            rounded += ("stepped",)
        add(
            gaussians,
            side,
            kind,
            reference=reference.of_gaussian,
            dims=DIMS[kind],
            losses=losses,
            limits=FULL if kind is linalg.Full else FAR,
            rounded=rounded,
        )
    for side, kind, dim in (
        (diagonal.Moments, positive.Plain, 20),
        (diagonal.Moments, positive.Log, 1),
        (diagonal.Canonical, positive.Plain, 1),
        (diagonal.Canonical, positive.Softplus, 20),
    ):
        add(
            diagonals,
            side,
            kind,
            reference=reference.of_diagonal,
            dims=(dim,),
            losses=DIAGONAL[side],
            limits=FAR,
        )
    for points, side, kind, family, dim in (
        (gammas, gamma.ShapeRate, positive.Log, reference.gamma_family, 1),
        (gammas, gamma.MeanShape, positive.Plain, reference.gamma_family, 1),
        (
            inverse_gammas,
            inverse_gamma.ShapeScale,
            positive.Log,
            reference.inverse_gamma_family,
            1,
        ),
        (
            inverse_gammas,
            inverse_gamma.ModeShape,
            positive.Plain,
            reference.inverse_gamma_family,
            1,
        ),
        (simplices, beta.Concentrations, positive.Plain, reference.simplex_family, 1),
        (simplices, beta.MeanTotal, positive.Log, reference.simplex_family, 1),
        (
            simplices,
            dirichlet.Concentrations,
            positive.Plain,
            reference.simplex_family,
            4,
        ),
        (simplices, dirichlet.MeanTotal, positive.Log, reference.simplex_family, 19),
    ):
        add(
            points,
            side,
            kind,
            reference=bind(reference.of_family, family),
            dims=(dim,),
            losses=IMPLICIT,
            limits=IMPLICIT_TO,
        )
    for side, dims in (
        (categorical.Logits, (1, 19)),
        (categorical.Probabilities, (4,)),
    ):
        add(
            categoricals,
            side,
            reference=bind(reference.of_family, reference.categorical_family),
            dims=dims,
            losses=CATEGORICAL[side],
            limits=FAR if side is categorical.Logits else IMPLICIT_TO,
            rounded=("from_expectation",) if side is categorical.Logits else (),
        )
    for (side, kind), losses in WISHART.items():
        dim = {linalg.Full: 2, linalg.Log: 5, linalg.Sqrt: 20}[kind]
        add(
            wisharts,
            side,
            kind,
            positive.Plain if kind is linalg.Full else positive.Log,
            reference=reference.of_wishart,
            dims=(dim,),
            losses={**WISHART_STEPS, **losses},
            limits=MATRIX_TO,
            rounded=("from_natural", "from_expectation", "natural_gradient", "stepped"),
        )
    for part, kind in ((wishart.RateDof, linalg.Sqrt), (wishart.ScaleDof, linalg.Log)):
        add(
            normal_inverse_wisharts,
            normal_inverse_wishart.MeanPrecision,
            part,
            kind,
            positive.Log,
            reference=reference.of_normal_inverse_wishart,
            dims=(5,),
            losses={**WISHART_STEPS, **WISHART[part, kind]},
            limits=MATRIX_TO,
            rounded=("from_natural", "from_expectation", "natural_gradient", "stepped"),
        )
    return found


CASES = cases()
OFTEN = (
    "gaussian-Moments-Sqrt",
    "gaussian-Canonical-Full",
    "gamma-ShapeRate-Log",
    "dirichlet-MeanTotal-Log",
    "wishart-RateDof-Sqrt-Log",
)


# The law.


def maps(q, other, grad, slope, size, u) -> dict[str, Any]:
    theta, eta = q.natural(), q.expectation()
    return {
        "natural": theta,
        "expectation": eta,
        "from_natural": q.at_natural(theta),
        "from_expectation": q.at_expectation(eta),
        "log_prob": q.log_prob(u),
        "entropy": q.entropy(),
        "kl": q.kl(other),
        "natural_gradient": natural_gradient(q, grad),
        "stepped": q.stepped(slope, size),
    }


def one_by_one(q, other, grad, slope, size, u) -> dict[str, Any]:
    """All maps at each point of a batch in turn.

    Independent batched decompositions in one program may wait for each other forever
    on a machine of two cores (jaxlib 0.10.2); single ones do not.
    """
    at_point = lambda point: maps(*point[:4], size, point[4])
    return jax.lax.map(at_point, (q, other, grad, slope, u))


jitted = {
    at_once: jax.jit(maps if at_once else one_by_one) for at_once in (True, False)
}


def cast(tree: Any, dtype: str) -> Any:
    """The same numbers in this precision, and integers as they are."""
    is_real = lambda x: np.issubdtype(np.asarray(x).dtype, np.floating)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype if is_real(x) else None), tree)


def at(tree: Any, place: int) -> Any:
    """One point of a batch."""
    return jax.tree.map(lambda x: np.asarray(x)[place] if np.ndim(x) else x, tree)


def rows(tree: Any) -> np.ndarray:
    """The leaves of a batch one after the other, a row for each point."""
    leaves = [np.asarray(x, float).reshape(POINTS, -1) for x in jax.tree.leaves(tree)]
    return np.concatenate(leaves, -1)


LOGARITHMS = {"log", "logit", "logits", "raw"}


def round_trip(q: Any) -> reference.Value:
    """The point itself; a logarithm may be zero, and is good to eps and not to less."""

    def sized(path: tuple, x: Any) -> reference.Value:
        return reference.by_largest(reference.exact(x), path[-1].name in LOGARITHMS)

    leaves = jax.tree_util.tree_leaves_with_path(q)
    return reference.flat(*(sized(*leaf) for leaf in leaves))


def errors(case: Case, inputs: Inputs, results: dict, place: int) -> dict[str, float]:
    """The largest error of each result at one point, in units in the last place."""
    eps = float(jnp.finfo(jax.tree.leaves(inputs.q)[0].dtype).eps)
    inputs = at(inputs, place)
    values = case.reference(*inputs)
    values["from_natural"] = values["from_expectation"] = round_trip(inputs.q)
    worst = {}
    for name, result in results.items():
        wanted, size = map(np.ravel, np.broadcast_arrays(*values[name]))
        error = np.abs(reference.exact(rows(result)[place]) - wanted)
        share = np.where(error == 0, 0, error / np.where(error == 0, 1, size))
        worst[name] = float(share.max()) / eps
    return worst


def check(name: str, dtype: str, draw: Draw) -> None:
    case = CASES[name]
    inputs, point = case.points(np.random.default_rng(draw.seed), draw)
    inputs = cast(inputs, dtype)
    results = jitted[not case.rounded](*inputs)
    limit = ROUNDED if dtype == "float32" else np.inf
    is_rounded_well = np.maximum(point.condition, 1 / point.small) <= 1.01 * limit
    is_held = {key: is_rounded_well | (key not in case.rounded) for key in results}
    for key, result in results.items():
        assert {str(x.dtype) for x in jax.tree.leaves(result)} == {dtype}, key
        is_finite = np.isfinite(rows(result)).all(-1)
        assert (is_finite | ~is_held[key]).all(), f"{key} is not finite"
    for place in range(1 if draw.dim > 10 else 3):
        held = {key: x for key, x in results.items() if is_held[key][place]}
        for key, error in errors(case, inputs, held, place).items():
            allowed = TIMES * draw.dim * case.losses[key](point)[place]
            assert error <= allowed, f"{key}: {error:.2g} ulp, not {allowed:.2g}"


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", variants(CASES, OFTEN))
def test_maps_are_finite_and_as_exact_as_conditioning_allows(name, dtype, examples):
    case = CASES[name]
    condition, large = case.limits[dtype]
    # Fifty digits are slow, and a short run takes smaller matrices.
    dims = case.dims if examples > 1 else [min(dim, 8) for dim in case.dims]

    @settings(
        max_examples=examples,
        # A smaller batch fails no more clearly, and fifty digits are slow.
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        deadline=None,
        database=None,
    )
    @given(
        st.builds(
            Draw,
            dim=st.sampled_from(dims),
            seed=st.integers(0, 2**32 - 1),
            condition=st.floats(0, condition),
            large=st.floats(0, large),
            scale=st.floats(-3, 3),
        )
    )
    @example(Draw(dims[-1], 0, condition, large, 0.0))
    @example(Draw(dims[0], 1, condition, 0.0, 0.0))
    def holds(draw):
        check(name, dtype, draw)

    holds()
