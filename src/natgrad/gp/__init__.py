"""Sparse Gaussian processes: build, train, predict with, save and export a model."""

from natgrad.gp import (
    inducing as inducing,
    kernels as kernels,
    likelihoods as likelihoods,
    means as means,
)
from natgrad.gp._dual import (
    Sites as Sites,
    dual_elbo as dual_elbo,
    to_sites as to_sites,
    with_sites as with_sites,
)
from natgrad.gp._export import (
    to_onnx as to_onnx,
    to_stablehlo as to_stablehlo,
)
from natgrad.gp._files import load as load, save as save
from natgrad.gp._fit import fit as fit
from natgrad.gp._online import Online as Online, online as online
from natgrad.gp._pathwise import draw_paths as draw_paths
from natgrad.gp._prediction import Predictor as Predictor, predictor as predictor
from natgrad.gp._sizes import (
    choose_num_inducing as choose_num_inducing,
    initialize as initialize,
)
from natgrad.gp._sparse import SparseGP as SparseGP, elbo as elbo
from natgrad.gp._steps import alternating as alternating
from natgrad.gp._update import update as update


__all__ = [
    "SparseGP",
    "initialize",
    "fit",
    "predictor",
    "Predictor",
    "elbo",
    "update",
    "online",
    "Online",
    "save",
    "load",
    "to_onnx",
    "to_stablehlo",
    "draw_paths",
    "choose_num_inducing",
    "alternating",
    "dual_elbo",
    "to_sites",
    "with_sites",
    "Sites",
    "kernels",
    "likelihoods",
    "means",
    "inducing",
]
