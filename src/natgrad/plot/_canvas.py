"""Axes, colours and labels that all pictures share."""

from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.errors import InputError
from natgrad.sklearn._summary import feature_names


if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:  # Matplotlib is imported when a picture is drawn
    Axes = object

ACCENT, MISS, DATA, QUIET = "#0072B2", "#D55E00", "0.15", "0.45"

# The palette of Okabe and Ito, which any kind of colour vision can tell apart.
CLASSES = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#7F6A00",
    "#4D4D4D",
)
MARKERS = "os^Dv*PX<>"

SHOWN = 1000
"""How many points a picture has at most."""

STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "0.4",
    "axes.labelcolor": "0.2",
    "axes.labelsize": 10,
    "axes.titlesize": 11,
    "xtick.color": "0.35",
    "ytick.color": "0.35",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


def axes(ax: Axes | None = None) -> Axes:
    """The given axes, or new ones in a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            'pictures need Matplotlib: pip install "natgrad[plot]"'
        ) from error
    with pyplot.rc_context(STYLE):
        return pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")[1]


def legend(ax: Any, where: str = "best", **options: object) -> None:
    ax.legend(
        loc=where, fontsize=8.5, **{"frameon": True, "framealpha": 0.85} | options
    )


def legend_above(ax: Axes) -> None:
    """Puts the legend above the axes, where it hides nothing."""
    labels = ax.get_legend_handles_labels()[1]
    longest = max(map(len, labels), default=1)
    columns = max(1, min(len(labels), 64 // (longest + 6)))
    style: dict[str, Any] = {"frameon": False, "handletextpad": 0.4}
    legend(ax, "lower left", bbox_to_anchor=(0, 1), ncols=columns, **style)


def elided(name: object, width: int = 28) -> str:
    """A name in one line that fits, its beginning and its end kept."""
    if isinstance(name, float) and name.is_integer():
        name = int(name)  # labels that are whole, of a column of floats
    text = " ".join(str(name).split()) or "(no name)"
    if len(text) > width:
        head = (width - 1) * 3 // 5
        text = f"{text[:head]}…{text[head + 1 - width :]}"
    # Between two dollars Matplotlib would read a formula.
    return text.replace("$", r"\$")


def name_of(y: object, default: str = "y") -> str:
    """The name of a column, if it has one."""
    name = getattr(y, "name", None)
    return default if name is None or callable(name) else elided(name, 40)


def some(rows: int, most: int = SHOWN) -> np.ndarray:
    """The rows to show: all, or a random sample that is the same each time."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def require_inputs(estimator: object, count: int, picture: str, instead: str) -> None:
    """Raises an InputError unless an estimator has so many inputs."""
    found = len(feature_names(estimator))
    if found != count:
        noun = "input" if found == 1 else "inputs"
        raise InputError(
            f"the estimator has {found} {noun}; plot.{picture} needs one with "
            f"{count}; use plot.{instead} instead"
        )
