"""Natural gradients for variational inference, in any parameterization."""

import importlib
from typing import TYPE_CHECKING, Any

from natgrad import (
    data as data,
    families as families,
    linalg as linalg,
    positive as positive,
)
from natgrad.guarded import GuardedState as GuardedState, guarded_ngd as guarded_ngd
from natgrad.natural import (
    double_vjp as double_vjp,
    natural_gradient as natural_gradient,
    scale_by_inverse_fisher as scale_by_inverse_fisher,
    stay_inside as stay_inside,
)
from natgrad.optim import (
    annealed as annealed,
    log_linear as log_linear,
    mirror_descent as mirror_descent,
    ngd as ngd,
    on_distributions as on_distributions,
    on_hyperparameters as on_hyperparameters,
    split as split,
)


if TYPE_CHECKING:
    from natgrad import gp as gp, train as train
    from natgrad.train.loop import Fitted as Fitted, fit as fit


_LATER = {
    "gp": "natgrad.gp",
    "train": "natgrad.train",
    "fit": "natgrad.train.loop",
    "Fitted": "natgrad.train.loop",
}
"""Names that are imported when they are first used, so that the core stays light."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    return module if _LATER[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
