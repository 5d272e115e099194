"""Natural gradients for variational inference, in any parameterization."""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from natgrad import (
        data,
        datasets,
        distributed,
        errors,
        families,
        gp,
        linalg,
        metrics,
        numpyro,
        plot,
        positive,
        report,
        sklearn,
        train,
    )
    from natgrad._guarded import guarded_ngd
    from natgrad._natural import natural_gradient, scale_by_inverse_fisher, stay_inside
    from natgrad._optim import annealed, log_linear, mirror_descent, ngd, split
    from natgrad.train._loop import fit

    __version__: str


# The order of the reference: what most users need first.
__all__ = [
    "sklearn",
    "gp",
    "fit",
    "guarded_ngd",
    "ngd",
    "mirror_descent",
    "natural_gradient",
    "split",
    "stay_inside",
    "scale_by_inverse_fisher",
    "annealed",
    "log_linear",
    "train",
    "data",
    "metrics",
    "plot",
    "report",
    "numpyro",
    "families",
    "linalg",
    "positive",
    "datasets",
    "distributed",
    "errors",
]

# A name is imported when it is first used: the command line answers at once, and
# nobody waits for a part that is not needed.
_NAMES = {
    "": "data datasets distributed errors families gp linalg metrics numpyro plot "
    "positive report sklearn train",
    "_guarded": "guarded_ngd",
    "_natural": "natural_gradient scale_by_inverse_fisher stay_inside",
    "_optim": "annealed log_linear mirror_descent ngd split",
    "train._loop": "fit",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
