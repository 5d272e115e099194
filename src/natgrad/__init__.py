"""Natural gradients for variational inference, in any parameterization."""

from natgrad import (
    data as data,
    families as families,
    linalg as linalg,
    positive as positive,
    train as train,
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
from natgrad.train.loop import Fitted as Fitted, fit as fit
