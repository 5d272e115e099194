"""What is done with a trained model: predict, evaluate, look."""

from pathlib import Path
from typing import Any

import numpy as np

from natgrad.cli.common import finite, give, say, table
from natgrad.cli.folder import (
    CHECKPOINT,
    HISTORY,
    RUN,
    Opened,
    Rows,
    model_file,
    open_model,
    read_rows,
)
from natgrad.data import tables
from natgrad.data.tables import Category
from natgrad.errors import InputError


def predict(
    model: str, data: str, out: str, levels: list[float], keep: str, is_json: bool
) -> None:
    """Writes predictions for each row of a table, null where an input is."""
    if out != "-" and Path(out).suffix.lower() not in (".parquet", ".csv"):
        raise InputError(f"--out is {out}; it should end in .parquet or .csv")
    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=False)
    wanted = rows.table.column_names if keep == "all" else _split(keep)
    tables.require(rows.table.column_names, wanted)
    columns = predictions(opened, rows, levels)
    if both := [name for name in wanted if name in columns]:
        raise InputError(
            f"--keep has the column {both[0]!r}, and so have the predictions; keep "
            "others, or rename it"
        )
    kept = {name: rows.table[name] for name in wanted}
    whole = rows.is_whole
    tables.write(out, kept | {name: _spread(c, whole) for name, c in columns.items()})
    if not whole.all():
        missing = int((~whole).sum())
        they = "row has a null, and so has its prediction"
        if missing > 1:
            they = "rows have a null, and so have their predictions"
        say(f"{missing:,} {they}")
    if out != "-":
        given = {"out": out, "rows": len(whole), "columns": [*kept, *columns]}
        text = f"{out} has {len(whole):,} rows of {', '.join([*kept, *columns])}"
        give(given, is_json, text)


def predictions(model: Opened, rows: Rows, levels: list[float]) -> dict[str, Any]:
    """Columns of what is predicted for the rows that can be."""
    if model.is_classifier:
        classes = model.estimator.classes_
        chances = model.estimator.predict_proba(rows.x)
        named = {f"p({name})": chances[:, k] for k, name in enumerate(classes)}
        return {"class": classes[chances.argmax(1)]} | named
    mean, std = model.estimator.predict(rows.x, return_std=True)
    columns = {"mean": mean, "std": std}
    if levels:
        quantiles = model.estimator.predict(rows.x, quantiles=levels)
        columns |= {f"q{p:g}": quantiles[:, k] for k, p in enumerate(levels)}
    return columns


def evaluate(model: str, data: str, is_json: bool) -> None:
    """Says how well a model predicts a table that has the target."""
    from natgrad import metrics

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    found = metrics.metrics(opened.estimator, rows.x, rows.y)
    values = {"rows": int(rows.is_whole.sum()), "likelihood": opened.likelihood}
    values |= finite(found)
    shown = {name.replace("_", " "): _shown(value) for name, value in values.items()}
    give(values, is_json, table(shown))


def report(model: str, data: str, out: str) -> None:
    """Writes one page of HTML on a model and a table that has the target."""
    from natgrad import report

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    report.write(opened.estimator, rows.x, rows.y, out)
    say(f"{out} is one file: open it in a browser, or send it")


def info(model: str, is_json: bool) -> None:
    """Says what a model is, without any data."""
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
        "bound_per_row": estimator.elbo_,
        "iterations": estimator.n_iter_,
        "inducing": estimator.n_inducing_,
        "converged": bool(estimator.converged_),
        "message": estimator.message_,
        "seconds": estimator.fit_seconds_,
        "lengthscales": dict(
            zip(schema.features, map(float, estimator.lengthscales_), strict=True)
        ),
        "is_resumable": folder is not None and (folder / CHECKPOINT).is_dir(),
    }
    if opened.is_classifier:
        values["classes"] = estimator.classes_.tolist()
    files = [name for name in (RUN, HISTORY) if folder and (folder / name).exists()]
    text = f"{estimator}\n\n" + table(
        {
            "file": f"{file} ({values['bytes']:,} bytes)",
            "target": f"{opened.target} ({opened.likelihood})",
            "inputs": _wrapped(map(_said, schema.columns)),
            "nulls": schema.nulls,
            **({"beside it": ", ".join(files)} if files else {}),
        }
    )
    if values["is_resumable"]:
        text += f"\n\nIts training was interrupted: natgrad resume {folder} goes on."
    give(finite(values), is_json, text)


def _column(column: Any) -> dict[str, Any]:
    if isinstance(column, Category):
        return {"name": column.name, "values": list(column.values)}
    return {"name": column.name}


def _said(column: Any) -> str:
    if not isinstance(column, Category):
        return column.name
    values, more = column.values[:4], ", ..." if column.values[4:] else ""
    return f"{column.name} ({', '.join(values)}{more})"


def _wrapped(words: Any, width: int = 66) -> str:
    """Words in lines that stand under each other in the second column of a table."""
    import textwrap

    text = ", ".join(word.replace(" ", "\xa0") for word in words)
    lines = textwrap.wrap(text, width, break_long_words=False, max_lines=8)
    return "\n           ".join(lines).replace("\xa0", " ")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _spread(column: np.ndarray, is_whole: np.ndarray) -> Any:
    """A column for all rows, null where there was nothing to predict from."""
    import pyarrow as arrow

    values = column.astype(object) if column.dtype.kind in "OSUT" else column
    if is_whole.all():
        return arrow.array(values)
    places = np.cumsum(is_whole) - 1
    indices = arrow.array(places, mask=~is_whole)
    return arrow.array(values).take(indices)


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
