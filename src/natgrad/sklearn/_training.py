"""From the rows of a table to a trained model: which noise, how many inducing inputs.

Candidates race on all rows, or on some if there are many: each takes a few evaluations
of its profile, and the one with the highest expected ELBO is trained further. All
have the same number of inducing inputs. Gaussian noise may come back with far more of
them, if it is then better than the others: its best q is one natural step away, so the
hyperparameters can be learned from a sample by the evidence, and q from all rows.
"""

import functools
import math
import time
import warnings
from typing import Any

import numpy as np

from natgrad import gp
from natgrad._registry import MANY
from natgrad._runtime.programs import SHORT_RUN, jit
from natgrad.data._batches import Arrays, Batch, Columns, Sample, padded, some_rows
from natgrad.data._prepare import Stream
from natgrad.errors import InputWarning
from natgrad.gp._fit import BATCH, default_rule, fits_at_once
from natgrad.gp._profile import carried_over, profile_rule, whole_rule
from natgrad.gp._sizes import choose_num_inducing, with_inducing
from natgrad.gp._sparse import work
from natgrad.gp.inducing import MOST, ROWS_EACH
from natgrad.sklearn._columns import in_units
from natgrad.sklearn._gaussian import PART, GaussianFit, can_fit
from natgrad.sklearn._kernels import initial_kernels
from natgrad.sklearn._outputs import initial_kernel
from natgrad.sklearn._targets import ROUNDED, Targets
from natgrad.train._devices import place
from natgrad.train._history import History
from natgrad.train._loop import Fitted, run, with_fallback
from natgrad.train._options import Options
from natgrad.train._progress import print_record
from natgrad.train._signals import INTERRUPTED


FEWEST, FIRST = 32, 100
"""How many inducing inputs are tried first: with fewer than `MANY` rows, with more."""

LAP = 20
"""Evaluations that each candidate takes."""

RACED = 2000
"""On how many rows candidates race, at most."""

FEWEST_STEPS, STEPS = 1000, 5000
"""Limits on steps: between the two on batches, otherwise at most the second."""

WORK, BATCH_WORK = 4e10, 3.2e11
"""Limits on the multiplications in a run, on all rows and on batches: some minutes."""

HOPELESS = 1e6
"""Training does not start at an ELBO below minus this, in nats per row."""


def trained(
    estimator: Any,
    rows: Batch,
    candidates: list[Targets],
    seed: int,
    is_piece: bool,
    options: Options,
) -> Fitted:
    """The best model found within the limits that the estimator sets.

    If the rows are a piece of what comes, it has few inducing inputs and a smooth
    kernel: many would make every update slow, and few cannot follow a rough one.
    """
    began, total = time.monotonic(), len(rows.x)
    gaussian = None
    if can_fit(estimator, candidates[0], rows, is_piece):
        limits = Options(steps=_steps(estimator), minutes=estimator.minutes)
        own = _shown(estimator) | limits | Options(log=options.get("log"))
        gaussian = GaussianFit(estimator, rows, candidates[0], seed, is_piece, own)
        if len(candidates) == 1:
            return gaussian.fitted(is_thorough=True)
    raced = rows if gaussian is None else gaussian.rows
    runs, ended = _race(estimator, raced, candidates, seed, total)
    if ended is not None:
        return ended

    def continued() -> Fitted:
        if gaussian is not None:
            gaussian.options["minutes"] = minutes_left(estimator, began)
            found = gaussian.fitted()
            is_over = found.history.reason == INTERRUPTED
            own = is_over or gaussian.is_better(found, runs[-1])
            # Rounding may differ between machines: the first one chooses for all.
            if place().first(bool(own)):
                return found
        model = _grown(estimator, runs[-1].params, rows, seed, total)
        options["minutes"] = minutes_left(estimator, began)
        return train(estimator, model, rows, seed, options)

    return with_fallback(runs[-1], continued)


def train_stream(estimator: Any, data: Stream, classes: Any, options: Options) -> None:
    """As the estimator's own `fit`, which has all rows in memory.

    A sample sets the units of the targets, and where likelihood and inducing inputs
    start.
    """
    began, (batches, found) = time.monotonic(), data
    estimator._check_parameters()
    estimator.schema_ = schema = batches.target_columns.inputs
    names = schema.names
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._learn_classes(found.sample_y, classes)
    y = estimator._numbers(found.sample_y)
    split = batches.target_columns.split
    mean, others = split(found.mean)
    mean_weight = float(others.get("weight", 1.0))
    spread = found.deviation[: len(mean)]
    deviation = np.where(spread <= ROUNDED * np.abs(mean), 0.0, spread)
    sample_x, others = split(found.sample_x)
    weight = others.pop("weight", np.ones(len(y)))
    scaled = estimator._scale(mean, deviation, sample_x, y, weight, others)
    candidates, sample, seed = scaled
    likelihood = candidates[0].likelihood

    def encode(y: np.ndarray, columns: Columns | None = None) -> Any:
        numbers = estimator._numbers(y.reshape(-1)).reshape(y.shape)
        targets = estimator._standard(numbers)
        if columns is None:
            return targets
        return targets, in_units(columns, estimator._units(likelihood), numbers)

    units = (estimator.x_mean_, estimator.x_scale_)
    rows = batches.scaled(*units, encode, mean_weight)
    total = found.num_complete
    # The noise and the number of inducing inputs are found as for rows in memory.
    runs, fitted = _race(estimator, sample, candidates, seed, total)
    if fitted is None:
        model = _grown(estimator, runs[-1].params, sample, seed, total)
        # Rounding may differ between machines: what the first one chose holds for all.
        own = [_kind(model), len(model.inducing)]
        first = place().first(own)
        if first != own:
            same = next(each.params for each in runs if _kind(each.params) == first[0])
            model = with_inducing(same, sample.x, first[1], seed)
        options["minutes"] = minutes_left(estimator, began)
        fitted = train(estimator, model, rows, seed, options)
    estimator._keep(fitted, rows.num_data, time.monotonic() - began)


def _kind(model: gp.SparseGP) -> str:
    return type(model.likelihood).__name__


def train(
    estimator: Any, model: gp.SparseGP, rows: Any, seed: int, options: Options
) -> Fitted:
    """Trains a model on all rows at once where they are few, else on batches."""
    options = _shown(estimator) | Options(steps=_steps(estimator), seed=seed) | options
    if isinstance(rows, Batch) and _is_whole(estimator, model, len(rows.x)):
        if estimator.max_iter == "auto":
            one = work(model, len(rows.x), len(model.inducing))
            options["steps"] = min(STEPS, math.ceil(WORK / one))
        rows = padded(rows)
        rule = whole_rule(model, len(rows.x), has_prior=True)
        return gp.fit(model, Arrays(rows, len(rows.x)), rule=rule, **options)
    size = BATCH if estimator.batch_size == "auto" else estimator.batch_size
    if estimator.max_iter == "auto":
        one = work(model, size, len(model.inducing))
        options["steps"] = min(STEPS, max(FEWEST_STEPS, math.ceil(BATCH_WORK / one)))
    batches = Sample(rows, size, seed) if isinstance(rows, Batch) else rows
    # To a power of two: tables of nearly one size share what is compiled.
    fraction = 2.0 ** round(math.log2(batches.fraction))
    return gp.fit(model, batches, rule=default_rule(None, fraction), **options)


def _grown(
    estimator: Any, model: gp.SparseGP, rows: Batch, seed: int, total: int
) -> gp.SparseGP:
    """The model with as many inducing inputs as help, unless their number is given."""
    if estimator.n_inducing != "auto":
        return model
    is_all = total == len(rows.x) and _is_whole(estimator, model, total)
    larger = choose_num_inducing(model, rows, seed)
    usual = min(total // ROWS_EACH, MOST)
    if not is_all and len(larger.inducing) < usual:
        larger = with_inducing(model, rows.x, usual, seed)
    if len(larger.inducing) <= len(model.inducing):
        return model
    if is_all:
        return carried_over(larger, model, padded(rows))
    some = _raced(rows, seed)
    # Where a kernel is large, noise that is the exponential of its function overflows
    # at the prior.
    is_usable = float(gp.elbo(larger, some, len(some.x))) > -HOPELESS * len(some.x)
    return larger if is_usable else carried_over(larger, model, some)


def _raced(rows: Batch, seed: int) -> Batch:
    """The rows on which candidates race."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows.x))[:RACED])
    return padded(some_rows(rows, chosen))


def _race(
    estimator: Any, rows: Batch, candidates: list[Targets], seed: int, total: int
) -> tuple[list[Fitted], Fitted | None]:
    """The last run of each candidate, the best last; and one that was interrupted.

    `rows` are all of the table, or a sample of its `total` rows.
    """
    is_auto = estimator.n_inducing == "auto"
    first = FIRST if len(rows.x) >= MANY else FEWEST
    is_several = candidates[0].likelihood.outputs is not None
    if is_several:
        # What outputs share is often rough, and few inducing inputs would hide that.
        first = MOST
    size = first if is_auto else estimator.n_inducing
    starts = initial_kernels(estimator.kernel, estimator.x_scale_)
    kernel = initial_kernel(starts, candidates[0].likelihood)
    with warnings.catch_warnings():
        if is_auto:
            warnings.simplefilter("ignore", InputWarning)  # of too few rows
        models = [
            gp.initialize(
                rows.x, each.likelihood, size, seed, kernel=kernel, mean=each.mean
            )
            for each in candidates
        ]
    left = [Fitted(model, History()) for model in models]
    is_decided = (
        not is_auto
        or is_several
        or len(models[0].inducing) < size
        or size >= len(rows.x)
    )
    # With so few rows for each lengthscale the race would overfit its rows.
    is_decided |= ROWS_EACH * rows.x.shape[1] > RACED and total > RACED
    if len(models) == 1 and is_decided:
        return left, None
    some = _raced(rows, seed)
    data, rule = Arrays(some, len(some.x)), profile_rule(len(some.x), is_brief=True)
    if len(left) == 1:
        # The program of the whole run, which may have as many inducing inputs.
        rule = whole_rule(left[0].params, len(some.x), has_prior=True)
    minutes = estimator.minutes and estimator.minutes / PART / len(left)
    steps = min(LAP, _steps(estimator))
    expected = lambda each: _on_all_rows(each, len(rows.x), total)
    for number, each in enumerate(left):
        options = _shown(estimator, f"trying {_kind(each.params)}: ")
        options |= Options(steps=steps, minutes=minutes)
        left[number] = with_fallback(
            left[number - 1] if number else None,
            lambda each=each, options=options: run(rule, each.params, data, **options),
        )
        # If one of several processes was interrupted, all end.
        if INTERRUPTED in place().gather(left[number].history.reason):
            best = max(left[: number + 1], key=expected)
            best.history.reason = INTERRUPTED
            return left, best
    return sorted(left, key=expected), None


def _on_all_rows(raced: Fitted, rows: int, total: int) -> float:
    """The ELBO per row that is expected of all rows.

    Its KL term is shared by all of them, not only by those that raced.
    """
    excess = 1 / min(RACED, rows) - 1 / total
    shared = excess * float(_prior_kl(raced.params)) if excess else 0.0
    return raced.history[-1].objective + shared


def _shown(estimator: Any, title: str = "") -> Options:
    """What `verbose` prints of a run, as options of `natgrad.train.run`."""
    is_shown = bool(estimator.verbose) and (title or True)
    callbacks = [print_record] if estimator.verbose > 1 else []
    return Options(progress=is_shown, callbacks=callbacks)


@functools.partial(jit, compiler_options=SHORT_RUN)
def _prior_kl(model: Any) -> Any:
    return model.prior_kl()


def _is_whole(estimator: Any, model: gp.SparseGP, rows: int) -> bool:
    """Whether every step sees all rows."""
    if estimator.batch_size == "auto":
        return fits_at_once(model, rows)
    return rows <= estimator.batch_size


def _steps(estimator: Any) -> int:
    """The most steps that any run takes."""
    return STEPS if estimator.max_iter == "auto" else estimator.max_iter


def minutes_left(estimator: Any, began: float) -> float | None:
    """What a race has left of the minutes."""
    if estimator.minutes is None:
        return None
    left = estimator.minutes - (time.monotonic() - began) / 60
    left = max(left, estimator.minutes / PART)
    # Processes that end at different times would wait for each other.
    return place().first(left)
