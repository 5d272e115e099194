"""What an estimator exports predicts as it does, from the table's own rows."""

import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.utils.validation import validate_data

from natgrad._registry import names
from natgrad.data._schema import infer_numbers
from natgrad.errors import InputError
from natgrad.gp import SparseGP, kernels, likelihoods
from natgrad.gp.likelihoods import Support
from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor
from natgrad.sklearn._targets import centre_and_deviation, make
from tests.variants import variants


ROWS = 40
LEVELS = (0.05, 0.5, 0.99)
NAMES = ["year of sale", 'size in "m²"\n"""; raise SystemExit # \\']
RNG = np.random.default_rng(3)
# Far from scaled: in its own units nothing but a scaling shows what it is.
X = pd.DataFrame(
    RNG.normal(size=(ROWS, 2)) * [12.0, 1e-3] + [2000.0, 0.05], columns=pd.Index(NAMES)
)


CURVE = np.sin(np.arange(ROWS))
SHARE = (CURVE + 1.5) / 3
GRADES = np.digitize(CURVE, [-0.5, 0.5])

TARGETS = {
    Support.REAL: 300 + 20 * CURVE,
    Support.POSITIVE: 50 * SHARE,
    Support.UNIT: SHARE,
    Support.COUNT: np.rint(30 * SHARE),
    Support.SUCCESSES: np.rint(SHARE),
}
ESTIMATORS = {
    name: (GPRegressor(name), TARGETS[make(name).support])
    for name in names("regression")
} | {
    "two classes": (GPClassifier(), np.where(CURVE > 0, 'yes"""', "no")),
    "two, logit": (GPClassifier(likelihoods.Bernoulli("logit")), CURVE > 0),
    "three classes": (GPClassifier(), np.array(["a", "bc", "ü"], object)[GRADES]),
    "robust": (GPClassifier("robust-max"), GRADES - 1.0),
    "grades": (GPOrdinal(), GRADES + 1),
    "words": (
        GPOrdinal(categories=["bad", "fair", "best"]),
        np.array(["bad", "fair", "best"])[GRADES],
    ),
}
# In closed form, or by halvings of a distribution function that can be written.
WITH_QUANTILES = ("gaussian", "student-t", "heteroskedastic", "weibull")


def made(name):
    """An estimator as `fit` leaves it, with a posterior that nobody had to learn."""
    estimator, y = ESTIMATORS[name]
    weight = np.ones(ROWS)
    table = validate_data(estimator, X, dtype=np.float64)
    estimator._learn_classes(y, None)
    targets = estimator._candidates(estimator._numbers(y), weight, {})[0]
    estimator.x_mean_, estimator.x_scale_ = centre_and_deviation(table, weight)
    estimator.y_mean_, estimator.y_scale_ = targets.centre, targets.scale
    estimator.schema_ = infer_numbers(table, [*X.columns])
    inducing = estimator._scaled(table[:4])
    kernel = kernels.Matern52([0.9, 1.1])
    model = SparseGP(kernel, targets.likelihood, inducing, mean=targets.mean)
    q, rng = model.posterior, np.random.default_rng(6)
    root = 0.2 * np.tril(rng.normal(size=q.cov.root.shape)) + 0.3 * np.eye(4)
    new = (jnp.asarray(0.3 * rng.normal(size=q.mean.shape)), jnp.asarray(root))
    where = lambda model: (model.posterior.mean, model.posterior.cov.root)
    estimator._set_model(eqx.tree_at(where, model, new))
    return estimator


FEW = ("gaussian", "weibull", "three classes")


@pytest.fixture(scope="module", params=variants(ESTIMATORS, FEW))
def case(request):
    """An estimator, its own answers, and the quantiles that can be written."""
    estimator = made(request.param)
    if hasattr(estimator, "classes_"):
        answers = {"probabilities": estimator.predict_proba(X)}
        label = estimator.predict(X)
        answers["class_index"] = np.searchsorted(estimator.classes_, label)
        return estimator, answers | {"label": label}, ()
    answers = dict(zip(("mean", "std"), estimator.predict(X, True), strict=True))
    levels = LEVELS if request.param in WITH_QUANTILES else ()
    if levels:
        answers["quantiles"] = estimator.predict(X, quantiles=levels)
    return estimator, answers, levels


def assert_same(got, answers):
    assert set(got) == set(answers)
    for key, value in answers.items():
        if key in ("label", "class_index"):
            assert list(got[key]) == list(value)
        else:
            np.testing.assert_allclose(got[key], value, rtol=1e-9, atol=1e-12)


def test_an_onnx_model_predicts_as_the_estimator(case, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    estimator, answers, levels = case
    estimator.to_onnx(tmp_path / "model.onnx", levels)
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["inputs"]) == NAMES
    names = [output.name for output in session.get_outputs()]
    got = session.run(names, {"x": X.to_numpy()})
    assert_same(dict(zip(names, got, strict=True)), answers)


@pytest.mark.parametrize("name", variants(ESTIMATORS, FEW))
def test_stablehlo_predicts_as_the_estimator_quantiles_of_all_noises(name, tmp_path):
    estimator = made(name)
    levels = () if hasattr(estimator, "classes_") else LEVELS
    estimator.to_stablehlo(tmp_path / "model", levels)
    exported = jax.export.deserialize(bytearray((tmp_path / "model").read_bytes()))
    got = {key: np.asarray(a) for key, a in exported.call(X.to_numpy()).items()}
    if not levels:
        proba, label = estimator.predict_proba(X), estimator.predict(X)
        place = np.searchsorted(estimator.classes_, label)
        assert_same(got, {"probabilities": proba, "class_index": place})
        return
    mean, std = estimator.predict(X, return_std=True)
    quantiles = estimator.predict(X, quantiles=levels)
    assert_same(got, {"mean": mean, "std": std, "quantiles": quantiles})


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(InputError, match="quantiles of Gamma .*igamma,.* ONNX"):
        made("gamma").to_onnx(path, [0.5])
    with pytest.raises(InputError, match="a GPOrdinal predicts classes"):
        made("grades").to_onnx(path, [0.5])
    mixed = made("two classes")
    mixed.classes_ = np.array(["a", 1], object)
    with pytest.raises(InputError, match="make them all text, all numbers"):
        mixed.to_onnx(path)
    with pytest.raises(InputError, match="numbers between 0 and 1"):
        made("gaussian").to_onnx(path, [5, 95])
    assert not path.exists()


def test_without_flatbuffers_the_extra_is_named(monkeypatch, tmp_path):
    estimator = made("gaussian")
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .natgrad\[stablehlo\]"):
        estimator.to_stablehlo(tmp_path / "model")
