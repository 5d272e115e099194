"""Pictures of the fit: its training history and its lengthscales."""

from typing import Any

import numpy as np

from natgrad.errors import InputError
from natgrad.metrics import unwrapped
from natgrad.plot._canvas import ACCENT, MISS, Axes, axes, elided, legend
from natgrad.sklearn._summary import feature_names, inverse_lengthscales
from natgrad.train._history import History, shown_range


BARS = 20
"""How many inputs are shown by name."""


def history(history_or_estimator: Any, ax: Axes | None = None) -> Axes:
    """Draws the ELBO per row and the held-out score against steps.

    An estimator has them in your units; a `History` as it stores them.

    Raises:
        InputError: If the history has no records.

    >>> ax = natgrad.plot.history(regressor)
    >>> ax.get_ylabel()
    'nats per row'
    """
    records, shift = history_or_estimator, 0.0
    if not isinstance(records, History):
        estimator, _ = unwrapped(records, None)
        records = estimator.history_
        shift = -float(np.log(getattr(estimator, "y_scale_", 1.0)).sum())
    if not len(records):
        raise InputError("the history has no records; pass that of a fit")
    ax = axes(ax)
    steps = records.column("step")
    shown: list[float | None] = []
    for column, label, colour, dash in (
        ("objective", "evidence bound per row", ACCENT, "-"),
        ("score", "held-out log density", MISS, "--"),
    ):
        values = [None if v is None else v + shift for v in records.column(column)]
        known = [(s, v) for s, v in zip(steps, values, strict=True) if v is not None]
        if known:
            mark = "o" if len(known) < 3 else ""
            style: dict[str, Any] = {"color": colour, "ls": dash, "marker": mark}
            ax.plot(*zip(*known, strict=True), lw=1.6, label=label, **style)
        shown += values
    ax.set_ylim(*shown_range(shown))
    ax.set(xlabel="step", ylabel="nats per row")
    ax.ticklabel_format(axis="y", useOffset=False)
    legend(ax, "lower right")
    return ax


def lengthscales(estimator: Any, ax: Axes | None = None) -> Axes:
    """Draws how fast the function varies along each input, the fastest first.

    It is the input's standard deviation divided by its lengthscale. An input with a
    short lengthscale need not be important: use scikit-learn's
    `permutation_importance` for that. A constant input has 0.

    Raises:
        InputError: If the kernel has no lengthscales.

    >>> ax = natgrad.plot.lengthscales(classifier)
    >>> len(ax.patches)  # a bar for each input
    2
    """
    estimator, _ = unwrapped(estimator, None)
    if not hasattr(estimator, "lengthscales_"):
        kernel = type(estimator.model_.kernel).__name__
        raise InputError(
            f"the kernel is a {kernel}, which has no lengthscales; "
            "plot.lengthscales needs one that has, such as natgrad.gp.kernels.Matern52"
        )
    ax = axes(ax)
    values = inverse_lengthscales(estimator)
    order = np.argsort(-values, kind="stable")[:BARS]
    names, count = feature_names(estimator), len(order)
    ax.barh(np.arange(count), values[order], height=0.72, color=ACCENT)
    ax.set_yticks(np.arange(count), [elided(names[i]) for i in order])
    ax.tick_params(axis="y", length=0)
    # A bar keeps its height if there are few.
    margin = 0.6 + max(0, 5 - count) / 2
    ax.set_ylim(count - 1 + margin, -margin)
    ax.set_xlim(0, 1.05 * values.max() or 1.0)
    more = f" (first {count} of {len(values)})" if count < len(values) else ""
    ax.set_xlabel(f"how fast it varies: deviation / lengthscale{more}")
    return ax
