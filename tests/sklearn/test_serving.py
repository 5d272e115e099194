"""A fitted estimator goes where models go: MLflow, skops, batches of a large table."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from pyarrow import parquet

import natgrad.sklearn
from natgrad.sklearn import GPClassifier, GPRegressor


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "estimators.md"
SHORT = {"max_iter": 20, "n_inducing": 16, "verbose": False}
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.uniform(-2, 2, (64, 2)), columns=["width", "height"])
Y = np.sin(2 * FRAME.width) + 0.1 * RNG.standard_normal(64)


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(**SHORT).fit(FRAME, Y)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # of MLflow's own
def test_mlflow_loads_a_saved_estimator(regressor, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")  # here, as it warns when it is imported

    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (recipe,) = [block for block in blocks if "mlflow" in block]
    classifier = GPClassifier(**SHORT).fit(FRAME, np.where(Y > 0, "yes", "no"))
    for name, model in (("regressor", regressor), ("classifier", classifier)):
        model.save("model.natgrad")
        exec(recipe.replace("served", name), {"mlflow": mlflow, "natgrad": natgrad})
        served = mlflow.pyfunc.load_model(name).predict(FRAME)
        np.testing.assert_array_equal(served, model.predict(FRAME))


def test_skops_saves_an_estimator_without_pickle(regressor, tmp_path):
    skops.io.dump(regressor, tmp_path / "model.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "model.skops")
    assert unknown == ["natgrad.sklearn._regressor.GPRegressor"]
    again = skops.io.load(tmp_path / "model.skops", trusted=unknown)
    np.testing.assert_array_equal(again.predict(FRAME), regressor.predict(FRAME))


def test_a_table_is_predicted_in_parts(regressor, tmp_path):
    regressor.save(tmp_path / "model.natgrad")
    model = natgrad.sklearn.load(tmp_path / "model.natgrad")
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    file = parquet.ParquetFile(tmp_path / "rows.parquet")
    parts = [
        model.predict(part.to_pandas()) for part in file.iter_batches(batch_size=20)
    ]
    np.testing.assert_allclose(np.concatenate(parts), model.predict(FRAME), rtol=1e-9)
