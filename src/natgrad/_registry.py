"""The likelihoods and kernels that have a name: one table, which everything else reads.

The estimators, the command and its help, run.toml, model files and the documentation
take names, tasks and units from here. To add a likelihood, write its class and add one
entry. Classes are given by name, so that the command prints help without importing JAX.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


FEW = 10
"""How many different whole numbers may be classes or grades, and not counts."""

MAX_COUNT = 10_000
"""How large a whole number may be for a count."""

MANY = 256
"""With fewer rows "auto" assumes Gaussian noise; with more it compares noises."""


class Target(NamedTuple):
    """What "auto" knows of a target: its different values in order, and its moments."""

    values: list[Any]
    is_text: bool = False
    mean: float = 0.0
    variance: float = 0.0

    @property
    def is_binary(self) -> bool:
        return len(self.values) == 2

    @property
    def is_nominal(self) -> bool:
        """Strings, or a few whole numbers 0, 1, 2, ..."""
        is_first = self.is_few and self.values == list(range(len(self.values)))
        return not self.is_binary and (self.is_text or is_first)

    @property
    def is_ordinal(self) -> bool:
        """A few whole numbers that begin elsewhere."""
        return self.is_few and not self.is_binary and not self.is_nominal

    @property
    def is_count(self) -> bool:
        """Whole numbers that come near 0 and are never negative."""
        if not self.is_whole or self.is_few:
            return False
        low, high = self.values[0], self.values[-1]
        return 0 <= low <= self.mean / 4 and high <= MAX_COUNT

    @property
    def is_real(self) -> bool:
        is_other = self.is_text or self.is_binary or self.is_few or self.is_count
        return not is_other

    @property
    def is_overdispersed(self) -> bool:
        return self.variance > 1.5 * self.mean

    @property
    def is_whole(self) -> bool:
        return not self.is_text and all(float(v).is_integer() for v in self.values)

    @property
    def is_few(self) -> bool:
        return len(self.values) <= FEW and self.is_whole


class Likelihood(NamedTuple):
    """A likelihood with a name.

    `kind` is its class in `natgrad.gp.likelihoods`, `support` is where its targets
    live, which decides their units (`UNITS`), and `is_guessed` is whether "auto" takes
    it for a target. `latents` is how many latent functions it has; None is one for each
    class, and then its class takes how many these are. `arguments` are others.
    """

    name: str
    kind: str
    task: str
    support: str
    link: str
    help: str
    is_guessed: Callable[[Target], bool] = lambda target: False
    latents: int | None = 1
    arguments: tuple[Any, ...] = ()

    def load(self) -> Any:
        """Its class."""
        return getattr(importlib.import_module("natgrad.gp.likelihoods"), self.kind)

    def make(self, classes: int = 2) -> Any:
        """An object of its class, for targets in the units of its support."""
        return self.load()(*((classes,) if self.latents is None else self.arguments))


_REAL = ("regression", "real", "identity")
_COUNT = ("regression", "count", "log")
_CLASSES = ("classification", "classes")

LIKELIHOODS = {
    entry.name: entry
    for entry in (
        Likelihood("gaussian", "Gaussian", *_REAL, "numbers", lambda y: y.is_real),
        Likelihood(
            *("student-t", "StudentT", *_REAL, "numbers with outliers"),
            lambda y: y.is_real,
        ),
        Likelihood(
            *("heteroskedastic", "HeteroskedasticGaussian", *_REAL),
            *("numbers whose noise depends on the inputs", lambda y: y.is_real, 2),
        ),
        Likelihood(
            "gamma", "Gamma", "regression", "positive", "log", "positive numbers"
        ),
        Likelihood(
            *("beta", "Beta", "regression", "unit", "logit", "shares between 0 and 1"),
            arguments=(10.0,),
        ),
        Likelihood(
            *("poisson", "Poisson", *_COUNT, "counts"),
            lambda y: y.is_count and not y.is_overdispersed,
        ),
        Likelihood(
            *("negative-binomial", "NegativeBinomial", *_COUNT),
            "counts whose variance is above their mean",
            lambda y: y.is_count and y.is_overdispersed,
        ),
        Likelihood(
            *("bernoulli", "Bernoulli", *_CLASSES, "probit", "two classes"),
            lambda y: y.is_binary,
        ),
        Likelihood(
            *("softmax", "Softmax", *_CLASSES, "softmax", "two classes or more"),
            *(lambda y: y.is_nominal, None),
        ),
        Likelihood(
            *("robust-max", "RobustMax", *_CLASSES, "largest"),
            "classes with wrong labels among them",
            latents=None,
        ),
        Likelihood(
            *("ordinal", "Ordinal", "ordinal", "classes", "probit", "grades in order"),
            lambda y: y.is_ordinal,
        ),
    )
}

ESTIMATORS = {
    "regression": "GPRegressor",
    "classification": "GPClassifier",
    "ordinal": "GPOrdinal",
}
"""The estimator of each task."""

UNITS = {
    "real": "standardized",
    "positive": "divided by the mean",
    "unit": "as they are",
    "count": "as they are",
    "classes": "numbered 0, 1, 2, ...",
}
"""The units in which a model sees targets, by where these live."""

KERNELS = {
    "matern12": "Matern12",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "rbf": "RBF",
}
"""The kernels with a name, from rough to smooth, and their classes in
`natgrad.gp.kernels`."""


def names(*tasks: str) -> tuple[str, ...]:
    """The names of the likelihoods for some tasks."""
    return tuple(each.name for each in LIKELIHOODS.values() if each.task in tasks)


CLASSES = names("classification", "ordinal")
"""The likelihoods whose targets are classes."""


def guesses(target: Target, rows: int) -> tuple[str, ...]:
    """What "auto" chooses for a target: one likelihood, or several to compare."""
    found = tuple(name for name, each in LIKELIHOODS.items() if each.is_guessed(target))
    return found if rows >= MANY else found[:1]


def noises(rows: int) -> tuple[str, ...]:
    """What "auto" compares for a real target."""
    return guesses(Target([-0.5, 0.0, 0.5]), rows)


def name_of(likelihood: Any) -> str:
    """The name of a likelihood that is an object."""
    kinds = {each.load(): name for name, each in LIKELIHOODS.items()}
    return kinds[type(likelihood)]


def kernel(name: str) -> Any:
    """The class of a kernel with a name."""
    return getattr(importlib.import_module("natgrad.gp.kernels"), KERNELS[name])
