"""Gaussian noise with many inducing inputs: every row of a small table, or thousands.

The best q is then one natural step away. The evidence learns the hyperparameters, from
all rows or from a sample.
"""

import math
from typing import Any

import numpy as np

from natgrad import gp
from natgrad.data._batches import Batch, padded, some_rows
from natgrad.gp import _sampled as sampled, exact, kernels
from natgrad.gp._few_rows import misfit, misfit_of_sample
from natgrad.gp.inducing import MOST, ROWS_EACH
from natgrad.gp.likelihoods import Gaussian
from natgrad.gp.means import Zero
from natgrad.sklearn._kernels import initial_kernels, rough_part
from natgrad.sklearn._targets import Targets
from natgrad.train._loop import Fitted, with_fallback
from natgrad.train._options import Options
from natgrad.train._signals import INTERRUPTED


MOST_WORK, MOST_INDUCING = 5e10, 2000
"""Limits on the multiplications that find q, which take half a minute, and on the
inducing inputs."""

PART = 5
"""A race of noises, and the smooth part alone, each take at most this part of the
minutes."""

HELD_OUT = 1000
"""The most rows that tell which of two models is better."""


def can_fit(
    estimator: Any, targets: Targets, rows: Batch, is_piece: bool = False
) -> bool:
    """Whether the evidence can be computed, of all rows or of a sample of them."""
    is_free = estimator.n_inducing == "auto" and not rows.columns
    is_free &= not isinstance(estimator.kernel, kernels.Separate)
    if not is_free or type(targets.likelihood) is not Gaussian:
        return False
    total, width = rows.x.shape
    if total <= exact.MOST_ROWS:
        return True
    # A sample cannot tell so many lengthscales, or there is time for few inducing
    # inputs only.
    is_narrow = ROWS_EACH * width <= exact.MOST_ROWS
    is_short = affordable_inducing(estimator, total) >= 2 * MOST
    is_free = not is_piece and estimator.batch_size == "auto"
    return is_free and is_narrow and is_short


def affordable_inducing(estimator: Any, rows: int) -> int:
    """How many inducing inputs there is time for, if q is found at once."""
    minutes = estimator.minutes or 1.0
    return min(MOST_INDUCING, int(math.sqrt(MOST_WORK * min(minutes, 1.0) / rows)))


class GaussianFit:
    """Fits Gaussian noise with many inducing inputs to a table.

    `rows` are those that others may learn from: all, or all but some that tell which
    model is better.
    """

    def __init__(
        self,
        estimator: Any,
        rows: Batch,
        targets: Targets,
        seed: int,
        is_piece: bool,
        options: Options,
    ):
        total, self.is_shown = len(rows.x), bool(options.get("progress", True))
        scale, mean = estimator.x_scale_, targets.mean or Zero()
        self.starts = [
            exact.Hyperparameters(start, targets.likelihood, mean)
            for start in initial_kernels(estimator.kernel, scale)
        ]
        self.rough = None
        if not is_piece:
            self.rough = rough_part(estimator.kernel, scale, total)
        self.rows, self.held_out, self.options = rows, None, options
        if total > exact.MOST_ROWS:
            order = np.random.default_rng(seed).permutation(total)
            size = min(total // 10, HELD_OUT)
            self.rows = some_rows(rows, order[size:])
            self.held_out = some_rows(rows, order[:size])
            self.num_inducing = affordable_inducing(estimator, total)

    def fitted(self, is_thorough: bool = False) -> Fitted:
        """The model; it is there within a minute, and so without checkpoints.

        It does not start from what others have learned: their noise is too high.
        """
        starts = self.starts if is_thorough else self.starts[:1]
        sample = padded(some_rows(self.rows, slice(exact.MOST_ROWS)))
        return self._with_posterior(self._learned(starts, sample), sample)

    def _learned(self, starts: list[Any], sample: Batch) -> Fitted:
        """The hyperparameters, from all rows or from a sample of them."""
        prior = misfit if self.held_out is None else misfit_of_sample
        if self.rough is None:
            return exact.learn(starts, sample, prior, **self.options)
        # The smooth part comes first: both at once often end with much of neither.
        lap = self._part("smooth part: ", 1 / PART)
        lap["steps"] = min(exact.LAP, lap.get("steps") or exact.LAP)
        begun = exact.learn(starts, sample, prior, **lap)
        if begun.history.reason == INTERRUPTED:
            return begun
        hyper = begun.params
        both = hyper._replace(kernel=hyper.kernel + self.rough)
        whole = self._part("smooth and rough part: ", 1 - 1 / PART)
        further = lambda: exact.learn([both], sample, prior, **whole)
        return with_fallback(begun, further)

    def _part(self, title: str, share: float) -> Options:
        """The options of a part of the run, with its share of the minutes."""
        minutes, is_shown = self.options.get("minutes"), self.is_shown
        own = Options(minutes=minutes and share * minutes, progress=is_shown and title)
        return self.options | own

    def _with_posterior(self, learned: Fitted, sample: Batch) -> Fitted:
        """The model with the best q for what was learned."""
        rows = self.rows
        if self.held_out is None:
            z = exact.inducing_inputs(rows.x)
            model = exact.solve(learned.params, z, sample)
            return Fitted(model, learned.history)
        first = rows.x[: 2 * MOST_INDUCING]  # some may be equal
        distinct = first[np.sort(np.unique(first, axis=0, return_index=True)[1])]
        z = distinct[: self.num_inducing]
        if len(z) < self.num_inducing:
            z = exact.inducing_inputs(z)[: self.num_inducing]
        parts = (padded(rows), padded(self.held_out))
        return sampled.fit(learned, z, *parts, progress=self.is_shown)

    def is_better(self, found: Fitted, other: Fitted) -> bool:
        """Whether what was found has the higher evidence, or predicts better."""
        mine, value = found.history[-1], other.history[-1].objective
        if self.held_out is None:
            return mine.objective >= value
        rows = self.held_out
        densities = gp.predictor(other.params).log_density(rows.x, rows.y)
        value = float(np.average(densities, weights=rows.weight))
        return (mine.score or 0.0) >= value
