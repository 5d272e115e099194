"""Laws of the pictures."""

import io
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from natgrad import plot
from natgrad.errors import InputError
from natgrad.metrics import evaluate
from natgrad.plot._canvas import elided
from natgrad.sklearn import GPRegressor
from natgrad.sklearn._targets import CONSTANT
from natgrad.train import History
from tests.estimators import KINDS, NASTY, fitted, table
from tests.variants import variants


matplotlib.use("Agg")

PICTURES = {
    "history": lambda e, X, y, ax: plot.history(e, ax),
    "lengthscales": lambda e, X, y, ax: plot.lengthscales(e, ax),
    "fit": plot.fit,
    "boundary": plot.boundary,
    "calibration": plot.calibration,
    "predicted": plot.predicted,
    "residuals": plot.residuals,
}


def drawn(picture, kind, *arguments):
    """The axes of a picture of a kind, on a figure that has been drawn."""
    figure = Figure(figsize=(5, 4), layout="constrained")
    given = figure.subplots()
    ax = picture(fitted(kind), *arguments, ax=given)
    assert ax is given
    figure.savefig(io.BytesIO())
    return ax


@pytest.mark.parametrize("kind", variants(KINDS, ["one", "classes"]))
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_draws_on_the_axes_or_says_what_it_needs(name, kind):
    X, y = table(kind)
    width = X.shape[1]
    has_classes = "class" in kind or kind == "grades"
    needs = {"fit": width == 1, "boundary": has_classes and width == 2}
    figure = Figure(layout="constrained")
    ax = figure.subplots()
    if needs.get(name, True):
        assert PICTURES[name](fitted(kind), X, y, ax) is ax
        figure.savefig(io.BytesIO())
        assert ax.has_data() and ax.get_xlabel()
        assert ax.get_window_extent().width > 0.4 * figure.bbox.width
    else:
        with pytest.raises(InputError, match=rf"plot\.{name} needs .*; use plot\."):
            PICTURES[name](fitted(kind), X, y, ax)


def test_without_axes_a_figure_is_made():
    from matplotlib import pyplot

    ax = plot.history(fitted("one"))
    assert ax.figure is pyplot.gcf()
    pyplot.close(ax.figure)


def test_the_history_of_an_estimator_is_in_its_units():
    estimator = fitted("one")
    (line,) = drawn(plot.history, "one").get_lines()
    assert line.get_ydata()[-1] == pytest.approx(estimator.elbo_)
    ax = Figure().subplots()
    (line,) = plot.history(estimator.history_, ax).get_lines()
    last = estimator.elbo_ + np.log(estimator.y_scale_)
    assert line.get_ydata()[-1] == pytest.approx(last)


def test_the_mean_and_the_bands_are_those_of_the_predictions():
    estimator = fitted("one")
    ax = drawn(plot.fit, "one", *table("one"))
    (mean,) = (line for line in ax.get_lines() if line.get_label() == "mean")
    at = mean.get_xdata()[:, None]
    np.testing.assert_allclose(mean.get_ydata(), _at(estimator, at))
    (outer,) = (c for c in ax.collections if c.get_label().startswith("90 %"))
    x, y = outer.get_paths()[0].vertices.T
    low, high = _at(estimator, x[:, None], quantiles=[0.05, 0.95]).T
    spread = high - low
    assert (np.minimum(abs(y - low), abs(y - high)) < 0.02 * spread).all()


def _at(estimator, x, **more):
    names = estimator.feature_names_in_
    return estimator.predict(type(table("one")[0])(x, columns=names), **more)


def test_predictions_outside_their_interval_are_those_that_are_counted():
    X, y = table("three")
    ax = drawn(plot.predicted, "three", X, y)
    labels = ax.get_legend_handles_labels()[1]
    inside = evaluate(fitted("three"), X, y)["coverage_90"]
    assert f"inside: {inside:.0%}".replace("%", " %") in labels


@pytest.mark.parametrize("kind", ["one", "three", "counts"])
def test_the_coverage_in_the_picture_is_that_of_the_metrics(kind):
    X, y = table(kind)
    shown = [text.get_text() for text in drawn(plot.calibration, kind, X, y).texts]
    found = evaluate(fitted(kind), X, y)
    assert shown == [f"{100 * found[f'coverage_{k}']:.1f} %" for k in (50, 90)]


@pytest.mark.parametrize("kind", ["two classes", "classes", "grades"])
def test_a_table_of_classes_counts_every_row(kind):
    X, y = table(kind)
    ax = drawn(plot.predicted, kind, X, y)
    numbers = [int(text.get_text()) for text in ax.texts]
    assert sum(numbers) == len(y)
    size = len(set(y))
    right = (fitted(kind).predict(X) == y).sum()
    assert sum(numbers[:: size + 1]) == right


@pytest.mark.parametrize("width", [1, 784])
def test_inputs_with_the_shortest_lengthscales_come_first_and_by_name(width):
    lengths = np.geomspace(1, 1e3, width)[::-1]
    estimator = SimpleNamespace(
        model_=None,
        lengthscales_=lengths * 5,
        x_scale_=np.full(width, 5.0),
        schema_=SimpleNamespace(features=[f"{NASTY} {i}" for i in range(width)]),
    )
    figure = Figure(figsize=(5, 4), layout="constrained")
    ax = plot.lengthscales(estimator, figure.subplots())
    figure.savefig(io.BytesIO())
    values = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(values, 1 / lengths[::-1][:20])
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[0].endswith(str(width - 1)) and max(map(len, names)) <= 30
    assert ("of 784" in ax.get_xlabel()) == (width == 784)
    assert ax.get_window_extent().width > 0.45 * figure.bbox.width


def test_the_function_does_not_vary_along_a_constant_input():
    estimator = SimpleNamespace(
        model_=None,
        lengthscales_=np.asarray([np.inf, 3.0]),
        x_scale_=np.asarray([CONSTANT, 6.0]),
        schema_=SimpleNamespace(features=["x0", "x1"]),
    )
    ax = plot.lengthscales(estimator, Figure().subplots())
    assert [bar.get_width() for bar in ax.patches] == [2.0, 0.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x1", "x0"]


def test_names_are_elided_in_the_middle_and_hold_no_formula():
    assert elided("short") == "short"
    assert elided(np.float64(3)) == "3" and elided(0.5) == "0.5"
    assert elided("two\nlines") == "two lines"
    assert elided("$x$ and $y$") == r"\$x\$ and \$y\$"
    text = elided("a" * 50 + "end", 20)
    assert len(text) == 20 and text.startswith("aaa") and text.endswith("end")


def test_what_cannot_be_drawn_is_said():
    X, y = table("three")
    with pytest.raises(InputError, match="3 inputs; plot.fit needs one with 1; use"):
        plot.fit(fitted("three"), X, y)
    with pytest.raises(InputError, match="GPRegressor without a model; .* fitted"):
        plot.lengthscales(GPRegressor())
    bare = SimpleNamespace(model_=SimpleNamespace(kernel=None))
    with pytest.raises(InputError, match="NoneType, which has no lengthscales"):
        plot.lengthscales(bare)
    with pytest.raises(InputError, match="no records"):
        plot.history(History())
    with pytest.raises(InputError, match="one target for each of the 60 rows"):
        plot.calibration(fitted("three"), X, y[:5])
