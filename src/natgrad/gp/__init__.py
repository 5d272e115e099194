"""Sparse Gaussian processes: build, train, predict with, save and export a model."""

from natgrad.gp import inducing, kernels, likelihoods, means, rows
from natgrad.gp._export import to_onnx, to_stablehlo
from natgrad.gp._files import load, save
from natgrad.gp._fit import fit
from natgrad.gp._online import Online, online, update
from natgrad.gp._pathwise import draw_paths
from natgrad.gp._prediction import Predictor, predictor
from natgrad.gp._sites import dual_elbo, with_sites
from natgrad.gp._sizes import choose_num_inducing, initialize
from natgrad.gp._sparse import SparseGP, elbo
from natgrad.gp._steps import alternating


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
    "with_sites",
    "kernels",
    "likelihoods",
    "means",
    "inducing",
    "rows",
]
