"""Reading back what an estimator's `save` wrote."""

from typing import Any

from natgrad.sklearn import _files as files
from natgrad.sklearn._base import in_double
from natgrad.sklearn._classifiers import GPClassifier, GPOrdinal
from natgrad.sklearn._regressor import GPRegressor


KINDS = {kind.__name__: kind for kind in (GPRegressor, GPClassifier, GPOrdinal)}


@in_double
def load(path: Any, **options: Any) -> Any:
    """The estimator in a file. `options` are those of `natgrad.gp.load`.

    A file runs nothing, so one may read those of others, which is not so of a pickle.
    """
    return files.read(path, KINDS, **options)
