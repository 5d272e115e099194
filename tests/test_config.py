"""Laws of runs as data."""

import dataclasses

import pytest
from hypothesis import given, settings, strategies

from natgrad import _config as config
from natgrad._config import Run, dumps, loads
from natgrad._registry import KERNELS, LIKELIHOODS
from natgrad.errors import InputError


text = strategies.text(strategies.characters(codec="utf-8"))
fields = strategies.fixed_dictionaries(
    {
        "data": text,
        "target": strategies.just("y"),
        "inputs": strategies.none()
        | strategies.lists(text.filter(lambda name: name != "y"), unique=True).map(
            tuple
        ),
        "nulls": strategies.sampled_from(config.NULLS),
        "date_periods": strategies.permutations([*config.PERIODS]).map(tuple),
        "sha256": strategies.none() | text,
        "likelihood": strategies.sampled_from(("auto", *LIKELIHOODS)),
        "kernel": strategies.sampled_from((*KERNELS,)),
        "num_inducing": strategies.just("auto") | strategies.integers(1, 10**6),
        "steps": strategies.just("auto") | strategies.integers(1, 10**9),
        "minutes": strategies.none() | strategies.floats(1e-9, 1e9),
        "batch_size": strategies.just("auto") | strategies.integers(1, 10**9),
        "seed": strategies.integers(0, 2**32 - 1),
    }
)


@settings(deadline=None)
@given(fields)
def test_a_run_is_read_back_as_it_was_written(values):
    run = Run(**values)
    assert loads(dumps(run)) == run


def test_what_is_given_takes_the_place_of_what_is_written():
    run = Run("a.csv", "y", seed=3)
    expected = dataclasses.replace(run, data="b.csv", steps=7)
    assert loads(dumps(run), data="b.csv", steps=7) == expected


def test_a_relative_path_begins_where_the_file_is(tmp_path):
    (tmp_path / "run.toml").write_text('[data]\ndata = "a.csv"\ntarget = "y"\n')
    assert config.read(tmp_path / "run.toml").data == str(tmp_path / "a.csv")
    assert config.read(tmp_path / "run.toml", data="b.csv").data == "b.csv"
    (tmp_path / "run.toml").write_text('[data]\ndata = "energy"\ntarget = "y"\n')
    assert config.read(tmp_path / "run.toml").data == "energy"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[model]\nlikelyhood = 'gaussian'", "is 'likelyhood'.*mean 'likelihood'"),
        ("[modle]\nkernel = 'rbf'", "section is 'modle'.*mean 'model'"),
        ("[model]\nlikelihood = 'student'", "likelihood is 'student'.*'student-t'"),
        ("[training]\nsteps = 'many'", "steps is 'many'.*a whole number"),
        ("[training]\nsteps = true", "steps is True.*a whole number"),
        ("[training]\nsteps = 2.5", "steps is 2.5.*a whole number"),
        ("[training]\nsteps = 0", "steps is 0; it should be .* above 0"),
        ("[training]\nminutes = nan", "minutes is nan; it should be a number above 0"),
        ("[training]\nseed = -1", "seed is -1"),
        (
            "[model]\nnum_inducing = 'some'",
            "num_inducing is 'some'.*\"auto\" or a whole",
        ),
        ("[model]\nnum_inducing = -3", "num_inducing is -3; it should be .* above 0"),
        ("inputs = ['a', 1]", "inputs is .*list of names"),
        ("inputs = ['a', 'a']", "'a' is among the inputs more than once"),
        ("inputs = ['a', 'y']", "target 'y' is among the inputs"),
        ("nulls = 'zero'", "nulls is 'zero'"),
        ("model = 3", "key of .data. is 'model'"),
        ("seed 3", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, lines, message):
    path = tmp_path / "run.toml"
    path.write_text(f"[data]\ndata = 'a.csv'\ntarget = 'y'\n{lines}\n")
    with pytest.raises(InputError, match=rf"run\.toml: .*{message}"):
        config.read(path)


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "run.toml").write_text("[data]\ndata = 'a.csv'\n")
    with pytest.raises(InputError, match="no 'target'"):
        config.read(tmp_path / "run.toml")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        config.read(tmp_path / "other.toml")
    (tmp_path / "flat.toml").write_text("data = 'a.csv'\n")
    with pytest.raises(InputError, match="data is 'a.csv'; it should be a section"):
        config.read(tmp_path / "flat.toml")
