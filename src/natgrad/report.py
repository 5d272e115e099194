"""A self-contained HTML report on an estimator."""

import base64
import datetime
import html
import io
import platform
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from natgrad._text import counted
from natgrad.data._table import is_frame, select
from natgrad.metrics import COVERAGES, as_targets, evaluate, unwrapped
from natgrad.plot import applicable
from natgrad.plot._canvas import STYLE, some
from natgrad.sklearn import _summary as summary


__all__ = ["write"]


PICTURED = 20_000
"""How many rows the pictures show; metrics use all rows."""

PACKAGES = ("natgrad", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "matplotlib")

MEANINGS = {
    "log_density": "mean log predictive density of a row, in nats; higher is better",
    "rmse": "root of the mean squared error of the predicted mean",
    "mae": "mean absolute error of the predicted mean",
    "r2": "share of the variance explained; 1 at best",
    "error": "share of rows with a wrong predicted class",
    "log_loss": "minus the mean log probability of the observed class",
    "brier": "squared error of the probabilities",
    "calibration_error": "mean gap between predicted and observed frequencies",
    "coverage_50": "share of targets in their 50 % interval",
    "coverage_90": "share of targets in their 90 % interval",
    "coverage_95": "share of targets in their 95 % interval",
}
WORDS = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "brier": "Brier score"} | {
    f"coverage_{level}": f"coverage of {level} %" for level in COVERAGES
}
SHARES = ("error", "coverage_50", "coverage_90", "coverage_95")

CAPTIONS = {
    "fit": "Predictions, data and inducing inputs.",
    "boundary": "The predicted class; paler where it is less certain.",
    "predicted": "Observed targets over predicted ones.",
    "calibration": "Observed frequencies over predicted ones; right predictions are on "
    "the diagonal, give or take the grey band for so many rows.",
    "residuals": "Normal scores of the targets in their predictive distributions; on "
    "the diagonal the distributions have the right shape.",
    "lengthscales": "How fast the function varies along each input, which is not how "
    "important the input is.",
    "history": "Training: the ELBO should have levelled off.",
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 3rem;
  font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem;
  overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15rem; margin: 2.25rem 0 .6rem; }}
p.lead {{ margin: 0; color: #555; }}
p.warning {{ margin: .75rem 0 0; padding: .5rem .8rem; background: #fff3cd;
  border-left: .3rem solid #b7791f; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0;
  border-bottom: 1px solid #e3e3e3; overflow-wrap: anywhere; }}
th {{ font-weight: 500; width: 34%; }}
.two th {{ width: 55%; }}
td.number {{ font-variant-numeric: tabular-nums; white-space: nowrap; width: 7rem; }}
td.note {{ color: #555; }}
.two, .pictures {{ display: grid; column-gap: 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }}
.pictures {{ gap: 1.5rem; }}
figure {{ margin: 0; min-width: 0; }}
img {{ display: block; width: 100%; height: auto; }}
figcaption {{ color: #555; font-size: .9rem; margin-top: .35rem; }}
@media (max-width: 40rem) {{
  body {{ padding: 1rem .9rem 2rem; }}
  .metrics th, .metrics td {{ padding-right: .6rem; }}
  .metrics td.note {{ font-size: .85rem; }}
  .metrics td.number {{ width: auto; }}
}}
@media print {{ figure, tr {{ break-inside: avoid; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="lead">{lead}</p>
{warning}
<h2>Quality on these data</h2>
<table class="metrics">{metrics}</table>
<h2>Pictures</h2>
<div class="pictures">{pictures}</div>
<div class="two">
<section><h2>Model</h2><table>{summary}</table></section>
<section><h2>Configuration</h2><table>{configuration}</table></section>
<section><h2>Versions</h2><table>{versions}</table></section>
</div>
</body>
</html>
"""


def write(
    estimator: object, X: object, y: object, path: str | Path, title: str | None = None
) -> Path:
    """Writes metrics, pictures, configuration and versions to one HTML file.

    The metrics are those of the given data: pass rows the fit has not seen. Returns the
    path.

    >>> natgrad.report.write(regressor, x, y, "report.html").name
    'report.html'
    """
    inner, inputs = unwrapped(estimator, X)
    target = as_targets(inputs, y)
    title = title or f"{type(inner).__name__}: {getattr(y, 'name', None) or 'report'}"
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    lead = (
        f"{counted(len(target), 'row')}, {counted(inner.n_features_in_, 'input')}; "
        f"written {now} by natgrad {metadata.version('natgrad')}."
    )
    page = PAGE.format(
        title=html.escape(title),
        lead=html.escape(lead),
        warning=_warning(inner),
        metrics=_metrics_table(evaluate(estimator, X, y)),
        pictures=_pictures(inner, inputs, y),
        summary=_table(summary.rows(inner)),
        configuration=_table(_configuration(estimator, inner)),
        versions=_table(_versions()),
    )
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def _warning(estimator: Any) -> str:
    """A warning above the metrics, if training did not converge."""
    if estimator.converged_:
        return ""
    text = f"Not converged: {estimator.message_}. Train longer before you trust this."
    return f'<p class="warning">{html.escape(text)}</p>'


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    row = "<tr><th>{}</th><td>{}</td></tr>"
    return "\n".join(row.format(*(html.escape(str(x)) for x in pair)) for pair in rows)


def _metrics_table(values: dict[str, float]) -> str:
    row = '<tr><th>{}</th><td class="number">{}</td><td class="note">{}</td></tr>'
    lines = []
    for name, value in values.items():
        text = f"{100 * value:.1f} %" if name in SHARES else f"{value:.4g}"
        words = WORDS.get(name, name.replace("_", " "))
        parts = (words, text.replace("-", "−"), MEANINGS[name])
        lines.append(row.format(*map(html.escape, parts)))
    return "\n".join(lines)


def _configuration(estimator: Any, inner: Any) -> list[tuple[str, str]]:
    rows = [("estimator", type(inner).__name__)]
    if estimator is not inner:
        rows.append(("after", " → ".join(name for name, _ in estimator.steps[:-1])))
    for name, value in inner.get_params(deep=False).items():
        text = " ".join(repr(value).split())
        rows.append((name, text if len(text) <= 300 else f"{text[:299]}…"))
    return rows


def _versions() -> list[tuple[str, str]]:
    rows = [("python", f"{platform.python_version()}, {platform.system()}")]
    for name in PACKAGES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return rows


# Pictures


def _pictures(estimator: Any, X: Any, y: Any) -> str:
    target = as_targets(X, y)
    rows = some(len(target), PICTURED)
    if len(rows) < len(target):
        X = select(X, rows, axis=0)
        y = select(y, rows, axis=0) if is_frame(y) else target[rows]
    figures = []
    for name, draw in applicable(estimator, X, y).items():
        caption = html.escape(CAPTIONS[name])
        if len(rows) < len(target) and name not in ("lengthscales", "history"):
            caption += f" {len(rows):,} rows, drawn at random."
        figures.append(
            f'<figure><img alt="{caption}" src="{_drawn(draw)}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "\n".join(figures)


def _drawn(draw: Callable[[Any], Any]) -> str:
    """A picture as a data URL."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.BytesIO()
    style: dict[Any, Any] = {
        "svg.fonttype": "path",
        "svg.hashsalt": "natgrad",
        "savefig.dpi": 200,
    }
    with rc_context(STYLE | style):
        figure = Figure(figsize=(4.8, 3.5), layout="constrained")
        draw(figure.subplots())
        figure.savefig(file, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()
