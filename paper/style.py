"""The style of the figures: one colour for each method, labels next to the lines."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


# Okabe and Ito's colours, which any kind of colour vision can tell apart.
COLOURS = {
    "NGD": "#0072b2",
    "guarded": "#009e73",
    "natgrad's": "#cc79a7",
    "GD": "#e69f00",
    "Adam": "#d55e00",
    "L-BFGS": "#7f7f7f",
}
DASHES = {"0.1": (0, (1, 1)), "0.001": (0, (4, 2))}
MARKED = {"natgrad's": (0, (6, 1, 1, 1))}


def colour(method: str) -> str:
    """By the first word: NGD + Adam is as NGD, Adam 0.01 as Adam."""
    return COLOURS[method.split()[0]]


def dashes(method: str) -> Any:
    """By the last word: the rates of one method are told apart by their dashes."""
    by_rate = DASHES.get(method.split()[-1], "solid")
    return MARKED.get(method.split()[0], by_rate)


@contextlib.contextmanager
def paper(size: float = 8) -> Iterator[Any]:
    """Matplotlib's settings for print, with letters of some points."""
    import matplotlib as mpl
    from matplotlib import pyplot

    settings: Any = {
        "font.size": size,
        "axes.titlesize": size,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.2,
        "figure.dpi": 150,
        "savefig.dpi": 220,
    }
    with mpl.rc_context(settings):
        yield pyplot


def band(
    ax: Any, x: np.ndarray, curves: np.ndarray, method: str, **options: Any
) -> None:
    """The median over splits, and from the lowest to the highest; NaN is not there."""
    shade, low, high = colour(method), np.nanmin(curves, 0), np.nanmax(curves, 0)
    ax.fill_between(x, low, high, color=shade, alpha=0.2, lw=0)
    middle, line = np.nanmedian(curves, axis=0), dashes(method)
    ax.plot(x, middle, color=shade, linestyle=line, label=method, **options)


def above(ax: Any, lowest: float) -> None:
    """Leaves out what is far below where all curves come to."""
    bottom, top = ax.get_ylim()
    ax.set_ylim(max(bottom, lowest - 1.5 * max(top - lowest, 0.1)), top)


def mark_floor(ax: Any, floor: float, note: bool) -> None:
    """Shades what a logarithmic axis does not show: values are drawn at its edge."""
    top = ax.get_ylim()[1]
    bottom = floor * (floor / top) ** 0.1
    ax.axhspan(bottom, floor, color="0.9", lw=0, zorder=0)
    ax.set_ylim(bottom, top)
    if note:
        exponent = round(np.log10(floor))
        ax.annotate(
            rf"$\leq 10^{{{exponent}}}$, not resolved",
            (0.03, (bottom * floor) ** 0.5),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=6,
            color="0.35",
        )


def saved(figure: Any, axes: np.ndarray, path: Path) -> Path:
    """Names the lines next to the last column and writes the picture."""
    from matplotlib import pyplot

    figure.canvas.draw()
    for ax in axes[:, -1]:
        label_ends(ax)
    figure.savefig(path)
    pyplot.close(figure)
    return path


def label_ends(ax: Any) -> None:
    """A sample and the name of each line at its right end, moved apart if they touch.

    The sample has the dashes, so that lines of one colour are told apart.
    """
    lines = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    if not lines:
        return
    to_axes = ax.transData + ax.transAxes.inverted()
    ends = []
    for line in lines:
        x, y = line.get_data()
        is_there = np.isfinite(np.asarray(y, float))
        if is_there.any():
            last = np.flatnonzero(is_there)[-1]
            ends.append([to_axes.transform((x[last], y[last]))[1], line])
    ends.sort(key=lambda pair: pair[0])
    box = ax.get_window_extent()
    width, height = (72 / ax.figure.dpi * side for side in (box.width, box.height))
    gap = 9.5 / height  # of letters of 7 points
    heights = [min(max(height, 0.0), 1.0) for height, _ in ends]
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + gap)
    heights[-1] = min(heights[-1], 1.0)
    for place in range(len(heights) - 2, -1, -1):
        heights[place] = min(heights[place], heights[place + 1] - gap)
    for height, (_, line) in zip(heights, ends, strict=True):
        ax.plot(
            [1 + 3 / width, 1 + 21 / width],
            [height, height],
            transform=ax.transAxes,
            clip_on=False,
            color=line.get_color(),
            linestyle=dashes(line.get_label()),
            label="_sample",
        )
        ax.annotate(
            line.get_label(),
            (1 + 24 / width, height),
            xycoords="axes fraction",
            color=line.get_color(),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )


def label_paths(ax: Any, bottom: float) -> None:
    """The names of the lines in a corner, in their colours."""
    for place, line in enumerate(ax.get_lines()):
        if not line.get_label().startswith("_"):
            ax.annotate(
                line.get_label(),
                (0.97, bottom + 0.08 * place),
                xycoords="axes fraction",
                color=line.get_color(),
                ha="right",
            )
