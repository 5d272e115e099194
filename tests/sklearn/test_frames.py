"""Laws of estimators fitted to frames: categories, gaps, booleans and dates."""

import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import onnxruntime
import pandas as pd
import polars
import pyarrow as arrow
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from natgrad import metrics, plot, report
from natgrad.data._schema import Schema
from natgrad.errors import InputError, InputWarning
from natgrad.gp._files import FORMAT
from natgrad.sklearn import GPClassifier, GPRegressor, load


pytestmark = [
    pytest.mark.filterwarnings("ignore:the ELBO still"),
    pytest.mark.filterwarnings("ignore:asked for 8 inducing inputs"),
    pytest.mark.filterwarnings("ignore:the inducing inputs see little"),
]

SHORT = {"max_iter": 5, "n_inducing": 8, "verbose": False}
ROWS = 60
RNG = np.random.default_rng(0)
DAYS = pd.date_range("2024-02-27", periods=ROWS)
TOWNS = np.array(["Bath", "Ely", "Rye"])[RNG.integers(0, 3, ROWS)]
FRAME = pd.DataFrame(
    {
        "size": RNG.standard_normal(ROWS),
        "rooms": RNG.integers(1, 6, ROWS),
        "new": RNG.random(ROWS) < 0.5,
        "town": pd.Series(TOWNS).mask(np.arange(ROWS) % 10 == 3),
        "grade": pd.Categorical(RNG.choice(["a", "b"], ROWS)),
        "sold": DAYS,
        "age": pd.Series(RNG.uniform(0, 90, ROWS)).mask(np.arange(ROWS) % 7 == 2),
    }
)
FEATURES = [
    *("size", "rooms", "new"),
    *("town=Bath", "town=Ely", "town=Rye", "town missing"),
    *("grade=a", "grade=b", "sold days", "age", "age missing"),
]
Y = FRAME["size"] + (TOWNS == "Rye") + 0.1 * RNG.standard_normal(ROWS)
OTHERS = {
    "polars": polars.from_pandas,
    "arrow": lambda frame: arrow.Table.from_pandas(frame, preserve_index=False),
}


def by_hand(frame):
    """The matrix that natgrad should make of FRAME."""
    town, age = frame["town"], frame["age"]
    return np.column_stack(
        [
            *(frame[name].astype(float) for name in ("size", "rooms", "new")),
            *(town == value for value in ("Bath", "Ely", "Rye")),
            town.isna(),
            *(frame["grade"] == value for value in "ab"),
            (frame["sold"] - DAYS[0]) / pd.Timedelta(days=1),
            age.fillna(np.mean(FRAME["age"].dropna().to_numpy())),
            age.isna(),
        ]
    ).astype(float)


@pytest.fixture(scope="module")
def model():
    return GPRegressor(**SHORT).fit(FRAME, Y)


def test_a_frame_is_the_matrix_that_one_would_make_by_hand(model):
    assert model.schema_.features == FEATURES
    np.testing.assert_array_equal(model._rows(FRAME).x, by_hand(FRAME))
    hand = GPRegressor(**SHORT).fit(by_hand(FRAME), Y)
    for one, other in zip(
        model.predict(FRAME, return_std=True),
        hand.predict(by_hand(FRAME), return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert model.score(FRAME, Y) == hand.score(by_hand(FRAME), Y)


def test_names_and_numbers_of_inputs_are_those_of_the_user(model):
    assert model.n_features_in_ == 7
    assert model.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert len(model.lengthscales_) == len(FEATURES)
    assert model.inducing_points_.shape == (8, len(FEATURES))


@pytest.mark.parametrize("library", OTHERS)
def test_frames_of_all_libraries_are_one_table(model, library):
    frame = OTHERS[library](FRAME)
    other = GPRegressor(**SHORT).fit(frame, Y)
    assert other.schema_ == model.schema_
    np.testing.assert_array_equal(model.predict(FRAME), other.predict(frame))
    np.testing.assert_array_equal(model.predict(frame), other.predict(FRAME))


def test_categories_of_any_values_are_columns_and_dates_among_them_are_dates():
    sizes = np.arange(24.0) % 7
    frame = pd.DataFrame({"size": sizes, "part": pd.cut(sizes, 2), "day": DAYS[:24]})
    model = GPRegressor(**SHORT).fit(frame, Y[:24])
    parts = ["part=(-0.006, 3.0]", "part=(3.0, 6.0]"]
    assert model.schema_.features == ["size", *parts, "day days"]
    expected = model.predict(frame)
    coded = frame.assign(day=pd.Categorical(frame["day"]))
    np.testing.assert_array_equal(model.predict(coded), expected)
    events = frame[["size"]].assign(event=pd.Categorical(sizes < 6, [True, False]))
    survival = GPRegressor("weibull", columns={"event": "event"}, **SHORT)
    assert survival.fit(events, np.exp(Y[:24])).n_features_in_ == 1


def test_columns_of_arrow_in_a_frame_are_those_of_arrow(model):
    table = arrow.Table.from_pandas(FRAME, preserve_index=False)
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    assert all(str(kind).endswith("[pyarrow]") for kind in frame.dtypes)
    np.testing.assert_array_equal(model.predict(frame), model.predict(FRAME))


def test_a_column_may_be_called_as_a_method_is():
    frame = pd.DataFrame({"column_names": np.arange(24.0), "town": ["Ely", "Rye"] * 12})
    features = GPRegressor(**SHORT).fit(frame, Y[:24]).schema_.features
    assert features == ["column_names", "town=Ely", "town=Rye"]


def test_whole_numbers_with_gaps_keep_their_digits_as_categories():
    frame = polars.DataFrame({"id": ["9007199254740993", "8"] * 12, "size": Y[:24]})
    model = GPRegressor(**SHORT).fit(frame, Y[:24])
    rows = polars.DataFrame({"id": [2**53 + 1, None], "size": [0.0, 0.0]})
    with pytest.warns(InputWarning, match="column 'id' has nulls"):
        found = model._rows(rows).x[:, :2]
    np.testing.assert_array_equal(found, [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    "column",
    [np.zeros((24, 2)), [b"1", b"2"] * 12, [[1, 2], [3]] * 12],
    ids=["arrays", "bytes", "lists"],
)
def test_columns_that_are_no_column_are_refused_by_name(column):
    frame = polars.DataFrame(
        {"town": ["Ely", "Rye"] * 12, "odd": polars.Series(column)}
    )
    with pytest.raises(InputError, match="column 'odd' is of type"):
        GPRegressor(**SHORT).fit(frame, Y[:24])


WITHOUT_ARROW = """
import sys


class WithoutArrow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, WithoutArrow)
import numpy as np
import pandas
import polars
from natgrad.sklearn import GPRegressor

days = np.datetime64("2024-01-01") + np.arange(20)
columns = {"town": ["Ely", "Rye"] * 10, "day": days, "size": np.arange(20.0)}
for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
    model = GPRegressor("gaussian", n_inducing=4, max_iter=2, verbose=0)
    print(model.fit(frame, np.arange(20.0)).schema_.features)
"""


def test_frames_of_pandas_and_polars_need_no_arrow():
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_ARROW]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    features = str(["town=Ely", "town=Rye", "day days", "size"])
    assert found.stdout.splitlines() == [features] * 2


def test_columns_in_another_order_are_refused_as_by_scikit_learn(model):
    with pytest.raises(ValueError, match="same order"):
        model.predict(FRAME[FRAME.columns[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(FRAME.rename(columns={"town": "city"}))
    with pytest.raises(InputError, match="give a frame of pandas, polars or Arrow"):
        model.predict(np.zeros((2, 7)))


def test_the_encoding_is_kept_by_files_pickles_and_clones(model, tmp_path):
    expected = model.predict(FRAME)
    model.save(tmp_path / "model")
    for other in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert other.schema_ == model.schema_
        np.testing.assert_array_equal(other.predict(FRAME), expected)
        assert str(other) == str(model)
    again = clone(model).fit(FRAME, Y)
    np.testing.assert_array_equal(again.predict(FRAME), expected)
    saved = FORMAT.read_metadata(tmp_path / "model")["fitted"]["schema_"]
    assert Schema.from_dict(json.loads(json.dumps(saved))) == model.schema_


@pytest.mark.filterwarnings("ignore:8 inducing inputs cannot")
def test_new_rows_are_encoded_as_the_first(model):
    parts = [GPRegressor("gaussian", **SHORT).fit(FRAME[:40], Y[:40]) for _ in range(2)]
    rest = FRAME[40:]
    hand = parts[0]._rows(rest).x
    assert hand.shape == (20, len(parts[0].schema_.features))
    parts[0].partial_fit(rest, Y[40:])
    parts[1].partial_fit(polars.from_pandas(rest), Y[40:].to_numpy())
    predicted = [part.predict(FRAME) for part in parts]
    np.testing.assert_array_equal(*predicted)
    assert parts[0].n_rows_seen_ == ROWS
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        parts[0].partial_fit(rest, Y[41:])


def test_what_was_done_with_each_column_is_printed_and_reported(model, tmp_path):
    lines = [
        "7, 3 of them numbers without gaps",
        "3 categories, a column each, and one for gaps: Bath, Ely, Rye",
        "2 categories, a column each: a, b",
        "date, in days since 2024-02-27",
        "number; gaps become the mean, ",
    ]
    page = report.write(model, FRAME, Y, tmp_path / "page.html").read_text()
    for line in lines:
        assert line in str(model) and line in page
    plain = GPRegressor(**SHORT).fit(FRAME[["size", "rooms"]], Y)
    assert "inputs   " not in str(plain).replace("inducing inputs", "")


@pytest.mark.nightly
def test_scores_and_pictures_take_the_frame(model):
    assert np.isfinite(list(metrics.evaluate(model, FRAME, Y).values())).all()
    for frame in (FRAME, *(make(FRAME) for make in OTHERS.values())):
        for draw in (plot.predicted, plot.residuals):
            draw(model, frame, Y)
    plot.lengthscales(model)
    time = FRAME[["sold"]]
    plot.fit(GPRegressor(**SHORT).fit(time, Y), time, Y)
    with pytest.raises(InputError, match="3 inputs; plot.fit needs one with 1"):
        towns = pd.DataFrame({"town": TOWNS})
        plot.fit(GPRegressor(**SHORT).fit(towns, Y), towns, Y)


# Gaps


def test_an_array_with_gaps_has_an_indicator_for_each_column_that_has_some():
    x = RNG.standard_normal((ROWS, 3))
    x[::4, 1] = np.nan
    model = GPRegressor(**SHORT).fit(x, Y)
    assert model.schema_.features == ["x0", "x1", "x1 missing", "x2"]
    filled = np.where(np.isnan(x), x[~np.isnan(x[:, 1]), 1].mean(), x)
    matrix = np.column_stack([filled[:, :2], np.isnan(x[:, 1]), filled[:, 2]])
    np.testing.assert_array_equal(
        model.predict(x), GPRegressor(**SHORT).fit(matrix, Y).predict(matrix)
    )
    x[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model.predict(x)


def test_a_gap_where_training_had_none_is_the_mean_with_a_warning(model):
    frame = FRAME.copy()
    frame.loc[4, "size"] = np.nan
    with pytest.warns(InputWarning, match="column 'size' has nulls, and the training"):
        found = model.predict(frame)
    np.testing.assert_array_equal(
        found,
        model.predict(FRAME.assign(size=frame["size"].fillna(FRAME["size"].mean()))),
    )
    with pytest.warns(InputWarning, match="'grade' has nulls.*none of its values"):
        model.predict(FRAME.assign(grade=None))


def test_a_column_without_values_is_refused_by_name():
    with pytest.raises(InputError, match="column 'age' has no values; leave it out"):
        GPRegressor(**SHORT).fit(FRAME.assign(age=np.nan), Y)


# Categories


def test_an_unknown_category_is_none_of_the_known_with_a_warning(model):
    frame = FRAME.assign(town="York")
    with pytest.warns(InputWarning, match="'town' has the value 'York', which was not"):
        encoded = model._rows(frame).x
    np.testing.assert_array_equal(encoded[:, 3:7], 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        assert np.isfinite(model.predict(frame)).all()


def test_text_of_many_values_is_refused_by_name():
    rows = pd.DataFrame({"a": np.arange(120.0), "name": [f"p{i}" for i in range(120)]})
    with pytest.raises(
        InputError, match="column 'name' has 120 different values.*'p0'"
    ):
        GPRegressor(**SHORT).fit(rows, rows["a"])


def test_categories_that_are_not_there_are_no_columns():
    kinds = pd.Categorical(TOWNS, categories=["Bath", "Ely", "Rye", "York"])
    schema = GPRegressor(**SHORT).fit(pd.DataFrame({"town": kinds}), Y).schema_
    assert schema.features == ["town=Bath", "town=Ely", "town=Rye"]


@pytest.mark.nightly
def test_folds_that_lack_a_category_are_scored():
    towns = TOWNS.copy()
    towns[0] = "York"
    frame = pd.DataFrame({"town": towns, "size": FRAME["size"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        classifier = GPClassifier(**SHORT)
        scores = cross_val_score(classifier, frame, Y > 0, cv=2, error_score="raise")
    assert np.isfinite(scores).all()


# Dates


@pytest.mark.parametrize(
    "dates",
    [
        DAYS,
        DAYS.as_unit("s"),
        DAYS.tz_localize("UTC"),
        DAYS.date,
        DAYS.to_period("D"),
        DAYS - DAYS[0],
    ],
    ids=["us", "s", "zone", "objects", "periods", "durations"],
)
def test_dates_are_days_since_the_first_however_they_are_kept(dates):
    frame = pd.DataFrame({"sold": dates})
    model = GPRegressor(**SHORT).fit(frame, Y)
    np.testing.assert_array_equal(model._rows(frame).x[:, 0], np.arange(ROWS))


def test_periods_of_dates_are_there_when_asked_for(tmp_path):
    frame = FRAME[["sold"]].mask(np.arange(ROWS)[:, None] == 5)
    model = GPRegressor(date_periods=["week"], **SHORT).fit(frame, Y)
    names = ["sold days", "sold sine week", "sold cosine week", "sold missing"]
    assert model.schema_.features == names
    encoded = model._rows(frame).x
    assert encoded[5].tolist() == [pytest.approx(29.99, abs=0.1), 0, 0, 1]
    np.testing.assert_allclose(encoded[10:13, 1:3], encoded[17:20, 1:3], atol=1e-9)
    np.testing.assert_allclose((encoded[6:, 1:3] ** 2).sum(1), 1)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").date_periods == ("week",)
    with pytest.raises(
        InputError, match="date_periods is 'month'; it should be a list"
    ):
        GPRegressor(date_periods="month", **SHORT).fit(frame, Y)


def test_dates_that_are_text_are_refused_by_name():
    frame = pd.DataFrame({"sold": DAYS.strftime("%Y-%m-%d")})
    with pytest.raises(InputError, match="'sold' holds dates as text.*to_datetime"):
        GPRegressor(**SHORT).fit(frame, Y)


# Exports


def exported(model, folder, x, name):
    model.to_onnx(folder / "served.onnx")
    session = onnxruntime.InferenceSession(str(folder / "served.onnx"))
    return session.run([name], {"x": x})[0]


def test_an_exported_model_takes_the_encoded_rows_of_a_table(tmp_path):
    frame = FRAME.assign(sold=FRAME["sold"].mask(np.arange(ROWS) == 3))
    model = GPRegressor(date_periods=["year"], **SHORT).fit(frame, Y)
    rows = model.schema_.encode(arrow.Table.from_pandas(frame)).x
    found = exported(model, tmp_path, rows, "mean")
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-6, atol=1e-8)


def test_numbers_with_gaps_are_exported_as_rows_with_nan(tmp_path):
    x = RNG.standard_normal((ROWS, 3))
    x[::4, 1] = np.nan
    model = GPClassifier(**SHORT).fit(x, Y > 0)
    expected = model.predict_proba(x)
    found = exported(model, tmp_path, x, "probabilities")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


# Files


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"nulls": "zero"},
        {"columns": [{"class": "number", "name": 3}]},
        {"columns": [{"class": "number", "name": "a", "mean": "1"}]},
        {"columns": [{"class": "text", "name": "a"}]},
        {"columns": [{"class": "category", "name": "a", "values": ["b", "b"]}]},
        {"columns": [{"class": "date", "name": "a", "first": 0.0, "periods": ["era"]}]},
    ],
)
def test_a_schema_that_is_not_one_is_refused(change, model):
    with pytest.raises(InputError, match="schema"):
        Schema.from_dict(model.schema_.to_dict() | change)
