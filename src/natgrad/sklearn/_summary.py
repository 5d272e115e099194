"""A fitted estimator as a table of text or HTML."""

import html as escaping
from typing import Any

import numpy as np

from natgrad._text import listed, printable
from natgrad.sklearn._double import in_double
from natgrad.sklearn._kernels import summands
from natgrad.sklearn._targets import is_constant
from natgrad.train._loop import CONVERGED


SHOWN = 10
"""How many lengthscales are shown, the shortest first."""

COLUMNS = 60
"""How many columns that are not plain numbers are shown."""


@in_double
def rows(estimator: Any) -> list[tuple[str, str]]:
    """Names and values, in the user's units."""
    model = estimator.model_
    observed = model.likelihood.observed
    is_censored = observed is not model.likelihood
    likelihood = type(observed).__name__ + (", censored" if is_censored else "")
    kernel = " + ".join(type(part).__name__ for part in summands(model.kernel))
    others = (estimator.columns or {}).items()
    table = [
        ("likelihood", likelihood),
        *((f"  {name} of the target", f"column {column}") for name, column in others),
        ("kernel", kernel),
        *_lengthscales(estimator),
        *_parameters(estimator),
    ]
    table += _columns(estimator)
    if hasattr(estimator, "classes_"):
        table.append(("classes", listed(estimator.classes_, SHOWN)))
    table += [
        ("rows", f"{estimator.n_rows_seen_:,g}"),
        ("inducing inputs", f"{estimator.n_inducing_}"),
        _quality(estimator),
        ("steps, seconds", f"{estimator.n_iter_}, {estimator.fit_seconds_:.1f}"),
        ("converged", _convergence(estimator)),
    ]
    return [(printable(name), printable(value)) for name, value in table]


def _quality(estimator: Any) -> tuple[str, str]:
    """The ELBO, or what held-out rows say if there were some."""
    score = estimator.history_[-1].score
    if score is None:
        return "ELBO per row", f"{estimator.elbo_:.4f}"
    log_density = score - float(np.sum(np.log(estimator.y_scale_)))
    return "log density of held-out rows", f"{log_density:.4f}"


def _convergence(estimator: Any) -> str:
    if estimator.message_ == CONVERGED:
        return "yes"
    return f"{'yes' if estimator.converged_ else 'no'}: {estimator.message_}"


def text(estimator: Any) -> str:
    """A table of two columns."""
    table = rows(estimator)
    width = max(len(name) for name, _ in table)
    lines = [f"  {name:<{width}}  {value}" for name, value in table]
    return "\n".join([type(estimator).__name__, *lines])


def html(estimator: Any) -> str:
    """The same for a notebook."""
    left = "style='text-align:left'"
    cell = f"<tr><th {left}>{{}}</th><td {left}>{{}}</td></tr>"
    body = "".join(cell.format(*map(escaping.escape, pair)) for pair in rows(estimator))
    name = escaping.escape(type(estimator).__name__)
    return f"<table><caption><b>{name}</b></caption><tbody>{body}</tbody></table>"


def feature_names(estimator: Any) -> list[str]:
    """The names of what the model sees of the columns."""
    return estimator.schema_.features


def _columns(estimator: Any) -> list[tuple[str, str]]:
    """What was done with each column, unless all are numbers without gaps."""
    schema = estimator.schema_
    if schema.is_plain:
        return []
    kept = [column for column in schema.columns if column.describe() != "number"]
    others = len(schema.columns) - len(kept)
    rest = f", {others} of them numbers without gaps" if others else ""
    table = [("inputs", f"{len(schema.columns)}{rest}")]
    table += [(f"  {column.name}", column.describe()) for column in kept[:COLUMNS]]
    if len(kept) > COLUMNS:
        table.append(("", f"and {len(kept) - COLUMNS} more in schema_"))
    return table


def _lengthscales(estimator: Any) -> list[tuple[str, str]]:
    if not hasattr(estimator, "lengthscales_"):
        return []
    names, lengths = feature_names(estimator), estimator.lengthscales_
    varying = np.flatnonzero(~is_constant(estimator.x_scale_))
    speeds = inverse_lengthscales(estimator)[varying]
    order = varying[np.argsort(-speeds, kind="stable")]
    label = lambda i: f"  lengthscale of {names[i]}"
    shown = [(label(i), _short(lengths[i])) for i in order[:SHOWN]]
    if len(order) > SHOWN:
        shown.append(("", f"and {len(order) - SHOWN} longer"))
    if len(order) < len(names):
        constant = np.delete(names, varying)
        shown.append(("constant inputs, without effect", listed(constant, SHOWN)))
    return shown


def inverse_lengthscales(estimator: Any) -> np.ndarray:
    """One over each lengthscale, in units of the input's scale.

    It is 0 for an input that was constant: its lengthscale is infinite.
    """
    lengths = estimator.lengthscales_
    scale = np.broadcast_to(estimator.x_scale_, lengths.shape)
    return scale / lengths


def _parameters(estimator: Any) -> list[tuple[str, str]]:
    """What the likelihood has learned, of each output."""
    likelihood, unit = estimator.model_.likelihood, estimator.y_scale_
    if likelihood.outputs is None:
        return [(label, _short(value)) for label, value in likelihood.summary(unit)]
    table = [
        ("outputs", f"{likelihood.outputs}"),
        ("latent functions", f"{likelihood.latents}"),
    ]
    each = zip(likelihood.likelihoods, unit, strict=True)
    for place, (own, scale) in enumerate(list(each)[:SHOWN]):
        found = [(label, _short(value)) for label, value in own.summary(scale)]
        found = found or [(type(own).__name__, "")]
        table += [(f"  {label} of output {place}", value) for label, value in found]
    if likelihood.outputs > SHOWN:
        table.append(("", f"and {likelihood.outputs - SHOWN} more"))
    return table


def _short(value: float) -> str:
    """Three digits, and zeros rather than an exponent where these are few."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if 1000 <= abs(value) < 1e7 else text
