"""The likelihoods and kernels that have a name: one table, which everything else reads.

The estimators, the command and its help, run.toml, model files and the documentation
take names and tasks from here. To add a likelihood, write its class and add one entry.
Classes are given by name, so that the command prints help without importing JAX.
"""

from typing import Any, NamedTuple


FEW = 10
"""How many different whole numbers may be classes or grades, and not counts."""

MAX_COUNT = 10_000
"""How large a whole number may be for a count."""

MANY = 256
"""With fewer rows "auto" assumes Gaussian noise; with more it compares noises."""

COLUMNS = {
    "exposure": "what a count or a positive target is proportional to",
    "offset": "added to the latent function",
    "trials": "how many trials the successes are of",
    "noise_sd": "known noise of a target",
    "event": "1 where the target was observed, 0 where it is larger",
    "lower": "lower bound of a target",
    "upper": "upper bound of a target",
    "weight": "how much a row counts",
}
"""What columns may come with a target."""

BOUNDS = ("event", "lower", "upper")
"""Those that are known only with the target."""

ESTIMATORS = {
    "regression": "GPRegressor",
    "classification": "GPClassifier",
    "ordinal": "GPOrdinal",
}
"""The estimator of each task."""


class Likelihood(NamedTuple):
    """A likelihood with a name; `kind` is its class in `natgrad.gp.likelihoods`."""

    name: str
    kind: str
    task: str


_KINDS = {
    "regression": {
        "gaussian": "Gaussian",
        "student-t": "StudentT",
        "heteroskedastic": "HeteroskedasticGaussian",
        "gamma": "Gamma",
        "weibull": "Weibull",
        "beta": "Beta",
        "poisson": "Poisson",
        "negative-binomial": "NegativeBinomial",
        "zero-inflated-poisson": "ZeroInflatedPoisson",
        "zero-inflated-negative-binomial": "ZeroInflatedNegativeBinomial",
        "binomial": "Binomial",
    },
    "classification": {
        "bernoulli": "Bernoulli",
        "softmax": "Softmax",
        "robust-max": "RobustMax",
    },
    "ordinal": {"ordinal": "Ordinal"},
}
LIKELIHOODS = {
    name: Likelihood(name, kind, task)
    for task, kinds in _KINDS.items()
    for name, kind in kinds.items()
}
KERNELS = {
    "matern12": "Matern12",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "rbf": "RBF",
}
"""The kernels with a name, from rough to smooth, by class in `natgrad.gp.kernels`."""


def names(*tasks: str) -> tuple[str, ...]:
    """The names of the likelihoods for some tasks."""
    return tuple(each.name for each in LIKELIHOODS.values() if each.task in tasks)


CLASSES = names("classification", "ordinal")
"""The likelihoods whose targets are classes."""


GUESSES = {
    "real": ("gaussian", "student-t", "heteroskedastic"),
    "count": ("poisson",),
    "overdispersed": ("negative-binomial",),
    "binary": ("bernoulli",),
    "nominal": ("softmax",),
    "ordinal": ("ordinal",),
}
"""The likelihoods that "auto" takes a kind of target for, the first without a doubt."""


def kind_of(values: list[Any], mean: float, variance: float) -> str:
    """What a target is, by its different values in order and its moments.

    Strings are nominal, and so are a few whole numbers 0, 1, 2, ...; a few that begin
    elsewhere are grades. Whole numbers that come near 0 and are not negative count.
    """
    if len(values) == 2:
        return "binary"
    if isinstance(values[0], str):
        return "nominal"
    if not all(float(value).is_integer() for value in values):
        return "real"
    if len(values) <= FEW:
        return "nominal" if values == list(range(len(values))) else "ordinal"
    if 0 <= values[0] <= mean / 4 and values[-1] <= MAX_COUNT:
        return "overdispersed" if variance > 1.5 * mean else "count"
    return "real"


def guesses(kind: str, rows: int) -> tuple[str, ...]:
    """What "auto" chooses for a kind of target: one name, or several to compare."""
    return GUESSES[kind] if rows >= MANY else GUESSES[kind][:1]


def name_of(kind: str) -> str:
    """The name of a likelihood, by its class."""
    return next(each.name for each in LIKELIHOODS.values() if each.kind == kind)
