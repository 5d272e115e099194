"""Pictures that compare predictions with observed targets."""

from collections import Counter
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtri

from natgrad.data._table import select
from natgrad.metrics import (
    BINS,
    as_targets,
    is_classifier,
    pit,
    reliability,
    support_of,
    unwrapped,
)
from natgrad.plot._canvas import (
    ACCENT,
    DATA,
    MISS,
    QUIET,
    Axes,
    axes,
    elided,
    legend,
    name_of,
    some,
)


TAILS = np.asarray([0.025, 0.975])
GREY: dict[str, Any] = {"color": "0.5", "alpha": 0.25, "lw": 0}
LABELLED = 12
"""How many classes a table of numbers has at most."""


def calibration(estimator: Any, X: object, y: object, ax: Axes | None = None) -> Axes:
    """Draws observed frequencies over predicted ones.

    A regressor shows the share of targets in the central interval of each level. A
    classifier shows how often a class was observed, in bins of its probability, with
    the number of rows below. The grey band holds 95 % of calibrated predictions.

    >>> ax = natgrad.plot.calibration(regressor, x, y)
    >>> ax.get_xlabel()
    'level of the interval'
    """
    estimator, X = unwrapped(estimator, X)
    target = as_targets(X, y)
    ax = axes(ax)
    ax.plot([0, 1], [0, 1], color=QUIET, lw=0.9, ls=(0, (5, 4)), zorder=1)
    if is_classifier(estimator):
        _reliability(estimator, X, target, ax)
    else:
        _coverage(estimator, X, target, ax)
    return ax


def _coverage(estimator: Any, X: object, y: np.ndarray, ax: Axes) -> None:
    levels = np.linspace(0, 1, 201)
    values = pit(estimator, X, y)
    observed = np.asarray([values.coverage(level) for level in levels])
    low, high = stats.binom.ppf(TAILS[:, None], len(y), levels[None, :]) / len(y)
    ax.fill_between(levels, low, high, label="95 % if right", **GREY)
    ax.plot(levels, observed, color=ACCENT, lw=1.8, label="observed")
    for level in (0.5, 0.9):
        share = observed[round(200 * level)]
        ax.plot(level, share, "o", color=ACCENT, ms=5)
        text, style = f"{100 * share:.1f} %", {"fontsize": 8.5, "color": DATA}
        ax.annotate(
            text, (level, share), (7, -3), textcoords="offset points", va="top", **style
        )
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    ax.set(xlabel="level of the interval", ylabel="share of targets inside")
    legend(ax, "upper left")


def _reliability(estimator: Any, X: object, y: np.ndarray, ax: Axes) -> None:
    shares = np.asarray(estimator.predict_proba(X))
    bins = reliability(estimator.classes_, shares, y)
    low, high = stats.binom.ppf(TAILS[:, None], bins.rows, bins.predicted) / bins.rows
    ax.vlines(bins.predicted, low, high, color="0.78", lw=7, label="95 % if right")
    style: dict[str, Any] = {"color": ACCENT, "ms": 6, "lw": 1.2}
    ax.plot(bins.predicted, bins.observed, "o-", label="observed", **style)
    # A strip below zero shows the number of rows in each bin.
    centres = (bins.bins + 0.5) / BINS
    heights = 0.1 * bins.rows / bins.rows.max()
    ax.bar(centres, heights, 0.085, bottom=-0.22, color=ACCENT, alpha=0.35)
    for centre, height, rows in zip(centres, heights, bins.rows, strict=True):
        style = {"ha": "center", "va": "bottom", "fontsize": 7.5, "color": DATA}
        ax.text(centre, height - 0.215, f"{rows}", **style)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.22, 1.03))
    ticks = np.linspace(0, 1, 6)
    ax.set_yticks([-0.17, *ticks], ["rows", *(f"{tick:.1f}" for tick in ticks)])
    classes = estimator.classes_
    if len(classes) == 2:
        what = f"predicted probability of {elided(classes[1], 30)}"
    else:
        what = "probability of the predicted class"
    ax.set(xlabel=what, ylabel="observed frequency")
    legend(ax, "upper left")


def predicted(estimator: Any, X: object, y: object, ax: Axes | None = None) -> Axes:
    """Draws observed targets over predicted ones.

    A regressor shows the 90 % interval of each, and marks targets outside. A
    classifier shows a table of counts.

    >>> ax = natgrad.plot.predicted(regressor, x, y)
    >>> ax.get_xlabel()
    'predicted target'
    """
    estimator, X = unwrapped(estimator, X)
    target = as_targets(X, y)
    ax = axes(ax)
    if is_classifier(estimator):
        return _confusion(estimator, X, target, ax)
    rows = some(len(target))
    x, target = estimator._rows(select(X, rows, axis=0)), target[rows]
    mean = estimator.predict(x)
    low, high = estimator.predict(x, quantiles=[0.05, 0.95]).T
    is_in = (target >= low) & (target <= high)
    # Bars overlap, so each is fainter if there are many.
    alpha = float(np.clip(60 / len(target), 0.08, 0.5))
    ax.vlines(mean, low, high, color=ACCENT, lw=1.2, alpha=alpha)
    ax.plot([], [], color=ACCENT, lw=1.2, alpha=0.5, label="90 % interval")
    style: dict[str, Any] = {"s": 14, "lw": 0, "zorder": 3}
    for own, colour, mark, what in (
        (is_in, DATA, "o", "inside"),
        (~is_in, MISS, "D", "outside"),
    ):
        label = f"{what}: {own.mean():.0%}".replace("%", " %")
        # A correct interval of whole counts holds more than its level.
        label = what if support_of(estimator).is_whole else label
        ax.scatter(
            mean[own], target[own], color=colour, marker=mark, label=label, **style
        )
    ends = np.asarray([mean.min(), mean.max()])
    ax.plot(ends, ends, color=QUIET, lw=0.9, ls=(0, (5, 4)), zorder=1)
    name = name_of(y, "target")
    ax.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    legend(ax, "upper left")
    return ax


def _confusion(estimator: Any, X: object, y: np.ndarray, ax: Axes) -> Axes:
    classes = getattr(estimator, "categories_", estimator.classes_)
    labels = classes.tolist()
    counts = Counter(zip(y.tolist(), estimator.predict(X).tolist(), strict=True))
    table = np.array([[counts[seen, guess] for guess in labels] for seen in labels])
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
    ticks = np.arange(0, len(classes), -(-len(classes) // LABELLED))
    width = max(5, 60 // len(ticks))
    ax.set_xticks(ticks, [elided(classes[k], width) for k in ticks])
    ax.set_yticks(ticks, [elided(classes[k], 20) for k in ticks])
    for row, column in np.ndindex(table.shape) if len(classes) <= LABELLED else ():
        colour = "white" if shares[row, column] > 0.6 else DATA
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
        ax.text(column, row, f"{table[row, column]}", fontsize=8.5, **style)
    ax.tick_params(length=0)
    ax.set(xlabel="predicted class", ylabel="observed class")
    return ax


def residuals(estimator: Any, X: object, y: object, ax: Axes | None = None) -> Axes:
    """Draws normal scores of the targets over those of a normal sample (a Q–Q plot).

    A score is the normal quantile of the target's probability integral transform, which
    is randomized for discrete targets. Scores of correct predictions lie on the
    diagonal.

    >>> ax = natgrad.plot.residuals(regressor, x, y)
    >>> ax.get_xlabel()
    'expected normal score'
    """
    estimator, X = unwrapped(estimator, X)
    target = as_targets(X, y)
    ax = axes(ax)
    found = np.sort(pit(estimator, X, target).randomized())
    count = len(found)
    ranks = np.arange(1, count + 1)
    expected = ndtri((ranks - 0.375) / (count + 0.25))
    # All points at the ends, and in the middle as many as can be seen.
    spaced = np.linspace(expected[0], expected[-1], 600)
    kept = np.unique(np.searchsorted(expected, spaced).clip(0, count - 1))
    kept = np.union1d(kept, [*range(min(20, count)), *range(max(0, count - 20), count)])
    tiny = 2.0**-53
    scores = ndtri(found.clip(tiny, 1 - tiny))[kept]
    ends = stats.beta.ppf(TAILS[:, None], ranks[kept], count + 1 - ranks[kept])
    low, high = ndtri(ends)
    expected = expected[kept]
    ax.fill_between(expected, low, high, label="95 % if right", **GREY)
    ax.plot(expected, expected, color=QUIET, lw=0.9, ls=(0, (5, 4)))
    is_in = (scores >= low) & (scores <= high)
    style: dict[str, Any] = {"s": 13, "lw": 0, "zorder": 3}
    ax.scatter(expected[is_in], scores[is_in], color=ACCENT, label="targets", **style)
    if not is_in.all():
        style |= {"color": MISS, "marker": "D", "label": "outside"}
        ax.scatter(expected[~is_in], scores[~is_in], **style)
    is_random = is_classifier(estimator) or support_of(estimator).is_whole
    what = "randomized normal score" if is_random else "normal score"
    ax.set(xlabel="expected normal score", ylabel=f"{what} of the target")
    legend(ax, "upper left")
    return ax
