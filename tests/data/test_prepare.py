"""What natgrad makes of a target and of a table's columns."""

from pathlib import Path

import numpy as np
import pytest

from natgrad._cli.models import located
from natgrad._config import Run
from natgrad.data._prepare import guess, prepare
from natgrad.errors import InputError


@pytest.mark.parametrize(
    ("target", "likelihood"),
    [
        (["a", "b"] * 9, "bernoulli"),
        (["a", "b", "c"] * 9, "softmax"),
        ([0, 1] * 9, "bernoulli"),
        ([-1.0, 1.0] * 9, "bernoulli"),
        ([0, 1, 2] * 9, "softmax"),
        ([3, 4, 5, 7] * 9, "ordinal"),
        (np.random.default_rng(0).poisson(9.0, 500), "poisson"),
        (np.random.default_rng(0).geometric(0.05, 500), "negative-binomial"),
        (np.arange(1930, 2010), "gaussian"),
        (np.arange(-20, 20), "gaussian"),
        (np.linspace(0.1, 0.9, 50), "gaussian"),
        (np.random.default_rng(0).standard_t(2, 255), "gaussian"),
        (np.random.default_rng(0).normal(size=256), "auto"),
    ],
)
def test_the_likelihood_is_guessed_from_the_target(target, likelihood):
    kind = object if isinstance(target[0], str) else float
    assert guess(np.array(target, dtype=kind))[0] == likelihood


def test_a_target_that_cannot_be_learned_is_refused():
    with pytest.raises(InputError, match="is 3.0 in every row"):
        guess(np.full(5, 3.0))
    names = np.array([f"person {row}" for row in range(200)], dtype=object)
    with pytest.raises(InputError, match="200 different strings"):
        guess(names)


def test_an_index_of_pandas_is_no_input(tmp_path):
    (tmp_path / "t.csv").write_text(",a,y\n0,1.5,2.5\n1,1.25,3.5\n2,1.0,4.75\n")
    prepared = prepare(Run(str(tmp_path / "t.csv"), "y"))
    assert prepared.run.inputs == ("a",)
    assert "column 1, which has no name, is left out" in prepared.notes[0]
    asked = prepare(Run(str(tmp_path / "t.csv"), "y", inputs=("", "a")))
    assert asked.run.inputs == ("", "a")


def test_a_folder_does_not_hide_the_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "motorcycle").mkdir()
    assert Path(located("motorcycle")).is_file()
    assert located("other.csv") == "other.csv"
