"""Pictures of an estimator's predictions over one input or two."""

from typing import Any

import numpy as np

from natgrad.data._schema import EncodedRows
from natgrad.errors import InputError
from natgrad.metrics import as_targets, is_classifier, support_of, unwrapped
from natgrad.plot._canvas import (
    ACCENT,
    CLASSES,
    DATA,
    MARKERS,
    QUIET,
    Axes,
    axes,
    elided,
    legend,
    legend_above,
    name_of,
    require_inputs,
    some,
)
from natgrad.sklearn._summary import feature_names


LEVELS = [0.05, 0.25, 0.75, 0.95]
NAMED = 12
"""How many classes are named at most."""


def fit(
    estimator: Any, X: object = None, y: object = None, ax: Axes | None = None
) -> Axes:
    """Draws the predictions over the one input, the data and the inducing inputs.

    A regressor shows the mean and bands that hold 50 and 90 % of new targets; a
    classifier shows the probability of each class.

    Raises:
        InputError: If there is more than one input.

    >>> ax = natgrad.plot.fit(regressor, x, y)
    >>> ax.figure.savefig("fit.png")
    """
    estimator, X = unwrapped(estimator, X)
    require_inputs(estimator, 1, "fit", "predicted")
    ax = axes(ax)
    z = np.asarray(estimator.inducing_points_, float)[:, 0]
    rows = None if X is None else estimator._rows(X)
    x = z if rows is None else rows.x[:, 0]
    target = None if rows is None or y is None else as_targets(X, y)
    if rows is not None and target is not None and not is_classifier(estimator):
        # Predictions are for one unit of exposure, and for one trial.
        target = target / rows.columns.get("exposure", rows.columns.get("trials", 1.0))
    low, high = x.min(), x.max()
    margin = 0.04 * (high - low) or 1.0
    at = np.linspace(low - margin, high + margin, 400)
    if is_classifier(estimator):
        _class_curves(estimator, at, x, target, ax)
        ax.set_ylabel("probability")
    else:
        _bands(estimator, at, ax)
        ax.set_ylabel(name_of(y))
        if target is not None:
            shown = some(len(x))
            style: dict[str, Any] = {"alpha": 0.55, "lw": 0, "zorder": 3}
            ax.scatter(x[shown], target[shown], s=12, color=DATA, label="data", **style)
    line = ax.get_xaxis_transform()
    style = {"color": QUIET, "ms": 7, "mew": 1.1, "transform": line}
    ax.plot(z, np.full(len(z), 0.015), "|", label="inducing inputs", **style)
    ax.set(xlim=(at[0], at[-1]), xlabel=elided(feature_names(estimator)[0], 60))
    if is_classifier(estimator):
        legend(ax, "upper left", bbox_to_anchor=(1, 1), frameon=False)
    else:
        legend(ax)
    return ax


def _bands(estimator: Any, at: np.ndarray, ax: Axes) -> None:
    steps = support_of(estimator).is_whole
    # Quantiles are slow; the band is smooth between a few of them.
    rough = np.linspace(at[0], at[-1], 200 if steps else 60)
    found = estimator.predict(EncodedRows(rough[:, None]), quantiles=LEVELS)
    mean = estimator.predict(EncodedRows(at[:, None]))
    over = rough if steps else at
    if not steps:
        from scipy.interpolate import PchipInterpolator

        found = PchipInterpolator(rough, found)(at)
    low, lower, upper, high = found.T
    style: dict[str, Any] = {"color": ACCENT, "lw": 0, "step": "mid" if steps else None}
    ax.fill_between(over, low, high, alpha=0.17, label="90 % of targets", **style)
    ax.fill_between(over, lower, upper, alpha=0.30, label="50 % of targets", **style)
    ax.plot(at, mean, color=ACCENT, lw=1.8, label="mean")


def _class_curves(estimator: Any, at: np.ndarray, x: Any, y: Any, ax: Axes) -> None:
    classes = estimator.classes_
    shares = estimator.predict_proba(EncodedRows(at[:, None]))
    rows = some(len(x))
    lift = ax.get_xaxis_transform()
    for k, label in enumerate(classes):
        colour = CLASSES[k % len(CLASSES)]
        if len(classes) > 2 or k == 1:
            name = f"P({elided(label, 20)})" if k < NAMED else None
            dash = ("-", "--", ":")[k // len(CLASSES) % 3]
            ax.plot(at, shares[:, k], color=colour, ls=dash, lw=1.8, label=name)
        if y is not None:
            own = x[rows][y[rows] == label]
            style: dict[str, Any] = {"color": colour, "ms": 5, "mew": 0.8}
            # Two classes are drawn where their probability is 1, more in rows above.
            if len(classes) == 2:
                ax.plot(own, np.full(len(own), float(k)), "|", alpha=0.7, **style)
            else:
                style |= {"transform": lift, "clip_on": False}
                ax.plot(own, np.full(len(own), 1.03 + 0.03 * k), "|", **style)
    ax.set_ylim(-0.05, 1.05)


def boundary(estimator: Any, X: object, y: object, ax: Axes | None = None) -> Axes:
    """Draws the predicted class over the two inputs, and how certain it is.

    The tint is the likeliest class's lead over the second; it fades to white at the
    boundary, where both are equally likely.

    Raises:
        InputError: If the estimator is no classifier, or has not two inputs.

    >>> ax = natgrad.plot.boundary(classifier, points, labels)
    >>> ax.figure.savefig("boundary.png")
    """
    estimator, X = unwrapped(estimator, X)
    if not is_classifier(estimator):
        raise InputError(
            f"the estimator is a {type(estimator).__name__}, not a classifier; "
            "plot.boundary needs one; use plot.predicted instead"
        )
    require_inputs(estimator, 2, "boundary", "calibration")
    ax = axes(ax)
    from matplotlib.colors import to_rgb

    x, target = estimator._rows(X).x, as_targets(X, y)
    low, high = x.min(0), x.max(0)
    margin = np.where(high > low, 0.06 * (high - low), 1.0)
    low, high = low - margin, high + margin
    sides = [np.linspace(low[i], high[i], 100) for i in range(2)]
    rows = np.stack(np.meshgrid(*sides), -1)
    shares = np.asarray(estimator.predict_proba(EncodedRows(rows.reshape(-1, 2))))
    shares = shares.reshape(100, 100, -1)
    ranked = np.sort(shares, -1)
    lead = (ranked[..., -1] - ranked[..., -2])[..., None]
    palette = np.asarray([to_rgb(colour) for colour in CLASSES])
    colour = palette[shares.argmax(-1) % len(palette)]
    image = 1 - 0.5 * lead * (1 - colour)
    box = (low[0], high[0], low[1], high[1])
    ax.imshow(
        image, extent=box, origin="lower", aspect="auto", interpolation="bilinear"
    )
    _edges(ax, sides, shares)
    _points(ax, x, target, estimator.classes_)
    first, second = (elided(name, 40) for name in feature_names(estimator))
    ax.set(xlim=box[:2], ylim=box[2:], xlabel=first, ylabel=second)
    return ax


def _edges(ax: Axes, sides: list[np.ndarray], shares: np.ndarray) -> None:
    """Lines where two classes are equally likely, or one of two has 90 %."""
    style: dict[str, Any] = {"colors": DATA, "linewidths": 1.4}
    if shares.shape[-1] == 2:
        ax.contour(*sides, shares[..., 1], [0.5], **style)
        ax.plot([], [], color=DATA, lw=1.4, label="even")
        style = {"colors": QUIET, "linewidths": 0.9, "linestyles": "dashed"}
        ax.contour(*sides, shares[..., 1], [0.1, 0.9], **style)
        ax.plot([], [], color=QUIET, lw=0.9, ls="--", label="90 % of one class")
        return
    for k in range(shares.shape[-1]):
        ahead = shares[..., k] - np.delete(shares, k, -1).max(-1)
        if ahead.min() < 0 < ahead.max():
            ax.contour(*sides, ahead, [0.0], **style)


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, classes: np.ndarray) -> None:
    shown = some(len(x))
    for k, label in enumerate(classes):
        own = x[shown][y[shown] == label]
        name = elided(label, 24) if k < NAMED else None
        style: dict[str, Any] = {
            "color": CLASSES[k % len(CLASSES)],
            "marker": MARKERS[k % len(MARKERS)],
            "edgecolors": "white",
        }
        ax.scatter(*own.T, s=26, lw=0.5, label=name, zorder=3, **style)
    legend_above(ax)
