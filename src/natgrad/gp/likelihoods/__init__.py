"""Likelihoods p(y | f), one row at a time."""

from natgrad.gp.likelihoods._base import (
    AbstractLikelihood,
    AbstractMonteCarlo,
    AbstractQuadrature,
    column,
)
from natgrad.gp.likelihoods._censored import Censored
from natgrad.gp.likelihoods._continuous import (
    Beta,
    Gaussian,
    HeteroskedasticGaussian,
    StudentT,
)
from natgrad.gp.likelihoods._discrete import (
    Bernoulli,
    Binomial,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from natgrad.gp.likelihoods._distribution import FromDistribution
from natgrad.gp.likelihoods._inflated import (
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from natgrad.gp.likelihoods._multiclass import RobustMax, Softmax
from natgrad.gp.likelihoods._outputs import LinearCoregionalization
from natgrad.gp.likelihoods._positive import Gamma, Weibull
from natgrad.gp.likelihoods._support import Parameter, Support


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
    "Parameter",
    "Support",
    "AbstractLikelihood",
    "AbstractQuadrature",
    "AbstractMonteCarlo",
]
