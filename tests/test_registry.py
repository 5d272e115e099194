"""A likelihood or kernel with a name has it everywhere, and means the same there."""

from pathlib import Path

import pytest

import natgrad.sklearn
from natgrad import _registry as registry
from natgrad._config import Run
from natgrad._registry import KERNELS, LIKELIHOODS
from natgrad.gp import kernels, likelihoods
from natgrad.gp._files import CLASSES
from natgrad.sklearn import _files as files, _targets as targets


DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(params=LIKELIHOODS.values(), ids=LIKELIHOODS)
def entry(request):
    return request.param


def test_an_entry_is_what_its_class_is(entry):
    if entry.task == "ordinal":  # which is made from the classes of a table
        return
    made = targets.make(entry.name, 3)
    assert registry.name_of(type(made).__name__) == entry.name
    has_classes = entry.task == "classification"
    assert (getattr(made, "classes", None) is not None) == has_classes
    # Else an estimator would see its targets as they are.
    assert has_classes or made.parameters is not None


def test_a_name_works_in_the_command_the_estimators_and_files(entry):
    assert Run("a.csv", "y", likelihood=entry.name).likelihood == entry.name
    estimator = registry.ESTIMATORS[entry.task]
    assert files.LIKELIHOODS[estimator][entry.name] == (
        getattr(likelihoods, entry.kind),
    )
    assert CLASSES[f"likelihoods.{entry.kind}"] is getattr(likelihoods, entry.kind)


@pytest.mark.docs
def test_a_name_is_in_the_docstring_of_its_estimator(entry):
    estimator = registry.ESTIMATORS[entry.task]
    assert f'"{entry.name}"' in getattr(natgrad.sklearn, estimator).__doc__


@pytest.mark.docs
def test_the_table_of_likelihoods_has_all_with_a_name_and_no_other():
    page = (DOCS / "explanation" / "likelihoods.md").read_text("utf-8")
    pictures = (DOCS / "explanation" / "likelihood_pictures.md").read_text("utf-8")
    table = page.split("\n## ")[1].split("\n| name |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) == len(LIKELIHOODS)
    for (name, _, link, _, estimator), entry in zip(
        rows, LIKELIHOODS.values(), strict=True
    ):
        place = f"likelihood_pictures.md#{entry.kind.lower()}"
        assert name == f"[`{entry.name}`]({place})"
        assert f"\n## {entry.kind}\n" in pictures
        if entry.task == "regression":
            assert link.startswith(targets.make(entry.name).link)
        assert estimator == f"`{registry.ESTIMATORS[entry.task]}`"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_one_name(name):
    assert CLASSES[f"kernels.{KERNELS[name]}"] is getattr(kernels, KERNELS[name])
    assert f'"{name}"' in natgrad.sklearn.GPRegressor.__doc__
    assert Run("a.csv", "y", kernel=name).kernel == name


def test_every_target_but_a_real_one_has_one_likelihood():
    kinds = {"binary", "nominal", "ordinal", "count", "overdispersed"}
    assert registry.GUESSES.keys() == kinds | {"real"}
    assert all(len(registry.guesses(kind, registry.MANY)) == 1 for kind in kinds)


def test_noises_are_compared_if_there_are_rows_for_it():
    real = ("gaussian", "student-t", "heteroskedastic")
    assert registry.guesses("real", registry.MANY) == real
    assert registry.guesses("real", registry.MANY - 1) == real[:1]
