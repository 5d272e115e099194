"""Learning from rows that several parties keep: partitioned variational inference.

q(u) ∝ p(u) Π t(u), one site t(u) = exp(λᵀv − vᵀΛv/2) for the rows of each party, where
u = L v and L Lᵀ = k(Z, Z). A party takes its own site out of q, fits its rows against
what is left, and sends what q gained: its new site (Ashman et al. 2022). Sites that
are all at rest are those of the best q for all rows.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from natgrad import _container as container
from natgrad._warnings import warn
from natgrad.data._batch import Batch
from natgrad.data._batches import as_batch
from natgrad.errors import InputError, InputWarning
from natgrad.families.gaussian import Moments, Statistics
from natgrad.gp._encoding import Source, described
from natgrad.gp._fit import check
from natgrad.gp._projection import factorized, jittered, least_jitter
from natgrad.gp._sparse import Projection, SparseGP, marginals
from natgrad.gp._update import UNSEEN
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import eye_like, lower_apply, symmetric
from natgrad.train._profile import minimize_distributions


PIECE = 4096
"""How many rows are projected together."""

TOLERANCE = 1e-9
"""Nats per row by which the last natural step of a party may lower its loss."""

LEAST = 1e-3
"""The least precision that a site may leave in any direction; the prior has 1."""

SMALLEST = 2.0**-20
"""The smallest share of its rows that a party fits at a time."""

FAR = 1e6
"""How many standard deviations of the prior a site may move the mean."""


class PartySite(NamedTuple):
    """What the rows of one party add to the prior, in natural parameters.

    `linear` and `precision` are those of the whitened values at the inducing inputs,
    whatever the coordinates of q. `model` is the hash of the kernel, the likelihood,
    the mean function and the inducing inputs, which all parties must share.

    >>> site = gp.fit_site(model, (x, y))
    >>> site.linear.shape, site.precision.shape, site.num_rows
    ((8,), (8, 8), 50)
    """

    linear: Float[np.ndarray, "*L M"]
    precision: Float[np.ndarray, "*L M M"]
    num_rows: int
    model: str


class Combined(NamedTuple):
    """A model that knows the rows of some parties, and the sites it is made of.

    >>> combined = gp.combine(model, {"a": gp.fit_site(model, (x, y))})
    >>> list(combined.sites)
    ['a']
    """

    model: SparseGP
    sites: dict[str, PartySite]


def fit_site(model: SparseGP, data: Any, site: PartySite | None = None) -> PartySite:
    """Fits the rows of one party, given what the model knows of the others.

    `site` is the party's part of the model's posterior, as `combine` returned it. Leave
    it out if the model has not seen these rows. The hyperparameters and the inducing
    inputs stay; natgrad warns if the rows are far from the inducing inputs. The result
    holds no rows, but it is not anonymous: see the how-to guide on parties.

    Raises:
        InputError: If the rows or the site do not fit the model, or the model has parts
            that cannot be saved.

    >>> mine, yours = (x[:20], y[:20]), (x[20:], y[20:])
    >>> sites = {"mine": gp.fit_site(model, mine), "yours": gp.fit_site(model, yours)}
    >>> both = gp.combine(model, sites).model
    >>> whole = gp.update(model, (x, y))
    >>> bool(abs(both.posterior.mean - whole.posterior.mean).max() < 1e-6)
    True
    """
    batch = as_batch(data)
    check(model, batch, "data")
    mark = fingerprint(model)
    old = nothing(model, mark) if site is None else site
    check_site(model, old, "the site", mark)
    theta = Statistics(jnp.asarray(old.linear), jnp.asarray(-old.precision / 2))
    pieces = _pieces(batch)
    linear, precision = (np.asarray(part) for part in _fitted(model, theta, pieces))
    if (left := float(_unseen(model, pieces))) > UNSEEN:
        warn(
            f"the inducing inputs see little of these {len(batch.x)} rows: they leave "
            f"{left:.0%} of the prior variance there. Choose inducing inputs that "
            "cover the rows of all parties",
            InputWarning,
        )
    return PartySite(linear, precision, len(batch.x), mark)


def combine(
    model: SparseGP,
    sites: Mapping[str, PartySite],
    before: Mapping[str, PartySite] | None = None,
) -> Combined:
    """The model that knows the rows of all these sites, and of no others.

    `sites` are those of one round, by the names of their parties, and `before` those
    that the last `combine` returned. Its posterior is the prior times all sites. If
    that is not a distribution, as can happen if the likelihood is not log-concave, each
    site goes only a part of its way from the one before. Send each party the model and
    its own site of the result for the next round. A party that you leave out does not
    count.

    Raises:
        InputError: If a site is of another model or not valid, or if it alone would
            leave no posterior. The message has the name of the party.

    >>> sites = {"a": gp.fit_site(model, (x[:20], y[:20]))}
    >>> first, sites = gp.combine(model, sites)
    >>> again = {"a": gp.fit_site(first, (x[:20], y[:20]), sites["a"])}
    >>> second, sites = gp.combine(first, again, sites)
    >>> bool(abs(first.posterior.mean - second.posterior.mean).max() < 1e-6)
    True
    """
    mark = fingerprint(model)
    none = nothing(model, mark)
    for name, site in sites.items():
        check_site(model, site, name, mark)
    past = {name: (before or {}).get(name, none) for name in sites}
    for name, site in past.items():
        check_site(model, site, f"{name} before", mark)
    start = _sum(past.values(), none)
    worth = [_least_precision(start)]
    if not worth[0] >= LEAST:
        raise InputError(
            "without the parties that are left out, the sites before make no "
            "posterior; leave out `before`"
        )
    for name, site in sites.items():
        alone = _sum([start, site, _less(past[name])], none)
        worth.append(_least_precision(alone))
        if not worth[-1] >= LEAST:
            raise InputError(
                f"the site of {name} leaves no posterior: it takes more than the prior "
                "and the other sites have"
            )
        if not (distance := _distance(alone)) <= FAR:
            raise InputError(
                f"the site of {name} moves the mean by {distance:.2g} standard "
                f"deviations of the prior; at most {FAR:.0e} are allowed"
            )
    # The mean of these posteriors is one, so as many halvings as parties are enough.
    size, moved = 1.0, dict(sites)
    while _least_precision(_sum(moved.values(), none)) < min(worth) / 2:
        size /= 2
        moved = {name: _between(past[name], sites[name], size) for name in sites}
    return Combined(_with(model, _sum(moved.values(), none)), moved)


def fingerprint(model: SparseGP) -> str:
    """The hash of all that the sites of a model have in common."""
    if not isinstance(model, SparseGP):
        raise InputError(f"model is a {type(model).__name__}; it should be a SparseGP")
    source = Source({}, {})
    parts = ("kernel", "likelihood", "mean", "inducing")
    document = {
        name: described(getattr(model, name), f"model.{name}", source) for name in parts
    }
    return hashlib.sha256(container.pack(document, source.arrays)).hexdigest()


def nothing(model: SparseGP, mark: str) -> PartySite:
    """The site of no rows."""
    size, latents = len(model.inducing), model.likelihood.latents
    shape = (size,) if latents is None else (latents, size)
    dtype = model.inducing.dtype
    return PartySite(np.zeros(shape, dtype), np.zeros((*shape, size), dtype), 0, mark)


def check_site(model: SparseGP, site: Any, name: str, mark: str) -> None:
    """Raises an error unless a site can be one of this model."""
    if not isinstance(site, PartySite):
        raise InputError(
            f"{name} is a {type(site).__name__}; it should be a PartySite, which "
            "fit_site returns"
        )
    if site.model != mark:
        raise InputError(
            f"{name} is a site of another model: kernel, likelihood, mean function and "
            "inducing inputs should be the same bit for bit; save the model to a file "
            "and let all parties load it"
        )
    like = nothing(model, mark)
    for part in ("linear", "precision"):
        found, wanted = getattr(site, part), getattr(like, part)
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise InputError(
                f"the {part} of {name} is of {found.dtype} and shape "
                f"{list(found.shape)}; it should be of {wanted.dtype} and "
                f"{list(wanted.shape)}"
            )
    check_numbers(site, name)
    # Noise below the jitter of the prior cannot be told from none.
    most = max(site.num_rows, 1) / least_jitter(jnp.asarray(site.precision))
    if (size := float(np.abs(site.precision).max(initial=0))) > most:
        raise InputError(
            f"the precision of {name} is up to {size:.2g}; {site.num_rows} rows cannot "
            f"tell more than {most:.2g}"
        )


def check_numbers(site: PartySite, name: str) -> None:
    """Raises an error unless the numbers of a site are finite and symmetric."""
    linear, precision, rows, _ = site
    if not (np.isfinite(linear).all() and np.isfinite(precision).all()):
        raise InputError(f"{name} has numbers that are not finite")
    gap = np.abs(precision - np.swapaxes(precision, -1, -2)).max(initial=0)
    if gap > 1e-6 * np.abs(precision).max(initial=0):
        raise InputError(f"the precision of {name} is not symmetric")
    if type(rows) is not int or rows < 0:
        raise InputError(f"{name} has {rows!r} rows; it should be a whole number")


def _sum(sites: Any, none: PartySite) -> PartySite:
    """The site of all rows together."""
    linear, precision = none.linear, none.precision
    for site in sites:
        linear, precision = linear + site.linear, precision + site.precision
    return none._replace(linear=linear, precision=precision)


def _less(site: PartySite) -> PartySite:
    return site._replace(linear=-site.linear, precision=-site.precision)


def _between(old: PartySite, new: PartySite, size: float) -> PartySite:
    """A part of the way from one site to another."""
    part = lambda a, b: a + a.dtype.type(size) * (b - a)
    linear, precision = part(old.linear, new.linear), part(old.precision, new.precision)
    return new._replace(linear=linear, precision=precision)


def _whole(site: PartySite) -> np.ndarray:
    """The precision of prior and site together."""
    both = (site.precision + np.swapaxes(site.precision, -1, -2)) / 2
    return both + np.eye(both.shape[-1], dtype=both.dtype)


def _least_precision(site: PartySite) -> float:
    """The least precision of prior and site together, in any direction."""
    return float(np.linalg.eigvalsh(_whole(site)).min())


def _distance(site: PartySite) -> float:
    """The largest mean of prior and site together."""
    mean = np.linalg.solve(_whole(site), site.linear[..., None])
    return float(np.abs(mean).max())


def _with(model: SparseGP, site: PartySite) -> SparseGP:
    """The model whose posterior is prior times site."""
    linear, precision = jnp.asarray(site.linear), jnp.asarray(_whole(site))
    return _placed(model, Statistics(linear, -precision / 2))


@eqx.filter_jit
def _placed(model: Any, theta: Statistics) -> Any:
    """The model with a posterior that is given in whitened coordinates."""
    if not model.is_whitened:
        inverse = factorized(model.kernel(model.inducing, model.inducing)).inverse
        first = (inverse.mT @ theta.first[..., None])[..., 0]
        theta = Statistics(first, symmetric(inverse.mT @ theta.second @ inverse))
    posterior = model.posterior.at_natural(theta)
    return eqx.tree_at(lambda model: model.posterior, model, posterior)


def _pieces(batch: Batch) -> Batch:
    """Rows in pieces of one size, filled up with rows of weight 0."""
    rows = len(batch.x)
    size = min(PIECE, max(16, 2 ** (rows - 1).bit_length()))
    order = np.arange(-(-rows // size) * size).reshape(-1, size)
    weight = np.ones(rows) if batch.weight is None else np.asarray(batch.weight)
    # A real row again: a likelihood may be infinite at 0.
    places = np.minimum(order, rows - 1)
    x, y = jax.tree.map(lambda column: np.asarray(column)[places], batch[:2])
    return Batch(x, y, np.where(order < rows, weight[places], 0))


@eqx.filter_jit
def _fitted(model: Any, site: Statistics, pieces: Any) -> tuple[Array, Array]:
    """The new site of some rows: its linear part and its precision."""
    prior = model.kernel(model.inducing, model.inducing)
    inverse, jitter = factorized(prior)
    theta = model.posterior.natural()
    if not model.is_whitened:
        root = jnp.tril(jittered(prior, jitter) @ inverse.mT)
        first = (root.mT @ theta.first[..., None])[..., 0]
        theta = Statistics(first, symmetric(root.mT @ theta.second @ root))
    origin = Moments(jnp.zeros_like(theta.first), Sqrt(eye_like(theta.second)))
    start = origin.at_natural(theta)

    def without(share: Array) -> Any:
        """q without a share of the site."""
        taken = lambda whole, part: whole - share * part
        return origin.at_natural(jax.tree.map(taken, theta, site))

    # The other sites need not make a distribution if the likelihood is not log-concave.
    # A share of the rows then replaces that share of the site: the point of rest is the
    # same.
    share = lax.while_loop(
        lambda share: ~without(share).is_inside().all() & (share > SMALLEST),
        lambda share: share / 2,
        jnp.ones((), theta.first.dtype),
    )
    share = jnp.where(share < 1, share / 2, share)
    cavity = without(share)

    def fit(q: Any) -> Array:
        @jax.checkpoint
        def of_piece(piece: Any) -> Array:
            rows = _seen(model, inverse, piece)
            each = expected_log_probs(model.likelihood, *marginals(q, rows), piece.y)
            return jnp.asarray(piece.weight, each.dtype) @ each

        return lax.map(of_piece, pieces).sum()

    loss = lambda q: (q.kl(cavity).sum() - share * fit(q)).astype(float)
    least = max(TOLERANCE, 10 * float(jnp.finfo(inverse.dtype).eps))
    tolerance = least * pieces.weight.sum().astype(float)
    q = minimize_distributions(loss, start, tolerance).params
    change = jax.tree.map(jnp.subtract, q.natural(), theta)
    first, second = jax.tree.map(jnp.add, site, change)
    return first, -2 * symmetric(second)


def _seen(model: Any, inverse: Array, piece: Any) -> Projection:
    """Some rows as they are seen from the inducing inputs, whitened."""
    x = jnp.asarray(piece.x, inverse.dtype)
    features = lower_apply(inverse, model.kernel(model.inducing, x))
    rest = model.kernel.diag(x) - (features**2).sum(-2)
    return Projection(features, rest, model.mean(x), None)


@eqx.filter_jit
def _unseen(model: Any, pieces: Any) -> Array:
    """The part of the prior variance at some rows that the inducing inputs leave."""
    inverse = factorized(model.kernel(model.inducing, model.inducing)).inverse

    def of_piece(piece: Any) -> Array:
        rest = jnp.maximum(_seen(model, inverse, piece).rest, 0)
        prior = model.kernel.diag(jnp.asarray(piece.x, inverse.dtype))
        weight = jnp.asarray(piece.weight, rest.dtype)
        return jnp.stack([(rest @ weight).sum(), (prior @ weight).sum()])

    left, whole = lax.map(of_piece, pieces).sum(0)
    return left / whole
