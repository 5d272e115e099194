"""Loading what an estimator's `save` wrote."""

from typing import Any

from natgrad.sklearn import _files as files
from natgrad.sklearn._classifiers import GPClassifier, GPOrdinal
from natgrad.sklearn._double import in_double
from natgrad.sklearn._regressor import GPRegressor


KINDS = {kind.__name__: kind for kind in (GPRegressor, GPClassifier, GPOrdinal)}


@in_double
def load(path: Any, **options: Any) -> Any:
    """Loads an estimator that `save` wrote. `options` are those of `natgrad.gp.load`.

    Unlike a pickle, a file runs no code, so you can load files from untrusted sources.

    Raises:
        CorruptFileError: If the file is damaged or not what it claims to be.
        IncompatibleFileError: If this version or setup of natgrad cannot use it.

    >>> regressor.save("model.natgrad")
    >>> loaded = natgrad.sklearn.load("model.natgrad")
    >>> bool((loaded.predict(x) == regressor.predict(x)).all())
    True
    """
    return files.read(path, KINDS, **options)
