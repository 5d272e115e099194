"""Likelihoods p(y | f), one row at a time."""

from natgrad.gp.likelihoods._base import (
    AbstractLikelihood as AbstractLikelihood,
    AbstractMonteCarlo as AbstractMonteCarlo,
    AbstractNumerical as AbstractNumerical,
    AbstractQuadrature as AbstractQuadrature,
)
from natgrad.gp.likelihoods._continuous import (
    Beta as Beta,
    Gamma as Gamma,
    Gaussian as Gaussian,
    HeteroskedasticGaussian as HeteroskedasticGaussian,
    StudentT as StudentT,
)
from natgrad.gp.likelihoods._discrete import (
    AbstractEdges as AbstractEdges,
    Bernoulli as Bernoulli,
    FixedEdges as FixedEdges,
    LearnedEdges as LearnedEdges,
    NegativeBinomial as NegativeBinomial,
    Ordinal as Ordinal,
    Poisson as Poisson,
)
from natgrad.gp.likelihoods._distribution import FromDistribution as FromDistribution
from natgrad.gp.likelihoods._multiclass import (
    RobustMax as RobustMax,
    Softmax as Softmax,
)


__all__ = [
    "Gaussian",
    "StudentT",
    "HeteroskedasticGaussian",
    "Bernoulli",
    "Softmax",
    "RobustMax",
    "Ordinal",
    "LearnedEdges",
    "FixedEdges",
    "Poisson",
    "NegativeBinomial",
    "Gamma",
    "Beta",
    "FromDistribution",
    "AbstractLikelihood",
    "AbstractQuadrature",
    "AbstractMonteCarlo",
    "AbstractNumerical",
    "AbstractEdges",
]
