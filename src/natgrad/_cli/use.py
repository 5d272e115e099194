"""What is done with a trained model: predict, evaluate, look."""

from pathlib import Path
from typing import Any

import numpy as np

from natgrad._cli.common import finite, give, say, table
from natgrad._cli.folder import (
    HISTORY,
    RUN,
    Opened,
    is_resumable,
    model_file,
    open_model,
    read_rows,
)
from natgrad.data import _tables as tables
from natgrad.data._tables import Category
from natgrad.errors import InputError


BLOCK = 2**12
"""How many rows are predicted together: few enough to be kept near a processor."""


def predict(
    model: str, data: str, out: str, levels: list[float], keep: str, is_json: bool
) -> None:
    """Writes predictions for each row of a table, null where an input is."""
    if out != "-" and Path(out).suffix.lower() not in (".parquet", ".csv"):
        raise InputError(
            f"--out is {out}; it should end in .parquet or .csv, as DATA is one table; "
            "a folder is for a data set, given as a folder or a pattern"
        )
    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=False)
    wanted = kept(keep, rows.table.column_names, opened, levels)
    columns = {name: rows.table[name] for name in wanted}
    columns |= predictions(opened, rows.x, rows.is_complete, levels)
    tables.write(out, columns)
    say_nulls(int((~rows.is_complete).sum()))
    if out != "-":
        total = len(rows.is_complete)
        given = {"out": out, "rows": total, "columns": list(columns)}
        give(given, is_json, f"{out} has {total:,} rows of {', '.join(columns)}")


def kept(keep: str, names: list[str], model: Opened, levels: list[float]) -> list[str]:
    """The columns that --keep means, which are to stand beside the predictions."""
    asked = [name.strip() for name in keep.split(",") if name.strip()]
    wanted = names if keep == "all" else list(dict.fromkeys(asked))
    tables.require(names, wanted)
    if both := [name for name in wanted if name in predicted(model, levels)]:
        raise InputError(
            f"--keep has the column {both[0]!r}, and so have the predictions; keep "
            "others, or rename it"
        )
    return wanted


def predicted(model: Opened, levels: list[float]) -> list[str]:
    """What the columns of predictions are called."""
    if model.is_classifier:
        return ["class", *(f"p({name})" for name in model.estimator.classes_)]
    return ["mean", "std", *(f"q{level:g}" for level in levels)]


def predictions(
    model: Opened, x: np.ndarray, is_complete: np.ndarray, levels: list[float]
) -> dict[str, Any]:
    """Columns of what is predicted for all rows, null for those that are not whole.

    All blocks have one shape, and so one program: a row's prediction is the same bits
    whatever rows are around it. `x` has the inputs of the rows that are whole.
    """
    # Without any, a row of zeros tells the types of the columns.
    x = x if len(x) else np.zeros((1, x.shape[1]))
    parts = []
    for start in range(0, len(x), BLOCK):
        some = x[start : start + BLOCK]
        filled = np.pad(some, [(0, BLOCK - len(some)), (0, 0)], mode="edge")
        parts.append([column[: len(some)] for column in _block(model, filled, levels)])
    columns = map(np.concatenate, zip(*parts, strict=True))
    names = predicted(model, levels)
    pairs = zip(names, columns, strict=True)
    return {name: _spread(column, is_complete) for name, column in pairs}


def _block(model: Opened, x: np.ndarray, levels: list[float]) -> list[np.ndarray]:
    estimator = model.estimator
    if model.is_classifier:
        chances = estimator.predict_proba(x)
        return [estimator.classes_[chances.argmax(1)], *chances.T]
    mean, std = estimator.predict(x, return_std=True)
    if model.likelihood == "gaussian":
        from scipy.special import ndtri

        return [mean, std, *(mean + std * ndtri(level) for level in levels)]
    if not levels:
        return [mean, std]
    return [mean, std, *estimator.predict(x, quantiles=levels).T]


def say_nulls(missing: int) -> None:
    """Says how many rows could not be predicted, if there are any."""
    they = "row has a null, and so has its prediction"
    if missing > 1:
        they = "rows have a null, and so have their predictions"
    if missing:
        say(f"{missing:,} {they}")


def evaluate(model: str, data: str, is_json: bool) -> None:
    """Says how well a model predicts a table that has the target."""
    from natgrad import metrics

    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=True)
    found = metrics.evaluate(opened.estimator, rows.x, rows.y)
    values = {"rows": int(rows.is_complete.sum()), "likelihood": opened.likelihood}
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
            "inputs": _wrapped(map(_said, schema.columns)),
            "nulls": schema.nulls,
            **({"beside it": ", ".join(files)} if files else {}),
        }
    )
    if values["is_resumable"]:
        text += (
            f"\n\nIts training was interrupted; natgrad resume {folder} continues it."
        )
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


def _spread(column: np.ndarray, is_complete: np.ndarray) -> Any:
    """A column for all rows, null where there was nothing to predict from."""
    import pyarrow as arrow

    values = column.astype(object) if column.dtype.kind in "OSUT" else column
    if is_complete.all():
        return arrow.array(values)
    places = np.cumsum(is_complete) - 1
    indices = arrow.array(places, mask=~is_complete)
    return arrow.array(values).take(indices)
