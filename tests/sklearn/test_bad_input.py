"""What is wrong with a table is said in one sentence, or it works all the same."""

import warnings

import numpy as np
import pandas as pd
import polars
import pyarrow as arrow
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from natgrad.errors import InputError, InputWarning
from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor
from tests.variants import variants


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

SHORT = {"max_iter": 5, "n_inducing": 8, "verbose": False}
ROWS = 32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 2))
Y = X[:, 0] + 0.1 * RNG.standard_normal(ROWS)
LABELS = np.where(Y > 0, "yes", "no").astype(object)
NO_TARGET = "y has no value in 1 of 32 rows, the first in row 3; drop these rows"


def changed(array, value):
    array = array.copy()
    array.flat[3] = value
    return array


def regressor(likelihood="gaussian"):
    return GPRegressor(likelihood, **SHORT)


WRONG = {
    "NaN in y": (regressor(), X, changed(Y, np.nan), NO_TARGET),
    "None in y": (GPClassifier(**SHORT), X, changed(LABELS, None), NO_TARGET),
    "NA in y": (GPClassifier(**SHORT), X, changed(LABELS, pd.NA), NO_TARGET),
    "NaN in a list of labels": (
        GPClassifier(**SHORT),
        X,
        changed(LABELS, np.nan).tolist(),
        NO_TARGET,
    ),
    "null in y": (
        GPOrdinal(**SHORT),
        X,
        pd.Series(changed(np.sign(Y), np.nan), dtype="Int64"),
        NO_TARGET,
    ),
    "inf": (regressor(), changed(X, np.inf), Y, "infinity"),
    "one class": (GPClassifier(**SHORT), X, np.ones(ROWS), "only one class"),
    "one order": (GPOrdinal(**SHORT), X, np.ones(ROWS), "only one class"),
    "strings": (regressor(), X.astype(str) + "a", Y, "could not convert string"),
    "mixed types": (
        regressor(),
        np.asarray([[1.0, "a"], [2.0, 3.0]], dtype=object),
        Y[:2],
        "could not convert string",
    ),
    "text as y": (regressor(), X, np.asarray(["a", "b"] * 16), "could not convert"),
    "real classes": (GPClassifier(**SHORT), X, Y, "Unknown label type: continuous"),
    "negative counts": (regressor("poisson"), X, np.floor(Y * 10), "Poisson needs"),
    "parts of counts": (regressor("negative-binomial"), X, abs(Y), "NegativeBinomial"),
    "negative for gamma": (regressor("gamma"), X, Y, "Gamma needs positive"),
    "0 and 1": (regressor("beta"), X, (Y > 0).astype(float), "between 0 and 1"),
    "empty": (regressor(), X[:0], Y[:0], "minimum of 1 is required"),
    "empty frame": (regressor(), pd.DataFrame(), Y[:0], "at least one array|required"),
    "sparse": (regressor(), sparse.csr_matrix(X), Y, "Sparse data was passed"),
    "lengths": (regressor(), X, Y[1:], "inconsistent numbers of samples"),
    "no y": (regressor(), X, None, "requires y to be passed"),
    "weights of 0": (regressor(), X, Y, "at least one non-zero"),
    "likelihood": (regressor("gausian"), X, Y, "likelihood is 'gausian'; it should be"),
    "two of three": (
        GPClassifier("bernoulli", **SHORT),
        X,
        np.arange(ROWS) % 3,
        "use 'softmax' or 'robust-max'",
    ),
    "kernel": (GPRegressor(kernel="matern"), X, Y, "kernel is 'matern'; it should be"),
    "inducing": (GPRegressor(n_inducing=0), X, Y, "n_inducing is 0; it should be"),
    "steps": (GPRegressor(max_iter=0.5), X, Y, "max_iter is 0.5; it should be"),
    "verbose": (GPRegressor(verbose=-1), X, Y, "verbose is -1; it should be a whole"),
    "loud": (GPRegressor(verbose="loud"), X, Y, "verbose is 'loud'; it should be"),
    "minutes": (
        GPRegressor(minutes=0),
        X,
        Y,
        "minutes is 0; it should be a number above 0",
    ),
}

DAYS = pd.date_range("2024-02-28", periods=ROWS)
COLUMNS = {
    "text": (["red", "blue"] * 16, "is of type .*, such as red; it should be of n"),
    "categories": (
        pd.Categorical(["red", "blue"] * 16),
        "is of type .*, such as red; it should be of numbers",
    ),
    "days": (DAYS, "holds dates or times, such as 2024-02-28"),
    "days as objects": (DAYS.date, "holds dates or times, such as 2024-02-28"),
}


@pytest.mark.parametrize("library", variants(["pandas", "polars", "arrow"], ["pandas"]))
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("others", [["a"], []])
def test_a_column_that_was_of_numbers_is_named(name, others, library):
    values, said = COLUMNS[name]
    frame = pd.DataFrame({"a": X[:, 0], "c": values})[[*others, "c"]]
    fitted = regressor().fit(frame.assign(c=X[:, 1]), Y)
    if library == "polars":
        frame = polars.from_pandas(frame)
    if library == "arrow":
        frame = arrow.Table.from_pandas(frame, preserve_index=False)
    with pytest.raises(InputError, match=f"column 'c' {said}"):
        fitted.predict(frame)


def test_a_column_of_several_types_is_named():
    mixed = pd.DataFrame({"a": X[:, 0], "c": ["red", 1.0, DAYS[0], None] * 8})
    with pytest.raises(InputError, match="column 'c' cannot be read: .*numbers, text"):
        regressor().fit(mixed, Y)


def test_objects_that_are_numbers_are_numbers():
    texts = X[:, 1].astype(str).astype(object)
    x = pd.DataFrame({"a": X[:, 0].astype(object), "b": pd.Series(texts, dtype=object)})
    plain, objects = regressor().fit(X, Y), regressor().fit(x, Y)
    np.testing.assert_array_equal(plain.predict(X), objects.predict(x))
    with pytest.raises(InputError, match="column 'b' is of type .*, such as none"):
        objects.predict(x.assign(b="none"))
    with pytest.raises(InputError, match="column 'X' holds dates"):
        plain.predict(np.zeros((2, 2), "datetime64[s]"))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(name):
    estimator, x, y, said = WRONG[name]
    weight = {"sample_weight": np.zeros(ROWS)} if name == "weights of 0" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, TypeError), match=said) as info:
            estimator.fit(x, y, **weight)
    first = str(info.value).splitlines()[0]
    assert 10 < len(first) < 300


WORKS = {
    "one row": (regressor(), X[:1], Y[:1]),
    "constant target": (regressor(), X, np.full(ROWS, 7.0)),
    "constant column": (regressor(), X * [1, 0] + [0, 3.3], Y),
    "duplicate columns": (regressor(), X[:, [0, 0]], Y),
    "duplicate rows": (GPRegressor(max_iter=5, verbose=False), X[[0] * ROWS], Y),
    "target at 1e300": (regressor(), X, Y * 1e300),
    "target at 1e-300": (regressor(), X, Y * 1e-300),
    "inputs at 1e300": (regressor(), X * 1e300, Y),
    "10,000 columns": (regressor(), RNG.standard_normal((ROWS, 10_000)), Y),
    "text as classes": (GPClassifier(**SHORT), X, np.where(Y > 0, "yes", "no")),
    "an outlier of 1e9": (regressor("student-t"), X, changed(Y, 1e9)),
}


OFTEN = ["one row", "constant column", "target at 1e300", "text as classes"]


@pytest.mark.filterwarnings("ignore:there is 1 distinct row")
@pytest.mark.parametrize("name", variants(WORKS, OFTEN))
def test_what_is_odd_works_all_the_same(name):
    estimator, x, y = WORKS[name]
    estimator.fit(x, y)
    predicted = estimator.predict(x)
    if predicted.dtype.kind == "f":
        assert np.isfinite(predicted).all()
        assert np.isfinite(estimator.log_density(x, y)).all()
        size = abs(y).max()
        assert (abs(predicted) <= 3 * size).all()
    else:
        assert set(predicted) <= set(y)


def test_a_constant_target_is_predicted():
    estimator, x, y = WORKS["constant target"]
    mean, std = estimator.fit(x, y).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 7, atol=0.5)
    assert (std < 2).all()


def test_prediction_says_what_is_wrong_with_its_rows():
    fitted = regressor().fit(pd.DataFrame(X, columns=["age", "height"]), Y)
    with pytest.raises(ValueError, match="age"):
        fitted.predict(pd.DataFrame(X, columns=["size", "height"]))
    fitted = regressor().fit(X, Y)
    with pytest.raises(ValueError, match="3 features.*expecting 2"):
        fitted.predict(np.zeros((4, 3)))
    with pytest.warns(InputWarning, match="column 'x1' has nulls"):
        fitted.predict(changed(X, np.nan))
    with pytest.raises(ValueError, match="not fitted|NotFitted"):
        regressor().predict(X)
    classifier = GPClassifier(**SHORT).fit(X, np.where(Y > 0, "yes", "no"))
    with pytest.raises(ValueError, match="the class 'maybe', which is not in"):
        classifier.log_density(X[:1], ["maybe"])


def test_unseen_categories_are_as_the_encoder_says():
    frame = pd.DataFrame({"size": Y, "colour": np.where(Y > 0, "red", "blue")})
    unseen = pd.DataFrame({"size": [0.0], "colour": ["green"]})
    for rule, said in (("error", "unknown categories"), ("ignore", None)):
        encoder = make_column_transformer(
            (OneHotEncoder(handle_unknown=rule, sparse_output=False), ["colour"]),
            remainder="passthrough",
        )
        pipeline = make_pipeline(encoder, regressor()).fit(frame, Y)
        if said is None:
            assert np.isfinite(pipeline.predict(unseen)).all()
        else:
            with pytest.raises(ValueError, match=said):
                pipeline.predict(unseen)
