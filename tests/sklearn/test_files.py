"""An estimator is loaded as it was saved, and from a bad file not at all."""

import importlib
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import natgrad.sklearn
from natgrad import _container as container
from natgrad._registry import names
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError
from natgrad.sklearn import (
    GPClassifier,
    GPOrdinal,
    GPRegressor,
    _fields as fields,
    _files as files,
)
from tests.references.estimators import make
from tests.references.models import make as make_models


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STORED = Path(make.__file__).parent
KINDS = {"regressor": GPRegressor, "classifier": GPClassifier, "ordinal": GPOrdinal}
ESCAPE = "\x1b[2J\x1b[31mtrust me\x1b[0m"


def stored(kind):
    return container.read(STORED / f"{kind}.natgrad")


def forged(folder, kind, **fitted):
    """A file whose hash is right, and some of whose fields are not."""
    document, arrays = stored(kind)
    document["metadata"]["fitted"] |= fitted
    container.write(folder / "forged", document, arrays)
    return folder / "forged"


@pytest.mark.parametrize("kind", KINDS)
def test_stored_files_are_read_and_predict_the_same(kind, tmp_path):
    one = natgrad.sklearn.load(path=STORED / f"{kind}.natgrad")
    answers = np.load(STORED / "predictions.npz")
    assert type(one) is KINDS[kind]
    one.save(tmp_path / "again", make.METADATA)
    for model in (one, natgrad.sklearn.load(tmp_path / "again")):
        for i, answer in enumerate(make.predictions(model)):
            np.testing.assert_allclose(answer, answers[f"{kind}.{i}"], rtol=1e-9)
    again = container.read(tmp_path / "again")[0]["metadata"]
    assert again == stored(kind)[0]["metadata"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_field_is_refused_or_true_to_what_it_says(
    kind, tmp_path, monkeypatch
):
    # The first of those of experiments/fuzz_fields.py, which has 200 of each kind.
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    fuzz = importlib.import_module("fuzz_fields")
    path, outcomes = tmp_path / "file", []
    for case in fuzz.cases(kind, 13):
        path.write_bytes(case.data)
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            try:
                outcomes.append(fuzz.judged(kind, path))
            except fuzz.Wrong as wrong:
                pytest.fail(f"{case.name}: {wrong}")
    assert len(outcomes) == 13 and set(outcomes) > {"CorruptFileError"}


@pytest.mark.parametrize("name", ["classes_", "feature_names_in_"])
def test_a_type_takes_the_memory_of_its_values_whatever_it_says(name, tmp_path):
    document, _ = stored("classifier")
    values = document["metadata"]["fitted"][name]["values"]
    claimed = {"dtype": "<U400000000", "values": values}
    path = forged(tmp_path, "classifier", **{name: claimed})
    tracemalloc.start()
    try:
        model = natgrad.sklearn.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert getattr(model, name).tolist() == values
    assert peak < 50e6
    long = {"dtype": "<U400000", "values": ["a", "b", "c" * 400_000]}
    with pytest.raises(CorruptFileError, match="characters"):
        natgrad.sklearn.load(forged(tmp_path, "classifier", **{name: long}))


def test_a_hash_and_a_size_are_demanded_before_anything_is_believed(tmp_path):
    other = Path(make_models.__file__).parent / "regression.natgrad"
    with pytest.raises(IncompatibleFileError, match="not an estimator"):
        natgrad.sklearn.load(other)
    with pytest.raises(CorruptFileError, match="SHA-256"):
        natgrad.sklearn.load(other, expect_sha256="0" * 64)
    with pytest.raises(CorruptFileError, match="max_bytes is 100"):
        natgrad.sklearn.load(other, max_bytes=100)


def test_every_parameter_attribute_and_likelihood_has_a_rule():
    for kind in KINDS.values():
        assert kind().get_params().keys() <= fields.Params.__dataclass_fields__.keys()
    regression, classes = names("regression"), names("classification")
    assert files.LIKELIHOODS["GPRegressor"].keys() == {"auto", *regression}
    assert files.LIKELIHOODS["GPClassifier"].keys() == {"auto", *classes}
    assert files.LIKELIHOODS["GPOrdinal"].keys() == {"auto", *classes, "ordinal"}


def test_a_field_without_a_rule_is_refused_by_name(tmp_path):
    with pytest.raises(IncompatibleFileError, match="unknown field 'noise_'"):
        natgrad.sklearn.load(forged(tmp_path, "regressor", noise_=1.0))


def test_a_file_of_an_earlier_version_is_refused(tmp_path):
    document, arrays = stored("regressor")
    del document["metadata"]["params"]["date_periods"]
    container.write(tmp_path / "old", document, arrays)
    with pytest.raises(CorruptFileError, match="params has no date_periods"):
        natgrad.sklearn.load(tmp_path / "old")


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    class Mine(GPRegressor):
        pass

    model = natgrad.sklearn.load(STORED / "regressor.natgrad")
    for change in ({"kernel": "rbf"}, {"likelihood": "poisson"}, {"minutes": "two"}):
        old = {name: model.get_params()[name] for name in change}
        with pytest.raises(InputError, match=next(iter(change))):
            model.set_params(**change).save(tmp_path / "model")
        model.set_params(**old).save(tmp_path / "model")
        (tmp_path / "model").unlink()
    model.__class__ = Mine
    with pytest.raises(InputError, match="natgrad.gp.save"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_names_and_messages_print_without_control_characters(tmp_path):
    names = {"dtype": "|O", "values": [ESCAPE, "age"]}
    fitted = stored("regressor")[0]["metadata"]["fitted"]
    history, schema = fitted["history_"], fitted["schema_"]
    for name, column in zip(names["values"], schema["columns"], strict=True):
        column["name"] = name
    path = forged(
        tmp_path,
        "regressor",
        feature_names_in_=names,
        schema_=schema,
        message_=ESCAPE,
        history_=history | {"reason": ESCAPE},
    )
    model = natgrad.sklearn.load(path)
    printed = [str(model), repr(model), model._repr_html_(), repr(model.history_)]
    with pytest.raises(ValueError, match="feature names") as caught:
        model.predict(pd.DataFrame([[0.0, 1.0]], columns=["length", "age"]))
    printed.append(str(caught.value))
    assert not any("\x1b" in text for text in printed)
    assert sum("trust me" in text for text in printed) >= 4
    assert model.message_ == model.feature_names_in_[0] == ESCAPE
