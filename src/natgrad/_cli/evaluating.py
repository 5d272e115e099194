"""What a trained model is and how well it predicts: evaluate, report, plot, info."""

import math
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from natgrad._cli.common import finite, print_result, say, table
from natgrad._cli.folder import HISTORY, RUN, is_resumable
from natgrad._cli.models import model_file, open_model, read_rows
from natgrad.data import _tables as tables
from natgrad.errors import InputError


FORMATS = (".png", ".svg", ".pdf")


def evaluate(model: str, data: str, is_json: bool) -> None:
    """Prints how well a model predicts a table that has the target."""
    from natgrad import metrics

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    values = {"rows": int(rows.is_complete.sum()), "likelihood": opened.likelihood}
    values |= finite(metrics.evaluate(opened.estimator, rows.x, rows.y))
    shown = {name.replace("_", " "): _shown(value) for name, value in values.items()}
    print_result(values, is_json, table(shown))


def report(model: str, data: str, out: str) -> None:
    """Writes one page of HTML on a model and a table that has the target."""
    from natgrad import report

    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out is {out}; it should end in .html")
    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    report.write(opened.estimator, rows.x, rows.y, out)
    say(f"{out} is one file: open it in a browser, or send it")


def info(model: str, is_json: bool) -> None:
    """Prints what a model is."""
    opened, file = open_model(model), model_file(model)
    estimator, schema = opened.estimator, opened.schema
    folder = file.parent if Path(model).is_dir() else None
    values = {
        "model": str(file),
        "bytes": file.stat().st_size,
        "estimator": type(estimator).__name__,
        "likelihood": opened.likelihood,
        "target": opened.target,
        "rows": opened.rows,
        "inputs": [_column(column) for column in schema.columns],
        "nulls": schema.nulls,
        "elbo_per_row": estimator.elbo_,
        "steps": estimator.n_iter_,
        "num_inducing": estimator.n_inducing_,
        "converged": bool(estimator.converged_),
        "message": estimator.message_,
        "seconds": estimator.fit_seconds_,
        "lengthscales": dict(
            zip(schema.features, map(float, estimator.lengthscales_), strict=True)
        ),
        "is_resumable": folder is not None and is_resumable(folder),
    }
    if opened.is_classifier:
        values["classes"] = estimator.classes_.tolist()
    files = [name for name in (RUN, HISTORY) if folder and (folder / name).exists()]
    text = f"{estimator}\n\n" + table(
        {
            "file": f"{file} ({values['bytes']:,} bytes)",
            "target": f"{opened.target} ({opened.likelihood})",
            "inputs": _wrapped(schema.names),
            "nulls": schema.nulls,
            **({"also here": ", ".join(files)} if files else {}),
        }
    )
    if values["is_resumable"]:
        text += (
            f"\n\nIts training was interrupted; natgrad resume {folder} continues it."
        )
    print_result(finite(values), is_json, text)


def _column(column: Any) -> dict[str, Any]:
    kind = type(column).__name__.lower()
    found = {"name": column.name, "kind": kind, "encoding": column.describe()}
    return found | ({"values": list(column.values)} if kind == "category" else {})


def _wrapped(words: Iterable[str], width: int = 66) -> str:
    """Words in lines that stand under each other in the second column of a table."""
    text = ", ".join(word.replace(" ", "\xa0") for word in words)
    lines = textwrap.wrap(text, width, break_long_words=False, max_lines=8)
    return "\n           ".join(lines).replace("\xa0", " ")


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def plot(model: str, data: str, out: str) -> None:
    """Draws all pictures that apply to a model: in a folder, or all in one file."""
    path = Path(out)
    if path.suffix and path.suffix.lower() not in FORMATS:
        raise InputError(
            f"--out is {out}; it should be a folder, or a file {', '.join(FORMATS)}"
        )
    import matplotlib

    from natgrad.plot import applicable
    from natgrad.plot._canvas import STYLE

    matplotlib.use("agg")
    matplotlib.rcParams.update(STYLE)

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    drawn = applicable(opened.estimator, rows.x, rows.y)
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
        figure.savefig(draft, format=form, dpi=150, metadata=also)
    pyplot.close(figure)
