"""The likelihoods and kernels that have a name: one table, which everything else reads.

The estimators, the command and its help, run.toml, model files and the documentation
take names, tasks and units from here. To add a likelihood, write its class and add one
entry. Classes are given by name, so that the command prints help without importing JAX.
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
    """A likelihood with a name.

    `kind` is its class in `natgrad.gp.likelihoods`; `support` is where its targets
    live, which decides the task, and the units in `sklearn/_targets.py`; `auto` is the
    kind of target that "auto" takes it for. `latents` is how many latent functions it
    has; None is one for each class, whose number its class takes. Other classes take
    `arguments`.
    """

    name: str
    kind: str
    support: str
    link: str
    auto: str
    help: str
    latents: int | None = 1
    arguments: tuple[Any, ...] = ()

    @property
    def task(self) -> str:
        tasks = {"classes": "classification", "grades": "ordinal"}
        return tasks.get(self.support, "regression")


# fmt: off
_TABLE = (
    Likelihood("gaussian", "Gaussian", "real", "identity", "real", "numbers"),
    Likelihood("student-t", "StudentT", "real", "identity", "real", "with outliers"),
    Likelihood("heteroskedastic", "HeteroskedasticGaussian", "real", "identity", "real",
               "with noise that depends on the inputs", 2),
    Likelihood("gamma", "Gamma", "positive", "log", "", "positive numbers"),
    Likelihood("weibull", "Weibull", "positive", "log", "", "times until an event"),
    Likelihood("beta", "Beta", "unit", "logit", "", "shares", 1, (10.0,)),
    Likelihood("poisson", "Poisson", "count", "log", "count", "counts"),
    Likelihood("negative-binomial", "NegativeBinomial", "count", "log", "overdispersed",
               "counts with a variance above their mean"),
    Likelihood("zero-inflated-poisson", "ZeroInflatedPoisson", "count", "log", "",
               "counts with more zeros"),
    Likelihood("zero-inflated-negative-binomial", "ZeroInflatedNegativeBinomial",
               "count", "log", "", "counts with more zeros and more variance"),
    Likelihood("binomial", "Binomial", "successes", "probit", "",
               "successes of some trials"),
    Likelihood("bernoulli", "Bernoulli", "classes", "probit", "binary", "two classes"),
    Likelihood("softmax", "Softmax", "classes", "softmax", "nominal", "classes", None),
    Likelihood("robust-max", "RobustMax", "classes", "largest", "",
               "classes with wrong labels", None),
    Likelihood("ordinal", "Ordinal", "grades", "probit", "ordinal", "grades in order"),
)
# fmt: on
LIKELIHOODS = {entry.name: entry for entry in _TABLE}
KERNELS = {
    "matern12": "Matern12",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "rbf": "RBF",
}
"""The kernels with a name, from rough to smooth, by class in `natgrad.gp.kernels`."""


def names(*tasks: str) -> tuple[str, ...]:
    """The names of the likelihoods for some tasks."""
    return tuple(each.name for each in _TABLE if each.task in tasks)


CLASSES = names("classification", "ordinal")
"""The likelihoods whose targets are classes."""


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
    found = tuple(each.name for each in _TABLE if each.auto == kind)
    return found if rows >= MANY else found[:1]


def name_of(kind: str) -> str:
    """The name of a likelihood, by its class."""
    return next(each.name for each in _TABLE if each.kind == kind)
