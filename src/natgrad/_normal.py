"""Logarithms of normal probabilities, exact in both tails, with derivatives that hold.

All of it rests on the Mills ratio m(a) = Φ(−a)/φ(a), which neither overflows nor
vanishes: one polynomial and one division give it for every a ≥ 0, to a few units in the
last place.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


Numbers = Float[Array, "..."]

LOG_ROOT_TAU = math.log(2 * math.pi) / 2
INVERSE_ROOT_TAU = 1 / math.sqrt(2 * math.pi)

# (a + 5) m(a) as a polynomial in u = (a − 5)/(a + 5), highest power first: its
# Chebyshev series, cut where the terms fall below the spacing of 64-bit numbers.
MILLS = (
    3.1256054471604125e-10,
    -3.336850487923168e-10,
    -3.84418406496492e-09,
    3.1868668438665133e-09,
    2.8172011975443032e-08,
    -1.7398124277679196e-08,
    -1.7641239689771904e-07,
    9.668428357216325e-08,
    1.0936633523593942e-06,
    -8.360675980181407e-07,
    -6.945033138491628e-06,
    9.974780085542733e-06,
    4.181458586632463e-05,
    -0.00012473565818721082,
    -0.00014883305232339802,
    0.0013658591609424361,
    -0.001999961974984366,
    -0.007503282820678759,
    0.0521255024122788,
    -0.17325473408715042,
    0.4136447157326838,
    -0.7859110755465453,
    1.2415470615738664,
    -1.66786659518896,
    1.9280810471531578,
)


def mills(a: Numbers) -> Numbers:
    """Φ(−a)/φ(a), for a ≥ 0."""
    inverse = 1 / (a + 5)
    u = 1 - 10 * inverse
    value = jnp.full_like(u, MILLS[0])
    for coefficient in MILLS[1:]:
        value = value * u + coefficient
    return value * inverse


def normal_density(x: Numbers) -> Numbers:
    """φ(x)"""
    return INVERSE_ROOT_TAU * jnp.exp(-(x**2) / 2)


def ndtr(x: Numbers) -> Numbers:
    """Φ(x), to full relative precision in the lower tail."""
    tail = normal_density(x) * mills(_distance(x))
    return jnp.where(x > 0, 1 - tail, tail)


def hazard(x: Numbers) -> Numbers:
    """φ(x)/Φ(x), the derivative of log Φ(x)."""
    ratio = mills(_distance(x))
    density = normal_density(x)
    return jnp.where(x > 0, density, 1.0) / jnp.where(x > 0, 1 - density * ratio, ratio)


def _distance(x: Numbers) -> Numbers:
    """|x|, whose derivative at zero is that of the side zero is counted to."""
    return jnp.where(x > 0, x, -x)


@jax.custom_jvp
def log_ndtr(x: Numbers) -> Numbers:
    """log Φ(x), nowhere clipped."""
    ratio = mills(_distance(x))
    tail = normal_density(x) * ratio
    inside = jnp.where(x > 0, 1 - tail, INVERSE_ROOT_TAU * ratio)
    # What 1 − tail is rounded by is made good: all of a small tail may be lost in it.
    upper = ((1 - inside) - tail) / inside
    return jnp.log(inside) + jnp.where(x > 0, upper, -(x**2) / 2)


@log_ndtr.defjvp
def _log_ndtr_jvp(
    primals: tuple[Numbers], tangents: tuple[Numbers]
) -> tuple[Numbers, Numbers]:
    (x,), (dx,) = primals, tangents
    return log_ndtr(x), hazard(x) * dx


@jax.custom_jvp
def log_ndtr_difference(low: Numbers, high: Numbers) -> Numbers:
    """log(Φ(high) − Φ(low)) for low < high, without cancellation in either tail."""
    difference, _, _ = _scaled_difference(low, high)
    return jnp.log(difference) - _nearer(low, high) ** 2 / 2


@log_ndtr_difference.defjvp
def _log_ndtr_difference_jvp(
    primals: tuple[Numbers, Numbers], tangents: tuple[Numbers, Numbers]
) -> tuple[Numbers, Numbers]:
    (low, high), (dlow, dhigh) = primals, tangents
    difference, at_low, at_high = _scaled_difference(low, high)
    slope = at_high / difference * dhigh - at_low / difference * dlow
    return log_ndtr_difference(low, high), slope


def _nearer(low: Numbers, high: Numbers) -> Numbers:
    """The distance from zero of the interval."""
    ends = jnp.minimum(jnp.abs(low), jnp.abs(high))
    return jnp.where((low < 0) & (high > 0), 0.0, ends)


def _scaled_difference(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Φ(high) − Φ(low), φ(low) and φ(high), all over exp(−nearer²/2).

    The derivative is taken as if the scale were constant: it is right for their ratios.
    """
    nearer = lax.stop_gradient(_nearer(low, high))

    def density(x: Numbers) -> Numbers:
        # nearer² − x², which as it stands would lose its digits far out.
        return INVERSE_ROOT_TAU * jnp.exp((nearer - x) * (nearer + x) / 2)

    at_low, at_high = density(low), density(high)
    # As in `_distance`, but an interval that starts at zero is on its upper side.
    below = at_low * mills(jnp.where(low < 0, -low, low))
    above = at_high * mills(_distance(high))
    one_sided = jnp.where(high > 0, below - above, above - below)
    both = (low < 0) & (high > 0)
    return jnp.where(both, 1 - below - above, one_sided), at_low, at_high
