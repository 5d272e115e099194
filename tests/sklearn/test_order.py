"""The order of classes: numbers have one, strings are given one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

from natgrad.errors import InputError
from natgrad.metrics import pit
from natgrad.sklearn import GPOrdinal, load


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

SHORT = {"max_iter": 20, "n_inducing": 8, "verbose": False}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 1))
GRADES = np.digitize(X[:, 0] + 0.2 * RNG.standard_normal(60), [-0.7, 0.7])
WORDS = ["poor", "fair", "good"]  # by the alphabet: fair, good, poor
TEXTS = np.array(WORDS)[GRADES]


@pytest.fixture(scope="module")
def numbers():
    return GPOrdinal(**SHORT).fit(X, GRADES)


@pytest.fixture(scope="module")
def words():
    return GPOrdinal(categories=WORDS, **SHORT).fit(X, TEXTS)


def assert_same(words, numbers):
    """What is known of each class does not depend on what it is called."""
    columns = words.predict_proba(X)[:, [*words.classes_].index("poor")]
    np.testing.assert_allclose(columns, numbers.predict_proba(X)[:, 0], rtol=1e-12)
    assert words.elbo_ == numbers.elbo_
    assert (words.predict(X) == np.array(WORDS)[numbers.predict(X)]).all()
    found = pit(words, X, TEXTS), pit(numbers, X, GRADES)
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_strings_in_an_order_are_as_numbers(words, numbers):
    assert_same(words, numbers)


def test_ordered_categories_of_pandas_bring_their_order(numbers):
    y = pd.Series(pd.Categorical(TEXTS, WORDS, ordered=True))
    fitted = GPOrdinal(**SHORT).fit(X, y)
    assert fitted.categories_.tolist() == WORDS
    assert_same(fitted, numbers)


def test_strings_without_an_order_are_refused_and_the_guess_is_shown():
    said = "'fair' < 'good' < 'poor'.*GPOrdinal\\(categories="
    unordered = pd.Series(pd.Categorical(TEXTS, WORDS))
    for y in (TEXTS, TEXTS.astype(object), unordered):
        with pytest.raises(InputError, match=said):
            GPOrdinal(**SHORT).fit(X, y)
    with pytest.raises(InputError, match=said):
        GPOrdinal(**SHORT).partial_fit(X, TEXTS, classes=WORDS)


def test_an_order_that_does_not_fit_the_classes_is_refused():
    with pytest.raises(InputError, match="'poor' more than once"):
        GPOrdinal(categories=["poor", *WORDS], **SHORT).fit(X, TEXTS)
    with pytest.raises(InputError, match="the class 'good', which is not in"):
        GPOrdinal(categories=["poor", "fair"], **SHORT).fit(X, TEXTS)


def test_the_order_goes_with_the_file(words, numbers, tmp_path):
    words.save(tmp_path / "words")
    loaded = load(tmp_path / "words")
    assert loaded.categories == WORDS and loaded.categories_.tolist() == WORDS
    assert_same(loaded, numbers)
    assert_same(clone(loaded).fit(X, TEXTS), numbers)


def test_columns_are_where_scikit_learn_looks_for_them(words, numbers):
    by_words = log_loss(TEXTS, words.predict_proba(X))
    np.testing.assert_allclose(by_words, log_loss(GRADES, numbers.predict_proba(X)))
