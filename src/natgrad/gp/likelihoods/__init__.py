"""Likelihoods p(y | f), one row at a time."""

from natgrad.gp.likelihoods._base import (
    AbstractLikelihood as AbstractLikelihood,
    AbstractMonteCarlo as AbstractMonteCarlo,
    AbstractQuadrature as AbstractQuadrature,
    column as column,
)
from natgrad.gp.likelihoods._binomial import Binomial as Binomial
from natgrad.gp.likelihoods._censored import Censored as Censored
from natgrad.gp.likelihoods._continuous import (
    Beta as Beta,
    Gaussian as Gaussian,
    HeteroskedasticGaussian as HeteroskedasticGaussian,
    StudentT as StudentT,
)
from natgrad.gp.likelihoods._discrete import (
    Bernoulli as Bernoulli,
    NegativeBinomial as NegativeBinomial,
    Ordinal as Ordinal,
    Poisson as Poisson,
)
from natgrad.gp.likelihoods._distribution import FromDistribution as FromDistribution
from natgrad.gp.likelihoods._inflated import (
    ZeroInflatedNegativeBinomial as ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson as ZeroInflatedPoisson,
)
from natgrad.gp.likelihoods._multiclass import (
    RobustMax as RobustMax,
    Softmax as Softmax,
)
from natgrad.gp.likelihoods._outputs import (
    LinearCoregionalization as LinearCoregionalization,
)
from natgrad.gp.likelihoods._positive import (
    Gamma as Gamma,
    Weibull as Weibull,
)


__all__ = [
    "Gaussian",
    "StudentT",
    "HeteroskedasticGaussian",
    "Bernoulli",
    "Softmax",
    "RobustMax",
    "Ordinal",
    "Poisson",
    "NegativeBinomial",
    "ZeroInflatedPoisson",
    "ZeroInflatedNegativeBinomial",
    "Binomial",
    "Gamma",
    "Weibull",
    "Censored",
    "Beta",
    "LinearCoregionalization",
    "FromDistribution",
    "column",
    "AbstractLikelihood",
    "AbstractQuadrature",
    "AbstractMonteCarlo",
]
