"""Gaussian processes that keep their rows: a row is predicted from those that matter.

Hyperparameters climb the log density of left-out rows. A prediction is then conditioned
on all rows or, if these are many, on inducing inputs for what is smooth and the nearest
rows for what they leave. Sites make every likelihood Gaussian.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from natgrad._padding import fill_up
from natgrad.data._batches import Batch, Columns, as_array
from natgrad.errors import InputError, InputWarning, warn
from natgrad.families.gaussian import Moments as GaussianMoments
from natgrad.gp import _calibration as calibration
from natgrad.gp._few_rows import few
from natgrad.gp._given import (
    CHUNK,
    LEAF,
    GivenAll,
    GivenNear,
    Neighborhood,
    given_all,
    given_near,
    jit_once,
    solved_widened,
)
from natgrad.gp._left_out import (
    LEAST,
    STEPS,
    Hyperparameters,
    Table,
    local_steps,
    natural_target,
    own_sites,
    train,
)
from natgrad.gp._nearest import Nearest, cut_into_leaves, metric
from natgrad.gp._prediction import checked_levels
from natgrad.gp._quantiles import Rows, cdf, quantiles, rows_of
from natgrad.gp._sites import Sites
from natgrad.gp._sparse import SparseGP
from natgrad.gp._warps import Kind, Warp, candidates, warp_of
from natgrad.gp.kernels import AbstractKernel, Linear, Matern12, Matern52, Separate
from natgrad.gp.likelihoods import AbstractLikelihood
from natgrad.gp.likelihoods._base import require
from natgrad.gp.likelihoods._calibrated import Calibrated
from natgrad.gp.likelihoods._rows import check
from natgrad.gp.means import Constant
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import cholesky


__all__ = ["fit", "condition", "RowGP"]

ALL = 4000
"""A table of up to so many rows is conditioned on all of them."""

NEIGHBORS, INDUCING = 64, 256
"""Above that: on how many of the nearest rows, and on how many inducing inputs."""

FEATURES = 2**25
"""Features of rows that are kept at most; more rows have fewer inducing inputs."""

FEWEST_GROUPS = 3
"""The fewest groups of which some can be left out."""

HELD, MOST_HELD = 0.1, 1000
"""The share of the rows, and the most, that train no hyperparameter, for the score."""

NATURAL_STEPS, TOLERANCE = 60, 1e-6
"""Natural steps on the sites of all rows, at most; they end when one gains too few nats
a row."""

SWEEPS = 3
"""How often the sites of many rows are renewed."""

SHRINKAGE = 3.0
"""How strongly the log lengthscales of a kernel are drawn to their mean, in rows, where
targets are real."""

TRIAL, GAIN = 30, 0.05
"""Steps of training by which warps are compared, and the nats a row that one must gain.
"""


def require_double() -> None:
    """Raises an InputError unless JAX computes in 64 bits."""
    if jax.dtypes.canonicalize_dtype(float) != np.float64:
        raise InputError(
            "natgrad.gp.rows needs 64 bits, and JAX is set to 32; call "
            'jax.config.update("jax_enable_x64", True) first'
        )


class Units(NamedTuple):
    """What inputs are centred at and divided by, the warp of the targets, and the
    weight that counts as one row."""

    center: np.ndarray
    scale: np.ndarray
    warp: Warp = Warp()
    weight: float = 1.0

    def inputs(self, x: object) -> np.ndarray:
        """Inputs in the model's units."""
        require_double()
        x = np.asarray(x, float)
        if x.ndim != 2 or x.shape[1] != len(self.center):
            raise InputError(
                f"x has shape {list(x.shape)}; it should be rows of "
                f"{len(self.center)} inputs"
            )
        return np.ascontiguousarray((x - self.center) / self.scale)

    def columns(
        self, columns: Columns | None, likelihood: AbstractLikelihood
    ) -> dict[str, np.ndarray]:
        """Columns with the targets; those of a location are in the targets' units."""
        unit = self.warp.unit * self.warp.scale if likelihood.is_location else 1.0
        return {name: np.asarray(a) / unit for name, a in (columns or {}).items()}

    def table(self, table: Table, likelihood: AbstractLikelihood) -> Table:
        """Rows in the model's units.

        Raises:
            InputError: If the likelihood or the warp does not allow a target.
        """
        check(likelihood, table.y, table.columns)
        y = self.warp.to(table.y)
        require(
            np.isfinite(y), table.y, f"the warp {self.warp.kind} needs larger targets"
        )
        columns = self.columns(table.columns, likelihood)
        return Table(self.inputs(table.x), y, table.weight / self.weight, columns)


@dataclasses.dataclass(frozen=True, eq=False)
class RowGP:
    """A Gaussian process given rows, which it keeps; `fit` and `condition` make one.

    `score` is the mean log density of rows that trained no hyperparameter, each left
    out; it is NaN with fewer than ten rows.

    >>> fitted = gp.rows.fit(x, y, steps=50)
    >>> print(fitted.quantiles([[0.25]], [0.05, 0.95]).shape)
    (1, 2)
    """

    hyper: Hyperparameters
    table: Table
    sites: Sites
    units: Units
    groups: np.ndarray | None
    latents: tuple[GivenAll | GivenNear, ...]
    resolution: float = 0.0
    errors: np.ndarray | None = None
    error_scale: float = 1.0
    score: float = math.nan

    def latent(self, x: object) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of each latent function at each row of x."""
        x = self.units.inputs(x)
        return self._moments(x, [each.moments(x) for each in self.latents])

    def left_out(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same at some of its own rows, each without its site or its group."""
        each = [latent.left_out(rows, self.groups) for latent in self.latents]
        return self._moments(self.table.x[rows], each)

    def all_left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """The same at all of them, fast: of many rows, from rows of the same leaf."""
        each = [latent.all_left_out(self.groups) for latent in self.latents]
        return self._moments(self.table.x, each)

    def _moments(self, x: np.ndarray, each: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, var = (self._stacked(part) for part in zip(*each, strict=True))
        return mean + prior_mean(self.hyper, x), np.maximum(var, 0)

    def _stacked(self, each: Sequence[np.ndarray]) -> np.ndarray:
        """Rows of each latent function, [*L, N]."""
        return np.stack(each) if self.sites.linear.ndim > 1 else each[0]

    # Targets, in the user's units

    def _rows(self, x: object, columns: Columns | None) -> Rows:
        columns = self.units.columns(columns, self.hyper.likelihood)
        if self.errors is not None:
            near = self._index().query(self.units.inputs(x), calibration.NEAR)
            columns["roughness"] = calibration.roughness(self.errors, near)
        mean, var = (np.moveaxis(each, -1, 0) for each in self.latent(x))
        return rows_of(self.hyper.likelihood, mean, var, columns)

    def _index(self) -> Nearest:
        latent = self.latents[0]
        if isinstance(latent, GivenNear):
            return latent.index
        x = self.table.x
        return Nearest(x, metric(self.hyper.kernel, x.shape[1]))

    def predict(
        self, x: object, columns: Columns | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of the target at each row of x."""
        warp = self.units.warp
        if warp.kind == "identity":
            mean, var = self._rows(x, columns).jax("moments")
            return warp.back(mean), var * (warp.unit * warp.scale) ** 2
        found = self.quantiles(x, calibration.LEVELS, columns)
        found = calibration.clipped(found, warp.back(self.table.y))
        return found.mean(1), found.var(1)

    def quantiles(
        self, x: object, levels: object, columns: Columns | None = None
    ) -> np.ndarray:
        """The quantiles of the target at the given levels, [N, levels]."""
        rows = self._rows(x, columns)
        return self.units.warp.back(quantiles(rows, checked_levels(levels)))

    def cdf(self, x: object, y: object, columns: Columns | None = None) -> np.ndarray:
        """The probability that the target is at most y, at each row."""
        return cdf(self._rows(x, columns), self.units.warp.to(y))

    def probabilities(self, x: object, columns: Columns | None = None) -> np.ndarray:
        """The probability of each class at each row of x, [N, K]."""
        return self._rows(x, columns).jax("probabilities")

    def log_density(
        self, x: object, y: object, columns: Columns | None = None
    ) -> np.ndarray:
        """The log predictive density of each target.

        A target that was rounded has the probability of all that rounds to it, divided
        by the width of that.
        """
        return self._log_density(self._rows(x, columns), np.asarray(y, float))

    def _log_density(self, rows: Rows, y: np.ndarray) -> np.ndarray:
        warp = self.units.warp
        density = rows.jax("log_predictive", warp.to(y)) + warp.log_slope(y)
        if not self.resolution:
            return density
        ends = (warp.to(y + side * self.resolution / 2) for side in (-1, 1))
        low, high = (cdf(rows, end) for end in ends)
        # A difference of probabilities has digits where it is not small.
        mass, is_large = high - low, high - low > 1e-6
        log_mass = np.log(np.where(is_large, mass, 1) / self.resolution)
        return np.where(is_large, log_mass, density)

    # Other values

    def append(
        self,
        x: object,
        y: object,
        weight: object = None,
        columns: Columns | None = None,
    ) -> "RowGP":
        """The same with more rows; hyperparameters, calibration and score stay.

        Raises:
            InputError: If the rows cannot be used, or the model has groups.

        >>> first = gp.rows.fit(x[:40], y[:40], steps=50)
        >>> len(first.append(x[40:], y[40:]).table.x)
        50
        """
        if self.groups is not None:
            raise InputError("a model with groups cannot be appended to; fit all rows")
        more, _ = checked(x, y, weight, columns)
        more = self.units.table(more, self.hyper.likelihood)
        if more.columns.keys() != self.table.columns.keys():
            raise InputError(
                f"the new rows have the columns {list(more.columns)}; they should be "
                f"those of the others, {list(self.table.columns)}"
            )
        join = lambda a, b: np.concatenate([a, b], -1)
        sites = jax.tree.map(join, self.sites, initial_sites(self.hyper, more))
        table = jax.tree.map(lambda a, b: np.concatenate([a, b]), self.table, more)
        table, rows = distinct(table, None, 0)
        sites = jax.tree.map(lambda each: each[..., rows], sites)
        latent = self.latents[0]
        options: dict[str, Any] = {"all_rows": max(ALL, len(self.table.x))}
        if isinstance(latent, GivenNear):
            options = {"all_rows": 0, "inducing": latent.inputs}
            options["neighbors"] = latent.neighbors
        given = condition(self.hyper, table, sites, units=self.units, **options)
        same = ("resolution", "error_scale", "score")
        kept = {name: getattr(self, name) for name in same}
        given = dataclasses.replace(given, **kept)
        return given if self.errors is None else with_errors(given)

    def compact(self) -> tuple[SparseGP, float]:
        """The inducing inputs alone, in the units of this model, and what that costs.

        What inducing inputs do not explain of a row counts as its noise. The sparse
        model has no rows, predicts in microseconds, and can be saved and exported. It
        is calibrated anew; the cost is the log density that left-out rows lose, in nats
        a row.

        Raises:
            InputError: If there are no inducing inputs, or several latent functions.

        >>> fitted = gp.rows.fit(x, y, all_rows=0, num_inducing=10, steps=50)
        >>> model, cost = fitted.compact()
        >>> model.inducing.shape
        (10, 1)
        """
        (latent, *others), hyper = self.latents, self.hyper
        is_near = isinstance(latent, GivenNear)
        if not is_near or others or not len(latent.inputs):
            raise InputError(
                "compact() needs one latent function with inducing inputs; fit with "
                "all_rows=0 and num_inducing above 0"
            )
        table = self.table
        kept = hyper.kernel, table.x, self.sites, latent.inputs
        found, (mean, var) = solved_widened(*kept)
        mean = mean + prior_mean(hyper, table.x)
        likelihood = hyper.likelihood
        if isinstance(likelihood, Calibrated):
            rows = table.y, np.zeros(len(mean)), table.weight
            residuals = calibration.Residuals(mean, var, *rows)
            args = residuals, self.units.warp, self.resolution
            likelihood = calibration.calibrate(likelihood, *args, is_local=False)
        before = self._rows_at(*self.all_left_out(), np.arange(len(mean)))
        after = rows_of(likelihood, mean, var, table.columns)
        y = self.units.warp.back(table.y)
        loss = self._log_density(before, y) - self._log_density(after, y)
        cost = float(table.weight @ loss / table.weight.sum())
        q = GaussianMoments(found.mean, Sqrt(cholesky(found.root.T @ found.root)))
        return SparseGP(hyper.kernel, likelihood, latent.inputs, q, hyper.mean), cost

    def _rows_at(self, mean: np.ndarray, var: np.ndarray, rows: np.ndarray) -> Rows:
        """The targets of some of its own rows, at these moments of f."""
        columns = {name: each[rows] for name, each in self.table.columns.items()}
        if self.errors is not None:
            near = self._index().others(rows, calibration.NEAR, self.groups)
            columns["roughness"] = calibration.roughness(self.errors, *near)
        mean, var = (np.moveaxis(each, -1, 0) for each in (mean, var))
        return rows_of(self.hyper.likelihood, mean, var, columns)

    def sample_latent(self, key: PRNGKeyArray, x: object, num: int = 1) -> np.ndarray:
        """Draws of f at all rows of x jointly, [num, N] or [num, L, N].

        Raises:
            InputError: If predictions are from the nearest rows, which have no joint
                distribution.
        """
        x, draws = self.units.inputs(x), []
        shape = (len(self.latents), num, len(x))
        noise = np.asarray(jax.random.normal(key, shape))
        for latent, own in zip(self.latents, noise, strict=True):
            mean, cov = latent.joint(x)
            values, vectors = np.linalg.eigh(cov)
            root = vectors * np.sqrt(np.maximum(values, 0))
            draws.append(mean + own @ root.T)
        found = np.stack(draws, 1) if self.sites.linear.ndim > 1 else draws[0]
        return found + prior_mean(self.hyper, x)


# Conditioning


def condition(
    hyper: Hyperparameters,
    data: Sequence[Any],
    sites: Sites | None = None,
    *,
    groups: np.ndarray | None = None,
    inducing: np.ndarray | None = None,
    neighbors: int = NEIGHBORS,
    all_rows: int = ALL,
    units: Units | None = None,
) -> RowGP:
    """A Gaussian process given rows (x, y), (x, y, weight) or with columns.

    Up to `all_rows` rows are all conditioned on. Of more, a prediction sees the
    `neighbors` nearest, and all others through the `inducing` inputs. If the likelihood
    is not Gaussian in f, natural steps on the sites begin at `sites`.

    >>> hyper = gp.rows.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> given = gp.rows.condition(hyper, (x, y))
    >>> given.latent([[0.25]])[0].shape
    (1,)
    """
    table, groups = checked(*data, groups=groups)
    check(hyper.likelihood, table.y, table.columns)
    width = table.x.shape[1]
    units = units or Units(np.zeros(width), np.ones(width))
    own = all_own_sites(hyper, table)
    if own is not None:
        sites = own
    elif sites is None:
        sites = initial_sites(hyper, table)
    given = RowGP(hyper, table, sites, units, groups, ())
    if len(table.x) <= all_rows:
        return with_sites(given, sites) if own is not None else settled(given)
    scale = metric(hyper.kernel, width)
    index = Nearest(table.x, scale)
    inputs = np.zeros((0, width)) if inducing is None else np.asarray(inducing)
    leaves = cut_into_leaves(index.x, LEAF)
    at = Neighborhood(index, min(neighbors, len(table.x)), inputs, leaves)
    return with_sites(given, sites, at) if own is not None else swept(given, at)


def with_sites(given: RowGP, sites: Sites, at: Neighborhood | None = None) -> RowGP:
    """The same rows with other sites."""
    kernel, x = given.hyper.kernel, given.table.x
    pairs = zip(*map(np.atleast_2d, sites), strict=True)
    each = [Sites(*pair) for pair in pairs]
    is_separate = isinstance(kernel, Separate)
    kernels = kernel.kernels if is_separate else (kernel,) * len(each)
    latents = tuple(
        given_all(own, x, one) if at is None else given_near(own, x, one, at)
        for own, one in zip(kernels, each, strict=True)
    )
    return dataclasses.replace(given, sites=sites, latents=latents)


def settled(given: RowGP, steps: int = NATURAL_STEPS) -> RowGP:
    """The sites at which the ELBO of all rows is highest, by natural steps.

    A step that lowers it is tried again at a quarter of its length.
    """
    sites, best, value, rate = given.sites, given, -math.inf, 1.0
    target = sites
    for _ in range(steps + 1):
        tried = with_sites(given, sites)
        reached, aim = _at_sites(tried)
        if reached >= value:
            gain, best, value, target = reached - value, tried, reached, aim
            rate = min(1.0, 4 * rate)
            if gain < TOLERANCE * len(given.table.x):
                break
        else:
            rate /= 4
        move = lambda a, b, rate=rate: a + rate * (b - a)
        sites = jax.tree.map(move, best.sites, target)
    return best


def elbo(given: RowGP) -> float:
    """The evidence lower bound (ELBO) in nats, of a model that is given all rows."""
    return _at_sites(given)[0]


def _at_sites(given: RowGP) -> tuple[float, Sites]:
    """The ELBO, and where a natural step of size 1 leads."""
    each = [latent.marginals() for latent in given.latents]  # pyright: ignore
    *moments, kl = zip(*each, strict=True)
    mean, var = (given._stacked(part) for part in moments)
    prior = np.broadcast_to(prior_mean(given.hyper, given.table.x), mean.shape)
    likelihood = given.hyper.likelihood
    target = lambda rows, *others: _natural_target(likelihood, *others, rows)
    fit, found = by_chunk(target, given.table, mean + prior, var, prior)
    return float(fit.sum() - sum(kl)), found


def swept(given: RowGP, at: Neighborhood) -> RowGP:
    """Sites renewed leaf by leaf, with inducing variables solved in between."""
    likelihood, sites = given.hyper.likelihood, given.sites
    prior = prior_mean(given.hyper, given.table.x)
    prior = np.broadcast_to(prior, sites.linear.shape)
    alone = dataclasses.replace(given, groups=None)  # a site is given its group
    renew = lambda rows, *others: _local_steps(likelihood, *others, rows)
    for _ in range(SWEEPS):
        mean, var = with_sites(alone, sites, at).all_left_out()
        sites = by_chunk(renew, given.table, mean - prior, var, prior, sites)
    return with_sites(given, sites, at)


# Functions of rows, in chunks


_natural_target = jit_once(natural_target)


@jit_once
def _local_steps(
    likelihood: AbstractLikelihood,
    mean: Array,
    var: Array,
    prior: Array,
    sites: Sites,
    rows: Batch,
) -> Sites:
    return local_steps(likelihood, (mean, var), prior, sites, rows)


@jit_once
def _initial_sites(hyper: Hyperparameters, rows: Batch) -> Sites:
    latents, size = hyper.likelihood.latents, len(rows.x)
    shape = (size,) if latents is None else (latents, size)
    x = jnp.asarray(rows.x)
    both = hyper.mean(x), hyper.kernel.diag(x)
    prior, var = (jnp.broadcast_to(each, shape) for each in both)
    start = Sites(jnp.zeros_like(var), jnp.full_like(var, LEAST))
    others = jnp.zeros_like(var), var
    return local_steps(hyper.likelihood, others, prior, start, rows, turns=8)


@jit_once
def _own_sites(hyper: Hyperparameters, rows: Batch) -> Sites | None:
    prior = hyper.mean(jnp.asarray(rows.x))
    own = own_sites(hyper.likelihood, rows)
    return own and Sites(own.linear - own.precision * prior, own.precision)


@jit_once
def _prior_mean(hyper: Hyperparameters, rows: Batch) -> Array:
    return hyper.mean(jnp.asarray(rows.x))


def initial_sites(hyper: Hyperparameters, table: Table) -> Sites:
    """Sites of rows that know nothing of each other."""
    return by_chunk(lambda rows: _initial_sites(hyper, rows), table)


def all_own_sites(hyper: Hyperparameters, table: Table) -> Sites | None:
    """The sites of rows whose likelihood is Gaussian in f, else None."""
    return by_chunk(lambda rows: _own_sites(hyper, rows), table)


def prior_mean(hyper: Hyperparameters, x: np.ndarray) -> np.ndarray:
    """The prior mean of f at some rows, [*L, N]."""
    rows = Table(x, x[:, 0], x[:, 0], {})
    return by_chunk(lambda rows: _prior_mean(hyper, rows), rows)


def by_chunk(function: Callable[..., Any], table: Table, *others: Any) -> Any:
    """A function of rows, and of arrays whose last axis they are, chunk by chunk."""
    size, parts = len(table.x), []
    for start in range(0, size, CHUNK):
        rows = Batch(*fill_up(table, CHUNK, start))
        pad = lambda a, start=start: fill_up(a.T, CHUNK, start).T
        found = function(rows, *jax.tree.map(pad, others))
        cut = lambda a, most=min(CHUNK, size - start): np.asarray(a)[..., :most]
        parts.append(jax.tree.map(cut, found))
    return jax.tree.map(lambda *parts: np.concatenate(parts, -1), *parts)


# Fitting


def fit(
    x: object,
    y: object,
    likelihood: AbstractLikelihood | None = None,
    *,
    weight: object = None,
    groups: object = None,
    columns: Columns | None = None,
    kernel: AbstractKernel | None = None,
    warps: Sequence[Kind] | None = None,
    neighbors: int = NEIGHBORS,
    num_inducing: int = INDUCING,
    all_rows: int = ALL,
    steps: int = STEPS,
    seed: int = 0,
) -> RowGP:
    """Fits a Gaussian process to rows, which it keeps.

    Without a `likelihood` targets are real: natgrad chooses among `warps` of them, and
    calibrates a Student-t distribution on left-out rows. If new rows will be of new
    groups, such as the next weeks of an hourly table, give the `groups` of the rows:
    these are then left out together. Rows with equal inputs and targets count as one of
    their total weight.

    Raises:
        InputError: If the rows cannot be used, or JAX computes in 32 bits.
        FitError: If a kernel matrix is not positive definite.

    >>> fitted = gp.rows.fit(x, y)
    >>> mean, variance = fitted.predict([[0.25]])
    >>> print(mean.round(1))
    [0.9]
    """
    if likelihood is None and columns:
        raise InputError(
            "columns need a likelihood that takes them; name it, such as "
            "natgrad.gp.likelihoods.Poisson()"
        )
    table, groups = checked(x, y, weight, columns, groups)
    table, rows = distinct(table, groups, seed)
    groups = None if groups is None else groups[rows]
    if doubt := few(len(table.x)):
        warn(doubt, InputWarning)
    held = held_out(len(table.x), groups, seed)
    rest = np.setdiff1d(np.arange(len(table.x)), held)
    own = None if groups is None else groups[rest]
    options: dict[str, Any] = {"groups": own, "seed": seed}
    units = Units(*center_and_scale(table), weight=float(table.weight.mean()))
    if kernel is None:
        kernel = initial_kernel(table.x.shape[1])
    hyper, trials = initial(kernel, likelihood, table, warps)
    strength, gains = SHRINKAGE / len(rest), [0.0] * len(trials)
    for place, each in enumerate(trials if len(trials) > 1 else ()):
        some = units._replace(warp=each).table(table, hyper.likelihood).take(rest)
        found = train(hyper, some, steps=TRIAL, strength=strength, **options)
        slope = each.log_slope(table.y)[rest][found.rows].mean((1, 2))
        gains[place] = float((slope - found.losses)[TRIAL // 2 :].mean())
    best = int(np.argmax(gains))
    best = best if gains[best] > gains[0] + GAIN else 0
    units = units._replace(warp=trials[best])
    resolution = 0.0 if likelihood is not None else smallest_step(table.y)
    table = units.table(table, hyper.likelihood)
    some = table.take(rest)
    sites = all_own_sites(hyper, some)
    start = initial_sites(hyper, some) if sites is None else sites
    strength = 0.0 if sites is None else strength
    found = train(hyper, some, start, steps=steps, strength=strength, **options)
    if sites is None:
        sites = initial_sites(found.hyper, table)
        for whole, part in zip(sites, found.sites, strict=True):
            whole[..., rest] = part
    # Rows are in random order, and so are these.
    number = min(num_inducing, FEATURES // len(table.x), len(table.x))
    given = condition(
        found.hyper,
        table,
        sites,
        groups=groups,
        inducing=table.x[:number],
        neighbors=neighbors,
        all_rows=all_rows,
        units=units,
    )
    return scored(dataclasses.replace(given, resolution=resolution), held)


def initial_kernel(width: int) -> AbstractKernel:
    """A smooth, a rough and a linear part, for inputs of variance 1."""
    length = np.full(width, math.sqrt(width))
    return Matern52(length) + Matern12(length, 0.3) + Linear(0.1 / width)


def initial(
    kernel: AbstractKernel,
    likelihood: AbstractLikelihood | None,
    table: Table,
    warps: Sequence[Kind] | None,
) -> tuple[Hyperparameters, list[Warp]]:
    """Where training begins, and the warps to compare, the one preferred first.

    Targets of a location likelihood are scaled, and so is the likelihood.
    """
    level: Any = 0.0
    trials = [Warp()]
    if likelihood is None:
        defined = candidates(table.y)
        kinds = defined if warps is None else list(warps)
        if not kinds or not set(kinds) <= set(defined):
            raise InputError(
                f"warps is {kinds}; for these targets it should be some of {defined}"
            )
        trials = [warp_of(kind, table.y, table.weight) for kind in kinds]
        likelihood = Calibrated(0.1)
    elif warps is not None:
        raise InputError("warps are for fits without a likelihood")
    elif likelihood.is_location and likelihood.outputs is None:
        if table.columns.keys() & {"lower", "upper"}:
            raise InputError("natgrad.gp.rows takes no bounds of targets")
        trials = [warp_of("identity", table.y, table.weight)]
        likelihood = likelihood.in_units(trials[0].scale)
    elif likelihood.link and likelihood.latents is None:
        check(likelihood, table.y, table.columns)
        ones = np.ones(len(table.y))
        of = table.columns.get("exposure", table.columns.get("trials", ones))
        level = likelihood.start(float(table.weight @ table.y / (table.weight @ of)))
    if likelihood.latents is not None:
        level = np.zeros(likelihood.latents)
    wide = lambda leaf: np.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf
    hyper = Hyperparameters(kernel, likelihood, Constant(level))
    return jax.tree.map(wide, hyper), trials


def checked(
    x: Any,
    y: Any,
    weight: Any = None,
    columns: Columns | None = None,
    groups: Any = None,
) -> tuple[Table, np.ndarray | None]:
    """Rows with a weight above 0, as arrays of numbers, and their groups as numbers."""
    require_double()
    x, y = (np.asarray(as_array(each), float) for each in (x, y))
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(x):
        raise InputError(
            f"x has shape {list(x.shape)} and y has {list(y.shape)}; they should be "
            "rows of inputs, [N, D], and their targets, [N]"
        )
    weight = np.ones(len(x)) if weight is None else np.asarray(weight, float)
    columns = {name: np.asarray(each, float) for name, each in (columns or {}).items()}
    for name, each in {"x": x, "y": y, "weight": weight, **columns}.items():
        if each.shape[:1] != x.shape[:1]:
            raise InputError(
                f"{name} has shape {list(each.shape)}; it should have {len(x)} rows"
            )
        good = np.isfinite(each.reshape(len(each), -1)).all(1)
        require(good, np.arange(len(x)), f"{name} should be finite", "rows")
    require(weight >= 0, weight, "weights should be 0 or more", "weights")
    rows = np.flatnonzero(weight)
    if not len(rows):
        raise InputError("all weights are 0; some should be above 0")
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != y.shape:
            raise InputError(
                f"groups has shape {list(groups.shape)}; it should be one name or "
                f"number for each of the {len(x)} rows"
            )
        names, groups = np.unique(groups[rows], return_inverse=True)
        if len(names) < FEWEST_GROUPS:
            raise InputError(
                f"there are {len(names)} groups; it takes {FEWEST_GROUPS} or more to "
                "leave some out"
            )
        groups = groups.ravel()
    return Table(x, y, weight, columns).take(rows), groups


def distinct(
    table: Table, groups: np.ndarray | None, seed: int
) -> tuple[Table, np.ndarray]:
    """Distinct rows by a seed, whatever order they came in, and where they stood.

    Their weights are those of all their copies.
    """
    keys = [table.x, table.y[:, None], *(a[:, None] for a in table.columns.values())]
    keys += [] if groups is None else [groups[:, None]]
    _, first, inverse = np.unique(
        np.concatenate(keys, 1) + 0.0,  # -0 is 0
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    order = np.random.default_rng(seed).permutation(len(first))
    total = np.bincount(inverse.ravel(), table.weight)[order]
    return table.take(first[order])._replace(weight=total), first[order]


def center_and_scale(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Of the inputs; a constant one is divided by infinity, and so is always 0."""
    share = table.weight / table.weight.sum()
    center = share @ table.x
    scale = np.sqrt(share @ (table.x - center) ** 2)
    return center, np.where(scale > 1e-9 * np.abs(table.x).max(0), scale, np.inf)


def held_out(rows: int, groups: np.ndarray | None, seed: int) -> np.ndarray:
    """Rows that train nothing: a tenth, or 1,000, in whole groups."""
    most = min(int(HELD * rows), MOST_HELD)
    random = np.random.default_rng([seed, 1])
    if groups is None:
        return random.permutation(rows)[:most]
    sizes = np.bincount(groups)
    order = random.permutation(len(sizes))
    number = max(1, int((sizes[order].cumsum() <= most).sum()))
    return np.flatnonzero(np.isin(groups, order[:number]))


def smallest_step(y: np.ndarray) -> float:
    """The smallest gap between targets if half of them or more are repeated, or 0."""
    values = np.unique(y)
    return float(np.diff(values).min()) if 1 < len(values) <= len(y) / 2 else 0.0


def with_errors(given: RowGP) -> RowGP:
    """With the standardised residual of each of its rows, left out."""
    mean, var = given.all_left_out()
    likelihood: Any = given.hyper.likelihood
    sd = given.error_scale * np.sqrt(var + likelihood.known_variance)
    return dataclasses.replace(given, errors=(given.table.y - mean) / sd)


def scored(given: RowGP, held: np.ndarray) -> RowGP:
    """With the score of held-out rows, and calibrated if the likelihood can be."""
    likelihood, table = given.hyper.likelihood, given.table
    is_all = isinstance(given.latents[0], GivenAll)
    rows = np.arange(len(table.x)) if is_all else held
    mean, var = given.left_out(rows)
    own = table.take(rows)
    if isinstance(likelihood, Calibrated):
        scale = math.exp(float(likelihood.log_scale))
        given = with_errors(dataclasses.replace(given, error_scale=scale))
        rough = given._rows_at(mean, var, rows).columns["roughness"]
        residuals = calibration.Residuals(mean, var, own.y, rough, own.weight)
        args = residuals, given.units.warp, given.resolution
        likelihood = calibration.calibrate(likelihood, *args)
        hyper = given.hyper._replace(likelihood=likelihood)
        given = dataclasses.replace(given, hyper=hyper)
    if not len(held):
        return given
    known, weight = given._rows_at(mean, var, rows), own.weight
    density = given._log_density(known, given.units.warp.back(own.y))
    weight = weight * np.isin(rows, held)
    return dataclasses.replace(given, score=float(weight @ density / weight.sum()))
