"""Pictures of a model and a table, as files."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from natgrad import plot as pictures
from natgrad._cli.common import say
from natgrad._cli.folder import Opened, Rows, open_model, read_rows
from natgrad.data import _tables as tables
from natgrad.errors import InputError
from natgrad.plot._canvas import STYLE


DOTS_PER_INCH = 150
FORMATS = (".png", ".svg", ".pdf")


def plot(model: str, data: str, out: str) -> None:
    """Draws all pictures that suit a model: in a folder, or all in one file."""
    path = Path(out)
    if path.suffix and path.suffix.lower() not in FORMATS:
        raise InputError(
            f"--out is {out}; it should be a folder, or a file {', '.join(FORMATS)}"
        )
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update(STYLE)

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    drawn = suited(opened, rows)
    if path.suffix:
        _together(drawn, path)
        say(f"{path} has {', '.join(drawn)}")
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot hold pictures: {error.strerror}") from error
    for name, draw in drawn.items():
        _save(draw(None).figure, path / f"{name}.png")
    say(f"{path} has {', '.join(drawn)}, each as .png")


def suited(model: Opened, rows: Rows) -> dict[str, Callable[[Any], Any]]:
    """The pictures that can be drawn, by name, as functions of axes."""
    estimator, x, y = model.estimator, rows.x, rows.y
    inputs = estimator.n_features_in_
    drawn: dict[str, Callable[[Any], Any]] = {}
    if inputs == 1:
        drawn["fit"] = lambda ax: pictures.fit(estimator, x, y, ax)
    if inputs == 2 and model.is_classifier:
        drawn["boundary"] = lambda ax: pictures.boundary(estimator, x, y, ax)
    drawn["predicted"] = lambda ax: pictures.predicted(estimator, x, y, ax)
    drawn["calibration"] = lambda ax: pictures.calibration(estimator, x, y, ax)
    if not model.is_classifier:
        drawn["residuals"] = lambda ax: pictures.residuals(estimator, x, y, ax)
    if inputs > 1:
        drawn["relevance"] = lambda ax: pictures.relevance(estimator, ax)
    drawn["history"] = lambda ax: pictures.history(estimator, ax)
    return drawn


def _together(drawn: dict[str, Callable[[Any], Any]], path: Path) -> None:
    from matplotlib import pyplot

    across = 2 if len(drawn) <= 4 else 3
    down = math.ceil(len(drawn) / across)
    figure, axes = pyplot.subplots(
        down, across, figsize=(5.6 * across, 4.2 * down), layout="constrained"
    )
    for ax, draw in zip(axes.flat, drawn.values(), strict=False):
        draw(ax)
    for ax in axes.flat[len(drawn) :]:
        ax.set_axis_off()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    form = path.suffix.lower().removeprefix(".")
    with tables.replacing(path) as draft:
        # No date, so that the same picture is the same file.
        kept = {"png": {"Software": None}, "svg": {"Date": None}}
        also = kept.get(form, {"CreationDate": None})
        figure.savefig(draft, format=form, dpi=DOTS_PER_INCH, metadata=also)
    pyplot.close(figure)
