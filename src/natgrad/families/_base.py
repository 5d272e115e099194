"""What a distribution of an exponential family is, and what follows from it alone."""

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeGuard, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray


T = TypeVar("T")
# The runtime checker of the tests cannot read a bound that is defined below.
if TYPE_CHECKING:
    Q = TypeVar("Q", bound="AbstractDistribution[Any]")
    C = TypeVar("C", bound="type[AbstractDistribution[Any]]")
else:
    Q, C = TypeVar("Q"), TypeVar("C")
Scalar = Float[Array, "*batch"]


def inner(theta: T, statistics: T, like: Array) -> Array:
    """⟨θ, T⟩, one number for each entry of `like` and for each leading axis of T."""

    def product(t: Array, s: Array) -> Array:
        axes = tuple(range(like.ndim - t.ndim, 0))
        return jnp.multiply(*jnp.broadcast_arrays(t, s)).sum(axes)

    products = jax.tree.leaves(jax.tree.map(product, theta, statistics))
    return functools.reduce(jnp.add, products)


def all_finite(tree: Any, also: Bool[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether all numbers of each member of a batch are finite, and `also` holds."""
    for leaf in jax.tree.leaves(tree):
        also &= jnp.isfinite(leaf).all(tuple(range(also.ndim, leaf.ndim)))
    return also


def family(statistics: type[Any] | None = None) -> Callable[[C], C]:
    """Marks the class that all coordinate systems of a family share."""

    def mark(cls: C) -> C:
        cls.Family = cls
        if statistics is not None:
            cls.Statistics = statistics
        return cls

    return mark


class AbstractDistribution(eqx.Module, Generic[T]):
    """A member of an exponential family, log q(u) = ⟨θ, T(u)⟩ − A(θ).

    The class is the coordinate system and the fields are the coordinates ξ, so a
    gradient with respect to a distribution is an object of the same class. The natural
    parameters θ and the expectation parameters η = E[T(u)] are trees shaped like T(u).
    Leading axes are batches: ten distributions are one object. The base measure is 1,
    as it is for every family here. A family with another one overrides `log_prob` and
    `entropy`, the only two methods that depend on it.

    The two `at_` maps are methods, not constructors, because they may use the current
    point: to keep fixed parameters, to start a root search, or to lose no digits near
    it.
    """

    Family: ClassVar[type[Any]]
    """What all coordinate systems of a family share; subclass it to write another."""

    Statistics: ClassVar[type[Any]]
    """The class of T(u), θ and η, unless these are one array."""

    @abc.abstractmethod
    def natural(self) -> T:
        """θ(ξ)"""

    @abc.abstractmethod
    def expectation(self) -> T:
        """η(ξ)"""

    @abc.abstractmethod
    def at_natural(self: Q, theta: T) -> Q:
        """ξ(θ), in the coordinates of `self`."""

    @abc.abstractmethod
    def at_expectation(self: Q, eta: T) -> Q:
        """ξ(η), in the coordinates of `self`."""

    @abc.abstractmethod
    def log_normalizer(self, theta: T) -> Scalar:
        """A(θ), finite exactly where θ names a member of the family."""

    @abc.abstractmethod
    def statistics(self, u: Any) -> T:
        """T(u), where u is an array, or a tree of them as `sample` returns it."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Any:
        """Draws of u, `shape` of them for each distribution of the batch."""

    # What follows. A family overrides it where it knows something better.

    def log_prob(self, u: Any) -> Float[Array, "..."]:
        """log q(u), for u of any leading shape that broadcasts with the batch."""
        theta = self.natural()
        log_normalizer = self.log_normalizer(theta)
        product = inner(theta, self.statistics(u), log_normalizer)
        return jnp.subtract(*jnp.broadcast_arrays(product, log_normalizer))

    def entropy(self) -> Scalar:
        """−E[log q(u)] = A(θ) − ⟨θ, η⟩"""
        theta = self.natural()
        log_normalizer = self.log_normalizer(theta)
        return log_normalizer - inner(theta, self.expectation(), log_normalizer)

    def kl(self, other: Any) -> Scalar:
        """KL(self ‖ other), the Bregman divergence of A from self to other."""
        here, there = self.natural(), other.natural()
        log_normalizer = self.log_normalizer(here)
        change = jax.tree.map(jnp.subtract, there, here)
        linear = inner(change, self.expectation(), log_normalizer)
        return other.log_normalizer(there) - log_normalizer - linear

    def is_inside(self) -> Bool[Array, "*batch"]:
        """Whether the coordinates are finite and name a member of the family."""
        theta = self.natural()
        log_normalizer = self.log_normalizer(theta)
        return all_finite((self, theta), jnp.isfinite(log_normalizer))

    # The natural gradient, equation (10): ∇̃_ξ L = (∂ξ/∂θ) (∂L/∂η)ᵀ. The Fisher matrix
    # is never formed: a gradient pulled back to η already is the natural gradient in θ.

    def slope(self, grad: Any) -> T:
        """∂L/∂η, from the gradient ∂L/∂ξ in these coordinates: one vjp."""
        _, pull_back = jax.vjp(self.at_expectation, self.expectation())
        return pull_back(grad)[0]

    def direction(self: Q, slope: T) -> Q:
        """The natural gradient in these coordinates, from ∂L/∂η: one jvp."""
        return jax.jvp(self.at_natural, (self.natural(),), (slope,))[1]

    def natural_gradient(self: Q, grad: Any) -> Q:
        """The natural gradient, from the gradient, both in these coordinates."""
        return self.direction(self.slope(grad))

    def path(self: Q, grad: Any) -> Callable[[Float[Array, ""]], Q]:
        """The distribution at θ − size · ∂L/∂η, as a function of the size.

        The gradient is ∂L/∂ξ, in these coordinates, or ∂L/∂η, shaped like T(u).
        """
        slope = self.slope(grad) if is_distribution(grad) else grad
        return lambda size: self.stepped(slope, size)

    def trials(self, grad: Any) -> Callable[[Float[Array, ""]], "Trial"]:
        """The same path, with the divergences between its two ends."""
        path = self.path(grad)

        def trial(size: Float[Array, ""]) -> Trial:
            there = path(size)
            return Trial(there, there.kl(self), self.kl(there))

        return trial

    def stepped(self: Q, slope: T, size: Float[Array, ""]) -> Q:
        """The distribution at θ − size · slope: the same one in all coordinates."""
        move = lambda theta, slope: theta - size * slope
        return self.at_natural(jax.tree.map(move, self.natural(), slope))


class Trial(NamedTuple):
    """A distribution q′ that a step from q leads to, KL(q′ ‖ q) and KL(q ‖ q′)."""

    there: Any
    forward: Scalar
    backward: Scalar


def is_distribution(node: object) -> TypeGuard[AbstractDistribution[Any]]:
    """Whether a node of a tree is a distribution."""
    return isinstance(node, AbstractDistribution)


def is_live(node: object) -> TypeGuard[AbstractDistribution[Any]]:
    """Whether a node is a distribution that Optax has not masked."""
    return is_distribution(node) and bool(jax.tree.leaves(node))
