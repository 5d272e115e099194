"""A fitted estimator as a table of text or HTML."""

import html as escaping
from typing import Any

import numpy as np

from natgrad._printable import printable
from natgrad.sklearn._targets import is_constant
from natgrad.train._loop import CONVERGED


SHOWN = 10
"""How many lengthscales are shown, the shortest first: they matter most."""


def rows(estimator: Any) -> list[tuple[str, str]]:
    """Names and values, in the user's units."""
    model = estimator.model_
    likelihood = type(model.likelihood).__name__
    table = [
        ("likelihood", likelihood),
        ("kernel", type(model.kernel).__name__),
        *_lengthscales(estimator),
        *_noise(estimator),
    ]
    if hasattr(estimator, "classes_"):
        table.append(("classes", _elided(map(str, estimator.classes_))))
    table += [
        ("rows", f"{estimator.n_rows_seen_:,g}"),
        ("inducing inputs", f"{estimator.n_inducing_}"),
        ("ELBO per row", f"{estimator.elbo_:.4f}"),
        ("steps, seconds", f"{estimator.n_iter_}, {estimator.fit_seconds_:.1f}"),
        ("converged", _convergence(estimator)),
    ]
    return [(printable(name), printable(value)) for name, value in table]


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
    """The names of the columns, or x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{i}" for i in range(estimator.n_features_in_)]
    return [str(name) for name in names]


def _lengthscales(estimator: Any) -> list[tuple[str, str]]:
    if not hasattr(estimator, "lengthscales_"):
        return []
    names, lengths = feature_names(estimator), estimator.lengthscales_
    varying = np.flatnonzero(~is_constant(estimator.x_scale_))
    order = varying[np.argsort(-relevances(estimator)[varying], kind="stable")]
    shown = [
        (f"  lengthscale of {names[i]}", _short(lengths[i])) for i in order[:SHOWN]
    ]
    if len(order) > SHOWN:
        shown.append(("", f"and {len(order) - SHOWN} longer"))
    if len(order) < len(names):
        constant = np.delete(names, varying)
        shown.append(("constant inputs, without effect", _elided(constant)))
    return shown


def relevances(estimator: Any) -> np.ndarray:
    """One over each lengthscale, in units of the input's scale.

    It is 0 for an input that was constant: its lengthscale is infinite.
    """
    lengths = estimator.lengthscales_
    scale = np.broadcast_to(estimator.x_scale_, lengths.shape)
    return scale / lengths


def _noise(estimator: Any) -> list[tuple[str, str]]:
    likelihood, unit = estimator.model_.likelihood, estimator.y_scale_
    kinds = {
        "Gaussian": ("noise (deviation)", lambda: np.sqrt(likelihood.variance) * unit),
        "StudentT": (
            f"noise (scale, {likelihood.dof:g} degrees of freedom)"
            if hasattr(likelihood, "dof")
            else "",
            lambda: likelihood.scale * unit,
        ),
        "Gamma": ("shape", lambda: likelihood.shape),
        "Beta": ("concentration", lambda: likelihood.scale),
        "NegativeBinomial": ("dispersion", lambda: likelihood.dispersion),
        "Ordinal": ("noise (scale)", lambda: likelihood.scale),
    }
    name = type(likelihood).__name__
    if name not in kinds:
        return []
    label, value = kinds[name]
    return [(label, _short(float(value())))]


def _short(value: float) -> str:
    """Three digits, and zeros rather than an exponent where these are few."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if 1000 <= abs(value) < 1e7 else text


def _elided(names: Any) -> str:
    names = list(names)
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown}, ... ({len(names)})"
