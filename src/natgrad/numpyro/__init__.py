"""Natural-gradient variational inference for NumPyro models."""

try:
    import numpyro as _numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        'fitting NumPyro models needs NumPyro: pip install "natgrad[numpyro]"',
        name="numpyro",
    ) from error

from natgrad.numpyro._diagnose import diagnose
from natgrad.numpyro._fit import fit
from natgrad.numpyro._guide import AutoNatural
from natgrad.numpyro._optimizer import optimizer


__all__ = ["fit", "AutoNatural", "optimizer", "diagnose"]
